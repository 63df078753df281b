//! How long turns, lead-ins and sets are: measured in the first set of each group of arms at a point, then chosen by
//! what is left of the budget.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pollux_stats::{ROUNDS_MAX, ROUNDS_MIN, Rng, Trial, median, rounds_within};

use super::set::{SetArm, baseline_name};
use super::{Runner, State};
use crate::plan::{PlannedPoint, TURN, least_units};
use crate::record::WarmUp;
use crate::subject::{Figure, TurnSize};
use crate::warm_up::CHEAP;

/// The shortest lead-in of a turn is this part of it: caches are cold and a loop has just woken up.
const LEAD_IN: u32 = 4;
/// The longest is so many turns; an arm that has not settled by then never does.
const LEAD_IN_MAX: u32 = 8;
/// Rounds with which a lead-in is tried, and those that say how many units a turn has.
const TRIAL_ROUNDS: u32 = 8;
const UNITS_ROUNDS: u32 = 4;
/// A first half of a turn that costs more or less than the second by this share has not settled.
const UNSETTLED: f64 = 0.03;
/// A turn that ends by its units takes at most so many times its length, or so long for each.
const UNITS_GRACE: u32 = 40;
const UNIT_MAX: Duration = Duration::from_micros(200);
/// A turn of a slow arm takes at most so many times what it took when it was looked at.
const SLOW_GRACE: u32 = 3;
/// An arm that does fewer units than the baseline by this factor has a number of its own.
const SLOWER: u64 = 2;
/// A set after the planned ones has at most so many times their rounds: it weighs more, and where few sets
/// hide that starts differ, an interval that hangs on one or two of them would be too narrow.
const LONGER_MAX: u32 = 4;
/// The planned sets take this part of a budget; the rest goes to the rows that they leave open or wide.
const PLANNED_SHARE: f64 = 0.6;
/// And this where arms are loaded long before each: what is left is too little for further starts.
const LOADED_SHARE: f64 = 0.85;
/// How far starts of a program that is loaded long lie apart, as a deviation of log ratios: as rounds don't show that,
/// their sets have no more rounds than are worth it, and more starts instead. Seen here: 1 to 1.5 % of Node.
const BETWEEN_LOADED_STARTS: f64 = 0.012;

/// What the first set of a group of arms leaves for the sets that follow at the same point.
#[derive(Clone, Debug)]
pub(super) struct Length {
    pub(super) turn: Duration,
    pub(super) lead_in: Duration,
    /// Units of a turn by arm, where a turn ends by them.
    pub(super) units: BTreeMap<String, u64>,
    /// Arms whose halves of a turn differ after the longest lead-in too.
    pub(super) unsettled: Vec<String>,
    /// Rounds of a set.
    pub(super) rounds: u32,
    /// Arms of which a turn is one wave that takes so long, without a lead-in, and which have a turn in some rounds only.
    pub(super) slow: BTreeMap<String, Duration>,
    /// How many turns those have in a set.
    pub(super) slow_turns: u32,
    /// Rounds of a set at most: of those in which the baseline has no turn nothing is learned.
    pub(super) rounds_max: u32,
    /// What the first set says of how many there should be.
    pub(super) trial: Trial,
    /// The first load of each arm that is loaded before it is timed.
    pub(super) warm_ups: BTreeMap<String, WarmUp>,
    /// Arms whose last load was too short, as it seemed.
    pub(super) short_loads: BTreeSet<String>,
    /// Programs that are loaded long are started anew before each set of so many; the others have new connections.
    pub(super) starts_every: u32,
    /// What those loads take before a set.
    pub(super) load: Duration,
    /// How much longer the first set took than those that follow will, as it looked at how much load is needed.
    pub(super) looked: Duration,
}

impl Length {
    /// Rounds with which time buys most.
    fn optimal_rounds(&self) -> u32 {
        let between_starts = if self.load > CHEAP { BETWEEN_LOADED_STARTS } else { 0.0 };
        self.trial.optimal_rounds(between_starts)
    }

    /// Makes the loads of an arm longer, when two of them in a row seemed too short: one can be the machine.
    pub(super) fn lengthen(&mut self, arm: &str, short: Option<WarmUp>) {
        let Some(short) = short else {
            self.short_loads.remove(arm);
            return;
        };
        if self.short_loads.insert(arm.to_owned()) {
            return;
        }
        if let Some(known) = self.warm_ups.get_mut(arm) {
            (known.flat_after, known.flat_after_s) = (short.units, short.time_s);
            known.units = known.units.max(short.units);
            known.time_s = known.time_s.max(short.time_s);
        }
    }

    /// Whether a turn of an arm is a single wave, as each answer takes long.
    pub(super) fn is_slow(&self, arm: &str) -> bool {
        self.slow.contains_key(arm)
    }

    /// Whether an arm has a turn in a round: a slow one in as many as it may have, all of them in the same.
    pub(super) fn takes_turn(&self, arm: &str, round: u32) -> bool {
        let until = |round: u32| {
            u64::from(round) * u64::from(self.slow_turns) / u64::from(self.rounds.max(1))
        };
        !self.is_slow(arm) || self.slow_turns >= self.rounds || until(round + 1) > until(round)
    }

    /// One of so many parts of a turn of an arm, and the lead-in before the first.
    pub(super) fn turn_size(&self, arm: &str, parts: u32) -> (TurnSize, Duration) {
        if let Some(turn) = self.slow.get(arm) {
            let units = self.units.get(arm).map(|units| units.div_ceil(u64::from(parts)));
            return (TurnSize { length: *turn * SLOW_GRACE, units }, Duration::ZERO);
        }
        let Some(units) = self.units.get(arm) else {
            return (TurnSize::of(self.turn / parts), self.lead_in);
        };
        let units = units / u64::from(parts);
        let each = UNIT_MAX * u32::try_from(units).unwrap_or(u32::MAX);
        let most = (self.turn * UNITS_GRACE).max(each);
        // The child takes the same share of the units as of the time.
        let share = self.lead_in.as_secs_f64() / (self.turn / parts).as_secs_f64();
        (TurnSize { length: most, units: Some(units) }, most.mul_f64(share))
    }
}

/// What the planned sets may take of a budget; more where arms are loaded long before them.
pub(super) fn planned_time(budget: Duration, is_loaded: bool) -> Duration {
    budget.mul_f64(if is_loaded { LOADED_SHARE } else { PLANNED_SHARE })
}

impl State {
    /// Rounds of the sets that follow, in the order of `lengths`, and with them how long those take.
    fn set_rounds(&mut self, rounds: Vec<u32>) {
        for (((part, label, _), length), rounds) in self.lengths.iter_mut().zip(rounds) {
            let rounds = rounds.min(length.rounds_max);
            let round = length.trial.effort.round;
            if let Some(took) = self.point_times.get_mut(&(part.clone(), label.clone())) {
                let looked = std::mem::take(&mut length.looked);
                *took = (*took + round * rounds).saturating_sub(round * length.rounds + looked);
            }
            length.rounds = rounds;
        }
    }
}

impl Runner<'_> {
    /// How long a turn is, how many units of each arm end it, and the shortest lead-in after which the
    /// halves of a turn cost the same on every arm.
    pub(super) fn length(&mut self, arms: &mut [SetArm<'_>], point: &PlannedPoint) -> Length {
        let ready = || arms.iter().filter(|arm| arm.living.is_ok()).map(|arm| &arm.described);
        let wave = ready().map(|described| described.wave).max().unwrap_or(0);
        let is_shared = point.experiment.cost.is_shared;
        let asked_us = ready().map(|described| described.shortest_turn_us).max();
        let turn = TURN.max(Duration::from_micros(asked_us.unwrap_or(0))).min(point.runtime);
        let fit = (point.runtime.as_secs_f64() / turn.as_secs_f64()).ceil() as u32;
        let is_planned = self.plan.job.budget.is_some();
        let rounds = if is_planned { ROUNDS_MIN } else { fit.clamp(ROUNDS_MIN, ROUNDS_MAX) };
        let lead_in = turn / LEAD_IN;
        let paces = point.arms.iter().filter_map(|arm| Some((&arm.name, point.pace(&arm.name)?)));
        let slow =
            paces.filter(|(_, pace)| pace.is_slow).map(|(arm, pace)| (arm.clone(), pace.turn));
        let slow: BTreeMap<String, Duration> = slow.collect();
        let slow_turns = self.plan.slow_turns(point, rounds);
        let is_baseline_slow = slow.contains_key(baseline_name(point));
        let rounds_max = if is_baseline_slow { slow_turns } else { u32::MAX };
        let rounds = rounds.min(rounds_max);
        let mut length = Length {
            turn,
            lead_in,
            units: BTreeMap::new(),
            unsettled: Vec::new(),
            rounds,
            slow,
            slow_turns,
            rounds_max,
            trial: Trial::default(),
            warm_ups: BTreeMap::new(),
            short_loads: BTreeSet::new(),
            starts_every: 1,
            load: Duration::ZERO,
            looked: Duration::ZERO,
        };
        // Looking takes as long as several sets where a turn is three waves of a thousand requests, and
        // a quarter was enough wherever it was tried; the callers of what is shared are threads that
        // every turn starts anew.
        if wave > 0 {
            length.units = self.units(arms, wave, &length, point);
        }
        if wave > 0 || is_shared {
            return length;
        }
        length.unsettled = self.unsettled(arms, &length);
        while !length.unsettled.is_empty() && length.lead_in < turn * LEAD_IN_MAX {
            length.lead_in *= 2;
            length.unsettled = self.unsettled(arms, &length);
        }
        length
    }

    /// The units that end a turn of each arm whose units come in waves.
    fn units(
        &mut self,
        arms: &mut [SetArm<'_>],
        wave: u64,
        length: &Length,
        point: &PlannedPoint,
    ) -> BTreeMap<String, u64> {
        let halves = self.halves(arms, length, UNITS_ROUNDS);
        let usual = |index: usize| {
            let done = halves[index].iter().map(|[one, two]| (one.units + two.units) as f64);
            median(&done.collect::<Vec<_>>()).unwrap_or(0.0) as u64
        };
        let baseline = arms.iter().position(|arm| arm.planned.name == baseline_name(point));
        let of_baseline = baseline.map_or(0, usual);
        // The same work for all, so that what a turn costs by itself is the same share.
        let alike = |own: u64| if own * SLOWER >= of_baseline { of_baseline } else { own };
        let by_units =
            arms.iter().enumerate().filter(|(_, arm)| arm.living.is_ok() && arm.described.wave > 0);
        let least = least_units(wave);
        let units = |(index, arm): (usize, &SetArm<'_>)| {
            if length.is_slow(&arm.planned.name) {
                (arm.planned.name.clone(), wave)
            } else {
                (arm.planned.name.clone(), alike(usual(index)).max(least))
            }
        };
        by_units.map(units).collect()
    }

    /// The arms whose first half of a turn costs something else than the second, beyond the noise.
    fn unsettled(&mut self, arms: &mut [SetArm<'_>], length: &Length) -> Vec<String> {
        let halves = self.halves(arms, length, TRIAL_ROUNDS);
        // Of one sign in every round: by chance alone that is rare also among many arms.
        let is_unsettled = |halves: &[[Figure; 2]]| {
            let costs = halves.iter().filter_map(|[one, two]| one.cost_ns().zip(two.cost_ns()));
            let logs: Vec<f64> = costs.map(|(one, two)| (one / two).ln()).collect();
            let signs = logs.iter().filter(|log| **log > 0.0).count();
            let is_one_sided = signs == 0 || signs == logs.len();
            is_one_sided && median(&logs).is_some_and(|middle| middle.abs() >= UNSETTLED)
        };
        let named = arms.iter().zip(&halves).filter(|(_, halves)| is_unsettled(halves));
        named.map(|(arm, _)| arm.planned.name.clone()).collect()
    }

    /// Both halves of some turns of each arm, in random order.
    fn halves(
        &mut self,
        arms: &mut [SetArm<'_>],
        length: &Length,
        rounds: u32,
    ) -> Vec<Vec<[Figure; 2]>> {
        let mut halves = vec![Vec::new(); arms.len()];
        let slow: Vec<bool> = arms.iter().map(|arm| length.is_slow(&arm.planned.name)).collect();
        let mut random = Rng::seeded(self.plan.job.seed);
        let mut order: Vec<usize> = (0..arms.len()).collect();
        for _ in 0..rounds {
            random.shuffle(&mut order);
            // How long a turn of a slow one is was seen before.
            for &index in order.iter().filter(|index| !slow[**index]) {
                let (size, lead_in) = length.turn_size(&arms[index].planned.name, 2);
                let figures = self.turn(&mut arms[index], size, lead_in, 2);
                halves[index].extend(figures.and_then(|figures| <[_; 2]>::try_from(figures).ok()));
            }
        }
        halves
    }

    /// After the first set, where there is a budget: rounds of the sets that follow, as many as decide
    /// the rows and fit.
    pub(super) fn plan_rounds(&self, state: &mut State) {
        let job = &self.plan.job;
        let Some(budget) = job.budget else { return };
        let is_loaded = state.lengths.values().any(|length| length.load > CHEAP);
        let time = planned_time(budget, is_loaded).saturating_sub(state.start.elapsed());
        let trials: Vec<&Trial> = state.lengths.values().map(|length| &length.trial).collect();
        let sets = job.blocks.saturating_sub(1);
        let small = job.min_effect;
        let mut rounds = rounds_within(&trials, sets, small, job.precision, time);
        for (rounds, length) in rounds.iter_mut().zip(state.lengths.values()) {
            if length.load > CHEAP {
                *rounds = (*rounds).min(length.optimal_rounds());
            }
        }
        state.set_rounds(rounds);
    }

    /// After the planned sets, where there is a budget: those that follow are as long as pays, and each has a start of
    /// its own.
    pub(super) fn lengthen_sets(&self, state: &mut State) {
        if self.plan.job.budget.is_some() {
            for ((part, label, _), length) in &mut state.lengths {
                let every = std::mem::replace(&mut length.starts_every, 1);
                let more = length.load.saturating_sub(length.load / every);
                if let Some(took) = state.point_times.get_mut(&(part.clone(), label.clone())) {
                    *took += more;
                }
            }
            let longer = |length: &Length| {
                let most = length.rounds * LONGER_MAX;
                length.optimal_rounds().clamp(length.rounds, most)
            };
            let rounds = state.lengths.values().map(longer).collect();
            state.set_rounds(rounds);
        }
    }
}
