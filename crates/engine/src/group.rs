//! Several loops, a thread each, behind common listeners.

use std::any::TypeId;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_poller::Waker;

use crate::admission::Message;
use crate::event_loop::EventLoop;
use crate::member::{Member, Setup};
use crate::{
    Counters, CpuList, Driver, Limits, ListenAddress, ListenError, Listeners, LoopError,
    LoopHandle, Sender, Session, SharedDate, Sockets, Undelivered,
};

/// What a group is made of.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// Where to listen; at least one address.
    pub listen: Vec<ListenAddress>,
    /// Which loop on which mechanism.
    pub driver: Driver,
    /// How many loops, at least one.
    pub threads: usize,
    /// How they come to their connections.
    pub listeners: Listeners,
    /// CPUs to run on, one for each loop in turn; the scheduler's choice when there is none.
    pub cpus: Option<CpuList>,
    /// Whether connections go without TCP_NODELAY: the kernel then holds a small write back while
    /// an earlier one is not acknowledged. Only for showing what that costs.
    pub delays_small_writes: bool,
    /// The bounds of all loops together: each has its share of `connections_max`.
    pub limits: Limits,
}

/// One loop on edge-triggered epoll, on a port of 127.0.0.1 that the kernel chooses, with the default
/// [`Limits`].
impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            listen: vec![ListenAddress::Tcp(([127, 0, 0, 1], 0).into())],
            driver: Driver::default(),
            threads: 1,
            listeners: Listeners::default(),
            cpus: None,
            delays_small_writes: false,
            limits: Limits::default(),
        }
    }
}

/// Why a group could not be started, or ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum GroupError {
    /// A listener could not be opened.
    Listen(ListenError),
    /// A loop could not be opened or run.
    Loop(LoopError),
    /// A loop could not be given its CPU.
    Cpu(crate::CpuError),
    /// A thread could not be started, or a descriptor duplicated.
    System(&'static str, std::io::Error),
    /// What the sessions of a loop share could not be made.
    Shared(Box<dyn std::error::Error + Send + Sync>),
    /// A loop's thread panicked, in a session, a callback or the loop itself.
    Panicked,
}

/// With the kind of its cause where it has one; the error itself is inside.
impl From<GroupError> for std::io::Error {
    fn from(error: GroupError) -> Self {
        let kind = match &error {
            GroupError::Loop(error) => error.kind(),
            GroupError::Listen(error) => error.kind(),
            GroupError::System(_, cause) => cause.kind(),
            _ => std::io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(error) => error.fmt(f),
            Self::Loop(error) => error.fmt(f),
            Self::Cpu(error) => error.fmt(f),
            Self::System(call, _) => write!(f, "{call} failed"),
            Self::Shared(error) => error.fmt(f),
            Self::Panicked => f.write_str("a loop's thread panicked"),
        }
    }
}

impl std::error::Error for GroupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(error) => error.source(),
            Self::Loop(error) => error.source(),
            Self::Cpu(error) => error.source(),
            Self::System(_, error) => Some(error),
            Self::Shared(error) => error.source(),
            Self::Panicked => None,
        }
    }
}

/// What other threads may read of a loop while it runs.
#[derive(Clone, Debug)]
pub struct LoopView {
    /// The loop's counters.
    pub counters: Arc<Counters>,
    /// Those of its poller; none under a completion loop.
    pub poller: Option<Arc<crate::PollerCounters>>,
    /// What its mechanism notes about itself.
    pub notes: Vec<String>,
}

struct Running {
    /// The session type of the loop.
    sessions: TypeId,
    view: LoopView,
    sender: Sender<Message, Waker>,
    waker: Waker,
    thread: JoinHandle<Result<(), LoopError>>,
}

/// Running event loops, one thread each, behind common listeners.
///
/// The thread that starts a group owns it: it drains it, dumps its state and waits for its end. Any
/// thread may have a call made in a loop's thread ([`LoopHandle`]).
///
/// A panic in a session ends its loop, with all its connections, and [`Group::join`] gives
/// [`GroupError::Panicked`]; the other loops continue ([`Group::has_ended_loop`] says so). It does not
/// end its connection alone, because a session is called with what all sessions of the loop share
/// and with the loop's own output buffers: after an unwinding it is unknown whether those are in
/// order, and continuing could serve one client's bytes to another.
pub struct Group {
    running: Vec<Running>,
    addresses: Vec<ListenAddress>,
    /// Of unix sockets, to be removed at the end.
    paths: Vec<PathBuf>,
}

/// Asks the loops of a group for their descriptors; any thread may, but for those of the loops.
#[derive(Clone)]
pub struct Dumper(Vec<Sender<Message, Waker>>);

/// How long a dump waits for the loops: a turn takes microseconds.
const DUMP_TIMEOUT: Duration = Duration::from_secs(2);

/// Loops did not answer in time: one turn of theirs lasts, or their inbox is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpTimeout {
    /// Their indices.
    pub loops: Vec<usize>,
}

impl fmt::Display for DumpTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loops {:?} did not answer in time", self.loops)
    }
}

impl std::error::Error for DumpTimeout {}

impl From<DumpTimeout> for std::io::Error {
    fn from(error: DumpTimeout) -> Self {
        Self::new(std::io::ErrorKind::TimedOut, error)
    }
}

impl Dumper {
    /// One line for each descriptor, by loop. Each loop writes its own at the end of a turn, so no
    /// line shows a connection in the middle of a change; one that passes from loop to loop meanwhile
    /// may stand in both or in neither. A loop that has ended has no lines.
    ///
    /// # Errors
    /// [`DumpTimeout`] when a loop does not answer within two seconds.
    pub fn descriptors(&self) -> Result<Vec<Vec<String>>, DumpTimeout> {
        let end = Instant::now() + DUMP_TIMEOUT;
        let ask = |sender: &Sender<Message, Waker>| {
            let (answer, answers) = mpsc::channel();
            // An inbox that takes nothing drops the question, and the answer ends like that of a loop
            // that has ended.
            let is_asked = match sender.send(Message::Describe(answer)) {
                Err(Undelivered::Full(_)) => false,
                Ok(()) | Err(Undelivered::Closed(_)) => true,
            };
            (is_asked, answers)
        };
        let asked: Vec<_> = self.0.iter().map(ask).collect();
        let mut lines = Vec::new();
        let mut silent = Vec::new();
        for (index, (is_asked, answers)) in asked.into_iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            match answers.recv_timeout(left) {
                Ok(answer) => lines.push(answer),
                Err(RecvTimeoutError::Disconnected) if is_asked => lines.push(Vec::new()),
                Err(_) => silent.push(index),
            }
        }
        if silent.is_empty() { Ok(lines) } else { Err(DumpTimeout { loops: silent }) }
    }
}

impl Group {
    /// Opens the listeners and starts the loops; all of them run when this returns.
    ///
    /// `make_shared` is called in each loop's thread, with the loop's index.
    ///
    /// # Errors
    /// [`GroupError`]; loops that were started already are ended.
    ///
    /// # Panics
    /// Without an address or a thread.
    pub fn start<S, F, E>(config: &GroupConfig, make_shared: F) -> Result<Self, GroupError>
    where
        S: Session + 'static,
        F: Fn(usize) -> Result<S::Shared, E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        assert!(!config.listen.is_empty(), "a group listens");
        let sockets = Sockets::open(&config.listen, config.listeners, config.threads);
        let sockets = sockets.map_err(GroupError::Listen)?;
        let paths = sockets.paths();
        let mut group = Self::start_on::<S, F, E>(config, sockets, make_shared)?;
        group.paths = paths;
        Ok(group)
    }

    /// As [`Group::start`], on sockets that are open already: `config.listen` is not used, and
    /// the paths of unix sockets are left to the caller that opened them.
    ///
    /// # Errors
    /// As [`Group::start`].
    ///
    /// # Panics
    /// Without a socket or a thread.
    pub fn start_on<S, F, E>(
        config: &GroupConfig,
        sockets: Sockets,
        make_shared: F,
    ) -> Result<Self, GroupError>
    where
        S: Session + 'static,
        F: Fn(usize) -> Result<S::Shared, E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let addresses = sockets.addresses();
        assert!(config.threads > 0 && !addresses.is_empty(), "a group listens and has loops");
        if let Some(cpus) = &config.cpus {
            // Also those beyond the number of threads: a list that is wrong would come out later.
            cpus.check().map_err(GroupError::Cpu)?;
        }
        if config.delays_small_writes {
            let fail = |error| GroupError::System("setsockopt", error);
            sockets.delay_small_writes().map_err(fail)?;
        }
        let listeners = sockets.share_out(config.listeners, config.threads);
        let mut listeners = listeners.map_err(|error| GroupError::System("dup", error))?;
        let mut group = Self { running: Vec::new(), addresses, paths: Vec::new() };
        let make_shared = Arc::new(make_shared);
        let date = Arc::<SharedDate>::default();
        // The first loop comes last: with `single` it hands out to those that run.
        for index in (0..config.threads).rev() {
            let peers = match config.listeners {
                Listeners::Single if index == 0 => group.peers(),
                _ => Vec::new(),
            };
            let setup = Setup {
                index,
                driver: config.driver,
                limits: share_of(config, index),
                cpus: config.cpus.clone(),
                listeners: listeners.pop().unwrap_or_default(),
                is_fed: config.listeners == Listeners::Single && index > 0,
                peers,
                date: Arc::clone(&date),
            };
            match start_loop::<S, F, E>(setup, Arc::clone(&make_shared)) {
                Ok(running) => group.running.insert(0, running),
                Err(error) => {
                    group.abort();
                    let _ = group.join();
                    return Err(error);
                }
            }
        }
        Ok(group)
    }

    /// Where the group listens, with the ports that the kernel chose.
    #[must_use]
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// What can be read of each loop while it runs.
    #[must_use]
    pub fn views(&self) -> Vec<LoopView> {
        self.running.iter().map(|running| running.view.clone()).collect()
    }

    /// The way to send calls to loop `index`: messages, connections to open or to adopt, sources.
    ///
    /// # Panics
    /// When there is no loop of that index, or `S` is not the session type that the group was started
    /// with.
    #[must_use]
    pub fn handle<S: Session + 'static>(&self, index: usize) -> LoopHandle<S> {
        let running = &self.running[index];
        assert!(
            running.sessions == TypeId::of::<S>(),
            "the group runs other sessions than {}",
            std::any::type_name::<S>()
        );
        LoopHandle::new(running.sender.clone())
    }

    /// The way to dump all descriptors.
    #[must_use]
    pub fn dumper(&self) -> Dumper {
        Dumper(self.running.iter().map(|running| running.sender.clone()).collect())
    }

    /// Ends the group gently: no new connections, sessions are notified, what is open after
    /// `at_most` is cut. Returns at once; [`Group::join`] waits.
    pub fn drain(&self, at_most: Duration) {
        self.stop(|| Message::Drain(at_most));
    }

    /// Has every loop take a turn soon, also when nothing else happens.
    pub fn wake_all(&self) {
        self.running.iter().for_each(|running| running.waker.wake());
    }

    /// Whether every loop has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.running.iter().all(|running| running.thread.is_finished())
    }

    /// Whether any loop has ended, as they all do after [`Group::drain`]; before it, because
    /// the kernel refused to wait.
    #[must_use]
    pub fn has_ended_loop(&self) -> bool {
        self.running.iter().any(|running| running.thread.is_finished())
    }

    /// Ends the group at once.
    pub fn abort(&self) {
        self.stop(|| Message::Stop);
    }

    /// Waits until all loops have ended.
    ///
    /// # Errors
    /// The first error of a loop.
    pub fn join(self) -> Result<(), GroupError> {
        let mut outcome = Ok(());
        for running in self.running {
            let ended = running.thread.join().map_err(|_| GroupError::Panicked);
            outcome = outcome.and(ended.and_then(|ended| ended.map_err(GroupError::Loop)));
        }
        for path in &self.paths {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
        outcome
    }

    fn stop(&self, message: impl Fn() -> Message) {
        for running in &self.running {
            // A loop that has ended needs no message. One whose inbox is full gets it later:
            // only connections that are handed over fill it, and those can wait for the next.
            let mut message = message();
            while let Err(Undelivered::Full(back)) = running.sender.send(message) {
                message = back;
                std::thread::yield_now();
            }
        }
    }

    fn peers(&self) -> Vec<(Sender<Message, Waker>, Arc<Counters>)> {
        let peer = |running: &Running| (running.sender.clone(), running.view.counters.clone());
        self.running.iter().map(peer).collect()
    }
}

/// The limits of loop `index`: `config` has the totals; each loop has at least one connection.
fn share_of(config: &GroupConfig, index: usize) -> Limits {
    let total = config.limits.connections_max;
    let threads = config.threads as u32;
    let share = |total: u32| (total / threads + u32::from((index as u32) < total % threads)).max(1);
    let connects_max = config.limits.connects_max.map(share);
    Limits { connections_max: share(total), connects_max, ..config.limits.clone() }
}

/// Starts a thread and waits until its loop is ready or has failed.
fn start_loop<S, F, E>(setup: Setup, make_shared: Arc<F>) -> Result<Running, GroupError>
where
    S: Session + 'static,
    F: Fn(usize) -> Result<S::Shared, E> + Send + Sync + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (ready, is_ready) = mpsc::channel();
    let name = format!("pollux-{}", setup.index);
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let shared = make_shared(setup.index).map_err(|error| GroupError::Shared(error.into()));
        let counters: Arc<Counters> = Arc::default();
        let driver = setup.driver;
        let limits = setup.limits.clone();
        let opened = shared.and_then(|shared| {
            setup.pin().map_err(GroupError::Cpu)?;
            let date = Arc::clone(&setup.date);
            EventLoop::<S>::open_with(driver, shared, limits, date, Arc::clone(&counters))
                .map_err(GroupError::Loop)
        });
        let event_loop = match opened {
            Ok(event_loop) => event_loop,
            Err(error) => {
                // The starter waits for this.
                let _ = ready.send(Err(error));
                return Ok(());
            }
        };
        let view =
            LoopView { counters, poller: event_loop.poller_counters(), notes: event_loop.notes() };
        let waker = event_loop.waker();
        let (member, sender) = Member::new(event_loop, setup);
        let _ = ready.send(Ok((view, sender, waker)));
        member.run()
    });
    let thread = thread.map_err(|error| GroupError::System("starting a thread", error))?;
    match is_ready.recv() {
        Ok(Ok((view, sender, waker))) => {
            let sessions = TypeId::of::<S>();
            Ok(Running { sessions, view, sender, waker, thread })
        }
        // Until the thread has ended it has listeners, which are in the way of another start.
        Ok(Err(error)) => thread.join().map_or(Err(GroupError::Panicked), |_| Err(error)),
        Err(mpsc::RecvError) => {
            let _ = thread.join();
            Err(GroupError::Panicked)
        }
    }
}

#[cfg(test)]
mod tests {
    use pollux_poller::Mechanism;

    use super::*;

    #[test]
    fn loops_share_a_limit_and_together_keep_it() {
        for (total, threads, shares) in
            [(3, 2, &[2, 1][..]), (8, 4, &[2, 2, 2, 2]), (1, 1, &[1]), (1, 2, &[1, 1])]
        {
            let config = GroupConfig {
                listen: Vec::new(),
                driver: Driver::Readiness(Mechanism::Poll),
                threads,
                listeners: Listeners::Reuseport,
                cpus: None,
                delays_small_writes: false,
                limits: Limits { connections_max: total, ..Limits::default() },
            };
            let found = (0..threads).map(|index| share_of(&config, index).connections_max);
            assert!(found.eq(shares.iter().copied()), "{total} for {threads}");
        }
    }
}
