//! Replies and forwarded requests in shared memory: written over the request that they answer.
//!
//! The other form of `replies`. A reply always has its place, so nothing is ever kept until there is room.

use super::replies::{Call, Verdict};
use super::rings::{Passed, Rings};
use crate::client::Outgoing;
use crate::clock::monotonic_ns;
use crate::error::Code;
use crate::large::Outbox;
use crate::memory::Ticket;
use crate::queue::ServiceName;
use crate::slots::{Slot, Total};
use crate::wire::{Body, ClientAddress, LargeRef, Payload, Reply, Request};

/// How long a payload for a caller without a deadline is kept.
const HELD_NS_MAX: u64 = 60_000_000_000;

/// The way out.
#[derive(Default)]
pub(super) struct Answering {
    /// The request at hand.
    held: Option<Ticket>,
    outbox: Outbox,
    /// A message that is being written.
    frame: Vec<u8>,
}

impl Answering {
    /// A request was taken.
    pub(super) fn begin(&mut self, ticket: Ticket, message_len_bytes: usize) {
        self.held = Some(ticket);
        self.frame.resize(message_len_bytes, 0);
    }

    /// Answers `call`; data that can't be sent turns into TPESVCERR.
    #[inline]
    pub(super) fn reply(
        &mut self,
        rings: &Rings,
        slot: Slot<'_>,
        call: &Call,
        verdict: Verdict,
        data: Outgoing<'_>,
    ) {
        let (nonce, call_id) = (call.client.nonce, call.call_id);
        let Verdict { error, rval, urcode } = verdict;
        let encode = |payload: &Payload<'_>, out: &mut [u8]| {
            Reply { nonce, call_id, error, rval, urcode, payload: *payload }.encode(out)
        };
        slot.add(Total::PayloadBytes, data.bytes.len() as u64);
        let written = self.write(rings, call, data, Some(call.client), encode);
        let Some(ticket) = self.held.take() else { return };
        let error = written.is_none().then_some(Code::ServiceError);
        let is_awaited = rings.answer(slot, ticket, error);
        if let (false, Some(Some(large))) = (is_awaited, written) {
            self.outbox.withdraw(large.inode);
        }
    }

    /// Tells the caller that the service broke.
    pub(super) fn fail(&mut self, rings: &Rings, slot: Slot<'_>, code: Code) {
        if let Some(ticket) = self.held.take() {
            rings.answer(slot, ticket, Some(code));
        }
    }

    /// Passes `call` on to another service, which answers it; whether it is on the way.
    pub(super) fn forward(
        &mut self,
        rings: &Rings,
        slot: Slot<'_>,
        call: &Call,
        service: ServiceName,
        data: Outgoing<'_>,
    ) -> bool {
        let Some(row) = rings.memory().records().find(&service) else { return false };
        let Call { client, call_id, cd, deadline_ns, is_without_reply } = *call;
        let encode = |payload: &Payload<'_>, out: &mut [u8]| {
            let payload = *payload;
            Request { client, call_id, cd, deadline_ns, is_without_reply, service, payload }
                .encode(out)
        };
        slot.add(Total::PayloadBytes, data.bytes.len() as u64);
        let written = self.write(rings, call, data, None, encode);
        let (Some(large), Some(ticket)) = (written, self.held) else { return false };
        let passed = rings.pass_on(ticket, row, deadline_ns);
        if passed == Passed::On {
            self.held = None;
            return true;
        }
        if let Some(large) = large {
            self.outbox.withdraw(large.inode);
        }
        // It may have a hop more by now.
        self.held = rings.claim().held();
        if passed == Passed::Full {
            self.fail(rings, slot, Code::Limit);
        }
        false
    }

    /// The request is over. One that nobody answered, as nobody waits or its time was over, is let go.
    pub(super) fn end(&mut self, rings: &Rings, slot: Slot<'_>, is_without_reply: bool) {
        let Some(ticket) = self.held.take() else { return };
        let request = rings.memory().exchange().request(ticket.request);
        if is_without_reply && request.is_some_and(|request| request.drop_unwanted(ticket)) {
            return rings.claim().let_go();
        }
        rings.answer(slot, ticket, Some(Code::Time));
    }

    /// Lets go of payloads that were read, or that nobody will read.
    pub(super) fn sweep(&mut self) {
        self.outbox.sweep(monotonic_ns());
    }

    /// Holds payloads until they are read, until `until_ns` at most. Called before the worker ends.
    pub(super) fn finish(&mut self, until_ns: u64) {
        self.outbox.finish(until_ns);
    }

    /// Writes a message over the request at hand, its payload to a memfd if it is too long for that; the
    /// memfd, if there is one. None when it can't be written.
    fn write(
        &mut self,
        rings: &Rings,
        call: &Call,
        data: Outgoing<'_>,
        receiver: Option<ClientAddress>,
        encode: impl Fn(&Payload<'_>, &mut [u8]) -> Option<usize>,
    ) -> Option<Option<LargeRef>> {
        let ticket = self.held?;
        let request = rings.memory().exchange().request(ticket.request)?;
        let payload = Payload {
            buffer_type: data.buffer_type,
            buffer_size_bytes: data.buffer_size_bytes as u64,
            body: Body::Inline(data.bytes),
        };
        if let Some(len) = encode(&payload, &mut self.frame) {
            request.write(ticket, &self.frame[..len]);
            return Some(None);
        }
        let now_ns = monotonic_ns();
        let until_ns = if call.deadline_ns == 0 { now_ns + HELD_NS_MAX } else { call.deadline_ns };
        let receiver = receiver.map(|client| client.pid);
        let large = self.outbox.put(data.bytes, until_ns, receiver, now_ns).ok()?;
        let len = encode(&Payload { body: Body::Large(large), ..payload }, &mut self.frame)?;
        request.write(ticket, &self.frame[..len]);
        Some(Some(large))
    }
}
