//! How the readiness loop takes connections over and loses them; `../takeover.rs` has the protocol.
//!
//! A connection that was lost stays registered until something happens on it here. Then the event is
//! dropped, and the registration goes with the next update batch: threads often lose a connection and
//! take it back within a turn, which costs no call at all. An edge reports what came once, so there the
//! registration outlives one such event, and goes with the second; a level would ring until the new
//! owner has read.

use std::os::fd::{AsFd, BorrowedFd};

use pollux_poller::{Readiness, Token, Trigger};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use super::events::NOTHING;
use super::{ReadinessLoop, socket};
use crate::actions::Sharing;
use crate::conversation::{Conversation, Progress, SessionCall};
use crate::turn::TurnLoop;
use crate::{Claim, CloseCause, ConnectionId, Counter, Moment, Session};

impl<S: Session> ReadinessLoop<S> {
    /// Whether this loop owns the connection, and so may act on it.
    #[inline]
    pub(super) fn owns(&mut self, token: Token) -> bool {
        self.claim(token, false) != Claim::Lost
    }

    /// As `owns`, where the session may end up not being called: one that had put the connection
    /// down is woken for it, and puts it down again.
    #[inline]
    pub(super) fn owns_or_wakes(&mut self, token: Token) -> bool {
        self.owns_after(token, false)
    }

    /// As `owns_or_wakes`, because of an event.
    #[inline]
    pub(super) fn owns_for_event(&mut self, token: Token, found: Readiness) -> bool {
        // Of an end there is no second event.
        let may_stay = self.trigger == Trigger::Edge && !found.intersects(Readiness::ENDS);
        self.owns_after(token, may_stay)
    }

    #[inline]
    fn owns_after(&mut self, token: Token, may_stay: bool) -> bool {
        let claim = self.claim(token, may_stay);
        if claim == Claim::Regained {
            self.state.wakes.push(ConnectionId(token));
        }
        claim != Claim::Lost
    }

    /// Claims the connection. One that is lost is let go of with the next update batch, but for the first
    /// time that it `may_stay` registered.
    #[inline]
    fn claim(&mut self, token: Token, may_stay: bool) -> Claim {
        let connection = self.connections.get_mut(token.slot() as usize).and_then(Option::as_mut);
        let Some(connection) = connection else { return Claim::Owned };
        let Some(sharing) = connection.conversation.sharing() else { return Claim::Owned };
        let claim = sharing.socket.claim(sharing.owner);
        let is_lost = claim == Claim::Lost;
        let was_lost = std::mem::replace(&mut connection.has_lost_event, is_lost);
        if is_lost {
            self.state.counters.count(Counter::EventsLost);
            if was_lost || !may_stay {
                self.lost.push(ConnectionId(token));
            }
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
            if sharing.is_some_and(|sharing| !sharing.socket.is_last_owner(sharing.owner)) {
                self.close(token, CloseCause::TakenOver);
            }
        }
    }

    /// Gives the descriptor of a connection up. One that others know too is ended for all of them when
    /// this loop owns it, and lives on elsewhere when it does not.
    pub(super) fn detach(
        &mut self,
        token: Token,
        sharing: Option<&Sharing>,
        cause: CloseCause,
    ) -> CloseCause {
        let Some(Sharing { socket: shared, owner }) = sharing else {
            drop(self.table.remove(token, &mut *self.poller));
            return cause;
        };
        let is_ours = shared.claim(*owner) != Claim::Lost;
        if is_ours {
            // Other loops have duplicates: only this reaches them and the peer.
            let _ = shutdown(socket(&self.table, token), Shutdown::Both);
        }
        drop(self.table.hand_over(token, &mut *self.poller));
        if is_ours { cause } else { CloseCause::TakenOver }
    }

    /// Starts a session on a connection that was taken from another loop.
    pub(super) fn take_from_another(&mut self, sharing: Sharing, session: S, deadline: Moment) {
        let socket = sharing.socket.socket().as_fd();
        let duplicate = if is_quiet(socket) { socket.try_clone_to_owned().ok() } else { None };
        let Some(duplicate) = duplicate else {
            let _ = shutdown(socket, Shutdown::Both);
            return session.closed(&mut self.state.shared, CloseCause::PeerClosed);
        };
        self.state.counters.count(Counter::Adopted);
        self.state.counters.count(Counter::TakenOver);
        let conversation = Conversation::taken_over(session, deadline, sharing);
        let ConnectionId(token) =
            self.insert(duplicate, |_, _, _| (conversation, Ok(Progress::Idle)));
        self.call_session(token, Some(SessionCall::Connected), NOTHING);
    }

    /// Continues a connection that this loop has never let go of.
    pub(super) fn take_again(&mut self, token: Token) {
        if !self.table.is_current(token) {
            return;
        }
        self.state.counters.count(Counter::TakenBack);
        if let Some(connection) = &mut self.connections[token.slot() as usize] {
            connection.has_lost_event = false;
        }
        if is_quiet(socket(&self.table, token)) {
            // What a lost event reported was another loop's, and is read.
            self.table.cannot_read(token);
            self.call_session(token, Some(SessionCall::Connected), NOTHING);
        } else {
            self.close(token, CloseCause::PeerClosed);
        }
    }
}

/// Whether no unexpected input waits. Events that reported it were dropped when the
/// connection passed to another loop, so the socket is checked: such input would pass for the next answer.
fn is_quiet(socket: BorrowedFd<'_>) -> bool {
    recv(socket, &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) == Err(Errno::AGAIN)
}
