//! What the kernel shows of processes: which there are, what each came from, its threads, whether it has ended, and
//! at which addresses it listens.
//!
//! A server that is started at an address where another one listens already would be measured by the other one's
//! answers.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Error;
use crate::streams::is_ready_within;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

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

/// Whether one of `pids` listens where a connection to `address` arrives; `None` where it can't
/// be known: descriptors of other users' processes can't be read.
pub fn listens_at(pids: &[u32], address: SocketAddr) -> Option<bool> {
    let held: Vec<Option<HashSet<u64>>> = pids.iter().map(|pid| sockets_of(*pid)).collect();
    let mut there = sockets_at(address).peekable();
    // Sockets of another network namespace are not in our tables.
    let is_known = there.peek().is_some() && held.iter().all(Option::is_some);
    let is_theirs = there.any(|inode| held.iter().flatten().any(|held| held.contains(&inode)));
    (is_theirs || is_known).then_some(is_theirs)
}

/// The process that listens there, with its name, where that can be read.
pub fn listener_at(address: SocketAddr) -> Option<(u32, String)> {
    let there: HashSet<u64> = sockets_at(address).collect();
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| sockets_of(*pid).is_some_and(|held| !held.is_disjoint(&there)))?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, name.trim().to_owned()))
}

/// Where these processes listen.
pub fn addresses_of(pids: &[u32]) -> Vec<SocketAddr> {
    let held: HashSet<u64> = pids.iter().filter_map(|pid| sockets_of(*pid)).flatten().collect();
    let mut addresses: Vec<SocketAddr> =
        listening().filter(|(_, inode)| held.contains(inode)).map(|(address, _)| address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
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

/// The sockets that listen where a connection to `address` arrives, by number of their inodes.
fn sockets_at(address: SocketAddr) -> impl Iterator<Item = u64> {
    let arrives = move |at: &SocketAddr| {
        at.port() == address.port() && (at.ip().is_unspecified() || same(at.ip(), address.ip()))
    };
    listening().filter(move |(at, _)| arrives(at)).map(|(_, inode)| inode)
}

fn same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

/// Every listening TCP socket with its inode, read as far as it is asked for. The kernel lists those
/// that listen before all others, which can be tens of thousands and take it seconds; and of those of
/// IPv6 only after a walk over all that are connected.
fn listening() -> impl Iterator<Item = (SocketAddr, u64)> {
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().flat_map(|table| {
        let lines = File::open(table).into_iter().flat_map(|table| BufReader::new(table).lines());
        lines.map_while(Result::ok).skip(1).map_while(|line| listener_in(&line))
    })
}

/// A line `N: ADDRESS:PORT REMOTE STATE … INODE …` of a listening socket; addresses are words of
/// four bytes in the order of the machine (`proc_pid_net(5)`).
fn listener_in(line: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    let (ip, port) = local.split_once(':')?;
    let words = |ip: &str| {
        let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok();
        (0..ip.len() / 8).map(|at| Some(word(at)?.to_ne_bytes())).collect::<Option<Vec<_>>>()
    };
    let ip = match words(ip)?.as_slice() {
        [one] => IpAddr::V4(Ipv4Addr::from(*one)),
        four => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(four.concat()).ok()?)),
    };
    let at = SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?);
    (*state == LISTEN).then_some((at, inode.parse().ok()?))
}

/// The sockets that a process holds; none where they can't be read.
fn sockets_of(pid: u32) -> Option<HashSet<u64>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let inode = |link: std::path::PathBuf| {
        let link = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        link.parse().ok()
    };
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    Some(links.filter_map(inode).collect())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use pollux_testing::wait_until;

    use super::*;

    #[test]
    fn fields_are_counted_behind_any_name() {
        let stat = "7 (a) b) (c) Z 5 7 7 0 -1 4 0 0 0 0 1 2 3 4 20 0 1 0 99 0";
        let stat = Stat::parse(stat).expect("whole");
        assert_eq!((stat.parent, stat.started, stat.is_zombie), (5, 99, true));
        let tick = Duration::from_nanos(1_000_000_000 / rustix::param::clock_ticks_per_second());
        assert_eq!(stat.by_children, tick * 7);
    }

    #[test]
    fn a_listener_is_found_by_the_process_that_holds_it() {
        for any in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::UNSPECIFIED)] {
            let listener = TcpListener::bind((any, 0)).expect("a listener");
            let port = listener.local_addr().expect("its address").port();
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let this = std::process::id();
            assert_eq!(listens_at(&[this], address), Some(true));
            assert_eq!(listens_at(&[], address), Some(false));
            // A child that another test forks has the listener too until it executes its program.
            wait_until("its owner", || listener_at(address).is_some_and(|(pid, _)| pid == this));
            assert!(addresses_of(&[this]).contains(&SocketAddr::new(any, port)));
            drop(listener);
            // By then another process may listen there.
            wait_until("the end", || listens_at(&[this], address) != Some(true));
        }
    }

    #[test]
    fn both_families_are_read_and_only_listeners() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                    0 0 4711 1 0000000000000000 100 0 0 10 0";
        let native = |ip: [u8; 4]| SocketAddr::from((ip, 8080));
        let expected = native(0x0100_007F_u32.to_ne_bytes());
        assert_eq!(listener_in(line), Some((expected, 4711)));
        let line = "0: 00000000000000000000000000000000:0050 0:0 0A 0:0 0:0 0 0 0 12 1";
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
        assert_eq!(listener_in(line), Some((any, 12)));
        assert_eq!(listener_in(&line.replace("0A", "01")), None);
        assert_eq!(listener_in("sl local_address rem_address st"), None);
    }
}
