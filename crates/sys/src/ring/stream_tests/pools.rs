//! The receive buffers in every form that a loop may have, few and small: what came stands where its completion says,
//! whatever happens between the requests, and every buffer comes back.

use std::net::Shutdown;

use super::*;

/// Bytes of one buffer here.
const BYTES: u32 = 64;

const QUEUES: Sizes = Sizes { submission: 16, completion: 64 };

/// Rings of every form with 1, 2 and 4 buffers.
fn each_ring(queues: Sizes) -> impl Iterator<Item = StreamRing> {
    let form = |is_incremental| {
        [1, 2, 4].map(|count| ReceiveBuffers { count, bytes: BYTES, is_incremental })
    };
    [false, true].into_iter().flat_map(form).filter_map(move |receive| ring_with(queues, receive))
}

/// All that the ring lends is back, and the kernel has all buffers: they can be filled again and again.
fn assert_is_whole(ring: &mut StreamRing) {
    let sizes = ring.receive_buffers();
    assert_eq!(ring.buffers_lent(), 0, "{sizes}");
    let (ours, mut peer) = tcp_pair();
    let sent = pattern(usize::from(sizes.count) * BYTES as usize * 3);
    peer.write_all(&sent).expect("room in the socket");
    peer.shutdown(Shutdown::Write).expect("the peer says no more");
    let mut seen = Vec::new();
    receive_all(ring, ours.as_raw_fd(), Shots::Many, &mut seen);
    assert_eq!(seen, sent, "{sizes}");
    assert_eq!(ring.buffers_lent(), 0, "{sizes}");
}

/// Receives until the end of the stream and gives every buffer back at once; says how often the pool was empty.
fn receive_all(ring: &mut StreamRing, fd: RawFd, shots: Shots, into: &mut Vec<u8>) -> usize {
    let mut starved = 0;
    ring.receive(fd, shots, 7).expect("room");
    loop {
        let seen = next(ring);
        let result = seen.result;
        let has_more = seen.has_more;
        if let Some(received) = seen.received {
            into.extend_from_slice(ring.bytes(&received));
            ring.give_back(received);
        }
        match result {
            0 => return starved,
            1.. => {}
            _ => {
                assert_eq!(-result, libc::ENOBUFS);
                starved += 1;
            }
        }
        if !has_more {
            ring.receive(fd, shots, 7).expect("room");
        }
    }
}

#[test]
fn a_stream_arrives_whole_through_one_two_and_four_buffers() {
    for mut ring in each_ring(QUEUES) {
        for shots in [Shots::One, Shots::Many] {
            let (ours, mut peer) = tcp_pair();
            let sent = pattern(100_000);
            let copy = sent.clone();
            let writer = std::thread::spawn(move || {
                peer.write_all(&copy).expect("sent");
                peer
            });
            let mut seen = Vec::new();
            let peer = loop {
                ring.receive(ours.as_raw_fd(), Shots::One, 6).expect("room");
                let first = next(&mut ring);
                seen.extend(text(&mut ring, first));
                if seen.len() == sent.len() || writer.is_finished() {
                    break writer.join().expect("written");
                }
            };
            peer.shutdown(Shutdown::Write).expect("the peer says no more");
            receive_all(&mut ring, ours.as_raw_fd(), shots, &mut seen);
            assert!(seen == sent, "{}", ring.receive_buffers());
        }
        assert_is_whole(&mut ring);
    }
}

/// A piece stands where the one before ended, whichever connection it belongs to and however it was asked for.
#[test]
fn connections_that_share_a_buffer_get_their_own_bytes() {
    const ROUNDS: usize = 50;
    for mut ring in each_ring(QUEUES) {
        let mut pairs: Vec<_> = (0..4).map(|_| tcp_pair()).collect();
        let mut seen = vec![Vec::new(); pairs.len()];
        let shots = |index: usize| if index.is_multiple_of(2) { Shots::One } else { Shots::Many };
        for (index, (ours, _)) in pairs.iter().enumerate() {
            ring.receive(ours.as_raw_fd(), shots(index), index as u64).expect("room");
        }
        for round in 0..ROUNDS {
            for (index, (_, peer)) in pairs.iter_mut().enumerate() {
                peer.write_all(&[(round * 4 + index) as u8; 3]).expect("sent");
            }
            while seen.iter().map(Vec::len).sum::<usize>() < (round + 1) * 3 * pairs.len() {
                let completion = next(&mut ring);
                let index = completion.user_data as usize;
                let has_more = completion.has_more;
                if completion.result == -libc::ENOBUFS {
                    assert!(completion.received.is_none());
                } else {
                    seen[index].extend(text(&mut ring, completion));
                }
                if !has_more {
                    let fd = pairs[index].0.as_raw_fd();
                    ring.receive(fd, shots(index), index as u64).expect("room");
                }
            }
        }
        for (index, seen) in seen.iter().enumerate() {
            let sent: Vec<u8> =
                (0..ROUNDS).flat_map(|round| [(round * 4 + index) as u8; 3]).collect();
            assert_eq!(*seen, sent, "{}", ring.receive_buffers());
        }
        // What is queued goes to the sockets that it names before those are closed.
        enter(&mut ring, 0, None);
        drop(pairs);
        while ring.ledger.armed > 0 {
            if let Some(received) = next(&mut ring).received {
                ring.give_back(received);
            }
        }
        assert_is_whole(&mut ring);
    }
}

/// The end of a stream may name a buffer, and the kernel continues with it all the same.
#[test]
fn an_end_between_a_completion_and_the_next_receive_costs_no_buffer() {
    for mut ring in each_ring(QUEUES) {
        for round in 0..20 {
            let (ours, mut peer) = tcp_pair();
            let shots = if round % 2 == 0 { Shots::One } else { Shots::Many };
            ring.receive(ours.as_raw_fd(), shots, 7).expect("room");
            peer.write_all(b"last words").expect("sent");
            let mut seen = next(&mut ring);
            let has_more = seen.has_more;
            if seen.result == -libc::ENOBUFS {
                ring.receive(ours.as_raw_fd(), shots, 7).expect("room");
                seen = next(&mut ring);
            }
            let mut words = text(&mut ring, seen);
            peer.shutdown(Shutdown::Write).expect("the peer says no more");
            if !has_more {
                // The rest of a piece that did not fit the end of a buffer, and the end.
                receive_all(&mut ring, ours.as_raw_fd(), shots, &mut words);
            } else {
                loop {
                    let seen = next(&mut ring);
                    let result = seen.result;
                    let has_more = seen.has_more;
                    if let Some(received) = seen.received {
                        words.extend_from_slice(ring.bytes(&received));
                        ring.give_back(received);
                    }
                    if result == 0 {
                        break;
                    }
                    if !has_more {
                        receive_all(&mut ring, ours.as_raw_fd(), shots, &mut words);
                        break;
                    }
                }
            }
            assert_eq!(words, b"last words", "{}", ring.receive_buffers());
        }
        assert_is_whole(&mut ring);
    }
}

/// Arms a receive in each way that this ring has.
fn arm(ring: &mut StreamRing, fd: RawFd, way: usize) {
    let bound = Bound { each: 20, enough: 40 };
    let armed = match way {
        0 => ring.receive(fd, Shots::One, 7),
        1 => ring.receive(fd, Shots::Many, 7),
        2 => ring.receive_once(fd, 5, 7),
        _ if ring.bounds_receives() => ring.receive_up_to(fd, bound, 7),
        _ => ring.receive(fd, Shots::Many, 7),
    };
    armed.expect("room");
    submit_quietly(ring);
}

#[test]
fn a_reset_and_a_cancellation_take_no_buffer() {
    for mut ring in each_ring(QUEUES) {
        for way in 0..4 {
            let (ours, peer) = tcp_pair();
            (&ours).write_all(b"never read").expect("sent");
            arm(&mut ring, ours.as_raw_fd(), way);
            // Closing with unread bytes resets the connection.
            drop(peer);
            let seen = next(&mut ring);
            assert_eq!((seen.result, seen.has_more), (-libc::ECONNRESET, false));
            assert!(seen.received.is_none());
            for late in [&b""[..], b"late"] {
                let (ours, mut peer) = tcp_pair();
                arm(&mut ring, ours.as_raw_fd(), way);
                // Bytes may come before the kernel has looked at the cancellation.
                peer.write_all(late).expect("sent");
                ring.cancel(7, 8).expect("room");
                let mut words = Vec::new();
                loop {
                    let seen = next(&mut ring);
                    if seen.user_data == 8 {
                        // It came too late: the receive has ended with its bytes.
                        continue;
                    }
                    let has_more = seen.has_more;
                    match seen.result {
                        1.. => words.extend(text(&mut ring, seen)),
                        result => {
                            assert_eq!(result, -libc::ECANCELED, "{}", ring.receive_buffers());
                        }
                    }
                    if !has_more {
                        break;
                    }
                }
                assert!(late.starts_with(&words), "{words:?}");
            }
            assert_is_whole(&mut ring);
        }
    }
}

/// A lease that is held for long keeps its buffer back and no other, and its bytes stay.
#[test]
fn a_slow_holder_keeps_its_bytes_and_the_others_continue() {
    for mut ring in each_ring(QUEUES) {
        let sizes = ring.receive_buffers();
        let (slow, mut slow_peer) = tcp_pair();
        ring.receive(slow.as_raw_fd(), Shots::One, 1).expect("room");
        slow_peer.write_all(b"held").expect("sent");
        let held = next(&mut ring).received.expect("bytes");
        let (ours, mut peer) = tcp_pair();
        let sent = pattern(usize::from(sizes.count) * BYTES as usize * 5);
        peer.write_all(&sent).expect("room in the socket");
        peer.shutdown(Shutdown::Write).expect("the peer says no more");
        let mut seen = Vec::new();
        if sizes.count > 1 {
            receive_all(&mut ring, ours.as_raw_fd(), Shots::Many, &mut seen);
            assert_eq!(seen, sent, "{sizes}");
        } else {
            // What is left of its only buffer, then nothing until the holder lets go.
            let rest = if sizes.is_incremental { BYTES as usize - 4 } else { 0 };
            ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
            while seen.len() < rest {
                let completion = next(&mut ring);
                seen.extend(text(&mut ring, completion));
            }
            assert_eq!(next(&mut ring).result, -libc::ENOBUFS, "{sizes}");
            assert_eq!(seen, sent[..rest]);
        }
        assert_eq!(ring.bytes(&held), b"held", "{sizes}");
        ring.give_back(held);
        receive_all(&mut ring, ours.as_raw_fd(), Shots::Many, &mut seen);
        assert_eq!(seen, sent, "{sizes}");
        assert_is_whole(&mut ring);
    }
}

/// A pool that is empty ends a receive that stays armed, with nothing taken and nothing lost.
#[test]
fn an_empty_pool_ends_a_receive_that_stays_armed() {
    for mut ring in each_ring(QUEUES) {
        let sizes = ring.receive_buffers();
        let (ours, mut peer) = tcp_pair();
        let all = usize::from(sizes.count) * BYTES as usize;
        let sent = pattern(all + 10);
        peer.write_all(&sent).expect("room in the socket");
        ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
        let mut seen = Vec::new();
        let mut leases = Vec::new();
        let starved = loop {
            let completion = next(&mut ring);
            let Some(received) = completion.received else { break completion };
            seen.extend_from_slice(ring.bytes(&received));
            leases.push(received);
        };
        assert_eq!((starved.result, starved.has_more), (-libc::ENOBUFS, false), "{sizes}");
        assert_eq!(seen, sent[..all], "{sizes}");
        assert_eq!(ring.buffers_lent(), leases.len());
        leases.into_iter().for_each(|received| ring.give_back(received));
        peer.shutdown(Shutdown::Write).expect("the peer says no more");
        receive_all(&mut ring, ours.as_raw_fd(), Shots::Many, &mut seen);
        assert_eq!(seen, sent, "{sizes}");
        assert_is_whole(&mut ring);
    }
}

/// More completions than their queue holds: those that the kernel keeps back name their pieces in order too.
#[test]
fn a_queue_of_eight_completions_overflows_and_every_piece_is_found() {
    const SOCKETS: usize = 12;
    for mut ring in each_ring(Sizes { submission: 8, completion: 8 }) {
        let mut pairs: Vec<_> = (0..SOCKETS).map(|_| tcp_pair()).collect();
        let mut seen = vec![Vec::new(); SOCKETS];
        let mut has_overflowed = false;
        for (index, (ours, peer)) in pairs.iter_mut().enumerate() {
            peer.write_all(&[index as u8; 20]).expect("sent");
            while ring.receive(ours.as_raw_fd(), Shots::Many, index as u64).is_err() {
                has_overflowed |= submit(&mut ring);
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while seen.iter().map(Vec::len).sum::<usize>() < SOCKETS * 20 {
            assert!(Instant::now() < deadline, "bytes were lost: {}", ring.receive_buffers());
            has_overflowed |= submit(&mut ring);
            while let Some(completion) = ring.next_completion() {
                let index = completion.user_data as usize;
                let has_more = completion.has_more;
                if let Some(received) = completion.received {
                    seen[index].extend_from_slice(ring.bytes(&received));
                    ring.give_back(received);
                }
                while !has_more
                    && ring.receive(pairs[index].0.as_raw_fd(), Shots::Many, index as u64).is_err()
                {
                    has_overflowed |= submit(&mut ring);
                }
            }
        }
        for (index, seen) in seen.iter().enumerate() {
            assert_eq!(*seen, [index as u8; 20], "{}", ring.receive_buffers());
        }
        assert!(has_overflowed, "the queue is too large for this test");
        drop(ring);
    }
}

/// Submits, and says whether completions overflow.
fn submit(ring: &mut StreamRing) -> bool {
    match ring.submit() {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
        Err(error) => panic!("io_uring_enter: {error}"),
    }
    enter(ring, 0, None);
    ring.has_overflow()
}

/// A receive that stays armed takes its bound when it is armed: no cancellation is needed to stop there.
#[test]
fn a_bounded_receive_ends_by_itself_with_the_last_of_its_bytes() {
    let rings: Vec<_> = each_ring(QUEUES).filter(StreamRing::bounds_receives).collect();
    if rings.is_empty() {
        return pollux_testing::skip("no receive that stays armed takes a bound here (Linux 6.17)");
    }
    for mut ring in rings {
        let sizes = ring.receive_buffers();
        let (ours, mut peer) = tcp_pair();
        let sent = pattern(1000);
        peer.write_all(&sent).expect("room in the socket");
        peer.shutdown(Shutdown::Write).expect("the peer says no more");
        let bound = Bound { each: 20, enough: 40 };
        let mut seen = Vec::new();
        let mut brought = Vec::new();
        'stream: loop {
            let begin = seen.len();
            ring.receive_up_to(ours.as_raw_fd(), bound, 7).expect("room");
            loop {
                let completion = next(&mut ring);
                let result = completion.result;
                let has_more = completion.has_more;
                if let Some(received) = completion.received {
                    seen.extend_from_slice(ring.bytes(&received));
                    ring.give_back(received);
                }
                if result == 0 {
                    break 'stream;
                }
                assert!(result > 0 || result == -libc::ENOBUFS, "{result}, {sizes}");
                assert!(result <= 20, "{result}, {sizes}");
                if !has_more {
                    brought.extend((result > 0).then_some(seen.len() - begin));
                    break;
                }
            }
        }
        assert_eq!(seen, sent, "{sizes}");
        assert!(brought.iter().any(|bytes| *bytes >= 40), "{brought:?}");
        assert!(brought.iter().all(|bytes| *bytes < 60), "{brought:?}");
        assert_is_whole(&mut ring);
    }
}

/// On a kernel that does not know them, or names their pieces in the wrong order.
#[test]
fn buffers_whose_trial_fails_are_replaced_with_the_reason_or_not_opened() {
    let whole = ReceiveBuffers::whole(2, BYTES);
    let receive = ReceiveBuffers::incremental(2, BYTES);
    let arena_bytes = 64;
    let sizes = StreamSizes { ring: QUEUES, receive, otherwise: Some(whole), arena_bytes };
    let failed = || Err::<trial::Bounds, String>("not on this kernel".to_owned());
    let Some(mut ring) = or_skip(StreamRing::open_after(sizes, failed())) else { return };
    assert_eq!(ring.receive_buffers(), whole);
    assert!(ring.setup().notes().contains(&"not on this kernel".to_owned()));
    assert_is_whole(&mut ring);
    let alone = StreamSizes { otherwise: None, ..sizes };
    let refused = StreamRing::open_after(alone, failed()).err().expect("nothing is left");
    assert_eq!(refused.reason, "not on this kernel");
}
