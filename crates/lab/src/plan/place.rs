//! Whether a point fits this machine: descriptors, memory, and servers in several processes.
//!
//! A process may have only so many descriptors. A point of `http` that needs more of them is run
//! on several server processes which share one port, each on the same driver with its share of
//! the connections; their CPU time is summed, and the point says how many they are.

use pollux_doctor::room::{CONNECTION_BYTES, FDS_SPARE, MEMORY_PARTS, SERVER_FDS_SPARE};
use pollux_engine::Driver;
use pollux_poller::Mechanism;

use super::Machine;
use crate::arm::{Arm, ArmKind, Peer};
use crate::experiments::herd::Source;
use crate::experiments::{Experiment, PROCESSES};
use crate::record::Point;

/// Most server processes of one point: enough for half a million connections at 32,768 each.
const PROCESSES_MAX: u64 = 16;
/// The kernel spreads connections by hash: of thousands, no process gets so many times its share.
const SHARE_MAX: f64 = 1.05;
/// The point as it can be run on `machine`.
///
/// # Errors
/// Its label, and why it can't be run.
pub(super) fn on(
    machine: &Machine<'_>,
    experiment: Experiment,
    mut point: Point,
) -> Result<Point, (String, String)> {
    match processes(machine, experiment, &point) {
        Ok(1) => Ok(point),
        Ok(processes) => {
            point.label += &format!(", {processes} processes");
            point.axes.insert(PROCESSES.to_owned(), processes.to_string());
            Ok(point)
        }
        Err(reason) => Err((point.label, reason)),
    }
}

/// Why an arm can't be run at a point that others can be run at.
pub(super) fn arm_fault(
    machine: &Machine<'_>,
    experiment: Experiment,
    point: &Point,
    arm: &ArmKind,
) -> Option<String> {
    if experiment == Experiment::Streams
        && matches!(arm, ArmKind::Peer(Peer::RawC))
        && !experiment.takes_turns(&point.axes)
    {
        return Some("the program in C takes turns and has no writer that runs free".to_owned());
    }
    if let ArmKind::Peer(peer @ (Peer::RawC | Peer::Pool | Peer::PoolEpoll)) = arm
        && point.axes.get("source").is_some_and(|source| source != Source::Queue.name())
    {
        return Some(format!("the workers of {peer} wait for queues"));
    }
    let processes = point.axes.get(PROCESSES).and_then(|count| count.parse::<u64>().ok())?;
    match arm {
        ArmKind::Peer(peer) if !peer.is_floor() => {
            Some("the lab does not run several processes of it on one port".to_owned())
        }
        ArmKind::Server { .. } | ArmKind::Running { .. } => {
            Some("the lab does not run several processes of it on one port".to_owned())
        }
        arm if arm.driver() == Some(Driver::Readiness(Mechanism::Aio)) => {
            let each = experiment.fds_needed(&point.axes) as f64 * SHARE_MAX / processes as f64;
            // A context doubles when it is full, and the smaller one stands meanwhile.
            let size = (each as u64 + 1).next_power_of_two();
            let needed = size * processes + size / 2;
            let free = machine.resources.aio_slots.filter(|free| needed > *free)?;
            Some(format!(
                "{processes} processes need {needed} slots of AIO contexts, and {free} are free: \
                 raise fs.aio-max-nr"
            ))
        }
        _ => None,
    }
}

/// Which arms can live at the same time: as many as there is memory for, and no two pools, as one
/// takes nearly all of the message queues that a user may have. The baseline is in every group.
pub(super) fn groups(
    machine: &Machine<'_>,
    experiment: Experiment,
    point: &Point,
    arms: &[Arm],
    baseline: usize,
) -> Vec<Vec<usize>> {
    let each = match experiment {
        Experiment::Http => experiment.fds_needed(&point.axes) * CONNECTION_BYTES,
        _ => 0,
    };
    let free = machine.resources.memory_bytes.unwrap_or(u64::MAX) / MEMORY_PARTS;
    let most = free.checked_div(each).unwrap_or(u64::MAX).max(2);
    let is_pool =
        |index: &usize| matches!(arms[*index].kind, ArmKind::Peer(Peer::Pool | Peer::PoolEpoll));
    let mut groups: Vec<Vec<usize>> = vec![vec![baseline]];
    for arm in (0..arms.len()).filter(|arm| *arm != baseline) {
        let has_room = |group: &&mut Vec<usize>| {
            let pools = group.iter().filter(|member| is_pool(member)).count();
            (group.len() as u64) < most && (pools == 0 || !is_pool(&arm))
        };
        match groups.iter_mut().find(has_room) {
            Some(group) => group.push(arm),
            None => groups.push(vec![baseline, arm]),
        }
    }
    groups
}

/// How many processes the server of a point takes; one where it is no server.
fn processes(machine: &Machine<'_>, experiment: Experiment, point: &Point) -> Result<u64, String> {
    if let Some(fault) = experiment.point_fault(&point.axes) {
        return Err(fault);
    }
    if let Some(generator) = experiment.generator(&point.axes)
        && let Some(reason) = (machine.missing)(super::Wanted::Generator(generator))
    {
        return Err(reason);
    }
    let fds_max = machine.fds_max;
    let is_server = experiment == Experiment::Http;
    let spare = if is_server { SERVER_FDS_SPARE } else { FDS_SPARE };
    let fits = |needed: u64| match needed + spare {
        needed if needed > fds_max => Err(format!(
            "needs {needed} descriptors, this machine allows {fds_max} per process: raise the \
             hard limit (ulimit -Hn)"
        )),
        _ => Ok(1),
    };
    let needed = experiment.fds_needed(&point.axes);
    if !is_server {
        return fits(needed);
    }
    // The load generator is one process.
    fits(point.axes["connections"].parse().unwrap_or(u64::MAX - spare))?;
    let memory_bytes = needed * CONNECTION_BYTES;
    if let Some(free) = machine.resources.memory_bytes
        && memory_bytes > free / MEMORY_PARTS
    {
        let mib = |bytes: u64| bytes >> 20;
        return Err(format!(
            "needs about {} MiB of memory for its connections, and {} MiB are free",
            mib(memory_bytes),
            mib(free)
        ));
    }
    if fits(needed).is_ok() {
        return Ok(1);
    }
    let each = fds_max.saturating_sub(spare).max(1);
    let processes = (needed as f64 * SHARE_MAX / each as f64).ceil() as u64;
    if processes > PROCESSES_MAX { fits(needed) } else { Ok(processes) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::{Resources, Wanted};

    fn point(experiment: Experiment, axes: &[(&str, &str)]) -> Point {
        let defaults = experiment.axes().iter().map(|axis| (axis.name, axis.default[0]));
        let axes = defaults.chain(axes.iter().copied());
        let axes: BTreeMap<String, String> =
            axes.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Point { label: "here".to_owned(), axes }
    }

    fn dead(count: &str, machine: &Machine<'_>) -> Result<Point, (String, String)> {
        let axes = [("connections", "100"), ("dead", count)];
        on(machine, Experiment::Http, point(Experiment::Http, &axes))
    }

    const MACHINE: Machine<'_> = Machine {
        fds_max: 20_000,
        cpus: 2,
        resources: Resources { memory_bytes: Some(8 << 30), aio_slots: Some(65_536) },
        missing: &|_| None,
    };
    const UNKNOWN: Machine<'_> =
        Machine { resources: Resources { memory_bytes: None, aio_slots: None }, ..MACHINE };

    #[test]
    fn a_server_beyond_the_descriptor_limit_takes_several_processes() {
        let one = dead("18000", &MACHINE).expect("it fits");
        assert_eq!((one.label.as_str(), one.axes.get(PROCESSES)), ("here", None));
        for (count, processes) in [("30000", "2"), ("45000", "3"), ("60000", "4")] {
            let point = dead(count, &MACHINE).expect("it fits");
            assert_eq!(point.label, format!("here, {processes} processes"));
            assert_eq!(point.axes[PROCESSES], processes);
        }
        let (label, reason) = dead("500000", &UNKNOWN).expect_err("too many");
        assert_eq!(label, "here");
        assert!(reason.contains("descriptors"), "{reason}");
    }

    #[test]
    fn memory_and_the_generator_set_limits_of_their_own() {
        let resources = Resources { memory_bytes: Some(1 << 30), ..MACHINE.resources };
        let small = Machine { resources, ..MACHINE };
        let (_, reason) = dead("60000", &small).expect_err("too much");
        assert_eq!(
            reason,
            "needs about 939 MiB of memory for its connections, and 1024 MiB are free"
        );
        assert!(dead("18000", &small).is_ok());
        assert!(dead("60000", &UNKNOWN).is_ok());

        let many = point(Experiment::Http, &[("connections", "30000")]);
        let (_, reason) = on(&MACHINE, Experiment::Http, many).expect_err("one generator");
        assert!(reason.contains("needs 30320 descriptors"), "{reason}");

        let missing = |wanted| {
            (wanted == Wanted::Generator(crate::experiments::Generator::Wrk))
                .then(|| "wrk is not installed".to_owned())
        };
        let without = Machine { missing: &missing, ..MACHINE };
        let wrk = point(Experiment::Http, &[("generator", "wrk")]);
        let (_, reason) = on(&without, Experiment::Http, wrk).expect_err("no wrk");
        assert_eq!(reason, "wrk is not installed");
        assert!(dead("0", &without).is_ok());
    }

    #[test]
    fn several_processes_share_what_the_system_has_of_aio() {
        let fault = |machine: &Machine<'_>, count: &str, kind: &ArmKind| {
            let point = dead(count, machine).expect("it fits");
            arm_fault(machine, Experiment::Http, &point, kind)
        };
        let aio = ArmKind::Driver(Driver::Readiness(Mechanism::Aio));
        assert_eq!(fault(&MACHINE, "18000", &aio), None);
        assert_eq!(fault(&MACHINE, "45000", &aio), None);
        let reason = fault(&MACHINE, "60000", &aio).expect("no room");
        assert!(reason.starts_with("4 processes need 73728 slots"), "{reason}");
        assert_eq!(fault(&UNKNOWN, "60000", &aio), None);
        let epoll = ArmKind::Driver(Driver::Readiness(Mechanism::Epoll));
        assert_eq!(fault(&MACHINE, "60000", &epoll), None);
        assert_eq!(fault(&MACHINE, "18000", &ArmKind::Peer(Peer::Nginx)), None);
        assert!(fault(&MACHINE, "30000", &ArmKind::Peer(Peer::Nginx)).is_some());
        assert_eq!(fault(&MACHINE, "30000", &ArmKind::Peer(Peer::RawUring)), None);
    }

    #[test]
    fn a_pool_runs_on_queues_and_nothing_else() {
        let fault = |source| {
            let point = point(Experiment::Herd, &[("source", source)]);
            arm_fault(&MACHINE, Experiment::Herd, &point, &ArmKind::Peer(Peer::Pool))
        };
        assert_eq!(fault("queue"), None);
        assert!(fault("pipe").is_some_and(|reason| reason.contains("queues")));
    }

    #[test]
    fn what_is_no_server_stays_in_one_process() {
        let pipes = point(Experiment::Pipes, &[("pipes", "16000")]);
        let (_, reason) = on(&MACHINE, Experiment::Pipes, pipes).expect_err("too many");
        assert!(reason.contains("needs 32064 descriptors"), "{reason}");
    }
}
