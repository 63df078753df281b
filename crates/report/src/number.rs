//! Figures as people read them: three significant digits with a unit or its prefix, ratios, shares,
//! lengths of time, dates; and ratios in words, as a change.
//!
//! All reports use these, so one figure looks the same in all of them. Nothing here may round in a
//! way that hides a sign, or turns what is not a number into one.

use std::time::Duration;

use jiff::Timestamp;

/// What stands in place of a figure that is not known.
pub const NA: &str = "n/a";
const TIME_UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
const BYTE_UNITS: [(f64, &str); 4] =
    [(1_099_511_627_776.0, "TiB"), (1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB")];
/// 999.6 of a unit shows as 1000, which is 1.00 of the next.
const NEARLY: f64 = 0.9995;
/// Prefixes from the largest; below 1000 there is none.
const PREFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
/// Below this a plain decimal would be mostly zeros.
const DECIMAL_MIN: f64 = 1e-4;
/// From this ratio on a change is given in times and not in percent.
pub const TIMES_MIN: f64 = 2.0;
/// From here on times are whole numbers: more digits would say more than is known.
const TIMES_WHOLE: f64 = 100.0;

/// Three significant digits with a prefix: `1.08 M`, `383 k`, `12.7`, `0.0791`; a dash for what is
/// not finite.
#[must_use]
pub fn si(value: f64) -> String {
    // 999.6 k rounds to 1000 k, which is 1.00 M.
    match PREFIXES.iter().find(|(unit, _)| value.abs() >= unit * 0.9995) {
        Some((unit, prefix)) if value.is_finite() => {
            format!("{} {prefix}", significant(value / unit))
        }
        _ => significant(value),
    }
}

/// Three significant digits without a prefix; whole numbers keep all of theirs, a dash stands for
/// what is not finite.
#[must_use]
pub fn significant(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".to_owned();
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    if size < DECIMAL_MIN {
        return format!("{value:.1e}");
    }
    // The places that the value has after rounding: 9.996 is 10.0, not 10.00.
    let places = |size: f64| (2.0 - size.log10().floor()).clamp(0.0, 6.0);
    let step = 10f64.powf(-places(size));
    let rounded = (size / step).round() * step;
    format!("{value:.*}", places(rounded.max(step)) as usize)
}

/// A whole number with separators: `18,000`.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 thread`, `2 threads`.
#[must_use]
pub fn plural(value: u64, noun: &str) -> String {
    let s = if value == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(value))
}

/// `1 request was`, `2 requests were`: a number with the words for one and for several.
#[must_use]
pub fn counted(value: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(value), if value == 1 { one } else { several })
}

/// [`si`] for an axis: no zeros at the end of the fraction, `200 k`, `1.5 M`.
#[must_use]
pub fn tick(value: f64) -> String {
    short(&si(value))
}

/// [`time`] for an axis.
#[must_use]
pub fn time_tick(nanoseconds: f64) -> String {
    short(&time(nanoseconds))
}

/// A figure with its unit behind a space, without zeros at the end of its fraction.
fn short(shown: &str) -> String {
    let (figure, unit) = shown.split_once(' ').unwrap_or((shown, ""));
    let figure = if figure.contains('.') {
        figure.trim_end_matches('0').trim_end_matches('.')
    } else {
        figure
    };
    format!("{figure} {unit}").trim_end().to_owned()
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

/// Bytes by powers of 1024: `128 B`, `16.6 MiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    let unit = BYTE_UNITS.iter().find(|(unit, _)| value >= unit * NEARLY);
    match unit {
        Some((unit, name)) => format!("{} {name}", significant(value / unit)),
        None => format!("{} B", significant(value)),
    }
}

/// Nanoseconds without a prefix, since their unit has one already: `746`, `64,100`.
#[must_use]
pub fn nanoseconds(value: f64) -> String {
    let is_long = value.is_finite() && value >= 1000.0;
    if is_long { count(value.round() as u64) } else { si(value) }
}

/// The value of an axis: separators where it is a whole number, else as it was written.
#[must_use]
pub fn axis_value(text: &str) -> String {
    text.parse::<u64>().map_or_else(|_| text.to_owned(), count)
}

/// A ratio: two places around one, more below a tenth, fewer above ten.
#[must_use]
pub fn ratio(value: f64) -> String {
    ratio_like(value, value)
}

/// A ratio and its interval, all with the same places: `1.11 [1.08, 1.14]`.
#[must_use]
pub fn ratio_and_interval(value: f64, low: f64, high: f64) -> String {
    format!("{} [{}, {}]", ratio_like(value, low), ratio_like(low, low), ratio_like(high, low))
}

/// The same where intervals are a percent wide: one place more up to a ratio of ten.
#[must_use]
pub fn close_ratio_and_interval(value: f64, low: f64, high: f64) -> String {
    match low {
        0.1..10.0 => format!("{value:.3} [{low:.3}, {high:.3}]"),
        _ => ratio_and_interval(value, low, high),
    }
}

/// A ratio with the places that another one needs.
fn ratio_like(value: f64, like: f64) -> String {
    let places = match like.abs() {
        _ if !value.is_finite() => return "–".to_owned(),
        size if size < 0.001 => return format!("{value:.1e}"),
        size if size < 0.1 => 3,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}

/// A share between 0 and 1 in per cent: `20.2 %`, `0.03 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if !size.is_finite() => "–".to_owned(),
        size if size == 0.0 || size >= 99.95 => format!("{percent:.0} %"),
        size if size < 0.005 => "< 0.01 %".to_owned(),
        size if size < 0.095 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// [`percent`] for an axis: whole, `25 %`.
#[must_use]
pub fn percent_tick(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A part of a whole in per cent; [`NA`] of nothing.
#[must_use]
pub fn part(of: u64, whole: u64) -> String {
    or_na((whole > 0).then(|| of as f64 / whole as f64), percent)
}

/// The figure or [`NA`].
#[must_use]
pub fn or_na<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NA.to_owned(), show)
}

/// A length of time: `2.50 s`, `2 min 41 s`, `1 h 03 min`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    if seconds == 0.0 {
        return "0 s".to_owned();
    }
    if seconds < 60.0 {
        return time(seconds * 1e9);
    }
    let whole = seconds.round() as u64;
    let minutes = (whole + 30) / 60;
    match whole {
        ..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

/// A time to whole seconds, for what is planned: `95 s`, `2 min 41 s`.
#[must_use]
pub fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..=119 => format!("{seconds} s"),
        _ => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// An RFC 3339 time to the second in UTC: `2026-11-21 08:40:11 UTC`; anything else as it is.
#[must_use]
pub fn date(rfc3339: &str) -> String {
    rfc3339.parse::<Timestamp>().map_or_else(|_| rfc3339.to_owned(), shown)
}

/// The same of seconds since 1970.
#[must_use]
pub fn date_of_unix(seconds: f64) -> String {
    Timestamp::from_second(seconds.floor() as i64).map_or_else(|_| "–".to_owned(), shown)
}

fn shown(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A ratio as a change, such as `1.6 % less` or `22.8 times`. It does not say which is better: less is better of
/// costs and worse of rates.
#[must_use]
pub fn size_in_words(ratio: f64) -> String {
    if ratio >= TIMES_WHOLE {
        format!("{ratio:.0} times")
    } else if ratio >= TIMES_MIN {
        format!("{ratio:.1} times")
    } else if ratio < 1.0 {
        format!("{:.1} % less", change_percent(ratio).abs())
    } else {
        format!("{:.1} % more", change_percent(ratio))
    }
}

/// The interval of the same, turned as its words are: `[1.0, 2.2]`. An end below 0 lies on the other
/// side of no change. One that reaches from less to many times has words of its own for each end.
#[must_use]
pub fn interval_in_words(ratio: f64, low: f64, high: f64) -> String {
    if ratio >= TIMES_WHOLE {
        format!("[{low:.0}, {high:.0}]")
    } else if ratio >= TIMES_MIN {
        format!("[{low:.1}, {high:.1}]")
    } else if high >= TIMES_MIN {
        format!("[{} to {}]", size_in_words(low), size_in_words(high))
    } else if ratio < 1.0 {
        format!("[{:.1}, {:.1}]", 0.0 - change_percent(high), 0.0 - change_percent(low))
    } else {
        format!("[{:.1}, {:.1}]", change_percent(low), change_percent(high))
    }
}

/// Both: `1.6 % less [1.0, 2.2]`.
#[must_use]
pub fn change_in_words(ratio: f64, low: f64, high: f64) -> String {
    format!("{} {}", size_in_words(ratio), interval_in_words(ratio, low, high))
}

/// What a ratio is at least away from 1, `times` being that factor: `at least 5.2 times`, `at least 1,200 times`; below 1
/// `at most a fifth`, `at most 1/42`, `at most 0.63 times`. Rounded towards 1, so that it holds.
#[must_use]
pub fn bound_in_words(times: f64, is_more: bool) -> String {
    const PARTS: [&str; 9] = [
        "half",
        "a third",
        "a quarter",
        "a fifth",
        "a sixth",
        "a seventh",
        "an eighth",
        "a ninth",
        "a tenth",
    ];
    // Two digits are known, and of a factor below ten no more than tenths.
    let unit = 10_f64.powi((times.log10().floor() as i32 - 1).max(-1));
    let down = ((times / unit + 1e-9).floor() * unit).max(1.0);
    let whole = (down + 1e-9) as u64;
    if is_more && down < 10.0 {
        format!("at least {down:.1} times")
    } else if is_more {
        format!("at least {} times", count(whole))
    } else if down < TIMES_MIN {
        format!("at most {:.2} times", (100.0 / times - 1e-9).ceil() / 100.0)
    } else {
        match PARTS.get(whole as usize - 2) {
            Some(part) => format!("at most {part}"),
            None => format!("at most 1/{}", count(whole)),
        }
    }
}

/// A minimum effect: `2 %`, `1.5 %`.
#[must_use]
pub fn effect_in_words(effect: f64) -> String {
    format!("{} %", change_percent(1.0 + effect))
}

/// The change of a ratio in percent, to a tenth and never a negative nought.
fn change_percent(ratio: f64) -> f64 {
    ((ratio - 1.0) * 1000.0).round() / 10.0 + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_prefix() {
        let cases = [
            (1_084_000.0, "1.08 M"),
            (383_400.0, "383 k"),
            (999_700.0, "1.00 M"),
            (999.2, "999"),
            (9.996, "10.0"),
            (99.97, "100"),
            (12.71, "12.7"),
            (0.079_12, "0.0791"),
            (0.0, "0"),
            (-2.5, "-2.50"),
            (0.000_012, "1.2e-5"),
            (f64::NAN, "–"),
        ];
        for (value, shown) in cases {
            assert_eq!(si(value), shown, "{value}");
        }
        assert_eq!([short("200 k"), short("1.50 ms"), short("2.00")], ["200 k", "1.5 ms", "2"]);
        assert_eq!([count(18_000), count(7), count(1_234_567)], ["18,000", "7", "1,234,567"]);
    }

    #[test]
    fn ratios_shares_and_lengths_of_time() {
        assert_eq!([tick(200_000.0), tick(1_500_000.0), tick(0.0)], ["200 k", "1.5 M", "0"]);
        let [one, small, large] = [1.084, 0.0331, 34.53].map(ratio);
        assert_eq!([one, small, large], ["1.08", "0.033", "34.5"]);
        assert_eq!(ratio_and_interval(0.1004, 0.0992, 0.1021), "0.100 [0.099, 0.102]");
        let shown = [0.0, 0.202, 0.0123, 0.0003, 0.000_04, 0.9999, f64::NAN].map(percent);
        assert_eq!(shown, ["0 %", "20.2 %", "1.2 %", "0.03 %", "< 0.01 %", "100 %", "–"]);
        let shown = [0.0, 2.5, 161.0, 119.7, 3780.0].map(duration);
        assert_eq!(shown, ["0 s", "2.50 s", "2 min 41 s", "2 min 0 s", "1 h 03 min"]);
        assert_eq!([part(1, 0), part(1, 4)], ["n/a", "25.0 %"]);
        let shown = [746.2, 64_100.4, -2000.0, f64::NAN].map(nanoseconds);
        assert_eq!(shown, ["746", "64,100", "-2.00 k", "–"]);
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let cases = [
            (0.0, "0 ns"),
            (746.2, "746 ns"),
            (999.7, "1.00 µs"),
            (64_100.0, "64.1 µs"),
            (12_345_678.0, "12.3 ms"),
            (3_600e9, "3600 s"),
        ];
        for (nanoseconds, shown) in cases {
            assert_eq!(time(nanoseconds), shown, "{nanoseconds}");
        }
        assert_eq!((time_tick(2e6), time_tick(1.5e6)), ("2 ms".into(), "1.5 ms".into()));
        assert_eq!([bytes(128.0), bytes(17_416_000.0)], ["128 B", "16.6 MiB"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date_of_unix(0.0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date_of_unix(951_782_400.0), "2000-02-29 00:00:00 UTC");
        assert_eq!(date_of_unix(1_795_250_411.9), "2026-11-21 08:40:11 UTC");
        assert_eq!(date("2026-11-21T08:40:11Z"), "2026-11-21 08:40:11 UTC");
        assert_eq!(date("yesterday"), "yesterday");
    }

    #[test]
    fn changes_are_more_or_less_or_times() {
        for ((ratio, low, high), words) in [
            ((0.984, 0.978, 0.990), "1.6 % less [1.0, 2.2]"),
            ((1.063, 1.049, 1.077), "6.3 % more [4.9, 7.7]"),
            ((1.003, 0.995, 1.011), "0.3 % more [-0.5, 1.1]"),
            ((0.997, 0.990, 1.004), "0.3 % less [-0.4, 1.0]"),
            ((22.81, 22.5, 23.1), "22.8 times [22.5, 23.1]"),
            ((0.99999, 0.99, 1.0), "0.0 % less [0.0, 1.0]"),
        ] {
            assert_eq!(change_in_words(ratio, low, high), words);
        }
        assert_eq!([0.02, 0.015, 0.07].map(effect_in_words), ["2 %", "1.5 %", "7 %"]);
    }

    #[test]
    fn a_bound_is_rounded_towards_no_change() {
        let more = [2.0, 5.29, 9.99, 21.7, 118.0, 1289.0].map(|times| bound_in_words(times, true));
        let words = ["2.0", "5.2", "9.9", "21", "110", "1,200"];
        assert_eq!(more, words.map(|times| format!("at least {times} times")));
        let less = [2.9, 5.0, 10.3, 21.7].map(|times| bound_in_words(times, false));
        assert_eq!(less, ["at most half", "at most a fifth", "at most a tenth", "at most 1/21"]);
        let near = [true, false].map(|is_more| bound_in_words(1.69, is_more));
        assert_eq!(near, ["at least 1.6 times", "at most 0.60 times"]);
    }
}
