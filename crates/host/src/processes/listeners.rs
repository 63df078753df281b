//! Which process listens at which address, as `/proc` shows it.
//!
//! A server that is started at an address where another one listens already would be measured by the other one's
//! answers.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::proc::pids;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

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
    let pid = pids().find(|pid| sockets_of(*pid).is_some_and(|held| !held.is_disjoint(&there)))?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, name.trim().to_owned()))
}

/// Where these processes listen; `None` where nothing is found and the descriptors of one can't be read.
pub fn addresses_of(pids: &[u32]) -> Option<Vec<SocketAddr>> {
    let held: Vec<Option<HashSet<u64>>> = pids.iter().map(|pid| sockets_of(*pid)).collect();
    let is_known = held.iter().all(Option::is_some);
    let held: HashSet<u64> = held.into_iter().flatten().flatten().collect();
    let mut addresses: Vec<SocketAddr> =
        listening().filter(|(_, inode)| held.contains(inode)).map(|(address, _)| address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    (is_known || !addresses.is_empty()).then_some(addresses)
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
pub(super) fn listening() -> impl Iterator<Item = (SocketAddr, u64)> {
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().flat_map(|table| {
        let lines = File::open(table).into_iter().flat_map(|table| BufReader::new(table).lines());
        lines.map_while(Result::ok).skip(1).map_while(|line| listener_in(&line))
    })
}

/// A line `N: ADDRESS:PORT REMOTE STATE … INODE …` of a listening socket; addresses are words of
/// four bytes in the order of the machine (`proc_pid_net(5)`).
fn listener_in(line: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let local = fields.get(1)?;
    let state = fields.get(3)?;
    let inode = fields.get(9)?;
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

/// The sockets that a process holds; none where they can't be read. Root in a container lists the descriptors of others,
/// and may not read what they are.
pub(super) fn sockets_of(pid: u32) -> Option<HashSet<u64>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let inode = |link: PathBuf| {
        let link = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        link.parse::<u64>().ok()
    };
    let mut sockets = HashSet::new();
    for entry in entries.flatten() {
        match std::fs::read_link(entry.path()) {
            Ok(link) => sockets.extend(inode(link)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
            // It was closed meanwhile.
            Err(_) => {}
        }
    }
    Some(sockets)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use pollux_testing::wait_until;

    use super::*;

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
            let addresses = addresses_of(&[this]).expect("the own ones");
            assert!(addresses.contains(&SocketAddr::new(any, port)));
            drop(listener);
            // By then another process may listen there.
            wait_until("the end", || listens_at(&[this], address) != Some(true));
        }
    }

    /// Those of another user, for root in a container; those of the first process, for most users.
    #[test]
    fn a_process_whose_descriptors_cannot_be_read_is_not_said_to_listen_nowhere() {
        let mut command = std::process::Command::new("sleep");
        command.arg("600").stdin(std::process::Stdio::null());
        if rustix::process::geteuid().is_root() {
            std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        }
        let mut other = command.spawn().expect("it starts");
        for pid in [1, other.id()] {
            let link = std::fs::read_link(format!("/proc/{pid}/fd/0"));
            let is_denied = |error: &std::io::Error| error.kind() == ErrorKind::PermissionDenied;
            let is_readable = !link.as_ref().is_err_and(is_denied);
            assert_eq!(addresses_of(&[pid]).is_some(), is_readable, "{pid}");
            let at = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
            let address = at.local_addr().expect("its address");
            assert_eq!(listens_at(&[pid], address).is_some(), is_readable, "{pid}");
        }
        other.kill().and_then(|()| other.wait()).expect("it ends");
        assert_eq!(addresses_of(&[]), Some(Vec::new()));
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
