//! One set at a point: processes of all arms, which take turns. They are fresh, but for a user's server that takes long to load.
//!
//! ```text
//!  start all arms ─► ready ─► load ─► lead-in of a turn ─► rounds: every arm once, in random order ─► counts ─► end
//!                                    (first set only)                                          (first set only)
//! ```
//!
//! A round gives each arm one turn; the ratio of an arm to the baseline is formed within the round.
//! What comes of a set is one value and one ratio for each arm: the sets are the sample.
//!
//! The process of an arm lives as long as its set; that of a user's server that takes long to load is kept for some sets
//! ([`Kept`], `load_first`). Every answer of it has a deadline, and whatever happens, it ends with its handle, together with
//! everything that it started.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pollux_host::counting::InUse;
use pollux_host::{Error, Program, Reading, patience};
use pollux_stats::{Effort, Rng, SetRatio, Trial, block_order, mean, median, set_ratio};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::length::Length;
use super::passes::{counting_run, profile_of};
use super::process_output::{started, stopped_or};
use super::{RunLabel, Runner, State};
use crate::arm::Arm;
use crate::child::Task;
use crate::measure::Pass;
use crate::plan::{PlannedPoint, SAME_AGAIN, WAVES};
use crate::record::{
    LeftOut, Measurement, Outcome, RoundsOfSet, Steady, SteadyKind, Thirds, Turns, WarmUp,
};
use crate::subject::{Counted, Figure, Life, Reply, SubjectCommand, SubjectInfo, TurnSize};

/// What precedes the first round of a set takes at most so many turns.
const RAMP_MAX: u32 = 8;
/// Turns of the counting at the end of the first set, and of the profiling.
const COUNTED_TURNS: u32 = 5;
const PROFILED_TURNS: u32 = 10;
/// Rounds of a third of a set.
const THIRD_MIN: usize = 2;
/// Grace of each answer beyond the time that was ordered: a turn ends what it began.
const GRACE: Duration = Duration::from_secs(20);
/// The least that an arm is given to start, however near the end of its set is.
const START_MIN: Duration = Duration::from_secs(1);

/// An arm that lives on for another set.
pub(super) struct Kept {
    living: RunningArm,
    described: SubjectInfo,
}

/// One arm of a set.
pub(super) struct SetArm<'a> {
    pub(super) planned: &'a Arm,
    pub(super) living: Result<RunningArm, String>,
    /// What it said of itself when it was ready.
    pub(super) described: SubjectInfo,
    /// Whether it was lost when it was counted or profiled, after its turns: they stand.
    is_lost_late: bool,
    /// Whether it lived before this set.
    pub(super) is_kept: bool,
    /// What the load before its first round found.
    pub(super) warm_up: Option<WarmUp>,
    /// A figure for each round, none where it had none.
    rounds: Vec<Option<Figure>>,
}

impl Runner<'_> {
    /// One set at a point, group by group.
    pub(super) fn set(&mut self, set: u32, point: &PlannedPoint, state: &mut State) {
        let groups = point.groups.clone();
        for (number, group) in groups.iter().enumerate() {
            if self.stop.is_urgent() {
                return;
            }
            self.group(set, number, group, point, state);
        }
    }

    fn group(
        &mut self,
        set: u32,
        number: usize,
        group: &[usize],
        point: &PlannedPoint,
        state: &mut State,
    ) {
        let label = self.label(Some(set), point, &point.arms[point.baseline], Pass::Timing);
        let planned = self.taking_part(group, &label, point, state);
        let mut all = group.iter().map(|arm| &point.arms[*arm]);
        if all.any(|arm| !is_baseline(arm, point))
            && planned.iter().all(|arm| is_baseline(arm, point))
        {
            return;
        }
        self.observer.run_started(&RunLabel { arm: "all arms".to_owned(), ..label.clone() });
        let start = Instant::now();
        let key = (label.experiment.clone(), label.point.clone(), number);
        let kept = planned.iter().map(|arm| state.kept.remove(&kept_key(&key, arm))).collect();
        // What a share of the first set is for can be known only once its arms are there.
        let start_until = self.set_until(set.max(1), point, state);
        let mut arms = self.arms(set, &planned, kept, point, start_until);
        let started = start.elapsed();
        let mut known = state.lengths.remove(&key);
        let end = self.set_until(set, point, state).filter(|_| set > 0);
        let warmed = self.warm_up(&mut arms, known.as_mut(), point, end);
        let mut length = match known {
            Some(length) => length,
            None => self.length(&mut arms, point),
        };
        remember_loads(&mut length, &arms);
        let until = self.set_until(set, point, state);
        let per_round = self.rounds(&mut arms, set, &length, point, until);
        if set == 0 {
            self.counts(&mut arms, &length, number, point, state);
        }
        let figures = SetFigures::of(&arms, point);
        let load = self.warm_up_time(&arms, &length, point);
        if set == 0 && !load.is_zero() {
            length.load = load;
            length.starts_every = self.starts_every(load, state);
        }
        let next_until = self.set_until(set + 1, point, state);
        let lives_on: Vec<bool> =
            arms.iter().map(|arm| self.is_kept(arm, set, &length, point, next_until)).collect();
        let ending = Instant::now();
        let ends = self.ends(&mut arms, &lives_on);
        if self.stop.is_urgent() {
            return;
        }
        if set == 0 {
            let planned = load / length.starts_every;
            length.looked = warmed.saturating_sub(planned);
            let effort = Effort { set: started + planned + ending.elapsed(), round: per_round };
            let named =
                arms.iter().zip(&figures.ratios).filter(|(arm, _)| arm.planned.name != SAME_AGAIN);
            length.trial = Trial { effort, rows: named.filter_map(|(_, ratio)| *ratio).collect() };
        }
        for (position, (arm, end)) in arms.iter().zip(ends).enumerate() {
            let label = RunLabel { arm: arm.planned.name.clone(), ..label.clone() };
            // The baseline and its control are recorded once, from the first group.
            if is_baseline(arm.planned, point) && number > 0 {
                if arm.living.is_err() || end.is_err() {
                    state.note_failure(&label, true);
                }
                continue;
            }
            let outcome =
                end.and_then(|life| figures.measurement(position, arm, &length, point, life));
            self.note_outcome(label, position, outcome, state);
        }
        state.record.rounds.push(self.rounds_of(set, number, point, &arms));
        state.lengths.insert(key.clone(), length);
        keep(&key, arms.into_iter().zip(lives_on), state);
    }

    /// What the record has of the rounds of a group.
    fn rounds_of(
        &self,
        set: u32,
        group: usize,
        point: &PlannedPoint,
        arms: &[SetArm<'_>],
    ) -> RoundsOfSet {
        RoundsOfSet {
            set,
            experiment: self.plan.part_name(point).to_owned(),
            point: point.point.label.clone(),
            group,
            arms: arms.iter().map(|arm| (arm.planned.name.clone(), arm.rounds.clone())).collect(),
        }
    }

    /// What came of an arm in a set, to the observer and into the record.
    fn note_outcome(
        &mut self,
        label: RunLabel,
        position: usize,
        outcome: Result<Measurement, String>,
        state: &mut State,
    ) {
        let value = outcome.as_ref().map(|measured| measured.value).map_err(String::as_str);
        self.observer.run_ended(&label, value);
        state.note_failure(&label, outcome.is_err());
        let outcome = outcome.map_or_else(|reason| Outcome::Failed { reason }, Outcome::Measured);
        state.add_run(label, position, outcome);
    }

    /// The arms of a group that take part in another set: both copies of the baseline, and of the others
    /// those that were not given up and whose rows are not narrow.
    fn taking_part<'p>(
        &self,
        group: &[usize],
        label: &RunLabel,
        point: &'p PlannedPoint,
        state: &State,
    ) -> Vec<&'p Arm> {
        let arms = group.iter().map(|index| &point.arms[*index]);
        arms.filter(|arm| !state.is_given_up(label, &arm.name))
            .filter(|arm| {
                is_baseline(arm, point)
                    || state.takes_part(label, &arm.name, self.plan.job.precision)
            })
            .collect()
    }

    /// Starts arms, all at the same time, and waits until they are ready, or the set has to end.
    fn arms<'p>(
        &mut self,
        set: u32,
        planned: &[&'p Arm],
        mut kept: Vec<Option<Kept>>,
        point: &'p PlannedPoint,
        until: Option<Instant>,
    ) -> Vec<SetArm<'p>> {
        let until = until.map(|until| until.max(Instant::now() + START_MIN));
        let stop = self.stop.clone();
        let is_stopped = || stop.is_urgent();
        // The arm that starts first may have the better addresses.
        let order = block_order(planned.len(), set as usize, self.plan.job.seed);
        let seed = self.plan.job.seed.wrapping_add(u64::from(set));
        let mut started: Vec<(usize, Result<RunningArm, String>)> = order
            .into_iter()
            .filter(|index| kept[*index].is_none())
            .map(|index| {
                let (mut task, program) =
                    Task::in_turns(&planned[index].kind, point, seed, self.scratch.path());
                if let Some(until) = until {
                    let left = until.saturating_duration_since(Instant::now());
                    task.spec.budget_ms = Some(left.as_millis() as u64);
                }
                let program = program.as_deref().unwrap_or(&self.program);
                (index, RunningArm::start(Command::new::<&Path>(program), &task))
            })
            .collect();
        started.sort_by_key(|(index, _)| *index);
        let mut started = started.into_iter().map(|(_, living)| living);
        let of_arm = |index: usize| match kept[index].take() {
            Some(Kept { living, described }) => (index, true, Ok((living, described))),
            None => {
                let living = started.next().expect("what was not kept was started");
                let ready = living.and_then(|mut living| {
                    let described = living.ready(until, &is_stopped)?;
                    Ok((living, described))
                });
                (index, false, ready)
            }
        };
        (0..planned.len())
            .map(of_arm)
            .map(|(index, is_kept, living)| {
                let (living, described) = match living {
                    Ok((living, described)) => (Ok(living), described),
                    Err(reason) => (Err(reason), SubjectInfo::default()),
                };
                let planned = planned[index];
                let is_lost_late = false;
                let warm_up = None;
                let rounds = Vec::new();
                SetArm { planned, living, described, is_lost_late, is_kept, warm_up, rounds }
            })
            .collect()
    }

    /// Turns in random order, every arm once in each round, slow ones in some of them; how long a round took. Ends with
    /// the round, but the first, that would not be over by `until`.
    fn rounds(
        &mut self,
        arms: &mut [SetArm<'_>],
        set: u32,
        length: &Length,
        point: &PlannedPoint,
        until: Option<Instant>,
    ) -> Duration {
        let own = self.plan.points.iter().position(|other| std::ptr::eq(other, point));
        let mut random = Rng::stream(self.plan.job.seed ^ u64::from(set), own.unwrap_or(0) as u64);
        let mut order: Vec<usize> = (0..arms.len()).collect();
        // The arm that works first takes the first pages: in every set another one.
        random.shuffle(&mut order);
        let ramp_time = match point.fixed_ramp_time() {
            Some(_) => Duration::ZERO,
            None => point.ramp_time.min(length.turn * RAMP_MAX),
        };
        // The opening of its connections was a wave of each arm.
        let has_ramp =
            |index: &&usize| !ramp_time.is_zero() && !length.is_slow(&arms[**index].planned.name);
        let ramped: Vec<usize> = order.iter().filter(has_ramp).copied().collect();
        for index in ramped {
            self.turn(&mut arms[index], TurnSize::of(ramp_time), Duration::ZERO, 1);
        }
        let start = Instant::now();
        // All arms are laid out alike.
        let _beside = arms.iter().find_map(|arm| PinnedRunner::of(arm.living.as_ref().ok()?));
        let mut done = 0;
        for round in 0..length.rounds {
            let mean = start.elapsed() / done.max(1);
            let is_late = done > 0 && until.is_some_and(|until| Instant::now() + mean > until);
            if self.stop.is_urgent() || is_late {
                break;
            }
            random.shuffle(&mut order);
            for &index in &order {
                if !length.takes_turn(&arms[index].planned.name, round) {
                    arms[index].rounds.push(None);
                    continue;
                }
                let (size, lead_in) = length.turn_size(&arms[index].planned.name, 1);
                let figures = self.turn(&mut arms[index], size, lead_in, 1);
                arms[index].rounds.push(figures.and_then(|figures| figures.first().copied()));
            }
            done += 1;
        }
        start.elapsed() / done.max(1)
    }

    /// One turn of an arm; an arm that fails has no further turn in this set.
    pub(super) fn turn(
        &mut self,
        arm: &mut SetArm<'_>,
        part: TurnSize,
        lead_in: Duration,
        parts: u32,
    ) -> Option<Vec<Figure>> {
        let order = SubjectCommand::Turn {
            lead_in_us: lead_in.as_micros() as u64,
            length_us: part.length.as_micros() as u64,
            parts,
            units: part.units,
        };
        match self.order(arm, &order, lead_in + part.length * parts)? {
            Reply::Turned(figures) => Some(figures),
            _ => None,
        }
    }

    pub(super) fn order(
        &mut self,
        arm: &mut SetArm<'_>,
        order: &SubjectCommand,
        length: Duration,
    ) -> Option<Reply> {
        let stop = self.stop.clone();
        let living = arm.living.as_mut().ok()?;
        match living.order(order, length, &|| stop.is_urgent()) {
            Ok(reply) => Some(reply),
            Err(reason) => {
                arm.living = Err(reason);
                None
            }
        }
    }

    /// What the kernel and the pollers count in some turns more, and where the time goes. An arm that
    /// fails here is left without; its turns before stand.
    fn counts(
        &mut self,
        arms: &mut [SetArm<'_>],
        length: &Length,
        group: usize,
        point: &PlannedPoint,
        state: &mut State,
    ) {
        let _in_use = InUse::of(&self.sources);
        for arm in arms {
            let is_known = group > 0 && arm.planned.name == baseline_name(point);
            let is_lost = arm.living.is_err();
            if arm.planned.name == SAME_AGAIN || is_known || is_lost || self.stop.is_asked() {
                continue;
            }
            let label = self.label(None, point, arm.planned, Pass::Counting);
            let (TurnSize { length: turn, units }, _) = length.turn_size(&arm.planned.name, 1);
            let length_us = turn.as_micros() as u64;
            let sources = self.sources.clone();
            let is_slow = length.is_slow(&arm.planned.name);
            let turns = if is_slow { 1 } else { COUNTED_TURNS };
            let order = SubjectCommand::Count { turns, length_us, units, sources };
            if let Some(Reply::Counted(counted)) = self.order(arm, &order, turn * turns) {
                let Counted { units, counters, events_per_wait_histogram, kernel, .. } = *counted;
                let events = (units, counters, events_per_wait_histogram);
                state.record.counting.push(counting_run(&label, events, kernel));
            }
            let turns = if is_slow { 1 } else { PROFILED_TURNS };
            let profile = |rate_hz| SubjectCommand::Profile { turns, length_us, units, rate_hz };
            if let Some(order) = self.plan.job.profile_hz.map(profile)
                && let Some(Reply::Counted(counted)) = self.order(arm, &order, turn * turns)
                && let Some(samples) = counted.samples
            {
                state.record.profiles.push(profile_of(&label, samples, counted.symbols));
            }
            if let Err(reason) = &arm.living {
                arm.is_lost_late = true;
                let reason = format!("what is counted beside its turns: {reason}");
                let RunLabel { experiment, point, arm, .. } = label;
                state.record.left_out.push(LeftOut { experiment, point, arm, reason });
            }
        }
    }

    /// Ends all arms at the same time, or gives those that live on new connections.
    fn ends(&self, arms: &mut [SetArm<'_>], lives_on: &[bool]) -> Vec<Result<Life, String>> {
        for (arm, lives_on) in arms.iter_mut().zip(lives_on) {
            if let Ok(living) = &mut arm.living {
                living.send(if *lives_on { &SubjectCommand::Renew } else { &SubjectCommand::End });
            }
        }
        let ended = |arm: &mut SetArm<'_>| match &mut arm.living {
            Ok(living) => living.ended(&|| self.stop.is_urgent()),
            Err(_) if arm.is_lost_late => Ok(Life::default()),
            Err(reason) => Err(reason.clone()),
        };
        arms.iter_mut().map(ended).collect()
    }
}

impl Runner<'_> {
    /// Ends the arms that live on: there is no other set.
    pub(super) fn end_kept(&self, state: &mut State) {
        let mut kept = std::mem::take(&mut state.kept);
        for Kept { living, .. } in kept.values_mut() {
            living.send(&SubjectCommand::End);
        }
        for Kept { living, .. } in kept.values_mut() {
            // Its sets stand; one that does not end well is ended with its handle.
            let _ = living.ended(&|| self.stop.is_urgent());
        }
    }
}

/// What a group of a set is known by from one set to the next: part, point, number.
type GroupKey = (String, String, usize);

fn kept_key((part, point, number): &GroupKey, arm: &Arm) -> (String, String, usize, String) {
    (part.clone(), point.clone(), *number, arm.name.clone())
}

/// Keeps the arms that live on for the next set.
fn keep<'p>(key: &GroupKey, arms: impl Iterator<Item = (SetArm<'p>, bool)>, state: &mut State) {
    for (SetArm { planned, living, described, .. }, lives_on) in arms {
        if let (Ok(living), true) = (living, lives_on) {
            state.kept.insert(kept_key(key, planned), Kept { living, described });
        }
    }
}

/// Name of the baseline at a point.
pub(super) fn baseline_name(point: &PlannedPoint) -> &str {
    &point.arms[point.baseline].name
}

/// Whether an arm is the baseline of a point, or its second copy.
fn is_baseline(arm: &Arm, point: &PlannedPoint) -> bool {
    arm.name == baseline_name(point) || arm.name == SAME_AGAIN
}

/// What the rounds of a set came to, for each of its arms.
struct SetFigures {
    /// The cost of each round.
    costs: Vec<Vec<Option<f64>>>,
    ratios: Vec<Option<SetRatio>>,
    thirds: Vec<Option<Thirds>>,
}

impl SetFigures {
    fn of(arms: &[SetArm<'_>], point: &PlannedPoint) -> Self {
        let costs = of_rounds(arms, Figure::cost_ns);
        let ratios = ratios(arms, &costs, point);
        let thirds = thirds(arms, &costs, point);
        Self { costs, ratios, thirds }
    }

    /// What is recorded of the arm at this position, whose life ended so.
    fn measurement(
        &self,
        position: usize,
        arm: &SetArm<'_>,
        length: &Length,
        point: &PlannedPoint,
        life: Life,
    ) -> Result<Measurement, String> {
        let costs = &self.costs[position];
        let measured = measurement(arm, costs, self.ratios[position], length, point)?;
        let mut measured = with_turns(measured, arm, length, life);
        measured.turns.iter_mut().for_each(|turns| turns.thirds = self.thirds[position]);
        Ok(measured)
    }
}

/// Keeps what the loads of this set found, for the loads of those that follow.
fn remember_loads(length: &mut Length, arms: &[SetArm<'_>]) {
    for arm in arms.iter().filter(|arm| arm.planned.name != SAME_AGAIN) {
        let found = arm.warm_up.map(|found| (arm.planned.name.clone(), found));
        let is_new = |name: &String| {
            length.warm_ups.get(name).is_none_or(|known| arm.is_kept && !known.is_flat)
        };
        let found = found.filter(|(name, _)| is_new(name));
        length.warm_ups.extend(found);
    }
}

fn of_rounds(arms: &[SetArm<'_>], of: impl Fn(&Figure) -> Option<f64>) -> Vec<Vec<Option<f64>>> {
    let of_arm =
        |arm: &SetArm<'_>| arm.rounds.iter().map(|figure| figure.as_ref().and_then(&of)).collect();
    arms.iter().map(of_arm).collect()
}

/// The ratio of each arm of a set to the baseline: the mean of those to both copies of it, which varies
/// less than one; that of the second copy to the first. None for the baseline, and for all where it
/// failed so often that it was given up.
///
/// Each is formed for itself: costs are skewed, so what is left of one cost over the mean of two when
/// the ends are trimmed lies below 1 for the same program (1 % for `pipes`).
fn ratios(
    arms: &[SetArm<'_>],
    costs: &[Vec<Option<f64>>],
    point: &PlannedPoint,
) -> Vec<Option<SetRatio>> {
    let place = |name: &str| arms.iter().position(|arm| arm.planned.name == name);
    let Some(baseline) = place(baseline_name(point)) else { return vec![None; arms.len()] };
    let copy = place(SAME_AGAIN).unwrap_or(baseline);
    let against = |position: usize, other: usize| {
        let rounds = costs[position].iter().zip(&costs[other]);
        let (arm, other): (Vec<f64>, Vec<f64>) = rounds.filter_map(|(a, b)| a.zip(*b)).unzip();
        set_ratio(&arm, &other)
    };
    let ratio = |position: usize| match (against(position, baseline), against(position, copy)) {
        _ if position == baseline => None,
        (Some(one), Some(other)) if position != copy && copy != baseline => Some(one.mean(other)),
        (one, _) => one,
    };
    (0..arms.len()).map(ratio).collect()
}

/// The first and the last third of the rounds of each arm; none where those are too few.
fn thirds(
    arms: &[SetArm<'_>],
    costs: &[Vec<Option<f64>>],
    point: &PlannedPoint,
) -> Vec<Option<Thirds>> {
    let rounds = costs.iter().map(Vec::len).max().unwrap_or(0);
    let third = rounds / 3;
    let part = |costs: &[Vec<Option<f64>>], from: usize| -> Vec<Vec<Option<f64>>> {
        let of_arm = |costs: &Vec<Option<f64>>| costs.get(from..from + third).map(<[_]>::to_vec);
        costs.iter().map(|costs| of_arm(costs).unwrap_or_default()).collect()
    };
    let ends = |costs: &[Vec<Option<f64>>]| [0, rounds - third].map(|from| part(costs, from));
    let [first, last] = ends(costs);
    let [beside_first, beside_last] = ends(&of_rounds(arms, Figure::beside_own));
    let [ratio_first, ratio_last] = [&first, &last].map(|part| ratios(arms, part, point));
    let known = |part: &[Option<f64>]| part.iter().flatten().copied().collect::<Vec<f64>>();
    let log_of = |part: &[Option<f64>]| {
        let values = known(part);
        set_ratio(&values, &vec![1.0; values.len()]).map(|usual| usual.log_ratio)
    };
    let change = |first: &[Option<f64>], last: &[Option<f64>]| Some(log_of(last)? - log_of(first)?);
    let of_arm = |index: usize| {
        let first = &first[index];
        let last = &last[index];
        let ratios = ratio_first[index].zip(ratio_last[index]);
        let unit_ns = point.experiment.cost.unit_ns;
        (third >= THIRD_MIN).then_some(())?;
        Some(Thirds {
            rounds: third as u32,
            first: median(&known(first))? / unit_ns,
            last: median(&known(last))? / unit_ns,
            change: change(first, last)?,
            change_beside_generator: change(&beside_first[index], &beside_last[index]),
            ratio_change: ratios.map(|(first, last)| last.log_ratio - first.log_ratio),
        })
    };
    (0..arms.len()).map(of_arm).collect()
}

/// The same with what the arm said of itself, what its turns were like and what its life came to.
fn with_turns(
    mut measured: Measurement,
    arm: &SetArm<'_>,
    length: &Length,
    life: Life,
) -> Measurement {
    let name = &arm.planned.name;
    let described = &arm.described;
    measured.mechanism.clone_from(&described.mechanism);
    measured.generator.clone_from(&described.generator);
    measured.findings.clone_from(&described.findings);
    if length.units.get(name).is_some_and(|units| *units < described.wave * WAVES) {
        let text = "its turns are so short that each connection has fewer than three requests in one: a \
                    difference of a few percent may be that of the first requests";
        measured.findings.insert("short-turns".to_owned(), text.to_owned());
    }
    if length.unsettled.contains(name) {
        let text = "the halves of its turns cost different amounts after the longest lead-in too";
        measured.findings.insert("unsettled".to_owned(), text.to_owned());
    }
    measured.figures.extend(life.figures);
    measured.findings.extend(life.findings);
    measured.worker_calls = life.worker_calls;
    measured
}

/// What a set says of one arm.
fn measurement(
    arm: &SetArm<'_>,
    costs: &[Option<f64>],
    ratio: Option<SetRatio>,
    length: &Length,
    point: &PlannedPoint,
) -> Result<Measurement, String> {
    let own: Vec<f64> = costs.iter().flatten().copied().collect();
    let value = median(&own).ok_or("no turn of it had a figure")?;
    let figures: Vec<&Figure> = arm.rounds.iter().flatten().collect();
    let sum = |what: fn(&Figure) -> u64| figures.iter().map(|figure| what(figure)).sum::<u64>();
    let units = sum(|figure| figure.units);
    let cpu_ns = sum(|figure| figure.cpu_ns);
    let wall_ns = sum(|figure| figure.wall_ns);
    let per_s: Vec<f64> = figures
        .iter()
        .map(|figure| figure.units as f64 / (figure.wall_ns.max(1) as f64 / 1e9))
        .collect();
    let is_server = point.experiment.is_server();
    let name = if is_server { "requests_per_s" } else { "units_per_s" };
    let rate = mean(&per_s).map(|rate| (name.to_owned(), rate));
    let busy = ("server_busy".to_owned(), cpu_ns as f64 / wall_ns.max(1) as f64);
    let busy = is_server.then_some(busy);
    // A turn that ends by its units takes as long as they do.
    let wall_us: Vec<f64> = figures.iter().map(|figure| figure.wall_ns as f64 / 1e3).collect();
    let by_units = length.units.get(&arm.planned.name).and(median(&wall_us));
    let turn_us = by_units.unwrap_or(length.turn.as_micros() as f64);
    let lead_in = length.lead_in.as_secs_f64() / length.turn.as_secs_f64();
    Ok(Measurement {
        value: value / point.experiment.cost.unit_ns,
        figures: rate.into_iter().chain(busy).collect(),
        mechanism: None,
        generator: None,
        findings: BTreeMap::new(),
        window_s: wall_ns as f64 / 1e9,
        intervals: Vec::new(),
        worker_calls: Vec::new(),
        steadiness: Steady { kind: SteadyKind::Steady, detail: "in turns".to_owned() },
        turns: Some(Turns {
            rounds: ratio.map_or(own.len() as u32, |ratio| ratio.rounds),
            turn_us: turn_us as u64,
            lead_in_us: (turn_us * lead_in) as u64,
            log_ratio: ratio.map(|ratio| ratio.log_ratio),
            round_sd: ratio.and_then(|ratio| ratio.round_sd),
            warm_up: arm.warm_up,
            is_kept: arm.is_kept,
            thirds: None,
        }),
        events: Some(units),
        cpu_ns: Reading::Value(cpu_ns),
        process_cpu_ns: Reading::unavailable("not read in turns"),
    })
}

/// A subject that lives.
pub(super) struct RunningArm(Program);

impl RunningArm {
    /// Starts the subject's process; it sets itself up while others are started.
    fn start(mut command: Command, task: &Task) -> Result<Self, String> {
        command.args(["lab", "subject"]);
        let mut program = started(command)?;
        program.write_line(&serde_json::to_string(task).expect("a task is plain data"));
        Ok(Self(program))
    }

    /// Waits until it is set up. One that has not started when its set has to end says so itself, or is killed soon after.
    fn ready(
        &mut self,
        until: Option<Instant>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<SubjectInfo, String> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()) + START_MIN);
        let patience =
            left.map_or(patience::SUBJECT_READY, |left| left.min(patience::SUBJECT_READY));
        let start = Instant::now();
        let answer = self.answer(patience, is_stopped).map_err(|error| {
            let is_cut = patience < patience::SUBJECT_READY && start.elapsed() >= patience;
            let why = "; the budget left it no longer to start in this set";
            error + if is_cut { why } else { "" }
        });
        match answer? {
            Reply::Ready(described) => Ok(described),
            other => Err(format!("said {other:?} before it was ready")),
        }
    }

    /// Gives an order that takes about `length`, and waits for its answer.
    fn order(
        &mut self,
        order: &SubjectCommand,
        length: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Reply, String> {
        self.send(order);
        self.answer(length * 20 + GRACE, is_stopped)
    }

    /// Waits until it has ended: what its life came to.
    fn ended(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<Life, String> {
        match self.answer(GRACE, is_stopped)? {
            Reply::Ended(life) => Ok(life),
            other => Err(format!("said {other:?} at its end")),
        }
    }

    fn send(&mut self, order: &SubjectCommand) {
        self.0.write_line(&serde_json::to_string(order).expect("an order is plain data"));
    }

    fn answer(
        &mut self,
        patience: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Reply, String> {
        match self.0.output_line_within(patience, is_stopped) {
            Ok(Some(line)) => {
                serde_json::from_str(&line).map_err(|error| format!("said \"{line}\": {error}"))
            }
            Ok(None) => Err(match self.0.stderr_tail() {
                words if words.is_empty() => {
                    "ended, and printed nothing on standard error".to_owned()
                }
                words => words.strip_prefix("error: ").unwrap_or(&words).to_owned(),
            }),
            Err(Error::Deadline { time, .. }) => {
                Err(format!("did not answer within {time:.0?} and was killed"))
            }
            Err(error) => Err(stopped_or(error)),
        }
    }
}

/// The runner on the CPU of the thread that takes its orders, as long as this value lives: an order to
/// another CPU has to wake it, which takes a virtual machine as long as a third of a turn.
struct PinnedRunner(CpuSet);

impl PinnedRunner {
    /// Beside a subject; none where the kernel does not say, or refuses.
    fn of(subject: &RunningArm) -> Option<Self> {
        let cpus = sched_getaffinity(Pid::from_raw(subject.0.pid() as i32)).ok()?;
        let before = sched_getaffinity(None).ok()?;
        sched_setaffinity(None, &cpus).ok()?;
        Some(Self(before))
    }
}

impl Drop for PinnedRunner {
    fn drop(&mut self) {
        // It was allowed there before.
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::ArmKind;
    use crate::axis::Axes;
    use crate::measure::RunSpec;
    use pollux_engine::Driver;

    #[test]
    fn an_arm_that_does_not_start_is_ended_with_its_set() {
        let spec = RunSpec::of(ArmKind::Driver(Driver::Completion), Axes::default());
        let task = Task { experiment: crate::experiments::ALL[0], spec };
        let mut command = Command::new("sh");
        // It reads nothing, says nothing, and does not end.
        command.args(["-c", "exec sleep 600"]);
        let mut arm = RunningArm::start(command, &task).expect("a shell");
        let start = Instant::now();
        let until = Some(start + Duration::from_millis(50));
        let said = arm.ready(until, &|| false).expect_err("it is not there");
        assert!(said.ends_with("; the budget left it no longer to start in this set"), "{said}");
        assert!(start.elapsed() < patience::SUBJECT_READY / 2, "{:?}", start.elapsed());
    }
}
