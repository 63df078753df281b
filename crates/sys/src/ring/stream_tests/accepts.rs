//! Accepts: every connection has an owner, or is closed.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use super::*;

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    (listener, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let peer = TcpStream::connect(address).expect("a connection");
    peer.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    peer
}

/// `proc_pid_fdinfo(5)`.
fn is_closed_on_exec(socket: &TcpStream) -> bool {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", socket.as_raw_fd()));
    let info = info.expect("our own descriptor");
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("its flags");
    let flags = i32::from_str_radix(flags.trim(), 8).expect("an octal number");
    flags & libc::O_CLOEXEC != 0
}

#[test]
fn many_accepts_come_from_one_request() {
    let mut ring = ring(1);
    let (listener, address) = listener();
    ring.accept(listener.as_raw_fd(), Shots::Many, 7).expect("room");
    for _ in 0..3 {
        let peer = connect(address);
        let mut seen = next(&mut ring);
        assert_eq!((seen.user_data, seen.has_more), (7, true));
        let ours = TcpStream::from(seen.accepted().expect("a connection"));
        assert!(seen.accepted().is_none());
        assert_eq!(ours.peer_addr().ok(), peer.local_addr().ok());
        assert!(is_closed_on_exec(&ours));
    }
    assert_eq!(ring.owned_in_flight(), 1);
}

#[test]
fn a_non_blocking_listener_is_waited_for_all_the_same() {
    for shots in [Shots::One, Shots::Many] {
        let mut ring = ring(1);
        let (listener, address) = listener();
        listener.set_nonblocking(true).expect("a flag set");
        ring.accept(listener.as_raw_fd(), shots, 7).expect("room");
        submit_quietly(&mut ring);
        let _peer = connect(address);
        assert!(next(&mut ring).accepted().is_some());
    }
}

#[test]
fn a_connection_that_is_not_taken_is_closed() {
    let mut ring = ring(1);
    let (listener, address) = listener();
    ring.accept(listener.as_raw_fd(), Shots::One, 7).expect("room");
    let peer = connect(address);
    drop(next(&mut ring));
    assert_end(&peer);
    // And so is one that lies in the queue when the ring is dropped.
    ring.accept(listener.as_raw_fd(), Shots::One, 7).expect("room");
    let peer = connect(address);
    enter(&mut ring, 1, Some(PATIENCE));
    drop(ring);
    assert_end(&peer);
}

#[test]
fn a_cancelled_accept_ends_and_leaves_the_listener_open() {
    let mut ring = ring(1);
    let (listener, address) = listener();
    let request = ring.accept(listener.as_raw_fd(), Shots::Many, 7).expect("room");
    submit_quietly(&mut ring);
    ring.cancel_owned(request, 8).expect("room");
    let mut seen = next(&mut ring);
    assert_eq!((seen.user_data, seen.result, seen.has_more), (7, -libc::ECANCELED, false));
    assert!(seen.accepted().is_none());
    assert_eq!(ring.owned_in_flight(), 0);
    let _peer = connect(address);
    listener.accept().expect("the kernel left it for us");
}

/// Counts descriptors, so it needs a process in which nothing else opens any.
#[test]
fn accepts_that_race_with_their_cancellation_leak_no_descriptor() {
    const NAME: &str = "accepts_that_race_with_their_cancellation_leak_no_descriptor";
    if !is_own_process(module_path!(), NAME, |_| {}) {
        return;
    }
    let mut ring = ring(1);
    let (listener, address) = listener();
    let count = || fs::read_dir("/proc/self/fd").expect("our descriptors").count();
    let before = count();
    for round in 0..300 {
        let request = ring.accept(listener.as_raw_fd(), Shots::Many, 7).expect("room");
        submit_quietly(&mut ring);
        let peer = (round % 3 != 0).then(|| connect(address));
        ring.cancel_owned(request, 8).expect("room");
        while ring.owned_in_flight() > 0 {
            drop(next(&mut ring));
        }
        drop(peer);
        // What the cancelled request left in the backlog.
        listener.set_nonblocking(true).expect("a flag set");
        while listener.accept().is_ok() {}
        listener.set_nonblocking(false).expect("a flag cleared");
    }
    assert_eq!(count(), before);
}

/// A full table of descriptors ends the accept: the caller has to arm it anew. The limit is the
/// one that held when the request was submitted.
#[test]
fn an_accept_without_a_free_descriptor_ends_with_emfile() {
    if !is_own_process(
        module_path!(),
        "an_accept_without_a_free_descriptor_ends_with_emfile",
        |_| {},
    ) {
        return;
    }
    let mut ring = ring(1);
    let (listener, address) = listener();
    let peer = connect(address);
    let limit = libc::rlimit { rlim_cur: peer.as_raw_fd() as u64 + 1, rlim_max: 4096 };
    // SAFETY: `limit` is a valid structure, read during the call.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    assert_eq!(done, 0);
    ring.accept(listener.as_raw_fd(), Shots::Many, 7).expect("room");
    let mut seen = next(&mut ring);
    assert_eq!((seen.user_data, seen.result, seen.has_more), (7, -libc::EMFILE, false));
    assert!(seen.accepted().is_none());
    assert_eq!(ring.owned_in_flight(), 0);
}
