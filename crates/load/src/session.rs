//! A connection of the generator, as the loops see it: an active one, or one of the crowd.
//!
//! The engine calls it; it only passes on, through TLS where the target is encrypted. Both kinds
//! are small here, for the crowd may be large.

use std::io;

use pollux_engine::{Actions, CloseCause, Now, Session};

use crate::active::Active;
use crate::cause::Cause;
use crate::crowd::Member;
use crate::shared::Shared;
use crate::tally::Fault;
use crate::tls::Encrypted;

/// One connection of the generator.
#[derive(Debug)]
pub(crate) enum ClientSession {
    /// It sends requests as the pace says.
    Active(Box<Active>),
    /// It is only there.
    Crowd(Member),
    /// One of the two, encrypted.
    Encrypted(Box<Encrypted>),
}

const _: () = assert!(size_of::<ClientSession>() <= 40, "thousands stand beside the active ones");

macro_rules! either {
    ($self:ident, $each:ident => $body:expr) => {
        match $self {
            Self::Active($each) => $body,
            Self::Crowd($each) => $body,
            Self::Encrypted($each) => $body,
        }
    };
}

impl Session for ClientSession {
    type Shared = Shared;

    fn begin_turn(shared: &mut Shared, now: Now) {
        shared.begin_turn(now);
    }

    fn end_turn(shared: &mut Shared) {
        shared.end_turn();
    }

    fn accepted(_: &mut Shared, _: &mut Actions<'_>) -> Self {
        unreachable!("a generator has no listener")
    }

    fn connected(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        either!(self, each => each.connected(shared, actions));
    }

    fn connect_failed(&mut self, shared: &mut Shared, error: io::Error) {
        self.failed_to_open(shared, &Cause::System(&error));
    }

    #[inline]
    fn on_bytes(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        shared.has_worked = true;
        either!(self, each => each.on_bytes(shared, actions, input))
    }

    fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        either!(self, each => each.on_end(shared));
        actions.close();
    }

    fn on_drained(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        match self {
            Self::Active(active) => active.send(shared, actions),
            Self::Crowd(_) => {}
            Self::Encrypted(encrypted) => encrypted.on_drained(shared, actions),
        }
    }

    fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        either!(self, each => each.on_deadline(shared, actions));
    }

    fn on_wake(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        match self {
            Self::Active(active) => active.send(shared, actions),
            Self::Crowd(_) => {}
            Self::Encrypted(encrypted) => encrypted.on_wake(shared, actions),
        }
    }

    /// The generator's loops are never drained: the worker sees to the end itself.
    fn on_drain(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        actions.close();
    }

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        shared.has_worked = true;
        match self {
            Self::Active(active) => active.closed(shared, cause),
            Self::Crowd(member) => member.closed(shared, cause),
            Self::Encrypted(encrypted) => encrypted.into_inner().closed(shared, cause),
        }
    }
}

impl ClientSession {
    /// Books that it did not come to a connection.
    pub(crate) fn failed_to_open(&mut self, shared: &mut Shared, cause: &Cause<'_>) {
        match self {
            Self::Active(_) => shared.connect_failed(cause),
            // Told by its end.
            Self::Crowd(_) => {}
            Self::Encrypted(encrypted) => encrypted.inner().failed_to_open(shared, cause),
        }
    }

    /// Books that what came can't be understood, and gives the connection up.
    pub(crate) fn broken(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, fault: Fault) {
        if let Self::Active(active) = self {
            active.give_up(shared, actions, fault, 0);
        }
        actions.abort();
    }

    /// The active connection in it, when it is one.
    pub(crate) fn into_active(self) -> Option<Box<Active>> {
        match self {
            Self::Active(active) => Some(active),
            Self::Crowd(_) => None,
            Self::Encrypted(encrypted) => encrypted.into_inner().into_active(),
        }
    }
}
