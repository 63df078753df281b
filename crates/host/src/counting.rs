//! Exact counts of what threads did in a window: the lab's "why" columns.
//!
//! A measured process calls [`Counting::start`] just before its window and [`Counting::stop`] just
//! after it, for the threads that do the work, its own or those of a server that it started
//! (nothing is traced by stopping it). Counting slows
//! every system call a little, so the planner gives it a run of its own and never times that run.
//! Only sources that have proved themselves on known work (`sources.rs`) are used; any other count
//! is `n/a` with the reason found there.

use std::collections::BTreeMap;
use std::io;

use pollux_sys::perf::{
    self, Counter, CounterOptions, CounterReading, Hardware, PerfEvent, Scope, Software,
};

use crate::reading::Reading;
use crate::sources::Sources;
use crate::task_use::{TaskUse, calling_tid};

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
        let event = PerfEvent::Tracepoint(tracepoint_id);
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

/// Counts the wakeups of one thread by any other (`sched:sched_waking`).
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
        let event = PerfEvent::Tracepoint(tracepoint_id);
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
    threads: Vec<Counted>,
}

/// One thread under a running count.
#[derive(Debug)]
struct Counted {
    pid: u32,
    tid: u32,
    before: TaskUse,
    wakeups: Reading<WakeupCounter>,
    hardware: [Reading<Counter>; HARDWARE.len()],
    migrations: Reading<Counter>,
    syscalls: Reading<SyscallCounter>,
}

/// The processor's counters, in the order of their names below.
const HARDWARE: [(&str, Hardware); 4] = [
    ("cycles", Hardware::CpuCycles),
    ("instructions", Hardware::Instructions),
    ("branches", Hardware::Branches),
    ("branch misses", Hardware::BranchMisses),
];

/// What the threads did between start and stop, added up, under the names that results have. Wakeups are
/// those aimed at a thread, also those that came while it was still awake; where they are `n/a`,
/// `switches_voluntary` is the next best: the times it slept and was woken.
pub type Counts = BTreeMap<String, Reading<u64>>;

/// All names of [`Counts`].
const NAMES: [&str; 12] = [
    "system_calls",
    "wakeups",
    "switches_voluntary",
    "switches_involuntary",
    "cpu_ns",
    "runqueue_wait_ns",
    "page_faults",
    "migrations",
    "cycles",
    "instructions",
    "branches",
    "branch_misses",
];

impl Counting {
    /// Starts counting these threads, each given by its process and its own number.
    #[must_use]
    pub fn start(threads: &[(u32, u32)], sources: &Sources) -> Self {
        let counted = threads.iter().map(|&(pid, tid)| Counted::start(pid, tid, sources));
        Self { threads: counted.collect() }
    }

    /// Stops counting. Without a thread nothing was counted, which is not the same as zero.
    #[must_use]
    pub fn stop(self) -> Counts {
        let counts = self.threads.into_iter().map(Counted::stop);
        let sums = counts.reduce(|sum, one| {
            let pairs = sum.into_iter().zip(one);
            pairs.map(|(a, b)| a.and_then(|a| b.map(|b| a + b))).collect()
        });
        let nothing = || NAMES.map(|_| Reading::unavailable("there was no thread to count")).into();
        NAMES.map(str::to_owned).into_iter().zip(sums.unwrap_or_else(nothing)).collect()
    }
}

/// The tracepoints behind the counts, kept in use while threads are counted one after the other: closing the
/// last counter of a tracepoint waits until every CPU has left it, about 40 ms.
#[derive(Debug)]
pub struct InUse {
    _counters: Vec<Counter>,
}

impl InUse {
    /// From now on, where they can be opened; the counters themselves stand still.
    #[must_use]
    pub fn of(sources: &Sources) -> Self {
        let ids =
            [&sources.sys_enter, &sources.sched_waking].into_iter().filter_map(Reading::value);
        let open = |id: &u64| {
            let scope = Scope::Thread(calling_tid());
            Counter::open(PerfEvent::Tracepoint(*id), scope, CounterOptions::default()).ok()
        };
        Self { _counters: ids.filter_map(open).collect() }
    }
}

impl Counted {
    /// Opening and reading belong to the set-up and are not counted: the system call counter is
    /// started last and stopped first.
    fn start(pid: u32, tid: u32, sources: &Sources) -> Self {
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
        let hardware =
            HARDWARE.map(|(name, event)| perf_count(name, PerfEvent::Hardware(event), tid));
        let migrations =
            perf_count("CPU migrations", PerfEvent::Software(Software::CpuMigrations), tid);
        let before = TaskUse::of_thread(pid, tid);
        let syscalls = opened.and_then(|counter| {
            let started = counter.start();
            Reading::from_io("raw_syscalls:sys_enter", started.map(|()| counter))
        });
        Self { pid, tid, before, wakeups, hardware, migrations, syscalls }
    }

    /// The counts in the order of [`NAMES`].
    fn stop(self) -> Vec<Reading<u64>> {
        let syscalls = self
            .syscalls
            .and_then(|counter| Reading::from_io("raw_syscalls:sys_enter", counter.stop()));
        let wakeups =
            self.wakeups.and_then(|counter| Reading::from_io("sched:sched_waking", counter.stop()));
        let read = |name: &str, counter: Reading<Counter>| {
            counter.and_then(|counter| Reading::from_io(name, counter.read().and_then(whole)))
        };
        let used = TaskUse::of_thread(self.pid, self.tid).since(&self.before);
        let major = used.faults_major;
        let mut counts = vec![
            syscalls,
            wakeups,
            used.switches_voluntary,
            used.switches_involuntary,
            used.cpu_ns,
            used.runqueue_wait_ns,
            used.faults_minor.and_then(|minor| major.map(|major| minor + major)),
            read("CPU migrations", self.migrations),
        ];
        let hardware = HARDWARE.into_iter().zip(self.hardware);
        counts.extend(hardware.map(|((name, _), counter)| read(name, counter)));
        counts
    }
}

/// Opens and starts one counter of one thread.
fn perf_count(name: &str, event: PerfEvent, tid: u32) -> Reading<Counter> {
    let counter = Counter::open(event, Scope::Thread(tid), CounterOptions::default());
    let is_missing = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported)
    };
    if counter.as_ref().is_err_and(is_missing) {
        return Reading::unavailable(format!("{name}: this machine has no such counter"));
    }
    Reading::from_io(name, counter.and_then(|counter| counter.enable().map(|()| counter)))
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
    use crate::sources;

    const CALLS: u32 = 500;

    #[test]
    fn a_window_holds_exactly_the_calls_made_in_it_or_a_reason() {
        let sources = Sources::probe();
        let counting = Counting::start(&[(std::process::id(), calling_tid())], &sources);
        sources::known_syscalls(CALLS);
        let counts = counting.stop();
        match &counts["system_calls"] {
            Reading::Value(count) => assert_eq!(*count, u64::from(CALLS)),
            Reading::Unavailable { reason, .. } => assert!(!reason.is_empty()),
        }
        assert!(counts["cpu_ns"].value().is_some_and(|ns| *ns > 0));
        assert!(counts["page_faults"].value().is_some());
    }

    #[test]
    fn wakeups_are_at_least_the_timed_waits_made() {
        let sources = Sources::probe();
        let counting = Counting::start(&[(std::process::id(), calling_tid())], &sources);
        sources::known_timed_waits(30);
        let counts = counting.stop();
        match &counts["wakeups"] {
            Reading::Value(count) => assert!(*count >= 30, "{count}"),
            Reading::Unavailable { reason, .. } => assert!(!reason.is_empty()),
        }
        assert!(counts["switches_voluntary"].value().is_some_and(|count| *count > 0));
    }

    #[test]
    fn a_refused_source_gives_its_reason_to_every_count_made_from_it() {
        let refused = Reading::unavailable("not permitted");
        let sources = Sources {
            statuses: Vec::new(),
            sys_enter: refused.clone(),
            sched_waking: refused.clone(),
        };
        let counts = Counting::start(&[(std::process::id(), calling_tid())], &sources).stop();
        assert_eq!(counts["system_calls"], refused);
        assert_eq!(counts["wakeups"], refused);
    }

    #[test]
    fn a_partly_counted_window_is_not_a_count() {
        let part = CounterReading { value: 9, time_enabled_ns: 100, time_running_ns: 60 };
        assert!(whole(part).is_err());
    }
}
