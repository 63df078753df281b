//! `chain`: bytes go round a chain of socket pairs; each event is one receive and one send.
//!
//! The benchmark that libevent's authors showed their library with, and others theirs since:
//! `pairs` socket pairs are watched at one end, `active` of them, evenly spread, are sent a byte.
//! Whoever receives a byte sends one to the next pair, until `writes` more have been sent; the
//! round is over when all have arrived. Its figure is the time of a round over its events. Here
//! rounds follow each other for as long as the job asks, and the median round stands for the run.
//! What differs: the original also deletes and adds every pair before each round, and times that by
//! itself; here they are registered once.
//!
//! Every arm receives and sends alike and never blocks in a wait; they differ in how they learn
//! what to receive. `uring` receives and sends by completion, which is the point of it.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::Peer;
use crate::error::MeasureError;
use crate::measure::{Gauge, Notice, RunSpec};
use crate::stats::median;

mod completion;
pub(crate) mod library;
mod mio;
mod polling;
mod pollux;
mod raw;

/// The byte that goes round.
const BYTE: &[u8] = b"e";
/// Events that one wait may bring, the same for every arm.
const EVENTS_MAX: usize = 1024;

/// Sets the pairs up and runs rounds for ramp and runtime.
///
/// Runs in the measured thread.
pub(crate) fn run(spec: &RunSpec, gauge: &Gauge) -> Result<(), MeasureError> {
    if let Some(peer @ (Peer::Libev | Peer::Libuv | Peer::Libevent)) = spec.peer()? {
        return library::run(peer, spec, gauge);
    }
    let mut chain = Chain::open(spec)?;
    let (driver, peer) = (spec.driver()?, spec.peer()?);
    match (driver, peer) {
        (Some(Driver::Readiness(mechanism)), _) => {
            let mut watcher = pollux::Pollux::open(mechanism, &chain)?;
            gauge.announce(Notice::ready(Some(watcher.poller())), None);
            run_rounds(&mut chain, spec, gauge, &mut |chain| watch(chain, &mut watcher, gauge))
        }
        (Some(driver @ Driver::Completion), _) => {
            let mut ring = completion::Completion::open(&chain)?;
            gauge.announce(Notice::ready_with(driver.to_string(), ring.notes()), None);
            run_rounds(&mut chain, spec, gauge, &mut |chain| ring.round(chain, gauge))
        }
        (None, Some(Peer::RawEpoll)) => {
            let mut watcher = raw::RawEpoll::open(&chain)?;
            gauge.announce(Notice::ready(None), None);
            run_rounds(&mut chain, spec, gauge, &mut |chain| watch(chain, &mut watcher, gauge))
        }
        (None, Some(Peer::Mio)) => {
            let mut watcher = mio::Mio::open(&chain)?;
            gauge.announce(Notice::ready(None), None);
            run_rounds(&mut chain, spec, gauge, &mut |chain| watch(chain, &mut watcher, gauge))
        }
        (None, Some(Peer::Polling)) => {
            let mut watcher = polling::Polling::open(&chain)?;
            gauge.announce(Notice::ready(None), None);
            run_rounds(&mut chain, spec, gauge, &mut |chain| watch(chain, &mut watcher, gauge))
        }
        (None, peer) => {
            let peer = peer.map_or("nothing", Peer::name);
            Err(MeasureError::Spec(format!("chain does not run on {peer}")))
        }
    }
}

/// Learns which pairs have something to receive.
trait Watcher {
    /// Looks once, without waiting, and receives from each pair that is ready.
    fn turn(&mut self, chain: &mut Chain) -> Result<(), MeasureError>;
}

/// The pairs, and how far a round is.
struct Chain {
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

impl Chain {
    fn open(spec: &RunSpec) -> Result<Self, MeasureError> {
        let (pairs, active) = (spec.count("pairs")?, spec.count("active")?);
        if !(1..=pairs).contains(&active) {
            return Err(MeasureError::Spec(format!("{active} bytes do not fit {pairs} pairs")));
        }
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
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
        let writes = spec.count("writes")?;
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
            // A poller may tell of more than there is.
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

/// One round of a chain with a watcher.
fn watch(chain: &mut Chain, watcher: &mut impl Watcher, gauge: &Gauge) -> Result<(), MeasureError> {
    while !chain.is_over() && !gauge.is_stopped() {
        watcher.turn(chain)?;
    }
    Ok(())
}

/// Rounds for the ramp, then for the window, which closes with the median round.
fn run_rounds(
    chain: &mut Chain,
    spec: &RunSpec,
    gauge: &Gauge,
    round: &mut dyn FnMut(&mut Chain) -> Result<(), MeasureError>,
) -> Result<(), MeasureError> {
    let mut timed_round = |chain: &mut Chain| -> Result<Duration, MeasureError> {
        chain.begin()?;
        let start = Instant::now();
        round(chain)?;
        Ok(start.elapsed())
    };
    let ramp = Instant::now();
    while ramp.elapsed() < spec.ramp_time() && !gauge.is_stopped() {
        timed_round(chain)?;
    }
    gauge.open_window();
    let (window, mut rounds_ns) = (Instant::now(), Vec::new());
    while (rounds_ns.is_empty() || window.elapsed() < spec.runtime()) && !gauge.is_stopped() {
        rounds_ns.push(timed_round(chain)?.as_nanos() as f64);
        gauge.events.store((rounds_ns.len() * chain.events()) as u64, Relaxed);
    }
    let (events, elapsed) = as_median(&rounds_ns, chain.events());
    gauge.close_window(events, elapsed);
    Ok(())
}

/// The window as it would be if every round had taken as long as the median round.
fn as_median(rounds_ns: &[f64], events_per_round: usize) -> (u64, Duration) {
    let median_ns = median(rounds_ns).unwrap_or(0.0);
    let elapsed = Duration::from_nanos((median_ns * rounds_ns.len() as f64) as u64);
    ((rounds_ns.len() * events_per_round) as u64, elapsed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::sync::mpsc::channel;

    use pollux_poller::Mechanism;

    use super::*;
    use crate::measure::{Pass, Pattern};

    fn spec(pairs: usize, active: usize, writes: usize) -> RunSpec {
        let axes = [("pairs", pairs), ("active", active), ("writes", writes)];
        RunSpec {
            experiment: "chain".into(),
            server: None,
            poller: None,
            wait: None,
            peer: None,
            pattern: Pattern::Random,
            axes: BTreeMap::from(axes.map(|(name, value)| (name.to_owned(), value.to_string()))),
            seed: 1,
            ramp_ms: 0,
            runtime_ms: 1,
            interval_ms: 1,
            pass: Pass::Timing,
            sources: None,
            scratch: PathBuf::new(),
        }
    }

    /// One round on every watcher: each byte arrives, none is left, and none too many is sent.
    fn one_round(mut turn_of: impl FnMut(&Chain) -> Box<dyn Watcher>) {
        for (pairs, active, writes) in [(1, 1, 5), (7, 3, 100), (10, 10, 0), (50, 20, 333)] {
            let mut chain = Chain::open(&spec(pairs, active, writes)).expect("a chain");
            let mut watcher = turn_of(&chain);
            for _ in 0..3 {
                chain.begin().expect("a round");
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
            one_round(|chain| Box::new(pollux::Pollux::open(mechanism, chain).expect("a poller")));
        }
    }

    #[test]
    fn a_round_ends_on_the_floor_and_on_libraries_of_rust() {
        one_round(|chain| Box::new(raw::RawEpoll::open(chain).expect("epoll")));
        one_round(|chain| Box::new(mio::Mio::open(chain).expect("mio")));
        one_round(|chain| Box::new(polling::Polling::open(chain).expect("polling")));
    }

    #[test]
    fn a_round_ends_by_completion() {
        let (sender, _notices) = channel();
        let gauge = Gauge::new(sender);
        for (pairs, active, writes) in [(1, 1, 5), (7, 3, 100), (10, 10, 0), (50, 20, 333)] {
            let mut chain = Chain::open(&spec(pairs, active, writes)).expect("a chain");
            let mut ring = match completion::Completion::open(&chain) {
                Ok(ring) => ring,
                Err(reason) => return eprintln_skip("uring", &reason.to_string()),
            };
            for _ in 0..3 {
                chain.begin().expect("a round");
                ring.round(&mut chain, &gauge).expect("a round");
                assert_eq!(chain.received, active + writes);
            }
        }
    }

    #[expect(clippy::print_stderr, reason = "a skipped test says why")]
    fn eprintln_skip(name: &str, reason: &str) {
        assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{name}: {reason}");
        eprintln!("skipped: {name}: {reason}");
    }

    #[test]
    fn the_median_round_stands_for_all() {
        let (events, elapsed) = as_median(&[10.0, 1000.0, 20.0], 5);
        assert_eq!((events, elapsed), (15, Duration::from_nanos(60)));
    }
}
