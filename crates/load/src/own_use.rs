//! What a thread of the generator itself has used: CPU time, and how often it lost its CPU.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Readings of the calling thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnUse {
    pub(crate) cpu: Duration,
    /// `None` where procfs does not tell.
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
