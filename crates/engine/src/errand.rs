//! What sessions leave to their loop, because no call of theirs can do it.
//!
//! A session never opens a connection itself, and [`Session::closed`] and
//! [`Session::connect_failed`](crate::Session::connect_failed) have no
//! [`Actions`](crate::Actions). What is to follow is kept in what the sessions share, and the loop
//! asks for it, before it waits and before it calls the sessions that were woken.

use std::io;
use std::sync::Arc;

use crate::{ConnectError, ConnectTo, ConnectionId, Moment, Session, SharedSocket};

/// A thing that the loop does for its sessions.
#[derive(Debug)]
pub enum Errand<S> {
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

/// Notifies a session of a connect that failed before there was a connection.
pub(crate) fn refused<S: Session>(shared: &mut S::Shared, mut session: S, error: ConnectError) {
    let error = match error {
        ConnectError::System { cause, .. } => cause,
        full @ ConnectError::LoopFull { .. } => io::Error::other(full),
    };
    session.connect_failed(shared, error);
    session.closed(shared, crate::CloseCause::ConnectFailed);
}
