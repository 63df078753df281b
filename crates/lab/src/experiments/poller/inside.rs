//! Checks within the measuring process, on the engine's own table, poller, waker, signals and loop.
//!
//! An arm that is a mechanism does as the engine's loops do. `epoll-plain` does what the check is against:
//! it passes each change of interest to the poller at once, looks events up by their slot alone, writes for each wake,
//! or publishes a date in each spin, as `uring-plain` does on io_uring.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pollux_engine::{
    Counter, Counters, Driver, EventLoop, FdTable, Limits, LoopError, NoSession, SharedDate,
    Signal, Signals, Watch,
};
use pollux_poller::{
    Events, Interest, Mechanism, Poller, Readiness, Registration, Token, Trigger, Waker,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Signal as Sent, getpid, kill_process};

use super::Tried;
use crate::error::MeasureError;

const ROUNDS: u64 = 1_000;
/// Resets, and closes under a batch of events.
const PEERS: u64 = 200;
/// The close of a broken connection comes a turn late, as a task does that is queued.
const TURNS_UNTIL_CLOSED: u64 = 2;
const SLEEPS: u64 = 100;
const WAKES: u64 = 10_000;
const SIGNALS: u64 = 20_000;
/// Of a wait that ends earlier unless something is lost.
const TIMEOUT: Duration = Duration::from_secs(60);
const SPIN: Duration = Duration::from_millis(300);
/// Spins that no signal may fall out of step with; less than a wait takes to begin.
const SPINS_MAX: u64 = 400;

/// What a reset may be reported as.
const CONDITIONS: [Readiness; 4] =
    [Readiness::READABLE, Readiness::RDHUP, Readiness::HUP, Readiness::ERROR];

/// A poller, and the table where the engine's loops have one.
struct Scene {
    poller: Box<dyn Poller>,
    table: Option<FdTable<OwnedFd>>,
    trigger: Trigger,
    /// Descriptors by slot, where there is no table.
    plain: Vec<Option<OwnedFd>>,
    counters: Counters,
    events: Events,
}

impl Scene {
    fn open(mechanism: Option<Mechanism>) -> Result<Self, MeasureError> {
        let poller = mechanism.unwrap_or(Mechanism::Epoll).open()?;
        let trigger = mechanism.map_or(Trigger::Level, Mechanism::trigger);
        let table = mechanism.map(|_| FdTable::new(16));
        let plain = Vec::new();
        let events = Events::with_capacity(16);
        Ok(Self { poller, table, trigger, plain, counters: Counters::default(), events })
    }

    fn registration(&self) -> Registration {
        Registration::new(Interest::READABLE | Interest::RDHUP, self.trigger)
    }

    /// Takes a descriptor in, of which reading is wanted.
    fn watch(&mut self, fd: OwnedFd) -> Result<Token, MeasureError> {
        if let Some(table) = &mut self.table {
            let full = |_| MeasureError::Protocol("a full table".to_owned());
            let token = table.insert(fd, Watch::Connection(self.trigger)).map_err(full)?;
            table.want_read(token);
            return Ok(token);
        }
        let free = self.plain.iter().position(Option::is_none).unwrap_or(self.plain.len());
        let token = Token::new(free as u32, 0);
        self.poller.add(fd.as_fd(), token, self.registration())?;
        if free == self.plain.len() {
            self.plain.push(None);
        }
        self.plain[free] = Some(fd);
        Ok(token)
    }

    fn close(&mut self, token: Token) -> Result<(), MeasureError> {
        if let Some(table) = &mut self.table {
            drop(table.remove(token, &mut *self.poller)?);
        } else if let Some(fd) = self.plain[token.slot() as usize].take() {
            self.poller.forget(fd.as_fd())?;
        }
        Ok(())
    }

    fn wants(&mut self, token: Token, is_wanted: bool) -> Result<(), MeasureError> {
        let how = self.registration();
        match (&mut self.table, &self.plain.get(token.slot() as usize)) {
            (Some(table), _) if is_wanted => {
                table.want_read(token);
            }
            (Some(table), _) => table.stop_read(token),
            (None, Some(Some(fd))) if is_wanted => self.poller.add(fd.as_fd(), token, how)?,
            (None, Some(Some(fd))) => self.poller.delete(fd.as_fd())?,
            (None, _) => {}
        }
        Ok(())
    }

    /// A turn, before whose wait updates are applied; the session that each event is passed to.
    fn turn(&mut self) -> Result<Vec<(Token, Readiness)>, MeasureError> {
        self.turn_within(Duration::ZERO)
    }

    /// The same, where an event is on its way: on a busy machine the kernel takes its time over loopback.
    fn turn_within(&mut self, time: Duration) -> Result<Vec<(Token, Readiness)>, MeasureError> {
        if let Some(table) = &mut self.table {
            table.apply(&mut *self.poller, &self.counters, &mut Vec::new());
        }
        self.poller.wait(&mut self.events, Some(time))?;
        Ok(self.events.iter().map(|event| (event.token, event.readiness)).collect())
    }

    /// Whether an event is for a descriptor that there is.
    fn is_handed_out(&mut self, token: Token, readiness: Readiness) -> bool {
        match &mut self.table {
            Some(table) => table.reported(token, readiness).is_some(),
            None => self.plain[token.slot() as usize].is_some(),
        }
    }

    fn changes(&self) -> u64 {
        self.poller.counters().snapshot().updates_sent
    }
}

fn pair() -> Result<(OwnedFd, UnixStream), MeasureError> {
    let pair = UnixStream::pair().and_then(|(ours, theirs)| {
        ours.set_nonblocking(true)?;
        Ok((ours.into(), theirs))
    });
    pair.map_err(MeasureError::io("socketpair"))
}

/// Reading is wanted, not wanted and wanted again within each turn.
pub(super) fn deferral(mechanism: Option<Mechanism>) -> Result<Tried, MeasureError> {
    let mut scene = Scene::open(mechanism)?;
    let (ours, _theirs) = pair()?;
    let before = scene.changes();
    let token = scene.watch(ours)?;
    for _ in 0..ROUNDS {
        for is_wanted in [false, true] {
            scene.wants(token, is_wanted)?;
        }
        scene.turn()?;
    }
    let asked = ("wishes", (2 * ROUNDS + 1) as f64);
    Ok(Tried::of((scene.changes() - before) as f64, 2 * ROUNDS, [asked]))
}

/// Where peers are connected that will reset.
struct Peers(TcpListener);

impl Peers {
    fn open() -> Result<Self, MeasureError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        listener.map(Self).map_err(MeasureError::io("bind"))
    }

    /// The watched end, the same to read from, and the peer's.
    fn connected(&self) -> Result<(OwnedFd, TcpStream, TcpStream), MeasureError> {
        let address = self.0.local_addr().map_err(MeasureError::io("getsockname"))?;
        let ours = TcpStream::connect(address).map_err(MeasureError::io("connect"))?;
        let (peer, _) = self.0.accept().map_err(MeasureError::io("accept"))?;
        let reader = ours.try_clone().map_err(MeasureError::io("fcntl"))?;
        Ok((ours.into(), reader, peer))
    }
}

fn reset(peer: TcpStream) -> Result<(), MeasureError> {
    rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO))
        .map_err(MeasureError::io("setsockopt"))?;
    drop(peer);
    Ok(())
}

/// A peer answers and resets, as in the published trace; its data is read at once, and the session that has to
/// close the connection comes a turn late.
pub(super) fn error(mechanism: Option<Mechanism>) -> Result<Tried, MeasureError> {
    let peers = Peers::open()?;
    let mut scene = Scene::open(mechanism)?;
    let mut reported = 0;
    let mut read = 0;
    for _ in 0..PEERS {
        let (ours, mut reader, mut peer) = peers.connected()?;
        let token = scene.watch(ours)?;
        scene.turn()?;
        peer.write_all(b"an answer").map_err(MeasureError::io("write"))?;
        reset(peer)?;
        for turn in 0..=TURNS_UNTIL_CLOSED {
            let time = if turn == 0 { TIMEOUT } else { Duration::ZERO };
            for (token, readiness) in scene.turn_within(time)? {
                reported += u64::from(readiness.contains(Readiness::ERROR));
                if scene.is_handed_out(token, readiness) {
                    read += u64::from(matches!(reader.read(&mut [0; 64]), Ok(1..)));
                }
            }
        }
        scene.close(token)?;
    }
    let read = ("answers_read", read as f64);
    Ok(Tried::of(reported as f64 / PEERS as f64, PEERS, [read]))
}

/// A peer resets: as how many conditions that is reported. The table masks all but one, and the read shows
/// what it was.
pub(super) fn masked(mechanism: Option<Mechanism>) -> Result<Tried, MeasureError> {
    let peers = Peers::open()?;
    let mut scene = Scene::open(mechanism)?;
    if let Some(table) = &mut scene.table {
        table.mask_ends();
    }
    let mut reported = 0;
    let mut read = 0;
    for _ in 0..PEERS {
        let (ours, mut reader, peer) = peers.connected()?;
        reader.set_nonblocking(true).map_err(MeasureError::io("fcntl"))?;
        let token = scene.watch(ours)?;
        scene.turn()?;
        reset(peer)?;
        for (token, readiness) in scene.turn_within(TIMEOUT)? {
            let is_wanted = match &mut scene.table {
                Some(table) => {
                    let due = table.reported(token, readiness).unwrap_or_default();
                    reported +=
                        [due.read, due.write, due.closed].into_iter().filter(|is| *is).count();
                    due.read
                }
                None => {
                    let is_reported = |condition: &Readiness| readiness.contains(*condition);
                    reported +=
                        CONDITIONS.iter().filter(|condition| is_reported(condition)).count();
                    true
                }
            };
            if is_wanted {
                let found = reader.read(&mut [0; 1]).map_err(|error| error.kind());
                read += u64::from(found == Err(std::io::ErrorKind::ConnectionReset));
            }
        }
        scene.close(token)?;
    }
    let read = ("resets_read", read as f64);
    Ok(Tried::of(reported as f64 / PEERS as f64, PEERS, [read]))
}

/// Of two descriptors in one batch the first one's handler closes the other, and opens one more, which
/// gets its number.
pub(super) fn stale(mechanism: Option<Mechanism>) -> Result<Tried, MeasureError> {
    let mut scene = Scene::open(mechanism)?;
    let mut handed = 0;
    for _ in 0..PEERS {
        let (one, mut one_peer) = pair()?;
        let (other, mut other_peer) = pair()?;
        let tokens = [scene.watch(one)?, scene.watch(other)?];
        scene.turn()?;
        for peer in [&mut one_peer, &mut other_peer] {
            let written = peer.write_all(b"x");
            written.map_err(MeasureError::io("write"))?;
        }
        let batch = scene.turn()?;
        let [(first, readiness), second] = batch[..] else {
            return Err(MeasureError::Protocol(format!("{} events of two", batch.len())));
        };
        handed += u64::from(scene.is_handed_out(first, readiness));
        let closed = if first == tokens[0] { tokens[1] } else { tokens[0] };
        scene.close(closed)?;
        let (new, _new_peer) = pair()?;
        let new = scene.watch(new)?;
        if new.slot() != closed.slot() {
            return Err(MeasureError::Protocol("a slot that is not used again".to_owned()));
        }
        handed += u64::from(scene.is_handed_out(second.0, second.1));
        scene.close(first)?;
        scene.close(new)?;
        scene.turn()?;
    }
    let stale = ("stale", scene.counters.value(Counter::Stale) as f64);
    Ok(Tried::of(handed as f64 / PEERS as f64, PEERS, [stale]))
}

/// Many wakes before each wait; by the kernel's count of this thread's writes.
pub(super) fn wake(mechanism: Option<Mechanism>) -> Result<Tried, MeasureError> {
    let mut poller = mechanism.unwrap_or(Mechanism::Epoll).open()?;
    let plain = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let plain = plain.map_err(MeasureError::io("eventfd"))?;
    let ring: Box<dyn Fn()> = match mechanism {
        Some(_) => {
            let waker: Waker = poller.waker();
            Box::new(move || waker.wake())
        }
        None => {
            poller.add(
                plain.as_fd(),
                Token::new(0, 0),
                Registration::new(Interest::READABLE, Trigger::Edge),
            )?;
            // It fails only when the count is full.
            Box::new(move || _ = rustix::io::write(&plain, &1u64.to_ne_bytes()))
        }
    };
    let mut events = Events::with_capacity(4);
    let before = writes_of_this_thread()?;
    for _ in 0..SLEEPS {
        (0..WAKES).for_each(|_| ring());
        poller.wait(&mut events, Some(TIMEOUT))?;
        if !events.is_woken() && events.is_empty() {
            return Err(MeasureError::Protocol("a wake that was lost".to_owned()));
        }
    }
    let writes = writes_of_this_thread()? - before;
    Ok(Tried::of(writes as f64 / SLEEPS as f64, SLEEPS * WAKES, []))
}

/// `write(2)` and its like, `proc_pid_io(5)`.
fn writes_of_this_thread() -> Result<u64, MeasureError> {
    let text = std::fs::read_to_string("/proc/thread-self/io");
    let text = text.map_err(MeasureError::io("read /proc/thread-self/io"))?;
    let count = text.lines().find_map(|line| line.strip_prefix("syscw: ")?.parse().ok());
    count.ok_or_else(|| MeasureError::Protocol(format!("no syscw in {text:?}")))
}

/// Signals at random times around the begin of a wait.
pub(super) fn signal() -> Result<Tried, MeasureError> {
    let failed = |cause| MeasureError::Io { call: "waiting for signals", cause };
    let mut signals = Signals::catch(&[Signal::User1]).map_err(failed)?;
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    let round = AtomicU64::new(0);
    let sent = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let latencies = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            for next in 1..=SIGNALS {
                while round.load(Ordering::Acquire) < next {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::yield_now();
                }
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (0..(random >> 33) % SPINS_MAX).for_each(|_| std::hint::spin_loop());
                sent.store(now(), Ordering::Release);
                // This process is there.
                let _ = kill_process(getpid(), Sent::USR1);
            }
        });
        let mut latencies = Vec::new();
        for next in 1..=SIGNALS {
            round.store(next, Ordering::Release);
            let got = signals.wait(Some(TIMEOUT)).map_err(failed);
            if !matches!(got, Ok(Some(_))) {
                is_over.store(true, Ordering::Relaxed);
                got?;
                return Err(MeasureError::Protocol(format!("signal {next} was lost")));
            }
            latencies.push(now() - sent.load(Ordering::Acquire));
        }
        Ok(latencies)
    });
    let mut latencies = latencies?;
    latencies.sort_unstable();
    let us = |at: usize| latencies[at] as f64 / 1000.0;
    let p50 = ("signal_p50_us", us(latencies.len() / 2));
    Ok(Tried::of(us(latencies.len() - 1), SIGNALS, [p50]))
}

/// Loops that poll busily on every CPU, with nothing to do; with a shared date each looks again by a
/// whole turn, and writes that date in each.
pub(super) fn spin(driver: Driver, shares_date: bool) -> Result<Tried, MeasureError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let one = spinning(driver, shares_date, 1)?;
    let all = spinning(driver, shares_date, cpus)?;
    let of_1000 = |count: u64| 1000.0 * count as f64 / all.loops as f64;
    let figures = [
        ("threads", cpus as f64),
        ("date_writes_per_1000_loops", of_1000(all.date_writes)),
        ("calls_per_1000_loops", of_1000(all.calls)),
        ("each_of_one_alone", all.loops as f64 / cpus as f64 / one.loops as f64),
    ];
    Ok(Tried::of(all.loops as f64 / SPIN.as_secs_f64(), all.loops, figures))
}

/// What loops did meanwhile.
#[derive(Default)]
struct Spun {
    loops: u64,
    /// Of the date that they share.
    date_writes: u64,
    /// Calls of the kernel to look, or to have it finish its work.
    calls: u64,
}

fn spinning(driver: Driver, shares_date: bool, threads: usize) -> Result<Spun, MeasureError> {
    let date = Arc::<SharedDate>::default();
    let plain_date = AtomicU64::new(0);
    let one = || -> Result<Spun, MeasureError> {
        let failed = |error: LoopError| MeasureError::Protocol(error.to_string());
        let counters = Arc::<Counters>::default();
        let limits = Limits { busy_poll: !shares_date, ..Limits::default() };
        let date = Arc::clone(&date);
        let kept = Arc::clone(&counters);
        let opened = EventLoop::<NoSession>::open_with(driver, (), limits, date, kept);
        let mut opened = opened.map_err(|error| MeasureError::Protocol(error.to_string()))?;
        let end = opened.now().at + SPIN;
        let mut spun = Spun::default();
        while opened.now().at < end {
            opened.turn(Some(if shares_date { Duration::ZERO } else { SPIN })).map_err(failed)?;
            spun.loops += 1;
            if shares_date {
                plain_date.fetch_max(opened.now().at.as_nanos(), Ordering::SeqCst);
                spun.date_writes += 1;
            }
        }
        spun.loops += counters.value(Counter::BusySpins);
        spun.date_writes += counters.value(Counter::DateWrites);
        spun.calls = match opened.poller_counters() {
            Some(poller) => poller.snapshot().system_calls,
            None => counters.value(Counter::RingEnters),
        };
        Ok(spun)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_fold(Spun::default(), |mut sum, thread| {
            let spun = thread.join().expect("it does not panic")?;
            sum.loops += spun.loops;
            sum.date_writes += spun.date_writes;
            sum.calls += spun.calls;
            Ok(sum)
        })
    })
}
