//! Any sequence of operations on real pipes and sockets gives the same readiness on every
//! backend as on the simulated one, for each trigger that the backend serves.
//!
//! Every operation is done on both sides and must end alike, down to byte counts and errnos; [`Lockstep::check`]
//! then requires that both pollers report the same. `PROPTEST_CASES` sets the number of cases for each backend and
//! trigger. A backend that the machine forbids is skipped with its reason, unless `POLLUX_FORBID_SKIP=1`.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use pollux_conformance::sim::{SimFd, World};
use pollux_poller::{
    Backend, Caps, Error, Events, Interest, Mechanism, Poller, Readiness, Registration, Token,
    Trigger,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;

const CASES: u32 = 64;
const OPERATIONS_MAX: usize = 40;
/// Two pipes and two socket pairs with two ends each, and an eventfd.
const ENDS: usize = 9;
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

type Found = BTreeMap<Token, Readiness>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pipe,
    Socket,
    /// Every write adds one, whatever its length was meant to be.
    Eventfd,
}

/// One end of a pipe, socket pair or eventfd, twice.
struct End {
    real: OwnedFd,
    sim: SimFd,
    token: Token,
    kind: Kind,
    peer: Option<usize>,
    interest: Option<Interest>,
}

struct Lockstep {
    real: Box<dyn Poller>,
    model: Box<dyn Poller>,
    world: World,
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
    fn new(real: Box<dyn Poller>, trigger: Trigger) -> Self {
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

    fn pipe(&mut self) -> [usize; 2] {
        let flags = PipeFlags::NONBLOCK | PipeFlags::CLOEXEC;
        let (reader, writer) = rustix::pipe::pipe_with(flags).expect("descriptors are left");
        let (sim_reader, sim_writer) = self.world.pipe();
        self.enter_pair((reader, sim_reader), (writer, sim_writer), Kind::Pipe)
    }

    fn socketpair(&mut self) -> [usize; 2] {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (a, b) = pair.expect("descriptors are left");
        let (sim_a, sim_b) = self.world.socketpair();
        self.enter_pair((a, sim_a), (b, sim_b), Kind::Socket)
    }

    fn eventfd(&mut self) -> usize {
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
    fn add(&mut self, index: usize, interest: Interest) {
        self.register(index, Registration::new(interest, self.trigger), <dyn Poller>::add);
    }

    fn modify(&mut self, index: usize, interest: Interest) {
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

    fn delete(&mut self, index: usize) {
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

    fn write(&mut self, index: usize, len_bytes: usize) {
        let Some(end) = &self.ends[index] else { return };
        let bytes = vec![0; len_bytes];
        let (real, len_bytes) = match end.kind {
            Kind::Pipe => (rustix::io::write(&end.real, &bytes), len_bytes),
            Kind::Socket => (rustix::net::send(&end.real, &bytes, SendFlags::NOSIGNAL), len_bytes),
            Kind::Eventfd => (rustix::io::write(&end.real, &1u64.to_ne_bytes()), 8),
        };
        assert_eq!(real, self.world.write(&end.sim, len_bytes), "real write against the model's");
    }

    fn read(&mut self, index: usize, len_bytes: usize) {
        let Some(end) = &self.ends[index] else { return };
        let real = rustix::io::read(&end.real, &mut vec![0; len_bytes]);
        assert_eq!(real, self.world.read(&end.sim, len_bytes), "real read against the model's");
    }

    fn shutdown_write(&mut self, index: usize) {
        let Some(end) = self.ends[index].as_ref().filter(|end| end.kind == Kind::Socket) else {
            return;
        };
        rustix::net::shutdown(&end.real, Shutdown::Write).expect("the socket is connected");
        self.world.shutdown_write(&end.sim);
    }

    /// Deletes what is registered, as the contract wants it, and closes.
    fn close(&mut self, index: usize) {
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
    fn check(&mut self) -> Result<(), String> {
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
    if as_set == *expected {
        Verdict::Alike
    } else {
        Verdict::NotYet(format!("found {as_set:?}, the model {expected:?}"))
    }
}

fn compare_once(found: &[(Token, Readiness)], expected: &Found, step: &mut Found) -> Verdict {
    for (token, readiness) in found {
        if step.insert(*token, *readiness).is_some() || expected.get(token) != Some(readiness) {
            return Verdict::Wrong(format!("{token:?} said {readiness:?}, model: {expected:?}"));
        }
    }
    if step == expected {
        Verdict::Alike
    } else {
        Verdict::NotYet(format!("found {step:?}, the model {expected:?}"))
    }
}

/// What one wait reports, in its order.
fn look(
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

#[derive(Clone, Copy, Debug)]
enum Operation {
    Add(usize, Interest),
    Modify(usize, Interest),
    Delete(usize),
    Write(usize, usize),
    Read(usize, usize),
    ShutdownWrite(usize),
    Close(usize),
}

fn operation(has_rdhup: bool) -> impl Strategy<Value = Operation> {
    let end = 0..ENDS;
    // Around the borders of pages and buffers, and more than fits.
    let len = select(vec![1, 300, 4095, 4096, 5000, 40_000, 300_000]);
    prop_oneof![
        4 => (end.clone(), interest(has_rdhup)).prop_map(|(end, what)| Operation::Add(end, what)),
        2 => (end.clone(), interest(has_rdhup)).prop_map(|(end, what)| Operation::Modify(end, what)),
        1 => end.clone().prop_map(Operation::Delete),
        6 => (end.clone(), len.clone()).prop_map(|(end, len)| Operation::Write(end, len)),
        6 => (end.clone(), len).prop_map(|(end, len)| Operation::Read(end, len)),
        1 => end.clone().prop_map(Operation::ShutdownWrite),
        1 => end.prop_map(Operation::Close),
    ]
}

fn interest(has_rdhup: bool) -> impl Strategy<Value = Interest> {
    (any::<[bool; 3]>(), prop::bool::weighted(if has_rdhup { 0.5 } else { 0.0 })).prop_map(
        |([readable, writable, priority], rdhup)| {
            let bits = [
                (readable, Interest::READABLE),
                (writable, Interest::WRITABLE),
                (priority, Interest::PRIORITY),
                (rdhup, Interest::RDHUP),
            ];
            let wanted = bits.into_iter().filter(|(is_wanted, _)| *is_wanted);
            wanted.fold(Interest::NONE, |all, (_, bit)| all | bit)
        },
    )
}

fn apply(both: &mut Lockstep, operation: Operation) {
    match operation {
        Operation::Add(end, interest) => both.add(end, interest),
        Operation::Modify(end, interest) => both.modify(end, interest),
        Operation::Delete(end) => both.delete(end),
        Operation::Write(end, len_bytes) => both.write(end, len_bytes),
        Operation::Read(end, len_bytes) => both.read(end, len_bytes),
        Operation::ShutdownWrite(end) => both.shutdown_write(end),
        Operation::Close(end) => both.close(end),
    }
}

fn run(mechanism: Mechanism, trigger: Trigger, script: &[Operation]) -> Result<(), TestCaseError> {
    let poller = mechanism.open().expect("it could be opened before");
    let mut both = Lockstep::new(poller, trigger);
    both.pipe();
    both.pipe();
    both.socketpair();
    both.socketpair();
    both.eventfd();
    for (step, operation) in script.iter().enumerate() {
        apply(&mut both, *operation);
        both.check().map_err(|why| {
            TestCaseError::fail(format!("after step {step}, {operation:?}: {why}"))
        })?;
    }
    Ok(())
}

/// Scripts that random choice rarely finds; each once showed a difference.
fn rare_scripts() -> Vec<Vec<Operation>> {
    use Operation::{Add, Read, Write};
    let write = Interest::WRITABLE;
    // Exactly a quarter of the send buffer is charged: not writable any more.
    let quarter = [300, 4095, 40_000, 1, 4095].map(|len| Write(5, len));
    vec![
        quarter.into_iter().chain([Add(5, write)]).collect(),
        // A buffer comes back to a sender that has another one under way: an edge.
        vec![Write(4, 300), Write(4, 300), Add(4, write), Read(5, 300)],
    ]
}

/// One mechanism for each backend, opened once to see whether the machine allows it.
fn backends() -> Vec<(Mechanism, Caps)> {
    let by_backend: BTreeMap<String, Mechanism> = Mechanism::ALL
        .into_iter()
        .map(|mechanism| (mechanism.backend().to_string(), mechanism))
        .collect();
    by_backend.into_values().filter_map(open_or_skip).collect()
}

fn open_or_skip(mechanism: Mechanism) -> Option<(Mechanism, Caps)> {
    match mechanism.open() {
        Ok(poller) => Some((mechanism, poller.caps().clone())),
        Err(reason) => {
            pollux_testing::skip(format_args!("{}: {reason}", mechanism.backend()));
            None
        }
    }
}

fn every_backend_agrees_under(trigger: Trigger) {
    let backends = backends();
    assert!(backends.iter().any(|(_, caps)| caps.backend == Backend::Epoll), "epoll is a must");
    for (mechanism, caps) in backends.into_iter().filter(|(_, caps)| caps.serves(trigger)) {
        for script in rare_scripts() {
            run(mechanism, trigger, &script).expect("a backend agrees with the model");
        }
        let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
        let scripts = prop::collection::vec(operation(caps.rdhup), 1..OPERATIONS_MAX);
        let outcome =
            TestRunner::new(config).run(&scripts, |script| run(mechanism, trigger, &script));
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(why, script)) => {
                panic!("{}, {trigger:?}: {why}\nshrunk script: {script:#?}", caps.backend)
            }
            Err(other) => panic!("{}, {trigger:?}: {other}", caps.backend),
        }
    }
}

/// `PROPTEST_CASES`, or our own default, which is smaller than proptest's.
fn cases() -> u32 {
    let wanted = std::env::var("PROPTEST_CASES").ok();
    wanted.map_or(CASES, |count| count.parse().expect("PROPTEST_CASES is a number"))
}

#[test]
fn every_backend_agrees_with_the_model_under_level_trigger() {
    every_backend_agrees_under(Trigger::Level);
}

#[test]
fn every_backend_agrees_with_the_model_under_edge_trigger() {
    every_backend_agrees_under(Trigger::Edge);
}

#[test]
fn every_backend_agrees_with_the_model_under_oneshot_trigger() {
    every_backend_agrees_under(Trigger::Oneshot);
}
