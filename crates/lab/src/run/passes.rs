//! The passes beside the timing: counting, the times of requests, the profile.
//!
//! A pass runs the arms that it is for once at each point, apart from the blocks, because looking disturbs. Nothing of
//! it is compared.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pollux_host::Reading;

use super::one_run::Ran;
use super::{RunLabel, Runner, State};
use crate::arm::{Arm, ArmKind};
use crate::measure::{Done, Pass};
use crate::plan::{Method, PlannedPoint, SAME_AGAIN};
use crate::record::{CountingRun, LeftOut, Profile, Record, RequestTimesRun, SymbolShare};

/// The counting pass takes at most this share of a budget; what it did not reach is `n/a`.
const COUNTING_SHARE: f64 = 0.3;

impl Runner<'_> {
    pub(super) fn counting_pass(&mut self, state: &mut State) {
        let limit = self.plan.job.budget.map(|budget| budget.mul_f64(COUNTING_SHARE));
        // What fails here fails again in the timing pass, where it is recorded.
        let _ = self.side_pass(Pass::Counting, limit, &is_counted, &mut |label, done| {
            let events = (done.events, done.counters, done.events_per_wait_histogram);
            state.record.counting.push(counting_run(label, events, done.kernel));
        });
    }

    /// Only where the job asks for it and the arm is a server of pollux.
    pub(super) fn request_times_pass(&mut self, state: &mut State) {
        if !self.plan.job.times_requests {
            return;
        }
        let wanted = &can_time_requests;
        let record = &mut state.record;
        let failed = self.side_pass(Pass::RequestTimes, None, wanted, &mut |label, done| {
            let Some(times) = done.request_times else { return };
            record.request_times.push(RequestTimesRun {
                experiment: label.experiment.clone(),
                point: label.point.clone(),
                arm: label.arm.clone(),
                times,
            });
        });
        left_out(record, failed);
    }

    pub(super) fn profile_pass(&mut self, state: &mut State) {
        let Some(rate_hz) = self.plan.job.profile_hz else { return };
        let record = &mut state.record;
        let pass = Pass::Profile { rate_hz };
        let failed = self.side_pass(pass, None, &is_counted, &mut |label, done| {
            let Some(samples) = done.samples else { return };
            record.profiles.push(profile_of(label, samples, done.symbols));
        });
        left_out(record, failed);
    }

    /// Each of the wanted arms once at each point, apart from the timing. What fails is given back
    /// with its reason.
    fn side_pass(
        &mut self,
        pass: Pass,
        limit: Option<Duration>,
        is_wanted: &dyn Fn(&PlannedPoint, &Arm) -> bool,
        keep: &mut dyn FnMut(&RunLabel, Done),
    ) -> Vec<(RunLabel, String)> {
        let plan = self.plan;
        let start = Instant::now();
        let mut failed = Vec::new();
        for point in &plan.points {
            for arm in &point.arms {
                let is_over = limit.is_some_and(|limit| start.elapsed() > limit);
                // What takes turns is counted and profiled in turns.
                let has_turns = point.method == Method::Turns && pass != Pass::RequestTimes;
                let is_left = arm.name == SAME_AGAIN || has_turns || !is_wanted(point, arm);
                if is_left || is_over || self.stop.is_asked() {
                    continue;
                }
                let label = self.label(None, point, arm, pass);
                match self.one_run(&label, point, arm, 0) {
                    Ok(Ran { done: Some(done), .. }) => keep(&label, done),
                    Ok(_) => {}
                    // The user ended it, not the arm.
                    Err(_) if self.stop.is_urgent() => {}
                    Err(reason) => failed.push((label, reason)),
                }
            }
        }
        failed
    }
}

/// What was counted of an arm: events with the poller's counters and waits, and what the kernel counted.
pub(super) fn counting_run(
    label: &RunLabel,
    (events, counters, events_per_wait_histogram): (u64, BTreeMap<String, u64>, Vec<u64>),
    kernel: BTreeMap<String, Reading<u64>>,
) -> CountingRun {
    let RunLabel { experiment, point, arm, .. } = label.clone();
    CountingRun { experiment, point, arm, events, counters, events_per_wait_histogram, kernel }
}

pub(super) fn profile_of(
    label: &RunLabel,
    samples: Reading<u64>,
    symbols: Vec<SymbolShare>,
) -> Profile {
    let RunLabel { experiment, point, arm, .. } = label.clone();
    Profile { experiment, point, arm, samples, symbols }
}

/// Runs of a pass that failed, which no other pass repeats.
fn left_out(record: &mut Record, failed: Vec<(RunLabel, String)>) {
    record.left_out.extend(failed.into_iter().map(|(label, reason)| {
        let what = match label.pass {
            Pass::RequestTimes => "its times inside the server",
            _ => "its profile",
        };
        let RunLabel { experiment, point, arm, .. } = label;
        LeftOut { experiment, point, arm, reason: format!("{what}: {reason}") }
    }));
}

/// What runs a command can't be looked into.
fn is_counted(_: &PlannedPoint, arm: &Arm) -> bool {
    !arm.kind.is_program()
}

fn can_time_requests(point: &PlannedPoint, arm: &Arm) -> bool {
    point.experiment.times_requests && matches!(arm.kind, ArmKind::Driver(_) | ArmKind::Build(_))
}
