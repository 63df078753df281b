//! Random sessions and random peers against a model of the bytes, on every driver.
//!
//! Each connection has a script made from its seed: the session says a stream of known bytes in
//! pieces of random sizes, some of them from a file, and in between pauses its input, waits for
//! a deadline or for the wake of a neighbour, and in the end closes. The peer sends a known
//! stream in random pieces and reads when it likes. Both sides check every byte.

use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use pollux_engine::{Actions, CloseCause, ConnectionId, Counter, FileRange, Limits};

use crate::lines::Lines;
use crate::peer::{drivers, file};
use crate::puppet::{Call, Causes, Puppet, Stage, take};

const CONNECTIONS: usize = 60;
const SEEDS: u64 = 2;
const SAYS_MAX: u64 = 400_000;
const WANTS_MAX: u64 = 300_000;

/// xorshift64*: repeatable, and good enough to choose by.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}

/// What one session is to do, and how far it is.
struct Script {
    dice: Dice,
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
        let most = [1, 100, 5_000, Actions::ROOM_MIN as u64][self.dice.below(4) as usize];
        let piece = (1 + self.dice.below(most) as usize).min(left).min(actions.room());
        if self.dice.below(6) == 0 && self.said + piece <= 300_000 {
            let file = self.file.try_clone().expect("a descriptor is left").into();
            let (offset, len) = (self.said as u64, piece as u64);
            actions.send_file(FileRange { file, offset, len });
        } else {
            for (at, place) in actions.spare()[..piece].iter_mut().enumerate() {
                *place = Lines::byte(self.said + at);
            }
            actions.advance(piece);
        }
        self.said += piece;
        self.choose(actions);
    }

    /// What makes it continue.
    fn choose(&mut self, actions: &mut Actions<'_>) {
        let soon = actions.now().at + Duration::from_micros(self.dice.below(2_000));
        match self.dice.below(5) {
            0 => actions.set_deadline(soon),
            1 => {
                actions.wake(actions.id());
                let neighbours = self.neighbours.borrow();
                let other = self.dice.below(neighbours.len() as u64) as usize;
                actions.wake(neighbours[other]);
            }
            _ => actions.call_again(),
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
        let used = 1 + self.dice.below(input.len() as u64) as usize;
        for (at, byte) in input[..used].iter().enumerate() {
            assert_eq!(*byte, Lines::byte(self.received + at), "received {}", self.received + at);
        }
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
                    actions.call_again();
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

struct Peer {
    stream: UnixStream,
    dice: Dice,
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
            let piece = (1 + self.dice.below(70_000) as usize).min(self.says - self.said);
            let bytes: Vec<u8> = (self.said..self.said + piece).map(Lines::byte).collect();
            match self.stream.write(&bytes) {
                Ok(taken) => self.said += taken,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "at {}", self.said),
            }
        } else if self.said == self.says && !self.has_ended {
            self.stream.shutdown(std::net::Shutdown::Write).expect("open");
            self.has_ended = true;
        }
        if self.dice.below(4) > 0 {
            let most = 1 + self.dice.below(90_000) as usize;
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
    let mut dice = Dice(seed);
    let (says, wants) = (dice.below(WANTS_MAX) as usize, dice.below(SAYS_MAX) as usize);
    let mut script = Script {
        dice: Dice(seed ^ 0xABCD_EF01),
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
            let (causes, neighbours) = (Causes::default(), Rc::default());
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
                let wrong = (0..peer.wants).find(|at| peer.received[*at] != Lines::byte(*at));
                assert_eq!(wrong, None, "{driver} seed {seed} connection {number}");
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
