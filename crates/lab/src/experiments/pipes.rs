//! `pipes`: tokens hop between pipes of which all are watched and nearly all are idle.
//!
//! Ben LaHaise's `pipetest` (published: sys-epoll; rules in its 2002 and 2006 forms): every read end is
//! registered once. In each turn all pending tokens are written into their pipes, one wait
//! follows, whole tokens are read from what is ready, each is checked to be in the pipe that it
//! was meant for, counts as one pass and goes to its next pipe, until its generations are used
//! up. The original ran 300 generations, less than a millisecond today; here the ramp measures
//! the pace and the generations are chosen so that the run lasts as long as the job asks.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use pollux_poller::{
    CountersSnapshot, Events, Interest, Mechanism, Poller, Registration, Token, Trigger,
};
use rustix::pipe::{PipeFlags, pipe_with};

use super::{Cost, Curve, Description, Experiment, Metric, Needs, PIPE_COST, Started};
use crate::axis::{Axes, Axis, AxisKind};
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::subject::{self, Subject, SubjectInfo, TurnSize};

/// Bytes of a token: generation, target, message number, and four unused.
const TOKEN_BYTES: usize = 16;
/// Most events of one wait; more tokens than this are never under way.
const EVENTS_MAX: usize = 1024;
/// No part of a turn is longer than this many generations, whatever the pace promises.
const GENERATIONS_MAX: u32 = 1 << 24;

/// The pipes, and the pace at which tokens went through them.
pub(crate) struct Tokens {
    ring: Ring,
    events: Events,
    /// Time of one generation in the turn before; zero before the first.
    generation: Duration,
}

impl Tokens {
    /// Opens the pipes and registers them, on the calling thread, which works in the turns.
    pub(crate) fn open(spec: &RunSpec) -> Result<Self, MeasureError> {
        let mechanism =
            spec.mechanism()?.ok_or_else(|| MeasureError::Spec("pipes need a poller".into()))?;
        subject::pin(subject::cpus()?[0])?;
        let ring = Ring::open(mechanism, spec)?;
        let events = Events::with_capacity(EVENTS_MAX);
        Ok(Self { ring, events, generation: Duration::ZERO })
    }
}

impl Subject for Tokens {
    /// Looks at the clock a few times only: half of what is left is done before each look.
    fn turn(&mut self, size: TurnSize) -> Result<u64, MeasureError> {
        let start = Instant::now();
        let mut passes = 0;
        loop {
            let left = size.length.saturating_sub(start.elapsed());
            if left.is_zero() && passes > 0 {
                return Ok(passes);
            }
            let fits = left.as_nanos() / 2 / self.generation.as_nanos().max(1);
            let fits = if self.generation.is_zero() { 1 } else { fits.min(1 << 24) as u32 };
            let generations = fits.clamp(1, GENERATIONS_MAX);
            let began = Instant::now();
            passes += self.ring.run_tokens(generations, &mut self.events)?;
            self.generation = began.elapsed() / generations;
        }
    }

    fn counters(&self) -> Option<CountersSnapshot> {
        Some(self.ring.poller.counters().snapshot())
    }

    fn described(&self) -> SubjectInfo {
        SubjectInfo::of_poller(&*self.ring.poller, self.ring.mechanism)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Fixed,
    Hopping,
}

#[derive(Clone, Copy)]
struct Message {
    generation: u32,
    target: u32,
    number: u32,
}

struct Ring {
    mechanism: Mechanism,
    poller: Box<dyn Poller>,
    how: Registration,
    readers: Vec<OwnedFd>,
    writers: Vec<OwnedFd>,
    rule: Rule,
    messages: u32,
    message_bytes: usize,
    buffer: Vec<u8>,
    passes: u64,
}

impl Ring {
    fn open(mechanism: Mechanism, spec: &RunSpec) -> Result<Self, MeasureError> {
        let pipes = spec.count("pipes");
        let messages = spec.count("messages");
        let message_bytes = spec.count("message_bytes");
        let how = Registration::new(Interest::READABLE, mechanism.trigger());
        let mut poller = mechanism.open()?;
        let mut readers = Vec::new();
        let mut writers = Vec::new();
        for index in 0..pipes {
            let (read, write) =
                pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).map_err(|errno| {
                    MeasureError::Setup {
                        what: format!("pipe {} of {pipes}", index + 1),
                        cause: errno.into(),
                    }
                })?;
            poller.add(read.as_fd(), Token::new(index as u32, 0), how)?;
            readers.push(read);
            writers.push(write);
        }
        Ok(Self {
            mechanism,
            poller,
            how,
            readers,
            writers,
            rule: if spec.word("rule") == "fixed" { Rule::Fixed } else { Rule::Hopping },
            messages: messages as u32,
            message_bytes,
            buffer: vec![0; message_bytes * messages],
            passes: 0,
        })
    }

    /// Sends every message through `generations` pipes; gives the number of passes.
    fn run_tokens(&mut self, generations: u32, events: &mut Events) -> Result<u64, MeasureError> {
        let before = self.passes;
        let mut pending: Vec<Message> = (0..self.messages)
            .map(|number| Message { generation: 0, target: self.target(0, number), number })
            .collect();
        while !pending.is_empty() {
            for message in pending.drain(..) {
                self.send(message)?;
            }
            self.poller.wait(events, None)?;
            for event in events.iter() {
                self.receive(event.token, generations, &mut pending)?;
            }
        }
        Ok(self.passes - before)
    }

    fn target(&self, generation: u32, number: u32) -> u32 {
        let pipes = self.readers.len() as u32;
        match self.rule {
            Rule::Fixed => pipes - 1 - number % pipes,
            Rule::Hopping => {
                let stride = pipes / self.messages.min(pipes);
                let target =
                    u64::from(generation) * 17 + u64::from(number) * (1 + u64::from(stride));
                (target % u64::from(pipes)) as u32
            }
        }
    }

    fn send(&mut self, message: Message) -> Result<(), MeasureError> {
        let bytes = &mut self.buffer[..self.message_bytes];
        bytes[0..4].copy_from_slice(&message.generation.to_ne_bytes());
        bytes[4..8].copy_from_slice(&message.target.to_ne_bytes());
        bytes[8..TOKEN_BYTES - 4].copy_from_slice(&message.number.to_ne_bytes());
        let pipe = &self.writers[message.target as usize];
        let written = rustix::io::write(pipe, bytes).map_err(MeasureError::io("write"))?;
        if written != self.message_bytes {
            return Err(MeasureError::Protocol(format!("a pipe took {written} bytes of a token")));
        }
        Ok(())
    }

    /// Reads the whole tokens that one pipe holds; all were written before the wait, so one
    /// read with room for every message empties it, which edge triggers require.
    fn receive(
        &mut self,
        token: Token,
        generations: u32,
        pending: &mut Vec<Message>,
    ) -> Result<(), MeasureError> {
        let pipe = &self.readers[token.slot() as usize];
        let read =
            rustix::io::read(pipe, &mut self.buffer[..]).map_err(MeasureError::io("read"))?;
        if read % self.message_bytes != 0 {
            return Err(MeasureError::Protocol(format!("{read} bytes are not whole tokens")));
        }
        for bytes in self.buffer[..read].chunks_exact(self.message_bytes) {
            let word =
                |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
            let generation = word(0) + 1;
            let target = word(4);
            let number = word(8);
            if target != token.slot() {
                return Err(MeasureError::Protocol(format!(
                    "a token for pipe {target} arrived in pipe {}",
                    token.slot()
                )));
            }
            self.passes += 1;
            if generation < generations {
                let target = self.target(generation, number);
                pending.push(Message { generation, target, number });
            }
        }
        if self.how.trigger == Trigger::Oneshot {
            let pipe = &self.readers[token.slot() as usize];
            self.poller.modify(pipe.as_fd(), token, self.how)?;
        }
        Ok(())
    }
}

/// Tokens that hop between pipes (published: sys-epoll, `pipetest`).
pub(crate) struct Pipes;

/// Two descriptors for each pipe.
const AXES: &[Axis] = &[
    Axis {
        name: "pipes",
        about: "number of pipes, all watched",
        original: Some("num_pipes"),
        kind: AxisKind::Count(2, 500_000),
        default: "10,100,500,1000,2000,4000,8000,16000",
    },
    Axis {
        name: "rule",
        about: "where a token goes next: hopping over the whole set (2002), or always the same \
                pipe near the end of the set (fixed, 2006)",
        original: None,
        kind: AxisKind::Word(&["fixed", "hopping"]),
        default: "fixed,hopping",
    },
    Axis {
        name: "messages",
        about: "tokens under way at once; pipetest calls them message threads",
        original: Some("message_threads"),
        kind: AxisKind::Count(1, 1024),
        default: "1",
    },
    Axis {
        name: "message_bytes",
        about: "size of a token on its way; at least the 16 bytes that it consists of",
        original: Some("--bufsize"),
        kind: AxisKind::Count(16, 4096),
        default: "16",
    },
];

const DESCRIPTION: Description = Description {
    name: "pipes",
    title: "Pipes",
    about: "tokens hop between pipes of which all but a few are idle: what does watching cost? \
            (LaHaise's pipetest, 2002)",
    question: "What does it cost to watch many idle descriptors?",
    axes: AXES,
    curve: Some(Curve { axis: "pipes", from: 100 }),
    cost: Cost::ns("CPU time per pass", "ns/pass"),
    of_runs: Metric::rate("passes per second", "passes/s"),
    ..Description::PLAIN
};

impl Experiment for Pipes {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn load(&self, axes: &Axes) -> String {
        let pipes = axes.number("pipes");
        let messages = axes.number("messages");
        let hops = if axes.is("rule", "hopping") { ", hopping over cold caches" } else { "" };
        format!("{pipes} pipes watched, {messages} active{hops}")
    }

    fn needs(&self, axes: &Axes) -> Needs {
        Needs::of_thread(2 * axes.number("pipes"), PIPE_COST)
    }

    fn start<'a>(&self, spec: &RunSpec, _: &'a dyn Fn() -> bool) -> Started<'a> {
        Ok(Box::new(Tokens::open(spec)?))
    }
}
