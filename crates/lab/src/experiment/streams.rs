//! `streams`: many streams, a writer thread, a reader on the poller under test.
//!
//! Eric Dumazet's `epoll_bench` (seed 000) step by step: the writer is nice(10), writes one byte
//! to a random stream and yields after as many writes as there are streams; the reader waits,
//! reads up to 1024 bytes of each stream that is ready, and yields after a small batch. What
//! differs: the intervals are cut by a third, sleeping thread instead of SIGALRM, the random
//! numbers come from our own generator, `no_poller` changes one factor at a time, `cpus` may keep
//! the two threads apart, and a reader behind a poller does not block: an edge may be told again
//! for data that was read meanwhile, and a blocking read would then stand still until the stream
//! is fed again (on uring-poll that cost two thirds of the rate).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use pollux_poller::{Events, Interest, Mechanism, Registration, Token, Trigger};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::transport::{self, Stream};
use crate::error::MeasureError;
use crate::measure::{Gauge, Notice, Pattern, RunSpec};
use crate::stats::Rng;

/// Bytes that one read asks for: the original's buffer.
const READ_BYTES: usize = 1024;
/// How far below the reader the writer is scheduled: the original's `nice(10)`.
const WRITER_NICE: i32 = 10;

/// Sets the streams up and reads them until the gauge says stop.
///
/// Runs in the measured thread.
pub(crate) fn run(spec: &RunSpec, gauge: &Gauge) -> Result<(), MeasureError> {
    let streams = transport::open(spec.word("transport")?, spec.count("nfds")?)?;
    let (readers, writers): (Vec<OwnedFd>, Vec<OwnedFd>) =
        streams.into_iter().map(|Stream { read, write }| (read, write)).unzip();
    let poller = spec.mechanism()?;
    if poller.is_some() {
        for reader in &readers {
            rustix::io::ioctl_fionbio(reader, true).map_err(MeasureError::io("ioctl"))?;
        }
    }
    let [read_cpu, write_cpu] = cpus(spec)?;
    pin(read_cpu)?;
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn_scoped(scope, move || {
                pin(write_cpu).and_then(|()| write_until_stopped(&writers, spec, gauge))
            })
            .map_err(|cause| MeasureError::Setup { what: "the writer thread".into(), cause })?;
        let read = match poller {
            Some(mechanism) => read_through_poller(mechanism, &readers, spec, gauge),
            None => read_in_turn(&readers, gauge),
        };
        gauge.stop();
        // A writer that is blocked on a full stream ends when nobody can read it any more.
        drop(readers);
        let wrote = writer.join().expect("the writer does not panic");
        read.and(wrote)
    })
}

/// The CPUs of reader and writer: the first two that this process may use, or none in particular.
fn cpus(spec: &RunSpec) -> Result<[Option<usize>; 2], MeasureError> {
    if spec.word("cpus")? == "free" {
        return Ok([None, None]);
    }
    let allowed = sched_getaffinity(None).map_err(MeasureError::io("sched_getaffinity"))?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    match (cpus.next(), cpus.next()) {
        (first @ Some(_), second @ Some(_)) => Ok([first, second]),
        _ => Err(MeasureError::Spec(
            "cpus = split needs two CPUs, this process may use one: choose cpus = free".into(),
        )),
    }
}

/// Keeps the calling thread on one CPU.
fn pin(cpu: Option<usize>) -> Result<(), MeasureError> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(MeasureError::io("sched_setaffinity"))
}

fn read_through_poller(
    mechanism: Mechanism,
    readers: &[OwnedFd],
    spec: &RunSpec,
    gauge: &Gauge,
) -> Result<(), MeasureError> {
    let mut poller = mechanism.open()?;
    let how = Registration::new(Interest::READABLE, mechanism.trigger());
    let token_of = |index: usize| Token::new(index as u32, 0);
    for (index, reader) in readers.iter().enumerate() {
        poller.add(reader.as_fd(), token_of(index), how)?;
    }
    let is_oneshot = how.trigger == Trigger::Oneshot;
    let yield_below = spec.count("yield_below")?;
    let mut events = Events::with_capacity(spec.count("maxevents")?);
    let mut buffer = [0u8; READ_BYTES];
    let mut handled = 0u64;
    gauge.announce(Notice::ready(Some(&*poller)), Some(poller.waker()));
    while !gauge.is_stopped() {
        poller.wait(&mut events, None)?;
        for event in &events {
            let reader = &readers[event.token.slot() as usize];
            match rustix::io::read(reader, &mut buffer) {
                Ok(1..) => handled += 1,
                Ok(0) | Err(Errno::AGAIN) => {}
                Err(errno) => return Err(MeasureError::io("read")(errno)),
            }
            if is_oneshot {
                poller.modify(reader.as_fd(), event.token, how)?;
            }
        }
        gauge.events.store(handled, Relaxed);
        if events.len() < yield_below {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// No poller: blocking reads, one stream after the other, as the writer feeds them.
fn read_in_turn(readers: &[OwnedFd], gauge: &Gauge) -> Result<(), MeasureError> {
    let mut buffer = [0u8; READ_BYTES];
    let mut handled = 0u64;
    gauge.announce(Notice::ready(None), None);
    for reader in readers.iter().cycle() {
        if gauge.is_stopped() {
            break;
        }
        if rustix::io::read(reader, &mut buffer).map_err(MeasureError::io("read"))? > 0 {
            handled += 1;
            gauge.events.store(handled, Relaxed);
        }
    }
    Ok(())
}

fn write_until_stopped(
    writers: &[OwnedFd],
    spec: &RunSpec,
    gauge: &Gauge,
) -> Result<(), MeasureError> {
    // Without the right to be nice the run is still valid; Linux always grants a lower priority.
    let _ = rustix::process::nice(WRITER_NICE);
    let mut random = Rng::seeded(spec.seed);
    let mut next = 0;
    loop {
        for _ in 0..writers.len() {
            let index = match spec.pattern {
                Pattern::Random => random.below(writers.len()),
                Pattern::Cyclic => {
                    next = (next + 1) % writers.len();
                    next
                }
            };
            match rustix::io::write(&writers[index], &[1]) {
                Ok(_) => {}
                // The readers are gone: the run is over.
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(errno) => return Err(MeasureError::io("write")(errno)),
            }
        }
        if gauge.is_stopped() {
            return Ok(());
        }
        std::thread::yield_now();
    }
}
