//! Follows a process that already runs, by tracepoints of the kernel.
//!
//! Here is which calls are followed and what their records mean, which files lie where in a process, and why
//! one cannot be followed; `follow.rs` has the threads: their waits, turns, updates and sleeps.
//!
//! The process is not stopped and nothing in it is changed. Its descendants are followed as well, those
//! that it has and those that it makes. What tracepoints cannot tell is named in `summary.rs`.

mod follow;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use pollux_host::symbols::Elf;
use pollux_host::{descendants, is_running, threads};
use pollux_sys::descriptors;
use pollux_sys::loop_stats::{Module, Region, WORDS};
use pollux_sys::perf::{Followed, Trace, TraceError, Tracepoint};
use rustix::io::Errno;

use crate::Summary;
use crate::session::NotObservable;
use crate::summary::Source;
use follow::Followers;

/// Between two drains: a server with 100,000 waits a second fills a tenth of a buffer meanwhile.
pub const DRAIN_EVERY: Duration = Duration::from_millis(20);

/// Descriptors that a thread takes on each CPU: one for each tracepoint, one for its way off the CPU.
const DESCRIPTORS: usize = CALLS.len() + 1;

/// Memory for the figures; all zero.
#[must_use]
pub fn memory() -> Box<[AtomicU64]> {
    (0..WORDS).map(|_| AtomicU64::new(0)).collect()
}

/// Tries whether this user may follow processes here, on a thread of pollux's own.
///
/// # Errors
/// What would keep a process of this user's from being followed.
pub fn probe() -> Result<(), NotObservable> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let trace = Trace::of_threads(&[tid], &followed());
    trace.map(drop).map_err(|error| refused(error, std::process::id(), 1))
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
    /// Why it cannot be followed.
    ///
    /// # Panics
    /// Where `memory` is shorter than that of [`memory`].
    pub fn to(pid: u32, memory: &'a [AtomicU64]) -> Result<Self, NotObservable> {
        let region = Region::begin(memory).expect("as many words as it has");
        is_followable(pid)?;
        let processes = family(pid);
        // Each thread takes many on each CPU. Where no more are allowed, those that there are must do.
        let _ = descriptors::raise();
        let tids: Vec<u32> = processes.iter().flat_map(|pid| threads(*pid)).collect();
        let trace = Trace::of_threads(&tids, &followed());
        let refused = |error| refused(error, pid, tids.len());
        let trace = trace.map_err(refused)?;
        let enabled = trace.enable().and_then(|()| trace.sample(true));
        enabled.map_err(TraceError::Refused).map_err(refused)?;
        let followers = Followers::new(region);
        let threads = tids.len();
        let began = Instant::now();
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
        !is_running(self.pid) && !all.any(is_running)
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

/// Whether it is a process of this machine's kind.
fn is_followable(pid: u32) -> Result<(), NotObservable> {
    let refused = |why: &str| Err(NotObservable::new(format!("--attach {pid}: {why}")));
    if pid == std::process::id() {
        return refused("this is pollux itself; expected another process");
    }
    if !is_running(pid) {
        return Err(missing(pid));
    }
    let program = format!("/proc/{pid}/exe");
    match Elf::read(Path::new(&program)) {
        Ok(Some(elf)) if elf.is_for_this_machine() => Ok(()),
        Ok(_) => refused(
            "its program is not a 64-bit one of this machine's kind, so its system calls have other \
             numbers",
        ),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused(&format!(
            "the process may not be looked at: {error}; run pollux as root or with CAP_PERFMON and \
             CAP_SYS_PTRACE"
        )),
        Err(_) if !is_running(pid) => Err(missing(pid)),
        Err(_) => refused("a thread of the kernel, which has no event loop; expected a process"),
    }
}

/// A process with its descendants; pollux itself may be one, as where a shell script attaches to its own
/// shell, and is left out.
fn family(pid: u32) -> BTreeSet<u32> {
    descendants(pid).into_iter().chain([pid]).collect()
}

/// Why a trace of so many threads was refused.
fn refused(error: TraceError, pid: u32, threads: usize) -> NotObservable {
    NotObservable::new(match error {
        TraceError::Gone => return missing(pid),
        TraceError::Tracepoints(error) => format!(
            "the kernel's tracepoints cannot be read: {error}; run pollux as root, or see `pollux \
             doctor` (tracefs)"
        ),
        TraceError::Missing(point) => format!(
            "this kernel has no tracepoint {}:{}; it was built without CONFIG_FTRACE_SYSCALLS",
            point.group, point.name
        ),
        TraceError::Refused(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            format!(
                "{} descriptors are needed on each CPU ({DESCRIPTORS} for each of {threads} threads), \
                 more than this process may have; raise {}",
                threads * DESCRIPTORS,
                descriptors::in_words(descriptors::Limit::here().soft),
            )
        }
        TraceError::Refused(error) => format!(
            "process {pid}: the kernel refused to trace it: {error}; run pollux as root or with \
             CAP_PERFMON (`pollux doctor` shows what is missing)"
        ),
    })
}

fn missing(pid: u32) -> NotObservable {
    NotObservable::missing(format!("--attach {pid}: no process has this number"))
}

/// The images that were written: which files lie where in the memory of a process, by `/proc/PID/maps`.
struct Images<'a> {
    region: Region<'a>,
    of_process: HashMap<u32, Option<u64>>,
    written: Vec<(Vec<Module>, u64)>,
}

impl<'a> Images<'a> {
    fn new(region: Region<'a>) -> Self {
        Self { region, of_process: HashMap::new(), written: Vec::new() }
    }

    /// The number of a process's image: that of its parent, if both have the same files.
    fn of(&mut self, pid: u32) -> Option<u64> {
        if let Some(known) = self.of_process.get(&pid) {
            return *known;
        }
        let modules = modules(pid);
        let known = self.written.iter().find(|(known, _)| *known == modules);
        let number = match known {
            Some((_, number)) => Some(*number),
            None => self.region.claim_image().map(|(number, image)| {
                for module in &modules {
                    let path = module.path.as_os_str().as_bytes();
                    image.add(module.start, module.end, module.bias, path);
                }
                self.written.push((modules, number));
                number
            }),
        };
        self.of_process.insert(pid, number);
        number
    }
}

/// The files of a process, the program first; empty where it is gone or not ours to see.
fn modules(pid: u32) -> Vec<Module> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let mut modules = of_maps(&maps);
    for module in &mut modules {
        if !is_relocated(&module.path) {
            module.bias = 0;
        }
    }
    // Stable: the others stay in the order of their addresses.
    modules.sort_by_key(|module| module.path != program);
    modules
}

/// Files that have code in memory, as wide as all of their parts. A part is a line:
/// `start-end rwxp offset device inode path`.
fn of_maps(maps: &str) -> Vec<Module> {
    let mut modules: Vec<(Module, bool)> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let Some(path) = line.find('/').map(|at| PathBuf::from(&line[at..])) else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let Some((start, end)) = number(start).zip(number(end)) else { continue };
        let is_code = rights.contains('x');
        match modules.iter_mut().find(|(module, _)| module.path == path) {
            Some((module, has_code)) => {
                module.end = module.end.max(end);
                *has_code |= is_code;
            }
            None => modules.push((Module { start, end, bias: start, path }, is_code)),
        }
    }
    modules.retain(|(_, has_code)| *has_code);
    modules.into_iter().map(|(module, _)| module).collect()
}

/// Whether a file lies elsewhere than where its symbols say.
fn is_relocated(path: &Path) -> bool {
    Elf::read(path).ok().flatten().is_none_or(|elf| elf.is_relocated())
}

/// What a record of a call says.
///
/// | calls | on entry | on exit |
/// |---|---|---|
/// | epoll_wait, epoll_pwait, epoll_pwait2 | the turn ends | events, and a turn begins |
/// | epoll_ctl | the update | failures only |
/// | accept, accept4 | which listener | the connection, or that there was none |
/// | close | the descriptor is gone | |
/// | epoll_create, epoll_create1 | | an instance |
/// | reads and writes | | those that would have blocked, in one of [`SAMPLE_EVERY`] drains |
///
/// A filter of the kernel's drops records that are not counted: each record costs the program some 0.5 µs. To ask
/// the filter costs 0.1 µs for each read and write, which is why these are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A wait begins, with its timeout where it has one.
    WaitBegins(TimeoutIn),
    WaitEnds,
    Controls,
    ControlFailed,
    Created,
    AcceptBegins,
    AcceptEnds,
    Closes,
    /// A read or write that would have blocked.
    Again,
}

/// Where a wait's timeout stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeoutIn {
    /// In the fourth argument, in milliseconds.
    Milliseconds,
    /// In the program's memory.
    Memory,
}

/// A tracepoint with its condition and its meaning.
type Call = (&'static str, Option<&'static str>, Role);

const FAILED: Option<&str> = Some("ret < 0");
/// `-EAGAIN`, as the kernel compares it.
const WOULD_BLOCK: Option<&str> = Some("ret == -11");

const CALLS: [Call; 25] = [
    ("sys_enter_epoll_wait", None, Role::WaitBegins(TimeoutIn::Milliseconds)),
    ("sys_enter_epoll_pwait", None, Role::WaitBegins(TimeoutIn::Milliseconds)),
    ("sys_enter_epoll_pwait2", None, Role::WaitBegins(TimeoutIn::Memory)),
    ("sys_exit_epoll_wait", None, Role::WaitEnds),
    ("sys_exit_epoll_pwait", None, Role::WaitEnds),
    ("sys_exit_epoll_pwait2", None, Role::WaitEnds),
    ("sys_enter_epoll_ctl", None, Role::Controls),
    ("sys_exit_epoll_ctl", FAILED, Role::ControlFailed),
    ("sys_exit_epoll_create", None, Role::Created),
    ("sys_exit_epoll_create1", None, Role::Created),
    ("sys_enter_accept", None, Role::AcceptBegins),
    ("sys_enter_accept4", None, Role::AcceptBegins),
    ("sys_exit_accept", None, Role::AcceptEnds),
    ("sys_exit_accept4", None, Role::AcceptEnds),
    ("sys_enter_close", None, Role::Closes),
    ("sys_exit_read", WOULD_BLOCK, Role::Again),
    ("sys_exit_readv", WOULD_BLOCK, Role::Again),
    ("sys_exit_recvfrom", WOULD_BLOCK, Role::Again),
    ("sys_exit_recvmsg", WOULD_BLOCK, Role::Again),
    ("sys_exit_write", WOULD_BLOCK, Role::Again),
    ("sys_exit_writev", WOULD_BLOCK, Role::Again),
    ("sys_exit_sendto", WOULD_BLOCK, Role::Again),
    ("sys_exit_sendmsg", WOULD_BLOCK, Role::Again),
    ("sys_exit_sendfile64", WOULD_BLOCK, Role::Again),
    ("sys_exit_splice", WOULD_BLOCK, Role::Again),
];

/// Drains of which one comes behind a time in which reads and writes were looked at.
const SAMPLE_EVERY: u64 = 8;

/// What every kernel has whose calls can be followed; some calls are new, or are those of one architecture.
const REQUIRED: &str = "sys_enter_epoll_pwait";

/// What the kernel is asked to record.
fn followed() -> [Followed; CALLS.len()] {
    CALLS.map(|(name, filter, role)| {
        let point = Tracepoint { group: "syscalls", name };
        let is_sampled = role == Role::Again;
        Followed { point, filter, is_required: name == REQUIRED, is_sampled }
    })
}

/// What the record of a tracepoint says, by its place among those that are followed.
fn role(place: usize) -> Role {
    CALLS[place].2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_file_are_one_module() {
        let maps = "\
555500000000-555500001000 r--p 00000000 fe:00 12 /usr/bin/a program
555500001000-555500009000 r-xp 00001000 fe:00 12 /usr/bin/a program
555500009000-55550000a000 rw-p 00008000 fe:00 12 /usr/bin/a program
555600000000-555600021000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000001000 r--p 00000000 fe:00 13 /usr/share/data
7f0000002000-7f0000003000 r-xp 00000000 fe:00 14 /usr/lib/libc.so.6
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
";
        let module =
            |start, end, path: &str| Module { start, end, bias: start, path: PathBuf::from(path) };
        let expected = [
            module(0x5555_0000_0000, 0x5555_0000_a000, "/usr/bin/a program"),
            module(0x7f00_0000_2000, 0x7f00_0000_3000, "/usr/lib/libc.so.6"),
        ];
        assert_eq!(of_maps(maps), expected);
    }

    #[test]
    fn the_own_program_comes_first_with_its_functions() {
        let modules = modules(std::process::id());
        assert_eq!(Some(&modules[0].path), std::env::current_exe().ok().as_ref());
        assert!(modules.iter().any(|module| module.path.to_string_lossy().contains("libc")));
        let here = the_own_program_comes_first_with_its_functions as fn() as usize as u64;
        let name = crate::Symbols::default().name(&modules, here + 4);
        assert!(name.contains("the_own_program_comes_first"), "{name}");
    }
}
