//! Follows a plan: blocks, gates around them, judgement after each. Where arms take
//! turns, a point's share of a block is a set (`set`), else one run of each arm (`one_run`); after the planned ones a block
//! holds only the points whose rows need more.
//!
//! ```text
//!  counting pass ─► block 0 ─► block 1 ─► … ─► repeats of disturbed blocks ─► side passes
//!  (whole runs)      │  every point, its arms in random order       (whole runs)
//!                    └─ gates ─► judge ─► the observer saves the record
//! ```
//!
//! The runner starts nothing while a run is under way and draws nothing itself: the code that shows
//! progress is an [`Observer`]. An arm that fails is recorded and the rest continues.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pollux_host::Reading;
use pollux_host::environment::Environment;
use pollux_host::machine::{GateReading, HostSample};
use pollux_host::sources::Sources;
use pollux_host::task_use::cpu_with_waited_children;
use pollux_stats::{Aim, SETS_MIN, SETS_NARROW, SoFar, StoppingRule, block_order, comes_now};

use crate::arm::Arm;
use crate::job::Job;
use crate::judge;
use crate::measure::Pass;
use crate::plan::{Method, Plan, PlannedPoint, SAME_AGAIN};
use crate::record::{
    Block, Ending, FAILURES_MAX, Fact, Interval, JobRecord, LeftOut, Outcome, Record, ResultRow,
    Run, Verdict,
};

mod before_plan;
mod length;
mod load_first;
mod one_run;
mod passes;
mod process_output;
mod set;

pub use crate::scratch::Scratch;
pub use before_plan::look;

/// Disturbed blocks are repeated up to this share of the planned ones.
const REPEATS_SHARE: f64 = 0.5;

/// A set begins where so much of the time that the last one took is left; its rounds are cut to fit.
const LAST_SET_PART: f64 = 0.6;
/// The first set at a point, in which more is found out, takes at most so many shares of what is left.
const FIRST_SET_SHARES: u32 = 2;

/// Which run an observer is notified of.
#[derive(Clone, Debug, PartialEq)]
pub struct RunLabel {
    /// The block, from 0; none in the counting and profile passes.
    pub block: Option<u32>,
    /// Name of the part.
    pub experiment: String,
    /// Label of the point.
    pub point: String,
    /// Name of the arm.
    pub arm: String,
    /// What the run is for.
    pub pass: Pass,
    /// Unit of the value.
    pub unit: &'static str,
}

impl RunLabel {
    fn key(&self) -> (String, String, String) {
        (self.experiment.clone(), self.point.clone(), self.arm.clone())
    }
}

/// Receives what happens. Called between runs, except for `interval`, which comes while a run
/// sleeps between two intervals.
pub trait Observer {
    /// A run starts.
    fn run_started(&mut self, run: &RunLabel);
    /// An interval of a run ended.
    fn interval(&mut self, run: &RunLabel, interval: &Interval);
    /// A run ended with a value, or with the reason why there is none.
    fn run_ended(&mut self, run: &RunLabel, value: Result<f64, &str>);
    /// A block ended; the record is judged and can be saved.
    fn block_ended(&mut self, record: &Record);
}

/// How often the user asked to stop: once ends after the block, twice at once.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Asks to stop; asking again is more urgent. Safe to call from a signal handler.
    pub fn ask(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Whether the user asked to stop.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    fn is_urgent(&self) -> bool {
        self.0.load(Relaxed) > 1
    }
}

/// Everything that a run of a plan needs.
pub struct Runner<'a> {
    /// What to run.
    pub plan: &'a Plan,
    /// The `pollux` binary, which a set starts for each arm as `pollux lab subject`, and a whole run as `pollux lab measure`.
    pub program: PathBuf,
    /// The command line that repeats this, for the record.
    pub command: Vec<String>,
    /// Where counts can be read.
    pub sources: Sources,
    /// Where runs may leave configurations and built programs for each other.
    pub scratch: Scratch,
    /// When the run began: what it does before its first set is a part of its budget.
    pub began: Instant,
    /// Asked between runs.
    pub stop: Stop,
    /// Receives what happens.
    pub observer: &'a mut dyn Observer,
}

impl Runner<'_> {
    /// Runs the plan to its end, to the end of its budget or to a stop, and judges it.
    pub fn run(mut self) -> Record {
        let mut state = State {
            record: self.empty_record(),
            start: self.began,
            failures: HashMap::new(),
            lengths: BTreeMap::new(),
            sets: HashMap::new(),
            kept: BTreeMap::new(),
            point_times: HashMap::new(),
        };
        self.counting_pass(&mut state);
        let mut block = 0;
        while self.wants_block(block, &mut state) {
            self.block(block, None, &mut state);
            block += 1;
            if block == 1 {
                self.plan_rounds(&mut state);
            }
            if block == self.plan.job.blocks {
                self.lengthen_sets(&mut state);
            }
        }
        self.end_kept(&mut state);
        self.repeat_disturbed(&mut state);
        self.request_times_pass(&mut state);
        self.profile_pass(&mut state);
        // Also where the stop came in the passes after the planned blocks.
        if self.stop.is_asked() {
            state.record.ending = Ending::Interrupted;
        }
        self.judge(&mut state);
        state.record
    }

    /// Whether anything at all wants another block: a set at a point that takes turns, or runs.
    fn wants_block(&self, done: u32, state: &mut State) -> bool {
        if self.stop.is_asked() {
            state.record.ending = Ending::Interrupted;
            return false;
        }
        let mut points = self.plan.points.iter().filter(|point| point.method == Method::Turns);
        let wants_set = points.any(|point| self.wants_set(done, point, state));
        let has_runs = self.plan.points.iter().any(|point| point.method == Method::Runs);
        wants_set || (has_runs && self.wants_runs(done, state))
    }

    /// Whether a point that takes turns should have another set: the planned ones while one of its rows
    /// is wide, more while one leaves doubt. What is left of a budget goes where it clears or narrows
    /// most rows. Widths say so, never a verdict (see [`Aim`]).
    fn wants_set(&self, done: u32, point: &PlannedPoint, state: &mut State) -> bool {
        let job = &self.plan.job;
        let sets = state.sets.get(&state.key(self.plan, point)).copied().unwrap_or(0);
        let wants = if done < job.blocks {
            if done < SETS_NARROW {
                self.comes_now(point, state)
            } else {
                self.lacks(Aim::Narrow, point, state)
            }
        } else if sets >= job.blocks_max {
            false
        } else if job.budget.is_some() {
            self.is_cheapest(point, state)
        } else {
            self.lacks(Aim::Decide, point, state)
        };
        wants && self.can_compare(point, state) && !self.is_over_budget(point, state)
    }

    /// Whether a point has its next planned set in this block: where the budget does not suffice for enough sets of every
    /// point, points get there one after the other (see [`comes_now`]).
    fn comes_now(&self, point: &PlannedPoint, state: &State) -> bool {
        let Some(budget) = self.plan.job.budget else { return true };
        let left = budget.saturating_sub(state.start.elapsed() + self.plan.side_passes());
        let mut points = Vec::new();
        let mut own = None;
        for other in self.plan.points.iter().filter(|other| other.method == Method::Turns) {
            let key = state.key(self.plan, other);
            let Some(set) = state.point_times.get(&key).copied() else { continue };
            if std::ptr::eq(other, point) {
                own = Some(points.len());
            }
            if std::ptr::eq(other, point) || self.can_compare(other, state) {
                points.push(SoFar { set, sets: state.sets.get(&key).copied().unwrap_or(0) });
            }
        }
        own.is_none_or(|own| comes_now(&points, own, left))
    }

    /// Whether the baseline of a point and one that it is compared with have not been given up; also
    /// where there is nothing but the baseline.
    fn can_compare(&self, point: &PlannedPoint, state: &State) -> bool {
        let (part, label) = state.key(self.plan, point);
        let works =
            |arm: &Arm| !state.has_given_up(&(part.clone(), label.clone(), arm.name.clone()));
        let baseline = &point.arms[point.baseline];
        let is_rival = |arm: &&Arm| arm.name != baseline.name && arm.name != SAME_AGAIN;
        let mut rivals = point.arms.iter().filter(is_rival).peekable();
        works(baseline) && (rivals.peek().is_none() || rivals.any(works))
    }

    /// Whether a row of a point has not reached `aim`.
    fn lacks(&self, aim: Aim, point: &PlannedPoint, state: &State) -> bool {
        let mut rows = self.rows(point, state);
        rows.any(|row| !row.has_reached(aim, self.plan.job.precision))
    }

    /// The rows of a point whose arms may still be compared with the baseline.
    fn rows<'s>(
        &self,
        point: &PlannedPoint,
        state: &'s State,
    ) -> impl Iterator<Item = &'s ResultRow> {
        let (part, label) = state.key(self.plan, point);
        let is_here = move |row: &&ResultRow| row.experiment == part && row.point == label;
        let counts = |row: &&ResultRow| {
            let key = (row.experiment.clone(), row.point.clone(), row.arm.clone());
            ![Verdict::Baseline, Verdict::NoiseLevel].contains(&row.verdict)
                && !state.has_given_up(&key)
        };
        state.record.results.iter().filter(is_here).filter(counts)
    }

    /// Whether the sets that this point needs cost least for each of its rows, among the points for which
    /// there is time: rows that may hide a small effect come first, then those that are wide beside their
    /// effect, then those that are only wider than asked for. What can't be reached in the time that is
    /// left comes last: it would take that time from rows that can.
    fn is_cheapest(&self, point: &PlannedPoint, state: &State) -> bool {
        let job = &self.plan.job;
        let left = job.budget.unwrap_or(Duration::MAX).saturating_sub(state.start.elapsed());
        let cost = |point: &PlannedPoint| {
            let took = state.point_times.get(&state.key(self.plan, point)).copied()?;
            let widths = [
                (Aim::Decide, job.precision.max(job.min_effect)),
                (Aim::Decide, job.precision),
                (Aim::Narrow, job.precision),
            ];
            let each = |(aim, half_width): (Aim, f64)| {
                let needs = |row: &ResultRow| match row.half_width() {
                    Some(_) => row.sets_until(aim, half_width),
                    None => Some(SETS_NARROW),
                };
                let mut rows: Vec<u32> = self.rows(point, state).filter_map(needs).collect();
                rows.sort_unstable();
                let costs = rows.into_iter().zip(1..);
                costs.map(|(sets, rows)| (took * sets > left, took * sets / rows)).min()
            };
            let steps = widths.into_iter().enumerate();
            let costs = steps.filter_map(|(step, width)| {
                let (is_too_long, each) = each(width)?;
                Some((is_too_long, step, each))
            });
            costs.min()
        };
        let costs =
            self.plan.points.iter().filter(|point| {
                point.method == Method::Turns && !self.exceeds_budget(point, state)
            });
        cost(point).is_some_and(|own| costs.filter_map(cost).min().is_none_or(|least| own <= least))
    }

    /// Whether the budget would be over before this point ends, by what it took the last time.
    fn is_over_budget(&self, point: &PlannedPoint, state: &mut State) -> bool {
        let is_over = self.exceeds_budget(point, state);
        if is_over {
            state.record.ending = Ending::Budget;
            let (experiment, label) = state.key(self.plan, point);
            let reason = "the budget was over before it began".to_owned();
            let left = LeftOut { experiment, point: label, arm: "*".to_owned(), reason };
            if !state.point_times.contains_key(&state.key(self.plan, point))
                && !state.record.left_out.contains(&left)
            {
                state.record.left_out.push(left);
            }
        }
        is_over
    }

    fn exceeds_budget(&self, point: &PlannedPoint, state: &State) -> bool {
        let last = state.point_times.get(&state.key(self.plan, point)).copied();
        // A set is cut to the time that is left; a whole run is not.
        let part = if point.method == Method::Turns { LAST_SET_PART } else { 1.0 };
        let next = last.map_or_else(|| self.plan.least_of_point(point), |last| last.mul_f64(part));
        let until = state.start.elapsed() + next + self.plan.side_passes();
        self.plan.job.budget.is_some_and(|budget| until > budget)
    }

    /// Until when a set at a point may take turns, where there is a budget: to its end, but for what ends the arms; in
    /// the first block not much more than its share, so that others can follow.
    fn set_until(&self, set: u32, point: &PlannedPoint, state: &State) -> Option<Instant> {
        let budget = self.plan.job.budget?;
        let kept = self.plan.side_passes() + point.end_time();
        let end = state.start + budget.saturating_sub(kept);
        if set > 0 {
            return Some(end);
        }
        let points = self.plan.points.iter().filter(|point| point.method == Method::Turns).count();
        let all = self.plan.job.blocks.min(SETS_MIN) * points as u32;
        let left = all.saturating_sub(state.point_times.len() as u32).max(1);
        let now = Instant::now();
        let share = end.saturating_duration_since(now) * FIRST_SET_SHARES / left;
        Some(end.min(now + share))
    }

    /// Whether points that are measured in whole runs want another block.
    fn wants_runs(&self, done: u32, state: &mut State) -> bool {
        let job = &self.plan.job;
        let rule = StoppingRule {
            blocks_min: job.blocks as usize,
            blocks_max: job.blocks_max as usize,
            target_half_width: job.precision,
        };
        let headline = judge::headline(self.plan, &state.record);
        if !rule.needs_more_blocks(done as usize, &headline) {
            return false;
        }
        let mut points = self.plan.points.iter().filter(|point| point.method == Method::Runs);
        points.any(|point| !self.is_over_budget(point, state))
    }

    /// Every arm at every point once.
    fn block(&mut self, block: u32, repeats: Option<u32>, state: &mut State) {
        let before = HostSample::take();
        let own_before = cpu_with_waited_children();
        let start = Instant::now();
        let plan = self.plan;
        let wants_runs = repeats.is_some() || self.wants_runs(block, state);
        for (index, point) in plan.points.iter().enumerate() {
            let wants = match point.method {
                Method::Turns => repeats.is_none() && self.wants_set(block, point, state),
                Method::Runs => wants_runs,
            };
            // Sets looked at the budget already, and so does every point of a block.
            if !wants || (point.method == Method::Runs && self.is_over_budget(point, state)) {
                continue;
            }
            let point_start = Instant::now();
            if point.method == Method::Turns {
                self.set(block, point, state);
                *state.sets.entry(state.key(plan, point)).or_default() += 1;
                state.point_times.insert(state.key(plan, point), point_start.elapsed());
                continue;
            }
            let seed = plan.job.seed.wrapping_add(index as u64);
            let order = block_order(point.arms.len(), block as usize, seed);
            for (position, arm) in order.into_iter().enumerate() {
                if self.stop.is_urgent() {
                    state.record.ending = Ending::Interrupted;
                    return;
                }
                let arm = &point.arms[arm];
                self.timing_run(block, position, point, arm, state);
            }
            state.point_times.insert(state.key(plan, point), point_start.elapsed());
        }
        let own_after = cpu_with_waited_children();
        let own = own_after.and_then(|after| own_before.map(|before| after.saturating_sub(before)));
        let own = own.value().copied().unwrap_or_default();
        let reading = GateReading::between(&before, &HostSample::take(), own);
        let disturbances = reading.disturbances();
        state.record.blocks.push(Block {
            block,
            repeats,
            start_s: (start - state.start).as_secs_f64(),
            duration_s: start.elapsed().as_secs_f64(),
            steal: reading.steal_share,
            foreign_cpu: reading.foreign_cpu_share,
            pressure: reading.psi_some_share,
            disturbances,
        });
        self.judge(state);
        self.observer.block_ended(&state.record);
    }

    /// One timing run, unless the arm was given up at this point.
    fn timing_run(
        &mut self,
        block: u32,
        position: usize,
        point: &PlannedPoint,
        arm: &Arm,
        state: &mut State,
    ) {
        let label = self.label(Some(block), point, arm, Pass::Timing);
        if state.has_given_up(&label.key()) {
            return;
        }
        let outcome = match self.one_run(&label, point, arm, u64::from(block)) {
            Ok(ran) => Outcome::Measured(ran.measurement),
            // The user ended it, not the arm.
            Err(_) if self.stop.is_urgent() => return,
            Err(reason) => Outcome::Failed { reason },
        };
        state.note_failure(&label, matches!(outcome, Outcome::Failed { .. }));
        state.add_run(label, position, outcome);
    }

    fn one_run(
        &mut self,
        label: &RunLabel,
        point: &PlannedPoint,
        arm: &Arm,
        block: u64,
    ) -> Result<one_run::Ran, String> {
        self.observer.run_started(label);
        let stop = self.stop.clone();
        let context = one_run::RunContext {
            program: &self.program,
            seed: self.plan.job.seed.wrapping_add(block),
            pass: label.pass,
            sources: &self.sources,
            scratch: self.scratch.path(),
            budget: self.plan.job.budget,
            is_stopped: &|| stop.is_urgent(),
        };
        let observer = &mut *self.observer;
        let ran = one_run::run(&arm.kind, point, &context, &mut |interval| {
            observer.interval(label, interval);
        });
        let value = ran.as_ref().map(|ran| ran.measurement.value).map_err(String::as_str);
        self.observer.run_ended(label, value);
        ran
    }

    /// Disturbed blocks once more at the end, all arms and points, under new numbers.
    fn repeat_disturbed(&mut self, state: &mut State) {
        if !self.plan.points.iter().any(|point| point.method == Method::Runs) {
            return;
        }
        let disturbed: Vec<u32> = state
            .record
            .blocks
            .iter()
            .filter(|block| !block.disturbances.is_empty())
            .map(|block| block.block)
            .collect();
        let most = (f64::from(self.plan.job.blocks) * REPEATS_SHARE) as usize;
        for repeats in disturbed.into_iter().take(most) {
            let next = state.record.blocks.len() as u32;
            let budget = self.plan.job.budget;
            let is_over = budget
                .is_some_and(|budget| state.start.elapsed() + self.plan.forecast().block > budget);
            if self.stop.is_asked() || is_over {
                return;
            }
            self.block(next, Some(repeats), state);
        }
    }

    fn judge(&self, state: &mut State) {
        state.record.duration_s = state.start.elapsed().as_secs_f64();
        judge::judge(self.plan, &mut state.record);
    }

    fn label(&self, block: Option<u32>, point: &PlannedPoint, arm: &Arm, pass: Pass) -> RunLabel {
        RunLabel {
            block,
            experiment: self.plan.part_name(point).to_owned(),
            point: point.point.label.clone(),
            arm: arm.name.clone(),
            pass,
            unit: point.metric().unit,
        }
    }

    fn empty_record(&self) -> Record {
        let job = &self.plan.job;
        let mut record = Record::empty();
        record.command = self.command.clone();
        record.job = JobRecord {
            name: job.name.clone(),
            question: job.question.clone(),
            toml: job.to_toml(),
            seed: job.seed,
            blocks: job.blocks,
            blocks_max: job.blocks_max,
            budget_s: job.budget.map(|budget| budget.as_secs_f64()),
            min_effect: job.min_effect,
            target_ci: job.precision,
        };
        let facts = Environment::read().facts().into_iter();
        record.environment =
            facts.map(|(name, reading)| Fact { name: name.to_owned(), reading }).collect();
        record.environment.extend(builds(&self.program, job));
        record.sources = self.sources.statuses.clone();
        record.left_out = self.plan.left_out.clone();
        record.looks = self.plan.looks.clone();
        record.cuts = self.plan.cuts.clone();
        record
    }
}

struct State {
    record: Record,
    start: Instant,
    /// Failures in a row by part, point and arm.
    failures: HashMap<(String, String, String), u32>,
    /// What the first set found out, by part, point and group of arms.
    lengths: BTreeMap<(String, String, usize), length::Length>,
    /// Arms that live on for another set, by part, point, group and name.
    kept: BTreeMap<(String, String, usize, String), set::Kept>,
    /// How many sets a point has had, by part and point.
    sets: HashMap<(String, String), u32>,
    /// How long a point took the last time, by part and point.
    point_times: HashMap<(String, String), Duration>,
}

impl State {
    fn key(&self, plan: &Plan, point: &PlannedPoint) -> (String, String) {
        (plan.part_name(point).to_owned(), point.point.label.clone())
    }

    /// Adds a run of a block to the record; it was the one at this position.
    fn add_run(&mut self, label: RunLabel, position: usize, outcome: Outcome) {
        let RunLabel { block, experiment, point, arm, .. } = label;
        let block = block.unwrap_or_default();
        let position = position as u32;
        self.record.runs.push(Run { block, position, experiment, point, arm, outcome });
    }

    /// Counts the failures in a row of an arm at a point.
    fn note_failure(&mut self, label: &RunLabel, has_failed: bool) {
        let failures = self.failures.entry(label.key()).or_default();
        *failures = if has_failed { *failures + 1 } else { 0 };
    }

    /// Whether an arm takes part in another set of its point: until its row is narrow.
    fn takes_part(&self, label: &RunLabel, arm: &str, precision: f64) -> bool {
        let mut rows = self.record.results.iter().filter(|row| {
            row.arm == arm && row.experiment == label.experiment && row.point == label.point
        });
        rows.all(|row| !row.has_reached(Aim::Narrow, precision))
    }

    /// Whether an arm failed so often in a row at a point that it is not tried again there.
    fn is_given_up(&self, label: &RunLabel, arm: &str) -> bool {
        self.has_given_up(&RunLabel { arm: arm.to_owned(), ..label.clone() }.key())
    }

    fn has_given_up(&self, key: &(String, String, String)) -> bool {
        self.failures.get(key).is_some_and(|failures| *failures >= FAILURES_MAX)
    }
}

/// A fact for `own`, the program that measures, and for each build of any part, each once. Two builds of the same
/// version differ in their size and their date at least, so both are shown.
fn builds(own: &Path, job: &Job) -> Vec<Fact> {
    let mut seen: Vec<(&str, &Path)> = vec![("pollux", own)];
    for arm in job.parts.iter().flat_map(|part| &part.arms) {
        let build = arm.kind.build().map(|build| (arm.name.as_str(), build.program.as_path()));
        seen.extend(build.filter(|build| !seen.contains(build)));
    }
    let fact = |(name, program): &(&str, &Path)| Fact {
        name: format!("build {name}"),
        reading: Reading::from_io(&program.display().to_string(), described(program)),
    };
    seen.iter().map(fact).collect()
}

fn described(program: &Path) -> io::Result<String> {
    let file = std::fs::metadata(program)?;
    let modified = jiff::Timestamp::try_from(file.modified()?).map_err(io::Error::other)?;
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output()?;
    let version = String::from_utf8_lossy(&output.stdout);
    let version = version.lines().next().unwrap_or("says no version");
    let path = program.display();
    let len_bytes = file.len();
    Ok(format!("{version}, {len_bytes} bytes, made {modified:.0}, {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_distinguished_from_another_and_a_missing_one_says_so() {
        let program = std::env::current_exe().expect("this test");
        let said = described(&program).expect("it is there");
        assert!(said.contains(" bytes, made 20") && said.ends_with(&*program.to_string_lossy()));
        assert!(described(Path::new("no/such/pollux")).is_err());
    }
}
