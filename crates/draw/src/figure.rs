//! Figures with three significant digits and the unit's prefix, whole numbers with separators.
//!
//! All reports use these, so one figure looks the same in all of them. Nothing here may round in a
//! way that hides a sign, or turns what is not a number into one.

/// Prefixes from the largest; below 1000 there is none.
const PREFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
/// Below this a plain decimal would be mostly zeros.
const DECIMAL_MIN: f64 = 1e-4;

/// Three significant digits with a prefix: `1.08 M`, `383 k`, `12.7`, `0.0791`; a dash for what is
/// not finite.
#[must_use]
pub fn with_prefix(value: f64) -> String {
    // 999.6 k rounds to 1000 k, which is 1.00 M.
    match PREFIXES.iter().find(|(unit, _)| value.abs() >= unit * 0.9995) {
        Some((unit, prefix)) if value.is_finite() => {
            format!("{} {prefix}", significant(value / unit))
        }
        _ => significant(value),
    }
}

/// A figure for an axis: no zeros at the end of its fraction, `200 k`, `1.5 ms`. `shown` is a
/// number, and a unit or prefix after a space where it has one.
#[must_use]
pub fn tick(shown: &str) -> String {
    let (figure, unit) = shown.split_once(' ').unwrap_or((shown, ""));
    let figure = match figure.contains('.') {
        true => figure.trim_end_matches('0').trim_end_matches('.'),
        false => figure,
    };
    format!("{figure} {unit}").trim_end().to_owned()
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
            assert_eq!(with_prefix(value), shown, "{value}");
        }
        assert_eq!([tick("200 k"), tick("1.50 ms"), tick("2.00")], ["200 k", "1.5 ms", "2"]);
        assert_eq!([count(18_000), count(7), count(1_234_567)], ["18,000", "7", "1,234,567"]);
    }
}
