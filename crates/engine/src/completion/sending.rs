//! How the completion loop sends: out of the turn's arena, one request for each connection and
//! turn.
//!
//! What such a request could not send comes back with a completion before anything else of the
//! connection does, so until then the output counts as gone. A second output in the same turn
//! waits for the next one: it could overtake the rest of the first.

use std::os::fd::{AsRawFd, BorrowedFd};

use pollux_poller::Token;
use pollux_sys::ring::{QueueFull, Sending, Sent as Slice};

use super::slots::{Kind, label};
use crate::actions::Source;
use crate::conversation::{ConnectionIo, Sent};
use crate::ending::Tail;
use crate::flow::Flow;
use crate::output::Output;
use crate::{Actions, CloseCause, Counter, Counters, Limits, Moment};

/// A send of this turn, by which its rest is found when it falls short.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnSend {
    pub(super) token: Token,
    pub(super) slice: Slice,
}

/// What a connection remembers of its sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SendMarks {
    /// Number of the submission that its last send rides with; none was made before 1.
    pub(super) submission: u32,
    /// Something was sent, by a request or by a call.
    pub(super) has_sent: bool,
    /// Its only send so far was so short that every empty socket takes it whole.
    pub(super) is_sure: bool,
}

/// Bytes that an empty socket always takes: the least send buffer that Linux allows is larger
/// (SOCK_MIN_SNDBUF, socket(7)).
const SURE_BYTES: usize = 4096;

/// One connection's socket for the time of one call.
pub(super) struct RingIo<'a> {
    pub(super) sending: Sending<'a>,
    pub(super) socket: BorrowedFd<'a>,
    pub(super) token: Token,
    pub(super) tail: &'a mut Tail,
    pub(super) flow: &'a mut Flow,
    pub(super) marks: &'a mut SendMarks,
    pub(super) submission: u32,
    pub(super) sends: &'a mut Vec<TurnSend>,
    pub(super) counters: &'a Counters,
    pub(super) limits: &'a Limits,
    pub(super) now: Moment,
}

impl ConnectionIo for RingIo<'_> {
    fn parts(&mut self) -> (&mut [u8], Option<BorrowedFd<'_>>) {
        // The rest is for the others: one call's output is bounded by this alone.
        (&mut self.sending.spare()[..Actions::ROOM_MIN], Some(self.socket))
    }

    fn send(&mut self, len: usize, source: Option<Source>) -> Result<Sent, CloseCause> {
        if matches!(self.tail, Tail::None) && (self.marks.submission == self.submission) {
            *self.tail = Tail::Waiting(Box::default());
        }
        if let Tail::Waiting(output) = self.tail {
            output.push_bytes(&self.sending.spare()[..len])?;
            source.into_iter().for_each(|source| output.push_source(source));
            return Ok(Sent::Waits);
        }
        let Some(source) = source else {
            if len > 0 {
                self.send_spare(len)?;
            }
            return Ok(Sent::Gone);
        };
        // By calls, the head too: as a request it would leave alone, in a segment of its own, and the file
        // a turn later.
        self.marks.has_sent = true;
        let Self { sending, socket, flow, counters, limits, now, .. } = self;
        let head = &sending.spare()[..len];
        let output =
            Output::begin_with_source(head, source, *socket, counters, flow, *now, limits)?;
        if output.is_empty() {
            return Ok(Sent::Gone);
        }
        *self.tail = Tail::Waiting(Box::new(output));
        Ok(Sent::Waits)
    }
}

impl RingIo<'_> {
    fn send_spare(&mut self, len: usize) -> Result<(), CloseCause> {
        let number = Token::new(self.sends.len() as u32, self.submission & 1);
        let label = label(Kind::Send, number);
        let fd = self.socket.as_raw_fd();
        let slice = match self.sending.send_spare(fd, len, label) {
            Ok(slice) => slice,
            Err(QueueFull) => {
                // Congestion of the kernel passes; a queue that stays full is an error of ours.
                let _ = self.sending.submit();
                self.counters.count(Counter::RingEnters);
                let again = self.sending.send_spare(fd, len, label);
                again.map_err(|QueueFull| CloseCause::SocketError)?
            }
        };
        self.sends.push(TurnSend { token: self.token, slice });
        let is_sure = !self.marks.has_sent && len <= SURE_BYTES;
        *self.marks = SendMarks { submission: self.submission, has_sent: true, is_sure };
        self.counters.count(Counter::Sends);
        self.counters.add(Counter::BytesOut, len as u64);
        self.flow.sent(len, self.now, self.limits);
        Ok(())
    }
}
