//! Loads arms before a set of them is timed: programs of which nothing is known, until a request costs them no less
//! than before. How much load that takes is found in the first set of a group, and repeated in those that follow.
//!
//! Where a fixed time of load is asked for (`--ramp-time`), every arm has that instead.

use std::time::{Duration, Instant};

use super::length::{Length, planned_time};
use super::set::{SetArm, baseline_name};
use super::{Runner, State};
use crate::arm::ArmKind;
use crate::plan::{Method, PlannedPoint, SAME_AGAIN};
use crate::record::WarmUp;
use crate::subject::{Reply, SubjectCommand, TurnSize};
use crate::warm_up::{CHEAP, units_again};

/// The longest look at one arm.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// The shortest, however short the budget is.
const LOOK_MIN: Duration = Duration::from_millis(200);
/// All looks together take at most this part of a budget.
const LOOKS_SHARE: f64 = 0.3;
/// Requests on the new connections of a process that was warm before, and how long they may take: the first 3,000 on
/// 64 new ones cost Node up to three times as much as the next.
const RENEWED: u64 = 5000;
const RENEWED_MAX: Duration = Duration::from_millis(400);
/// Loads before sets may take this part of the time of the planned sets together: where they would take more, fewer of
/// these start programs anew.
const LOADS_SHARE: f64 = 0.5;
/// An arm that takes longer for one request on each connection is not loaded.
const SLOW_WAVE: Duration = Duration::from_millis(500);
/// A load that repeats one may take so many times as long.
const SLOWER: f64 = 3.0;

impl Runner<'_> {
    /// Loads the arms of a set, one after the other; the time that this took. Loads that repeat one are cut so that half
    /// of what is left `until` the set has to end is for its rounds.
    pub(super) fn warm_up(
        &mut self,
        arms: &mut [SetArm<'_>],
        mut known: Option<&mut Length>,
        point: &PlannedPoint,
        until: Option<Instant>,
    ) -> Duration {
        let start = Instant::now();
        if let Some(ramp_time) = point.fixed_ramp_time() {
            for arm in arms.iter_mut().filter(|_| !ramp_time.is_zero()) {
                // Another build may know no other order.
                match arm.planned.kind.build() {
                    Some(_) => drop(self.turn(arm, TurnSize::of(ramp_time), Duration::ZERO, 1)),
                    None => self.load(arm, ramp_time, None, false),
                }
            }
            return start.elapsed();
        }
        let mut left = self.looks_time();
        let mut found: Vec<(String, WarmUp)> = Vec::new();
        let mut loaded: Vec<(String, Option<WarmUp>)> = Vec::new();
        for index in 0..arms.len() {
            let arm = &mut arms[index];
            // A wave of such a one takes as long as a look.
            let pace = point.pace(&arm.planned.name);
            if pace.is_some_and(|pace| pace.is_slow && pace.turn >= SLOW_WAVE) {
                continue;
            }
            if self.stop.is_urgent() || arm.living.is_err() || !warms_up(&arm.planned.kind, point) {
                continue;
            }
            // The second copy of the baseline is the same program.
            let name = match arm.planned.name.as_str() {
                SAME_AGAIN => baseline_name(point).to_owned(),
                name => name.to_owned(),
            };
            if arm.is_kept
                && known
                    .as_ref()
                    .and_then(|known| known.warm_ups.get(&name))
                    .is_some_and(|w| w.is_flat)
            {
                self.load(arm, RENEWED_MAX, Some(RENEWED), false);
                continue;
            }
            let before = found.iter().find(|(other, _)| *other == name).map(|(_, found)| *found);
            let before = before.or_else(|| known.as_ref()?.warm_ups.get(&name).copied());
            let before = before.filter(|before| before.is_flat || !arm.is_kept);
            if let Some(before) = before {
                let units = units_again(&before);
                let usual = time_of(units, &before).mul_f64(SLOWER).max(LOOK_MIN);
                let needed = time_of(units, &before);
                let of_rest = |known: &Length| self.warm_up_time(&arms[index..], known, point);
                let all = known.as_deref().map_or(needed, of_rest);
                let share = |until: Instant| {
                    share_of(until.saturating_duration_since(Instant::now()) / 2, needed, all)
                };
                let most = until.map_or(usual, |until| usual.min(share(until)).max(LOOK_MIN));
                self.load(&mut arms[index], most, Some(units), false);
                // Too short, as it seems.
                let again =
                    arms[index].warm_up.filter(|again| !again.is_flat && again.change < 0.0);
                let is_short = |again: &WarmUp| again.time_s < LOOK_MAX.as_secs_f64() / 4.0;
                loaded.push((name, again.filter(is_short)));
                continue;
            }
            let others = arms[index..].iter().filter(|arm| warms_up(&arm.planned.kind, point));
            let fair = left / u32::try_from(others.count()).unwrap_or(1).max(1);
            let most = fair.max(left / 2).clamp(LOOK_MIN, LOOK_MAX);
            let look = Instant::now();
            self.load(&mut arms[index], most, None, true);
            left = left.saturating_sub(look.elapsed());
            found.extend(arms[index].warm_up.map(|warm_up| (name, warm_up)));
        }
        for (name, short) in loaded {
            known.as_mut().into_iter().for_each(|known| known.lengthen(&name, short));
        }
        start.elapsed()
    }

    /// What the loads before each of the sets that follow take together.
    pub(super) fn warm_up_time(
        &self,
        arms: &[SetArm<'_>],
        length: &Length,
        point: &PlannedPoint,
    ) -> Duration {
        let of_arm = |arm: &SetArm<'_>| match (point.fixed_ramp_time(), arm.planned.name.as_str()) {
            (Some(ramp_time), _) => ramp_time,
            (None, name) => {
                let name = if name == SAME_AGAIN { baseline_name(point) } else { name };
                let found = length.warm_ups.get(name);
                found.map_or(Duration::ZERO, |found| time_of(units_again(found), found))
            }
        };
        arms.iter().filter(|arm| arm.living.is_ok()).map(of_arm).sum()
    }

    /// Before each set of how many the programs of a group are started anew, if loading them takes so long.
    pub(super) fn starts_every(&self, load: Duration, state: &State) -> u32 {
        let Some(budget) = self.plan.job.budget else { return 1 };
        let points = self.plan.points.iter().filter(|point| point.method == Method::Turns).count();
        let time =
            planned_time(budget, true).saturating_sub(state.start.elapsed()) / points.max(1) as u32;
        let sets = self.plan.job.blocks.saturating_sub(1).max(1);
        if load * sets <= time.mul_f64(LOADS_SHARE) {
            return 1;
        }
        match (time.as_secs_f64() * LOADS_SHARE / load.as_secs_f64()) as u32 {
            0 => u32::MAX,
            starts => sets.div_ceil(starts),
        }
    }

    /// Whether an arm lives on behind a set: it is loaded long, and is not due to be started anew, or there is no time left
    /// for a load as long as it needs and as much time for rounds. What was loaded for less is not as warm as it was in the
    /// sets before.
    pub(super) fn is_kept(
        &self,
        arm: &SetArm<'_>,
        set: u32,
        length: &Length,
        point: &PlannedPoint,
        until: Option<Instant>,
    ) -> bool {
        let is_due = (set + 1).is_multiple_of(length.starts_every);
        let has_time =
            |until: Instant| until.saturating_duration_since(Instant::now()) >= length.load * 2;
        let name =
            if arm.planned.name == SAME_AGAIN { baseline_name(point) } else { &arm.planned.name };
        let is_dear = length
            .warm_ups
            .get(name)
            .is_some_and(|found| !found.is_flat || time_of(units_again(found), found) > CHEAP);
        arm.living.is_ok()
            && matches!(arm.planned.kind, ArmKind::Server { .. })
            && is_dear
            && !(is_due && until.is_none_or(has_time))
    }

    /// What looks at a point may take together.
    fn looks_time(&self) -> Duration {
        let points = self.plan.points.iter().filter(|point| point.experiment.is_server()).count();
        let share = |budget: Duration| budget.mul_f64(LOOKS_SHARE) / points.max(1) as u32;
        self.plan.job.budget.map_or(Duration::MAX, share)
    }

    /// One load of an arm; one that fails has no turn in this set.
    fn load(
        &mut self,
        arm: &mut SetArm<'_>,
        length: Duration,
        units: Option<u64>,
        until_flat: bool,
    ) {
        let order =
            SubjectCommand::Load { length_us: length.as_micros() as u64, units, until_flat };
        if let Some(Reply::Loaded(found)) = self.order(arm, &order, length) {
            arm.warm_up = Some(found);
        }
    }
}

/// Whether the cost of an arm is looked at before it is timed: a server of the user, of which nothing is known. Those
/// that the lab knows cost what they cost from the first requests on.
fn warms_up(kind: &ArmKind, point: &PlannedPoint) -> bool {
    kind.is_of_user() && point.experiment.is_server()
}

/// What one load may take of the time that there is for all that are still to come, by what each of them needs.
fn share_of(time: Duration, needed: Duration, all: Duration) -> Duration {
    if needed >= all {
        return time;
    }
    time.mul_f64(needed.as_secs_f64() / all.as_secs_f64())
}

/// How long a load of so many units takes that repeats this one.
fn time_of(units: u64, found: &WarmUp) -> Duration {
    let more = units.saturating_sub(found.flat_after) as f64;
    let flat = found.units.saturating_sub(found.flat_after).max(1) as f64;
    let each_s = (found.time_s - found.flat_after_s).max(0.0) / flat;
    Duration::from_secs_f64(found.flat_after_s + more * each_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_for_loads_is_shared_by_what_each_of_them_needs() {
        let [five_s, little] = [Duration::from_secs(5), Duration::from_millis(100)];
        let of_two = share_of(Duration::from_secs(12), five_s, five_s * 2 + little);
        assert!(of_two > five_s, "as much as it needs, since the third needs little: {of_two:?}");
        assert_eq!(share_of(Duration::from_secs(5), five_s, five_s * 2), five_s / 2);
        assert_eq!(share_of(Duration::from_secs(3), little, little), Duration::from_secs(3));
        assert_eq!(share_of(five_s, Duration::ZERO, Duration::ZERO), five_s);
    }
}
