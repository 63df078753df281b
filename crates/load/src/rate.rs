//! The words of `--rate`: `1000`, `1000@10s,2000@20s` for steps, `100..5000@60s` for a ramp.

use std::fmt;
use std::time::Duration;

use crate::Stage;

/// Stages of one schedule at most: beyond it somebody has mistaken the option for a file.
const STAGES_MAX: usize = 1_000;
/// Requests per second at most; a nanosecond between two of them is as near as they get.
const RATE_MAX: f64 = 1e9;

/// What is wrong with a rate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateError {
    part: String,
    why: &'static str,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\": {}; expected 1000 for a rate, 1000@10s,2000@10s for steps, 100..5000@60s for \
             a ramp (requests per second)",
            self.part, self.why
        )
    }
}

impl std::error::Error for RateError {}

/// Reads the stages of an open loop.
///
/// # Errors
/// [`RateError`] names the part that is wrong.
pub fn parse_rate(text: &str) -> Result<Vec<Stage>, RateError> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > STAGES_MAX {
        return Err(RateError { part: parts[STAGES_MAX].to_owned(), why: "too many stages" });
    }
    let last = parts.len() - 1;
    let stage = |(number, part): (usize, &&str)| {
        parse_stage(part, number == last).map_err(|why| RateError { part: (*part).to_owned(), why })
    };
    let stages: Vec<Stage> = parts.iter().enumerate().map(stage).collect::<Result<_, _>>()?;
    if stages.iter().all(|stage| stage.from_per_s == 0.0 && stage.to_per_s == 0.0) {
        return Err(RateError { part: text.to_owned(), why: "no request would ever begin" });
    }
    Ok(stages)
}

fn parse_stage(part: &str, is_last: bool) -> Result<Stage, &'static str> {
    let (rates, lasts) = match part.split_once('@') {
        Some((rates, lasts)) => (rates, Some(parse_duration(lasts)?)),
        None => (part, None),
    };
    let (from_per_s, to_per_s) = match rates.split_once("..") {
        Some((from, to)) => (parse_number(from)?, parse_number(to)?),
        None => (parse_number(rates)?, parse_number(rates)?),
    };
    if lasts.is_none() && !is_last {
        return Err("only the last stage may do without a duration");
    }
    if lasts.is_none() && from_per_s != to_per_s {
        return Err("a ramp needs a duration");
    }
    Ok(Stage { from_per_s, to_per_s, lasts })
}

fn parse_number(text: &str) -> Result<f64, &'static str> {
    let (digits, factor) = match text.trim().strip_suffix('k') {
        Some(digits) => (digits, 1_000.0),
        None => (text.trim(), 1.0),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = digits.parse().map_err(|_| "not a number")?;
    match number * factor {
        _ if !is_plain => Err("not a number"),
        rate if rate > RATE_MAX => Err("more than a request in a nanosecond"),
        rate => Ok(rate),
    }
}

fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let text = text.trim();
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
    let found = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let (digits, factor) = found.ok_or("a duration without its unit (ms, s, m or h)")?;
    let number: f64 = digits.trim().parse().map_err(|_| "not a duration")?;
    let duration = Duration::try_from_secs_f64(number * factor).map_err(|_| "not a duration")?;
    if duration.is_zero() { Err("a duration of zero") } else { Ok(duration) }
}

/// The stages in the words of `--rate`.
#[must_use]
pub fn rate_in_words(stages: &[Stage]) -> String {
    let words = |stage: &Stage| {
        let Stage { from_per_s, to_per_s, lasts } = stage;
        let ramp = if from_per_s == to_per_s { String::new() } else { format!("..{to_per_s}") };
        let lasts = lasts.map_or(String::new(), |lasts| format!("@{}s", lasts.as_secs_f64()));
        format!("{from_per_s}{ramp}{lasts}")
    };
    stages.iter().map(words).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back_as_they_are_shown() {
        for text in ["1000", "0.5", "1000@10s,2000@20s", "100..5000@60s", "0..10@0.5s,10"] {
            assert_eq!(rate_in_words(&parse_rate(text).expect(text)), text);
        }
        let stages = parse_rate("2k@1m").expect("a rate");
        assert_eq!(
            (stages[0].from_per_s, stages[0].lasts),
            (2_000.0, Some(Duration::from_secs(60)))
        );
    }

    #[test]
    fn wrong_rates_say_which_part_and_why() {
        for (text, part, why) in [
            ("", "", "not a number"),
            ("fast", "fast", "not a number"),
            ("-5", "-5", "not a number"),
            ("1e99", "1e99", "not a number"),
            ("99999999999", "99999999999", "nanosecond"),
            ("1000,2000@5s", "1000", "only the last"),
            ("1..2", "1..2", "ramp needs"),
            ("5@10", "5@10", "unit"),
            ("5@0s", "5@0s", "zero"),
            ("0", "0", "ever begin"),
        ] {
            let error = parse_rate(text).expect_err(text);
            assert_eq!(error.part, part);
            assert!(error.why.contains(why), "{text}: {error}");
        }
    }
}
