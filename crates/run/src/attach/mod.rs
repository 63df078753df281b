//! Follows a process that already runs, by tracepoints of the kernel.
//!
//! | file | subject |
//! |---|---|
//! | `calls.rs` | the system calls that are followed, and what their records mean |
//! | `follow.rs` | threads: their waits, turns, updates and sleeps |
//! | `image.rs` | the files in the memory of a process, to name places in it |
//! | `error.rs` | why a process cannot be followed |
//!
//! The process is not stopped and nothing in it is changed. Its descendants are followed as well, those
//! that it has and those that it makes. What tracepoints cannot tell is named in `source.rs`.

mod calls;
mod error;
mod follow;
mod image;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use pollux_loop_stats::{Region, WORDS};
use pollux_sys::perf::{Trace, TraceError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use error::AttachError;

use crate::Summary;
use crate::elf::Elf;
use crate::kin::{descendants, is_alive};
use crate::reach::MACHINE;
use crate::source::Source;
use calls::SAMPLE_EVERY;
use follow::Followers;

/// Between two drains: a server with 100,000 waits a second fills a tenth of a buffer meanwhile.
pub const DRAIN_EVERY: Duration = Duration::from_millis(20);

/// Memory for the figures; all zero.
#[must_use]
pub fn memory() -> Box<[AtomicU64]> {
    (0..WORDS).map(|_| AtomicU64::new(0)).collect()
}

/// Tries whether this user may follow processes here, on a thread of pollux's own.
///
/// # Errors
/// What would keep a process of this user's from being followed.
pub fn probe() -> Result<(), AttachError> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let trace = Trace::of_threads(&[tid], &calls::followed());
    trace.map(drop).map_err(|error| AttachError::of_trace(error, std::process::id(), 1))
}

/// A process that is followed. Dropping it ends that; the process continues as it was.
pub struct Attached<'a> {
    region: Region<'a>,
    trace: Trace,
    followers: Followers<'a>,
    pid: u32,
    /// Those that were there at the start.
    processes: BTreeSet<u32>,
    threads: usize,
    began: Instant,
    drains: u64,
}

impl<'a> Attached<'a> {
    /// Begins to follow a process and its descendants, with figures in `memory`. Threads that are started
    /// in the same milliseconds may be missed.
    ///
    /// # Errors
    /// See [`AttachError`].
    ///
    /// # Panics
    /// Where `memory` is shorter than that of [`memory`].
    pub fn to(pid: u32, memory: &'a [AtomicU64]) -> Result<Self, AttachError> {
        let region = Region::begin(memory).expect("as many words as it has");
        is_followable(pid)?;
        let processes = family(pid);
        raise_descriptors();
        let tids: Vec<u32> = processes.iter().flat_map(|pid| tasks(*pid)).collect();
        let trace = Trace::of_threads(&tids, &calls::followed());
        let trace = trace.map_err(|error| AttachError::of_trace(error, pid, tids.len()))?;
        trace
            .enable()
            .and_then(|()| trace.sample(true))
            .map_err(|error| AttachError::of_trace(TraceError::Refused(error), pid, tids.len()))?;
        let followers = Followers::new(region);
        let (threads, began) = (tids.len(), Instant::now());
        Ok(Self { region, trace, followers, pid, processes, threads, began, drains: 0 })
    }

    /// Processes and threads that are followed from the start.
    #[must_use]
    pub fn extent(&self) -> (usize, usize) {
        (self.processes.len(), self.threads)
    }

    /// Takes in what happened; to be called every [`DRAIN_EVERY`].
    pub fn drain(&mut self) {
        self.trace.drain(|record| self.followers.note(record));
        self.drains += 1;
        // What can't be switched stays as it was: another count of EAGAIN, and nothing else.
        let _ = match self.drains % SAMPLE_EVERY {
            0 => self.trace.sample(true),
            1 => self.trace.sample(false),
            _ => Ok(()),
        };
    }

    /// Ends recording and takes in what is left.
    pub fn finish(&mut self) {
        // An event that cannot be switched off ends with its descriptor.
        let _ = self.trace.disable();
        self.trace.finish(|record| self.followers.note(record));
        self.followers.settle();
    }

    /// Whether the process and all that were followed are gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let mut all = self.processes.iter().copied().chain(self.followers.processes());
        !is_alive(self.pid) && !all.any(is_alive)
    }

    /// The time since the start.
    #[must_use]
    pub fn lasted(&self) -> Duration {
        self.began.elapsed()
    }

    /// The figures so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let source = Source::Tracepoints { records_lost: self.followers.records_lost };
        Summary::of(self.region, self.lasted(), source)
    }
}

/// Asks for as many descriptors as this process may have: each thread takes many on each CPU. Where that is
/// refused, those that there are must do.
fn raise_descriptors() {
    let limits = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
}

/// Whether it is a process of this machine's kind.
fn is_followable(pid: u32) -> Result<(), AttachError> {
    if pid == std::process::id() {
        return Err(AttachError::Own(pid));
    }
    if !is_alive(pid) {
        return Err(AttachError::Missing(pid));
    }
    let program = format!("/proc/{pid}/exe");
    match Elf::read(Path::new(&program)) {
        Ok(Some(elf)) if elf.machine() == MACHINE => Ok(()),
        Ok(_) => Err(AttachError::OtherMachine(pid)),
        Err(error) => match error.kind() {
            std::io::ErrorKind::PermissionDenied => Err(AttachError::Denied(pid, error)),
            _ if !is_alive(pid) => Err(AttachError::Missing(pid)),
            _ => Err(AttachError::Kernel(pid)),
        },
    }
}

/// A process with its descendants; pollux itself may be one, as where a shell script attaches to its own
/// shell, and is left out.
fn family(pid: u32) -> BTreeSet<u32> {
    let mut family = descendants(pid);
    family.insert(pid);
    family
}

fn tasks(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
