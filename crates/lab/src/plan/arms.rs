//! The arms of a part: drivers, peers and commands that can run here, and the baseline twice.

use super::{Machine, Method, SAME_AGAIN, Wanted, left_out_of, place};
use pollux_engine::Driver;

use crate::arm::{Arm, ArmKind, Peer};
use crate::experiments::Experiment;
use crate::job::Part;
use crate::record::{LeftOut, Point};

/// The arms of a part that can run here; the others go to `left_out`.
pub(super) fn available(
    part: &Part,
    missing: &dyn Fn(Wanted) -> Option<String>,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Arm> {
    let mut arms = Vec::new();
    for arm in &part.arms {
        match fault(part.experiment, &arm.kind, missing) {
            None => arms.push(arm.clone()),
            Some(reason) => left_out.push(left_out_of(part, "*", &arm.name, reason)),
        }
    }
    arms.extend(part.experiment.more_arms(&part.axes, &arms, &part.baseline));
    arms
}

/// Why an arm can't run here, if it can't.
fn fault(
    experiment: &dyn Experiment,
    arm: &ArmKind,
    missing: &dyn Fn(Wanted) -> Option<String>,
) -> Option<String> {
    match arm {
        ArmKind::Driver(driver) | ArmKind::Cyclic(driver) => {
            driver_fault(experiment, *driver, missing)
        }
        ArmKind::Build(build) => driver_fault(experiment, build.driver, missing),
        ArmKind::Way(name) => of_name(experiment.ways, name, missing),
        ArmKind::Peer(name) => of_name(experiment.peers, name, missing),
        ArmKind::Server { .. } | ArmKind::Running { .. } => None,
        ArmKind::WithoutPoller | ArmKind::Program(_) => None,
    }
}

fn of_name(
    list: &[Peer],
    name: &str,
    missing: &dyn Fn(Wanted) -> Option<String>,
) -> Option<String> {
    missing(Wanted::Peer(*list.iter().find(|peer| peer.name == name)?))
}

fn driver_fault(
    experiment: &dyn Experiment,
    driver: Driver,
    missing: &dyn Fn(Wanted) -> Option<String>,
) -> Option<String> {
    match experiment.drivers.contains(&driver) {
        true => missing(Wanted::Driver(driver)),
        false => Some(format!("{experiment} asks a poller, and {driver} has none")),
    }
}

/// The arms that can run at a point; the others go to `left_out`.
pub(super) fn at(
    machine: &Machine<'_>,
    point: &Point,
    arms: &[Arm],
    part: &Part,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Arm> {
    let fault = |arm: &Arm| place::arm_fault(machine, part.experiment, point, &arm.kind);
    let mut kept = Vec::new();
    for arm in arms {
        match fault(arm) {
            None => kept.push(arm.clone()),
            Some(reason) => left_out.push(left_out_of(part, &point.label, &arm.name, reason)),
        }
    }
    kept
}

/// How the arms of a point are measured: in turns, where each of them can take some, and where the
/// baseline leaves enough of everything for a copy of itself.
pub(super) fn method(part: &Part, point: &Point, arms: &[Arm], baseline: usize) -> Method {
    let is_program = |arm: &Arm| matches!(arm.kind, ArmKind::Program(_) | ArmKind::WithoutPoller);
    let is_alone = part.experiment.takes_all(&arms[baseline].kind);
    let takes_turns = !part.rates && !is_alone && part.experiment.takes_turns(&point.axes);
    if takes_turns && !arms.iter().any(is_program) { Method::Turns } else { Method::Runs }
}

/// The arms, and the baseline once more.
pub(super) fn with_same_again(mut arms: Vec<Arm>, baseline: usize) -> Vec<Arm> {
    let kind = arms[baseline].kind.clone();
    arms.push(Arm { name: SAME_AGAIN.to_owned(), kind });
    arms
}
