//! A ratio told as a change: so much more or less, or so many times.
//!
//! Answers and tables tell changes in these words. They say nothing of which is better:
//! less is better of costs and worse of rates.

/// From this ratio on a change is given in times and not in percent.
pub const TIMES_MIN: f64 = 2.0;

/// Such as `1.6 % less` or `22.8 times`.
#[must_use]
pub fn size_in_words(ratio: f64) -> String {
    match () {
        () if ratio >= TIMES_MIN => format!("{ratio:.1} times"),
        () if ratio < 1.0 => format!("{:.1} % less", percent(ratio).abs()),
        () => format!("{:.1} % more", percent(ratio)),
    }
}

/// The interval of the same, turned as its words are: `[1.0, 2.2]`. An end below 0 lies on the other
/// side of no change.
#[must_use]
pub fn interval_in_words(ratio: f64, low: f64, high: f64) -> String {
    match () {
        () if ratio >= TIMES_MIN => format!("[{low:.1}, {high:.1}]"),
        () if ratio < 1.0 => format!("[{:.1}, {:.1}]", 0.0 - percent(high), 0.0 - percent(low)),
        () => format!("[{:.1}, {:.1}]", percent(low), percent(high)),
    }
}

/// Both: `1.6 % less [1.0, 2.2]`.
#[must_use]
pub fn change_in_words(ratio: f64, low: f64, high: f64) -> String {
    format!("{} {}", size_in_words(ratio), interval_in_words(ratio, low, high))
}

/// A minimum effect: `2 %`, `1.5 %`.
#[must_use]
pub fn effect_in_words(effect: f64) -> String {
    format!("{} %", percent(1.0 + effect))
}

/// The change of a ratio in percent, to a tenth and never a negative nought.
fn percent(ratio: f64) -> f64 {
    ((ratio - 1.0) * 1000.0).round() / 10.0 + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
