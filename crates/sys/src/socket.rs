//! What rustix lacks about sockets.
//!
//! Called by programs that open many connections from one machine, the lab and the load generator, and
//! by the loops of the engine for how much of their output a peer has not taken.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Leaves the choice of the local port to `connect(2)` (`IP_BIND_ADDRESS_NO_PORT`, `ip(7)`).
///
/// Set before a bind to an address and port 0. The kernel then needs a port that is free towards
/// the one destination and not towards all of them, so one address reaches each destination with
/// its whole range of ports.
///
/// # Errors
/// ENOPROTOOPT for a socket that is not of the internet family.
pub fn bind_address_no_port(socket: impl AsFd) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let on: libc::c_int = 1;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const on).cast();
    // SAFETY: `value` points to an int of `len` bytes that outlives the call, which only reads it.
    let set = unsafe {
        libc::setsockopt(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, value, len)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has a TCP socket take no more bytes, and not be writable, while so many wait in it that were not sent for the first
/// time (`TCP_NOTSENT_LOWAT`, `tcp(7)`). What was sent and not acknowledged does not count: throughput stays.
///
/// # Errors
/// ENOPROTOOPT or EOPNOTSUPP for a socket that is not of TCP.
pub fn limit_unsent(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let len = size_of::<u32>() as libc::socklen_t;
    let value = (&raw const bytes).cast();
    // SAFETY: `value` points to an int of `len` bytes that outlives the call, which only reads it.
    let set =
        unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, len) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a peer has not taken yet of the bytes that were sent to it (`SIOCOUTQ`, `tcp(7)`).
///
/// * TCP: bytes that the peer's kernel has not acknowledged, with 1 for an end that was sent.
///   What waits in the peer's receive buffer counts as taken: nothing reports it.
/// * Unix stream sockets: bytes that the peer has not read, with the kernel's bookkeeping for
///   them, some hundred bytes for each send. A piece counts until it was read whole.
///
/// # Errors
/// EINVAL for a socket that listens, ENOTTY for what is not a socket.
pub fn outq_bytes(socket: impl AsFd) -> io::Result<u64> {
    let fd = socket.as_fd().as_raw_fd();
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, writes one int to the place that the
    // third argument points to; `bytes` is one and outlives the call.
    let asked = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    if asked < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// The supplementary groups of the process at the other end of a connected Unix socket
/// (`SO_PEERGROUPS`, `unix(7)`, since Linux 4.13), as they were when it connected or began to listen.
///
/// # Errors
/// ENODATA for a socket that is not connected, ENOTSOCK.
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    /// Groups that one process has at most (NGROUPS_MAX).
    const GROUPS_MAX: usize = 65_536;
    let fd = socket.as_fd().as_raw_fd();
    for room in [64, GROUPS_MAX] {
        let mut groups = vec![0_u32; room];
        let mut len = size_of_val(groups.as_slice()) as libc::socklen_t;
        let place = groups.as_mut_ptr().cast();
        // SAFETY: `place` is that of `len` bytes which outlive the call; it writes no more, and how many to `len`.
        let got = unsafe {
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERGROUPS, place, &raw mut len)
        };
        if got == 0 {
            groups.truncate(len as usize / size_of::<u32>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) {
            return Err(error);
        }
    }
    Err(io::Error::from_raw_os_error(libc::ERANGE))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    #[test]
    fn an_internet_socket_takes_it_and_another_says_why_not() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        bind_address_no_port(&socket).expect("set");
        let (other, _) = UnixDatagram::pair().expect("a pair");
        let error = bind_address_no_port(&other).expect_err("not of the internet family");
        assert!(error.raw_os_error().is_some());
    }

    #[test]
    fn the_groups_of_a_peer_are_those_of_its_process() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let status = std::fs::read_to_string("/proc/self/status").expect("readable");
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).expect("a line");
        let mut own: Vec<u32> =
            line.split_whitespace().map(|group| group.parse().expect("a number")).collect();
        let mut found = peer_groups(&ours).expect("a peer");
        own.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, own);
        peer_groups(UdpSocket::bind("127.0.0.1:0").expect("a socket")).expect_err("no peer");
    }

    /// Sends until the socket is full; says how much that was.
    fn fill(socket: &mut impl Write) -> u64 {
        let mut sent = 0;
        while let Ok(taken @ 1..) = socket.write(&[b'x'; 10_000]) {
            sent += taken as u64;
        }
        sent
    }

    #[test]
    fn bytes_that_a_unix_peer_has_not_read_are_untaken() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        assert_eq!(outq_bytes(&ours).expect("an ioctl"), 0);
        ours.set_nonblocking(true).expect("set");
        let sent = fill(&mut ours);
        let full = outq_bytes(&ours).expect("an ioctl");
        assert!(full >= sent, "{full} of {sent}");
        theirs.read_exact(&mut vec![0; sent as usize / 2]).expect("read");
        let half = outq_bytes(&ours).expect("an ioctl");
        assert!(0 < half && half < full, "{half} of {full}");
        theirs.read_exact(&mut vec![0; (sent - sent / 2) as usize]).expect("read");
        assert_eq!(outq_bytes(&ours).expect("an ioctl"), 0);
    }

    #[test]
    fn a_socket_with_a_limit_of_unsent_bytes_takes_few_more_than_fit_into_its_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let pair = || {
            let theirs = TcpStream::connect(listener.local_addr().expect("bound")).expect("there");
            let (ours, _) = listener.accept().expect("accepted");
            ours.set_nonblocking(true).expect("set");
            (ours, theirs)
        };
        let (mut plain, _other) = pair();
        let (mut limited, _another) = pair();
        limit_unsent(&limited, 64 * 1024).expect("set");
        let plain = fill(&mut plain);
        let limited = fill(&mut limited);
        // What fits into the receiver is the same; what waits here is not.
        assert!(limited + (1 << 20) < plain, "{limited} of {plain}");
        let (unix, _peer) = UnixStream::pair().expect("a pair");
        limit_unsent(&unix, 1).expect_err("not TCP");
    }

    #[test]
    fn bytes_that_a_tcp_peer_has_no_room_for_are_untaken() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let mut theirs = TcpStream::connect(listener.local_addr().expect("bound")).expect("there");
        let (mut ours, _) = listener.accept().expect("accepted");
        ours.set_nonblocking(true).expect("set");
        let sent = fill(&mut ours);
        let untaken = outq_bytes(&ours).expect("an ioctl");
        assert!(0 < untaken && untaken <= sent, "{untaken} of {sent}");
        theirs.read_exact(&mut vec![0; sent as usize]).expect("read");
        // The last acknowledgement may be delayed (40 ms and more).
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while outq_bytes(&ours).expect("an ioctl") > 0 {
            assert!(std::time::Instant::now() < end, "never acknowledged");
            std::thread::yield_now();
        }
        assert!(outq_bytes(&listener).is_err());
    }
}
