//! What the kernel shows of processes: which there are, what each came from, its threads, whether it has ended.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Error;
use super::streams::is_ready_within;

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) parent: u32,
    /// Ticks from the start of the machine to its own: with its number it is unique.
    pub(crate) started: u64,
    /// CPU time of those of its children that have ended and were waited for.
    pub(crate) by_children: Duration,
    /// Whether it has ended, and only its parent has not waited for it yet.
    pub(crate) is_zombie: bool,
}

impl Stat {
    /// That of a process; none where there is no such process.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&stat))
    }

    /// Fields are counted from 3, behind the command's name, which may hold anything
    /// (`proc_pid_stat(5)`).
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        let ticks = field(16)? + field(17)?;
        Some(Self {
            parent: field(4)? as u32,
            started: field(22)?,
            by_children: Duration::from_nanos(ticks * tick_ns),
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
        })
    }
}

/// The numbers of all processes.
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    numbers_in(Path::new("/proc"))
}

fn numbers_in(folder: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The threads of a process, by their numbers.
pub fn threads(pid: u32) -> Vec<u32> {
    numbers_in(&Path::new("/proc").join(pid.to_string()).join("task")).collect()
}

/// Every thread of these processes, with its process.
pub fn threads_of(pids: &[u32]) -> Vec<(u32, u32)> {
    pids.iter().flat_map(|pid| threads(*pid).into_iter().map(|tid| (*pid, tid))).collect()
}

/// Whether a process is there and has not ended.
pub fn is_running(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| !stat.is_zombie)
}

/// The process that a process came from, or that adopted it.
pub fn parent(pid: u32) -> Option<u32> {
    Stat::of(pid).map(|stat| stat.parent)
}

/// The processes that `parent` has started, or adopted, and that run; those last that were started last.
pub fn children(parent: u32) -> Vec<u32> {
    those_of(&running(), |of| of == parent)
}

/// The children of a process, theirs, and so on, those last that were started last. This process is left out, with
/// what came from it alone, where it is a descendant.
pub fn descendants(pid: u32) -> Vec<u32> {
    let own = std::process::id();
    let mut all = running();
    all.retain(|(pid, _)| *pid != own);
    let mut found = those_of(&all, |parent| parent == pid);
    loop {
        let more = those_of(&all, |parent| parent == pid || found.contains(&parent));
        if more.len() == found.len() {
            return found;
        }
        found = more;
    }
}

/// Whether a process ends within `time`, which this waits for, whichever process started it; one that is not there
/// has ended.
///
/// # Errors
/// The kernel refuses to show it.
pub fn ends_within(pid: u32, time: Duration) -> Result<bool, Error> {
    let Some(pid) = Pid::from_raw(pid.cast_signed()) else { return Ok(true) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => is_ready_within(&handle, time, &|| false),
        Err(Errno::SRCH) => Ok(true),
        Err(errno) => Err(Error::io("pidfd_open")(errno)),
    }
}

fn running() -> Vec<(u32, Stat)> {
    let stats = pids().filter_map(|pid| Some((pid, Stat::of(pid)?)));
    let mut running: Vec<_> = stats.filter(|(_, stat)| !stat.is_zombie).collect();
    running.sort_unstable_by_key(|(pid, stat)| (stat.started, *pid));
    running
}

/// Those whose parent is one of these.
fn those_of(all: &[(u32, Stat)], is_parent: impl Fn(u32) -> bool) -> Vec<u32> {
    all.iter().filter(|(_, stat)| is_parent(stat.parent)).map(|(pid, _)| *pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_any_name() {
        let stat = "7 (a) b) (c) Z 5 7 7 0 -1 4 0 0 0 0 1 2 3 4 20 0 1 0 99 0";
        let stat = Stat::parse(stat).expect("whole");
        assert_eq!((stat.parent, stat.started, stat.is_zombie), (5, 99, true));
        let tick = Duration::from_nanos(1_000_000_000 / rustix::param::clock_ticks_per_second());
        assert_eq!(stat.by_children, tick * 7);
    }
}
