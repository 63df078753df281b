//! Receives: every buffer comes back, whatever ends the request. Sends: nothing is lost, doubled or overtaken, and
//! the arena is reused only when it is free.

use std::net::Shutdown;
use std::os::fd::OwnedFd;

use super::*;

#[test]
fn many_receives_come_from_one_request() {
    let Some(mut ring) = ring(4) else { return };
    let (ours, mut peer) = tcp_pair();
    ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
    for word in [b"one".as_slice(), b"two", b"three"] {
        peer.write_all(word).expect("sent");
        let seen = next(&mut ring);
        assert_eq!((seen.user_data, seen.has_more), (7, true));
        assert_eq!(text(&mut ring, seen), word);
    }
    assert_pool_is_whole(&mut ring, 4);
}

#[test]
fn one_receive_ends_with_its_bytes_and_reports_more() {
    let Some(mut ring) = ring(4) else { return };
    let (ours, mut peer) = tcp_pair();
    peer.write_all(&[b'x'; 20]).expect("sent");
    for (len, has_data_left) in [(16, true), (4, false)] {
        ring.receive(ours.as_raw_fd(), Shots::One, 7).expect("room");
        let seen = next(&mut ring);
        assert_eq!((seen.has_more, seen.has_data_left), (false, has_data_left));
        assert_eq!(text(&mut ring, seen).len(), len);
    }
    assert_pool_is_whole(&mut ring, 4);
}

#[test]
fn the_end_of_the_stream_takes_no_buffer() {
    for shots in [Shots::One, Shots::Many] {
        let Some(mut ring) = ring(4) else { return };
        let (ours, peer) = tcp_pair();
        ring.receive(ours.as_raw_fd(), shots, 7).expect("room");
        submit_quietly(&mut ring);
        peer.shutdown(Shutdown::Write).expect("the peer says no more");
        let seen = next(&mut ring);
        assert_eq!((seen.result, seen.has_more), (0, false));
        assert!(seen.received.is_none());
        assert_pool_is_whole(&mut ring, 4);
    }
}

#[test]
fn a_reset_takes_no_buffer() {
    let Some(mut ring) = ring(4) else { return };
    let (ours, peer) = tcp_pair();
    (&ours).write_all(b"never read").expect("sent");
    ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
    submit_quietly(&mut ring);
    // Closing with unread bytes resets the connection.
    drop(peer);
    let seen = next(&mut ring);
    assert_eq!((seen.result, seen.has_more), (-libc::ECONNRESET, false));
    assert_pool_is_whole(&mut ring, 4);
}

#[test]
fn a_cancelled_receive_takes_no_buffer() {
    let Some(mut ring) = ring(4) else { return };
    let (ours, mut peer) = pair();
    for shots in [Shots::One, Shots::Many] {
        ring.receive(ours.as_raw_fd(), shots, 7).expect("room");
        submit_quietly(&mut ring);
        ring.cancel(7, 8).expect("room");
        let seen = next(&mut ring);
        assert_eq!((seen.user_data, seen.result), (7, -libc::ECANCELED));
        assert!(!seen.has_more && seen.received.is_none());
    }
    // Cancelled when bytes had come already and the kernel was about to look.
    ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
    submit_quietly(&mut ring);
    peer.write_all(b"late").expect("sent");
    ring.cancel(7, 8).expect("room");
    let mut seen = next(&mut ring);
    while seen.has_more {
        assert_eq!(text(&mut ring, seen), b"late");
        seen = next(&mut ring);
    }
    assert_eq!((seen.user_data, seen.result), (7, -libc::ECANCELED));
    submit_quietly(&mut ring);
    assert_pool_is_whole(&mut ring, 4);
}

#[test]
fn a_receive_without_a_buffer_ends_and_starts_anew_when_one_was_given_back() {
    let Some(mut ring) = ring(1) else { return };
    let (ours, mut peer) = pair();
    let fd = ours.as_raw_fd();
    ring.receive(fd, Shots::Many, 7).expect("room");
    peer.write_all(&pattern(20)).expect("sent");
    let first = next(&mut ring);
    assert!(first.has_more && first.received.is_some());
    let starved = next(&mut ring);
    assert_eq!((starved.result, starved.has_more), (-libc::ENOBUFS, false));
    assert!(starved.received.is_none());
    assert_eq!(text(&mut ring, first), pattern(20)[..16]);
    ring.receive(fd, Shots::Many, 7).expect("room");
    let second = next(&mut ring);
    assert_eq!(text(&mut ring, second), pattern(20)[16..]);
    ring.cancel(7, 8).expect("room");
    let end = next(&mut ring);
    // Up to Linux 6.12 a receive of many that takes the last buffer ends at once, with nothing left to receive, so
    // that the cancellation finds none.
    if end.result == -libc::ENOBUFS {
        let late = next(&mut ring);
        assert_eq!((late.user_data, late.result), (8, -libc::ENOENT));
    } else {
        assert_eq!(end.result, -libc::ECANCELED);
    }
    assert_pool_is_whole(&mut ring, 1);
}

/// Arming anew without a buffer would spin: the end comes though there is nothing to receive.
#[test]
fn an_empty_pool_ends_a_receive_that_has_nothing_to_receive() {
    let Some(mut ring) = ring(1) else { return };
    let (ours, mut peer) = pair();
    ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
    peer.write_all(b"x").expect("sent");
    let in_use = next(&mut ring);
    assert_eq!(ring.buffers_lent(), 1);
    let (idle, _peer) = pair();
    ring.receive(idle.as_raw_fd(), Shots::Many, 9).expect("room");
    let mut starved = next(&mut ring);
    // Up to Linux 6.12 the receive that took the last buffer has ended already.
    if starved.user_data == 7 {
        assert_eq!((starved.result, starved.has_more), (-libc::ENOBUFS, false));
        starved = next(&mut ring);
    }
    assert_eq!((starved.user_data, starved.result), (9, -libc::ENOBUFS));
    assert_eq!(text(&mut ring, in_use), b"x");
}

#[test]
fn a_non_blocking_socket_is_waited_for_all_the_same() {
    for shots in [Shots::One, Shots::Many] {
        let Some(mut ring) = ring(4) else { return };
        let (ours, mut peer) = tcp_pair();
        ours.set_nonblocking(true).expect("a flag set");
        ring.receive(ours.as_raw_fd(), shots, 7).expect("room");
        submit_quietly(&mut ring);
        peer.write_all(b"x").expect("sent");
        let seen = next(&mut ring);
        assert_eq!(text(&mut ring, seen), b"x");
    }
}

#[test]
fn an_empty_datagram_ends_a_receive_and_leaves_the_next_one_unread() {
    let Some(mut ring) = ring(4) else { return };
    let (ours, peer) = std::os::unix::net::UnixDatagram::pair().expect("a socket pair");
    for datagram in [b"a".as_slice(), b"", b"b"] {
        peer.send(datagram).expect("sent");
    }
    let mut seen = Vec::new();
    while seen.len() < 2 {
        ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
        loop {
            let mut completion = next(&mut ring);
            let result = completion.result;
            let has_more = completion.has_more;
            if let Some(received) = completion.received.take() {
                seen.extend_from_slice(ring.bytes(&received));
                ring.give_back(received);
            }
            if result == 0 || !has_more || seen.len() == 2 {
                break;
            }
        }
    }
    assert_eq!(seen, b"ab");
    ring.cancel(7, 8).expect("room");
    assert_eq!(next(&mut ring).result, -libc::ECANCELED);
    assert_pool_is_whole(&mut ring, 4);
}

/// The tail of the buffer ring has 16 bits, and so have the buffers' numbers.
#[test]
fn the_pool_outlives_more_receives_than_its_tail_can_count() {
    let Some(mut ring) = ring_of(Sizes { submission: 16, completion: 512 }, 256) else { return };
    let (ours, mut peer) = pair();
    ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
    let sent = pattern(256 * 16);
    let mut receives = 0;
    while receives < (1 << 16) + 1000 {
        peer.write_all(&sent).expect("sent");
        let mut seen = Vec::new();
        while seen.len() < sent.len() {
            let completion = next(&mut ring);
            receives += 1;
            if !completion.has_more {
                ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
            }
            if completion.result != -libc::ENOBUFS {
                seen.extend(text(&mut ring, completion));
            }
        }
        assert_eq!(seen, sent);
    }
    assert_eq!(ring.buffers_lent(), 0);
    // Before the sockets: the last receive may still be queued.
    drop(ring);
}

/// An armed receive keeps the file open: it has to be ended before the close.
#[test]
fn a_close_with_a_receive_armed_reaches_the_peer_only_when_the_receive_ends() {
    let Some(mut ring) = ring(4) else { return };
    let (ours, peer) = tcp_pair();
    ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
    submit_quietly(&mut ring);
    ring.close(OwnedFd::from(ours), 9).expect("room");
    submit_quietly(&mut ring);
    peer.set_nonblocking(true).expect("a flag set");
    let error = (&peer).read(&mut [0]).expect_err("no end yet");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    peer.set_nonblocking(false).expect("a flag cleared");
    ring.cancel(7, 8).expect("room");
    assert_eq!(next(&mut ring).result, -libc::ECANCELED);
    assert_end(&peer);
}

#[test]
fn a_lease_that_outlives_its_ring_is_not_one_of_the_next_ring() {
    let Some(mut first) = ring(1) else { return };
    let (ours, mut peer) = pair();
    first.receive(ours.as_raw_fd(), Shots::One, 7).expect("room");
    peer.write_all(b"x").expect("sent");
    let received = next(&mut first).received.expect("a byte");
    drop(first);
    let Some(second) = ring(1) else { return };
    let outcome =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| second.bytes(&received).len()));
    assert!(outcome.is_err(), "the second ring must know its own leases");
}

#[test]
fn a_number_with_a_bit_of_ours_is_refused() {
    let Some(mut ring) = ring(1) else { return };
    let number = StreamRing::USER_DATA_MAX + 1;
    let why = panic_of(move || _ = ring.receive(0, Shots::One, number));
    assert!(why.contains("the two upper bits are the ring's"), "{why}");
}

/// What a mistake of the caller panics with.
fn panic_of(mistake: impl FnOnce()) -> String {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(mistake));
    let payload = outcome.expect_err("it is a mistake");
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).expect("a text")
}

/// Writes `bytes` into the arena and sends them from there.
fn send(ring: &mut StreamRing, fd: i32, bytes: &[u8], user_data: u64) -> Sent {
    ring.spare()[..bytes.len()].copy_from_slice(bytes);
    ring.send_spare(fd, bytes.len(), user_data).expect("room")
}

#[test]
fn a_send_that_is_taken_whole_says_nothing() {
    let Some(mut ring) = ring(1) else { return };
    let (ours, peer) = tcp_pair();
    let sent = send(&mut ring, ours.as_raw_fd(), b"hello", 7);
    assert_eq!(ring.sent_bytes(sent), Some(b"hello".as_slice()));
    submit_quietly(&mut ring);
    assert_eq!(read(peer, 5), b"hello");
}

#[test]
fn the_tail_of_a_send_that_was_cut_short_is_recovered() {
    let Some(mut ring) = ring(1) else { return };
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
    let Some(mut ring) = ring(1) else { return };
    let (ours, _peer) = pair();
    stuff(&ours);
    let sent = send(&mut ring, ours.as_raw_fd(), b"hello", 7);
    let seen = next(&mut ring);
    assert_eq!((seen.user_data, seen.result), (7, -libc::EAGAIN));
    assert_eq!(ring.sent_bytes(sent), Some(b"hello".as_slice()));
}

#[test]
fn two_sends_on_one_socket_keep_their_order() {
    let Some(mut ring) = ring(1) else { return };
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
    let Some(mut ring) = ring(1) else { return };
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
fn a_send_of_more_than_is_spare_is_refused() {
    let Some(mut ring) = ring(1) else { return };
    let len = ring.spare().len();
    let why = panic_of(|| _ = ring.send_spare(0, len + 1, 7));
    assert!(why.contains("what is spare"), "{why}");
}

#[test]
fn a_full_queue_gives_back_what_it_was_given() {
    let Some(mut ring) = ring(1) else { return };
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
    let Some(mut ring) = ring(1) else { return };
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
        let Some(mut ring) = ring(1) else { return };
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
