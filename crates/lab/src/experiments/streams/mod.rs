//! `streams`: many streams that are written to, a reader on the poller under test.
//!
//! After Eric Dumazet's `epoll_bench` (published: epoll-bench). How many streams are ready when the reader looks
//! decides what an event costs, so it is an axis: with `ready` that many of them are kept ready
//! (`held`). Without (`ready = "free"`) reader and writer run against each other as in the
//! original, and find whatever number the scheduler makes of it (`free`).

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use pollux_host::built_from_c;
use pollux_poller::{
    CountersSnapshot, Events, Interest, Mechanism, Poller, Registration, Token, Trigger,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::{Description, Experiment, Needs, PIPE_COST, Started, TCP_COST};
use crate::arm::{Arm, ArmKind, RAW_C};
use crate::axis::{Axes, Axis, AxisKind, Value};
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::subject::{self, ProgramSubject, Subject, SubjectInfo};

mod feeding;

/// Bytes that one read asks for: the original's buffer.
const READ_BYTES: usize = 1024;
/// The same in C, on bare epoll.
const PROGRAM: &str = include_str!("raw.c");

/// The value of the axis `ready` that leaves it to the scheduler.
const FREE: &str = "free";
/// The value that means every stream.
pub(crate) const ALL: &str = "all";

/// Connections waiting to be accepted: the original's value.
const BACKLOG: i32 = 256;

/// The streams of one arm.
pub(crate) fn open(spec: &RunSpec) -> Result<Box<dyn Subject>, MeasureError> {
    if spec.arm.is(RAW_C) {
        return Ok(Box::new(raw(spec)?));
    }
    let streams = open_streams(spec.word("transport"), spec.count("nfds"))?;
    let (readers, writers): (Vec<OwnedFd>, Vec<OwnedFd>) =
        streams.into_iter().map(|Stream { read, write }| (read, write)).unzip();
    match (ready(spec), spec.mechanism()?) {
        (None, Some(mechanism)) => {
            let reader = Reader::open(mechanism, readers, spec)?;
            Ok(Box::new(feeding::Free::start(reader, writers, spec)?))
        }
        (None, None) => {
            Ok(Box::new(feeding::Free::start(feeding::Sequential::new(readers), writers, spec)?))
        }
        (_, None) => Err(MeasureError::Spec("streams that are kept ready need a poller".into())),
        (Some(ready), Some(mechanism)) => {
            let reader = Reader::open(mechanism, readers, spec)?;
            Ok(Box::new(feeding::Held::new(reader, writers, ready, spec.seed)?))
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
fn raw(spec: &RunSpec) -> Result<ProgramSubject, MeasureError> {
    let ready = ready(spec);
    let ready =
        ready.ok_or_else(|| MeasureError::Spec("the program in C keeps streams ready".into()))?;
    let program = built_from_c(&spec.scratch, "streams-raw", PROGRAM, &[])?;
    subject::pin(subject::cpus()?[0])?;
    let mut command = Command::new(program);
    command.arg(spec.word("transport"));
    command
        .args([spec.count("nfds"), ready, spec.count("maxevents")].map(|count| count.to_string()));
    command.arg(spec.seed.to_string());
    ProgramSubject::start(RAW_C.name, command)
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

    fn described(&self) -> SubjectInfo {
        SubjectInfo::of_poller(&*self.poller, self.mechanism)
    }
}

/// Many streams fed by a writer thread (published: epoll-bench, `epoll_bench`).
pub(crate) struct Streams;

/// Descriptors are bounded by RLIMIT_NOFILE later, in the plan.
const AXES: &[Axis] = &[
    Axis {
        name: "transport",
        about: "what a stream is: a pipe, an AF_UNIX socketpair, a TCP connection on loopback",
        original: Some("-u, -i"),
        kind: AxisKind::Word(&["pipe", "unix", "tcp"]),
        default: "pipe",
    },
    Axis {
        name: "nfds",
        about: "number of streams",
        original: Some("-n"),
        kind: AxisKind::Count(1, 500_000),
        default: "2000",
    },
    Axis {
        name: "ready",
        about: "streams that are ready whenever the reader looks, so that it is known how many events \
                a wait finds; free lets a writer run against the reader, as the original does, and \
                measures the rate",
        original: None,
        kind: AxisKind::WordOrCount(&[ALL, FREE], 1, 500_000),
        default: "16",
    },
    Axis {
        name: "maxevents",
        about: "most events that one wait may return",
        original: Some("-e"),
        kind: AxisKind::Count(1, 65_536),
        default: "1024",
    },
    Axis {
        name: "yield_below",
        about: "the reader yields the CPU after a wait that returned fewer events than this",
        original: Some("-l"),
        kind: AxisKind::Count(0, 65_536),
        default: "1000",
    },
    Axis {
        name: "cpus",
        about: "where the two threads run: split gives each a CPU of its own, free leaves it to \
                the scheduler, as the original does",
        original: None,
        kind: AxisKind::Cpus,
        default: "split",
    },
    Axis {
        name: "no_poller",
        about: "two more arms: cyclic instead of random writes with the baseline's poller, and \
                cyclic writes with blocking reads and no poller",
        original: Some("-f"),
        kind: AxisKind::Switch,
        default: "false",
    },
];

const DESCRIPTION: Description = Description {
    name: "streams",
    title: "Streams",
    about: "a writer thread sends single bytes to random streams, a reader collects them through the \
            poller (Dumazet's epoll_bench, 2006)",
    question: "Which event mechanism collects most from many active streams?",
    axes: AXES,
    peers: &[RAW_C],
    ..Description::PLAIN
};

impl Experiment for Streams {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn load(&self, axes: &Axes) -> String {
        let transport = match axes.word("transport") {
            Some("pipe") => "pipes",
            Some("unix") => "AF_UNIX",
            _ => "TCP",
        };
        format!("{} streams, all active ({transport})", axes.number("nfds"))
    }

    /// The two arms of `no_poller`: the baseline's poller (or the first) with cyclic writes, and the
    /// same writes without a poller. The original's `-f` changed both at once.
    fn more_arms(
        &self,
        axes: &BTreeMap<String, Vec<Value>>,
        arms: &[Arm],
        baseline: &str,
    ) -> Vec<Arm> {
        if axes.get("no_poller").is_none_or(|values| values[0] != Value::Switch(true)) {
            return Vec::new();
        }
        let reference = arms.iter().find(|arm| arm.name == baseline).or(arms.first());
        let cyclic = reference.and_then(|arm| match arm.kind {
            ArmKind::Driver(driver) => {
                Some(Arm { name: format!("{} cyclic", arm.name), kind: ArmKind::Cyclic(driver) })
            }
            _ => None,
        });
        let without = Arm { name: "no poller cyclic".to_owned(), kind: ArmKind::WithoutPoller };
        cyclic.into_iter().chain([without]).collect()
    }

    fn arm_fault(&self, axes: &Axes, arm: &ArmKind) -> Option<String> {
        (arm.is(RAW_C) && !self.takes_turns(axes))
            .then(|| "the program in C takes turns and has no writer that runs free".to_owned())
    }

    fn needs(&self, axes: &Axes) -> Needs {
        let fd_cost = if axes.is("transport", "tcp") { TCP_COST } else { PIPE_COST };
        Needs::of_thread(2 * axes.number("nfds"), fd_cost)
    }

    fn takes_turns(&self, axes: &Axes) -> bool {
        !axes.is("ready", FREE)
    }

    fn start<'a>(&self, spec: &RunSpec, _: &'a dyn Fn() -> bool) -> Started<'a> {
        open(spec)
    }
}

/// One stream, a pipe, an AF_UNIX socketpair or a TCP connection: what is written to `write` arrives at `read`. Both
/// ends block, as in the original program.
#[derive(Debug)]
struct Stream {
    /// The end that is watched.
    pub(crate) read: OwnedFd,
    /// The end that is fed.
    pub(crate) write: OwnedFd,
}

/// Opens `count` streams of the given transport.
///
/// # Errors
/// [`MeasureError::Setup`] with the number that could be opened.
fn open_streams(transport: &str, count: usize) -> Result<Vec<Stream>, MeasureError> {
    let mut streams = Vec::with_capacity(count);
    let opened = match transport {
        "pipe" => fill(&mut streams, count, || {
            rustix::pipe::pipe().map(|(read, write)| Stream { read, write })
        }),
        "unix" => fill(&mut streams, count, || {
            let kind = SocketType::STREAM;
            let (read, write) =
                rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
            Ok(Stream { read, write })
        }),
        "tcp" => open_tcp(&mut streams, count),
        other => unreachable!("transport {other} passed the axis check"),
    };
    opened.map_err(|errno| MeasureError::Setup {
        what: format!("stream {} of {count} ({transport})", streams.len() + 1),
        cause: errno.into(),
    })?;
    Ok(streams)
}

fn fill(
    streams: &mut Vec<Stream>,
    count: usize,
    mut open_streams: impl FnMut() -> Result<Stream, Errno>,
) -> Result<(), Errno> {
    for _ in 0..count {
        streams.push(open_streams()?);
    }
    Ok(())
}

/// One listener on loopback; each stream is connected without blocking and accepted at once.
fn open_tcp(streams: &mut Vec<Stream>, count: usize) -> Result<(), Errno> {
    let listener = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let loopback = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
    rustix::net::bind(&listener, &loopback)?;
    rustix::net::listen(&listener, BACKLOG)?;
    let address = rustix::net::getsockname(&listener)?;
    fill(streams, count, || {
        let read = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        match rustix::net::connect(&read, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        let write = rustix::net::accept(&listener)?;
        rustix::io::ioctl_fionbio(&read, false)?;
        Ok(Stream { read, write })
    })
}

#[cfg(test)]
mod tests {
    use pollux_testing::wait_until;

    use super::*;
    use crate::arm::{Arm, ArmKind};
    use crate::axis::{Axes, Value};
    use crate::subject::TurnSize;

    /// A small run on `poller`, with other axes at their defaults.
    pub(super) fn spec(poller: &str, axes: &[(&str, &str)]) -> RunSpec {
        let mut all = Axes::defaults(Streams.description().axes);
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
                let turn = TurnSize::of(Duration::from_millis(5));
                wait_until("an event", || subject.turn(turn).expect("a turn") > 0);
                let asleep = subject.cpu_time().expect("our own");
                assert!(!asleep.is_zero());
            }
        }
    }
}
