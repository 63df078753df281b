//! The poller under test together with the verbs of the scripts.
//!
//! The verbs that wait come in two kinds: `found` insists that something is there before the
//! deadline, `quiet` that nothing comes. No verb sleeps on a clock to let something happen.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::sim::{SimFd, World};
use pollux_poller::{
    Backend, Error, Event, Events, Interest, Mechanism, Poller, Readiness, Registration, Token,
    Trigger,
};

use rustix::thread::Pid;

use crate::aio_polls::AioPolls;
use crate::objects::Object;
use crate::{CaseResult, Deviation};

/// How long something that must come may take on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// How often, and how long each time, the kernel may take to give back the memory of rings.
const RELEASES_MAX: usize = 20;
const RELEASE: Duration = Duration::from_millis(100);
/// How long nothing must come for a script to believe that nothing will.
const QUIET: Duration = Duration::from_millis(2);
/// How long a script waits each time for passing states to pass, which come at once and many times on the kernel; how
/// often in a simulated world, where nothing passes by itself.
const TRY: Duration = Duration::from_millis(20);
const SIMULATED_TRIES: usize = 250;
/// Room in the event list of a script that does not say otherwise.
const CAPACITY: usize = 64;

/// Opens a poller on a mechanism, or what stands in the shape of one.
pub type Open = fn(Mechanism) -> Result<Box<dyn Poller>, Error>;

/// Slot and readiness of one event.
pub type ReportedEvents = Vec<(u32, Readiness)>;

/// A poller under test.
pub struct Rig {
    /// The poller, for scripts that need more than the verbs.
    pub poller: Box<dyn Poller>,
    backend: Backend,
    open: Open,
    started: Instant,
    /// The simulated kernel, where the backend is the simulated one.
    world: Option<World>,
    /// Keep the numbers below a reused one occupied.
    plugs: Vec<OwnedFd>,
    used_up: UsedUp,
}

/// Why a case can't continue: the system has nothing left for its backend, which is not at fault. All rigs of a case
/// share it, on whichever thread; once it is set, the case counts as skipped, however it ends.
pub(crate) type UsedUp = Arc<OnceLock<String>>;

/// What the stack of a case is unwound with that is skipped.
#[derive(Clone, Copy, Debug)]
pub struct Skipped;

impl Rig {
    /// Opens `backend` by `open`, or a simulated one in a world of its own.
    ///
    /// # Errors
    /// The poller was not opened.
    pub(crate) fn new(backend: Backend, open: Open, used_up: UsedUp) -> Result<Self, Error> {
        let world = (backend == crate::sim::BACKEND).then(World::new);
        let poller = unless_used_up(backend, &used_up, || open_in(backend, open, world.as_ref()))?;
        let plugs = Vec::new();
        Ok(Self { poller, backend, open, started: Instant::now(), world, plugs, used_up })
    }

    /// What opens another one in the same way, on any thread.
    pub fn opener(&self) -> impl Fn() -> Result<Self, Error> + Clone + Send + use<> {
        let backend = self.backend;
        let open = self.open;
        let used_up = Arc::clone(&self.used_up);
        move || Self::new(backend, open, Arc::clone(&used_up))
    }

    /// Ends the case, or the thread of it, by unwinding with [`Skipped`].
    pub fn skip(&self, why: impl Into<String>) -> ! {
        skip(&self.used_up, why.into())
    }

    /// Which backend is under test.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Another poller on the same backend, in the same world.
    pub fn open_another(&self) -> Box<dyn Poller> {
        let open = || open_in(self.backend, self.open, self.world.as_ref());
        unless_used_up(self.backend, &self.used_up, open).expect("one was opened already")
    }

    /// The time that timeouts count in.
    pub fn now(&self) -> Duration {
        self.world.as_ref().map_or_else(|| self.started.elapsed(), World::now)
    }

    /// The simulated kernel, where there is one.
    pub fn world(&self) -> Option<&World> {
        self.world.as_ref()
    }

    /// Turns away backends without a kernel below them.
    pub fn needs_kernel(&self) -> CaseResult {
        if self.world.is_some() { Err(Deviation::NoObject) } else { Ok(()) }
    }
}

/// What the scripts watch.
impl Rig {
    /// The reading and the writing end of a pipe.
    pub fn pipe(&self) -> (Object, Object) {
        self.world.as_ref().map_or_else(Object::pipe, |world| sim_pair(world, world.pipe()))
    }

    /// Two connected stream sockets.
    pub fn socketpair(&self) -> (Object, Object) {
        let sim = |world: &World| sim_pair(world, world.socketpair());
        self.world.as_ref().map_or_else(Object::socketpair, sim)
    }

    /// An event counter at zero.
    pub fn eventfd(&self) -> Object {
        self.world.as_ref().map_or_else(Object::eventfd, Object::sim_counter)
    }

    /// Two descriptors of a message queue.
    pub fn queue(&self) -> (Object, Object) {
        self.world.as_ref().map_or_else(Object::queue, |world| {
            let queue = world.queue(4);
            sim_pair(world, (world.dup(&queue), queue))
        })
    }

    /// A connected pair over the loopback interface.
    pub fn tcp_pair(&self) -> Result<(Object, Object), Deviation> {
        self.needs_kernel()?;
        Ok(Object::tcp_pair())
    }

    /// [`Rig::pipe`] in the shape that scripts for every kind of object take.
    pub fn pipe_ends(&self) -> Result<(Object, Object), Deviation> {
        Ok(self.pipe())
    }

    /// The same for [`Rig::socketpair`].
    pub fn socket_ends(&self) -> Result<(Object, Object), Deviation> {
        Ok(self.socketpair())
    }

    /// The same for [`Rig::eventfd`].
    pub fn counter_ends(&self) -> Result<(Object, Object), Deviation> {
        let counter = self.eventfd();
        Ok((counter.dup(), counter))
    }

    /// The same for [`Rig::queue`].
    pub fn queue_ends(&self) -> Result<(Object, Object), Deviation> {
        Ok(self.queue())
    }

    /// Closes `old` and makes a pipe whose reader has the number that `old` had. The case has to be one of
    /// [`OF_NUMBERS`](crate::OF_NUMBERS).
    pub fn successor(&mut self, old: Object) -> (Object, Object) {
        let number = old.as_fd().as_raw_fd();
        // The kernel gives the lowest free number, so what lies below must be taken.
        loop {
            let plug = memfd();
            if plug.as_raw_fd() > number {
                break;
            }
            self.plugs.push(plug);
        }
        old.close();
        let (reader, writer) = self.pipe();
        assert_eq!(reader.as_fd().as_raw_fd(), number, "the lowest free number is used next");
        (reader, writer)
    }
}

impl Rig {
    /// Adds under slot `slot`, generation 0.
    #[track_caller]
    pub fn add(
        &mut self,
        fd: impl AsFd,
        slot: u32,
        interest: Interest,
        trigger: Trigger,
    ) -> CaseResult {
        let how = Registration::new(interest, trigger);
        let add = || self.poller.add(fd.as_fd(), Token::new(slot, 0), how);
        accepted(unless_used_up(self.backend, &self.used_up, add))
    }

    /// Modifies to slot `slot`, generation 0.
    #[track_caller]
    pub fn modify(
        &mut self,
        fd: impl AsFd,
        slot: u32,
        interest: Interest,
        trigger: Trigger,
    ) -> CaseResult {
        let how = Registration::new(interest, trigger);
        accepted(self.poller.modify(fd.as_fd(), Token::new(slot, 0), how))
    }

    #[track_caller]
    pub fn delete(&mut self, fd: impl AsFd) {
        self.poller.delete(fd.as_fd()).expect("a registered descriptor");
    }
}

impl Rig {
    #[track_caller]
    pub fn wait(&mut self, capacity: usize, timeout: Duration) -> Vec<Event> {
        let mut events = Events::with_capacity(capacity);
        self.poller.wait(&mut events, Some(timeout)).expect("wait");
        assert!(events.len() <= capacity, "{} events for a capacity of {capacity}", events.len());
        assert!(!events.is_woken() && !events.is_interrupted(), "no waker was used");
        events.iter().copied().collect()
    }

    /// One wait that must find something.
    #[track_caller]
    pub fn found(&mut self) -> ReportedEvents {
        let seen = slots(&self.wait(CAPACITY, DEADLINE));
        assert!(!seen.is_empty(), "nothing was reported within {DEADLINE:?}");
        seen
    }

    /// A short wait that must find nothing.
    #[track_caller]
    pub fn quiet(&mut self) {
        let seen = slots(&self.wait(CAPACITY, QUIET));
        assert!(seen.is_empty(), "nothing should be ready, but there is {seen:?}");
    }

    /// Says whether to look once more for what should come.
    fn patience(&self) -> impl FnMut() -> bool + use<> {
        let is_simulated = self.world.is_some();
        let begun = Instant::now();
        let mut tries = 0;
        move || {
            tries += 1;
            if is_simulated { tries <= SIMULATED_TRIES } else { begun.elapsed() < DEADLINE }
        }
    }

    /// Waits until `slot` is reported with `wanted` and nothing else; passing states on the way
    /// there (a half-close before a close) are allowed. For level triggers.
    ///
    /// Answers with the deviation where hang-up and error come as readable and writable.
    #[track_caller]
    pub fn reported(&mut self, slot: u32, interest: Interest, wanted: Readiness) -> CaseResult {
        let folded = fold(wanted, interest);
        let mut last = ReportedEvents::new();
        let mut folded_seen = 0;
        let mut patience = self.patience();
        while patience() {
            let seen = slots(&self.wait(CAPACITY, TRY));
            if !seen.is_empty() {
                last = seen;
            }
            if last == [(slot, wanted)] {
                return Ok(());
            }
            if last == [(slot, folded)] && !self.poller.caps().hangup {
                folded_seen += 1;
            }
            // More than a passing state.
            if folded_seen == 3 {
                return Err(Deviation::HangupAsReadable);
            }
        }
        panic!("slot {slot} should be reported as {wanted:?}, the last report was {last:?}");
    }

    /// [`Rig::reported`] without an interest: some interfaces do not report it.
    #[track_caller]
    pub fn reported_unasked(
        &mut self,
        slot: u32,
        interest: Interest,
        wanted: Readiness,
    ) -> CaseResult {
        if !self.poller.caps().hangup {
            self.quiet();
            return Err(Deviation::HangupUnreported);
        }
        self.reported(slot, interest, wanted)
    }

    /// Waits until two slots are reported as readable by one wait, and nothing else is.
    #[track_caller]
    pub fn both(&mut self, first: u32, second: u32) {
        let mut seen = ReportedEvents::new();
        let mut patience = self.patience();
        while patience() {
            seen = slots(&self.wait(CAPACITY, TRY));
            seen.sort_unstable_by_key(|(slot, _)| *slot);
            if seen == [(first, Readiness::READABLE), (second, Readiness::READABLE)] {
                return;
            }
        }
        panic!("slots {first} and {second} should be readable, the last report was {seen:?}");
    }

    /// Everything that is reported until it is quiet, readiness joined for each slot. Not for
    /// level triggers, which are never quiet.
    #[track_caller]
    pub fn settled(&mut self) -> ReportedEvents {
        let mut all: ReportedEvents = self.found();
        loop {
            let seen = slots(&self.wait(CAPACITY, QUIET));
            if seen.is_empty() {
                break;
            }
            all.extend(seen);
        }
        join(all)
    }
}

/// Does `act`, and ends the case where it fails because other programs hold the AIO polls of the system.
fn unless_used_up<T>(
    backend: Backend,
    used_up: &UsedUp,
    mut act: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let outcome = act();
    let Err(error) = &outcome else { return outcome };
    match AioPolls::behind(backend, error) {
        Some(polls) if polls.are_held_by_others => {
            skip(used_up, format!("{backend}: {error}; {polls}"))
        }
        // Others may have given theirs back before they were counted.
        Some(_) => act(),
        None => outcome,
    }
}

fn skip(used_up: &UsedUp, why: String) -> ! {
    // The first reason is as good as that of another thread.
    let _ = used_up.set(why);
    resume_unwind(Box::new(Skipped))
}

/// Passes refusals by capability on as a deviation; any other failure is one of the script.
#[track_caller]
pub fn accepted(outcome: Result<(), Error>) -> CaseResult {
    match outcome {
        Ok(()) => Ok(()),
        Err(Error::Unsupported { .. }) => Err(Deviation::Refused),
        Err(error) => panic!("refused: {error}: {error:?}"),
    }
}

/// Slot and readiness of each event.
pub fn slots(events: &[Event]) -> ReportedEvents {
    events.iter().map(|event| (event.token.slot(), event.readiness)).collect()
}

/// Returns when thread `tid` of this process sleeps in the kernel, as its state says.
pub fn until_asleep(tid: Pid) {
    let path = format!("/proc/self/task/{}/stat", tid.as_raw_nonzero());
    let begun = Instant::now();
    loop {
        let stat = fs::read_to_string(&path).expect("the thread lives");
        // The name in parentheses may hold anything, so the state is looked for behind it.
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        if state == Some('S') {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "thread {tid:?} never sleeps, its state is {state:?}");
        pollux_testing::pause(begun);
    }
}

/// A regular file.
pub fn memfd() -> OwnedFd {
    use rustix::fs::{MemfdFlags, memfd_create};
    memfd_create("conformance", MemfdFlags::CLOEXEC).expect("memfd_create")
}

/// The mechanism that opens `backend`, where it has a kernel.
pub fn mechanism(backend: Backend) -> Option<Mechanism> {
    Mechanism::PLAIN.into_iter().find(|known| known.backend() == backend)
}

/// The mechanisms, one for each kernel interface, that this machine allows; others are named.
pub fn allowed() -> impl Iterator<Item = Mechanism> {
    Mechanism::PLAIN.into_iter().filter(|mechanism| {
        let Err(error) = mechanism.open() else { return true };
        if let Some(polls) = AioPolls::behind(mechanism.backend(), &error) {
            assert!(polls.are_held_by_others, "{mechanism}: {error}; {polls}");
        }
        pollux_testing::skip(format_args!("{mechanism}: {error}"));
        false
    })
}

/// The same without the kernel's own epoll.
pub fn allowed_but_epoll() -> impl Iterator<Item = Mechanism> {
    allowed().filter(|mechanism| *mechanism != Mechanism::Epoll)
}

fn open_in(backend: Backend, open: Open, world: Option<&World>) -> Result<Box<dyn Poller>, Error> {
    if let Some(world) = world {
        return Ok(world.open());
    }
    let mechanism = mechanism(backend).expect("the simulated backend has a world");
    let mut opened = open(mechanism);
    for _ in 0..RELEASES_MAX {
        match &opened {
            // The rings of earlier cases are given back by a kernel thread, some time after
            // their last close, and count as locked memory of this user until then. Trying
            // again without a pause would make rings faster than that thread takes them back.
            Err(error) if is_out_of_memory(error) => {
                let mut nothing = Events::with_capacity(1);
                Mechanism::Poll.open()?.wait(&mut nothing, Some(RELEASE))?;
                opened = open(mechanism);
            }
            _ => break,
        }
    }
    opened
}

fn is_out_of_memory(error: &Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOMEM.raw_os_error())
}

fn sim_pair(world: &World, (first, second): (SimFd, SimFd)) -> (Object, Object) {
    (Object::sim(world, first), Object::sim(world, second))
}

/// What `wanted` looks like where hang-up and error do not have bits of their own: a hang-up is
/// readable, an error both, where they are wanted.
fn fold(wanted: Readiness, interest: Interest) -> Readiness {
    let pairs = [
        (Interest::READABLE, Readiness::READABLE, wanted.is_readable() || wanted.is_closed()),
        (
            Interest::WRITABLE,
            Readiness::WRITABLE,
            wanted.is_writable() || wanted.contains(Readiness::ERROR),
        ),
    ];
    let held = pairs.into_iter().filter(|(asked, _, holds)| interest.contains(*asked) && *holds);
    held.fold(Readiness::NONE, |all, (_, bit, _)| all | bit)
}

fn join(seen: ReportedEvents) -> ReportedEvents {
    let mut joined = ReportedEvents::new();
    for (slot, readiness) in seen {
        match joined.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, all)) => *all |= readiness,
            None => joined.push((slot, readiness)),
        }
    }
    joined
}
