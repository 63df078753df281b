//! Many connections in one turn: the session of each gets what its peer sends, and each peer what is sent to it,
//! whole and in order, though some do not read. On every driver.

use std::cell::RefCell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use pollux_engine::{ConnectionId, Counter, Driver, Limits};
use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::puppet::{Call, Puppet, Stage, take};
use crate::server::drivers;

/// More than a loop receives from before it calls the sessions.
const CONNECTIONS: usize = 70;
/// Around what one of many connections is received at first, and beyond what one receive takes.
const SIZES: [usize; 7] = [1, 100, 2111, 2112, 2113, 5000, 100_000];

/// Keeps all that comes.
fn keeper(kept: &Rc<RefCell<Vec<u8>>>) -> Puppet {
    let kept = Rc::clone(kept);
    Puppet::new(move |call, _| match call {
        Call::Bytes(input) => {
            kept.borrow_mut().extend_from_slice(input);
            input.len()
        }
        _ => 0,
    })
}

fn message(of: usize, round: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + of * 31 + round * 13) as u8).collect()
}

#[test]
fn input_of_many_connections_at_once_reaches_each_session_whole() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let kept: Vec<Rc<RefCell<Vec<u8>>>> = (0..CONNECTIONS).map(|_| Rc::default()).collect();
        let mut peers: Vec<_> = kept.iter().map(|kept| stage.adopt(keeper(kept)).1).collect();
        let mut sent = vec![Vec::new(); CONNECTIONS];
        for round in 0..2 * SIZES.len() {
            for (at, peer) in peers.iter_mut().enumerate() {
                let message = message(at, round, SIZES[(at + round) % SIZES.len()]);
                peer.write_all(&message).expect("the socket takes it");
                sent[at].extend(message);
            }
            stage.turn_until("all of it", |_| {
                kept.iter().zip(&sent).all(|(kept, sent)| kept.borrow().len() >= sent.len())
            });
        }
        for (at, (kept, sent)) in kept.iter().zip(&sent).enumerate() {
            assert!(*kept.borrow() == *sent, "{driver}: the bytes of connection {at} differ");
        }
        stage.assert_idle();
    }
}

#[test]
fn a_small_message_is_one_receive_and_a_connection_of_large_ones_has_no_more() {
    for driver in drivers() {
        let Driver::Readiness(_) = driver else { continue };
        let mut stage = Stage::open(driver, Limits::default());
        let kept = Rc::<RefCell<Vec<u8>>>::default();
        let (_, mut peer) = stage.adopt(keeper(&kept));
        let mut receives = |len: usize| {
            let before = stage.count(Counter::Receives);
            let had = kept.borrow().len();
            peer.write_all(&vec![b'x'; len]).expect("the socket takes it");
            stage.turn_until("all of it", |_| kept.borrow().len() == had + len);
            stage.count(Counter::Receives) - before
        };
        assert_eq!(receives(100), 1, "{driver}");
        // It was not known that it is large.
        assert!(receives(10_000) > 1, "{driver}");
        assert_eq!((receives(10_000), receives(10_000)), (1, 1), "{driver}");
        assert_eq!((receives(100), receives(100)), (1, 1), "{driver}");
    }
}

/// Byte `position` of what peer `number` is sent.
fn byte(number: usize, position: usize) -> u8 {
    ((position + number * 17) % 251) as u8
}

/// Sends `piece` bytes of its stream at each wake, and drops what comes.
fn speaker(number: usize, piece: usize) -> Puppet {
    let mut sent = 0;
    Puppet::new(move |call, actions| match call {
        Call::Wake => {
            for (at, place) in actions.spare()[..piece].iter_mut().enumerate() {
                *place = byte(number, sent + at);
            }
            actions.advance(piece);
            sent += piece;
            0
        }
        Call::Bytes(input) => input.len(),
        _ => 0,
    })
}

struct Listener {
    id: ConnectionId,
    stream: UnixStream,
    bytes: Vec<u8>,
}

fn listeners(stage: &mut Stage, count: usize, piece: usize, room: usize) -> Vec<Listener> {
    let listener = |number| {
        let (ours, stream) = UnixStream::pair().expect("two descriptors");
        set_socket_send_buffer_size(&ours, room).expect("set");
        ours.set_nonblocking(true).expect("set");
        stream.set_nonblocking(true).expect("set");
        let id = stage.adopt_socket(ours.into(), speaker(number, piece));
        Listener { id, stream, bytes: Vec::new() }
    };
    (0..count).map(listener).collect()
}

/// `rounds` wakes of all, of which one in three reads; then all do.
fn broadcast(count: usize, piece: usize, room: usize, rounds: usize) {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let mut peers = listeners(&mut stage, count, piece, room);
        stage.turn();
        for _ in 0..rounds {
            for (number, peer) in peers.iter_mut().enumerate() {
                // Something to receive comes in the same turn.
                peer.stream.write_all(b"x").expect("the server reads");
                if number % 3 == 0 {
                    take(&mut peer.stream, &mut peer.bytes, rounds * piece);
                }
                stage.event_loop.wake(peer.id);
            }
            (0..2).for_each(|_| stage.turn());
        }
        let peers = RefCell::new(peers);
        stage.turn_until("all output", |_| {
            let mut peers = peers.borrow_mut();
            peers.iter_mut().for_each(|peer| {
                take(&mut peer.stream, &mut peer.bytes, rounds * piece);
            });
            peers.iter().all(|peer| peer.bytes.len() == rounds * piece)
        });
        for (number, peer) in peers.borrow().iter().enumerate() {
            let wrong = (0..peer.bytes.len()).find(|at| peer.bytes[*at] != byte(number, *at));
            assert_eq!(wrong, None, "{driver}: peer {number}");
        }
        assert!(stage.count(Counter::SendsShort) > 0, "{driver}: no peer was slow");
        stage.assert_idle();
        stage.assert_balanced();
    }
}

#[test]
fn more_output_in_a_turn_than_the_arena_holds_reaches_every_peer_in_order() {
    broadcast(120, 20_000, 30_000, 8);
}

#[test]
fn more_sends_in_a_turn_than_the_queue_holds_reach_every_peer_in_order() {
    broadcast(1100, 700, 2_000, 8);
}

#[test]
fn a_chain_of_answers_reaches_every_peer_in_order() {
    // Each answer is longer than the socket takes, and the next one is made when it has left.
    const PEERS: usize = 300;
    const TOTAL: usize = 60_000;
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let mut peers: Vec<_> = (0..PEERS)
            .map(|number| {
                let sent = Rc::new(RefCell::new(0));
                stage.adopt(Puppet::new(move |call, actions| {
                    if matches!(call, Call::Wake | Call::Drained) {
                        let mut sent = sent.borrow_mut();
                        let piece = (TOTAL - *sent).min(3_000 + 7 * number);
                        for (at, place) in actions.spare()[..piece].iter_mut().enumerate() {
                            *place = byte(number, *sent + at);
                        }
                        actions.advance(piece);
                        *sent += piece;
                        if piece > 0 {
                            actions.notify_when_sent();
                        }
                    }
                    0
                }))
            })
            .collect();
        peers.iter().for_each(|(id, _)| stage.event_loop.wake(*id));
        let mut bytes = vec![Vec::new(); PEERS];
        stage.turn_until("all output", |_| {
            for ((_, stream), bytes) in peers.iter_mut().zip(&mut bytes) {
                take(stream, bytes, TOTAL);
            }
            bytes.iter().all(|bytes| bytes.len() == TOTAL)
        });
        for (number, bytes) in bytes.iter().enumerate() {
            let wrong = (0..TOTAL).find(|at| bytes[*at] != byte(number, *at));
            assert_eq!(wrong, None, "{driver}: peer {number}");
        }
        stage.assert_idle();
    }
}
