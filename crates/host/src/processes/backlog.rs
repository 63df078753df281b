//! How many connections a listening socket takes that nobody has accepted yet, as the kernel says by `sock_diag(7)`:
//! its limit, how many wait, and how many it has dropped since it listens.
//!
//! What does not fit is dropped without a word, and the client's kernel tries again after a second, then two, then
//! four: a server with a small backlog is measured by these pauses unless the limit is known where connections are opened.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x1 | 0x300;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The header of a message of netlink, and what `inet_diag_req_v2` and `inet_diag_msg` take.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
const ENTRY_BYTES: usize = 72;
/// Of `inet_diag_msg`: its local address, and for a listener how many wait and how many may.
const ADDRESS_AT: usize = 8;
const WAITING_AT: usize = 56;
const LIMIT_AT: usize = 60;
/// `INET_DIAG_SKMEMINFO`, the attribute that is asked for, and `SK_MEMINFO_DROPS` in it.
const SKMEMINFO: u16 = 7;
const DROPS_INDEX: usize = 8;
/// State `TCP_LISTEN`.
const LISTEN: u32 = 1 << 10;
const IPPROTO_TCP: u8 = 6;
/// A part of the answer of the kernel is never longer.
const PART_BYTES: usize = 32 << 10;
/// The kernel answers at once; one that does not is not waited for.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// What a listening socket holds of connections that are not accepted yet. Of several that share a port, the smallest
/// limit and the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// How many may wait; one more than that fits.
    pub limit: u32,
    /// How many wait now.
    pub waiting: u32,
    /// How many were dropped since it listens, for this or another reason; none where the kernel does not say.
    pub dropped: Option<u32>,
}

/// The backlog of what listens where a connection to `address` arrives; none where nothing listens there.
///
/// # Errors
/// The kernel has no `sock_diag`, or a filter forbids it.
pub fn backlog_at(address: SocketAddr) -> io::Result<Option<Backlog>> {
    let mut found: Option<Backlog> = None;
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        for (at, backlog) in listeners(family, address.port())? {
            let at = at.to_canonical();
            if !at.is_unspecified() && at != address.ip().to_canonical() {
                continue;
            }
            found = Some(match found {
                None => backlog,
                Some(other) => Backlog {
                    limit: backlog.limit.min(other.limit),
                    waiting: backlog.waiting + other.waiting,
                    dropped: backlog.dropped.zip(other.dropped).map(|(one, other)| one + other),
                },
            });
        }
    }
    Ok(found)
}

/// The listening TCP sockets of a family at a port.
fn listeners(family: AddressFamily, port: u16) -> io::Result<Vec<(IpAddr, Backlog)>> {
    let flags = SocketFlags::CLOEXEC;
    let kind = Some(netlink::SOCK_DIAG);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, kind)?;
    send(&socket, &request(family, port), SendFlags::empty())?;
    let mut found = Vec::new();
    let mut part = vec![0; PART_BYTES];
    loop {
        let time = Timespec::try_from(ANSWER_TIME_MAX).map_err(io::Error::other)?;
        if poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&time))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (len, _) = recv(&socket, &mut part[..], RecvFlags::empty())?;
        if read_part(&part[..len], family, &mut found)? {
            return Ok(found);
        }
    }
}

fn request(family: AddressFamily, port: u16) -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    let wanted = &mut request[HEADER_BYTES..];
    wanted[0] = family.as_raw() as u8;
    wanted[1] = IPPROTO_TCP;
    wanted[2] = 1 << (SKMEMINFO - 1);
    wanted[4..8].copy_from_slice(&LISTEN.to_ne_bytes());
    wanted[8..10].copy_from_slice(&port.to_be_bytes());
    request
}

/// Reads messages into `found`; whether the last has come.
fn read_part(
    mut part: &[u8],
    family: AddressFamily,
    found: &mut Vec<(IpAddr, Backlog)>,
) -> io::Result<bool> {
    while let (Some(len), Some(kind)) = (word(part, 0), half(part, 4)) {
        let len = (len as usize).clamp(HEADER_BYTES, part.len().max(HEADER_BYTES));
        let body = part.get(HEADER_BYTES..len).unwrap_or_default();
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let errno = word(body, 0).unwrap_or_default().cast_signed();
                return Err(io::Error::from_raw_os_error(errno.wrapping_neg()));
            }
            _ => found.extend(entry(body, family)),
        }
        part = part.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn entry(body: &[u8], family: AddressFamily) -> Option<(IpAddr, Backlog)> {
    let ip = match family {
        AddressFamily::INET => {
            IpAddr::from(<[u8; 4]>::try_from(body.get(ADDRESS_AT..ADDRESS_AT + 4)?).ok()?)
        }
        _ => IpAddr::from(<[u8; 16]>::try_from(body.get(ADDRESS_AT..ADDRESS_AT + 16)?).ok()?),
    };
    let waiting = word(body, WAITING_AT)?;
    let limit = word(body, LIMIT_AT)?;
    let dropped = dropped(body.get(ENTRY_BYTES..).unwrap_or_default());
    Some((ip, Backlog { limit, waiting, dropped }))
}

/// Among attributes: length, kind, value, each at a multiple of four.
fn dropped(mut attributes: &[u8]) -> Option<u32> {
    while let (Some(len), Some(kind)) = (half(attributes, 0), half(attributes, 2)) {
        let len = usize::from(len).max(4);
        if kind == SKMEMINFO {
            return word(attributes.get(4..len)?, DROPS_INDEX * 4);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    use pollux_testing::{skip, wait_until};
    use rustix::net::listen;

    use super::*;

    /// What is said of a listener at `address`; none where this machine does not say it.
    fn said(address: SocketAddr) -> Option<Backlog> {
        match backlog_at(address) {
            Ok(found) => Some(found.expect("it listens")),
            Err(error) => {
                skip(format_args!("sock_diag: {error}"));
                None
            }
        }
    }

    #[test]
    fn the_limit_of_a_listener_is_read_with_what_waits_and_what_was_dropped() {
        for any in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let Ok(listener) = TcpListener::bind((any, 0)) else {
                skip("no IPv6 here");
                continue;
            };
            // Asked again, it takes the new limit.
            listen(&listener, 5).expect("it listens");
            let port = listener.local_addr().expect("its address").port();
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let Some(empty) = said(address) else { return };
            assert_eq!((empty.limit, empty.waiting), (5, 0), "{any}");
            let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300));
            let full: Vec<_> = (0..6).map(|_| connect().expect("it fits")).collect();
            wait_until("six wait", || said(address).is_some_and(|now| now.waiting == 6));
            assert!(connect().is_err(), "the seventh does not fit");
            let dropped = said(address).and_then(|now| now.dropped);
            assert!(dropped.is_none_or(|dropped| dropped > 0), "{dropped:?}");
            drop(full);
        }
    }

    #[test]
    fn where_nothing_listens_there_is_no_backlog() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let other = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 9), {
            listener.local_addr().expect("its address").port()
        }));
        if let Ok(found) = backlog_at(other) {
            assert_eq!(found, None, "it listens at 127.0.0.1 alone");
        }
    }

    #[test]
    fn what_is_cut_short_answers_nothing_and_a_refusal_is_its_errno() {
        let mut found = Vec::new();
        let whole = request(AddressFamily::INET, 80);
        for len in 0..whole.len() {
            let read = read_part(&whole[..len], AddressFamily::INET, &mut found);
            assert!(!read.expect("no refusal"), "{len}");
        }
        let mut refused = whole;
        refused[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        refused[16..20].copy_from_slice(&(-1_i32).to_ne_bytes());
        let error = read_part(&refused, AddressFamily::INET, &mut found).expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(1));
        assert_eq!(found, []);
    }
}
