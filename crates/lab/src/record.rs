//! The result file: everything that one lab run did and found.
//!
//! The runner fills it, `report` and `compare` read it, and nothing else is needed to judge a
//! run again: raw runs, their order, gates, counters, environment, the job itself. It is
//! written as `result.json` after every block; `docs/reference/result.schema.json` describes it and a
//! test holds the two together. Units stand last in field names.

use std::collections::BTreeMap;

use pollux_host::Reading;
pub use pollux_host::sources::SourceStatus as Source;
pub use pollux_host::symbols::SymbolShare;
use serde::{Deserialize, Serialize};

use crate::axis::Axes;
use crate::subject::Figure;
pub use crate::subject::WarmUp;

mod found;
mod look;

pub use look::{ArmTimes, Look};

pub use found::{
    Key, RequestTimes, RequestTimesRun, RowTurns, Thirds, TimeBucket, Turns, TurnsQuality,
};

/// Version of the file format; readers refuse a newer one.
pub const SCHEMA_VERSION: u32 = 2;

/// What the kernel counted in [`CountingRun`] holds under this name by how many bytes the measured processes grew for
/// each connection.
pub(crate) const MEMORY_PER_CONNECTION: &str = "memory_per_connection_bytes";
/// What the kernel counted in [`CountingRun`] holds under this name how many descriptors the process had open.
pub(crate) const OPEN_DESCRIPTORS: &str = "open_descriptors";

/// One lab run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// `pollux` and its version.
    pub tool: String,
    /// When the run began, RFC 3339 in UTC.
    pub started: String,
    /// Wall time from first to last run.
    pub duration_s: f64,
    /// How the run ended.
    pub ending: Ending,
    /// The command line that repeats it.
    pub command: Vec<String>,
    /// The job as it was run, after flags and cuts.
    pub job: JobRecord,
    pub environment: Vec<Fact>,
    /// Where counts and times could be read, and where not.
    pub sources: Vec<Source>,
    /// What was planned and not run, with the reason.
    pub left_out: Vec<LeftOut>,
    /// What a first look at each server that a user brought found, before anything was planned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<Look>,
    /// Changes that the lab made to the plan to fit budget or machine, in words.
    pub cuts: Vec<String>,
    /// The gate readings of each block.
    pub blocks: Vec<Block>,
    /// Every timing run in the order in which it ran.
    pub runs: Vec<Run>,
    /// Every run of the counting pass.
    pub counting: Vec<CountingRun>,
    /// Kernel and user symbols, where `--profile` was asked for.
    pub profiles: Vec<Profile>,
    /// How long requests took inside servers of pollux, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub request_times: Vec<RequestTimesRun>,
    /// The judged comparisons: one for each experiment, point and arm.
    pub results: Vec<ResultRow>,
    /// Why: the counts behind each arm.
    pub why: Vec<WhyRow>,
    /// Whether to believe it.
    pub trust: Trust,
    /// One line for each kind of load.
    pub answers: Vec<Answer>,
    /// The rounds of every set; not in the result file.
    #[serde(skip)]
    pub rounds: Vec<RoundsOfSet>,
}

/// An arm that failed this often in a row at a point is not tried again there.
pub(crate) const FAILURES_MAX: u32 = 2;

impl Record {
    /// A record of nothing yet, begun now.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            schema: SCHEMA_VERSION,
            tool: concat!("pollux ", env!("CARGO_PKG_VERSION")).to_owned(),
            started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            ..Self::default()
        }
    }

    /// Whether an arm failed so often in a row at a point that it was not tried again there, whatever it
    /// had measured before.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.given_up().is_some()
    }

    /// The first such arm.
    pub(crate) fn given_up(&self) -> Option<Key<'_>> {
        let mut failures = BTreeMap::new();
        for run in &self.runs {
            let in_a_row = failures.entry(run.key()).or_insert(0);
            *in_a_row = if run.measured().is_some() { 0 } else { *in_a_row + 1 };
        }
        failures.into_iter().find(|(_, in_a_row)| *in_a_row >= FAILURES_MAX).map(|(key, _)| key)
    }
}

/// The figures of all rounds of one set at a point; kept in a file of their own beside the result.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundsOfSet {
    pub set: u32,
    pub experiment: String,
    /// Label of the point.
    pub point: String,
    /// Which of the groups that the arms of a point are split into where they can't all be there at
    /// the same time, from 0. Rounds of two groups are not pairs, and each has its own baseline.
    pub group: usize,
    /// Each arm with a figure for each round, none where it had none.
    pub arms: Vec<(String, Vec<Option<Figure>>)>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Every planned block was run.
    #[default]
    Complete,
    /// Stopped by the user; the blocks until then stand.
    Interrupted,
    /// The time budget ended before the planned blocks.
    Budget,
    /// Not at all: the file was written after a block, and none followed. The run is still going, or it was
    /// killed.
    Interim,
}

/// The job behind a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Name of the job file or experiment.
    pub name: String,
    /// The question that the job answers; title of the report.
    pub question: String,
    /// The job as TOML that can be run again.
    pub toml: String,
    /// Seed of the block order and of the workloads.
    pub seed: u64,
    /// Blocks planned at the start.
    pub blocks: u32,
    /// Most blocks, when the interval stays too wide.
    pub blocks_max: u32,
    /// Most time that was given, where there was a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_s: Option<f64>,
    /// Smallest relative effect that counts, such as 0.03.
    pub min_effect: f64,
    /// Wanted half-width of the 95 % interval, relative, such as 0.015.
    pub target_ci: f64,
}

/// One fact of the environment, ready to be shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is, such as `kernel`.
    pub name: String,
    /// Its value in words.
    pub reading: Reading<String>,
}

/// A point or an arm that was not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    pub experiment: String,
    /// Label of the point, or `*` for all.
    pub point: String,
    /// The arm, or `*` for all.
    pub arm: String,
    pub reason: String,
}

/// A place on the axes of an experiment: everything but the arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Short text, unique within the experiment, such as `pipe, 2000 streams`.
    pub label: String,
    /// Axis names and values, such as `pipes` → `1000`.
    pub axes: Axes,
}

/// What was read from the host around one block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Counted from 0; repetitions of disturbed blocks come last.
    pub block: u32,
    /// The block that this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    /// Seconds after the start of the run.
    pub start_s: f64,
    pub duration_s: f64,
    /// Share of CPU time that the hypervisor took, 0 to 1.
    pub steal: Reading<f64>,
    /// Share of CPU time used by processes that are not ours, 0 to 1.
    pub foreign_cpu: Reading<f64>,
    /// Share of time in which some task waited for a CPU (PSI), 0 to 1.
    pub pressure: Reading<f64>,
    /// Why this block counts as disturbed; empty when it does not.
    pub disturbances: Vec<String>,
}

/// One timing run: one arm at one point in a process of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub block: u32,
    /// Its place in the block, from 0.
    pub position: u32,
    pub experiment: String,
    /// Label of the point.
    pub point: String,
    /// The arm; the second copy of the baseline is called `A/A`.
    pub arm: String,
    pub outcome: Outcome,
}

/// What a timing run gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one")]
pub enum Outcome {
    /// The run went to its end.
    Measured(Measurement),
    /// It did not; the reason and, if there was one, what it said on standard error.
    Failed {
        /// What went wrong.
        reason: String,
    },
}

/// The figures of one timing run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The metric's value over the measured window.
    pub value: f64,
    /// Other figures of the run by name, unit last: those of a load generator, such as
    /// `requests_per_s` and `latency_p99_us`.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// The mechanism that the process says it used; absent for external commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<String>,
    /// The load generator and its version; absent where the workload needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<String>,
    /// What the load generator found about its run, by kind, such as `delayed-ack`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub findings: BTreeMap<String, String>,
    /// Length of the measured window.
    pub window_s: f64,
    /// Intervals within the window.
    pub intervals: Vec<Interval>,
    /// Calls that each worker answered in the window; only a herd has workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_calls: Vec<u64>,
    /// `steady`, `drift`, `two-regime` or `too short`, with the figures in words.
    pub steadiness: Steady,
    /// Events in the window, to which the CPU times belong; absent for external commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// How the value was measured where arms took turns; absent where a run stands for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
    /// CPU time of the measured thread, of the server's processes, or of a herd's workers and
    /// callers, over the window.
    pub cpu_ns: Reading<u64>,
    /// CPU time of the whole process over the window; of a load generator or a herd's callers where
    /// there are some.
    pub process_cpu_ns: Reading<u64>,
}

/// One interval of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// End of the interval, seconds after the start of the window.
    pub end_s: f64,
    /// Events (passes, for `pipes`) per second in it.
    pub events_per_s: f64,
    /// Events for each wait in it; absent where there was no poller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_per_wait: Option<f64>,
    /// Context switches per second of the measured process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_switches_per_s: Option<f64>,
    /// Context switches per second of the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_switches_per_s: Option<f64>,
}

/// Whether a run held one rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    pub kind: SteadyKind,
    /// In words: by how much, from when.
    pub detail: String,
}

/// The kinds of [`Steady`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SteadyKind {
    Steady,
    /// A rate that rose or fell throughout.
    Drift,
    /// Two rates, one after the other: the mean describes neither.
    TwoRegime,
    /// Too few intervals to tell.
    #[default]
    TooShort,
}

/// One run of the counting pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountingRun {
    pub experiment: String,
    /// Label of the point.
    pub point: String,
    pub arm: String,
    /// Events in the counted window.
    pub events: u64,
    /// The poller's own counters by name; empty where there was no poller.
    pub counters: BTreeMap<String, u64>,
    /// Waits with 0, 1, 2–3, 4–7, … events.
    pub events_per_wait_histogram: Vec<u64>,
    /// What the kernel counted for the measured thread, by name.
    pub kernel: BTreeMap<String, Reading<u64>>,
}

/// Where the time went, from samples of the CPU clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub experiment: String,
    /// Label of the point.
    pub point: String,
    pub arm: String,
    /// Number of samples, or why there are none.
    pub samples: Reading<u64>,
    /// The symbols with the most samples first.
    pub symbols: Vec<SymbolShare>,
}

/// One judged comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    pub experiment: String,
    /// Label of the point.
    pub point: String,
    /// Axis names and values of the point.
    pub axes: BTreeMap<String, String>,
    pub arm: String,
    /// What is compared, such as `events per second`.
    pub metric: String,
    /// Whether more is better.
    pub more_is_better: bool,
    /// What the ratio makes of the baseline's value, which is the median over the runs, or sets, of that point: values of
    /// a point stand to each other as their ratios do.
    pub value: Option<f64>,
    /// Half-width of the 95 % interval of the value over runs, relative to it. Where arms took turns the baseline alone
    /// has one; what is known of the others is the interval of the ratio.
    pub value_half_width: Option<f64>,
    /// Unit of the value, such as `events/s`.
    pub unit: String,
    /// The arm that it is compared with.
    pub baseline: String,
    /// Geometric mean of arm over baseline, block by block.
    pub ratio: Option<f64>,
    /// Median of the same.
    pub ratio_median: Option<f64>,
    /// Lower end of the 95 % interval of the ratio.
    pub ci_low: Option<f64>,
    /// Upper end of it.
    pub ci_high: Option<f64>,
    /// The part of the interval that no further set can narrow, as a relative half-width: how other starts of a program
    /// may differ that ran before and is not started anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_allowance: Option<f64>,
    /// Where fewer than five sets stand behind the row: a lower and an upper bound of the ratio, each of which holds in
    /// 99 of 100 rows. A verdict on such a row rests on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<[f64; 2]>,
    pub verdict: Verdict,
    /// For `inconclusive`: about how many more blocks, or sets, would decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_blocks: Option<u32>,
    /// Blocks, or sets, that stand behind it.
    pub blocks: u32,
    /// How it was measured where the arms took turns; absent where whole runs were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<RowTurns>,
    /// Effects up to this are called no difference: of whole runs the larger of minimum effect and
    /// noise. Where arms took turns it is the minimum effect, and a difference within it that is
    /// certain keeps its direction and is a small one.
    pub no_difference: f64,
    /// How the interval was computed.
    pub method: String,
    /// Blocks whose ratio lies outside Tukey's fences; they are kept.
    pub outliers: u32,
    /// Why it has no verdict although it may have an interval: the arm or the baseline cost less and less, or more and
    /// more, while it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<String>,
    /// What the reader should know, such as `unexplained: no count moved by 10 %`.
    pub notes: Vec<String>,
}

/// A judgement on one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The arm that the others are compared with.
    Baseline,
    /// The baseline run a second time: shows the noise of the machine, or that turns hold what they
    /// promise.
    #[serde(alias = "noise_floor")]
    NoiseLevel,
    /// Better: whole runs by more than the band of no difference, turns by any amount that is certain.
    Faster,
    /// Worse, likewise.
    Slower,
    /// Within the minimum effect.
    Equivalent,
    /// The blocks, or sets, do not decide.
    #[default]
    Inconclusive,
    /// Every run failed.
    Failed,
}

/// The counts behind one arm at one point. Per event, unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhyRow {
    pub experiment: String,
    /// Label of the point.
    pub point: String,
    pub arm: String,
    /// System calls of the measured thread.
    pub system_calls_per_event: Reading<f64>,
    /// Events for each wait.
    pub events_per_wait: Reading<f64>,
    /// Changes of registrations handed to the kernel.
    pub updates_per_event: Reading<f64>,
    /// Context switches of the measured thread.
    pub switches_per_event: Reading<f64>,
    /// Times that the measured thread slept and was woken.
    pub wakeups_per_event: Reading<f64>,
    /// Page faults of the measured thread, minor and major.
    #[serde(default = "not_in_older_files")]
    pub page_faults_per_event: Reading<f64>,
    /// Descriptors that each wait hands to the kernel anew: all of them on select and poll, none where the kernel keeps
    /// the set.
    #[serde(default = "not_in_older_files")]
    pub descriptors_per_wait: Reading<f64>,
    /// Completions for each enter of a ring, of a loop that receives and sends by completion.
    #[serde(default = "not_in_older_files")]
    pub completions_per_enter: Reading<f64>,
    /// Receives for each event, each of which took a buffer of the ring or a piece of one.
    #[serde(default = "not_in_older_files")]
    pub receive_buffers_per_event: Reading<f64>,
    /// Times for each event that a receive ended because the ring had no buffer left.
    #[serde(default = "not_in_older_files")]
    pub out_of_buffers_per_event: Reading<f64>,
    /// Bytes by which the anonymous memory of the measured processes grew for each connection.
    #[serde(default = "not_in_older_files")]
    pub memory_per_connection: Reading<f64>,
    /// One sentence from the largest relative moves against the baseline.
    pub sentence: String,
}

/// For what results of earlier versions do not hold.
fn not_in_older_files<T>() -> Reading<T> {
    Reading::unavailable("not counted by the version that wrote this result")
}

/// Whether to believe a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trust {
    pub badge: Badge,
    /// Widest A/A interval over all points: ratio, low, high.
    pub noise: Option<[f64; 3]>,
    /// Blocks that a gate marked.
    pub blocks_disturbed: u32,
    pub blocks: u32,
    /// Mean stolen share of the blocks, 0 to 1.
    pub steal: Reading<f64>,
    /// Runs that did not hold one rate.
    pub runs_unsteady: u32,
    /// Runs with too few intervals to tell.
    pub runs_too_short: u32,
    /// Runs in two regimes.
    pub runs_two_regime: u32,
    /// Runs that failed.
    pub runs_failed: u32,
    /// All timing runs.
    pub runs: u32,
    /// State of the hardware counters.
    pub hardware_counters: Reading<String>,
    /// What speaks for the rows in which arms took turns; absent where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<TurnsQuality>,
}

/// The word in the report's corner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Badge {
    /// At most a tenth of the blocks disturbed, and the same program twice was alike.
    Quiet,
    /// More of them disturbed than that.
    Disturbed,
    /// No gate says so, but the same program twice was not alike: the interval of an A/A arm is wide.
    Noisy,
    /// Not one gate could be read: the blocks were too short or the host does not say. Where arms took
    /// turns: too few sets for a control.
    Unwatched,
    /// Every row took turns, which no disturbance that lasts can bend, and no A/A arm differs from
    /// itself, by intervals that would show it.
    Controlled,
    /// Where arms took turns, an A/A arm differs from itself, if only by little.
    Biased,
    /// The A/A arm differs from itself by much, or nothing could be measured.
    #[default]
    Invalid,
}

/// The answer for one kind of load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The kind of load, such as `Many streams, all active (pipes)`.
    pub load: String,
    /// The mechanism or mechanisms to use.
    pub choice: String,
    /// Ratio and interval in words, and what loses.
    pub reason: String,
    /// Experiment and point whose rows say so; absent in results of earlier versions, and where the question is
    /// about a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<[String; 2]>,
    /// The arms that are certainly better there than the baseline and reach the best; none where nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub better: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::row_in_turns;

    #[test]
    fn a_regression_is_certain_and_beyond_the_minimum_effect() {
        let row = |verdict, ratio, more_is_better| {
            let row = row_in_turns("new", verdict);
            ResultRow { ratio: Some(ratio), more_is_better, ..row }.is_regression()
        };
        // A cost: more is worse. The minimum effect is 2 %.
        assert!(row(Verdict::Slower, 1.03, false));
        assert!(!row(Verdict::Slower, 1.015, false), "certain, and smaller than what counts");
        assert!(!row(Verdict::Inconclusive, 1.3, false), "large, and not certain");
        assert!(!row(Verdict::Faster, 0.9, false));
        // A rate: less is worse.
        assert!(row(Verdict::Slower, 0.9, true));
        assert!(!row(Verdict::Slower, 0.99, true));
    }

    #[test]
    fn an_arm_is_given_up_that_failed_last_however_often_it_was_measured() {
        let mut record = Record::empty();
        let mut run = |arm: &str, outcome: Option<Measurement>| {
            let failed = Outcome::Failed { reason: "no answer".to_owned() };
            let outcome = outcome.map_or(failed, Outcome::Measured);
            let experiment = "http".to_owned();
            let point = "64".to_owned();
            let arm = arm.to_owned();
            record.runs.push(Run { block: 0, position: 0, experiment, point, arm, outcome });
            record.has_given_up()
        };
        assert!(!run("nginx", None));
        assert!(!run("mine", Some(Measurement::default())));
        assert!(!run("mine", None), "once, and the other arm once");
        assert!(!run("mine", Some(Measurement::default())));
        assert!(!run("mine", None));
        assert!(run("mine", None));
    }
}
