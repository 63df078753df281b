//! Streams with a writer that runs free, as in `epoll_bench`.
//!
//! The writer is nice(10), writes one byte to a random stream and yields after as many writes as
//! there are streams; the reader waits, reads what is ready, and yields after a small batch. What
//! differs from the original: the random numbers come from our own generator, `no_poller` changes
//! one factor at a time, and `cpus` may keep the two threads apart. How many streams a wait finds
//! ready is the scheduler's doing; within one run it goes from a few to all of them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_poller::CountersSnapshot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{READ_BYTES, Reader};
use crate::arm::ArmKind;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::stats::Rng;
use crate::turns::{self, Described, Stint, Subject};

/// How far below the reader the writer is scheduled: the original's `nice(10)`.
const WRITER_NICE: i32 = 10;
/// How long a reader that waits for the writer's pause waits at once.
const LOOK: Duration = Duration::from_millis(1);

/// What reads: through a poller, or one stream after the other.
pub(super) trait Collect {
    /// Reads what is ready, waiting for it at most so long: the number of events, and of reads that
    /// brought data.
    fn collect(&mut self, at_most: Option<Duration>) -> Result<(usize, u64), MeasureError>;
    /// The poller's counters.
    fn counters(&self) -> Option<CountersSnapshot>;
    /// What it says of itself.
    fn described(&self) -> Described;
}

impl Collect for Reader {
    fn collect(&mut self, at_most: Option<Duration>) -> Result<(usize, u64), MeasureError> {
        Self::collect(self, at_most)
    }

    fn counters(&self) -> Option<CountersSnapshot> {
        Some(Self::counters(self))
    }

    fn described(&self) -> Described {
        Self::described(self)
    }
}

/// No poller: blocking reads, one stream after the other, as the writer feeds them.
pub(super) struct InTurn {
    streams: Vec<OwnedFd>,
    next: usize,
}

impl InTurn {
    pub(super) fn new(streams: Vec<OwnedFd>) -> Self {
        Self { streams, next: 0 }
    }
}

impl Collect for InTurn {
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

    fn described(&self) -> Described {
        Described::default()
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
    /// It does.
    is_writing: AtomicBool,
    /// Nobody will order another turn.
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
                let [read_cpu, write_cpu] = turns::cpus()?;
                if read_cpu == write_cpu {
                    return Err(MeasureError::Spec(
                        "cpus = split needs two CPUs, this process may use one: choose cpus = free"
                            .into(),
                    ));
                }
                turns::pin(read_cpu)?;
                Some(write_cpu)
            }
        };
        let shared = Arc::new(Shared::default());
        let is_cyclic = matches!(spec.arm, ArmKind::Cyclic(_) | ArmKind::WithoutPoller);
        let (theirs, seed) = (Arc::clone(&shared), spec.seed);
        let started = std::thread::Builder::new().name("writer".to_owned()).spawn(move || {
            write_cpu.map_or(Ok(()), turns::pin)?;
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
    fn turn(&mut self, stint: Stint) -> Result<u64, MeasureError> {
        let (start, mut handled) = (Instant::now(), 0);
        self.shared.is_writing.store(true, Release);
        self.shared.is_running.store(true, Release);
        self.writer().thread().unpark();
        loop {
            let is_last = start.elapsed() >= stint.length;
            if is_last {
                self.shared.is_running.store(false, Release);
            }
            // A writer that has paused feeds nobody; what is left then is read without waiting.
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

    fn described(&self) -> Described {
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
