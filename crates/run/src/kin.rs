//! Processes and who started them, as `/proc` shows.

use std::collections::BTreeSet;

/// What `/proc/PID/stat` says behind the name, which may hold anything.
pub(crate) struct Stat {
    state: char,
    parent: u32,
}

impl Stat {
    /// That of a process, if there is one.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut words = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = words.next()?.chars().next()?;
        Some(Self { state, parent: words.next()?.parse().ok()? })
    }

    pub(crate) fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Whether a process is there and has not ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| !stat.is_zombie())
}

/// The descendants of a process, without those of this process where it is one of them.
pub(crate) fn descendants(pid: u32) -> BTreeSet<u32> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> =
        pids.filter_map(|pid| Some((pid, Stat::of(pid)?.parent))).collect();
    let mut found = BTreeSet::new();
    loop {
        let is_child = |(child, parent): &&(u32, u32)| {
            *child != own && (*parent == pid || found.contains(parent))
        };
        let children: Vec<u32> = parents.iter().filter(is_child).map(|(child, _)| *child).collect();
        let before = found.len();
        found.extend(children);
        if found.len() == before {
            return found;
        }
    }
}
