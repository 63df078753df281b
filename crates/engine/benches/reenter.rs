//! What it costs to take every descriptor out and enter it again, with the same interest, within
//! one turn: through the fd table, and by `epoll_ctl(2)` as programs use it that change the kernel at once.
//!
//! ```text
//! cargo bench -p pollux-engine --bench reenter -- [DESCRIPTORS] [ROUNDS]
//! ```
//!
//! Three ways, interleaved, in an order that rotates with the round, on the same unix sockets:
//! two calls of `epoll_ctl` for each descriptor; the table while nothing is known of them, where
//! no system call is needed; the table while all are known to be readable, where each
//! is put on the update list and found unchanged. Times are processor time of the thread, kernel
//! work included. `strace -c` counts what the lines say and the additions at the start.

use std::error::Error;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use pollux_engine::{Counter, Counters, FdTable, Watch};
use pollux_poller::{Mechanism, Poller, Readiness, Token, Trigger};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

const DESCRIPTORS: usize = 9_000;
const ROUNDS: usize = 101;
/// For the standard streams, the pollers and what the system's libraries hold open.
const DESCRIPTORS_SPARED: usize = 64;

/// One way to enter the descriptors again.
struct Way<'fd> {
    name: &'static str,
    how: How<'fd>,
    times_us: Vec<f64>,
    system_calls: u64,
}

enum How<'fd> {
    Calls(OwnedFd),
    Table(Box<Recorded<'fd>>),
}

/// A table with its poller, and whether it knows the descriptors to be readable.
struct Recorded<'fd> {
    poller: Box<dyn Poller>,
    table: FdTable<BorrowedFd<'fd>>,
    tokens: Vec<Token>,
    counters: Counters,
    is_ready: bool,
}

const FLAGS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` adds a flag of its own.
    let words = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut arguments = words.map(|word| word.parse::<usize>());
    let asked = arguments.next().transpose()?.unwrap_or(DESCRIPTORS);
    let rounds = arguments.next().transpose()?.unwrap_or(ROUNDS).max(1);
    let descriptors = asked.min(descriptors_max()?);
    let sockets = sockets(descriptors)?;
    let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    let mut ways = [
        Way::new("epoll_ctl: delete, add", calls(&fds)?),
        Way::new("table: nothing known", recorded(&fds, false)?),
        Way::new("table: known readable", recorded(&fds, true)?),
    ];
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let index = (round + turn) % ways.len();
            ways[index].round(&fds)?;
        }
    }
    report(&mut ways, descriptors, asked)
}

/// As many as the hard limit on open files allows.
fn descriptors_max() -> Result<usize, Box<dyn Error>> {
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits })?;
    let open_max = limits.maximum.map_or(usize::MAX, |most| most.try_into().unwrap_or(usize::MAX));
    Ok(open_max.saturating_sub(DESCRIPTORS_SPARED))
}

fn sockets(count: usize) -> Result<Vec<UnixStream>, std::io::Error> {
    let mut sockets = Vec::with_capacity(count + 1);
    while sockets.len() < count {
        let (one, other) = UnixStream::pair()?;
        sockets.extend([one, other]);
    }
    sockets.truncate(count);
    Ok(sockets)
}

fn calls<'fd>(fds: &[BorrowedFd<'_>]) -> Result<How<'fd>, Box<dyn Error>> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (slot, fd) in (0..).zip(fds) {
        epoll::add(&epoll, fd, EventData::new_u64(slot), FLAGS)?;
    }
    Ok(How::Calls(epoll))
}

fn recorded<'fd>(fds: &[BorrowedFd<'fd>], is_ready: bool) -> Result<How<'fd>, Box<dyn Error>> {
    let mut poller = Mechanism::Epoll.open()?;
    let mut table = FdTable::new(fds.len());
    let mut tokens = Vec::new();
    let mut refused = Vec::new();
    for fd in fds {
        let inserted = table.insert(*fd, Watch::Connection(Trigger::Level));
        let token = inserted.map_err(|_| "the table is full")?;
        table.want_read(token);
        tokens.push(token);
    }
    let counters = Counters::default();
    table.apply(&mut *poller, &counters, &mut refused);
    if let Some((_, error)) = refused.pop() {
        return Err(error.into());
    }
    for token in &tokens {
        if is_ready {
            table.reported(*token, Readiness::READABLE);
        }
    }
    Ok(How::Table(Box::new(Recorded { poller, table, tokens, counters, is_ready })))
}

impl<'fd> Way<'fd> {
    fn new(name: &'static str, how: How<'fd>) -> Self {
        Self { name, how, times_us: Vec::new(), system_calls: 0 }
    }

    fn round(&mut self, fds: &[BorrowedFd<'_>]) -> Result<(), Box<dyn Error>> {
        let started_us = thread_time_us();
        let calls = match &mut self.how {
            How::Calls(epoll) => tell(epoll, fds)?,
            How::Table(recorded) => recorded.round(),
        };
        self.times_us.push(thread_time_us() - started_us);
        self.system_calls += calls;
        Ok(())
    }
}

fn tell(epoll: &OwnedFd, fds: &[BorrowedFd<'_>]) -> Result<u64, Box<dyn Error>> {
    for (slot, fd) in (0..).zip(fds) {
        epoll::delete(epoll, fd)?;
        epoll::add(epoll, fd, EventData::new_u64(slot), FLAGS)?;
    }
    Ok(2 * fds.len() as u64)
}

impl Recorded<'_> {
    fn round(&mut self) -> u64 {
        let before = self.poller.counters().snapshot().system_calls;
        for token in &self.tokens {
            self.table.stop_read(*token);
            self.table.want_read(*token);
        }
        self.table.apply(&mut *self.poller, &self.counters, &mut Vec::new());
        self.poller.counters().snapshot().system_calls - before
    }

    /// Updates since the start, without the first addition of each descriptor.
    fn updates(&self) -> (u64, u64, u64) {
        let additions = self.tokens.len() as u64;
        let value = |counter| self.counters.value(counter);
        let asked = value(Counter::UpdatesAsked);
        let sent = value(Counter::UpdatesSent);
        (asked - additions, value(Counter::UpdatesMerged), sent - additions)
    }
}

fn report(ways: &mut [Way<'_>], count: usize, asked: usize) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    if count < asked {
        writeln!(out, "RLIMIT_NOFILE allows {count} of {asked} descriptors")?;
    }
    writeln!(out, "{count} descriptors out and in again in one turn; median [quartiles]")?;
    let mut told_us = None;
    for way in ways {
        way.times_us.sort_by(f64::total_cmp);
        let rank = |part: usize| way.times_us[(way.times_us.len() - 1) * part / 4];
        let low_us = rank(1);
        let median_us = rank(2);
        let high_us = rank(3);
        let times_less = *told_us.get_or_insert(median_us) / median_us;
        let rounds = way.times_us.len() as u64;
        write!(
            out,
            "{:<23} n={rounds} {median_us:>8.1} [{low_us:.1}, {high_us:.1}] us  {:>5.1} ns each  \
             1/{times_less:.0} of epoll_ctl  {} system calls a round",
            way.name,
            median_us * 1e3 / count.max(1) as f64,
            way.system_calls / rounds,
        )?;
        if let How::Table(recorded) = &way.how {
            let (asked, merged, sent) = recorded.updates();
            let of_each = if recorded.is_ready { "one of each a round" } else { "none" };
            write!(out, "  updates asked {asked} ({of_each}) merged {merged} sent {sent}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn thread_time_us() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}
