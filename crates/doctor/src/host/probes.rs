//! Known pieces of work, and what each source says about them.
//!
//! `sources.rs` runs these once at start. The kernel opens many counters that then read 0 for
//! ever; only a source that reports work whose amount we know is believed. Each probe returns the
//! thing to use later, or the reason why not. A probe takes at most some tens of milliseconds of
//! CPU and must leave nothing open.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::RangeInclusive;
use std::time::Duration;

use pollux_sys::perf::{
    Counter, CounterOptions, Event, Hardware, Sampler, SamplerOptions, Scope, Software,
};
use rustix::event::Timespec;

use super::Reading;
use super::counting::{SyscallCounter, WakeupCounter};
use super::machine::{parse_cpu_ticks, parse_some_total_us};
use super::process::{TaskUse, calling_thread_cpu, calling_tid};

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

pub(super) const ENABLE_KERNEL_EVENTS: &str = "sudo sysctl -w kernel.perf_event_paranoid=1";
pub(super) const ENABLE_WHOLE_MACHINE: &str = "sudo sysctl -w kernel.perf_event_paranoid=0";
pub(super) const ENABLE_SYMBOLS: &str =
    "sudo sysctl -w kernel.perf_event_paranoid=1 && sudo sysctl -w kernel.kptr_restrict=0";

/// Enters the kernel `calls` times from this thread.
pub(super) fn known_syscalls(calls: u32) {
    for _ in 0..calls {
        std::hint::black_box(rustix::process::getppid());
    }
}

/// Sleeps and is woken `waits` times.
pub(super) fn known_timed_waits(waits: u32) {
    for _ in 0..waits {
        // A signal may end one wait early; that was a sleep and a wakeup too.
        let _ = rustix::event::poll(&mut [], Some(&WAIT));
    }
}

pub(super) fn syscall_tracepoint(id: u64) -> Reading<u64> {
    let counted = SyscallCounter::open(calling_tid(), id).and_then(|counter| {
        counter.start()?;
        known_syscalls(SYSCALLS);
        counter.stop()
    });
    let expected = u64::from(SYSCALLS)..=u64::from(SYSCALLS + SYSCALLS_SLACK);
    believed(counted, &expected, "known system calls", ENABLE_KERNEL_EVENTS).map(|_| id)
}

pub(super) fn waking_tracepoint(id: u64) -> Reading<u64> {
    let counted = WakeupCounter::open(calling_tid(), id).and_then(|counter| {
        counter.start()?;
        known_timed_waits(WAITS);
        counter.stop()
    });
    // Other wakeups (locks of the runtime, signals) may come on top, without a useful bound.
    let expected = u64::from(WAITS)..=u64::MAX;
    believed(counted, &expected, "known wakeups", ENABLE_WHOLE_MACHINE).map(|_| id)
}

pub(super) fn software_events() -> Reading<u64> {
    let event = Event::Software(Software::ContextSwitches);
    let counted = count(event, CounterOptions::default(), || {
        known_timed_waits(WAITS);
    });
    // A timer that fires before the thread has left the CPU costs no switch.
    let expected = u64::from(WAITS / 2)..=u64::MAX;
    believed(counted, &expected, "known sleeps", ENABLE_KERNEL_EVENTS)
}

pub(super) fn hardware_cycles() -> Reading<u64> {
    let options = CounterOptions { excludes_kernel: true, ..CounterOptions::default() };
    let event = Event::Hardware(Hardware::CpuCycles);
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

pub(super) fn kernel_samples() -> Reading<u64> {
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

pub(super) fn schedstat() -> Reading<u64> {
    let folder = (std::process::id(), calling_tid());
    let raw = move || {
        let (pid, tid) = folder;
        Reading::of_file(format!("/proc/{pid}/task/{tid}/schedstat"))
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

pub(super) fn task_switches() -> Reading<u64> {
    let before = TaskUse::of_current_thread();
    known_timed_waits(WAITS);
    let used = TaskUse::of_current_thread().since(&before);
    used.switches_voluntary
        .and_then(|count| within(count, &(u64::from(WAITS / 2)..=u64::MAX), "known sleeps"))
}

/// The first line of code in the symbol list has an address, unless addresses are hidden. Other
/// lines may truly be 0: variables of a CPU are listed relative to its own area.
pub(super) fn symbol_addresses() -> Reading<u64> {
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

pub(super) fn pressure() -> Reading<u64> {
    Reading::of_file("/proc/pressure/cpu")
        .parsed("/proc/pressure/cpu has no total of some", parse_some_total_us)
        .or_enable_with("boot with psi=1")
}

/// Stolen time cannot be provoked. In a virtual machine that never reported any, "nothing was
/// stolen" and "nobody tells us" look the same, so it is not believed there.
pub(super) fn steal(is_virtual: &Reading<bool>) -> Reading<u64> {
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

fn count(event: Event, options: CounterOptions, work: impl FnOnce()) -> io::Result<u64> {
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
