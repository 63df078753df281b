//! Workers that are started anew though they are well: they use more memory than they may (`rssmax`, `vszmax`), or the
//! file of their program has changed (`reloadonchange`).
//!
//! Looked at once in a check cycle. Those of a changed file are restarted one after the other: the next one when all copies
//! of its entry are up again.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use super::Pool;
use super::process::{Stamp, find};
use crate::config::{Entry, Policy};
use crate::supervisor::{Selection, State};

/// Bytes of a unit of `/proc/PID/status`.
const KIB: u64 = 1024;

/// The memory of a process, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Memory {
    in_use: u64,
    address_space: u64,
}

impl Pool {
    /// Restarts workers that have grown too large or whose program has changed.
    pub(super) fn start_anew_what_must(&mut self, now: Instant) {
        if self.supervisor.is_ending() || self.supervisor.is_learning() {
            return;
        }
        let states: BTreeMap<u32, State> =
            self.supervisor.members(now).map(|member| (member.id, member.state)).collect();
        let mut found = Vec::new();
        for entry in &self.config.entries {
            let policy = &entry.policy;
            if policy.rss_max_bytes.is_none()
                && policy.vsz_max_bytes.is_none()
                && !policy.restarts_on_change
            {
                continue;
            }
            let is_up = |id: &u32| states.get(id) == Some(&State::Up);
            let is_still = |id| matches!(states.get(&id), None | Some(State::Up | State::Down));
            let may_change = entry.ids().all(is_still);
            let stamp = if policy.restarts_on_change { stamp_of(entry) } else { None };
            let mut has_changed = false;
            for id in entry.ids().filter(is_up) {
                let Some(process) = self.workers.get_mut(&id) else { continue };
                let memory = memory_of(process.pid);
                if let Some(why) = memory.and_then(|memory| excess(policy, memory)) {
                    found.push((id, why));
                    continue;
                }
                // One that was taken over has the file of this moment.
                let of_process = process.program_stamp.or(stamp);
                process.program_stamp = of_process;
                if stamp.is_some() && of_process != stamp && may_change && !has_changed {
                    has_changed = true;
                    found.push((id, "the file of its program has changed".to_owned()));
                }
            }
        }
        for (id, why) in found {
            self.log.line(&format!("{} is started anew: {why}", self.called(id)));
            let mut actions = Vec::new();
            // It was found among them.
            let _ = self.supervisor.restart(&Selection::Id(id), now, &mut actions);
            self.act(actions, now);
        }
    }
}

/// The state of the file that a worker of `entry` would be started from.
pub(super) fn stamp_of(entry: &Entry) -> Option<Stamp> {
    let of = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
    };
    of(&find(entry).ok()?)
}

fn memory_of(pid: u32) -> Option<Memory> {
    memory_in(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn memory_in(status: &str) -> Option<Memory> {
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let number = line.trim().strip_suffix("kB")?;
        Some(number.trim().parse::<u64>().ok()?.saturating_mul(KIB))
    };
    Some(Memory { in_use: of("VmRSS:")?, address_space: of("VmSize:")? })
}

/// Which limit is exceeded, for people.
fn excess(policy: &Policy, memory: Memory) -> Option<String> {
    let over = |is: u64, limit: Option<u64>, what: &str| {
        let limit = limit.filter(|limit| is > *limit)?;
        Some(format!("it has {is} bytes of {what}, more than the {limit} that it may"))
    };
    over(memory.in_use, policy.rss_max_bytes, "memory in use (rssmax)")
        .or_else(|| over(memory.address_space, policy.vsz_max_bytes, "address space (vszmax)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_read_and_compared() {
        let status =
            "Name:\tx\nVmPeak:\t  999 kB\nVmSize:\t  400 kB\nVmRSS:\t   20 kB\nThreads:\t1\n";
        let memory = memory_in(status).expect("both are there");
        assert_eq!(memory, Memory { in_use: 20 * KIB, address_space: 400 * KIB });
        assert_eq!(memory_in("Name:\tkthread\n"), None);
        assert!(memory_of(std::process::id()).is_some_and(|memory| memory.in_use > 0));
        let policy = |rss_max_bytes, vsz_max_bytes| Policy {
            rss_max_bytes,
            vsz_max_bytes,
            ..Policy::default()
        };
        assert_eq!(excess(&policy(None, None), memory), None);
        assert_eq!(excess(&policy(Some(20 * KIB), Some(400 * KIB)), memory), None);
        let why = excess(&policy(Some(20 * KIB - 1), None), memory).expect("above");
        assert!(why.contains("20480 bytes of memory in use (rssmax)"), "{why}");
        assert!(excess(&policy(None, Some(1)), memory).is_some_and(|why| why.contains("vszmax")));
    }
}
