//! What a peer sees, on every driver.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc;

use pollux_engine::{CloseCause, ConnectionId, Counter, Driver, EventLoop, Limits, Listeners};
use pollux_testing::wait_until;
use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::peer::Lines;
use crate::peer::{Server, drivers, read, read_all};
use crate::puppet::{Call, Puppet, Stage, take};

fn big(len: usize) -> Vec<u8> {
    (0..len).map(Lines::byte).collect()
}

#[test]
fn the_same_bytes_on_every_driver() {
    let mut expected = b"hello\necho one\n".to_vec();
    expected.extend(big(1_000_000));
    expected.extend(b"file\n");
    expected.extend(&big(300_000)[7..200_007]);
    expected.extend(b"echo two\nresumed\nwoken\necho three\nbye\n");
    let request = b"echo one\nbig 1000000\nfile 7 200000\necho two\npause\nlater\necho three\n";
    for driver in drivers() {
        let answer = Server::of(driver).talk(request);
        assert_eq!(answer.len(), expected.len(), "{driver}");
        assert!(answer == expected, "{driver}: the bytes differ");
    }
}

#[test]
fn byte_by_byte_gives_the_same() {
    for driver in drivers() {
        let server = Server::of(driver);
        let mut peer = server.connect();
        peer.set_nodelay(true).expect("set");
        for byte in b"echo one\necho two\nclose\n" {
            peer.write_all(&[*byte]).expect("written");
        }
        assert_eq!(read_all(&mut peer), b"hello\necho one\necho two\n", "{driver}");
    }
}

#[test]
fn a_peer_that_does_not_read_stops_the_server_and_gets_everything_later() {
    // More than the socket buffers of both ends ever hold.
    const LINES: usize = 250_000;
    for driver in drivers() {
        let server = Server::of(driver);
        let mut peer = server.connect();
        let mut writer = peer.try_clone().expect("a descriptor is left");
        let feeder = std::thread::spawn(move || {
            for number in 0..LINES {
                let line = format!("echo {number} {}\n", "x".repeat(100));
                writer.write_all(line.as_bytes()).expect("the server reads in the end");
            }
            writer.shutdown(Shutdown::Write).expect("ended");
        });
        let counters = server.counters(0);
        wait_until("a megabyte of answers", || counters.value(Counter::BytesOut) > 1_000_000);
        let answer = read_all(&mut peer);
        feeder.join().expect("all was taken");
        let text = String::from_utf8(answer).expect("ASCII");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("hello"));
        for number in 0..LINES {
            let line = lines.next().expect("one line for each");
            assert!(line.starts_with(&format!("echo {number} ")), "{driver}: {line}");
        }
        assert_eq!((lines.next(), lines.next()), (Some("bye"), None), "{driver}");
    }
}

#[test]
fn data_and_end_in_one_edge_are_both_seen() {
    // The server's thread is stopped while both arrive.
    for driver in drivers() {
        let server = Server::of(driver);
        let mut peer = server.connect();
        assert_eq!(read(&mut peer, 6), b"hello\n");
        let (release, released) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let stop = move |_: &mut EventLoop<Lines>| {
            begin.send(()).expect("received");
            released.recv().expect("released");
        };
        server.group().handle(0).tell(stop).expect("room");
        begun.recv().expect("the loop runs");
        peer.write_all(b"echo last\n").expect("written");
        peer.shutdown(Shutdown::Write).expect("ended");
        release.send(()).expect("received");
        assert_eq!(read_all(&mut peer), b"echo last\nbye\n", "{driver}");
    }
}

#[test]
fn lingering_lets_the_last_answer_arrive_before_unread_input() {
    for driver in drivers() {
        let server = Server::of(driver);
        let mut peer = server.connect();
        peer.write_all(b"echo last\nlinger\n").expect("written");
        assert_eq!(read(&mut peer, 16), b"hello\necho last\n", "{driver}");
        // The server has ended its output and drops what comes.
        assert_eq!(peer.read(&mut [0; 1]).expect("the end"), 0, "{driver}");
        peer.write_all(&[b'x'; 100_000]).expect("nobody resets");
        drop(peer);
        let counters = server.counters(0);
        wait_until("the close", || counters.closed(CloseCause::Session) == 1);
    }
}

#[test]
fn every_end_has_its_cause() {
    ends_have_their_causes(|_| {});
}

#[test]
fn masked_ends_have_the_same_causes() {
    ends_have_their_causes(|limits| limits.mask_ends = true);
}

fn ends_have_their_causes(adjust: fn(&mut Limits)) {
    for driver in drivers() {
        let server = Server::start(driver, 1, Listeners::Single, adjust);
        let server = server.expect("the driver is there");
        let counters = server.counters(0);
        assert_eq!(server.talk(b"echo x\n"), b"hello\necho x\nbye\n", "{driver}");
        server.talk(b"abort\n");
        server.talk(b"close\n");
        let mut reset = server.connect();
        assert_eq!(read(&mut reset, 6), b"hello\n");
        rustix::net::sockopt::set_socket_linger(&reset, Some(std::time::Duration::ZERO))
            .expect("set");
        drop(reset);
        wait_until("four ends", || counters.closed_total() == 4);
        let ends = [
            (CloseCause::PeerClosed, 1),
            (CloseCause::Aborted, 1),
            (CloseCause::Session, 1),
            (CloseCause::PeerReset, 1),
        ];
        for (cause, times) in ends {
            assert_eq!(counters.closed(cause), times, "{driver}: {cause:?}");
        }
        assert_eq!(counters.open(), 0, "{driver}");
    }
}

// What many connections send at once reaches the session of each, whole and in order, on every driver.

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
            let (before, had) = (stage.count(Counter::Receives), kept.borrow().len());
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

// Output to many peers in one turn, some of whom do not read: every peer gets its own bytes,
// all of them, in order.

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
