//! The search for the highest rate that holds an objective.
//!
//! The search only decides what to try next; who uses it runs the trials. One trial proves
//! little on a shared machine, so a rate holds, or fails, when it did so in two of three.
//!
//! ```text
//!  doubling ──fails──► halving the distance (geometric) ──near enough──► done
//!     └─────── or halving, while even the first rate fails
//! ```

/// Rates that differ by less are not told apart.
const PRECISION: f64 = 1.03;
/// Rates at most; doubling from 1 to the highest and halving take fewer.
const RATES_MAX: usize = 60;
/// Below this many requests per second no rate holds.
const RATE_MIN: f64 = 1.0;
/// Trials that agree on a rate.
const AGREEING: usize = 2;

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
}
