//! `streams`: many streams that are written to, a reader on the poller under test.
//!
//! After Eric Dumazet's `epoll_bench` (published: epoll-bench). How many streams are ready when the reader looks
//! decides what an event costs, so it is an axis: with `ready` that many of them are kept ready
//! (`held`). Without (`ready = "free"`) reader and writer run against each other as in the
//! original, and find whatever number the scheduler makes of it (`free`).

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use pollux_poller::{
    CountersSnapshot, Events, Interest, Mechanism, Poller, Registration, Token, Trigger,
};
use rustix::io::Errno;

use self::transport::Stream;
use crate::arm::RAW_C;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::turns::{self, Described, Program, Subject};
use pollux_processes::compiler;

mod experiment;
mod free;
mod held;
mod transport;

pub(crate) use experiment::Streams;

/// Bytes that one read asks for: the original's buffer.
const READ_BYTES: usize = 1024;
/// The same in C, on bare epoll.
const PROGRAM: &str = include_str!("raw.c");

/// The value of the axis `ready` that leaves it to the scheduler.
pub(crate) const FREE: &str = "free";
/// The value that means every stream.
pub(crate) const ALL: &str = "all";

/// The streams of one arm.
pub(crate) fn open(spec: &RunSpec) -> Result<Box<dyn Subject>, MeasureError> {
    if spec.arm.is(RAW_C) {
        return Ok(Box::new(raw(spec)?));
    }
    let streams = transport::open(spec.word("transport"), spec.count("nfds"))?;
    let (readers, writers): (Vec<OwnedFd>, Vec<OwnedFd>) =
        streams.into_iter().map(|Stream { read, write }| (read, write)).unzip();
    match (ready(spec), spec.mechanism()?) {
        (None, Some(mechanism)) => {
            let reader = Reader::open(mechanism, readers, spec)?;
            Ok(Box::new(free::Free::start(reader, writers, spec)?))
        }
        (None, None) => Ok(Box::new(free::Free::start(free::InTurn::new(readers), writers, spec)?)),
        (_, None) => Err(MeasureError::Spec("streams that are kept ready need a poller".into())),
        (Some(ready), Some(mechanism)) => {
            let reader = Reader::open(mechanism, readers, spec)?;
            Ok(Box::new(held::Held::new(reader, writers, ready, spec.seed)?))
        }
    }
}

/// How many streams are kept ready; none where the writer runs free.
fn ready(spec: &RunSpec) -> Option<usize> {
    match spec.word("ready") {
        FREE => None,
        ALL => Some(spec.count("nfds")),
        _ => Some(spec.count("ready")),
    }
}

/// The least that a reader costs: a program in C on bare epoll, built once for each record.
fn raw(spec: &RunSpec) -> Result<Program, MeasureError> {
    let ready = ready(spec);
    let ready =
        ready.ok_or_else(|| MeasureError::Spec("the program in C keeps streams ready".into()))?;
    let program = compiler::built(&spec.scratch, "streams-raw", PROGRAM, &[])?;
    turns::pin(turns::cpus()?[0])?;
    let mut command = Command::new(program);
    command.arg(spec.word("transport"));
    command
        .args([spec.count("nfds"), ready, spec.count("maxevents")].map(|count| count.to_string()));
    command.arg(spec.seed.to_string());
    Program::start(RAW_C.name, command)
}

/// The reading side: a poller with every stream registered once.
///
/// A reader behind a poller does not block: an edge may be reported again for data that was read
/// meanwhile, and a blocking read would then stand still until the stream is fed again.
struct Reader {
    mechanism: Mechanism,
    poller: Box<dyn Poller>,
    how: Registration,
    streams: Vec<OwnedFd>,
    events: Events,
    buffer: [u8; READ_BYTES],
}

impl Reader {
    fn open(
        mechanism: Mechanism,
        streams: Vec<OwnedFd>,
        spec: &RunSpec,
    ) -> Result<Self, MeasureError> {
        let mut poller = mechanism.open()?;
        let how = Registration::new(Interest::READABLE, mechanism.trigger());
        for (index, stream) in streams.iter().enumerate() {
            rustix::io::ioctl_fionbio(stream, true).map_err(MeasureError::io("ioctl"))?;
            poller.add(stream.as_fd(), Token::new(index as u32, 0), how)?;
        }
        let events = Events::with_capacity(spec.count("maxevents"));
        Ok(Self { mechanism, poller, how, streams, events, buffer: [0; READ_BYTES] })
    }

    /// Waits once and reads what is ready: the number of events, and of reads that brought data.
    #[inline]
    fn collect(&mut self, at_most: Option<Duration>) -> Result<(usize, u64), MeasureError> {
        self.poller.wait(&mut self.events, at_most)?;
        let mut handled = 0;
        for event in &self.events {
            let stream = &self.streams[event.token.slot() as usize];
            match rustix::io::read(stream, &mut self.buffer) {
                Ok(1..) => handled += 1,
                Ok(0) | Err(Errno::AGAIN) => {}
                Err(errno) => return Err(MeasureError::io("read")(errno)),
            }
            if self.how.trigger == Trigger::Oneshot {
                self.poller.modify(stream.as_fd(), event.token, self.how)?;
            }
        }
        Ok((self.events.len(), handled))
    }

    fn counters(&self) -> CountersSnapshot {
        self.poller.counters().snapshot()
    }

    fn described(&self) -> Described {
        Described::of_poller(&*self.poller, self.mechanism)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::{Arm, ArmKind};
    use crate::axis::{Axes, Value};
    use crate::experiments::Experiment as _;
    use crate::turns::Stint;

    /// A small run on `poller`, with other axes at their defaults.
    pub(super) fn spec(poller: &str, axes: &[(&str, &str)]) -> RunSpec {
        let mut all = Axes::defaults(Streams.facts().axes);
        for (name, value) in [("nfds", "50"), ("cpus", "free")].iter().chain(axes) {
            all.set(name, Value::of(value));
        }
        RunSpec::of(Arm::driver(poller.parse().expect("a driver")).kind, all)
    }

    #[test]
    fn a_free_writer_pauses_between_turns_and_everything_it_wrote_is_read() {
        let in_turn = RunSpec { arm: ArmKind::WithoutPoller, ..spec("epoll", &[]) };
        for spec in [spec("epoll", &[]), spec("epoll-et", &[]), in_turn] {
            let mut spec = spec;
            spec.axes.set("ready", Value::of(FREE));
            let mut subject = open(&spec).expect("streams");
            for _ in 0..3 {
                assert!(subject.turn(Stint::of(Duration::from_millis(5))).expect("a turn") > 0);
                let asleep = subject.cpu_time().expect("our own");
                assert!(!asleep.is_zero());
            }
        }
    }
}
