//! Figures as people read them: three significant digits and a unit.
//!
//! Every form of a result uses these, so one figure looks the same in all of them. What is not
//! known is [`NA`], never a number.

pub use pollux_draw::count;
pub(super) use pollux_draw::with_prefix as si;
use pollux_draw::{significant, tick};

/// What stands in place of a figure that is not known.
pub(super) const NA: &str = "n/a";
const TIME_UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
const BYTE_UNITS: [(f64, &str); 4] =
    [(1_099_511_627_776.0, "TiB"), (1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB")];
/// 999.6 of a unit shows as 1000, which is 1.00 of the next.
const NEARLY: f64 = 0.9995;
/// Below this a share shows as less than that, since it would round to nothing.
const SHARE_MIN: f64 = 0.000_05;
const DAY_S: i64 = 86_400;

/// The figure or [`NA`].
pub(super) fn or_na<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NA.to_owned(), show)
}

/// Nanoseconds with the unit that leaves three digits: `746 ns`, `64.1 µs`, `1.08 s`.
#[must_use]
pub fn time(nanoseconds: f64) -> String {
    let unit = TIME_UNITS.iter().find(|(unit, _)| nanoseconds >= unit * NEARLY);
    match unit {
        Some((unit, name)) => format!("{} {name}", significant(nanoseconds / unit)),
        None => format!("{} ns", significant(nanoseconds)),
    }
}

/// [`time`] for an axis: no zeros at the end of the fraction.
pub(super) fn time_tick(nanoseconds: f64) -> String {
    tick(&time(nanoseconds))
}

/// [`si`] for an axis.
pub(super) fn si_tick(value: f64) -> String {
    tick(&si(value))
}

/// Bytes by powers of 1024: `128 B`, `16.6 MiB`.
pub(super) fn bytes(value: f64) -> String {
    let unit = BYTE_UNITS.iter().find(|(unit, _)| value >= unit * NEARLY);
    match unit {
        Some((unit, name)) => format!("{} {name}", significant(value / unit)),
        None => format!("{} B", significant(value)),
    }
}

/// A share between 0 and 1 in per cent.
pub(super) fn percent(share: f64) -> String {
    match share {
        share if !share.is_finite() => NA.to_owned(),
        share if share > 0.0 && share < SHARE_MIN => "< 0.01 %".to_owned(),
        share => format!("{} %", significant(share * 100.0)),
    }
}

/// A part of a whole in per cent; `n/a` of nothing.
pub(super) fn part(of: u64, whole: u64) -> String {
    or_na((whole > 0).then(|| of as f64 / whole as f64), percent)
}

/// Seconds of a run: `12.5 s`, `2 min 41 s`.
pub(super) fn duration(seconds: f64) -> String {
    if seconds == 0.0 {
        return "0 s".to_owned();
    }
    if seconds < 60.0 {
        return time(seconds * 1e9);
    }
    let whole = seconds.round() as u64;
    format!("{} min {} s", whole / 60, whole % 60)
}

/// Seconds since 1970 as a date of the Gregorian calendar, UTC: `2026-11-21 08:40:11 UTC`.
pub(crate) fn date(unix_s: f64) -> String {
    let (year, month, day) = civil((unix_s / DAY_S as f64).floor() as i64);
    let second = (unix_s.floor() as i64).rem_euclid(DAY_S);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

/// Year, month and day of a day number; day 0 is the first of January 1970.
fn civil(mut day: i64) -> (i64, i64, i64) {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // 400 years have 146,097 days, whichever they are; what is left is less than that.
    let mut year = 1970 + 400 * day.div_euclid(146_097);
    day = day.rem_euclid(146_097);
    while day >= 365 + i64::from(is_leap(year)) {
        day -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let cases = [
            (0.0, "0 ns"),
            (1.0, "1.00 ns"),
            (746.2, "746 ns"),
            (999.7, "1.00 µs"),
            (64_100.0, "64.1 µs"),
            (9_996.0, "10.0 µs"),
            (12_345_678.0, "12.3 ms"),
            (3_600e9, "3600 s"),
        ];
        for (nanoseconds, shown) in cases {
            assert_eq!(time(nanoseconds), shown, "{nanoseconds}");
        }
        assert_eq!((time_tick(2e6), time_tick(1.5e6)), ("2 ms".into(), "1.5 ms".into()));
    }

    #[test]
    fn rates_bytes_and_shares() {
        assert_eq!([si(1_084_000.0), si(999_700.0), si(99.97)], ["1.08 M", "1.00 M", "100"]);
        assert_eq!([bytes(128.0), bytes(17_416_000.0)], ["128 B", "16.6 MiB"]);
        assert_eq!(
            [percent(0.0), percent(0.012_34), percent(0.000_01)],
            ["0 %", "1.23 %", "< 0.01 %"]
        );
        assert_eq!([part(1, 0), part(1, 4)], ["n/a", "25.0 %"]);
        assert_eq!(
            [duration(0.0), duration(2.5), duration(161.0)],
            ["0 s", "2.50 s", "2 min 41 s"]
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0.0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400.0), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_795_250_411.9), "2026-11-21 08:40:11 UTC");
        assert_eq!(date(4_107_542_399.0), "2100-02-28 23:59:59 UTC");
    }
}
