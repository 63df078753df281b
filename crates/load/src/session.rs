//! A connection of the generator, as the loops see it: an active one, or one of the crowd.
//!
//! The engine calls it; it only passes on. Both kinds are small here, for the crowd may be large.

use std::io;

use pollux_engine::{Actions, CloseCause, Now, Session};

use crate::active::Active;
use crate::crowd::Member;
use crate::shared::Shared;

/// One connection of the generator.
#[derive(Debug)]
pub(crate) enum ClientSession {
    /// It sends requests as the pace says.
    Active(Box<Active>),
    /// It is only there.
    Crowd(Member),
}

const _: () = assert!(size_of::<ClientSession>() <= 40, "thousands stand beside the active ones");

macro_rules! either {
    ($self:ident, $each:ident => $body:expr) => {
        match $self {
            Self::Active($each) => $body,
            Self::Crowd($each) => $body,
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
        if let Self::Active(active) = self {
            active.connect_failed(shared, &error);
        }
    }

    #[inline]
    fn on_bytes(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        shared.has_worked = true;
        either!(self, each => each.on_bytes(shared, actions, input))
    }

    fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Active(active) => active.on_end(shared),
            Self::Crowd(member) => member.on_end(shared),
        }
        actions.close();
    }

    fn on_drained(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        if let Self::Active(active) = self {
            active.send(shared, actions);
        }
    }

    fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        either!(self, each => each.on_deadline(shared, actions));
    }

    fn on_wake(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        if let Self::Active(active) = self {
            active.send(shared, actions);
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
        }
    }
}
