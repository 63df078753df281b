//! Replies and forwarded requests on their way out of a worker, by queues or in shared memory.
//!
//! The dispatch and the loop go through it; which of the two it is follows from where requests come from.

use super::answering::Answering;
use super::registrations::Sources;
use super::replies::{Call, Replies, Verdict};
use crate::client::Outgoing;
use crate::error::Code;
use crate::queue::ServiceName;
use crate::slots::Slot;

/// The way out, which goes with the sources of the same name.
pub(super) enum WayOut {
    Queues(Replies),
    Memory(Answering),
}

impl WayOut {
    /// Answers `call`; data that can't be sent turns into TPESVCERR.
    #[inline]
    pub(super) fn reply(
        &mut self,
        sources: &mut Sources,
        slot: Slot<'_>,
        call: &Call,
        verdict: Verdict,
        data: Outgoing<'_>,
    ) {
        match (self, sources) {
            (Self::Queues(replies), Sources::Queues(watch)) => {
                replies.reply(watch, slot, call, verdict, data);
            }
            (Self::Memory(answering), Sources::Memory(rings)) => {
                answering.reply(rings, slot, call, verdict, data);
            }
            _ => {}
        }
    }

    /// Tells the caller that the service broke.
    pub(super) fn fail(&mut self, sources: &mut Sources, slot: Slot<'_>, call: &Call) {
        match (self, sources) {
            (Self::Queues(replies), Sources::Queues(watch)) => replies.fail(watch, slot, call),
            (Self::Memory(answering), Sources::Memory(rings)) => {
                answering.fail(rings, slot, Code::ServiceError);
            }
            _ => {}
        }
    }

    /// Passes `call` on to another service, which answers it; whether it is on the way.
    pub(super) fn forward(
        &mut self,
        sources: &mut Sources,
        slot: Slot<'_>,
        call: &Call,
        service: ServiceName,
        data: Outgoing<'_>,
    ) -> bool {
        match (self, sources) {
            (Self::Queues(replies), Sources::Queues(watch)) => {
                replies.forward(watch, slot, call, service, data)
            }
            (Self::Memory(answering), Sources::Memory(rings)) => {
                answering.forward(rings, slot, call, service, data)
            }
            _ => false,
        }
    }

    /// Lets go of what is for clients that ended.
    pub(super) fn sweep(&mut self, sources: &mut Sources, slot: Slot<'_>) {
        match (self, sources) {
            (Self::Queues(replies), Sources::Queues(watch)) => replies.sweep(watch, slot),
            (Self::Memory(answering), _) => answering.sweep(),
            _ => {}
        }
    }

    /// When something that waits is not wanted any more, in nanoseconds of the monotonic clock.
    #[inline]
    pub(super) fn first_until_ns(&self) -> Option<u64> {
        match self {
            Self::Queues(replies) => replies.first_until_ns(),
            Self::Memory(_) => None,
        }
    }

    /// Drops what waited too long.
    pub(super) fn expire(&mut self, sources: &mut Sources, slot: Slot<'_>, now_ns: u64) {
        if let (Self::Queues(replies), Sources::Queues(watch)) = (self, sources) {
            replies.expire(watch, slot, now_ns);
        }
    }

    /// Sends what can be sent until `until_ns`. Called before the worker ends.
    pub(super) fn finish(&mut self, sources: &mut Sources, slot: Slot<'_>, until_ns: u64) {
        match (self, sources) {
            (Self::Queues(replies), Sources::Queues(watch)) => {
                replies.finish(watch, slot, until_ns);
            }
            (Self::Memory(answering), _) => answering.finish(until_ns),
            _ => {}
        }
    }
}
