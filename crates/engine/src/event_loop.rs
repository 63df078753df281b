//! One loop of either kind, behind one type; and which sockets it adopts.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use pollux_poller::Waker;
use pollux_sys::process::ForkMark;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};

use crate::admission::LoopBalancer;
use crate::clock::Clock;
use crate::completion::CompletionLoop;
use crate::readiness::ReadinessLoop;
use crate::turn::{LoopError, TurnLoop};
use crate::{
    CloseCause, ConnectError, ConnectTo, ConnectionId, Counter, Counters, Driver, Limits, Listener,
    Moment, Now, Session, SharedDate, SourceId, Timer,
};

/// A loop that drives sessions; opened, used and dropped by one thread.
///
/// A program with one thread calls [`EventLoop::turn`] itself; [`crate::Group`] does it for many.
///
/// A server from its beginning to an end without loss, after a signal:
///
/// ```
/// use pollux_engine::{Actions, Driver, EventLoop, Limits, Listener, Session, Signal, Signals};
/// use std::ops::ControlFlow;
///
/// struct Echo;
///
/// impl Session for Echo {
///     /// What all connections of the loop share: here whether it is to end.
///     type Shared = bool;
///
///     fn accepted(_: &mut bool, _: &mut Actions<'_>) -> Self {
///         Self
///     }
///
///     fn on_bytes(&mut self, _: &mut bool, actions: &mut Actions<'_>, input: &[u8]) -> usize {
///         let len = input.len().min(actions.room());
///         actions.send(&input[..len]);
///         if len < input.len() {
///             actions.notify_when_sent(); // with the rest, once this has left
///         }
///         len
///     }
/// }
///
/// let driver: Driver = "epoll-et".parse()?; // or uring, poll, …
/// let mut event_loop = EventLoop::<Echo>::open(driver, false, Limits::default())?;
/// let listener = Listener::open(&"127.0.0.1:0".parse()?, false)?;
/// println!("listening on {}", listener.address());
/// event_loop.listen(listener, false);
/// event_loop.watch(Signals::catch(&[Signal::Terminate])?, |signals, is_ending, _now| {
///     *is_ending |= signals.take().is_some();
///     ControlFlow::Continue(())
/// })?;
/// # signal_hook::low_level::raise(Signal::Terminate.number())?;
/// while !*event_loop.shared() {
///     event_loop.turn(None)?;
/// }
/// event_loop.drain();
/// while event_loop.open_connections() > 0 {
///     event_loop.turn(None)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EventLoop<S: Session> {
    kind: Kind<S>,
    /// Of the process that opened it.
    mark: ForkMark,
}

enum Kind<S: Session> {
    Readiness(Box<ReadinessLoop<S>>),
    Completion(Box<CompletionLoop<S>>),
}

macro_rules! either {
    ($kind:expr, $each:ident => $body:expr) => {
        match $kind {
            Kind::Readiness($each) => $body,
            Kind::Completion($each) => $body,
        }
    };
}

impl<S: Session> EventLoop<S> {
    /// Opens a loop on `driver` with what its sessions share.
    ///
    /// # Errors
    /// [`LoopError`] says why the driver is not available here.
    pub fn open(driver: Driver, shared: S::Shared, limits: Limits) -> Result<Self, LoopError> {
        Self::open_with(driver, shared, limits, Arc::default(), Arc::default())
    }

    /// As [`EventLoop::open`], with a date and counters that others hold too.
    ///
    /// # Errors
    /// As [`EventLoop::open`].
    pub fn open_with(
        driver: Driver,
        shared: S::Shared,
        limits: Limits,
        date: Arc<SharedDate>,
        counters: Arc<Counters>,
    ) -> Result<Self, LoopError> {
        let clock = Clock::new(date);
        let mark = ForkMark::new().map_err(|cause| LoopError::System { call: "mmap", cause })?;
        let kind = match driver {
            Driver::Readiness(mechanism) => {
                let opened = ReadinessLoop::open(mechanism, shared, limits, clock, counters);
                Kind::Readiness(Box::new(opened.map_err(LoopError::of_poller)?))
            }
            Driver::Completion => {
                let opened = CompletionLoop::open(shared, limits, clock, counters);
                Kind::Completion(Box::new(opened.map_err(no_ring)?))
            }
        };
        let mut this = Self { kind, mark };
        let waker = this.waker();
        S::opened(this.shared_mut(), &waker);
        Ok(this)
    }

    /// Takes connections from `listener` from the next turn on. `exclusive` wakes one of the
    /// loops that share the listener instead of all, where the driver can do so.
    pub fn listen(&mut self, listener: Listener, exclusive: bool) {
        either!(&mut self.kind, each => each.listen(listener, exclusive));
    }

    /// Has `on_readable` called in each turn in which `source` is readable: a datagram socket, a
    /// [`Timer`](crate::Timer), a pidfd, [`Signals`](crate::Signals), any descriptor but a regular
    /// file. It has to be non-blocking, as timers and signals are by themselves; what it writes, such as
    /// the answer to a datagram, it writes in the closure. As long as it is readable it is called again, on every
    /// driver, so it reads until there is no more or leaves the rest to the next turn; it is watched
    /// until it answers [`ControlFlow::Break`], which closes what it owns.
    ///
    /// What is to be done with connections it leaves to [`Session::next_command`]: it runs within a turn,
    /// where the loop cannot be called. On `uring` a source costs a poll request for each readiness;
    /// datagrams are received by the program's own calls there too.
    ///
    /// ```
    /// use pollux_engine::{Driver, EventLoop, Limits, NoSession};
    /// use std::net::UdpSocket;
    /// use std::ops::ControlFlow;
    ///
    /// let mut event_loop = EventLoop::<NoSession<_>>::open(Driver::default(), 0, Limits::default())?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_nonblocking(true)?;
    /// let address = socket.local_addr()?;
    /// event_loop.watch(socket, |socket, bytes: &mut usize, _now| {
    ///     let mut datagram = [0; 1500];
    ///     while let Ok((len, _from)) = socket.recv_from(&mut datagram) {
    ///         *bytes += len;
    ///     }
    ///     ControlFlow::Continue(())
    /// })?;
    /// UdpSocket::bind("127.0.0.1:0")?.send_to(b"ping", address)?;
    /// while *event_loop.shared() == 0 {
    ///     event_loop.turn(None)?;
    /// }
    /// assert_eq!(*event_loop.shared(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for a regular file or directory; the loop watches 1024 sources already; what
    /// the mechanism says of the descriptor, such as a number beyond what select can watch.
    pub fn watch<T, F>(&mut self, source: T, on_readable: F) -> io::Result<SourceId>
    where
        T: AsFd + 'static,
        F: FnMut(&mut T, &mut S::Shared, Now) -> ControlFlow<()> + 'static,
    {
        either!(&mut self.kind, each => each.watch(source, on_readable))
    }

    /// Stops watching a source and closes what it owns; returns whether it was still watched.
    ///
    /// Does nothing in a child of the process that opened the loop (`fork(2)`).
    pub fn unwatch(&mut self, source: SourceId) -> bool {
        if !self.mark.is_here() {
            return false;
        }
        either!(&mut self.kind, each => each.unwatch(source))
    }

    /// Calls `then` once, in the first turn that begins `time` from now or later.
    ///
    /// # Errors
    /// As [`EventLoop::watch`]: each timer is a descriptor.
    pub fn after<F>(&mut self, time: Duration, then: F) -> io::Result<SourceId>
    where
        F: FnOnce(&mut S::Shared, Now) + 'static,
    {
        let mut then = Some(then);
        self.watch(Timer::after(time)?, move |timer, shared, now| {
            if timer.take() == 0 {
                return ControlFlow::Continue(());
            }
            if let Some(then) = then.take() {
                then(shared, now);
            }
            ControlFlow::Break(())
        })
    }

    /// Calls `each` once every `period`, until it answers [`ControlFlow::Break`]. Periods that
    /// pass within one turn are one call.
    ///
    /// # Errors
    /// As [`EventLoop::watch`]: each timer is a descriptor.
    ///
    /// # Panics
    /// When `period` is zero.
    pub fn every<F>(&mut self, period: Duration, mut each: F) -> io::Result<SourceId>
    where
        F: FnMut(&mut S::Shared, Now) -> ControlFlow<()> + 'static,
    {
        self.watch(Timer::every(period)?, move |timer, shared, now| match timer.take() {
            0 => ControlFlow::Continue(()),
            _ => each(shared, now),
        })
    }

    /// Starts a session on a connected stream socket of any family (TCP, unix), which has to be
    /// non-blocking. Of the session nothing is called before the next turn, but
    /// [`Session::on_shutdown`] on a loop that drains.
    ///
    /// # Errors
    /// [`AdoptError`] for any other descriptor, with it and the session, of which nothing was
    /// called.
    pub fn adopt(
        &mut self,
        socket: OwnedFd,
        session: S,
    ) -> Result<ConnectionId, (OwnedFd, S, AdoptError)> {
        if let Err(error) = check_adoptable(socket.as_fd()) {
            return Err((socket, session, error));
        }
        Ok(either!(&mut self.kind, each => each.adopt(socket, session)))
    }

    /// Opens a connection to a peer and starts `session` on it: [`Session::connected`] comes in
    /// a later turn, or [`Session::connect_failed`] and [`Session::closed`] do.
    ///
    /// The session's deadline is `deadline` from the beginning ([`Moment::NEVER`]: none;
    /// [`EventLoop::now`] is where to count from), so a connect has a time limit: the session aborts in [`Session::on_deadline`]. Without one the
    /// kernel gives up after some minutes. On a loop that drains, [`Session::on_shutdown`] is called
    /// before this returns. The socket is non-blocking, close-on-exec and has TCP_NODELAY.
    ///
    /// # Errors
    /// [`ConnectError`] for what shows at once, with the session, of which nothing was called.
    pub fn connect(
        &mut self,
        to: &ConnectTo,
        session: S,
        deadline: Moment,
    ) -> Result<ConnectionId, (S, ConnectError)> {
        either!(&mut self.kind, each => each.connect(to, session, deadline))
    }

    /// Starts a session on a connection that another thread accepted.
    pub(crate) fn admit(&mut self, socket: OwnedFd) {
        either!(&mut self.kind, each => each.admit_handed(socket));
    }

    /// Where accepted connections go instead: see [`LoopBalancer`].
    pub(crate) fn hand_out(&mut self, hand_out: LoopBalancer) {
        either!(&mut self.kind, each => each.state.hand_out(hand_out));
    }

    /// One turn: waits at most `timeout` (`None`: for ever) for something to do, and does it.
    /// Says whether a waker ended the wait.
    ///
    /// # Errors
    /// [`LoopError`] when the kernel refuses to wait, and in a child of the process that opened the loop (`fork(2)`): what waits
    /// is the parent's to take, and to submit.
    pub fn turn(&mut self, timeout: Option<Duration>) -> Result<bool, LoopError> {
        if !self.mark.is_here() {
            return Err(LoopError::of_poller(pollux_poller::Error::Inherited));
        }
        either!(&mut self.kind, each => each.turn(timeout))
    }

    /// A turn without its wait: asks for commands ([`Session::next_command`]) and calls the sessions that were woken, so
    /// that what a program does between two turns has its effect before the next wait.
    ///
    /// Does nothing in a child of the process that opened the loop (`fork(2)`).
    pub fn run_commands(&mut self) {
        if !self.mark.is_here() {
            return;
        }
        either!(&mut self.kind, each => each.run_commands_now());
    }

    /// For a program that waits in a loop of its own: the descriptor that becomes readable when a turn
    /// has something to do, and how long to wait for it at most. Then a turn with a timeout of zero is
    /// due. Asked before each wait, as it hands the kernel what changed. None on mechanisms without
    /// such a descriptor: all but epoll ([`Poller::fd`](pollux_poller::Poller::fd)).
    ///
    /// ```
    /// use pollux_engine::{Driver, EventLoop, Limits, NoSession};
    /// use pollux_poller::{Events, Interest, Mechanism, Registration, Token, Trigger};
    /// use std::time::Duration;
    ///
    /// let mut event_loop = EventLoop::<NoSession<_>>::open(Driver::default(), false, Limits::default())?;
    /// event_loop.after(Duration::from_millis(20), |has_rung, _now| *has_rung = true)?;
    ///
    /// let (mut own, mut events) = (Mechanism::Epoll.open()?, Events::with_capacity(8));
    /// let (fd, _) = event_loop.poll_fd().expect("the default is epoll");
    /// own.add(fd, Token::new(0, 0), Registration::new(Interest::READABLE, Trigger::Level))?;
    /// while !*event_loop.shared() {
    ///     let (_fd, at_most) = event_loop.poll_fd().expect("as before");
    ///     own.wait(&mut events, at_most)?;
    ///     event_loop.turn(Some(Duration::ZERO))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_fd(&mut self) -> Option<(BorrowedFd<'_>, Option<Duration>)> {
        let Kind::Readiness(each) = &mut self.kind else { return None };
        each.poller_fd()?;
        let (_, at_most) = each.begin_wait(None);
        each.poller_fd().map(|fd| (fd, at_most))
    }

    /// Calls `session` in the next turn; does nothing when it is closed, nor in a child of the process that opened the
    /// loop (`fork(2)`), which takes no turns.
    pub fn wake(&mut self, session: ConnectionId) {
        if !self.mark.is_here() {
            return;
        }
        either!(&mut self.kind, each => each.state.wakes.push(session));
    }

    /// Stops accepting and calls [`Session::on_shutdown`] once for every session, including those
    /// that begin later. Further calls do nothing.
    ///
    /// Does nothing in a child of the process that opened the loop (`fork(2)`): its connections are the parent's.
    pub fn drain(&mut self) {
        if !self.mark.is_here() {
            return;
        }
        either!(&mut self.kind, each => each.drain());
    }

    /// Closes everything that is still open; sessions are given `cause`.
    ///
    /// Does nothing in a child of the process that opened the loop (`fork(2)`): what is dropped there closes the child's
    /// descriptors, and the connections stay the parent's.
    pub fn close_all(&mut self, cause: CloseCause) {
        if !self.mark.is_here() {
            return;
        }
        either!(&mut self.kind, each => each.close_all(cause));
    }

    /// Whether new connections may still come, on a loop that drains too: the kernel may have
    /// some under way.
    pub(crate) fn is_listening(&self) -> bool {
        either!(&self.kind, each => each.is_listening())
    }

    /// Connections that are open.
    #[must_use]
    pub fn open_connections(&self) -> u32 {
        either!(&self.kind, each => each.state.open)
    }

    /// What the clocks said when the last turn began, or when the loop was opened.
    #[must_use]
    pub fn now(&self) -> Now {
        either!(&self.kind, each => each.state.clock.now())
    }

    /// What the sessions share.
    #[must_use]
    pub fn shared(&self) -> &S::Shared {
        either!(&self.kind, each => &each.state.shared)
    }

    /// What the sessions share, to be changed between two turns.
    pub fn shared_mut(&mut self) -> &mut S::Shared {
        either!(&mut self.kind, each => &mut each.state.shared)
    }

    /// The counters of this loop.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(self.counters_ref())
    }

    pub(crate) fn count_message(&self) {
        self.counters_ref().count(Counter::Messages);
    }

    fn counters_ref(&self) -> &Arc<Counters> {
        either!(&self.kind, each => &each.state.counters)
    }

    /// Ends the current or the next wait, from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        either!(&self.kind, each => each.waker())
    }

    /// The counters of the poller under a readiness loop.
    #[must_use]
    pub fn poller_counters(&self) -> Option<Arc<crate::PollerCounters>> {
        match &self.kind {
            Kind::Readiness(each) => Some(Arc::clone(each.poller_counters())),
            Kind::Completion(_) => None,
        }
    }

    /// What the mechanism notes about itself: flags and sizes that were granted.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        either!(&self.kind, each => each.notes())
    }

    /// Every descriptor of a readiness loop, as its table knows it, and every connection of a
    /// completion loop, one line each.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        either!(&self.kind, each => each.describe())
    }
}

/// Why a descriptor was not adopted.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdoptError {
    /// It is something else than a socket: a file, a pipe, a terminal.
    NotASocket,
    /// It keeps the borders of messages (SOCK_DGRAM, SOCK_SEQPACKET and others); a session's bytes
    /// have none.
    NotAStream,
    /// It takes connections: it belongs to [`EventLoop::listen`](crate::EventLoop::listen).
    Listens,
    /// Calls on it wait (O_NONBLOCK is not set), and the whole loop would wait with them.
    Blocks,
    /// The kernel does not say what it is.
    System {
        /// Name of the call.
        call: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::NotASocket => "the descriptor is not a socket",
            Self::NotAStream => "the socket sends messages",
            Self::Listens => "the socket listens",
            Self::Blocks => "the socket blocks",
            Self::System { call, .. } => return write!(f, "{call} on the descriptor failed"),
        };
        write!(f, "{what}; expected a connected stream socket with O_NONBLOCK")
    }
}

impl std::error::Error for AdoptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// With the kind of its cause; the error itself is inside.
impl From<AdoptError> for io::Error {
    fn from(error: AdoptError) -> Self {
        let kind = match &error {
            AdoptError::System { cause, .. } => cause.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Says whether sessions can run on `socket`, before one begins: the loops read and write a stream of bytes and never
/// block, and with anything else they would lose data silently (a datagram that does not fit is cut) or stand still.
/// Whether it has a peer is left to the loop: one that has gone meanwhile is reported to the session as always.
///
/// # Errors
/// [`AdoptError`] says what is wrong with it.
fn check_adoptable(socket: BorrowedFd<'_>) -> Result<(), AdoptError> {
    let failed = |call, errno: Errno| AdoptError::System { call, cause: errno.into() };
    match socket_type(socket) {
        Ok(SocketType::STREAM) => {}
        Ok(_) => return Err(AdoptError::NotAStream),
        Err(Errno::NOTSOCK) => return Err(AdoptError::NotASocket),
        Err(errno) => return Err(failed("getsockopt", errno)),
    }
    if socket_acceptconn(socket).map_err(|errno| failed("getsockopt", errno))? {
        return Err(AdoptError::Listens);
    }
    let flags = fcntl_getfl(socket).map_err(|errno| failed("fcntl", errno))?;
    if flags.contains(OFlags::NONBLOCK) { Ok(()) } else { Err(AdoptError::Blocks) }
}

fn no_ring(refused: pollux_sys::ring::RingUnavailable) -> LoopError {
    let mechanism = Driver::Completion.name();
    LoopError::Unavailable { mechanism, reason: refused.reason, cause: refused.cause }
}
