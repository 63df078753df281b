//! How much processor time an event costs when another thread keeps many pipes ready.
//!
//! ```text
//! cargo bench -p pollux-poller --bench streams -- [PIPES] [ROUNDS] [CAPACITY]
//! ```
//!
//! A writer on its own thread puts one byte into random pipes as fast as it can; the reader
//! waits and reads each reported pipe empty. Mechanisms are interleaved, in an order that rotates with the round;
//! each round reads a fixed number of bytes. Times are of the reader's thread, kernel work
//! included, for each byte read.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pollux_poller::{
    CountersSnapshot, Events, Interest, Mechanism, Poller, Registration, Token, Trigger,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

type Failure = Box<dyn std::error::Error>;
type Pipe = (OwnedFd, OwnedFd);

const PIPES: usize = 2_000;
const ROUNDS: usize = 15;
const CAPACITY: usize = 1_024;
const BYTES_PER_ROUND: usize = 200_000;

/// The most bytes written and not yet read: keeps every pipe far from full.
const AHEAD_MAX: usize = 20_000;

/// A mechanism and what its rounds showed.
struct Arm {
    name: &'static str,
    how: Registration,
    poller: Box<dyn Poller>,
    times_ns: Vec<f64>,
    elapsed_ns: Vec<f64>,
    seen: CountersSnapshot,
}

impl Arm {
    fn open(name: &'static str, mechanism: Mechanism, trigger: Trigger) -> Result<Self, Failure> {
        let how = Registration::new(Interest::READABLE, trigger);
        let times_ns = Vec::new();
        let elapsed_ns = Vec::new();
        let seen = CountersSnapshot::default();
        Ok(Self { name, how, poller: mechanism.open()?, times_ns, elapsed_ns, seen })
    }

    /// Registers every pipe, measures, and takes every pipe out again, so that only one poller
    /// watches at any time.
    fn round(&mut self, pipes: &[Pipe], events: &mut Events) -> Result<(), Failure> {
        for (slot, (reader, _)) in pipes.iter().enumerate() {
            self.poller.add(reader.as_fd(), Token::new(slot as u32, 0), self.how)?;
        }
        self.poller.wait(events, Some(Duration::ZERO))?;
        let before = self.poller.counters().snapshot();
        let read = AtomicUsize::new(take(pipes, events));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| write_all(pipes, &read, &stop));
            let outcome = self.read_all(pipes, &read, events);
            stop.store(true, Ordering::Relaxed);
            outcome
        })?;
        self.seen = self.poller.counters().snapshot().since(&before);
        for (reader, _) in pipes {
            self.poller.delete(reader.as_fd())?;
            take_one(reader);
        }
        Ok(self.poller.wait(events, Some(Duration::ZERO))?)
    }

    fn read_all(
        &mut self,
        pipes: &[Pipe],
        read: &AtomicUsize,
        events: &mut Events,
    ) -> Result<(), Failure> {
        let started_ns = (time_ns(ClockId::ThreadCPUTime), time_ns(ClockId::Monotonic));
        let mut total = 0;
        while total < BYTES_PER_ROUND {
            self.poller.wait(events, None)?;
            total += take(pipes, events);
            read.store(total, Ordering::Relaxed);
            if self.how.trigger == Trigger::Oneshot {
                for event in &*events {
                    let reader = &pipes[event.token.slot() as usize].0;
                    self.poller.modify(reader.as_fd(), event.token, self.how)?;
                }
            }
        }
        self.times_ns.push((time_ns(ClockId::ThreadCPUTime) - started_ns.0) / total as f64);
        self.elapsed_ns.push((time_ns(ClockId::Monotonic) - started_ns.1) / total as f64);
        Ok(())
    }
}

fn write_all(pipes: &[Pipe], read: &AtomicUsize, stop: &AtomicBool) {
    let mut written = 0;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while !stop.load(Ordering::Relaxed) {
        if written > read.load(Ordering::Relaxed) + AHEAD_MAX {
            std::hint::spin_loop();
            continue;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let pipe = &pipes[(state % pipes.len() as u64) as usize].1;
        written += rustix::io::write(pipe, b"x").unwrap_or(0);
    }
}

/// Reads every reported pipe empty: all that is in it fits one read.
fn take(pipes: &[Pipe], events: &Events) -> usize {
    events.iter().map(|event| take_one(&pipes[event.token.slot() as usize].0)).sum()
}

fn take_one(reader: &OwnedFd) -> usize {
    rustix::io::read(reader, &mut [0u8; 256]).unwrap_or(0)
}

fn main() -> Result<(), Failure> {
    // `cargo bench` adds a flag of its own.
    let words = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut arguments = words.map(|word| word.parse::<usize>());
    let pipes = arguments.next().transpose()?.unwrap_or(PIPES);
    let rounds = arguments.next().transpose()?.unwrap_or(ROUNDS).max(1);
    let capacity = arguments.next().transpose()?.unwrap_or(CAPACITY);
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limits.maximum, ..limits })?;
    let flags = PipeFlags::NONBLOCK | PipeFlags::CLOEXEC;
    let pipes = (0..pipes).map(|_| pipe_with(flags)).collect::<Result<Vec<Pipe>, _>>()?;
    let mut arms = [
        Arm::open("epoll-et", Mechanism::EpollEt, Trigger::Edge)?,
        Arm::open("epoll", Mechanism::Epoll, Trigger::Level)?,
        Arm::open("epoll-oneshot", Mechanism::EpollOneshot, Trigger::Oneshot)?,
        Arm::open("uring-poll edge", Mechanism::UringPoll, Trigger::Edge)?,
        Arm::open("uring-poll level", Mechanism::UringPoll, Trigger::Level)?,
        Arm::open("uring-poll oneshot", Mechanism::UringPoll, Trigger::Oneshot)?,
    ];
    let mut events = Events::with_capacity(capacity);
    for round in 0..rounds {
        for turn in 0..arms.len() {
            let index = (round + turn) % arms.len();
            arms[index].round(&pipes, &mut events)?;
        }
    }
    report(&mut arms)
}

fn report(arms: &mut [Arm]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ns a byte: the reader's processor time, median [quartiles], and elapsed")?;
    for arm in arms {
        let (low, time, high) = quartiles(&mut arm.times_ns);
        let (_, elapsed, _) = quartiles(&mut arm.elapsed_ns);
        let name = arm.name;
        let n = arm.times_ns.len();
        let seen = arm.seen;
        let waits = seen.waits.max(1) as f64;
        let events = seen.events as f64 / waits;
        let calls = seen.system_calls as f64 / seen.events as f64;
        writeln!(
            out,
            "{name:<18} n={n} {time:>4.0} [{low:.0}, {high:.0}] elapsed {elapsed:>4.0}  last \
             round: {events:>5.1} events a wait, {calls:.3} calls an event, rearms {}, \
             overflows {}, stale {}",
            seen.rearms, seen.overflows, seen.stale_events
        )?;
    }
    Ok(())
}

fn quartiles(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let rank = |part: usize| values[(values.len() - 1) * part / 4];
    (rank(1), rank(2), rank(3))
}

fn time_ns(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
