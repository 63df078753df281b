//! `chain`: bytes go round a chain of socket pairs; each event is one receive and one send.
//!
//! The benchmark that libevent's authors showed their library with, and others theirs since:
//! `pairs` socket pairs are watched at one end, `active` of them, evenly spread, are sent a byte.
//! The receiver of a byte sends one to the next pair, until `writes` more have been sent; the
//! round is over when all have arrived. Its figure is the time of a round over its events. Here
//! rounds follow each other for as long as a turn lasts.
//! What differs: the original also deletes and adds every pair before each round, and times that by
//! itself; here they are registered once.
//!
//! Every arm receives and sends alike and never blocks in a wait; they differ in how they learn
//! what to receive. `uring` receives and sends by completion, which is the point of it.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use pollux_engine::Driver;
use pollux_poller::CountersSnapshot;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::{Description, Experiment, Metric, Needs, PIPE_COST, Started};
use crate::arm::{Peer, RAW_EPOLL};
use crate::axis::{Axes, Axis, AxisKind};
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::subject::{self, Subject, SubjectInfo, TurnSize};
use watchers::{LIBEV, LIBEVENT, LIBUV};

pub(crate) mod watchers;

/// The byte that goes round.
const BYTE: &[u8] = b"e";
/// Events that one wait may bring, the same for every arm.
const EVENTS_MAX: usize = 1024;

/// The chain of one arm.
pub(crate) fn open(spec: &RunSpec) -> Result<Box<dyn Subject>, MeasureError> {
    subject::pin(subject::cpus()?[0])?;
    if let Some(library) = spec.arm.peer().and_then(watchers::called) {
        return Ok(Box::new(watchers::start(library, spec)?));
    }
    let chain = Pairs::open(spec)?;
    Ok(match (spec.arm.driver(), spec.arm.peer()) {
        (Some(Driver::Readiness(mechanism)), _) => {
            let watcher = watchers::Pollux::open(mechanism, &chain)?;
            Box::new(Rounds { chain, watcher })
        }
        (Some(Driver::Completion), _) => {
            let watcher = watchers::Completion::open(&chain)?;
            Box::new(Rounds { chain, watcher })
        }
        (None, Some(name)) if name == RAW_EPOLL.name => {
            let watcher = watchers::RawEpoll::open(&chain)?;
            Box::new(Rounds { chain, watcher })
        }
        (None, Some(name)) if name == MIO.name => {
            let watcher = watchers::Mio::open(&chain)?;
            Box::new(Rounds { chain, watcher })
        }
        (None, Some(name)) if name == POLLING.name => {
            let watcher = watchers::Polling::open(&chain)?;
            Box::new(Rounds { chain, watcher })
        }
        (None, peer) => {
            let peer = peer.unwrap_or("nothing");
            return Err(MeasureError::Spec(format!("chain does not run on {peer}")));
        }
    })
}

/// A chain with what watches it: rounds for as long as a turn lasts.
struct Rounds<W> {
    chain: Pairs,
    watcher: W,
}

impl<W: Watcher> Subject for Rounds<W> {
    fn turn(&mut self, size: TurnSize) -> Result<u64, MeasureError> {
        let start = Instant::now();
        let mut events = 0;
        loop {
            self.chain.begin()?;
            self.watcher.begin(&self.chain);
            while !self.chain.is_over() {
                self.watcher.turn(&mut self.chain)?;
            }
            events += self.chain.events() as u64;
            if start.elapsed() >= size.length {
                return Ok(events);
            }
        }
    }

    fn counters(&self) -> Option<CountersSnapshot> {
        self.watcher.counters()
    }

    fn described(&self) -> SubjectInfo {
        self.watcher.described()
    }
}

/// Learns which pairs have something to receive.
trait Watcher {
    /// Looks once, without waiting, and receives from each pair that is ready.
    fn turn(&mut self, chain: &mut Pairs) -> Result<(), MeasureError>;

    /// Called when a round has begun: the first bytes are on their way.
    fn begin(&mut self, _chain: &Pairs) {}

    /// Its counters, where it is a poller of pollux.
    fn counters(&self) -> Option<CountersSnapshot> {
        None
    }

    /// What it says of itself.
    fn described(&self) -> SubjectInfo {
        SubjectInfo::default()
    }
}

/// The pairs, and how far a round is.
struct Pairs {
    /// The ends that are watched; shared, as polling must keep what it watches.
    readers: Rc<[OwnedFd]>,
    writers: Vec<OwnedFd>,
    active: usize,
    writes: usize,
    /// Writes of this round that are still to follow.
    to_follow: usize,
    /// Bytes of this round sent and received so far.
    sent: usize,
    received: usize,
}

impl Pairs {
    fn open(spec: &RunSpec) -> Result<Self, MeasureError> {
        let pairs = spec.count("pairs");
        let active = spec.count("active");
        if !(1..=pairs).contains(&active) {
            return Err(MeasureError::Spec(format!("{active} bytes do not fit {pairs} pairs")));
        }
        let mut readers = Vec::new();
        let mut writers = Vec::new();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for index in 0..pairs {
            let kind = SocketType::STREAM;
            let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None);
            let (reader, writer) = pair.map_err(|errno| MeasureError::Setup {
                what: format!("socket pair {} of {pairs}", index + 1),
                cause: errno.into(),
            })?;
            readers.push(reader);
            writers.push(writer);
        }
        let writes = spec.count("writes");
        let readers = readers.into();
        Ok(Self { readers, writers, active, writes, to_follow: 0, sent: 0, received: 0 })
    }

    /// Events of one round.
    fn events(&self) -> usize {
        self.active + self.writes
    }

    /// Begins a round: a byte to each of the active pairs.
    fn begin(&mut self) -> Result<(), MeasureError> {
        let space = self.readers.len() / self.active;
        for index in 0..self.active {
            send(&self.writers[index * space])?;
        }
        (self.to_follow, self.sent, self.received) = (self.writes, self.active, 0);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.received == self.sent
    }

    /// The pair to which a byte received from `index` is passed on; none when the round has had
    /// all its writes.
    fn next(&mut self, index: usize) -> Option<usize> {
        self.to_follow = self.to_follow.checked_sub(1)?;
        self.sent += 1;
        let next = index + 1;
        Some(if next < self.readers.len() { next } else { 0 })
    }

    /// One event: receives from a pair and sends to the next.
    #[inline]
    fn receive(&mut self, index: usize) -> Result<(), MeasureError> {
        let mut byte = [0u8; 1];
        match rustix::net::recv(&self.readers[index], &mut byte[..], RecvFlags::empty()) {
            Ok((_, 1..)) => self.received += 1,
            // A poller may report more than there is.
            Err(Errno::AGAIN) => return Ok(()),
            Ok(_) => return Err(MeasureError::Protocol("the end of a pair that is open".into())),
            Err(errno) => return Err(MeasureError::io("recv")(errno)),
        }
        match self.next(index) {
            Some(next) => send(&self.writers[next]),
            None => Ok(()),
        }
    }
}

#[inline]
fn send(writer: &OwnedFd) -> Result<(), MeasureError> {
    rustix::net::send(writer, BYTE, SendFlags::empty()).map_err(MeasureError::io("send"))?;
    Ok(())
}

/// Bytes that go round a chain of socket pairs (libevent's `bench`).
pub(crate) struct Chain;

/// The Rust library mio.
const MIO: Peer = Peer::of_pollux("mio");
/// The Rust library polling.
const POLLING: Peer = Peer::of_pollux("polling");

/// Two descriptors for each pair.
const AXES: &[Axis] = &[
    Axis {
        name: "pairs",
        about: "number of socket pairs, one end of each watched",
        original: Some("-n"),
        kind: AxisKind::Count(1, 250_000),
        default: "100,1000",
    },
    Axis {
        name: "active",
        about: "bytes under way at once, spread over the pairs",
        original: Some("-a"),
        kind: AxisKind::Count(1, 250_000),
        default: "100",
    },
    Axis {
        name: "writes",
        about: "writes that follow in each round: for each byte read one goes to the next pair, \
                until they are used up",
        original: Some("-w"),
        kind: AxisKind::Count(1, 1_000_000),
        default: "10000",
    },
];

const DESCRIPTION: Description = Description {
    name: "chain",
    title: "Chain",
    about: "bytes go round a chain of socket pairs, each event is one read and one write (the benchmark \
            that event libraries show themselves with)",
    question: "What does one event cost, and what do event libraries add?",
    axes: AXES,
    drivers: &Driver::ALL,
    peers: &[RAW_EPOLL, LIBEV, LIBUV, LIBEVENT, MIO, POLLING],
    of_runs: Metric::cost("time per event", "ns/event"),
    ..Description::PLAIN
};

impl Experiment for Chain {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn load(&self, axes: &Axes) -> String {
        format!("{} socket pairs watched, {} active", axes.number("pairs"), axes.number("active"))
    }

    fn point_fault(&self, axes: &Axes) -> Option<String> {
        (axes.number("active") > axes.number("pairs"))
            .then(|| "more bytes under way than there are pairs".to_owned())
    }

    fn needs(&self, axes: &Axes) -> Needs {
        Needs::of_thread(2 * axes.number("pairs"), PIPE_COST)
    }

    fn start<'a>(&self, spec: &RunSpec, _: &'a dyn Fn() -> bool) -> Started<'a> {
        open(spec)
    }
}

#[cfg(test)]
mod tests {
    use pollux_poller::Mechanism;

    use super::*;
    use crate::arm::ArmKind;
    use crate::axis::Value;

    fn spec(pairs: usize, active: usize, writes: usize) -> RunSpec {
        let axes = [("pairs", pairs), ("active", active), ("writes", writes)];
        let axes = axes.into_iter().map(|(name, n)| (name, Value::Number(n as u64)));
        RunSpec::of(ArmKind::WithoutPoller, axes.collect())
    }

    /// One round on every watcher: each byte arrives, none is left, and none too many is sent.
    fn one_round(mut turn_of: impl FnMut(&Pairs) -> Box<dyn Watcher>) {
        for (pairs, active, writes) in [(1, 1, 5), (7, 3, 100), (10, 10, 0), (50, 20, 333)] {
            let mut chain = Pairs::open(&spec(pairs, active, writes)).expect("a chain");
            let mut watcher = turn_of(&chain);
            for _ in 0..3 {
                chain.begin().expect("a round");
                watcher.begin(&chain);
                while !chain.is_over() {
                    watcher.turn(&mut chain).expect("a turn");
                }
                assert_eq!(chain.received, active + writes);
            }
        }
    }

    #[test]
    fn a_round_ends_on_every_mechanism() {
        for mechanism in Mechanism::ALL {
            if let Err(reason) = mechanism.open() {
                eprintln_skip(mechanism.name(), &reason.to_string());
                continue;
            }
            one_round(|chain| {
                Box::new(watchers::Pollux::open(mechanism, chain).expect("a poller"))
            });
        }
    }

    #[test]
    fn a_round_ends_on_bare_epoll_and_on_libraries_of_rust() {
        one_round(|chain| Box::new(watchers::RawEpoll::open(chain).expect("epoll")));
        one_round(|chain| Box::new(watchers::Mio::open(chain).expect("mio")));
        one_round(|chain| Box::new(watchers::Polling::open(chain).expect("polling")));
    }

    #[test]
    fn a_round_ends_by_completion() {
        let chain = Pairs::open(&spec(1, 1, 5)).expect("a chain");
        if let Err(reason) = watchers::Completion::open(&chain) {
            return eprintln_skip("uring", &reason.to_string());
        }
        one_round(|chain| Box::new(watchers::Completion::open(chain).expect("a ring")));
    }

    fn eprintln_skip(name: &str, reason: &str) {
        pollux_testing::skip(format_args!("{name}: {reason}"));
    }
}
