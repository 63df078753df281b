//! Rows and runs of a record: what they are found by (which arm at which point), and what each says of itself: how wide
//! a row is and whether that is enough; how long requests took inside a server; what arms that took turns leave of a
//! set, of a row, of the whole run.
//!
//! The server counts request times into buckets; the lab keeps those that are not empty. What is read out of
//! them is as exact as they are narrow: a fifth.

use pollux_host::Reading;
use pollux_stats::{Aim, median};
use serde::{Deserialize, Serialize};

use super::{CountingRun, Fact, Measurement, Outcome, Record, ResultRow, Run, Verdict, WhyRow};
use crate::subject::WarmUp;

/// An experiment, the label of a point, and the name of an arm.
pub type Key<'a> = [&'a str; 3];

macro_rules! keyed {
    ($($kind:ty),*) => {$(
        impl $kind {
            /// Which arm at which point it is of.
            #[must_use]
            pub fn key(&self) -> Key<'_> {
                [&self.experiment, &self.point, &self.arm]
            }
        }
    )*};
}

keyed!(Run, CountingRun, ResultRow, WhyRow);

impl Run {
    /// What it gave, if it went to its end.
    #[must_use]
    pub const fn measured(&self) -> Option<&Measurement> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Failed { .. } => None,
        }
    }

    /// Why it failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Measured(_) => None,
            Outcome::Failed { reason } => Some(reason),
        }
    }
}

impl Record {
    /// The timing runs at a key.
    pub fn runs_at<'a>(&'a self, key: Key<'a>) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.key() == key)
    }

    /// What those of them gave that went to their end.
    pub fn measured_at<'a>(&'a self, key: Key<'a>) -> impl Iterator<Item = &'a Measurement> {
        self.runs_at(key).filter_map(Run::measured)
    }

    /// The median of what `read` finds in those; none where it finds nothing.
    pub fn median_at(
        &self,
        key: Key<'_>,
        read: impl Fn(&Measurement) -> Option<f64>,
    ) -> Option<f64> {
        median(&self.measured_at(key).filter_map(read).collect::<Vec<f64>>())
    }

    /// A fact of the environment, where it could be read.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&String> {
        let is_it = |fact: &&Fact| fact.name.eq_ignore_ascii_case(name);
        self.environment.iter().find(is_it)?.reading.value()
    }

    /// The run of the counting pass at a key.
    pub(crate) fn counting_at(&self, key: Key<'_>) -> Option<&CountingRun> {
        self.counting.iter().find(|run| run.key() == key)
    }

    /// The counts behind an arm at a key.
    pub(crate) fn why_at(&self, key: Key<'_>) -> Option<&WhyRow> {
        self.why.iter().find(|row| row.key() == key)
    }
}

impl CountingRun {
    /// Counts of the kernel for each event, added up.
    pub(crate) fn per_event(&self, names: &[impl AsRef<str>]) -> Reading<f64> {
        if self.events == 0 {
            return Reading::unavailable("no event in the counted window");
        }
        let sum = names.iter().map(AsRef::as_ref).fold(Reading::Value(0), |sum, name| {
            let count = self.kernel.get(name).cloned();
            let count =
                count.unwrap_or_else(|| Reading::unavailable(format!("{name} not counted")));
            sum.and_then(|sum| count.map(|count| sum + count))
        });
        sum.map(|sum: u64| sum as f64 / self.events as f64)
    }
}

impl Measurement {
    /// CPU time for each event, where both are known.
    pub(crate) fn cpu_ns_per_event(&self) -> Option<f64> {
        Some(*self.cpu_ns.value()? as f64 / self.events.filter(|events| *events > 0)? as f64)
    }
}

impl ResultRow {
    /// Whether all of the interval lies within the minimum effect although the arms differ; only said
    /// of arms that took turns.
    pub(crate) fn is_small_difference(&self) -> bool {
        matches!(self.verdict, Verdict::Faster | Verdict::Slower)
            && self.turns.is_some()
            && self.is_within_minimum()
    }

    /// Whether the arm is certainly worse than the baseline, and by its estimate by more than what is
    /// called no difference.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        let worse = |ratio: f64| if self.more_is_better { 1.0 / ratio } else { ratio };
        self.verdict == Verdict::Slower
            && self.ratio.is_some_and(|ratio| worse(ratio) > 1.0 + self.no_difference)
    }

    /// Where the verdict rests on few sets: the factor by which the row is at least dearer or cheaper than the baseline.
    #[must_use]
    pub fn at_least(&self) -> Option<f64> {
        let is_decided = matches!(self.verdict, Verdict::Faster | Verdict::Slower);
        let [lo, hi] = self.bounds.filter(|_| is_decided)?;
        pollux_stats::Interval { lo, hi }.at_least()
    }

    /// Whether all of the interval lies within the band of no difference.
    pub(crate) fn is_within_minimum(&self) -> bool {
        let most = 1.0 + self.no_difference;
        self.ci_low.is_some_and(|low| low >= 1.0 / most)
            && self.ci_high.is_some_and(|high| high <= most)
    }

    /// About how many more sets reach `aim` where an interval of `half_width` is asked for; none where
    /// it is reached, or where nothing tells.
    #[must_use]
    pub(crate) fn sets_until(&self, aim: Aim, half_width: f64) -> Option<u32> {
        aim.sets_missing(self.blocks, self.ratio?.ln(), self.half_width()?, half_width)
    }

    /// Whether `aim` is reached; never without an interval.
    pub(crate) fn has_reached(&self, aim: Aim, half_width: f64) -> bool {
        self.half_width().is_some() && self.sets_until(aim, half_width).is_none()
    }

    /// Whether the bounds of few sets, or else the interval, leave open that there is no difference.
    pub(crate) fn holds_one(&self) -> bool {
        self.ends().is_none_or(|[low, high]| low <= 1.0 && high >= 1.0)
    }

    /// The bounds of few sets, or else the interval.
    pub(crate) fn ends(&self) -> Option<[f64; 2]> {
        let interval = self.ci_low.zip(self.ci_high).map(|(low, high)| [low, high]);
        self.bounds.or(interval)
    }

    /// Half-width of the 95 % interval of the ratio, relative to it, as far as its sets show it: more of them can narrow
    /// no allowance. None without an interval.
    pub(crate) fn half_width(&self) -> Option<f64> {
        let (low, high) = self.ci_low.zip(self.ci_high)?;
        let whole = (high / low).ln() / 2.0;
        let allowance = self.starts_allowance.unwrap_or(0.0).ln_1p();
        Some((whole.powi(2) - allowance.powi(2)).max(0.0).sqrt().exp_m1())
    }
}

/// One run of the pass in which a server times each request inside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestTimesRun {
    pub experiment: String,
    /// Label of the point.
    pub point: String,
    pub arm: String,
    /// What it timed.
    pub times: RequestTimes,
}

/// A histogram of the time of a request inside the server: from a head that is here to an answer
/// handed over, without the system call that sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestTimes {
    /// Requests that were timed.
    pub requests: u64,
    /// Time of all of them.
    pub sum_ns: f64,
    /// Buckets that are not empty, rising.
    pub buckets: Vec<TimeBucket>,
}

/// Requests that took about as long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeBucket {
    /// The shortest time in it.
    pub from_ns: f64,
    /// The shortest time that is too long for it.
    pub below_ns: f64,
    pub requests: u64,
}

impl RequestTimes {
    /// The time within which this share of the requests was done, evenly spread over its bucket;
    /// none where nothing was timed.
    ///
    /// # Panics
    /// If `share` is not between 0 and 1.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<f64> {
        assert!((0.0..=1.0).contains(&share), "{share} is not a share");
        let wanted = share * self.requests as f64;
        let mut before = 0.0;
        for bucket in &self.buckets {
            let here = bucket.requests as f64;
            if before + here >= wanted && here > 0.0 {
                let part = (wanted - before).max(0.0) / here;
                return Some(bucket.from_ns + part * (bucket.below_ns - bucket.from_ns));
            }
            before += here;
        }
        self.buckets.last().map(|bucket| bucket.below_ns)
    }

    /// Mean time, which the server sums up exactly; none where nothing was timed.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.sum_ns / self.requests as f64)
    }
}

/// What interleaved turns gave for one arm in one set of fresh processes.
///
/// All arms of a point live at once, asleep, and the controller hands out turns in random order,
/// every arm once in each round. The ratio is formed within each round, so what drifts more slowly
/// than a round falls out of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turns {
    /// Rounds in which both this arm and the baseline had a turn with a figure.
    pub rounds: u32,
    /// Length of a turn, without its lead-in.
    pub turn_us: u64,
    /// Length of the lead-in of each turn, whose cost is not counted.
    pub lead_in_us: u64,
    /// Trimmed mean (a quarter at each end) over the rounds of ln(cost of this arm / cost of the
    /// baseline); absent for the baseline itself, and where the baseline had no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_ratio: Option<f64>,
    /// Deviation of a round: over the root of the rounds it is the standard error of `log_ratio`
    /// within this set (the winsorised deviation over the share that the trimming kept).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_sd: Option<f64>,
    /// The load before the first round; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,
    /// Whether its process is that of the set before, with new connections.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_kept: bool,
    /// The first and the last third of the rounds; absent where those are too few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thirds: Option<Thirds>,
}

/// What the first and the last third of the rounds of a set say: apart from each other where a cost changes meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thirds {
    /// Rounds of each.
    pub rounds: u32,
    /// Cost of a unit of work in the first, as the value has it.
    pub first: f64,
    /// The same in the last.
    pub last: f64,
    /// What the logarithm of the cost changed by.
    pub change: f64,
    /// What the logarithm of the cost beside the generator's own CPU time changed by, as a machine that slows down slows
    /// both; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_beside_generator: Option<f64>,
    /// What the logarithm of the ratio to the baseline changed by; absent for the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_change: Option<f64>,
}

/// How a row was measured whose arms took turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowTurns {
    /// Median over the sets of their rounds.
    pub rounds: u32,
    /// Median over the sets of the length of a turn, without its lead-in.
    pub turn_us: u64,
    /// Standard deviation of the log ratio that a fresh start makes; absent below two sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_sets: Option<f64>,
    /// Deviation of the log ratio from round to round; absent likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_set: Option<f64>,
}

/// Whether to believe the rows whose arms took turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnsQuality {
    /// Rows that compare an arm with the baseline in turns; the A/A rows are not among them.
    pub rows: u32,
    /// Rows that compare whole runs: the gates and the badge speak of these.
    pub rows_of_whole_runs: u32,
    /// Widest half-width of a 95 % interval among the rows in turns, relative.
    pub half_width_max: Option<f64>,
    /// Fewest and most sets behind a row.
    pub sets: [u32; 2],
    /// Fewest and most rounds in a set, as medians of rows.
    pub rounds: [u32; 2],
    /// A/A rows with an interval.
    pub controls: u32,
    /// Widest half-width of their 95 % intervals, relative: no smaller fault of the method would show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_half_width_max: Option<f64>,
    /// Those whose 95 % interval holds 1: 95 in 100 should.
    pub controls_hold: u32,
    /// Those that still differ from 1 after the correction for all A/A rows: none should.
    pub controls_differ: u32,
    /// Load average of the machine before the run, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(from_ns: f64, below_ns: f64, requests: u64) -> TimeBucket {
        TimeBucket { from_ns, below_ns, requests }
    }

    #[test]
    fn quantiles_lie_in_their_buckets() {
        let times = RequestTimes {
            requests: 100,
            sum_ns: 60_000.0,
            buckets: vec![bucket(512.0, 640.0, 90), bucket(1024.0, 1280.0, 10)],
        };
        assert_eq!(times.quantile_ns(0.45), Some(576.0));
        assert_eq!(times.quantile_ns(0.9), Some(640.0));
        assert_eq!(times.quantile_ns(0.95), Some(1152.0));
        assert_eq!(times.quantile_ns(1.0), Some(1280.0));
        assert_eq!(times.mean_ns(), Some(600.0));
        let nothing = RequestTimes { requests: 0, sum_ns: 0.0, buckets: Vec::new() };
        assert_eq!((nothing.quantile_ns(0.5), nothing.mean_ns()), (None, None));
    }
}
