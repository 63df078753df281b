//! Exact counts of what one thread did in a window: the lab's "why" columns.
//!
//! A measured process calls [`Counting::start`] just before its window and [`Counting::stop`] just
//! after it, for the thread that does the work (nothing is traced by stopping it). Counting slows
//! every system call a little, so the planner gives it a run of its own and never times that run.
//! Only sources that have proved themselves on known work (`sources.rs`) are used; any other count
//! is `n/a` with the reason found there.

use std::io;

use pollux_sys::perf::{self, Counter, CounterOptions, CounterReading, Event, Scope};
use serde::{Deserialize, Serialize};

use super::Reading;
use super::process::{TaskUse, calling_tid};
use super::sources::Sources;

/// Counts the system calls that one thread enters (`raw_syscalls:sys_enter`).
#[derive(Debug)]
pub struct SyscallCounter {
    counter: Counter,
    tid: u32,
}

impl SyscallCounter {
    /// Opens the counter, stopped at 0, for thread `tid` with the tracepoint's number.
    ///
    /// # Errors
    ///
    /// Those of [`Counter::open`]; `EACCES` without `CAP_PERFMON` at
    /// `kernel.perf_event_paranoid` > 1.
    pub fn open(tid: u32, tracepoint_id: u64) -> io::Result<Self> {
        let event = Event::Tracepoint(tracepoint_id);
        // The kernel part has to be counted: the tracepoint lies inside the kernel, and without it
        // the count would silently stay 0.
        let counter = Counter::open(event, Scope::Thread(tid), CounterOptions::default())?;
        Ok(Self { counter, tid })
    }

    /// Starts counting.
    ///
    /// # Errors
    ///
    /// Those of [`Counter::enable`].
    pub fn start(&self) -> io::Result<()> {
        self.counter.enable()
    }

    /// Stops counting and gives the number of calls since the start. The call that stops the count
    /// is taken off where it was counted itself.
    ///
    /// # Errors
    ///
    /// Those of [`Counter::read`], or that the kernel did not count all the time.
    pub fn stop(&self) -> io::Result<u64> {
        self.counter.disable()?;
        let own_calls = u64::from(calling_tid() == self.tid);
        Ok(whole(self.counter.read()?)?.saturating_sub(own_calls))
    }
}

/// Counts the wakeups aimed at one thread, whoever wakes it (`sched:sched_waking`).
///
/// The tracepoint fires in the waker, so it is counted on every CPU with a filter on the thread
/// that is woken. That needs the right to look at the whole machine.
#[derive(Debug)]
pub struct WakeupCounter {
    counters: Vec<Counter>,
}

impl WakeupCounter {
    /// Opens one counter for each CPU, stopped at 0, for wakeups of thread `tid`.
    ///
    /// # Errors
    ///
    /// Those of [`Counter::open`] and [`Counter::filter`]; `EACCES` without `CAP_PERFMON` at
    /// `kernel.perf_event_paranoid` > 0.
    pub fn open(tid: u32, tracepoint_id: u64) -> io::Result<Self> {
        let event = Event::Tracepoint(tracepoint_id);
        let filter = format!("pid == {tid}");
        let counters = perf::online_cpus()?
            .into_iter()
            .map(|cpu| {
                let counter = Counter::open(event, Scope::Cpu(cpu), CounterOptions::default())?;
                counter.filter(&filter)?;
                Ok(counter)
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { counters })
    }

    /// Starts counting.
    ///
    /// # Errors
    ///
    /// Those of [`Counter::enable`].
    pub fn start(&self) -> io::Result<()> {
        self.counters.iter().try_for_each(Counter::enable)
    }

    /// Stops counting and gives the number of wakeups since the start.
    ///
    /// # Errors
    ///
    /// Those of [`Counter::read`], or that the kernel did not count all the time.
    pub fn stop(&self) -> io::Result<u64> {
        self.counters.iter().try_for_each(Counter::disable)?;
        let counts = self.counters.iter().map(|counter| whole(counter.read()?));
        counts.sum()
    }
}

/// A window of counting that has begun.
#[derive(Debug)]
pub struct Counting {
    tid: u32,
    before: TaskUse,
    wakeups: Reading<WakeupCounter>,
    syscalls: Reading<SyscallCounter>,
}

/// What one thread did between start and stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountReadings {
    /// System calls entered.
    pub syscalls: Reading<u64>,
    /// Wakeups aimed at the thread, also those that came while it was still awake. Where they are
    /// `n/a`, `switches_voluntary` is the next best: the times it slept and was woken.
    pub wakeups: Reading<u64>,
    /// Times it gave the CPU away to wait.
    pub switches_voluntary: Reading<u64>,
    /// Times the CPU was taken from it.
    pub switches_involuntary: Reading<u64>,
    /// CPU time.
    pub cpu_ns: Reading<u64>,
    /// Time it was ready but had no CPU.
    pub runqueue_wait_ns: Reading<u64>,
    /// Page faults, minor and major.
    pub page_faults: Reading<u64>,
}

impl Counting {
    /// Starts counting thread `tid` of this process.
    ///
    /// Opening and reading belong to the set-up and are not counted: the system call counter is
    /// started last and stopped first.
    #[must_use]
    pub fn start(tid: u32, sources: &Sources) -> Self {
        let wakeups = sources.sched_waking.clone().and_then(|id| {
            let opened = WakeupCounter::open(tid, id).and_then(|counter| {
                counter.start()?;
                Ok(counter)
            });
            Reading::from_io("sched:sched_waking", opened)
        });
        let opened = sources.sys_enter.clone().and_then(|id| {
            Reading::from_io("raw_syscalls:sys_enter", SyscallCounter::open(tid, id))
        });
        let before = TaskUse::of_thread(std::process::id(), tid);
        let syscalls = opened.and_then(|counter| {
            let started = counter.start();
            Reading::from_io("raw_syscalls:sys_enter", started.map(|()| counter))
        });
        Self { tid, before, wakeups, syscalls }
    }

    /// Stops counting.
    #[must_use]
    pub fn stop(self) -> CountReadings {
        let syscalls = self
            .syscalls
            .and_then(|counter| Reading::from_io("raw_syscalls:sys_enter", counter.stop()));
        let wakeups =
            self.wakeups.and_then(|counter| Reading::from_io("sched:sched_waking", counter.stop()));
        let used = TaskUse::of_thread(std::process::id(), self.tid).since(&self.before);
        let major = used.faults_major;
        CountReadings {
            syscalls,
            wakeups,
            switches_voluntary: used.switches_voluntary,
            switches_involuntary: used.switches_involuntary,
            cpu_ns: used.cpu_ns,
            runqueue_wait_ns: used.runqueue_wait_ns,
            page_faults: used.faults_minor.and_then(|minor| major.map(|major| minor + major)),
        }
    }
}

/// A count is exact or it is none: never scaled up from a part of the time.
fn whole(reading: CounterReading) -> io::Result<u64> {
    if reading.time_running_ns < reading.time_enabled_ns {
        return Err(io::Error::other(format!(
            "counted for {} of {} ns only",
            reading.time_running_ns, reading.time_enabled_ns
        )));
    }
    Ok(reading.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::probes;

    const CALLS: u32 = 500;

    #[test]
    fn a_window_holds_exactly_the_calls_made_in_it_or_a_reason() {
        let sources = Sources::probe();
        let counting = Counting::start(calling_tid(), &sources);
        probes::known_syscalls(CALLS);
        let counts = counting.stop();
        match counts.syscalls {
            Reading::Value(count) => assert_eq!(count, u64::from(CALLS)),
            Reading::Unavailable { reason, .. } => assert!(!reason.is_empty()),
        }
        assert!(counts.cpu_ns.value().is_some_and(|ns| *ns > 0));
        assert!(counts.page_faults.value().is_some());
    }

    #[test]
    fn wakeups_are_at_least_the_timed_waits_made() {
        let sources = Sources::probe();
        let counting = Counting::start(calling_tid(), &sources);
        probes::known_timed_waits(30);
        let counts = counting.stop();
        match counts.wakeups {
            Reading::Value(count) => assert!(count >= 30, "{count}"),
            Reading::Unavailable { reason, .. } => assert!(!reason.is_empty()),
        }
        assert!(counts.switches_voluntary.value().is_some_and(|count| *count > 0));
    }

    #[test]
    fn a_refused_source_gives_its_reason_to_every_count_made_from_it() {
        let refused = Reading::unavailable("not permitted");
        let sources = Sources {
            statuses: Vec::new(),
            sys_enter: refused.clone(),
            sched_waking: refused.clone(),
        };
        let counts = Counting::start(calling_tid(), &sources).stop();
        assert_eq!(counts.syscalls, refused);
        assert_eq!(counts.wakeups, refused);
    }

    #[test]
    fn a_partly_counted_window_is_no_count() {
        let part = CounterReading { value: 9, time_enabled_ns: 100, time_running_ns: 60 };
        assert!(whole(part).is_err());
    }
}
