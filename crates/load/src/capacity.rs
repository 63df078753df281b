//! The highest rate that a server holds: what to try next, and whether the rate of a trial can be held on.
//!
//! Pure: `pollux load --find-capacity` runs the trials. A rate holds when its [objectives](crate::Objective) do and the
//! backlog of the server doesn't grow; these judge a finished [`Outcome`].

use pollux_report::number::{self, plural};

use crate::{Distribution, Errors, Outcome, Second};

/// Rates that differ by less are the same.
const PRECISION: f64 = 1.03;
/// Rates at most; doubling from 1 to the highest and halving take fewer.
const RATES_MAX: usize = 60;
/// Below this many requests per second no rate holds.
const RATE_MIN: f64 = 1.0;
/// Trials that agree on a rate.
const AGREEING: usize = 2;
/// Part of the requests, and of so long a time at least, that may be out at the end beyond those that were at the
/// beginning: a moment in which the machine did something else.
const GROWTH_SHARE: f64 = 0.01;
const GROWTH_FROM_S: f64 = 2.0;
/// Nearly all answers of the second half are slower than the middle one of the first, by so much: the queue of a server
/// that gets behind never empties, that of one that stood still for a moment does.
const SHIFTED: f64 = 1.05;
const FASTEST: f64 = 0.1;
/// Where some are as fast as before, one of several queues may grow: more has to be out, and the mean slower.
const GROWTH_OF_SOME_SHARE: f64 = 0.05;
const SLOWER: f64 = 1.25;

/// The search for the highest rate that holds an objective. It only decides what to try next; its caller runs the
/// trials. One trial proves little on a shared machine, so a rate holds, or fails, when it did so in two of three; and
/// before the end the lowest that failed is tried once more, for a bad moment may last over two trials.
///
/// ```text
///  doubling ──fails──► halving the distance (geometric) ──near enough──► the lowest that failed ──fails──► done
///     ├─────── or halving, while even the first rate fails                       │
///     └◄──────────────────────────────────────────────────────────────holds──────┘
/// ```
#[derive(Clone, Debug)]
pub struct CapacitySearch {
    trying: f64,
    verdicts: Vec<bool>,
    holds: Option<f64>,
    /// The lowest last.
    fails: Vec<f64>,
    /// Whether the lowest of them failed once more.
    is_confirmed: bool,
    rates: usize,
}

impl CapacitySearch {
    /// A search that begins at `first_per_s`.
    #[must_use]
    pub fn new(first_per_s: f64) -> Self {
        let trying = first_per_s.max(RATE_MIN);
        let verdicts = Vec::new();
        let fails = Vec::new();
        Self { trying, verdicts, holds: None, fails, is_confirmed: false, rates: 0 }
    }

    /// The rate to try next; `None` when the search is over.
    #[must_use]
    pub fn next_per_s(&self) -> Option<f64> {
        let is_nothing = self.holds.is_none() && self.fails.last() == Some(&RATE_MIN);
        let is_over = self.is_confirmed || is_nothing || self.rates >= RATES_MAX;
        (!is_over).then_some(self.trying)
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
        let is_again = self.fails.pop_if(|lowest| *lowest == self.trying).is_some();
        if did_hold {
            self.holds = Some(self.trying);
        } else {
            self.fails.push(self.trying);
            self.is_confirmed = is_again;
        }
        self.trying = match (self.holds, self.lowest_failing_per_s()) {
            (Some(holds), Some(fails)) if fails / holds <= PRECISION => fails,
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
        self.fails.last().copied()
    }
}

/// Why a rate that `outcome` seems to hold can't be held on: what is out grew within the measured time, and the second
/// half of it was slower than the first. A short run ends before its queue is as long as an objective allows.
/// `None` where that is not so, or can't be known: of closed loops, and of runs that ended early or by number.
#[must_use]
pub fn backlog_grew(outcome: &Outcome) -> Option<String> {
    let in_time = outcome.in_time?;
    let asked_per_s = outcome.setting.asked_per_s?;
    let Errors { status, mismatch, unsent, .. } = outcome.errors;
    let failed = outcome.errors.total() - status - mismatch - unsent;
    let due = outcome.totals.due;
    let done = in_time.answered + failed;
    let grown = due.checked_sub(done)?;
    let measured_s = outcome.measured.as_secs_f64();
    let requests = asked_per_s * measured_s.max(GROWTH_FROM_S);
    let allowed = match halves(outcome) {
        Some([first, second]) => growth_share(&first, &second)? * requests,
        // How many are out at one moment scatters by its root, and that is all that can be known.
        None => {
            let out = (2 * in_time.of_warm_up + grown) as f64;
            (GROWTH_SHARE * requests).max(2.0 * out.sqrt())
        }
    };
    (grown as f64 > allowed).then(|| {
        format!(
            "the backlog grew by {} in {measured_s:.1} s: {}/s came",
            plural(grown, "request"),
            number::si(outcome.answered_per_s())
        )
    })
}

/// Part of the requests by which a backlog has to grow to be one, by the latencies of both halves; `None` where these
/// show none.
fn growth_share(first: &Distribution, second: &Distribution) -> Option<f64> {
    let middle_ns = first.quantile_ns(0.5)?;
    let fastest_ns = second.quantile_ns(FASTEST)?;
    if fastest_ns as f64 > middle_ns as f64 * SHIFTED {
        return Some(GROWTH_SHARE);
    }
    (second.mean_ns()? > first.mean_ns()? * SLOWER).then_some(GROWTH_OF_SOME_SHARE)
}

/// The latencies of the first half of the measured seconds and of the second one; `None` of fewer than two.
fn halves(outcome: &Outcome) -> Option<[Distribution; 2]> {
    let until_s = outcome.setting.warm_up_s + outcome.measured.as_secs_f64();
    // What came later came while the run waited for it; a moment of that may be in the last second.
    let mut start_s = 0.0;
    let is_measured = |second: &&Second| {
        let middle_s = f64::midpoint(start_s, second.end_s);
        start_s = second.end_s;
        !second.is_warm_up && middle_s < until_s
    };
    let seconds: Vec<&Second> = outcome.seconds.iter().filter(is_measured).collect();
    let half = seconds.len() / 2;
    let both = [&seconds[..half], &seconds[seconds.len() - half..]].map(|seconds| {
        let mut all = Distribution::new();
        seconds.iter().for_each(|second| all.add(&second.latency));
        all
    });
    both.iter().all(|half| half.count() > 0).then_some(both)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sample::sample;

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
    fn a_bad_moment_that_lasts_over_several_trials_changes_nothing_either() {
        let (found, trials) =
            search(1_000.0, |rate, trial| rate <= 1_990.0 && !(1..6).contains(&trial));
        assert!(found.expect("a rate holds") * PRECISION >= 1_990.0, "{found:?}");
        assert!(trials < 70, "{trials}");
    }

    #[test]
    fn a_server_that_never_holds_ends_the_search() {
        assert_eq!(search(1_000.0, |_, _| false).0, None);
    }

    #[test]
    fn a_server_without_limit_ends_it_too() {
        assert!(search(1_000.0, |_, _| true).0.is_some());
    }

    /// Two seconds, `per_s` asked for, so many answered in time, the mean latency of both seconds.
    fn two_seconds(per_s: u64, answered: u64, of_warm_up: u64, latency_ns: [u64; 2]) -> Outcome {
        let mut outcome = sample(20, per_s * 2, latency_ns[1]);
        outcome.measured = Duration::from_secs(2);
        outcome.setting.asked_per_s = Some(per_s as f64);
        outcome.in_time = Some(crate::InTime { answered, of_warm_up, ..crate::InTime::default() });
        let second = |(at, ns)| {
            let mut second = Second { end_s: (at + 1) as f64, ..Second::default() };
            second.latency.record(ns);
            second
        };
        outcome.seconds = latency_ns.into_iter().enumerate().map(second).collect();
        outcome
    }

    #[test]
    fn a_rate_whose_backlog_grows_is_not_held_however_short_the_run() {
        // 92/s to a server of 90/s: all is answered, in 53 ms at most.
        // The last second has the moment in which the run waited for what was under way.
        let mut waited = two_seconds(92, 181, 5, [45_000_000, 75_000_000]);
        waited.seconds[1].end_s += 0.06;
        assert!(backlog_grew(&waited).is_some());
        // Three more are out at the end than at the beginning, and that is not chance where latency rises.
        assert!(backlog_grew(&two_seconds(92, 181, 5, [45_000_000, 75_000_000])).is_some());
        let why = backlog_grew(&two_seconds(92, 180, 1, [25_000_000, 43_000_000]));
        let why = why.expect("a backlog");
        assert!(why.contains("by 4 requests in 2.0 s: 90.0/s came"), "{why}");
        let mut short = two_seconds(200, 180, 5, [1, 1]);
        assert_eq!(backlog_grew(&short), None, "no slower");
        short.seconds.truncate(1);
        assert!(backlog_grew(&short).is_some(), "it can't be known where it went");
        short.in_time = None;
        assert_eq!(backlog_grew(&short), None, "ended early");
    }

    #[test]
    fn what_is_out_at_any_moment_is_not_a_backlog() {
        // 100/s that take 50 ms each: about five are out at any moment.
        assert_eq!(backlog_grew(&two_seconds(100, 200, 5, [50_000_000, 51_000_000])), None);
        assert_eq!(backlog_grew(&two_seconds(100, 198, 5, [50_000_000, 60_000_000])), None);
        assert_eq!(backlog_grew(&two_seconds(100, 199, 5, [50_000_000, 70_000_000])), None);
        assert_eq!(backlog_grew(&two_seconds(100, 204, 7, [50_000_000, 60_000_000])), None);
        // A moment without the CPU at the very end.
        assert_eq!(backlog_grew(&two_seconds(50_000, 99_100, 10, [100_000, 120_000])), None);
        let mut failing = two_seconds(100, 150, 5, [1, 2]);
        failing.errors.timeout = 50;
        assert_eq!(backlog_grew(&failing), None, "errors are judged by themselves");
    }

    const WARM_UP_S: f64 = 1.0;
    const MEASURED_S: f64 = 5.0;

    /// A server of `workers`, each of which takes `service_s` for an answer.
    #[derive(Clone, Copy, Debug)]
    struct Queue {
        workers: usize,
        service_s: f64,
    }

    impl Queue {
        /// A trial of `per_s`; the machine does something else for `paused_s` from `pause_s` on.
        fn trial(self, per_s: f64, pause_s: f64, paused_s: f64) -> Outcome {
            let end_s = WARM_UP_S + MEASURED_S;
            let mut free_s = vec![0.0_f64; self.workers];
            let mut outcome = sample(64, 0, 0);
            let mut in_time = crate::InTime::default();
            let mut seconds = vec![Second::default(); end_s as usize];
            for number in 0..(per_s * end_s) as u64 {
                let due_s = number as f64 / per_s;
                let worker = number as usize % self.workers;
                let mut start_s = due_s.max(free_s[worker]);
                if (pause_s..pause_s + paused_s).contains(&start_s) {
                    start_s = pause_s + paused_s;
                }
                let came_s = start_s + self.service_s;
                free_s[worker] = came_s;
                let latency_ns = ((came_s - due_s) * 1e9) as u64;
                let is_measured = due_s >= WARM_UP_S;
                let is_in_time = came_s < end_s;
                if is_in_time && came_s >= WARM_UP_S {
                    in_time.answered += 1;
                    in_time.of_warm_up += u64::from(!is_measured);
                }
                if is_measured {
                    outcome.totals.due += 1;
                    outcome.totals.answered += 1;
                    outcome.latency.record(latency_ns);
                    let last = seconds.len() - 1;
                    seconds[(came_s as usize).min(last)].latency.record(latency_ns);
                }
            }
            for (number, second) in seconds.iter_mut().enumerate() {
                second.end_s = (number + 1) as f64;
                second.is_warm_up = second.end_s <= WARM_UP_S;
            }
            let setting = &mut outcome.setting;
            (setting.asked_per_s, setting.warm_up_s) = (Some(per_s), WARM_UP_S);
            outcome.measured = Duration::from_secs_f64(MEASURED_S);
            (outcome.seconds, outcome.in_time) = (seconds, Some(in_time));
            outcome.findings = crate::findings(&outcome);
            outcome
        }

        /// What a search says that begins at `first_per_s`; the machine pauses for `paused_s` somewhere in each trial.
        fn found_per_s(self, first_per_s: f64, paused_s: f64) -> f64 {
            let objective = ["p99=1s".parse().expect("an objective")];
            let (found, _) = search(first_per_s, |per_s, number| {
                // The golden section spreads them.
                let pause_s = (number as f64 * 0.618).fract() * (WARM_UP_S + MEASURED_S);
                let outcome = self.trial(per_s, pause_s, paused_s);
                let why = crate::broken_by(&objective, &outcome).or_else(|| backlog_grew(&outcome));
                why.is_none()
            });
            found.expect("a rate holds")
        }
    }

    #[test]
    fn a_moment_without_the_cpu_is_not_a_backlog_wherever_it_is() {
        for (workers, per_s) in [(1, 85.0), (4, 85.0), (1, 250.0), (4, 250.0), (4, 900.0)] {
            let capacity_per_s = if per_s < 90.0 { 90.0 } else { 1_000.0 };
            let queue = Queue { workers, service_s: workers as f64 / capacity_per_s };
            for pause_s in [0.5, 0.99, 3.0, 4.5, 5.5, 5.9, 5.92] {
                let grew = backlog_grew(&queue.trial(per_s, pause_s, 0.08));
                assert_eq!(grew, None, "{queue:?}, {per_s}/s, paused at {pause_s} s");
            }
        }
    }

    #[test]
    fn one_of_two_queues_that_grows_is_seen_by_the_mean() {
        let mut outcome = two_seconds(100, 185, 0, [10_000_000, 10_000_000]);
        outcome.seconds[1].latency.record(400_000_000);
        let why = backlog_grew(&outcome).expect("a backlog");
        assert!(why.contains("by 15 requests"), "{why}");
        // As few may be out by chance.
        outcome.in_time = Some(crate::InTime { answered: 192, ..crate::InTime::default() });
        assert_eq!(backlog_grew(&outcome), None);
    }

    #[test]
    fn a_capacity_is_neither_above_the_truth_nor_far_below_it() {
        let mut wrong = Vec::new();
        for (truth, starts) in [
            (90.0, &[0.47, 0.485, 0.5, 0.51, 0.7][..]),
            (1_000.0, &[0.49, 0.5, 0.515]),
            (20_000.0, &[0.5]),
        ] {
            for (workers, first) in starts.iter().flat_map(|first| [(1, first), (4, first)]) {
                let queue = Queue { workers, service_s: workers as f64 / truth };
                // Each time another part of the trials is disturbed.
                for paused_s in [0.0, 0.03] {
                    let share = queue.found_per_s(truth * first, paused_s) / truth;
                    if !(0.95..=1.015).contains(&share) {
                        wrong.push(format!("{queue:?} from {first}, {paused_s} s: {share:.3}"));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
