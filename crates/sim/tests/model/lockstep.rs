//! A real poller on real descriptors and the simulated one, driven by the same operations.
//!
//! Every operation is done on both sides and must end alike, down to byte counts and errnos;
//! [`Lockstep::check`] then requires that both pollers report the same.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use pollux_poller::{
    Backend, Caps, Error, Events, Interest, Poller, Readiness, Registration, Token, Trigger,
};
use pollux_sim::{SimFd, World};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;

/// How long a backend may take to find what is ready already: completions of AIO and io_uring
/// can need a turn of a kernel thread, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long one wait of the retries sleeps.
const RETRY: Duration = Duration::from_millis(1);

const BITS: [Readiness; 6] = [
    Readiness::READABLE,
    Readiness::WRITABLE,
    Readiness::PRIORITY,
    Readiness::RDHUP,
    Readiness::HUP,
    Readiness::ERROR,
];

pub(crate) type Found = BTreeMap<Token, Readiness>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pipe,
    Socket,
    /// Every write adds one, whatever its length was meant to be.
    Eventfd,
}

/// One end of a pipe, socket pair or eventfd, twice.
pub(crate) struct End {
    real: OwnedFd,
    sim: SimFd,
    token: Token,
    kind: Kind,
    peer: Option<usize>,
    interest: Option<Interest>,
}

pub(crate) struct Lockstep {
    pub(crate) real: Box<dyn Poller>,
    pub(crate) model: Box<dyn Poller>,
    pub(crate) world: World,
    /// Watches level what `model` watches: says what holds, reported or not.
    truth: Box<dyn Poller>,
    trigger: Trigger,
    ends: Vec<Option<End>>,
    /// What was reported to the user of an edge registration and still holds.
    seen: Found,
    events: Events,
    tokens: u32,
    /// The other end of the one that was closed last, until it noticed.
    bereaved: Option<usize>,
}

/// Making ends; each returns the indices of the new ones.
impl Lockstep {
    pub(crate) fn new(real: Box<dyn Poller>, trigger: Trigger) -> Self {
        let world = World::new();
        Self {
            real,
            model: world.open(),
            truth: world.open(),
            world,
            trigger,
            ends: Vec::new(),
            seen: Found::new(),
            events: Events::with_capacity(64),
            tokens: 0,
            bereaved: None,
        }
    }

    pub(crate) fn pipe(&mut self) -> [usize; 2] {
        let flags = PipeFlags::NONBLOCK | PipeFlags::CLOEXEC;
        let (reader, writer) = rustix::pipe::pipe_with(flags).expect("descriptors are left");
        let (sim_reader, sim_writer) = self.world.pipe();
        self.enter_pair((reader, sim_reader), (writer, sim_writer), Kind::Pipe)
    }

    pub(crate) fn socketpair(&mut self) -> [usize; 2] {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (a, b) = pair.expect("descriptors are left");
        let (sim_a, sim_b) = self.world.socketpair();
        self.enter_pair((a, sim_a), (b, sim_b), Kind::Socket)
    }

    pub(crate) fn eventfd(&mut self) -> usize {
        use rustix::event::{EventfdFlags, eventfd};
        let real = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let sim = self.world.eventfd();
        let index = self.ends.len();
        self.enter((real.expect("descriptors are left"), sim), Kind::Eventfd, None);
        index
    }

    fn enter_pair(&mut self, a: (OwnedFd, SimFd), b: (OwnedFd, SimFd), kind: Kind) -> [usize; 2] {
        let pair = [self.ends.len(), self.ends.len() + 1];
        self.enter(a, kind, Some(pair[1]));
        self.enter(b, kind, Some(pair[0]));
        pair
    }

    fn enter(&mut self, (real, sim): (OwnedFd, SimFd), kind: Kind, peer: Option<usize>) {
        self.tokens += 1;
        let token = Token::new(self.tokens, 0);
        self.ends.push(Some(End { real, sim, token, kind, peer, interest: None }));
    }
}

/// Operations; on a closed end they do nothing.
impl Lockstep {
    pub(crate) fn add(&mut self, index: usize, interest: Interest) {
        self.register(index, Registration::new(interest, self.trigger), <dyn Poller>::add);
    }

    pub(crate) fn modify(&mut self, index: usize, interest: Interest) {
        self.register(index, Registration::new(interest, self.trigger), <dyn Poller>::modify);
    }

    fn register(&mut self, index: usize, how: Registration, verb: Verb) {
        let Some(end) = &mut self.ends[index] else { return };
        let real = verb(&mut *self.real, end.real.as_fd(), end.token, how);
        let model = verb(&mut *self.model, end.sim.as_fd(), end.token, how);
        assert_eq!(outcome(&real), outcome(&model), "{real:?} against the model's {model:?}");
        if real.is_ok() {
            let level = Registration::new(how.interest, Trigger::Level);
            verb(&mut *self.truth, end.sim.as_fd(), end.token, level).expect("as the model");
            end.interest = Some(how.interest);
            self.seen.remove(&end.token);
        }
    }

    pub(crate) fn delete(&mut self, index: usize) {
        let Some(end) = &mut self.ends[index] else { return };
        let real = self.real.delete(end.real.as_fd());
        let model = self.model.delete(end.sim.as_fd());
        assert_eq!(outcome(&real), outcome(&model), "{real:?} against the model's {model:?}");
        if real.is_ok() {
            self.truth.delete(end.sim.as_fd()).expect("as the model");
            end.interest = None;
            self.seen.remove(&end.token);
        }
    }

    pub(crate) fn write(&mut self, index: usize, len_bytes: usize) {
        let Some(end) = &self.ends[index] else { return };
        let bytes = vec![0; len_bytes];
        let (real, len_bytes) = match end.kind {
            Kind::Pipe => (rustix::io::write(&end.real, &bytes), len_bytes),
            Kind::Socket => (rustix::net::send(&end.real, &bytes, SendFlags::NOSIGNAL), len_bytes),
            Kind::Eventfd => (rustix::io::write(&end.real, &1u64.to_ne_bytes()), 8),
        };
        assert_eq!(real, self.world.write(&end.sim, len_bytes), "real write against the model's");
    }

    pub(crate) fn read(&mut self, index: usize, len_bytes: usize) {
        let Some(end) = &self.ends[index] else { return };
        let real = rustix::io::read(&end.real, &mut vec![0; len_bytes]);
        assert_eq!(real, self.world.read(&end.sim, len_bytes), "real read against the model's");
    }

    pub(crate) fn shutdown_write(&mut self, index: usize) {
        let Some(end) = self.ends[index].as_ref().filter(|end| end.kind == Kind::Socket) else {
            return;
        };
        rustix::net::shutdown(&end.real, Shutdown::Write).expect("the socket is connected");
        self.world.shutdown_write(&end.sim);
    }

    /// Deletes what is registered, as the contract wants it, and closes.
    pub(crate) fn close(&mut self, index: usize) {
        if self.ends[index].as_ref().is_some_and(|end| end.interest.is_some()) {
            self.delete(index);
        }
        self.bereaved = self.ends[index].take().and_then(|end| end.peer);
    }
}

type Verb =
    fn(&mut (dyn Poller + 'static), BorrowedFd<'_>, Token, Registration) -> Result<(), Error>;

fn outcome(result: &Result<(), Error>) -> Result<(), Option<i32>> {
    result.as_ref().copied().map_err(Error::raw_os_error)
}

/// Comparing.
impl Lockstep {
    /// Requires that both pollers report the same: level and oneshot exactly, and edge
    /// too where epoll itself is compared; other edges at least as the model reports them, and
    /// nothing that does not hold.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let expected = self.expected();
        let truth = look(&mut *self.truth, &mut self.events, Duration::ZERO);
        let truth: Found = truth.into_iter().collect();
        let mut step = Found::new();
        let started = Instant::now();
        let mut timeout = Duration::ZERO;
        loop {
            let found = look(&mut *self.real, &mut self.events, timeout);
            let verdict = match self.trigger {
                Trigger::Level => compare_level(&found, &expected),
                Trigger::Oneshot => compare_once(&found, &expected, &mut step),
                Trigger::Edge if self.real.caps().backend == Backend::Epoll => {
                    compare_once(&found, &expected, &mut step)
                }
                Trigger::Edge => self.compare_edge(&found, &expected, &truth, &mut step),
            };
            match verdict {
                Verdict::Alike => return self.await_close(),
                Verdict::NotYet(why) if started.elapsed() > PATIENCE => return Err(why),
                Verdict::NotYet(_) => timeout = RETRY,
                Verdict::Wrong(why) => return Err(why),
            }
        }
    }

    /// Waits until the end of the peer is real. A backend that holds files lets go of one only
    /// when the kernel has worked off the cancellation, which may be after the wait.
    fn await_close(&mut self) -> Result<(), String> {
        let peer = self.bereaved.take().and_then(|index| self.ends[index].as_ref());
        let Some(peer) = peer else { return Ok(()) };
        let timeout = Timespec::try_from(PATIENCE).expect("a small number of seconds");
        // With no condition asked for, poll(2) still ends for hang-ups and errors.
        let mut fds = [PollFd::new(&peer.real, PollFlags::empty())];
        match poll(&mut fds, Some(&timeout)) {
            Ok(1) => Ok(()),
            other => Err(format!("the peer of a closed end never hangs up: {other:?}")),
        }
    }

    /// What the model reports now, as the real backend can express it.
    fn expected(&mut self) -> Found {
        let found = look(&mut *self.model, &mut self.events, Duration::ZERO);
        let ends = self.ends.iter().flatten();
        let interests: BTreeMap<Token, Interest> =
            ends.filter_map(|end| Some((end.token, end.interest?))).collect();
        let caps = self.real.caps();
        let speak = |(token, readiness)| (token, as_spoken_by(caps, readiness, interests[&token]));
        found.into_iter().map(speak).filter(|(_, readiness)| !readiness.is_empty()).collect()
    }

    fn compare_edge(
        &mut self,
        found: &[(Token, Readiness)],
        expected: &Found,
        truth: &Found,
        step: &mut Found,
    ) -> Verdict {
        let seen_before = self.seen.clone();
        for (token, readiness) in found {
            let holds = truth.get(token).copied().unwrap_or_default();
            if readiness.is_empty() || !holds.contains(*readiness) {
                return Verdict::Wrong(format!("{token:?} said {readiness:?}, true: {holds:?}"));
            }
            *step.entry(*token).or_default() |= *readiness;
            *self.seen.entry(*token).or_default() |= *readiness;
        }
        for (token, seen) in &mut self.seen {
            *seen = common(*seen, truth.get(token).copied().unwrap_or_default());
        }
        let is_received = |(token, needed): (&Token, &Readiness)| {
            let was_reported = seen_before.get(token).copied().unwrap_or_default();
            // Epoll says again that a socket is writable when data arrives and priority is asked
            // for, because both call with one key. The check does not wait for that.
            let is_due = needed.is_readable() || !was_reported.contains(*needed);
            !is_due || (step.contains_key(token) && self.seen[token].contains(*needed))
        };
        if expected.iter().all(is_received) {
            return Verdict::Alike;
        }
        let seen = &self.seen;
        Verdict::NotYet(format!("edges {expected:?} due; received {step:?}, with before {seen:?}"))
    }
}

enum Verdict {
    Alike,
    NotYet(String),
    Wrong(String),
}

fn compare_level(found: &[(Token, Readiness)], expected: &Found) -> Verdict {
    let as_set: Found = found.iter().copied().collect();
    if as_set.len() != found.len() {
        return Verdict::Wrong(format!("a descriptor was reported twice: {found:?}"));
    }
    match as_set == *expected {
        true => Verdict::Alike,
        false => Verdict::NotYet(format!("found {as_set:?}, the model {expected:?}")),
    }
}

fn compare_once(found: &[(Token, Readiness)], expected: &Found, step: &mut Found) -> Verdict {
    for (token, readiness) in found {
        if step.insert(*token, *readiness).is_some() || expected.get(token) != Some(readiness) {
            return Verdict::Wrong(format!("{token:?} said {readiness:?}, model: {expected:?}"));
        }
    }
    match step == expected {
        true => Verdict::Alike,
        false => Verdict::NotYet(format!("found {step:?}, the model {expected:?}")),
    }
}

/// What one wait reports, in its order.
pub(crate) fn look(
    poller: &mut dyn Poller,
    events: &mut Events,
    timeout: Duration,
) -> Vec<(Token, Readiness)> {
    poller.wait(events, Some(timeout)).expect("waits do not fail here");
    events.iter().map(|event| (event.token, event.readiness)).collect()
}

/// Translates for backends that report hang-ups and errors as readable and writable.
fn as_spoken_by(caps: &Caps, readiness: Readiness, interest: Interest) -> Readiness {
    if caps.hangup {
        return readiness;
    }
    let mut spoken = common(
        readiness,
        Readiness::READABLE | Readiness::WRITABLE | Readiness::PRIORITY | Readiness::RDHUP,
    );
    if readiness.is_closed() {
        spoken |= Readiness::READABLE;
    }
    if readiness.contains(Readiness::ERROR) {
        spoken |= Readiness::WRITABLE;
    }
    spoken.visible_to(interest)
}

fn common(a: Readiness, b: Readiness) -> Readiness {
    let shared = BITS.into_iter().filter(|bit| a.contains(*bit) && b.contains(*bit));
    shared.fold(Readiness::NONE, |found, bit| found | bit)
}
