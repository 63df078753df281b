//! The one grammar of numbers, sizes, durations and shares, on every flag, key and axis.
//!
//! | what | spellings |
//! |---|---|
//! | number | `500`, `4_096`, `1.5`, `1e6`, `5e-2`; of things also in thousands and millions: `10k`, `2M`, `1.5k` |
//! | size | a number of bytes, or of `k` (`KiB`), `M` (`MiB`), `G` (`GiB`) of 1,024: `128`, `4_096`, `4k`, `64 KiB` |
//! | duration | `500ms`, `10s`, `1m30s`, `1_500 ms`; its numbers have no exponent |
//! | share | `3%`, `0.03` |
//!
//! `_` stands between two digits. A whole number may be written with a fraction or a power of ten as long as nothing
//! is left behind the point: `1.5k` connections are 1,500. Neither a sign in front nor a word such as `inf` is a number. Blanks
//! around a value, and in front of a unit, do not count.
//!
//! What is only digits by another rule is not a quantity and is read where it belongs: ports, process numbers, CPU
//! lists, status codes and modes, words of forms of io_uring (`64x16k`), and what is written by another project's rules:
//! `ndrxconfig.xml`, the variables `NDRX_…`, the control socket of a proxy, and numbers in URL patterns (`/[01-20]`).

use std::time::Duration;

use jiff::fmt::friendly::SpanParser;

/// Thousands and millions, of things.
const OF_THINGS: [(&str, u32); 2] = [("k", 1_000), ("M", 1_000_000)];

/// Units of sizes, the largest first.
pub(crate) const OF_BYTES: [(&str, u32); 3] =
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Digits that are read exactly; what has more is not a quantity of anything.
const DIGITS_MAX: usize = 30;

/// Largest power of ten that is written.
const EXPONENT_MAX: i32 = 300;

/// A whole number of things: `500`, `4_096`, `10k`, `2M`, `1e6`.
#[must_use]
pub fn whole_number(text: &str) -> Option<u64> {
    let (number, factor) = of_things(text.trim());
    Decimal::read(number)?.times(factor)
}

/// A number that may have a fraction: `0.5`, `1_000`, `10k`, `2M`, `1e6`.
#[must_use]
pub fn number(text: &str) -> Option<f64> {
    let (number, factor) = of_things(text.trim());
    Some(fraction(number)? * f64::from(factor))
}

/// An amount of bytes: `128`, `4_096`, `4k`, `64KiB`, `1 MiB`, `2G`.
#[must_use]
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[number.len()..];
    let is_unit = |(name, _): &&(&str, u32)| {
        name.eq_ignore_ascii_case(unit) || name[..1].eq_ignore_ascii_case(unit)
    };
    let unit_bytes = match unit {
        "" | "b" | "B" => 1,
        _ => OF_BYTES.iter().find(is_unit)?.1,
    };
    Decimal::read(number.trim_end())?.times(unit_bytes)
}

/// A part of one: `3%` or `0.03`.
#[must_use]
pub fn part(text: &str) -> Option<f64> {
    let text = text.trim();
    match text.strip_suffix('%') {
        Some(percent) => Some(fraction(percent.trim_end())? / 100.0),
        None => fraction(text),
    }
}

/// A duration: `500ms`, `10s`, `1m30s`.
///
/// # Errors
/// Whether all that is missing is its unit.
pub fn duration(text: &str) -> Result<Duration, NotADuration> {
    let text = text.trim();
    let plain = without_separators(text).ok_or(NotADuration::Other)?;
    SpanParser::new().parse_unsigned_duration(&plain).map_err(|_| match fraction(text) {
        Some(number) if number > 0.0 => NotADuration::WithoutUnit,
        _ => NotADuration::Other,
    })
}

/// Why a text is not a duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotADuration {
    /// It is a number.
    WithoutUnit,
    /// It is something else.
    Other,
}

/// The number in front of `k` or `M`, and what it is multiplied by.
fn of_things(text: &str) -> (&str, u32) {
    let found = OF_THINGS.iter().find_map(|(unit, by)| Some((text.strip_suffix(unit)?, *by)));
    found.map_or((text, 1), |(number, by)| (number.trim_end(), by))
}

fn fraction(text: &str) -> Option<f64> {
    Decimal::read(text)?;
    without_separators(text)?.parse().ok()
}

/// The text without each `_` between two digits; none where one stands elsewhere.
fn without_separators(text: &str) -> Option<String> {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let is_between = |(at, _): (usize, &str)| {
        at > 0 && is_digit(bytes.get(at - 1)) && is_digit(bytes.get(at + 1))
    };
    text.match_indices('_').all(is_between).then(|| text.replace('_', ""))
}

/// A number as it is written: its digits times a power of ten.
struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// Digits, a fraction behind a point, a power of ten behind `e`.
    fn read(text: &str) -> Option<Self> {
        let text = without_separators(text)?;
        let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let digits = format!("{whole}{fraction}");
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if digits.is_empty() || digits.len() > DIGITS_MAX || !are_digits(&digits) {
            return None;
        }
        let plain = power.strip_prefix(['+', '-']).unwrap_or(power);
        let power: i32 = power.parse().ok().filter(|_| are_digits(plain))?;
        if power.abs() > EXPONENT_MAX {
            return None;
        }
        let exponent = power - i32::try_from(fraction.len()).ok()?;
        Some(Self { digits: digits.parse().ok()?, exponent })
    }

    /// So many times the number, where that is whole.
    fn times(&self, factor: u32) -> Option<u64> {
        let product = self.digits.checked_mul(factor.into())?;
        let power = 10_u128.checked_pow(self.exponent.unsigned_abs());
        let whole = match (product, self.exponent >= 0) {
            (0, _) => 0,
            (product, true) => product.checked_mul(power?)?,
            (product, false) => {
                let power = power?;
                product.is_multiple_of(power).then(|| product / power)?
            }
        };
        whole.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_whole_number_is_read_in_each_of_its_spellings() {
        for (text, number) in [
            ("0", 0),
            ("500", 500),
            ("4_096", 4096),
            (" 7 ", 7),
            ("10k", 10_000),
            ("10 k", 10_000),
            ("1.5k", 1500),
            ("2M", 2_000_000),
            ("1e6", 1_000_000),
            ("1E+6", 1_000_000),
            ("1.25e2", 125),
            ("1.0", 1),
            (".5k", 500),
            ("30e-1", 3),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(whole_number(text), Some(number), "{text}");
        }
    }

    /// What is a number by no rule here.
    const NONE: [&str; 22] = [
        "", " ", "-1", "+1", "_1", "1_", "1__0", "1._5", "1 2", "1,000", "0x10", "ten", "inf",
        "NaN", "e6", "1e", "1e--1", "1e301", "1.", ".", "1K", "1g",
    ];

    #[test]
    fn what_is_not_a_number_is_none_of_any_kind() {
        for text in NONE {
            assert_eq!((whole_number(text), number(text)), (None, None), "{text}");
            assert_eq!(part(text), None, "{text}");
            assert!(duration(text).is_err(), "{text}");
        }
        for text in NONE.into_iter().filter(|text| !text.ends_with(['K', 'g'])) {
            assert_eq!(size(text), None, "{text}");
        }
        for text in ["1.5", "1.0001k", "18446744073709551616", "1e20", "1e99"] {
            assert_eq!(whole_number(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_multiples_of_1024() {
        for (text, bytes) in [
            ("128", 128),
            ("4_096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("64KiB", 65_536),
            ("64kib", 65_536),
            ("1 MiB", 1 << 20),
            ("1.5MiB", 3 << 19),
            ("2g", 2 << 30),
            ("5B", 5),
            ("1e3", 1000),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["KiB", "-1", "1KB", "1.3KiB", "99999999999999999999", "2TiB", "1k1", "1_k"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn durations_and_shares_take_the_same_numbers() {
        for (text, ms) in
            [("1_500ms", 1500), ("1.5s", 1500), ("1m30s", 90_000), (" 1m 30s ", 90_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(duration("5"), Err(NotADuration::WithoutUnit));
        for text in ["1e3s", "_5s", "5_s", "-1s", "2s ago"] {
            assert_eq!(duration(text), Err(NotADuration::Other), "{text}");
        }
        for (text, share) in [("3%", 0.03), ("1.5 %", 0.015), ("0.03", 0.03), ("3e-2", 0.03)] {
            assert_eq!(part(text), Some(share), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC{0,40}") {
            let _ = (whole_number(&text), number(&text), size(&text), part(&text));
            let _ = duration(&text);
        }

        #[test]
        fn a_whole_number_is_the_same_as_one_with_a_fraction(value in 0_u64..1 << 53, zeros in 0_usize..4) {
            let text = format!("{value}.{}", "0".repeat(zeros + 1));
            prop_assert_eq!(whole_number(&text), Some(value));
            prop_assert_eq!(number(&text).map(|number| number as u64), Some(value));
        }
    }
}
