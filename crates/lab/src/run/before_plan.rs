//! The first look at the servers that a user brought, before anything is planned.
//!
//! Called once before a run. Each arm is started once, all at the same time as in a set; what is learned goes into the
//! plan and the record. What is wrong with an arm ends it here, with the last that it said.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Stop;
use super::process_output::run_to_end;
use crate::arm::{Arm, ArmKind};
use crate::axis::Value;
use crate::child::Task;
use crate::measure::{Line, Pass};
use crate::plan::{Plan, PlannedPoint, SAME_AGAIN};
use crate::record::Look;

/// Connections that ask at once in a look: enough to see whether requests wait for each other.
const CONNECTIONS_MAX: u64 = 64;
/// A server that takes a larger part of a budget to start leaves no time to measure it.
const START_PART: u32 = 3;
/// What a look takes beside the start of its server, and the looks before it.
const GRACE: Duration = Duration::from_secs(120);

/// What is looked at: an arm as it is started at some points, with the most that is asked of it there.
struct Wanted<'a> {
    arm: &'a Arm,
    point: &'a PlannedPoint,
    connections: u64,
    pipeline: u64,
    is_kept: bool,
}

/// Looks at each server of the plan that a user brought; nothing where there is none.
#[must_use]
pub fn look(plan: &Plan, program: &Path, scratch: &Path, stop: &Stop) -> Vec<Look> {
    let wanted = wanted(plan);
    std::thread::scope(|scope| {
        let look = |wanted| scope.spawn(move || look_at(wanted, plan, program, scratch, stop));
        let looks: Vec<_> = wanted.iter().map(look).collect();
        looks.into_iter().map(|look| look.join().expect("a look does not panic")).collect()
    })
}

fn wanted(plan: &Plan) -> Vec<Wanted<'_>> {
    let mut all: Vec<Wanted<'_>> = Vec::new();
    for point in plan.points.iter().filter(|point| point.experiment.is_server()) {
        let is_of_user = |arm: &&Arm| {
            matches!(arm.kind, ArmKind::Server { .. } | ArmKind::Running { .. })
                && arm.name != SAME_AGAIN
        };
        let axes = &point.point.axes;
        let number = |axis: &str| axes.get(axis).map_or(1, |_| axes.number(axis));
        let connections = number("connections").min(CONNECTIONS_MAX);
        let pipeline = number("pipeline");
        let is_kept = axes.get("keepalive").is_none() || axes.is_on("keepalive");
        for arm in point.arms.iter().filter(is_of_user) {
            let is_same = |other: &&mut Wanted<'_>| {
                other.arm == arm
                    && other.point.experiment == point.experiment
                    && Look::axes_of(&other.point.point.axes) == Look::axes_of(axes)
            };
            match all.iter_mut().find(is_same) {
                Some(other) => {
                    other.connections = other.connections.max(connections);
                    other.pipeline = other.pipeline.max(pipeline);
                    other.is_kept |= is_kept;
                }
                None => all.push(Wanted { arm, point, connections, pipeline, is_kept }),
            }
        }
    }
    all
}

fn look_at(wanted: &Wanted<'_>, plan: &Plan, program: &Path, scratch: &Path, stop: &Stop) -> Look {
    let Wanted { arm, point, connections, pipeline, is_kept } = *wanted;
    let (mut task, _) = Task::in_turns(&arm.kind, point, plan.job.seed, scratch);
    let spec = &mut task.spec;
    spec.pass = Pass::Look;
    let most = [
        ("connections", Value::Number(connections)),
        ("pipeline", Value::Number(pipeline)),
        ("keepalive", Value::Switch(is_kept)),
    ];
    for (axis, value) in most {
        if spec.axes.get(axis).is_some() {
            spec.axes.set(axis, value);
        }
    }
    spec.budget_ms = spec.budget_ms.map(|budget| budget / u64::from(START_PART));
    let deadline = plan.job.budget.map_or(GRACE, |budget| budget.min(GRACE)) + GRACE;
    let mut command = Command::new(program);
    command.args(["lab", "measure"]);
    let input = serde_json::to_string(&task).expect("a task is plain data");
    let mut looked = None;
    let ended = run_to_end(command, &input, deadline, &|| stop.is_asked(), &mut |line| {
        if let Ok(Line::Looked(look)) = serde_json::from_str(line) {
            looked = Some(*look);
        }
    });
    let fault = match (&looked, ended) {
        (Some(_), _) => None,
        (None, Ok(ended)) => Some(ended.words()),
        (None, Err(why)) => Some(why),
    };
    Look {
        experiment: point.experiment.name.to_owned(),
        arm: arm.name.clone(),
        axes: Look::axes_of(&point.point.axes),
        fault,
        ..looked.unwrap_or_default()
    }
}
