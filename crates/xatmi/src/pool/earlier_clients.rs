//! Client contexts that outlived the manager that they had greeted.
//!
//! They work on, as calls need no manager, but have no connection here whose end would be seen.
//! Their processes are found by the reply queues that they hold open, and watched; when one
//! ends without having removed its queues, they are removed here.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use pollux_poller::Token;
use pollux_sys::mqueue::MessageQueue;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::watch::{Source, Watch};
use crate::memory::Memory;
use crate::queue::{Prefix, QueueName};

/// A process with contexts of its own.
#[derive(Debug)]
struct EarlierClient {
    pidfd: OwnedFd,
    token: Token,
    contexts: Vec<u32>,
}

/// All of them, by process.
#[derive(Debug, Default)]
pub(super) struct EarlierClients {
    by_pid: BTreeMap<u32, EarlierClient>,
}

impl EarlierClients {
    /// Looks for them, once, and begins to watch.
    pub(super) fn find(prefix: &Prefix, watch: &mut Watch) -> Self {
        let mut all = Self::default();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            let contexts = contexts_of(pid, prefix);
            if !contexts.is_empty() {
                all.watch(pid, contexts, watch);
            }
        }
        all
    }

    /// Watches processes that have requests in the memory of the pool; gives out those that are gone.
    pub(super) fn find_in_memory(&mut self, memory: &Memory, watch: &mut Watch) -> Vec<u32> {
        let pids = memory.clients().into_iter();
        pids.filter(|pid| {
            if !self.by_pid.contains_key(pid) {
                self.watch(*pid, Vec::new(), watch);
            }
            !self.by_pid.contains_key(pid)
        })
        .collect()
    }

    /// How many processes are watched.
    pub(super) fn len(&self) -> usize {
        self.by_pid.len()
    }

    /// A process ended: its queues go.
    pub(super) fn ended(&mut self, pid: u32, prefix: &Prefix, watch: &mut Watch) {
        let Some(client) = self.by_pid.remove(&pid) else { return };
        watch.remove(client.pidfd.as_fd(), client.token);
        for context in client.contexts {
            // A context that ended well has done so itself.
            let _ = MessageQueue::unlink(&prefix.reply_queue(pid, context));
        }
    }

    fn watch(&mut self, pid: u32, contexts: Vec<u32>, watch: &mut Watch) {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pidfd = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        let Some(pidfd) = pidfd else { return };
        if let Ok(token) = watch.add(pidfd.as_fd(), Source::EarlierClient(pid)) {
            self.by_pid.insert(pid, EarlierClient { pidfd, token, contexts });
        }
    }
}

/// The contexts whose reply queue process `pid` holds open as its own; workers hold open those
/// of others.
fn contexts_of(pid: u32, prefix: &Prefix) -> Vec<u32> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let names =
        files.filter_map(|file| fs::read_link(file.path()).ok()?.to_str().map(str::to_owned));
    let contexts = names.filter_map(|name| match QueueName::parse(prefix, &name)? {
        QueueName::Reply { pid: owner, context } if owner == pid => Some(context),
        _ => None,
    });
    contexts.collect()
}
