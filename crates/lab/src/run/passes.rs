//! The passes beside the timing: counting, the times of requests, the profile.
//!
//! Each runs the arms that it is for once at each point, apart from the blocks, because looking
//! disturbs. Nothing of them is compared.

use std::time::{Duration, Instant};

use super::{RunLabel, Runner, State, arm};
use crate::experiment::Experiment;
use crate::measure::{Done, Pass};
use crate::plan::{Arm, ArmKind, PlannedPoint, SAME_AGAIN};
use crate::record::{CountingRun, Profile, RequestTimesRun};

/// The counting pass takes at most this share of a budget; what it did not reach is `n/a`.
const COUNTING_SHARE: f64 = 0.3;
impl Runner<'_> {
    pub(super) fn counting_pass(&mut self, state: &mut State) {
        let limit = self.plan.job.budget.map(|budget| budget.mul_f64(COUNTING_SHARE));
        self.side_pass(Pass::Counting, limit, &is_counted, &mut |label, done| {
            state.record.counting.push(CountingRun {
                experiment: label.experiment.clone(),
                point: label.point.clone(),
                arm: label.arm.clone(),
                events: done.events,
                counters: done.counters,
                events_per_wait_histogram: done.events_per_wait_histogram,
                kernel: done.kernel,
            });
        });
    }

    /// Only where the job asks for it and the arm is a server of pollux.
    pub(super) fn request_times_pass(&mut self, state: &mut State) {
        if !self.plan.job.times_requests {
            return;
        }
        self.side_pass(Pass::RequestTimes, None, &is_server_of_pollux, &mut |label, done| {
            let Some(times) = done.request_times else { return };
            state.record.request_times.push(RequestTimesRun {
                experiment: label.experiment.clone(),
                point: label.point.clone(),
                arm: label.arm.clone(),
                times,
            });
        });
    }

    pub(super) fn profile_pass(&mut self, state: &mut State) {
        let Some(rate_hz) = self.plan.job.profile_hz else { return };
        self.side_pass(Pass::Profile { rate_hz }, None, &is_counted, &mut |label, done| {
            let Some(samples) = done.samples else { return };
            state.record.profiles.push(Profile {
                experiment: label.experiment.clone(),
                point: label.point.clone(),
                arm: label.arm.clone(),
                samples,
                symbols: done.symbols,
            });
        });
    }

    /// Each of the wanted arms once at each point, apart from the timing. A failure here shows again
    /// in the timing pass, where it is recorded.
    fn side_pass(
        &mut self,
        pass: Pass,
        limit: Option<Duration>,
        is_wanted: &dyn Fn(&PlannedPoint, &Arm) -> bool,
        keep: &mut dyn FnMut(&RunLabel, Done),
    ) {
        let (plan, start) = (self.plan, Instant::now());
        for point in &plan.points {
            for arm in &point.arms {
                let is_over = limit.is_some_and(|limit| start.elapsed() > limit);
                let is_left = arm.name == SAME_AGAIN || !is_wanted(point, arm);
                if is_left || is_over || self.stop.is_asked() {
                    continue;
                }
                let label = self.label(None, point, arm, pass);
                if let Ok(arm::Ran { done: Some(done), .. }) = self.one_run(&label, point, arm, 0) {
                    keep(&label, done);
                }
            }
        }
    }
}

/// What runs a command can't be looked into.
fn is_counted(_: &PlannedPoint, arm: &Arm) -> bool {
    !matches!(arm.kind, ArmKind::Command(_))
}

fn is_server_of_pollux(point: &PlannedPoint, arm: &Arm) -> bool {
    point.experiment == Experiment::Http
        && matches!(arm.kind, ArmKind::Driver(..) | ArmKind::Build(..))
}
