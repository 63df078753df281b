//! What a peer sees, on every driver: the same bytes and ends, of set scenes, and of random sessions and random peers against
//! a model of the bytes, each of which has a script made from its seed.

use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use pollux_engine::{
    Actions, CloseCause, ConnectionId, Counter, EventLoop, FileRange, Limits, Listeners,
};
use pollux_stats::Rng;
use pollux_testing::wait_until;

use crate::puppet::{Call, Causes, Puppet, Stage, take};
use crate::server::{Lines, Server, drivers, file, read, read_all};

/// Of the random sessions.
const CONNECTIONS: usize = 60;
const SEEDS: u64 = 2;
const SAYS_MAX: usize = 400_000;
const WANTS_MAX: usize = 300_000;

fn big(len: usize) -> Vec<u8> {
    (0..len).map(Lines::byte).collect()
}

/// What sessions and peers say, from this position on.
fn stream(from: usize, len: usize) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| big(Lines::PERIOD + SAYS_MAX));
    &BYTES[from % Lines::PERIOD..][..len]
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
        server.group().handle(0).submit(stop).expect("room");
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
        assert_eq!(peer.read_to_end(&mut Vec::new()).expect("the end"), 0, "{driver}");
        peer.write_all(&[b'x'; 100_000]).expect("no reset");
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
        rustix::net::sockopt::set_socket_linger(&reset, Some(Duration::ZERO)).expect("set");
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

/// What one session is to do, and how far it is: it says a stream of known bytes in pieces of random sizes, some of them
/// from a file, and in between pauses its input, waits for a deadline or for the wake of a neighbour, and in the end
/// closes.
struct Script {
    dice: Rng,
    file: File,
    says: usize,
    said: usize,
    received: usize,
    has_ended: bool,
    neighbours: Rc<RefCell<Vec<ConnectionId>>>,
}

impl Script {
    /// Says something, or finds a reason to do so later. The whole stream is that of
    /// `Lines::byte`, as the file is.
    fn proceed(&mut self, actions: &mut Actions<'_>) {
        let left = self.says - self.said;
        if left == 0 {
            // Input that is unread at the close would cost the output.
            return if self.has_ended { actions.close() } else { actions.resume_input() };
        }
        let most = [1, 100, 5_000, Actions::ROOM_MIN][self.dice.below(4)];
        let piece = (1 + self.dice.below(most)).min(left).min(actions.room());
        if self.dice.below(6) == 0 && self.said + piece <= 300_000 {
            let file = self.file.try_clone().expect("a descriptor is left").into();
            let offset = self.said as u64;
            let len = piece as u64;
            actions.send_file(FileRange { file, offset, len });
        } else {
            actions.spare()[..piece].copy_from_slice(stream(self.said, piece));
            actions.advance(piece);
        }
        self.said += piece;
        self.choose(actions);
    }

    /// What makes it continue.
    fn choose(&mut self, actions: &mut Actions<'_>) {
        let soon = actions.now().at + Duration::from_micros(self.dice.below(2_000) as u64);
        match self.dice.below(5) {
            0 => actions.set_deadline(soon),
            1 => {
                actions.wake(actions.id());
                let neighbours = self.neighbours.borrow();
                let other = self.dice.below(neighbours.len());
                actions.wake(neighbours[other]);
            }
            _ => actions.notify_when_sent(),
        }
        match self.dice.below(4) {
            0 if !self.has_ended => {
                actions.pause_input();
                // A request to be called may be gone by then.
                actions.set_deadline(soon);
            }
            1 => actions.resume_input(),
            _ => {}
        }
    }

    fn receive(&mut self, input: &[u8]) -> usize {
        let used = 1 + self.dice.below(input.len());
        assert!(input[..used] == *stream(self.received, used), "received {}", self.received);
        self.received += used;
        used
    }

    fn play(&mut self, call: Call<'_>, actions: &mut Actions<'_>) -> usize {
        match call {
            Call::Bytes(input) => {
                let used = self.receive(input);
                if self.dice.below(3) == 0 {
                    self.proceed(actions);
                }
                if used < input.len() {
                    actions.notify_when_sent();
                }
                return used;
            }
            Call::End => {
                self.has_ended = true;
                self.proceed(actions);
            }
            Call::Deadline | Call::Wake => {
                actions.resume_input();
                self.proceed(actions);
            }
            Call::Drained => self.proceed(actions),
            Call::Accepted
            | Call::Connected
            | Call::ConnectFailed(_)
            | Call::Drain
            | Call::Closed(_) => {}
        }
        0
    }
}

/// Sends a known stream in random pieces and reads when it likes.
struct Peer {
    stream: UnixStream,
    dice: Rng,
    says: usize,
    said: usize,
    wants: usize,
    received: Vec<u8>,
    has_ended: bool,
}

impl Peer {
    /// Does something, or nothing; says whether everything was said and received.
    fn advance(&mut self) -> bool {
        if self.said < self.says && self.dice.below(3) > 0 {
            let piece = (1 + self.dice.below(70_000)).min(self.says - self.said);
            match self.stream.write(stream(self.said, piece)) {
                Ok(taken) => self.said += taken,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "at {}", self.said),
            }
        } else if self.said == self.says && !self.has_ended {
            self.stream.shutdown(Shutdown::Write).expect("open");
            self.has_ended = true;
        }
        if self.dice.below(4) > 0 {
            let most = 1 + self.dice.below(90_000);
            let upto = (self.received.len() + most).min(self.wants);
            take(&mut self.stream, &mut self.received, upto);
        }
        self.has_ended && self.received.len() == self.wants
    }
}

fn pair(
    stage: &mut Stage,
    seed: u64,
    causes: &Causes,
    neighbours: &Rc<RefCell<Vec<ConnectionId>>>,
) -> Peer {
    let mut dice = Rng::seeded(seed);
    let says = dice.below(WANTS_MAX);
    let wants = dice.below(SAYS_MAX);
    let mut script = Script {
        dice: Rng::stream(seed, 1),
        file: file(),
        says: wants,
        said: 0,
        received: 0,
        has_ended: false,
        neighbours: Rc::clone(neighbours),
    };
    let session = Puppet::watched(causes, move |call, actions| script.play(call, actions));
    let (id, stream) = stage.adopt(session);
    neighbours.borrow_mut().push(id);
    stage.event_loop.wake(id);
    Peer { stream, dice, says, said: 0, wants, received: Vec::new(), has_ended: false }
}

#[test]
fn random_sessions_and_peers_exchange_the_bytes_of_the_model() {
    for driver in drivers() {
        for seed in 1..=SEEDS {
            // Shown when it fails.
            println!("{driver}, seed {seed}");
            let mut stage = Stage::open(driver, Limits::default());
            let causes = Causes::default();
            let neighbours = Rc::default();
            let seeds = (0..CONNECTIONS as u64).map(|number| (seed << 32) | ((number + 1) * 7919));
            let peers = seeds.map(|seed| pair(&mut stage, seed, &causes, &neighbours));
            let peers: RefCell<Vec<Peer>> = RefCell::new(peers.collect());
            stage.turn_until("everything", |_| {
                let bad =
                    causes.borrow().iter().find(|cause| **cause != CloseCause::PeerClosed).copied();
                assert_eq!(bad, None, "{driver} seed {seed}");
                let advance = |peer: &mut Peer| usize::from(peer.advance());
                peers.borrow_mut().iter_mut().map(advance).sum::<usize>() == CONNECTIONS
            });
            stage.turn_until("all closes", |stage| stage.event_loop.open_connections() == 0);
            for (number, peer) in peers.borrow().iter().enumerate() {
                let is_right = peer.received == stream(0, peer.wants);
                assert!(is_right, "{driver} seed {seed} connection {number}");
            }
            assert!(causes.borrow().iter().all(|cause| *cause == CloseCause::PeerClosed));
            let said: usize = peers.borrow().iter().map(|peer| peer.said).sum();
            let received: usize = peers.borrow().iter().map(|peer| peer.wants).sum();
            assert_eq!(stage.count(Counter::BytesIn), said as u64, "{driver} seed {seed}");
            assert_eq!(stage.count(Counter::BytesOut), received as u64, "{driver} seed {seed}");
            stage.assert_balanced();
            stage.assert_idle();
        }
    }
}
