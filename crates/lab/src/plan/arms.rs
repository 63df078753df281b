//! The arms of a part: drivers, peers and commands that can run here, and the baseline twice.

use super::{Arm, ArmKind, Machine, Method, SAME_AGAIN, Wanted, left_out_of, place};
use crate::job::{Part, arms_of_pollux};
use crate::measure::Pattern;
use crate::record::{LeftOut, Point};

/// The arms of a part that can run here; the others go to `left_out`.
pub(super) fn available(
    part: &Part,
    missing: &dyn Fn(Wanted) -> Option<String>,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Arm> {
    let experiment = part.experiment;
    let mut arms = Vec::new();
    let mut take = |name: &str, kind: ArmKind, missing: Option<String>| match missing {
        None => arms.push(Arm { name: name.to_owned(), kind }),
        Some(reason) => left_out.push(left_out_of(part, "*", name, reason)),
    };
    for (name, driver, build) in arms_of_pollux(&part.pollers, &part.builds) {
        let reason = match experiment.drivers().contains(&driver) {
            true => missing(Wanted::Driver(experiment, driver)),
            false => Some(format!("{experiment} asks a poller, and {driver} has none")),
        };
        let kind = match build {
            None => ArmKind::Driver(driver, Pattern::Random),
            Some(build) => ArmKind::Build(build.clone(), driver),
        };
        take(&name, kind, reason);
    }
    for &wait in &part.waits {
        take(wait.name(), ArmKind::Wait(wait), missing(Wanted::Wait(wait)));
    }
    for &peer in &part.peers {
        take(peer.name(), ArmKind::Peer(peer), missing(Wanted::Peer(experiment, peer)));
    }
    if part.axes.get("no_poller").is_some_and(|values| values[0] == "true") {
        arms.extend(one_factor_at_a_time(part, &arms));
    }
    arms.extend(part.commands.iter().map(|command| Arm {
        name: command.name.clone(),
        kind: ArmKind::Command(command.clone()),
    }));
    arms
}

/// The two arms of `no_poller`: the baseline's poller (or the first) with cyclic writes, and
/// the same writes without a poller. The original's `-f` changed both at once.
fn one_factor_at_a_time(part: &Part, arms: &[Arm]) -> Vec<Arm> {
    let reference = arms.iter().find(|arm| arm.name == part.baseline).or(arms.first());
    let cyclic = reference.and_then(|arm| match arm.kind {
        ArmKind::Driver(driver, _) => Some(Arm {
            name: format!("{} cyclic", arm.name),
            kind: ArmKind::Driver(driver, Pattern::Cyclic),
        }),
        _ => None,
    });
    let without = Arm { name: "no poller cyclic".to_owned(), kind: ArmKind::WithoutPoller };
    cyclic.into_iter().chain([without]).collect()
}

/// The arms that can run at a point; the others go to `left_out`.
pub(super) fn at(
    machine: &Machine<'_>,
    point: &Point,
    arms: &[Arm],
    part: &Part,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Arm> {
    let fault = |arm: &Arm| match part.experiment.fault_of_others(&point.axes) {
        Some(reason) if arm.is_other() => Some(reason),
        _ => place::arm_fault(machine, part.experiment, point, &arm.kind),
    };
    let mut kept = Vec::new();
    for arm in arms {
        match fault(arm) {
            None => kept.push(arm.clone()),
            Some(reason) => left_out.push(left_out_of(part, &point.label, &arm.name, reason)),
        }
    }
    kept
}

/// How the arms of a point are measured: in turns, where each of them can take some.
pub(super) fn method(part: &Part, point: &Point, arms: &[Arm]) -> Method {
    let is_program = |arm: &Arm| matches!(arm.kind, ArmKind::Command(_) | ArmKind::WithoutPoller);
    match part.rates || arms.iter().any(is_program) || !part.experiment.takes_turns(&point.axes) {
        true => Method::Runs,
        false => Method::Turns,
    }
}

/// The arms, and the baseline once more.
pub(super) fn with_same_again(mut arms: Vec<Arm>, baseline: usize) -> Vec<Arm> {
    let kind = arms[baseline].kind.clone();
    arms.push(Arm { name: SAME_AGAIN.to_owned(), kind });
    arms
}
