//! Figures as people read them: three significant digits, the unit's prefix, a ratio, a share.
//!
//! Every form of the report uses these, so one figure looks the same in all of them. Nothing here
//! may round in a way that hides a sign or turns a value that is not there into a number.

pub(super) use pollux_draw::{count, with_prefix as si};

const SECONDS_PER_MINUTE: f64 = 60.0;
const SECONDS_PER_HOUR: f64 = 3600.0;

/// [`pollux_draw::with_prefix`] for an axis: `200 k`, `1.5 M`.
pub(super) fn tick(value: f64) -> String {
    pollux_draw::tick(&si(value))
}

/// Nanoseconds without a prefix, since their unit has one already: `746`, `64,100`.
pub(super) fn nanoseconds(value: f64) -> String {
    let is_long = value.is_finite() && value >= 1000.0;
    if is_long { count(value.round() as u64) } else { si(value) }
}

/// The value of an axis: separators where it is a whole number, else as it was written.
pub(super) fn axis_value(text: &str) -> String {
    text.parse::<u64>().map_or_else(|_| text.to_owned(), count)
}

/// A ratio: two places around one, more below a tenth, fewer above ten.
pub(super) fn ratio(value: f64) -> String {
    ratio_like(value, value)
}

/// A ratio and its interval, all with the same places: `1.11 [1.08, 1.14]`.
pub(super) fn ratio_and_interval(value: f64, low: f64, high: f64) -> String {
    format!("{} [{}, {}]", ratio_like(value, low), ratio_like(low, low), ratio_like(high, low))
}

/// The same where intervals are a percent wide: one place more up to a ratio of ten.
pub(super) fn close_ratio_and_interval(value: f64, low: f64, high: f64) -> String {
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

/// A share between 0 and 1 in per cent.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if !size.is_finite() => "–".to_owned(),
        size if size == 0.0 || size >= 99.95 => format!("{percent:.0} %"),
        size if size < 0.05 => "< 0.1 %".to_owned(),
        _ => format!("{percent:.1} %"),
    }
}

/// A length of time: `4.2 s`, `2 min 41 s`, `1 h 03 min`.
pub(super) fn duration(seconds: f64) -> String {
    if seconds < SECONDS_PER_MINUTE {
        return format!("{seconds:.1} s");
    }
    if seconds < SECONDS_PER_HOUR {
        let whole = seconds.round();
        let (minutes, rest) = (whole / SECONDS_PER_MINUTE, whole % SECONDS_PER_MINUTE);
        return format!("{} min {rest:.0} s", minutes.floor());
    }
    let minutes = (seconds / SECONDS_PER_MINUTE).round();
    format!("{} h {:02.0} min", (minutes / 60.0).floor(), minutes % 60.0)
}

/// The day and minute of an RFC 3339 time in UTC; anything else as it is.
pub(super) fn date(rfc3339: &str) -> String {
    let day = rfc3339.get(..10);
    let minute = rfc3339.get(11..16);
    match (day, minute, rfc3339.ends_with('Z')) {
        (Some(day), Some(minute), true) => format!("{day} {minute} UTC"),
        _ => rfc3339.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_shares_and_times() {
        assert_eq!([tick(200_000.0), tick(1_500_000.0), tick(0.0)], ["200 k", "1.5 M", "0"]);
        assert_eq!(
            (ratio(1.084), ratio(0.0331), ratio(34.53)),
            ("1.08".into(), "0.033".into(), "34.5".into())
        );
        assert_eq!(ratio_and_interval(0.1004, 0.0992, 0.1021), "0.100 [0.099, 0.102]");
        assert_eq!(
            (percent(0.002), percent(0.0), percent(0.0001)),
            ("0.2 %".into(), "0 %".into(), "< 0.1 %".into())
        );
        assert_eq!((duration(161.0), duration(119.7)), ("2 min 41 s".into(), "2 min 0 s".into()));
        let shown = [746.2, 64_100.4, -2000.0, f64::NAN].map(nanoseconds);
        assert_eq!(shown, ["746", "64,100", "-2.00 k", "–"]);
        assert_eq!(duration(3780.0), "1 h 03 min");
        assert_eq!(date("2026-11-21T08:40:11Z"), "2026-11-21 08:40 UTC");
        assert_eq!(date("yesterday"), "yesterday");
    }
}
