//! CPU time: of the generator's own threads, with how often they lost their CPU, and of a server on this machine.

use std::io;
use std::time::Duration;

use pollux_processes::Tree;
use rustix::time::{ClockId, clock_gettime};

use crate::{Second, ServerUse};

/// Readings of the calling thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnUse {
    pub(crate) cpu: Duration,
    /// `None` where procfs does not say.
    pub(crate) involuntary_switches: Option<u64>,
}

impl OwnUse {
    /// As of now.
    pub(crate) fn read() -> Self {
        Self { cpu: cpu_time(), involuntary_switches: involuntary_switches() }
    }

    /// What was used since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let switches = self.involuntary_switches.zip(before.involuntary_switches);
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            involuntary_switches: switches.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// CPU time of the calling thread.
pub(crate) fn cpu_time() -> Duration {
    let read = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(read.tv_sec as u64, read.tv_nsec as u32)
}

/// From `/proc/thread-self/status` (`proc_pid_status(5)`).
fn involuntary_switches() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// A server's process with all that it starts, read second by second.
pub(crate) struct ServerCpu {
    pid: u32,
    tree: Tree,
    last: Duration,
}

/// The process and what it starts.
///
/// # Errors
/// There is none with this number, or this process is one that it started: what the generator uses would count as the
/// server's.
pub(crate) fn tree_of(pid: u32) -> io::Result<Tree> {
    let tree = Tree::of(&[pid])?;
    match tree.pids().contains(&std::process::id()) {
        true => Err(io::Error::other("this program is one of those that it started")),
        false => Ok(tree),
    }
}

impl ServerCpu {
    /// Of this process.
    ///
    /// # Errors
    /// As [`tree_of`].
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let mut tree = tree_of(pid)?;
        let last = tree.look();
        Ok(Self { pid, tree, last })
    }

    /// CPU time since the last call, in seconds.
    pub(crate) fn since_last(&mut self) -> f64 {
        let now = self.tree.look();
        let used = now.saturating_sub(self.last);
        self.last = now;
        used.as_secs_f64()
    }

    /// What was used in the measured seconds.
    pub(crate) fn used(&self, seconds: &[Second]) -> ServerUse {
        let measured = seconds.iter().filter(|second| !second.is_warm_up);
        let (mut cpu_s, mut answered) = (0.0, 0);
        for second in measured {
            let Some(used_s) = second.server_cpu_s else { continue };
            cpu_s += used_s;
            answered += second.answered;
        }
        let cpu_us_per_answer = (answered > 0).then(|| cpu_s * 1e6 / answered as f64);
        ServerUse { pid: self.pid, cpu_s, cpu_us_per_answer }
    }
}
