//! Sends: nothing is lost, doubled or overtaken, and the arena is reused only when it is free.

use std::os::fd::OwnedFd;

use super::*;

/// Writes `bytes` into the arena and sends them from there.
fn send(ring: &mut StreamRing, fd: i32, bytes: &[u8], user_data: u64) -> Sent {
    ring.spare()[..bytes.len()].copy_from_slice(bytes);
    ring.send_spare(fd, bytes.len(), user_data).expect("room")
}

#[test]
fn a_send_that_is_taken_whole_says_nothing() {
    let mut ring = ring(1);
    let (ours, peer) = tcp_pair();
    let sent = send(&mut ring, ours.as_raw_fd(), b"hello", 7);
    assert_eq!(ring.sent_bytes(sent), Some(b"hello".as_slice()));
    submit_quietly(&mut ring);
    assert_eq!(read(peer, 5), b"hello");
}

#[test]
fn the_tail_of_a_send_that_was_cut_short_is_recovered() {
    let mut ring = ring(1);
    let (ours, peer) = pair();
    let fd = ours.as_raw_fd();
    let all = pattern(1 << 20);
    let sent = send(&mut ring, fd, &all, 7);
    let cut = next(&mut ring);
    let taken = usize::try_from(cut.result).expect("some of it was taken");
    assert!(cut.user_data == 7 && taken > 0 && taken < all.len());
    let mut tail = ring.sent_bytes(sent).expect("still there")[taken..].to_vec();
    assert!(ring.reset_arena());
    assert_eq!(ring.sent_bytes(sent), None);
    ring.spare().fill(0);

    let len = all.len();
    let reader = std::thread::spawn(move || read(peer, len));
    let mut from = 0;
    while from < tail.len() {
        ring.send_owned(fd, tail, from, 8).expect("room");
        let went = next(&mut ring);
        from += usize::try_from(went.result).expect("the peer reads");
        tail = went.returned.expect("the buffer comes back");
    }
    assert_eq!(reader.join().expect("the peer"), all);
}

#[test]
fn a_send_to_a_full_socket_fails_at_once_and_keeps_its_bytes() {
    let mut ring = ring(1);
    let (ours, _peer) = pair();
    stuff(&ours);
    let sent = send(&mut ring, ours.as_raw_fd(), b"hello", 7);
    let seen = next(&mut ring);
    assert_eq!((seen.user_data, seen.result), (7, -libc::EAGAIN));
    assert_eq!(ring.sent_bytes(sent), Some(b"hello".as_slice()));
}

#[test]
fn two_sends_on_one_socket_keep_their_order() {
    let mut ring = ring(1);
    let (ours, peer) = tcp_pair();
    for round in 0..50_u8 {
        send(&mut ring, ours.as_raw_fd(), &[round; 100], 7);
        send(&mut ring, ours.as_raw_fd(), &[round + 100; 300], 7);
        submit_quietly(&mut ring);
        assert!(ring.reset_arena());
        let seen = read(&peer, 400);
        assert!(seen[..100] == [round; 100] && seen[100..] == [round + 100; 300]);
    }
}

#[test]
fn the_arena_is_not_reset_while_a_send_is_queued() {
    let mut ring = ring(1);
    let (ours, peer) = pair();
    let len = ring.spare().len();
    send(&mut ring, ours.as_raw_fd(), b"hello", 7);
    assert_eq!(ring.spare().len(), len - 5);
    assert!(!ring.reset_arena());
    assert_eq!(ring.spare().len(), len - 5);
    submit_quietly(&mut ring);
    assert!(ring.reset_arena());
    assert_eq!(ring.spare().len(), len);
    ring.spare().fill(b'!');
    assert_eq!(read(peer, 5), b"hello");
}

#[test]
#[should_panic(expected = "what is spare")]
fn a_send_of_more_than_is_spare_is_refused() {
    let mut ring = ring(1);
    let len = ring.spare().len();
    let _ = ring.send_spare(0, len + 1, 7);
}

#[test]
fn a_full_queue_gives_back_what_it_was_given() {
    let mut ring = ring(1);
    let (ours, peer) = pair();
    let fd = ours.as_raw_fd();
    while ring.cancel(1, 2).is_ok() {}
    let spare = ring.spare().len();
    assert_eq!(ring.send_spare(fd, 5, 7), Err(QueueFull));
    assert_eq!(ring.spare().len(), spare);
    let (_full, buffer) = ring.send_owned(fd, b"hello".to_vec(), 0, 7).expect_err("no room");
    assert_eq!(buffer, b"hello");
    assert_eq!(ring.receive(fd, Shots::One, 7), Err(QueueFull));
    assert_eq!(ring.accept(fd, Shots::One, 7), Err(QueueFull));
    let (_full, ours) = ring.close(OwnedFd::from(ours), 7).expect_err("no room");
    assert_eq!(ring.owned_in_flight(), 0);
    (&UnixStream::from(ours)).write_all(b"open").expect("not closed");
    assert_eq!(read(peer, 4), b"open");
}

/// The test's own process takes SIGPIPE as it is by default: deadly.
#[test]
fn a_send_to_a_peer_that_is_gone_raises_no_signal() {
    if !is_own_process(module_path!(), "a_send_to_a_peer_that_is_gone_raises_no_signal", |_| {}) {
        return;
    }
    // SAFETY: the default action replaces the runtime's "ignore"; no handler runs.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut ring = ring(1);
    let (ours, peer) = pair();
    drop(peer);
    send(&mut ring, ours.as_raw_fd(), b"hello", 7);
    let seen = next(&mut ring);
    assert_eq!((seen.user_data, seen.result), (7, -libc::EPIPE));
    ring.send_owned(ours.as_raw_fd(), b"hello".to_vec(), 0, 8).expect("room");
    let seen = next(&mut ring);
    assert_eq!((seen.user_data, seen.result), (8, -libc::EPIPE));
    assert_eq!(seen.returned.as_deref(), Some(b"hello".as_slice()));
}

#[test]
fn an_owned_send_waits_for_the_peer_even_on_a_non_blocking_socket() {
    for is_nonblocking in [false, true] {
        let mut ring = ring(1);
        let (ours, peer) = pair();
        let stuffed = stuff(&ours);
        ours.set_nonblocking(is_nonblocking).expect("a flag");
        ring.send_owned(ours.as_raw_fd(), b"say hello".to_vec(), 4, 7).expect("room");
        submit_quietly(&mut ring);
        assert_eq!(ring.owned_in_flight(), 1);
        read(&peer, stuffed);
        let seen = next(&mut ring);
        assert_eq!((seen.user_data, seen.result), (7, 5));
        assert_eq!(seen.returned.as_deref(), Some(b"say hello".as_slice()));
        assert_eq!(ring.owned_in_flight(), 0);
        assert_eq!(read(&peer, 5), b"hello");
    }
}
