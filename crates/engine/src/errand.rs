//! What sessions leave to their loop, because no call of theirs can do it.
//!
//! A session never opens a connection itself, and [`Session::closed`] and
//! [`Session::connect_failed`](crate::Session::connect_failed) have no
//! [`Actions`](crate::Actions). What is to follow is kept in what the sessions share, and the loop
//! asks for it, before it waits and before it calls the sessions that were woken.

use std::io;

use crate::{ConnectError, ConnectTo, ConnectionId, Moment, Session};

/// A thing that the loop does for its sessions.
#[derive(Debug)]
pub enum Errand<S> {
    /// Call [`Session::on_wake`] of that session; nothing happens when it is gone.
    Wake(ConnectionId),
    /// Open a connection, as [`EventLoop::connect`](crate::EventLoop::connect) does. What fails at
    /// once is told to the session like what fails later, by `connect_failed` and `closed`.
    Connect {
        /// Where to.
        to: ConnectTo,
        /// What runs on it.
        session: S,
        /// The session's deadline until it sets another.
        deadline: Moment,
    },
}

/// Tells a session of a connect that failed before there was a connection.
pub(crate) fn refused<S: Session>(shared: &mut S::Shared, mut session: S, error: ConnectError) {
    let error = match error {
        ConnectError::System { cause, .. } => cause,
        full @ ConnectError::LoopFull { .. } => io::Error::other(full),
    };
    session.connect_failed(shared, error);
    session.closed(shared, crate::CloseCause::ConnectFailed);
}
