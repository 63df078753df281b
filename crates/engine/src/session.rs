//! The contract between a protocol and the loops.

use std::marker::PhantomData;
use std::sync::Arc;
use std::{fmt, io};

use pollux_poller::{Token, Waker};

use crate::{
    AcceptedSocket, Actions, CloseCause, ConnectError, ConnectTo, Moment, Now, SharedSocket,
};

/// Names one connection of one loop; never used again for another one within 2^24 reuses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) Token);

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.slot(), self.0.generation())
    }
}

/// A protocol's state for one connection.
///
/// A protocol implements [`Session`] once and runs on every driver. The loop calls; the session
/// never blocks, never reads a clock and keeps all its state in itself and in what the sessions
/// of one loop share.
///
/// ```text
///  connected
///      or
///  accepted ──► on_bytes* ──► on_end ──► closed
///                  │  ▲
///      notify_when_sent  ▼  │ output has left
///               on_output_sent            on_deadline, on_wake, on_shutdown: at any time between,
///                                     and while a connection to a peer is not there yet
/// ```
///
/// A session that was given to [`EventLoop::connect`](crate::EventLoop::connect) begins with
/// `connected`, or ends with `connect_failed` and `closed`.
///
/// # Rules
/// * No call comes while output of an earlier one waits for the peer, but [`Session::on_wake`],
///   [`Session::on_shutdown`] and [`Session::on_deadline`]; what those send goes behind it. To a session that reads on
///   ([`Actions::read_on`]) its input and the end of it come as well; what it leaves unused then comes again with more, or
///   when the output has left.
/// * Before a connection to a peer is established, the same three may be called; their output
///   is sent once it is established, and [`Actions::close`] and [`Actions::linger`] do not wait for it.
/// * At least [`Actions::ROOM_MIN`] bytes of output fit into each call.
/// * After [`Actions::close`], [`Actions::linger`] or [`Actions::abort`] only
///   [`Session::closed`] is called.
pub trait Session: Sized {
    /// What all sessions of one loop share: configuration, date, log, counters.
    type Shared;

    /// Called once, in the loop's thread, before its first turn: `waker` ends a wait of this loop from
    /// any thread, and the loop then calls [`Session::next_command`].
    fn opened(shared: &mut Self::Shared, waker: &Waker) {
        let _ = (shared, waker);
    }

    /// Called before the sessions of a turn are called.
    fn begin_turn(shared: &mut Self::Shared, now: Now) {
        let _ = (shared, now);
    }

    /// Called after the sessions of a turn were called, before the loop waits.
    fn end_turn(shared: &mut Self::Shared) {
        let _ = shared;
    }

    /// The next command of this loop's sessions; called until it returns `None`. A connection opened by
    /// a command is established, or fails, in a later turn.
    fn next_command(shared: &mut Self::Shared) -> Option<Command<Self>> {
        let _ = shared;
        None
    }

    /// When the loop has to call [`Session::next_command`] at the latest, though nothing else happens.
    fn next_command_at(shared: &Self::Shared) -> Moment {
        let _ = shared;
        Moment::NEVER
    }

    /// Many connections have left, or hold less, and the loop is about to give free memory back to the kernel: what is
    /// kept for reuse, and is not in use, is to be dropped. Called every two seconds at most.
    fn release_memory(shared: &mut Self::Shared) {
        let _ = shared;
    }

    /// How many connections hold memory that they give back when they are idle, though they stay: when many have done so, the
    /// loop gives free memory back to the kernel. Asked once in each turn.
    fn awake(shared: &Self::Shared) -> u32 {
        let _ = shared;
        0
    }

    /// A connection was accepted; sending here is allowed.
    fn accepted(shared: &mut Self::Shared, actions: &mut Actions<'_>) -> Self;

    /// The connection that [`EventLoop::connect`](crate::EventLoop::connect) began is there, or one
    /// that was adopted or taken over ([`Command::Adopt`], [`Command::TakeOver`]); sending here is allowed. The
    /// deadline of the command is still set.
    fn connected(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>) {
        let _ = (shared, actions);
    }

    /// The connection was not established: refused, unreachable, timed out, or reset before the
    /// loop saw it. [`Session::closed`] follows, with [`CloseCause::ConnectFailed`].
    fn connect_failed(&mut self, shared: &mut Self::Shared, error: io::Error) {
        let _ = (shared, error);
    }

    /// Bytes arrived. Returns how many were consumed from the front; the rest is passed again,
    /// followed by what arrives next. Never called with an empty slice, nor while input is paused.
    ///
    /// A session that stops only because its output is full calls [`Actions::notify_when_sent`].
    fn on_bytes(
        &mut self,
        shared: &mut Self::Shared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize;

    /// The socket of a session that leaves its input in the kernel is readable: see
    /// [`Actions::leave_input`]. It takes some of it ([`Actions::splice_in`]), pauses, or has it come by
    /// `on_bytes` ([`Actions::take_input`]), which is what this does.
    fn on_readable(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>) {
        let _ = shared;
        actions.take_input();
    }

    /// The peer will send no more; what `on_bytes` left unused stays unused. Closes unless the session
    /// says otherwise: output that waits leaves first.
    fn on_end(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>) {
        let _ = shared;
        actions.close();
    }

    /// All output has left, after [`Actions::notify_when_sent`] was called.
    fn on_output_sent(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>) {
        let _ = (shared, actions);
    }

    /// The deadline that was set has come; it is no longer set. Closes unless the session says
    /// otherwise.
    fn on_deadline(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>) {
        let _ = shared;
        actions.close();
    }

    /// Another session of this loop called [`Actions::wake`]; several wakes may be one.
    fn on_wake(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>) {
        let _ = (shared, actions);
    }

    /// The loop drains: no new connection comes, this one should end as soon as it can do so
    /// without loss. Called once; connections that are open at the drain deadline are cut. Closes unless
    /// the session says otherwise: without loss where all input was used ([`Actions::close`]).
    fn on_shutdown(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>) {
        let _ = shared;
        actions.close();
    }

    /// So many bytes that the session has sent were not handed to the kernel, and will not be: [`Session::closed`]
    /// follows at once. Not called where there are none.
    fn output_lost(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// The connection is over; nothing can be sent any more.
    fn closed(self, shared: &mut Self::Shared, cause: CloseCause) {
        let _ = (shared, cause);
    }
}

/// The session type of a loop that only runs timers, sources and messages; `T` is what their
/// callbacks share. A connection that such a loop accepts is closed at once.
pub struct NoSession<T = ()>(PhantomData<fn() -> T>);

impl<T> Default for NoSession<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T> fmt::Debug for NoSession<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoSession")
    }
}

impl<T> Session for NoSession<T> {
    type Shared = T;

    fn accepted(_: &mut T, actions: &mut Actions<'_>) -> Self {
        actions.close();
        Self::default()
    }

    fn on_bytes(&mut self, _: &mut T, _: &mut Actions<'_>, input: &[u8]) -> usize {
        input.len()
    }
}

/// A request of a session to its loop, returned by [`Session::next_command`].
///
/// A session never opens a connection itself, and [`Session::closed`] and
/// [`Session::connect_failed`](crate::Session::connect_failed) have no
/// [`Actions`](crate::Actions). What is to follow is kept in what the sessions share, and the loop
/// takes it by [`Session::next_command`], before it waits and before it calls the sessions that were woken.
#[derive(Debug)]
pub enum Command<S> {
    /// Call [`Session::on_wake`] of that session; nothing happens when it is gone.
    Wake(ConnectionId),
    /// Open a connection, as [`EventLoop::connect`](crate::EventLoop::connect) does. What fails at
    /// once is reported to the session like what fails later, by `connect_failed` and `closed`.
    Connect {
        /// Where to.
        to: ConnectTo,
        /// What runs on it.
        session: S,
        /// The session's deadline until it sets another.
        deadline: Moment,
    },
    /// Run a connection that [`Listener::accept`](crate::Listener::accept) gave: [`Session::connected`] follows at
    /// once, and what the peer has sent already comes before the next command where the driver can look for it.
    Adopt {
        /// What was accepted.
        accepted: AcceptedSocket,
        /// What runs on it.
        session: S,
    },
    /// Run a connection that another loop had and that was taken for this one
    /// ([`SharedSocket::take`], [`SharedSocket::receive`]): [`Session::connected`] follows in this turn. When something lies
    /// unread in the socket, its peer has ended, or no descriptor is left, the connection is closed and
    /// [`Session::closed`] is all that the session is notified of.
    ///
    /// On readiness loops only.
    TakeOver {
        /// What was taken.
        socket: Arc<SharedSocket>,
        /// The number of this loop.
        owner: u32,
        /// What runs on it.
        session: S,
        /// The session's deadline until it sets another.
        deadline: Moment,
    },
    /// Continue a connection of this loop that another one had taken over and that was taken back
    /// before this loop let go of it: as with `TakeOver`, [`Session::connected`] or
    /// [`Session::closed`] follows. Nothing happens when it is gone.
    TakeBack(ConnectionId),
}

impl<S> Command<S> {
    /// The same command with the session that `wrap` makes of its own, if it has one: for a protocol whose
    /// sessions are a part of another's.
    pub fn map<T>(self, wrap: impl FnOnce(S) -> T) -> Command<T> {
        match self {
            Self::Wake(id) => Command::Wake(id),
            Self::Connect { to, session, deadline } => {
                Command::Connect { to, session: wrap(session), deadline }
            }
            Self::Adopt { accepted, session } => {
                Command::Adopt { accepted, session: wrap(session) }
            }
            Self::TakeOver { socket, owner, session, deadline } => {
                Command::TakeOver { socket, owner, session: wrap(session), deadline }
            }
            Self::TakeBack(id) => Command::TakeBack(id),
        }
    }
}

/// Notifies a session of a connect that failed before there was a connection.
pub(crate) fn refused<S: Session>(shared: &mut S::Shared, mut session: S, error: ConnectError) {
    let error = match error {
        ConnectError::System { cause, .. } => cause,
        full @ ConnectError::LoopFull { .. } => io::Error::other(full),
    };
    session.connect_failed(shared, error);
    session.closed(shared, CloseCause::ConnectFailed);
}
