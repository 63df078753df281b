//! What a request hands over or references: every accepted connection has an owner, or is closed; what a cancelled
//! request or one of a dropped ring references lives as long as it does.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread;

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
    let Some(mut ring) = ring(1) else { return };
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
        let Some(mut ring) = ring(1) else { return };
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
    let Some(mut ring) = ring(1) else { return };
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
    let Some(mut ring) = ring(1) else { return };
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
    let Some(mut ring) = ring(1) else { return };
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
    let Some(mut ring) = ring(1) else { return };
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

#[test]
fn a_cancelled_send_keeps_its_buffer_until_its_own_completion() {
    let Some(mut ring) = ring(1) else { return };
    let (ours, _peer) = pair();
    stuff(&ours);
    let request = ring.send_owned(ours.as_raw_fd(), pattern(5000), 10, 7).expect("room");
    submit_quietly(&mut ring);
    ring.cancel_owned(request, 8).expect("room");
    assert_eq!(ring.owned_in_flight(), 1);
    let seen = next(&mut ring);
    assert_eq!((seen.user_data, seen.result), (7, -libc::ECANCELED));
    assert_eq!(seen.returned, Some(pattern(5000)));
    assert_eq!(ring.owned_in_flight(), 0);
    submit_quietly(&mut ring);
}

#[test]
fn a_send_that_was_cancelled_before_it_was_submitted_ends_once() {
    let Some(mut ring) = ring(1) else { return };
    let (ours, _peer) = pair();
    stuff(&ours);
    let request = ring.send_owned(ours.as_raw_fd(), pattern(50), 0, 7).expect("room");
    ring.cancel_owned(request, 8).expect("room");
    let seen = next(&mut ring);
    assert_eq!((seen.user_data, seen.result), (7, -libc::ECANCELED));
    assert_eq!(seen.returned, Some(pattern(50)));
    submit_quietly(&mut ring);
}

#[test]
fn a_request_that_is_cancelled_again_and_again_ends_once() {
    let Some(mut ring) = ring(1) else { return };
    let (ours, _peer) = pair();
    stuff(&ours);
    let request = ring.send_owned(ours.as_raw_fd(), pattern(50), 0, 7).expect("room");
    submit_quietly(&mut ring);
    for user_data in [8, 9] {
        ring.cancel_owned(request, user_data).expect("room");
    }
    let seen = next(&mut ring);
    assert_eq!((seen.user_data, seen.result), (7, -libc::ECANCELED));
    submit_quietly(&mut ring);
    ring.cancel_owned(request, 10).expect("room");
    let answer = next(&mut ring);
    assert_eq!((answer.user_data, answer.result), (10, -libc::ENOENT));
}

#[test]
fn a_cancellation_that_comes_late_finds_nothing_and_spares_the_next_request() {
    let Some(mut ring) = ring(1) else { return };
    let (ours, peer) = pair();
    let fd = ours.as_raw_fd();
    let gone = ring.send_owned(fd, b"hello".to_vec(), 0, 7).expect("room");
    assert_eq!(next(&mut ring).result, 5);
    let stuffed = stuff(&ours);
    // Takes the place of the first.
    ring.send_owned(fd, b"again".to_vec(), 0, 9).expect("room");
    ring.cancel_owned(gone, 8).expect("room");
    let answer = next(&mut ring);
    assert_eq!((answer.user_data, answer.result), (8, -libc::ENOENT));
    read(&peer, 5 + stuffed);
    let seen = next(&mut ring);
    assert_eq!((seen.user_data, seen.result), (9, 5));
}

/// The cancellation and the peer race: whichever wins, the request ends once, hands its buffer
/// back once, and what it says is what the peer got.
#[test]
fn every_outcome_of_a_racing_cancellation_ends_the_request_once() {
    let Some(mut ring) = ring(4) else { return };
    let (go, gone) = mpsc::channel::<(UnixStream, usize)>();
    let (sender, receiver) = mpsc::channel();
    let peers = thread::spawn(move || {
        for (peer, stuffed) in gone {
            read(&peer, stuffed);
            sender.send(peer).expect("the test waits");
        }
    });
    let mut sent = 0;
    let mut cancelled = 0;
    for round in 0..200 {
        let (has_peer_read, looks) = [(true, 1), (true, 0), (false, 1), (false, 0)][round % 4];
        let (ours, peer) = pair();
        let stuffed = stuff(&ours);
        let request = ring.send_owned(ours.as_raw_fd(), pattern(40), 0, 7).expect("room");
        submit_quietly(&mut ring);
        go.send((peer, stuffed)).expect("the peer waits");
        let peer = has_peer_read.then(|| receiver.recv_timeout(PATIENCE).expect("the peer"));
        for _ in 0..looks {
            enter(&mut ring, 0, None);
        }
        ring.cancel_owned(request, 8).expect("room");
        let result = race(&mut ring);
        let peer = peer.unwrap_or_else(|| receiver.recv_timeout(PATIENCE).expect("the peer"));
        drop(ours);
        let expected = usize::try_from(result).unwrap_or(0);
        assert_eq!(read(&peer, expected), pattern(40)[..expected]);
        assert_end(&peer);
        *if result > 0 { &mut sent } else { &mut cancelled } += 1;
    }
    drop(go);
    peers.join().expect("the peers");
    assert!(sent > 0 && cancelled > 0, "{sent} sent, {cancelled} cancelled");
}

/// The result of request 7, of which cancellation 8 may have an opinion.
fn race(ring: &mut StreamRing) -> i32 {
    let mut result = None;
    while result.is_none() {
        let seen = next(ring);
        if seen.user_data == 7 {
            assert_eq!(seen.returned, Some(pattern(40)));
            assert!(seen.result == 40 || seen.result == -libc::ECANCELED, "{seen:?}");
            result = Some(seen.result);
        } else {
            assert!([-libc::ENOENT, -libc::EALREADY].contains(&seen.result), "{seen:?}");
        }
    }
    enter(ring, 0, None);
    while let Some(seen) = ring.next_completion() {
        assert_eq!(seen.user_data, 8, "the request had ended");
    }
    result.expect("the loop ends with one")
}

#[test]
fn a_ring_that_is_dropped_ends_its_requests_first() {
    if !is_own_process(module_path!(), "a_ring_that_is_dropped_ends_its_requests_first", |_| {}) {
        return;
    }
    let (ours, peer) = pair();
    let (stuck, _stuck_peer) = pair();
    stuff(&stuck);
    {
        let Some(mut ring) = ring(4) else { return };
        let fd = stuck.as_raw_fd();
        ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
        ring.poll(fd, libc::POLLIN as u32, Shots::Many, 6).expect("room");
        ring.send_owned(fd, pattern(5000), 0, 8).expect("room");
        submit_quietly(&mut ring);
        // Queued and not submitted.
        ring.receive(fd, Shots::One, 9).expect("room");
        ring.send_owned(fd, pattern(5000), 0, 8).expect("room");
    }
    // No request holds the file any more: this is its last descriptor.
    drop(ours);
    assert_ended_already(&peer);
}

#[test]
fn a_ring_that_is_dropped_knows_of_a_receive_that_continues() {
    if !is_own_process(
        module_path!(),
        "a_ring_that_is_dropped_knows_of_a_receive_that_continues",
        |_| {},
    ) {
        return;
    }
    let (ours, mut peer) = pair();
    {
        let Some(mut ring) = ring(4) else { return };
        let (other, _other_peer) = pair();
        ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
        ring.receive(other.as_raw_fd(), Shots::One, 8).expect("room");
        ring.cancel(8, 9).expect("room");
        assert_eq!(next(&mut ring).result, -libc::ECANCELED);
        peer.write_all(b"x").expect("sent");
        let seen = next(&mut ring);
        assert!(seen.has_more);
        assert_eq!(text(&mut ring, seen), b"x");
        assert_eq!(ring.ledger.armed, 1);
    }
    drop(ours);
    assert_ended_already(&peer);
}

#[test]
fn a_ring_that_is_dropped_submits_what_is_queued() {
    let (ours, peer) = tcp_pair();
    {
        let Some(mut ring) = ring(1) else { return };
        ring.spare()[..3].copy_from_slice(b"bye");
        ring.send_spare(ours.as_raw_fd(), 3, 7).expect("room");
        ring.close(ours.into(), 8).expect("room");
    }
    assert_eq!(read(&peer, 3), b"bye");
    assert_end(&peer);
}

#[test]
fn a_ring_that_is_dropped_with_a_full_queue_ends_all_the_same() {
    if !is_own_process(
        module_path!(),
        "a_ring_that_is_dropped_with_a_full_queue_ends_all_the_same",
        |_| {},
    ) {
        return;
    }
    let (ours, peer) = pair();
    {
        let Some(mut ring) = ring(4) else { return };
        while ring.receive(ours.as_raw_fd(), Shots::One, 7).is_ok() {}
        assert_eq!(ring.queued(), 16);
    }
    drop(ours);
    assert_ended_already(&peer);
}

/// Closing a ring ends its requests too, but some time later. What would delay the end as well has
/// no place in such a test: TCP, and children of other tests, which have every descriptor until
/// they execute.
fn assert_ended_already(peer: &UnixStream) {
    peer.set_nonblocking(true).expect("a flag set");
    assert_end(peer);
}

#[test]
fn a_ring_that_cannot_be_entered_keeps_what_its_requests_reference() {
    let (stuck, _peer) = pair();
    stuff(&stuck);
    let Some(mut ring) = ring(4) else { return };
    let buffer = pattern(5000);
    let addresses = [buffer.as_ptr() as u64, ring.ledger.pool.ring_address()];
    let before = addresses.map(word_at);
    ring.send_owned(stuck.as_raw_fd(), buffer, 0, 8).expect("room");
    submit_quietly(&mut ring);
    ring.ring.door = Door::to(-1);
    drop(ring);
    // The allocator would have left its own marks in what it was given back.
    assert_eq!(addresses.map(word_at), before);
}

#[test]
fn a_ring_whose_buffers_are_lent_keeps_them() {
    let Some(mut ring) = ring(1) else { return };
    let (ours, mut peer) = pair();
    ring.receive(ours.as_raw_fd(), Shots::One, 7).expect("room");
    peer.write_all(b"x").expect("sent");
    let seen = next(&mut ring);
    let address = ring.ledger.pool.ring_address();
    let before = word_at(address);
    drop(ring);
    assert_eq!(word_at(address), before);
    assert!(seen.received.is_some());
}

fn word_at(address: u64) -> u64 {
    let word = address as *const u64;
    // SAFETY: what stands there was initialised, and is kept for good where it has an owner no
    // more: that is what the tests that call this look for.
    unsafe { word.read_unaligned() }
}

/// The child has a copy of all memory but the two queues, which it shares with its parent. Pages of the others are
/// shared until one of the two writes to them, which must not part the parent from what the kernel fills.
#[test]
fn a_child_that_has_a_copy_of_a_ring_or_drops_it_takes_nothing_from_its_parent() {
    let test = "a_child_that_has_a_copy_of_a_ring_or_drops_it_takes_nothing_from_its_parent";
    if !is_own_process(module_path!(), test, |_| {}) {
        return;
    }
    let sizes = Sizes { submission: 16, completion: 64 };
    for (is_incremental, is_dropped) in [(false, false), (false, true), (true, false), (true, true)]
    {
        let receive = ReceiveBuffers { count: 4, bytes: BUFFER_BYTES, is_incremental };
        let Some(mut ring) = ring_with(sizes, receive) else { return };
        let (ours, mut peer) = tcp_pair();
        ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
        submit_quietly(&mut ring);
        // A completion was not taken, and a request was not submitted.
        peer.write_all(b"first").expect("sent");
        while !ring.has_completions() {
            enter(&mut ring, 1, Some(PATIENCE));
        }
        ring.spare()[..5].copy_from_slice(b"hello");
        ring.send_spare(ours.as_raw_fd(), 5, 8).expect("room");
        let mut ring = Some(ring);
        let _child = Child::after(|| {
            if is_dropped {
                drop(ring.take());
            }
        });
        let mut ring = ring.expect("the child dropped its own");
        let seen = next(&mut ring);
        assert_eq!((seen.user_data, seen.has_more), (7, true), "{receive}, dropped {is_dropped}");
        assert_eq!(text(&mut ring, seen), b"first");
        assert_eq!(ring.queued(), 1, "{receive}, dropped {is_dropped}");
        submit_quietly(&mut ring);
        assert_eq!(read(&peer, 5), b"hello");
        for round in 0..20_u8 {
            let sent = [round; 10];
            peer.write_all(&sent).expect("sent");
            let mut bytes = Vec::new();
            while bytes.len() < sent.len() {
                let seen = next(&mut ring);
                assert_eq!((seen.user_data, seen.has_more), (7, true));
                bytes.extend(text(&mut ring, seen));
            }
            assert_eq!(bytes, sent);
            ring.spare()[..10].copy_from_slice(&sent);
            ring.send_spare(ours.as_raw_fd(), 10, 8).expect("room");
            submit_quietly(&mut ring);
            assert_eq!(read(&peer, 10), sent);
            assert!(ring.reset_arena());
        }
    }
}

/// A thread has sixteen registered indices; one that is kept also keeps its ring open.
#[test]
fn a_ring_that_is_dropped_gives_its_index_back() {
    for _ in 0..20 {
        let Some(ring) = ring(1) else { return };
        let refused = &ring.setup().refused;
        assert!(!refused.iter().any(|line| line.contains("registered index")), "{refused:?}");
    }
}
