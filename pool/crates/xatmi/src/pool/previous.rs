//! What an earlier manager of the same pool has left behind: workers, and names of queues.
//!
//! Workers are looked for once, before a pool begins; queues again when the last of those has
//! reported. A manager that was killed leaves no file that could be stale; the workers themselves
//! say in `/proc` whose they are.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use pollux_poller::Token;
use pollux_sys::mqueue::MessageQueue;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::poller::{PoolPoller, Source};
use super::process::{PREFIX_VARIABLE, PROGRAM_VARIABLE};
use crate::memory::{Memory, Records};
use crate::queue::{Prefix, QueueName};
use crate::worker::LINK_VARIABLE;

/// Where the queue file system usually is; `NDRX_QPATH` says otherwise.
const QUEUE_FOLDER: &str = "/dev/mqueue";

/// Processes that are workers of the pool with this prefix: server id and process id.
///
/// A worker is recognised by its environment, which the manager wrote, and its command line;
/// what it has started itself has the one and not the other. Those of another user, or with other
/// queues or sockets than ours (a container's), belong to another pool of the same prefix.
#[must_use]
pub fn workers(prefix: &Prefix) -> Vec<(u32, u32)> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pids = pids.filter(|pid| *pid != own && is_beside_us(*pid));
    let mut found: Vec<(u32, u32)> =
        pids.filter_map(|pid| Some((id_of(pid, prefix)?, pid))).collect();
    found.sort_unstable();
    // What a worker has forked looks like itself.
    let is_forked = |(id, pid): &(u32, u32)| {
        pollux_host::parent(*pid).is_some_and(|parent| found.binary_search(&(*id, parent)).is_ok())
    };
    found.iter().filter(|worker| !is_forked(worker)).copied().collect()
}

/// The queues of this pool that stand; none without the queue file system.
pub(super) fn queues(prefix: &Prefix) -> Vec<QueueName> {
    let folder = std::env::var_os("NDRX_QPATH").map_or(QUEUE_FOLDER.into(), PathBuf::from);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| QueueName::parse(prefix, &name)).collect()
}

/// The memory of this pool, by descriptors of a worker that still has it. Where no worker is left a new one
/// is made, and clients come to it by themselves.
pub(super) fn memory(prefix: &Prefix) -> Option<Memory> {
    let left = workers(prefix).into_iter().filter_map(|(_, pid)| memory_of(pid, prefix));
    // A worker that no later manager took over has older records.
    let (records, claims, exchange) = left.max_by_key(|(records, ..)| records.term())?;
    Memory::take_over(prefix, &records, claims, exchange).ok()
}

/// The memory that process `pid` has; none for that of another build, which is of no use here.
fn memory_of(pid: u32, prefix: &Prefix) -> Option<(Records, OwnedFd, OwnedFd)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let files: Vec<(PathBuf, PathBuf)> = entries
        .filter_map(|entry| Some((fs::read_link(entry.path()).ok()?, entry.path())))
        .collect();
    let open = |name: &str, is_written: bool| {
        let link = PathBuf::from(format!("/memfd:{name} (deleted)"));
        let its = files.iter().filter(move |(to, _)| *to == link).map(|(_, path)| path);
        its.filter_map(move |path| {
            let file = fs::File::options().read(true).write(is_written).open(path);
            file.ok().map(OwnedFd::from)
        })
    };
    let [records, claims, exchange] = crate::memory::names(prefix);
    let records = open(&records, false).filter_map(|file| Records::map(file.as_fd()).ok());
    // A worker that was taken over has those that it was started with, too.
    let records = records.max_by_key(Records::term)?;
    Some((records, open(&claims, true).next()?, open(&exchange, true).next()?))
}

/// The program that a manager started process `pid` for, as far as it can be read.
pub(super) fn program_of(pid: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let start = format!("{PROGRAM_VARIABLE}=");
    let mut words = environment.split(|byte| *byte == 0);
    let name = words.find_map(|word| word.strip_prefix(start.as_bytes()))?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Whether a process is of our user and has our queues and abstract sockets (`namespaces(7)`).
fn is_beside_us(pid: u32) -> bool {
    let namespace = |of: &str, name| fs::read_link(format!("/proc/{of}/ns/{name}")).ok();
    let is_shared = |name| {
        namespace(&pid.to_string(), name).is_some_and(|its| Some(its) == namespace("self", name))
    };
    let user = fs::metadata(format!("/proc/{pid}")).map(|found| found.uid());
    user.is_ok_and(|user| user == rustix::process::geteuid().as_raw())
        && is_shared("ipc")
        && is_shared("net")
}

/// The server id of process `pid` if it is a worker of this pool.
fn id_of(pid: u32, prefix: &Prefix) -> Option<u32> {
    let words = |file: &str| fs::read(format!("/proc/{pid}/{file}")).ok();
    let environment = words("environ")?;
    let has = |wanted: String| environment.split(|byte| *byte == 0).any(|w| w == wanted.as_bytes());
    let link = format!("{LINK_VARIABLE}=");
    let has_link = environment.split(|byte| *byte == 0).any(|w| w.starts_with(link.as_bytes()));
    if !has_link || !has(format!("{PREFIX_VARIABLE}={prefix}")) {
        return None;
    }
    let line = words("cmdline")?;
    let line: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let [_, key, _, id, number, ..] = line.as_slice() else { return None };
    let is_ours = *key == b"-k" && *id == b"-i";
    is_ours.then(|| str::from_utf8(number).ok()?.parse().ok())?
}

/// A process with contexts of its own.
#[derive(Debug)]
struct EarlierClient {
    pidfd: OwnedFd,
    token: Token,
    contexts: Vec<u32>,
}

/// Client processes that connected to an earlier manager.
///
/// Their calls continue, as calls need no manager, but they have no connection here whose end
/// would be seen. They are found by the reply queues that they hold open, and watched; when one
/// ends without having removed its queues, they are removed here.
#[derive(Debug, Default)]
pub(super) struct EarlierClients {
    by_pid: BTreeMap<u32, EarlierClient>,
}

impl EarlierClients {
    /// Finds them, once, and begins to watch.
    pub(super) fn find(prefix: &Prefix, poller: &mut PoolPoller) -> Self {
        let mut all = Self::default();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            let contexts = contexts_of(pid, prefix);
            if !contexts.is_empty() {
                all.observe(pid, contexts, poller);
            }
        }
        all
    }

    /// Watches processes that have requests in the memory of the pool; gives out those that are gone.
    pub(super) fn find_in_memory(&mut self, memory: &Memory, poller: &mut PoolPoller) -> Vec<u32> {
        memory.clients().into_iter().filter(|pid| !self.has(*pid, poller)).collect()
    }

    /// Whether the end of process `pid` will be seen; it is watched from now on if it was not.
    pub(super) fn has(&mut self, pid: u32, poller: &mut PoolPoller) -> bool {
        if !self.by_pid.contains_key(&pid) {
            self.observe(pid, Vec::new(), poller);
        }
        self.by_pid.contains_key(&pid)
    }

    /// How many processes are watched.
    pub(super) fn len(&self) -> usize {
        self.by_pid.len()
    }

    /// A process ended: its queues go.
    pub(super) fn ended(&mut self, pid: u32, prefix: &Prefix, poller: &mut PoolPoller) {
        let Some(client) = self.by_pid.remove(&pid) else { return };
        poller.remove(client.pidfd.as_fd(), client.token);
        for context in client.contexts {
            // A context that ended well has done so itself.
            let _ = MessageQueue::unlink(&prefix.reply_queue(pid, context));
        }
    }

    fn observe(&mut self, pid: u32, contexts: Vec<u32>, poller: &mut PoolPoller) {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pidfd = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        let Some(pidfd) = pidfd else { return };
        if let Ok(token) = poller.add(pidfd.as_fd(), Source::EarlierClient(pid)) {
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
