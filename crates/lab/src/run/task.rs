//! What the measuring process of an arm receives, whatever it measures: in turns, in a whole run, or at a first look.

use std::path::{Path, PathBuf};

use pollux_host::sources::Sources;
use pollux_stats::Direction;

use crate::arm::{ArmKind, Build};
use crate::child::Task;
use crate::measure::{Pass, RunSpec};
use crate::plan::PlannedPoint;

/// What the process of an arm receives when it takes turns, and another build that it is, if so.
pub(super) fn task_in_turns(
    arm: &ArmKind,
    point: &PlannedPoint,
    seed: u64,
    scratch: &Path,
) -> (Task, Option<PathBuf>) {
    task_of_run(arm, point, seed, Pass::Timing, None, scratch)
}

/// What it receives for a run by itself, with the same.
pub(super) fn task_of_run(
    arm: &ArmKind,
    point: &PlannedPoint,
    seed: u64,
    pass: Pass,
    sources: Option<&Sources>,
    scratch: &Path,
) -> (Task, Option<PathBuf>) {
    let kind = arm.clone();
    // A build that is a server is measured like any other; what has its workload in the measuring
    // process is that process.
    let (arm, program) = match arm {
        ArmKind::Build(Build { program, driver }) if !point.experiment.has_processes => {
            (ArmKind::Driver(*driver), Some(program.clone()))
        }
        arm => (arm.clone(), None),
    };
    let spec = RunSpec {
        arm,
        axes: point.point.axes.clone(),
        seed,
        ramp_ms: point.ramp_time.as_millis() as u64,
        runtime_ms: point.runtime.as_millis() as u64,
        interval_ms: point.interval.as_millis() as u64,
        is_rate: point.metric().direction == Direction::HigherIsBetter,
        pass,
        sources: sources.filter(|_| pass == Pass::Counting).cloned(),
        scratch: scratch.to_owned(),
        budget_ms: point.budget.map(|budget| budget.as_millis() as u64),
        hosts: point.hosts.clone(),
        kills: point.kills(&kind),
    };
    (Task { experiment: point.experiment, spec }, program)
}
