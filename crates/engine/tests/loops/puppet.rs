//! A loop that is turned by hand, and sessions that each test writes as a closure.
//!
//! What happens in which turn is then in the test's hand; nothing runs beside it.

use std::cell::RefCell;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Instant;

use pollux_engine::{
    Actions, CloseCause, ConnectionId, Counter, Driver, EventLoop, Limits, Listener, Session,
};

use crate::server::DEADLINE;

/// A call of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call<'a> {
    Accepted,
    Connected,
    ConnectFailed(ErrorKind),
    Bytes(&'a [u8]),
    End,
    Drained,
    Deadline,
    Wake,
    Drain,
    Closed(CloseCause),
}

type Play = dyn FnMut(Call<'_>, Option<&mut Actions<'_>>) -> usize;

/// A session that does what its closure says. What the closure returns counts for bytes only.
pub(crate) struct Puppet(Box<Play>);

impl Puppet {
    pub(crate) fn new(mut play: impl FnMut(Call<'_>, &mut Actions<'_>) -> usize + 'static) -> Self {
        Self(Box::new(move |call, actions| actions.map_or(0, |actions| play(call, actions))))
    }

    /// Called for everything, also for what leaves nothing to do.
    pub(crate) fn whole(
        play: impl FnMut(Call<'_>, Option<&mut Actions<'_>>) -> usize + 'static,
    ) -> Self {
        Self(Box::new(play))
    }

    /// As `new`, and called at the end as well.
    pub(crate) fn watched(
        causes: &Causes,
        mut play: impl FnMut(Call<'_>, &mut Actions<'_>) -> usize + 'static,
    ) -> Self {
        let causes = Rc::clone(causes);
        Self(Box::new(move |call, actions| match (call, actions) {
            (Call::Closed(cause), _) => {
                causes.borrow_mut().push(cause);
                0
            }
            (call, Some(actions)) => play(call, actions),
            (_, None) => 0,
        }))
    }
}

/// Why sessions ended, in their order.
pub(crate) type Causes = Rc<RefCell<Vec<CloseCause>>>;

/// Makes the session of the next connection that is accepted.
pub(crate) type Maker = Box<dyn FnMut() -> Puppet>;

impl Session for Puppet {
    type Shared = Maker;

    fn accepted(shared: &mut Maker, actions: &mut Actions<'_>) -> Self {
        let mut this = shared();
        (this.0)(Call::Accepted, Some(actions));
        this
    }

    fn connected(&mut self, _: &mut Maker, actions: &mut Actions<'_>) {
        (self.0)(Call::Connected, Some(actions));
    }

    fn connect_failed(&mut self, _: &mut Maker, error: std::io::Error) {
        (self.0)(Call::ConnectFailed(error.kind()), None);
    }

    fn on_bytes(&mut self, _: &mut Maker, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        (self.0)(Call::Bytes(input), Some(actions))
    }

    fn on_end(&mut self, _: &mut Maker, actions: &mut Actions<'_>) {
        (self.0)(Call::End, Some(actions));
    }

    fn on_output_sent(&mut self, _: &mut Maker, actions: &mut Actions<'_>) {
        (self.0)(Call::Drained, Some(actions));
    }

    fn on_deadline(&mut self, _: &mut Maker, actions: &mut Actions<'_>) {
        (self.0)(Call::Deadline, Some(actions));
    }

    fn on_wake(&mut self, _: &mut Maker, actions: &mut Actions<'_>) {
        (self.0)(Call::Wake, Some(actions));
    }

    fn on_shutdown(&mut self, _: &mut Maker, actions: &mut Actions<'_>) {
        (self.0)(Call::Drain, Some(actions));
    }

    fn closed(mut self, _: &mut Maker, cause: CloseCause) {
        (self.0)(Call::Closed(cause), None);
    }
}

/// A loop in the thread of the test.
pub(crate) struct Stage {
    pub(crate) driver: Driver,
    pub(crate) event_loop: EventLoop<Puppet>,
}

impl Stage {
    pub(crate) fn open(driver: Driver, limits: Limits) -> Self {
        Self::accepting(driver, limits, || panic!("this stage has no listener"))
    }

    pub(crate) fn accepting(
        driver: Driver,
        mut limits: Limits,
        maker: impl FnMut() -> Puppet + 'static,
    ) -> Self {
        if limits.write_timeout == Limits::default().write_timeout {
            // A peer that the machine keeps waiting is not a slow one.
            limits.write_timeout = 2 * DEADLINE;
        }
        let maker: Maker = Box::new(maker);
        let event_loop = EventLoop::open(driver, maker, limits).expect("the driver is there");
        Self { driver, event_loop }
    }

    /// Takes connections at a port that the kernel chooses; its address.
    pub(crate) fn listen(&mut self) -> String {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(&any, false).expect("opened");
        let address = listener.address().to_string();
        self.event_loop.listen(listener, false);
        address
    }

    /// A connection of `session`, and its peer, which does not block.
    pub(crate) fn adopt(&mut self, session: Puppet) -> (ConnectionId, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("two descriptors");
        ours.set_nonblocking(true).expect("set");
        theirs.set_nonblocking(true).expect("set");
        (self.adopt_socket(ours.into(), session), theirs)
    }

    /// A connection of `session` on a socket that was opened elsewhere.
    pub(crate) fn adopt_socket(&mut self, ours: OwnedFd, session: Puppet) -> ConnectionId {
        let adopted = self.event_loop.adopt(ours, session).map_err(|(.., error)| error);
        adopted.expect("a stream that does not block")
    }

    /// One turn that does not wait.
    pub(crate) fn turn(&mut self) {
        self.event_loop.turn(Some(std::time::Duration::ZERO)).expect("turned");
    }

    /// Turns until `is_done`; fails loudly after the deadline.
    pub(crate) fn turn_until(&mut self, what: &str, mut is_done: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !is_done(self) {
            assert!(
                Instant::now() < end,
                "{}: {what} did not happen in time: {:#?}",
                self.driver,
                self.event_loop.describe()
            );
            let pause = std::time::Duration::from_millis(1);
            self.event_loop.turn(Some(pause)).expect("turned");
        }
    }

    /// Turns and reads from `peer` until `len` bytes have come.
    pub(crate) fn read(&mut self, peer: &mut UnixStream, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.turn_until(&format!("{len} bytes"), |_| {
            take(peer, &mut bytes, len);
            bytes.len() >= len
        });
        bytes
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.event_loop.counters().value(counter)
    }

    /// Asserts that the loop has nothing to do: it sleeps as long as it may.
    pub(crate) fn assert_idle(&mut self) {
        const NAP: std::time::Duration = std::time::Duration::from_millis(5);
        (0..5).for_each(|_| self.turn());
        let begin = Instant::now();
        for _ in 0..10 {
            self.event_loop.turn(Some(NAP)).expect("turned");
        }
        let slept = begin.elapsed();
        assert!(slept >= 8 * NAP, "{}: ten naps took {slept:?}", self.driver);
    }

    /// Every connection that began is accounted for.
    pub(crate) fn assert_balanced(&self) {
        let counters = self.event_loop.counters();
        let begun = [Counter::Accepted, Counter::Adopted, Counter::Connects];
        let begun: u64 = begun.iter().map(|counter| counters.value(*counter)).sum();
        let gone = counters.closed_total() + counters.value(Counter::HandedOut);
        let open = u64::from(self.event_loop.open_connections());
        assert_eq!(begun, gone + open, "{}", self.driver);
    }
}

/// Appends what `peer` has, until `bytes` are `len`; says whether the peer's stream has ended.
pub(crate) fn take(peer: &mut impl Read, bytes: &mut Vec<u8>, len: usize) -> bool {
    let mut buffer = [0; 65_536];
    while bytes.len() < len {
        let most = buffer.len().min(len - bytes.len());
        match peer.read(&mut buffer[..most]) {
            Ok(0) => return true,
            Ok(taken) => bytes.extend_from_slice(&buffer[..taken]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
            Err(error) => panic!("the peer reads: {error}"),
        }
    }
    false
}
