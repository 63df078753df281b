//! Counting events: one descriptor, one number.
//!
//! The lab opens a [`Counter`] on a thread (or on a CPU), enables it around the measured window
//! and reads it afterwards. A counter never samples, never blocks and never judges its own value:
//! a 0 may mean that nothing happened or that the kernel silently refused to count.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use super::event::{
    Attribute, DISABLE, ENABLE, KIND_HARDWARE, KIND_SOFTWARE, KIND_TRACEPOINT, RESET, filter, flag,
    open, request,
};

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const READ_FORMAT: u64 = 1 | 2;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfEvent {
    /// Counted by the kernel itself; there on every machine.
    Software(Software),
    /// Counted by the processor; missing in most virtual machines.
    Hardware(Hardware),
    /// A kernel tracepoint, by its number on this boot (see [`super::tracepoint_id`]).
    Tracepoint(u64),
}

/// Events the kernel counts by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// Time the thread ran, in nanoseconds.
    TaskClock,
    /// Page faults, minor and major.
    PageFaults,
    /// Times the thread was switched out.
    ContextSwitches,
    /// Times the thread moved to another CPU.
    CpuMigrations,
}

/// Events the processor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// Cycles, at whatever frequency the CPU runs.
    CpuCycles,
    /// Retired instructions.
    Instructions,
    /// Retired branches.
    Branches,
    /// Branches that were predicted wrongly.
    BranchMisses,
}

/// Whose events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The thread that opens the counter.
    CallingThread,
    /// One thread, by its number; on whatever CPU it runs.
    Thread(u32),
    /// Everything that runs on one CPU. Needs `CAP_PERFMON` or `kernel.perf_event_paranoid` <= 0.
    Cpu(u32),
}

/// How a counter is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterOptions {
    /// Threads and processes started later by the counted thread are counted too.
    pub inherits: bool,
    /// Only what happens in user mode is counted. Anyone may open such a counter on their own
    /// threads, but every event that happens inside the kernel then reads 0 without an error.
    pub excludes_kernel: bool,
}

/// What a counter held at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterReading {
    /// Events counted, children included if inherited.
    pub value: u64,
    /// Nanoseconds the counter was enabled (while its thread existed on a CPU or waited).
    pub time_enabled_ns: u64,
    /// Nanoseconds it really counted. Smaller than `time_enabled_ns` when counters took turns on
    /// scarce hardware: `value` is then too low, and the caller must say so.
    pub time_running_ns: u64,
}

/// An open performance counter; it counts nothing until [`Counter::enable`].
///
/// May be used from any thread. Closing it (drop) ends the counting.
#[derive(Debug)]
pub struct Counter {
    file: File,
}

impl Counter {
    /// Opens a disabled counter (`perf_event_open(2)`).
    ///
    /// # Errors
    ///
    /// `EACCES`/`EPERM` when the kernel part or the target is out of reach, `ENOENT` or
    /// `EOPNOTSUPP` when this machine has no such event, `ESRCH` for a thread that is gone,
    /// `EMFILE` at the descriptor limit.
    pub fn open(event: PerfEvent, scope: Scope, options: CounterOptions) -> io::Result<Self> {
        let (kind, config) = event.kind_and_config();
        let (tid, cpu) = scope.tid_and_cpu()?;
        let mut flags = flag::DISABLED | flag::EXCLUDE_HYPERVISOR;
        if options.inherits {
            flags |= flag::INHERIT;
        }
        if options.excludes_kernel {
            flags |= flag::EXCLUDE_KERNEL;
        }
        let attribute =
            Attribute { kind, config, read_format: READ_FORMAT, flags, ..Attribute::default() };
        let fd = open(attribute, tid, cpu)?;
        Ok(Self { file: fd.into() })
    }

    /// Counts only occurrences that pass a tracepoint filter such as `pid == 4711`.
    ///
    /// The words are the tracepoint's own field names (`format` in its trace directory).
    ///
    /// # Errors
    ///
    /// `EINVAL` when the event is not a tracepoint or the filter does not parse.
    pub fn filter(&self, expression: &str) -> io::Result<()> {
        filter(self.file.as_fd(), expression)
    }

    /// Starts counting. Inherited counters start too.
    ///
    /// # Errors
    ///
    /// Those of `ioctl(2)`.
    pub fn enable(&self) -> io::Result<()> {
        request(self.file.as_fd(), ENABLE, 0)
    }

    /// Stops counting and keeps the value.
    ///
    /// # Errors
    ///
    /// Those of `ioctl(2)`.
    pub fn disable(&self) -> io::Result<()> {
        request(self.file.as_fd(), DISABLE, 0)
    }

    /// Sets the value to 0; the times are kept (the kernel has no way to clear them).
    ///
    /// # Errors
    ///
    /// Those of `ioctl(2)`.
    pub fn reset(&self) -> io::Result<()> {
        request(self.file.as_fd(), RESET, 0)
    }

    /// Reads the value; the counter may be running.
    ///
    /// # Errors
    ///
    /// Those of `read(2)`; `UnexpectedEof` when the event is in an error state, which happens to
    /// pinned hardware events only.
    pub fn read(&self) -> io::Result<CounterReading> {
        let mut bytes = [0_u8; 24];
        // Three words come in one read or none do.
        (&self.file).read_exact(&mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(CounterReading {
            value: u64::from_ne_bytes(words[0]),
            time_enabled_ns: u64::from_ne_bytes(words[1]),
            time_running_ns: u64::from_ne_bytes(words[2]),
        })
    }
}

impl PerfEvent {
    fn kind_and_config(self) -> (u32, u64) {
        match self {
            Self::Hardware(Hardware::CpuCycles) => (KIND_HARDWARE, 0),
            Self::Hardware(Hardware::Instructions) => (KIND_HARDWARE, 1),
            Self::Hardware(Hardware::Branches) => (KIND_HARDWARE, 4),
            Self::Hardware(Hardware::BranchMisses) => (KIND_HARDWARE, 5),
            Self::Software(Software::TaskClock) => (KIND_SOFTWARE, 1),
            Self::Software(Software::PageFaults) => (KIND_SOFTWARE, 2),
            Self::Software(Software::ContextSwitches) => (KIND_SOFTWARE, 3),
            Self::Software(Software::CpuMigrations) => (KIND_SOFTWARE, 4),
            Self::Tracepoint(id) => (KIND_TRACEPOINT, id),
        }
    }
}

impl Scope {
    /// The kernel's pair: 0 is the calling thread, -1 is every thread or every CPU.
    fn tid_and_cpu(self) -> io::Result<(i32, i32)> {
        Ok(match self {
            Self::CallingThread => (0, -1),
            Self::Thread(tid) => (positive(tid)?, -1),
            Self::Cpu(cpu) => (-1, i32::try_from(cpu).map_err(|_| too_large(cpu))?),
        })
    }
}

/// Thread 0 would silently mean the caller, so it is refused.
pub(super) fn positive(tid: u32) -> io::Result<i32> {
    i32::try_from(tid).ok().filter(|tid| *tid > 0).ok_or_else(|| too_large(tid))
}

fn too_large(number: u32) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "{number} is not a thread or CPU number: expected 1 to 2^31-1 for a thread, 0 to 2^31-1 for a CPU"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ordinary user may be barred from all of perf (paranoid 3, seccomp); that is an error
    /// with a reason, never a value.
    fn refused(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOSYS))
    }

    fn burn() -> u64 {
        (0..2_000_000_u64).fold(0, |sum, step| std::hint::black_box(sum ^ step))
    }

    #[test]
    fn task_clock_of_the_calling_thread_runs_only_while_enabled() {
        let options = CounterOptions { excludes_kernel: true, ..CounterOptions::default() };
        let event = PerfEvent::Software(Software::TaskClock);
        let counter = match Counter::open(event, Scope::CallingThread, options) {
            Ok(counter) => counter,
            Err(error) => return assert!(refused(&error), "{error}"),
        };
        burn();
        assert_eq!(counter.read().expect("read").value, 0, "opened disabled");
        counter.enable().expect("enable");
        burn();
        counter.disable().expect("disable");
        let first = counter.read().expect("read");
        burn();
        let second = counter.read().expect("read");
        assert!(first.value > 0, "{first:?}");
        assert_eq!(first.value, second.value);
        assert_eq!(first.time_enabled_ns, first.time_running_ns);
        counter.reset().expect("reset");
        assert_eq!(counter.read().expect("read").value, 0);
    }

    #[test]
    fn hardware_events_open_or_say_why_not() {
        let options = CounterOptions { excludes_kernel: true, ..CounterOptions::default() };
        let all = [
            Hardware::CpuCycles,
            Hardware::Instructions,
            Hardware::Branches,
            Hardware::BranchMisses,
        ];
        for event in all {
            match Counter::open(PerfEvent::Hardware(event), Scope::CallingThread, options) {
                Ok(counter) => {
                    counter.enable().expect("enable");
                    burn();
                    counter.read().expect("read");
                }
                Err(error) => assert!(
                    refused(&error)
                        || matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)),
                    "{error}"
                ),
            }
        }
    }

    #[test]
    fn thread_zero_is_not_mistaken_for_the_caller() {
        let event = PerfEvent::Software(Software::TaskClock);
        let error = Counter::open(event, Scope::Thread(0), CounterOptions::default())
            .expect_err("thread 0 does not exist");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_filter_needs_a_tracepoint() {
        let options = CounterOptions { excludes_kernel: true, ..CounterOptions::default() };
        let event = PerfEvent::Software(Software::TaskClock);
        if let Ok(counter) = Counter::open(event, Scope::CallingThread, options) {
            let error = counter.filter("pid == 1").expect_err("not a tracepoint");
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
        }
    }
}
