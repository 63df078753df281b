//! What can be measured on this machine, by this user, now.
//!
//! The planner calls [`Sources::probe`] once at start, prints the list and stores it in the result,
//! so that a missing column in a report has a reason beside it. Each source is tried on work whose
//! amount is known (`probes.rs`); what it reports wrongly is unavailable. A source is never
//! assumed to work because a file or a capability is there.

use std::io;

use pollux_sys::perf::{self, Tracepoint};
use serde::{Deserialize, Serialize};

use super::Reading;
use super::environment;
use super::probes;

const SYS_ENTER: Tracepoint = Tracepoint { group: "raw_syscalls", name: "sys_enter" };
const SCHED_WAKING: Tracepoint = Tracepoint { group: "sched", name: "sched_waking" };

/// Lets one user's group read tracepoint numbers; the counters need the sysctl beside it.
const ENABLE_TRACEPOINTS: &str = "sudo mount -t tracefs -o gid=$(id -g),mode=750 tracefs \
    /sys/kernel/tracing && sudo sysctl -w kernel.perf_event_paranoid=1";
const ENABLE_WAKEUPS: &str = "sudo mount -t tracefs -o gid=$(id -g),mode=750 tracefs \
    /sys/kernel/tracing && sudo sysctl -w kernel.perf_event_paranoid=0";

/// The sources of this machine. Can be stored and handed to a child process, which then need not
/// probe again; it is valid until the next boot and for the same user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Every source, in the order in which they are to be preferred.
    pub statuses: Vec<SourceStatus>,
    /// Number of `raw_syscalls:sys_enter`, if it counted 1000 known calls right.
    pub sys_enter: Reading<u64>,
    /// Number of `sched:sched_waking`, if it counted known wakeups right.
    pub sched_waking: Reading<u64>,
}

/// One source and whether it can be used here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Short name, the same in every result.
    pub name: String,
    /// What it tells, in a few words.
    pub gives: String,
    /// It was tried on known work and told the truth.
    pub available: bool,
    /// Why it is not available; `None` if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A shell command that would make it available, where one exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable: Option<String>,
}

impl Sources {
    /// Tries every source. Takes about a fifth of a second of CPU, so call it once and not in a
    /// measured process's window. Starts and ends one thread where tracepoint numbers need one.
    #[must_use]
    pub fn probe() -> Self {
        let wanted = [(SYS_ENTER, ENABLE_TRACEPOINTS), (SCHED_WAKING, ENABLE_WAKEUPS)];
        let [sys_enter, sched_waking] = tracepoint_ids(wanted);
        let sys_enter = sys_enter.and_then(probes::syscall_tracepoint);
        let sched_waking = sched_waking.and_then(probes::waking_tracepoint);
        let statuses = statuses(&sys_enter, &sched_waking);
        Self { statuses, sys_enter, sched_waking }
    }

    /// The status of the source with this name.
    #[must_use]
    pub fn status(&self, name: &str) -> Option<&SourceStatus> {
        self.statuses.iter().find(|status| status.name == name)
    }
}

/// The whole list. The two tracepoints were tried before, because their numbers are kept.
fn statuses(sys_enter: &Reading<u64>, sched_waking: &Reading<u64>) -> Vec<SourceStatus> {
    vec![
        status("own counters", "waits, events, updates of each loop", &Reading::Value(())),
        status("schedstat", "CPU time, run-queue wait, timeslices", &probes::schedstat()),
        status("task switches", "voluntary and involuntary switches", &probes::task_switches()),
        status(
            "perf software events",
            "switches, migrations, faults, task clock",
            &probes::software_events(),
        ),
        status("raw_syscalls:sys_enter", "system calls of a thread", sys_enter),
        status("sched:sched_waking", "wakeups of a thread", sched_waking),
        status("hardware counters", "cycles, instructions", &probes::hardware_cycles()),
        status("kernel samples", "share of CPU time by kernel function", &probes::kernel_samples()),
        status("kernel symbols", "names for kernel samples", &probes::symbol_addresses()),
        status("cpu pressure", "gate: waiting for a CPU", &probes::pressure()),
        status(
            "steal",
            "gate: CPU time taken by the hypervisor",
            &probes::steal(&environment::is_virtual()),
        ),
    ]
}

fn status<T>(name: &str, gives: &str, tried: &Reading<T>) -> SourceStatus {
    let (reason, enable) = match tried {
        Reading::Value(_) => (None, None),
        Reading::Unavailable { reason, enable } => (Some(reason.clone()), enable.clone()),
    };
    SourceStatus {
        name: name.to_owned(),
        gives: gives.to_owned(),
        available: reason.is_none(),
        reason,
        enable,
    }
}

/// The numbers of `wanted`, in order. The command beside each is offered if rights are missing.
fn tracepoint_ids<const N: usize>(wanted: [(Tracepoint, &str); N]) -> [Reading<u64>; N] {
    match perf::tracepoint_ids(&wanted.map(|(point, _)| point)) {
        Ok(ids) => {
            let mut ids = ids.into_iter();
            wanted.map(|(point, enable)| {
                let id = ids.next().expect("one answer for each tracepoint");
                id_or_reason(point, id, enable)
            })
        }
        Err(error) => wanted.map(|(_, enable)| no_tracefs(&error).or_enable_with(enable)),
    }
}

fn id_or_reason(point: Tracepoint, id: io::Result<u64>, enable: &str) -> Reading<u64> {
    let name = format!("{}:{}", point.group, point.name);
    match &id {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Reading::from_io(&name, id).or_enable_with(enable)
        }
        _ => Reading::from_io(&name, id),
    }
}

fn no_tracefs(error: &io::Error) -> Reading<u64> {
    let places = perf::TRACEFS_ROOTS.join(" or ");
    Reading::unavailable(format!(
        "tracepoint numbers cannot be read at {places}, nor by a mount of our own ({error})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_usable_or_says_why_not() {
        let sources = Sources::probe();
        assert_eq!(sources.statuses.len(), 11);
        for status in &sources.statuses {
            assert_eq!(status.available, status.reason.is_none(), "{status:?}");
            assert!(!status.available || status.enable.is_none(), "{status:?}");
            assert!(status.reason.as_deref() != Some(""), "{status:?}");
        }
        assert!(sources.status("own counters").is_some_and(|own| own.available));
        let syscalls = sources.status("raw_syscalls:sys_enter").expect("listed");
        assert_eq!(syscalls.available, sources.sys_enter.value().is_some());
    }

    #[test]
    fn a_refused_right_comes_with_a_command() {
        let sources = Sources::probe();
        let refused = |status: &&SourceStatus| {
            status.reason.as_deref().is_some_and(|why| why.starts_with("not permitted"))
        };
        for status in sources.statuses.iter().filter(refused) {
            let command = status.enable.as_deref().unwrap_or_default();
            assert!(command.starts_with("sudo "), "{status:?}");
        }
        assert!(ENABLE_TRACEPOINTS.ends_with(probes::ENABLE_KERNEL_EVENTS));
        assert!(ENABLE_WAKEUPS.ends_with(probes::ENABLE_WHOLE_MACHINE));
    }

    #[test]
    fn a_tracepoint_that_does_not_exist_is_not_cured_by_a_mount() {
        let missing = Err(io::Error::from(io::ErrorKind::NotFound));
        let hidden = Err(io::Error::from(io::ErrorKind::PermissionDenied));
        let enable = |reading| match reading {
            Reading::Value(_) => panic!("an error is not a number"),
            Reading::Unavailable { enable, .. } => enable,
        };
        assert_eq!(enable(id_or_reason(SYS_ENTER, missing, "sudo x")), None);
        let command = enable(id_or_reason(SYS_ENTER, hidden, "sudo x"));
        assert_eq!(command.as_deref(), Some("sudo x"));
    }

    #[test]
    fn sources_survive_the_way_to_a_child_process() {
        let sources = Sources {
            statuses: vec![status::<()>("x", "y", &Reading::unavailable("z"))],
            sys_enter: Reading::Value(443),
            sched_waking: Reading::unavailable("not permitted"),
        };
        let json = serde_json::to_string(&sources).expect("json");
        let back: Sources = serde_json::from_str(&json).expect("our own json");
        assert_eq!(back, sources);
    }
}
