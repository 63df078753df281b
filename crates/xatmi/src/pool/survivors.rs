//! What an earlier manager of the same pool has left behind: workers, and names of queues.
//!
//! Looked at once, before a pool begins. A manager that was killed leaves no file that could be
//! stale; the workers themselves say in `/proc` whose they are.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use pollux_sys::mqueue::MessageQueue;

use super::spawn::PREFIX_VARIABLE;
use crate::queue::{Prefix, QueueName};
use crate::worker::LINK_VARIABLE;

/// Where the queue file system usually is; `NDRX_QPATH` says otherwise.
const QUEUE_FOLDER: &str = "/dev/mqueue";

/// Processes that are workers of the pool with this prefix: server id and process id.
///
/// A worker is recognised by its environment, which the manager wrote, and its command line;
/// what it has started itself has the one and not the other.
pub(super) fn workers(prefix: &Prefix) -> Vec<(u32, u32)> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut found: Vec<(u32, u32)> =
        pids.filter(|pid| *pid != own).filter_map(|pid| Some((id_of(pid, prefix)?, pid))).collect();
    found.sort_unstable();
    found
}

/// Removes what nobody uses: reply queues of processes that are gone and, when `services` says
/// so, the queues of services. Returns how many; without the queue file system it is none.
pub(super) fn remove_queues(prefix: &Prefix, services: bool) -> usize {
    let folder = std::env::var_os("NDRX_QPATH").map_or(QUEUE_FOLDER.into(), PathBuf::from);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_stale = |name: &String| match QueueName::parse(prefix, name) {
        Some(QueueName::Service(_)) => services,
        Some(QueueName::Reply { pid, .. }) => !Path::new(&format!("/proc/{pid}")).exists(),
        None => false,
    };
    let removed = names.filter(is_stale).filter(|name| {
        let name = CString::new(format!("/{name}")).expect("a file name has no zero byte");
        MessageQueue::unlink(&name).is_ok()
    });
    removed.count()
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
