//! What can be measured on this machine, by this user, now.
//!
//! The planner calls [`Sources::probe`] once at start, prints the list and stores it in the result,
//! so that a missing column in a report has a reason beside it. Each source is tried on work whose
//! amount is known (the probes below); what it reports wrongly is unavailable. A source is never
//! assumed to work because a file or a capability is there.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::RangeInclusive;
use std::time::Duration;

use pollux_sys::perf::{
    self, Counter, CounterOptions, Hardware, PerfEvent, Sampler, SamplerOptions, Scope, Software,
    Tracepoint,
};
use rustix::event::Timespec;
use serde::{Deserialize, Serialize};

use crate::counting::{SyscallCounter, WakeupCounter};
use crate::environment;
use crate::machine::{parse_cpu_ticks, parse_some_total_us};
use crate::reading::Reading;
use crate::task_use::{TaskUse, calling_thread_cpu, calling_tid};

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
    /// It was tried on known work and was right.
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
        let sys_enter = sys_enter.and_then(syscall_tracepoint);
        let sched_waking = sched_waking.and_then(waking_tracepoint);
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
        status("schedstat", "CPU time, run-queue wait, timeslices", &schedstat()),
        status("task switches", "voluntary and involuntary switches", &task_switches()),
        status(
            "perf software events",
            "switches, migrations, faults, task clock",
            &software_events(),
        ),
        status("raw_syscalls:sys_enter", "system calls of a thread", sys_enter),
        status("sched:sched_waking", "wakeups of a thread", sched_waking),
        status("hardware counters", "cycles, instructions", &hardware_cycles()),
        status("kernel samples", "share of CPU time by kernel function", &kernel_samples()),
        status("kernel symbols", "names for kernel samples", &symbol_addresses()),
        status("cpu pressure", "gate: waiting for a CPU", &pressure()),
        status(
            "steal",
            "gate: CPU time taken by the hypervisor",
            &steal(&environment::is_virtual()),
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

// The probes: known pieces of work, and what each source says about them. The kernel opens many counters that then read 0 for
// ever; only a source that reports known work rightly is believed. Each probe returns the thing to
// use later, or the reason why not. A probe takes at most some tens of milliseconds of CPU and must
// leave nothing open.

/// Known system calls. A thousand tells a lost count from a slow start.
const SYSCALLS: u32 = 1000;
/// System calls that the runtime may add on its own (a signal, an allocation).
const SYSCALLS_SLACK: u32 = 16;
/// Known sleeps; twenty take 4 ms.
const WAITS: u32 = 20;
/// Length of one known sleep: long enough that the thread really leaves the CPU.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };
/// CPU time burned for clocks and samplers: forty periods of the sampler, ten ticks at 250 Hz.
const BURN: Duration = Duration::from_millis(40);
/// Bytes zeroed by each call of the kernel burner.
const ZEROED_BYTES: usize = 256 * 1024;
/// Most calls of a burner. Reading the clock alone takes some 100 ns, so this only ends a burner
/// whose clock stands still.
const BURN_STEPS_MAX: u32 = 10_000_000;

const ENABLE_KERNEL_EVENTS: &str = "sudo sysctl -w kernel.perf_event_paranoid=1";
const ENABLE_WHOLE_MACHINE: &str = "sudo sysctl -w kernel.perf_event_paranoid=0";
pub(crate) const ENABLE_SYMBOLS: &str =
    "sudo sysctl -w kernel.perf_event_paranoid=1 && sudo sysctl -w kernel.kptr_restrict=0";

/// Enters the kernel `calls` times from this thread.
pub(crate) fn known_syscalls(calls: u32) {
    for _ in 0..calls {
        std::hint::black_box(rustix::process::getppid());
    }
}

/// Sleeps and is woken `waits` times.
pub(crate) fn known_timed_waits(waits: u32) {
    for _ in 0..waits {
        // A signal may end one wait early; that was a sleep and a wakeup too.
        let _ = rustix::event::poll(&mut [], Some(&WAIT));
    }
}

fn syscall_tracepoint(id: u64) -> Reading<u64> {
    let counted = SyscallCounter::open(calling_tid(), id).and_then(|counter| {
        counter.start()?;
        known_syscalls(SYSCALLS);
        counter.stop()
    });
    let expected = u64::from(SYSCALLS)..=u64::from(SYSCALLS + SYSCALLS_SLACK);
    believed(counted, &expected, "known system calls", ENABLE_KERNEL_EVENTS).map(|_| id)
}

fn waking_tracepoint(id: u64) -> Reading<u64> {
    let counted = WakeupCounter::open(calling_tid(), id).and_then(|counter| {
        counter.start()?;
        known_timed_waits(WAITS);
        counter.stop()
    });
    // Other wakeups (locks of the runtime, signals) may come on top, without a useful bound.
    let expected = u64::from(WAITS)..=u64::MAX;
    believed(counted, &expected, "known wakeups", ENABLE_WHOLE_MACHINE).map(|_| id)
}

fn software_events() -> Reading<u64> {
    let event = PerfEvent::Software(Software::ContextSwitches);
    let counted = count(event, CounterOptions::default(), || {
        known_timed_waits(WAITS);
    });
    // A timer that fires before the thread has left the CPU costs no switch.
    let expected = u64::from(WAITS / 2)..=u64::MAX;
    believed(counted, &expected, "known sleeps", ENABLE_KERNEL_EVENTS)
}

fn hardware_cycles() -> Reading<u64> {
    let options = CounterOptions { excludes_kernel: true, ..CounterOptions::default() };
    let event = PerfEvent::Hardware(Hardware::CpuCycles);
    let counted = count(event, options, || {
        burn(|| {});
    });
    let absent = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported)
    };
    match counted {
        Err(error) if absent(&error) => Reading::unavailable(format!(
            "no hardware counters on this machine, as in most virtual machines ({error})"
        )),
        other => believed(other, &(1..=u64::MAX), "cycles", ENABLE_KERNEL_EVENTS),
    }
}

fn kernel_samples() -> Reading<u64> {
    let sampled =
        Sampler::of_threads(&[calling_tid()], SamplerOptions::default()).and_then(|mut sampler| {
            let mut zeros = File::open("/dev/zero")?;
            let mut buffer = vec![0_u8; ZEROED_BYTES];
            sampler.enable()?;
            burn(|| {
                // A short or failed read only makes the burner slower.
                let _ = std::hint::black_box(zeros.read(&mut buffer));
            });
            sampler.disable()?;
            let samples = sampler.drain();
            Ok(samples.iter().filter(|sample| sample.is_kernel).count() as u64)
        });
    let what = "samples of work inside the kernel";
    believed(sampled, &(1..=u64::MAX), what, ENABLE_KERNEL_EVENTS)
}

pub(crate) fn schedstat() -> Reading<u64> {
    let raw = || {
        Reading::of_file("/proc/thread-self/schedstat")
            .parsed("schedstat holds no number", |text| text.split(' ').next()?.parse::<u64>().ok())
    };
    let before = raw();
    burn(|| {});
    // Asking for the thread's clock is not enough: the file shows what was booked at a tick.
    known_timed_waits(1);
    let grown = before.and_then(|before| raw().map(|after| after.saturating_sub(before)));
    grown.and_then(|ns| {
        let least_ns = BURN.as_nanos() as u64 / 2;
        let what = "ns of burned CPU time";
        within(ns, &(least_ns..=u64::MAX), what)
    })
}

fn task_switches() -> Reading<u64> {
    let own = || TaskUse::of_thread(std::process::id(), calling_tid());
    let before = own();
    known_timed_waits(WAITS);
    let used = own().since(&before);
    used.switches_voluntary
        .and_then(|count| within(count, &(u64::from(WAITS / 2)..=u64::MAX), "known sleeps"))
}

/// The first line of code in the symbol list has an address, unless addresses are hidden. Other
/// lines may truly be 0: variables of a CPU are listed relative to its own area.
fn symbol_addresses() -> Reading<u64> {
    let address = File::open("/proc/kallsyms").map(|file| {
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        lines.filter_map(|line| text_address(&line)).next()
    });
    Reading::from_io("/proc/kallsyms", address).and_then(|address| match address {
        Some(0) => Reading::unavailable("the kernel hides its addresses from this user (all 0)")
            .or_enable_with(ENABLE_SYMBOLS),
        Some(address) => Reading::Value(address),
        None => Reading::unavailable("/proc/kallsyms lists no code"),
    })
}

pub(crate) fn pressure() -> Reading<u64> {
    Reading::of_file("/proc/pressure/cpu")
        .parsed("/proc/pressure/cpu has no total of some", parse_some_total_us)
        .or_enable_with("boot with psi=1")
}

/// Stolen time cannot be provoked. In a virtual machine that never reported any, "nothing was
/// stolen" and "not reported" look the same, so it is not believed there.
pub(crate) fn steal(is_virtual: &Reading<bool>) -> Reading<u64> {
    Reading::of_file("/proc/stat")
        .parsed("/proc/stat has no steal column", parse_cpu_ticks)
        .and_then(|ticks| match (ticks.steal, is_virtual.value()) {
            (0, Some(true) | None) => Reading::unavailable(
                "0 ticks since boot: the hypervisor took nothing or does not tell",
            ),
            (ticks, _) => Reading::Value(ticks),
        })
}

fn text_address(line: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    matches!(words.next()?, "t" | "T").then_some(address)
}

fn count(event: PerfEvent, options: CounterOptions, work: impl FnOnce()) -> io::Result<u64> {
    let counter = Counter::open(event, Scope::CallingThread, options)?;
    counter.enable()?;
    work();
    counter.disable()?;
    Ok(counter.read()?.value)
}

/// Repeats `step` until this thread has used [`BURN`] of CPU time, which waits do not add to.
fn burn(mut step: impl FnMut()) {
    let start = calling_thread_cpu();
    for _ in 0..BURN_STEPS_MAX {
        if calling_thread_cpu() - start >= BURN {
            return;
        }
        step();
    }
}

/// Turns a refusal or a wrong count into a reason; `enable` is offered for a refusal of rights.
fn believed(
    counted: io::Result<u64>,
    expected: &RangeInclusive<u64>,
    what: &str,
    enable: &str,
) -> Reading<u64> {
    match counted {
        Ok(count) => within(count, expected, what),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let level = Reading::of_file("/proc/sys/kernel/perf_event_paranoid");
            Reading::unavailable(format!(
                "not permitted: needs CAP_PERFMON or a kernel.perf_event_paranoid below the \
                 present {level} ({error})"
            ))
            .or_enable_with(enable)
        }
        Err(error) => Reading::unavailable(error.to_string()),
    }
}

fn within(count: u64, expected: &RangeInclusive<u64>, what: &str) -> Reading<u64> {
    let due = match (*expected.start(), *expected.end()) {
        (least, u64::MAX) => format!("at least {least} {what}"),
        (least, most) => format!("{least} to {most} {what}"),
    };
    if count == 0 {
        return Reading::unavailable(format!("silent zero: counted 0 where {due} were due"));
    }
    if !expected.contains(&count) {
        return Reading::unavailable(format!("wrong count: {count} where {due} were due"));
    }
    Reading::Value(count)
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
        assert!(ENABLE_TRACEPOINTS.ends_with(ENABLE_KERNEL_EVENTS));
        assert!(ENABLE_WAKEUPS.ends_with(ENABLE_WHOLE_MACHINE));
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

    fn reason(reading: &Reading<u64>) -> &str {
        reading.reason().expect("unavailable")
    }

    #[test]
    fn a_zero_is_silent_and_not_believed() {
        let zero = within(0, &(1000..=1016), "known system calls");
        assert_eq!(
            reason(&zero),
            "silent zero: counted 0 where 1000 to 1016 known system calls were due"
        );
        let few = within(7, &(1000..=1016), "known system calls");
        assert_eq!(reason(&few), "wrong count: 7 where 1000 to 1016 known system calls were due");
        let open = within(7, &(20..=u64::MAX), "known wakeups");
        assert_eq!(reason(&open), "wrong count: 7 where at least 20 known wakeups were due");
        assert_eq!(within(1003, &(1000..=1016), "x"), Reading::Value(1003));
    }

    #[test]
    fn a_refusal_of_rights_names_the_command_that_helps() {
        let refusal = io::Error::from(io::ErrorKind::PermissionDenied);
        let reading = believed(Err(refusal), &(1..=2), "x", ENABLE_KERNEL_EVENTS);
        let Reading::Unavailable { reason, enable } = reading else {
            panic!("a refusal is not a value");
        };
        assert!(reason.starts_with("not permitted"), "{reason}");
        assert_eq!(enable.as_deref(), Some(ENABLE_KERNEL_EVENTS));
    }

    #[test]
    fn only_code_tells_whether_addresses_are_hidden() {
        assert_eq!(text_address("0000000000000000 A fixed_percpu_data"), None);
        assert_eq!(text_address("ffffffff81000000 T _stext"), Some(0xffff_ffff_8100_0000));
        assert_eq!(text_address("0000000000000000 t hidden\t[ext4]"), Some(0));
    }

    #[test]
    fn steal_of_zero_is_believed_only_without_a_hypervisor() {
        let bare = steal(&Reading::Value(false));
        assert!(bare.value().is_some(), "{bare:?}");
    }
}
