//! What it costs to take every descriptor out of a poller and enter it again.
//!
//! ```text
//! cargo bench -p pollux-poller --bench reregister -- [DESCRIPTORS] [ROUNDS]
//! ```
//!
//! Three ways, interleaved, in an order that rotates with the round: epoll (`epoll_ctl` twice
//! for each descriptor); uring-poll when each descriptor comes back under a new token, so that
//! its poll is cancelled and added; uring-poll when each is modified instead, which is one poll
//! update. The wait that carries the changes is included. Times
//! are processor time of the thread, kernel work included. `strace -c -f` counts as many
//! `io_uring_enter` as the two lines of uring-poll say together, and one `epoll_ctl` more than
//! epoll's says: the waker's, at open.

use std::error::Error;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pollux_poller::{Events, Interest, Mechanism, Poller, Registration, Token};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

const DESCRIPTORS: usize = 9_000;
const ROUNDS: usize = 31;

/// One way to enter the descriptors again.
struct Way {
    name: &'static str,
    mechanism: Mechanism,
    deletes: bool,
    poller: Box<dyn Poller>,
    token_generation: u32,
    times_us: Vec<f64>,
    system_calls_max: u64,
}

impl Way {
    fn open(
        name: &'static str,
        mechanism: Mechanism,
        deletes: bool,
        sockets: &[UnixStream],
    ) -> Result<Self, Box<dyn Error>> {
        let poller = mechanism.open()?;
        let times_us = Vec::new();
        let system_calls_max = 0;
        let token_generation = 0;
        let mut way =
            Self { name, mechanism, deletes, poller, token_generation, times_us, system_calls_max };
        for (slot, socket) in sockets.iter().enumerate() {
            let token = Token::new(slot as u32, 0);
            way.poller.add(socket.as_fd(), token, way.registration())?;
        }
        way.poller.wait(&mut Events::with_capacity(1), Some(Duration::ZERO))?;
        Ok(way)
    }

    fn registration(&self) -> Registration {
        Registration::new(Interest::READABLE, self.mechanism.trigger())
    }

    fn round(&mut self, sockets: &[UnixStream], events: &mut Events) -> Result<(), Box<dyn Error>> {
        self.token_generation += u32::from(self.deletes);
        let calls_before = self.poller.counters().snapshot().system_calls;
        let started_us = thread_time_us();
        for (slot, socket) in sockets.iter().enumerate() {
            let token = Token::new(slot as u32, self.token_generation);
            if self.deletes {
                self.poller.delete(socket.as_fd())?;
                self.poller.add(socket.as_fd(), token, self.registration())?;
            } else {
                self.poller.modify(socket.as_fd(), token, self.registration())?;
            }
        }
        self.poller.wait(events, Some(Duration::ZERO))?;
        self.times_us.push(thread_time_us() - started_us);
        let calls = self.poller.counters().snapshot().system_calls - calls_before;
        self.system_calls_max = self.system_calls_max.max(calls);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` adds a flag of its own.
    let words = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut arguments = words.map(|word| word.parse::<usize>());
    let descriptors = arguments.next().transpose()?.unwrap_or(DESCRIPTORS);
    let rounds = arguments.next().transpose()?.unwrap_or(ROUNDS).max(1);
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limits.maximum, ..limits })?;

    let mut sockets = Vec::with_capacity(descriptors + 1);
    while sockets.len() < descriptors {
        let (one, other) = UnixStream::pair()?;
        sockets.extend([one, other]);
    }
    sockets.truncate(descriptors);

    let mut ways = [
        Way::open("epoll-et: delete, add", Mechanism::EpollEt, true, &sockets)?,
        Way::open("uring-poll: cancel, add", Mechanism::UringPoll, true, &sockets)?,
        Way::open("uring-poll: modify", Mechanism::UringPoll, false, &sockets)?,
    ];
    let mut events = Events::with_capacity(64);
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let index = (round + turn) % ways.len();
            ways[index].round(&sockets, &mut events)?;
        }
    }
    report(&mut ways, descriptors)
}

fn report(ways: &mut [Way], descriptors: usize) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{descriptors} descriptors deleted and added again; median [quartiles]")?;
    let mut epoll_us = None;
    for way in ways {
        way.times_us.sort_by(f64::total_cmp);
        let rank = |part: usize| way.times_us[(way.times_us.len() - 1) * part / 4];
        let low_us = rank(1);
        let median_us = rank(2);
        let high_us = rank(3);
        let ratio = median_us / *epoll_us.get_or_insert(median_us);
        let rounds = way.times_us.len();
        let calls = way.system_calls_max;
        let seen = way.poller.counters().snapshot();
        writeln!(
            out,
            "{:<24} n={rounds} {median_us:>7.0} [{low_us:.0}, {high_us:.0}] us  {ratio:.2} of \
             epoll  {calls} system calls a round, {} in all  merged {} sent {}",
            way.name, seen.system_calls, seen.updates_merged, seen.updates_sent
        )?;
    }
    Ok(())
}

fn thread_time_us() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}
