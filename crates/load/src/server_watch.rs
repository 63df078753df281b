//! The CPU time of a server on this machine, second by second.

use std::io;
use std::time::Duration;

use pollux_processes::Tree;

use crate::{Second, ServerUse};

/// A server's process with all that it starts.
pub(crate) struct ServerWatch {
    pid: u32,
    tree: Tree,
    last: Duration,
}

impl ServerWatch {
    /// Begins to watch a process.
    ///
    /// # Errors
    /// There is none with this number, or this process is one that it started: what the generator uses
    /// would count as the server's.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let mut tree = Tree::of(&[pid])?;
        if tree.pids().contains(&std::process::id()) {
            return Err(io::Error::other("this program is one of those that it started"));
        }
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
