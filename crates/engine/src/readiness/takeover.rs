//! How the readiness loop takes connections over and loses them; `../takeover.rs` has the protocol.
//!
//! A connection that was lost stays registered until something happens on it here. Then the event is
//! dropped, and the registration goes with the next update batch: threads often lose a connection and
//! take it back within a turn, which costs no call at all.

use std::os::fd::{AsFd, BorrowedFd};

use pollux_poller::Token;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use super::{ReadinessLoop, socket};
use crate::actions::Sharing;
use crate::conversation::{Conversation, Occasion, Progress};
use crate::{Claim, CloseCause, ConnectionId, Counter, Moment, Session};

impl<S: Session> ReadinessLoop<S> {
    /// Whether this loop may act on the connection.
    #[inline]
    pub(super) fn has_hold(&mut self, token: Token) -> bool {
        self.claim(token) != Claim::Lost
    }

    /// As `has_hold`, where the session may end up not being called: one that had put the connection
    /// down finds out by a wake, and puts it down again.
    #[inline]
    pub(super) fn has_hold_for_event(&mut self, token: Token) -> bool {
        let claim = self.claim(token);
        if claim == Claim::Regained {
            self.wakes.push(ConnectionId(token));
        }
        claim != Claim::Lost
    }

    #[inline]
    fn claim(&mut self, token: Token) -> Claim {
        let connection = self.connections.get(token.slot() as usize).and_then(Option::as_ref);
        let sharing = connection.and_then(|connection| connection.conversation.sharing());
        let claim = sharing.map_or(Claim::Held, |sharing| sharing.socket.claim(sharing.holder));
        if claim == Claim::Lost {
            self.counters.count(Counter::EventsLost);
            self.lost.push(ConnectionId(token));
        }
        claim
    }

    /// Lets go of connections that other loops have, and that were not taken back meanwhile.
    pub(super) fn release_lost(&mut self) {
        while let Some(ConnectionId(token)) = self.lost.pop() {
            let sharing = self.connections[token.slot() as usize]
                .as_ref()
                .filter(|connection| connection.token == token)
                .and_then(|connection| connection.conversation.sharing());
            if sharing.is_some_and(|sharing| !sharing.socket.is_with(sharing.holder)) {
                self.close(token, CloseCause::TakenOver);
            }
        }
    }

    /// Gives the descriptor of a connection up. One that others know too is ended for all of them when
    /// this loop holds it, and lives on elsewhere when it does not.
    pub(super) fn part(
        &mut self,
        token: Token,
        sharing: Option<&Sharing>,
        cause: CloseCause,
    ) -> CloseCause {
        let Some(Sharing { socket: shared, holder }) = sharing else {
            drop(self.table.remove(token, &mut *self.poller));
            return cause;
        };
        let is_ours = shared.claim(*holder) != Claim::Lost;
        if is_ours {
            // Others have duplicates: only this tells the peer, and them.
            let _ = shutdown(socket(&self.table, token), Shutdown::Both);
        }
        drop(self.table.hand_over(token, &mut *self.poller));
        if is_ours { cause } else { CloseCause::TakenOver }
    }

    /// Starts a session on a connection that was taken from another loop.
    pub(super) fn take_over(&mut self, sharing: Sharing, session: S, deadline: Moment) {
        let socket = sharing.socket.socket().as_fd();
        let duplicate = if is_quiet(socket) { socket.try_clone_to_owned().ok() } else { None };
        let Some(duplicate) = duplicate else {
            let _ = shutdown(socket, Shutdown::Both);
            return session.closed(&mut self.shared, CloseCause::PeerClosed);
        };
        self.counters.count(Counter::Adopted);
        self.counters.count(Counter::TakenOver);
        let conversation = Conversation::taken_over(session, deadline, sharing);
        let ConnectionId(token) =
            self.insert(duplicate, |_, _, _| (conversation, Ok(Progress::Rests)));
        self.play(token, Some(Occasion::Connected), 0);
    }

    /// Goes on with a connection that this loop has never let go of.
    pub(super) fn take_back(&mut self, token: Token) {
        if !self.table.is_current(token) {
            return;
        }
        self.counters.count(Counter::TakenBack);
        if is_quiet(socket(&self.table, token)) {
            self.play(token, Some(Occasion::Connected), 0);
        } else {
            self.close(token, CloseCause::PeerClosed);
        }
    }
}

/// Whether nothing has come that nobody asked for. Events that told of it were dropped when the
/// connection changed hands, so it has to be looked for: it would pass for the next answer.
fn is_quiet(socket: BorrowedFd<'_>) -> bool {
    recv(socket, &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) == Err(Errno::AGAIN)
}
