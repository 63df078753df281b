//! What feeds the streams: a writer that runs free, as in `epoll_bench`, or the reader itself, which keeps a chosen
//! number ready.
//!
//! The writer is nice(10), writes one byte to a random stream and yields after as many writes as
//! there are streams; the reader waits, reads what is ready, and yields after a small batch. What
//! differs from the original: the random numbers come from our own generator, `no_poller` changes
//! one factor at a time, and `cpus` may keep the two threads apart. How many streams a wait finds
//! ready is the scheduler's doing; within one run it goes from a few to all of them.
//!
//! Streams of which a chosen number is ready whenever the reader looks. One thread does both: it writes a byte to each
//! of `ready` streams, drawn anew for each batch, then waits and reads until it has them all. So a wait finds exactly
//! what was written, and the figure holds everything that an event costs: the write with what the mechanism does in
//! it, its share of a wait, and the read. Falling asleep is not in it, as there is always something to find.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_poller::CountersSnapshot;
use pollux_stats::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{READ_BYTES, Reader};
use crate::arm::ArmKind;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::subject::{self, Subject, SubjectInfo, TurnSize};

/// How far below the reader the writer is scheduled: the original's `nice(10)`.
const WRITER_NICE: i32 = 10;
/// How long a reader that waits for the writer's pause waits at once.
const LOOK: Duration = Duration::from_millis(1);

/// Events between two looks at the clock.
const EVENTS_PER_LOOK: usize = 64;

/// What reads: through a poller, or one stream after the other.
pub(super) trait Collect {
    /// Reads what is ready, waiting for it at most so long: the number of events, and of reads that
    /// brought data.
    fn collect(&mut self, at_most: Option<Duration>) -> Result<(usize, u64), MeasureError>;
    /// The poller's counters.
    fn counters(&self) -> Option<CountersSnapshot>;
    /// What it says of itself.
    fn described(&self) -> SubjectInfo;
}

impl Collect for Reader {
    fn collect(&mut self, at_most: Option<Duration>) -> Result<(usize, u64), MeasureError> {
        Self::collect(self, at_most)
    }

    fn counters(&self) -> Option<CountersSnapshot> {
        Some(Self::counters(self))
    }

    fn described(&self) -> SubjectInfo {
        Self::described(self)
    }
}

/// No poller: blocking reads, one stream after the other, as the writer feeds them.
pub(super) struct Sequential {
    streams: Vec<OwnedFd>,
    next: usize,
}

impl Sequential {
    pub(super) fn new(streams: Vec<OwnedFd>) -> Self {
        Self { streams, next: 0 }
    }
}

impl Collect for Sequential {
    fn collect(&mut self, at_most: Option<Duration>) -> Result<(usize, u64), MeasureError> {
        let stream = &self.streams[self.next];
        if let Some(at_most) = at_most {
            let time = Timespec::try_from(at_most).expect("a millisecond");
            let mut fds = [PollFd::new(stream, PollFlags::IN)];
            if poll(&mut fds, Some(&time)).map_err(MeasureError::io("poll"))? == 0 {
                return Ok((0, 0));
            }
        }
        let mut buffer = [0; READ_BYTES];
        let len = rustix::io::read(stream, &mut buffer).map_err(MeasureError::io("read"))?;
        self.next = (self.next + 1) % self.streams.len();
        Ok((1, u64::from(len > 0)))
    }

    fn counters(&self) -> Option<CountersSnapshot> {
        None
    }

    fn described(&self) -> SubjectInfo {
        SubjectInfo::default()
    }
}

/// A reader, and a writer that runs whenever it is a turn.
pub(super) struct Free<C> {
    reader: C,
    yield_below: usize,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<Result<(), MeasureError>>>,
}

/// What reader and writer agree on.
#[derive(Default)]
struct Shared {
    /// The writer should write.
    is_running: AtomicBool,
    is_writing: AtomicBool,
    /// No other turn follows.
    is_over: AtomicBool,
}

impl<C: Collect> Free<C> {
    /// Starts the writer; the calling thread reads in the turns.
    pub(super) fn start(
        reader: C,
        streams: Vec<OwnedFd>,
        spec: &RunSpec,
    ) -> Result<Self, MeasureError> {
        let yield_below = spec.count("yield_below");
        let write_cpu = match spec.word("cpus") {
            "free" => None,
            _ => {
                let [read_cpu, write_cpu] = subject::cpus()?;
                if read_cpu == write_cpu {
                    return Err(MeasureError::Spec(
                        "cpus = split needs two CPUs, this process may use one: choose cpus = free"
                            .into(),
                    ));
                }
                subject::pin(read_cpu)?;
                Some(write_cpu)
            }
        };
        let shared = Arc::new(Shared::default());
        let is_cyclic = matches!(spec.arm, ArmKind::Cyclic(_) | ArmKind::WithoutPoller);
        let theirs = Arc::clone(&shared);
        let seed = spec.seed;
        let started = std::thread::Builder::new().name("writer".to_owned()).spawn(move || {
            write_cpu.map_or(Ok(()), subject::pin)?;
            // Linux always grants a lower priority.
            let _ = rustix::process::nice(WRITER_NICE);
            write(&streams, is_cyclic, Rng::seeded(seed), &theirs)
        });
        let writer = started.map_err(MeasureError::setup("the writer thread"))?;
        Ok(Self { reader, yield_below, shared, writer: Some(writer) })
    }

    fn writer(&self) -> &JoinHandle<Result<(), MeasureError>> {
        self.writer.as_ref().expect("joined in the drop alone")
    }
}

impl<C: Collect> Subject for Free<C> {
    fn turn(&mut self, size: TurnSize) -> Result<u64, MeasureError> {
        let start = Instant::now();
        let mut handled = 0;
        self.shared.is_writing.store(true, Release);
        self.shared.is_running.store(true, Release);
        self.writer().thread().unpark();
        loop {
            let is_last = start.elapsed() >= size.length;
            if is_last {
                self.shared.is_running.store(false, Release);
            }
            // A writer that has paused writes nothing more; what is left then is read without waiting.
            let has_paused = is_last && !self.shared.is_writing.load(Acquire);
            let at_most = match (is_last, has_paused) {
                (false, _) => None,
                (true, false) => Some(LOOK),
                (true, true) => Some(Duration::ZERO),
            };
            let (events, now) = self.reader.collect(at_most)?;
            handled += now;
            if has_paused && events == 0 {
                return Ok(handled);
            }
            if self.writer().is_finished() {
                return Err(MeasureError::GaveUp);
            }
            if events < self.yield_below {
                std::thread::yield_now();
            }
        }
    }

    fn counters(&self) -> Option<CountersSnapshot> {
        self.reader.counters()
    }

    fn described(&self) -> SubjectInfo {
        self.reader.described()
    }
}

impl<C> Drop for Free<C> {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Release);
        self.shared.is_running.store(false, Release);
        // A writer that is blocked on a full stream ends with the process.
        if let Some(writer) = self.writer.take() {
            writer.thread().unpark();
        }
    }
}

fn write(
    streams: &[OwnedFd],
    is_cyclic: bool,
    mut random: Rng,
    shared: &Shared,
) -> Result<(), MeasureError> {
    let mut next = 0;
    while !shared.is_over.load(Acquire) {
        if !shared.is_running.load(Acquire) {
            shared.is_writing.store(false, Release);
            std::thread::park();
            continue;
        }
        shared.is_writing.store(true, Release);
        for _ in 0..streams.len() {
            let index = if is_cyclic {
                next = (next + 1) % streams.len();
                next
            } else {
                random.below(streams.len())
            };
            match rustix::io::write(&streams[index], &[1]) {
                Ok(_) => {}
                // The readers are gone: the run is over.
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(errno) => return Err(MeasureError::io("write")(errno)),
            }
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// A reader and what feeds it.
pub(super) struct Held {
    reader: Reader,
    streams: Vec<OwnedFd>,
    /// Which stream is next; the first `ready` are drawn anew for each batch.
    order: Vec<usize>,
    ready: usize,
    random: Rng,
}

impl Held {
    /// Works on the calling thread, on the first CPU.
    pub(super) fn new(
        reader: Reader,
        streams: Vec<OwnedFd>,
        ready: usize,
        seed: u64,
    ) -> Result<Self, MeasureError> {
        subject::pin(subject::cpus()?[0])?;
        let order = (0..streams.len()).collect();
        let ready = ready.min(streams.len());
        Ok(Self { reader, streams, order, ready, random: Rng::seeded(seed) })
    }

    /// Writes a byte to each of as many streams as are to be ready.
    fn fill(&mut self) -> Result<(), MeasureError> {
        for place in 0..self.ready {
            let drawn = place + self.random.below(self.order.len() - place);
            self.order.swap(place, drawn);
            rustix::io::write(&self.streams[self.order[place]], &[1])
                .map_err(MeasureError::io("write"))?;
        }
        Ok(())
    }
}

impl Subject for Held {
    fn turn(&mut self, size: TurnSize) -> Result<u64, MeasureError> {
        let start = Instant::now();
        let mut handled = 0;
        let batches = EVENTS_PER_LOOK.div_ceil(self.ready);
        loop {
            for _ in 0..batches {
                self.fill()?;
                let mut left = self.ready as u64;
                while left > 0 {
                    left -= self.reader.collect(None)?.1;
                }
                handled += self.ready as u64;
            }
            if start.elapsed() >= size.length {
                return Ok(handled);
            }
        }
    }

    fn counters(&self) -> Option<CountersSnapshot> {
        Some(self.reader.counters())
    }

    fn described(&self) -> SubjectInfo {
        self.reader.described()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiments::streams::tests::spec;

    #[test]
    fn each_wait_finds_as_many_streams_as_are_kept_ready() {
        for (transport, ready) in [("pipe", 1), ("unix", 16), ("tcp", 50)] {
            let ready_text = ready.to_string();
            let spec = spec("epoll", &[("transport", transport), ("ready", &ready_text)]);
            let mut subject = super::super::open(&spec).expect("streams");
            subject.turn(TurnSize::of(Duration::from_millis(1))).expect("a turn");
            let before = subject.counters().expect("a poller's");
            let events = subject.turn(TurnSize::of(Duration::from_millis(5))).expect("a turn");
            assert!(events > 0 && events.is_multiple_of(ready), "{events} events of {ready} ready");
            let polled = subject.counters().expect("a poller's").since(&before);
            assert_eq!((polled.events, polled.waits), (events, events / ready), "{transport}");
            assert!(!subject.cpu_time().expect("our own").is_zero());
        }
    }
}
