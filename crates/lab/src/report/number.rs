//! Figures as people read them: three significant digits, the unit's prefix, a ratio, a share.
//!
//! Every form of the report uses these, so one figure looks the same in all of them. Nothing here
//! may round in a way that hides a sign or turns a value that is not there into a number.

/// Prefixes from the largest; below 1000 there is none.
const PREFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
/// Below this a plain decimal would be mostly zeros.
const DECIMAL_MIN: f64 = 1e-4;
const SECONDS_PER_MINUTE: f64 = 60.0;
const SECONDS_PER_HOUR: f64 = 3600.0;

/// Three significant digits with a prefix: `1.08 M`, `383 k`, `12.7`, `0.0791`.
pub(super) fn si(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    for (unit, prefix) in PREFIXES {
        // 999.6 k rounds to 1000 k, which is 1.00 M.
        if value.abs() >= unit * 0.9995 {
            return format!("{} {prefix}", significant(value / unit));
        }
    }
    significant(value)
}

/// [`si`] for an axis: no zeros at the end of the fraction, `200 k`, `1.5 M`.
pub(super) fn tick(value: f64) -> String {
    let text = si(value);
    let (figure, prefix) = text.split_once(' ').unwrap_or((&text, ""));
    let figure = match figure.contains('.') {
        true => figure.trim_end_matches('0').trim_end_matches('.'),
        false => figure,
    };
    format!("{figure} {prefix}").trim_end().to_owned()
}

/// Three significant digits below 1000, without a prefix.
fn significant(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if size < DECIMAL_MIN {
        return format!("{value:.1e}");
    }
    let places = (2.0 - size.log10().floor()).clamp(0.0, 6.0);
    let rounded_up = 10f64.powf(-places) / 2.0 + size >= 10f64.powf(size.log10().floor() + 1.0);
    let places = if rounded_up && places > 0.0 { places - 1.0 } else { places };
    format!("{value:.*}", places as usize)
}

/// Nanoseconds without a prefix, since their unit has one already: `746`, `64,100`.
pub(super) fn nanoseconds(value: f64) -> String {
    let is_long = value.is_finite() && value >= 1000.0;
    if is_long { count(value.round() as u64) } else { si(value) }
}

/// A whole number with separators: `18,000`.
pub(super) fn count(value: u64) -> String {
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
        assert_eq!((tick(200_000.0), tick(1_500_000.0)), ("200 k".to_owned(), "1.5 M".to_owned()));
        assert_eq!((tick(0.0), tick(100.0)), ("0".to_owned(), "100".to_owned()));
    }

    #[test]
    fn counts_ratios_shares_and_times() {
        assert_eq!(
            (count(18_000), count(7), count(1_234_567)),
            ("18,000".into(), "7".into(), "1,234,567".into())
        );
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
