//! Output to many peers in one turn, some of whom do not read: every peer gets its own bytes,
//! all of them, in order.

use std::cell::RefCell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use pollux_engine::{ConnectionId, Counter, Limits};
use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::peer::drivers;
use crate::puppet::{Call, Puppet, Stage, take};

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

/// `rounds` wakes of all, of whom one in three reads; then all do.
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
        assert!(stage.count(Counter::SendsShort) > 0, "{driver}: nobody was slow");
        stage.assert_idle();
        stage.assert_balanced();
    }
}

#[test]
fn more_output_in_a_turn_than_the_arena_holds_reaches_everybody_in_order() {
    broadcast(120, 20_000, 30_000, 8);
}

#[test]
fn more_sends_in_a_turn_than_the_queue_holds_reach_everybody_in_order() {
    broadcast(1100, 700, 2_000, 8);
}

#[test]
fn a_chain_of_answers_reaches_everybody_in_order() {
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
                            actions.call_again();
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
