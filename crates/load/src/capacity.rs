//! The search for the highest rate that holds an objective.
//!
//! The search only decides what to try next; who uses it runs the trials. One trial proves
//! little on a shared machine, so a rate holds, or fails, when it did so in two of three.
//!
//! ```text
//!  doubling ──fails──► halving the distance (geometric) ──near enough──► done
//!     └─────── or halving, while even the first rate fails
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::render::{count, time};
use crate::{FindingKind, Judged, LONGEST_NS, Outcome};

/// Rates that differ by less are not told apart.
const PRECISION: f64 = 1.03;
/// Rates at most; doubling from 1 to the highest and halving take fewer.
const RATES_MAX: usize = 60;
/// Below this many requests per second no rate holds.
const RATE_MIN: f64 = 1.0;
/// Trials that agree on a rate.
const AGREEING: usize = 2;
/// Part of the requests that may fail while an objective holds.
const ERRORS_SHARE_MAX: f64 = 0.001;

/// What must hold: a quantile of the latency stays below a time, and hardly a request fails.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Objective {
    /// 0 to 1.
    pub quantile: f64,
    /// The longest time that is right.
    pub at_most: Duration,
}

impl Objective {
    /// Why `outcome` does not hold it; `None` when it does.
    #[must_use]
    pub fn broken_by(&self, outcome: &Outcome) -> Option<String> {
        let has = |kind| outcome.findings.iter().any(|finding| finding.kind == kind);
        if has(FindingKind::NoAnswers) {
            return Some("nothing was answered".to_owned());
        }
        if let Some(longest_s) = outcome.longest_standstill_s() {
            return Some(format!("nothing was answered for {longest_s:.1} s"));
        }
        if let (true, Some(asked)) = (has(FindingKind::RateMissed), outcome.setting.asked_per_s) {
            let share = outcome.answered_per_s() / asked * 100.0;
            return Some(format!("{share:.1} % of the rate answered"));
        }
        let (errors, due) = (outcome.errors.total(), outcome.totals.due);
        if errors as f64 > due as f64 * ERRORS_SHARE_MAX {
            return Some(format!("{} of {} requests failed", count(errors), count(due)));
        }
        // Who was not answered waited longer than anybody who was; of those that were out at the
        // end that is known when they had waited too long by then.
        let at_most_ns = self.at_most.as_nanos() as u64;
        let late = outcome.unanswered.histogram().count_between(at_most_ns, LONGEST_NS);
        let unanswered = errors - outcome.errors.status - outcome.errors.mismatch + late;
        let answered = outcome.latency.count() as f64;
        let quantile = self.quantile * (answered + unanswered as f64) / answered;
        if quantile > 1.0 {
            return Some(format!(
                "{} of {} requests were not answered",
                count(unanswered),
                count(due)
            ));
        }
        let found_ns = outcome.latency.quantile_ns(quantile)?;
        (found_ns > at_most_ns).then(|| format!("{} was {}", self.name(), time(found_ns as f64)))
    }

    /// The quantile as people name it: `p99.9`.
    #[must_use]
    pub fn name(&self) -> String {
        // Rounded to what was written: 0.999 × 100 is not 99.9 in binary.
        format!("p{}", (self.quantile * 1e8).round() / 1e6)
    }

    /// What became of it in `outcome`, whose findings are there.
    pub(crate) fn judge(&self, outcome: &Outcome) -> Judged {
        let broken_by = self.broken_by(outcome);
        Judged {
            text: self.to_string(),
            quantile: self.quantile,
            at_most_ns: self.at_most.as_nanos() as u64,
            found_ns: outcome.latency.quantile_ns(self.quantile),
            is_held: broken_by.is_none(),
            broken_by,
        }
    }
}

impl FromStr for Objective {
    type Err = String;

    /// `p99=5ms`, `p99.9=250us`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}; expected p99=5ms or p99.9=250us");
        let (quantile, time) = text.split_once('=').ok_or_else(|| wrong("no \"=\" in it"))?;
        let percent = quantile.trim().strip_prefix('p').and_then(|digits| digits.parse().ok());
        let percent: f64 = percent.ok_or_else(|| wrong("no percentile before the \"=\""))?;
        if !(percent > 0.0 && percent < 100.0) {
            return Err(wrong("a percentile lies between 0 and 100"));
        }
        let units = [("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
        let time = time.trim();
        let found =
            units.iter().find_map(|(unit, factor)| Some((time.strip_suffix(unit)?, factor)));
        let (digits, factor) =
            found.ok_or_else(|| wrong("a time without its unit (us, ms or s)"))?;
        let seconds: f64 = digits.trim().parse().map_err(|_| wrong("not a time"))?;
        let at_most =
            Duration::try_from_secs_f64(seconds * factor).map_err(|_| wrong("not a time"))?;
        match at_most.is_zero() {
            true => Err(wrong("a time of zero never holds")),
            false => Ok(Self { quantile: percent / 100.0, at_most }),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at most {}", self.name(), time(self.at_most.as_nanos() as f64))
    }
}

/// The state of a search.
#[derive(Clone, Debug)]
pub struct CapacitySearch {
    trying: f64,
    verdicts: Vec<bool>,
    holds: Option<f64>,
    fails: Option<f64>,
    rates: usize,
}

impl CapacitySearch {
    /// A search that begins at `first_per_s`.
    #[must_use]
    pub fn new(first_per_s: f64) -> Self {
        let trying = first_per_s.max(RATE_MIN);
        Self { trying, verdicts: Vec::new(), holds: None, fails: None, rates: 0 }
    }

    /// The rate to try next; `None` when the search is over.
    #[must_use]
    pub fn next_per_s(&self) -> Option<f64> {
        let is_near = match (self.holds, self.fails) {
            (Some(holds), Some(fails)) => fails / holds <= PRECISION,
            (None, Some(fails)) => fails <= RATE_MIN,
            _ => false,
        };
        (!is_near && self.rates < RATES_MAX).then_some(self.trying)
    }

    /// A trial of the rate that was to be tried did hold, or not.
    pub fn tried(&mut self, did_hold: bool) {
        self.verdicts.push(did_hold);
        let agreeing = self.verdicts.iter().filter(|&&each| each == did_hold).count();
        if agreeing < AGREEING {
            return;
        }
        self.verdicts.clear();
        self.rates += 1;
        let side = if did_hold { &mut self.holds } else { &mut self.fails };
        *side = Some(self.trying);
        self.trying = match (self.holds, self.fails) {
            (Some(holds), Some(fails)) => (holds * fails).sqrt(),
            (Some(holds), None) => holds * 2.0,
            (None, Some(fails)) => (fails / 2.0).max(RATE_MIN),
            (None, None) => self.trying,
        };
    }

    /// The highest rate that held; `None` while none did.
    #[must_use]
    pub fn highest_per_s(&self) -> Option<f64> {
        self.holds
    }

    /// The lowest rate that failed; `None` while none did.
    #[must_use]
    pub fn lowest_failing_per_s(&self) -> Option<f64> {
        self.fails
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::sample;

    /// Searches a server that holds up to `capacity`; says what was found, in how many trials.
    fn search(first: f64, holds: impl Fn(f64, usize) -> bool) -> (Option<f64>, usize) {
        let mut search = CapacitySearch::new(first);
        let mut trials = 0;
        while let Some(rate) = search.next_per_s() {
            search.tried(holds(rate, trials));
            trials += 1;
            assert!(trials < 400, "the search does not end");
        }
        (search.highest_per_s(), trials)
    }

    #[test]
    fn the_highest_rate_is_found_from_below_and_from_above() {
        for first in [1.0, 900.0, 1_000_000.0] {
            let (found, trials) = search(first, |rate, _| rate <= 123_456.0);
            let found = found.expect("a rate holds");
            assert!(found <= 123_456.0 && found * PRECISION >= 123_456.0, "{first}: {found}");
            assert!(trials < 60, "{trials}");
        }
    }

    #[test]
    fn one_disturbed_trial_of_three_changes_nothing() {
        let (found, _) = search(1_000.0, |rate, trial| rate <= 50_000.0 && trial % 3 != 2);
        assert!(found.expect("a rate holds") * PRECISION >= 50_000.0);
    }

    #[test]
    fn a_server_that_never_holds_ends_the_search() {
        assert_eq!(search(1_000.0, |_, _| false).0, None);
    }

    #[test]
    fn a_server_without_limit_ends_it_too() {
        assert!(search(1_000.0, |_, _| true).0.is_some());
    }

    #[test]
    fn objectives_read_and_judge() {
        let objective: Objective = "p99.9=5ms".parse().expect("an objective");
        assert_eq!(objective.to_string(), "p99.9 at most 5.00 ms");
        assert_eq!(objective.broken_by(&sample(10, 20_000, 4_900_000)), None);
        let why = objective.broken_by(&sample(10, 20_000, 5_200_000)).expect("broken");
        assert!(why.contains("5.2"), "{why}");
        let mut failing = sample(10, 20_000, 1_000);
        failing.errors.timeout = 21;
        assert!(objective.broken_by(&failing).expect("broken").contains("21 of 20,000"));
        // Three of 20,000 that were never answered are more than the slowest ten-thousandth.
        let strict: Objective = "p99.99=5ms".parse().expect("an objective");
        let mut failing = sample(10, 19_997, 1_000);
        (failing.totals.due, failing.errors.timeout) = (20_000, 3);
        assert!(strict.broken_by(&failing).expect("broken").contains("3 of 20,000"));
        assert_eq!(objective.broken_by(&failing), None);
        for (text, why) in [
            ("p99", "no \"=\""),
            ("99=5ms", "no percentile"),
            ("p100=5ms", "between"),
            ("p99=5", "unit"),
            ("p99=0ms", "zero"),
            ("p99=-1ms", "not a time"),
        ] {
            assert!(text.parse::<Objective>().expect_err(text).contains(why), "{text}");
        }
    }
}
