//! One direction of an exchange, or of a stream: a head, the raw bytes of a body, and an end.
//!
//! ```text
//!  input ─► reader: where does the body end? ─► head, body, end ─► framer ─► output of the other side
//!                                                 bounded ▲   sent ─► kept for a second try
//! ```
//!
//! A message knows no connection and no framing. Its head is the first line and the fields that go from end to end, as
//! lines; what one connection adds, the framing and the empty line, is the sender's matter (`framing`). One that is full
//! takes nothing more: its filler pauses, and is woken when there is room.
//!
//! Trailers are kept where the other side takes them.
//!
//! Bytes may go through a [pipe](crate::exchange::splicing) in the kernel instead; a message that has one is full.

use std::sync::Arc;

use pollux_engine::{Actions, Pipe};

use crate::exchange::pipes::Pipes;

/// A message with that much waiting is full. What one call of a filler adds may exceed it by [`PIECE_BYTES_MAX`].
const WAITING_BYTES_MAX: usize = 32 * 1024;
/// What is added at a time: as much as is received at a time.
pub(super) const PIECE_BYTES_MAX: usize = 64 * 1024;
/// What was sent of a request is kept for a second try up to this much.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// Room that a message keeps for the next exchange.
const ROOM_KEPT: usize = 16 * 1024;

/// What a message has in a pipe.
#[derive(Debug, Default)]
enum Piped {
    #[default]
    Nothing,
    /// So many bytes, for the other side to send.
    Waits(Arc<Pipe>, u64),
    /// The other side sends it.
    Leaves(Arc<Pipe>),
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Message {
    /// Interim heads, which are whole; the head, without its empty line; the body. What was sent is dropped, or kept in
    /// front.
    bytes: Vec<u8>,
    /// Where the head ends, once it is there.
    head_len: usize,
    /// How many of the bytes the other side was given.
    sent: usize,
    /// What the other side was given last and has not left it yet, as far as that is known.
    leaving_bytes: usize,
    /// The fields behind the body, as lines: those that go from end to end.
    trailers: Vec<u8>,
    /// What was sent stays in front, for a second try, as long as it is no more than that.
    keeps_sent: bool,
    kept_bytes_max: usize,
    /// What follows all bytes.
    piped: Piped,
    /// Some of the body went through a pipe.
    pub(super) is_spliced: bool,
    /// All of it was taken from its connection.
    pub(crate) is_whole: bool,
    /// Of the body.
    pub(crate) body_bytes: u64,
}

impl Message {
    /// Makes it anew for the next exchange; keeps some of its room. A pipe that it has is dropped before
    /// ([`Message::drop_piped`]).
    pub(super) fn reset(&mut self) {
        debug_assert!(!self.has_pipe(), "a pipe is counted until it is dropped");
        self.bytes.clear();
        self.bytes.shrink_to(ROOM_KEPT);
        (self.head_len, self.sent, self.leaving_bytes) = (0, 0, 0);
        (self.keeps_sent, self.is_spliced) = (false, false);
        (self.is_whole, self.body_bytes) = (false, 0);
        self.trailers.clear();
    }

    /// Drops the room of one that is not in use.
    pub(super) fn release_memory(&mut self) {
        (self.bytes, self.trailers) = (Vec::new(), Vec::new());
    }

    /// Where heads are written, in front of all body bytes.
    pub(crate) fn head(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The head is there: what follows is the body.
    pub(super) fn end_head(&mut self) {
        self.head_len = self.bytes.len();
    }

    /// What the other side was not given of the head, and of what stands behind it: the body, or all of the interim heads
    /// while no other one is there.
    #[inline]
    pub(super) fn waiting(&self) -> (&[u8], &[u8]) {
        match self.bytes.split_at_checked(self.head_len) {
            Some((head, body)) if self.sent <= head.len() => (&head[self.sent..], body),
            _ => (&[], &self.bytes[self.sent..]),
        }
    }

    /// What of the head was not given to the other side, and the body, while the head has not left.
    #[inline]
    pub(super) fn unsent(&self) -> Option<(&[u8], &[u8])> {
        if self.sent >= self.head_len {
            return None;
        }
        Some((self.bytes.get(self.sent..self.head_len)?, self.bytes.get(self.head_len..)?))
    }

    /// Whether the head is there; not known any more once all of it was sent.
    #[inline]
    pub(super) fn has_head(&self) -> bool {
        self.head_len > 0
    }

    /// Adds bytes of the body.
    pub(super) fn push(&mut self, data: &[u8]) {
        self.body_bytes += data.len() as u64;
        self.bytes.extend_from_slice(data);
    }

    /// The fields behind the body, as lines.
    #[inline]
    pub(super) fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// The same, to be added to.
    pub(super) fn trailers_mut(&mut self) -> &mut Vec<u8> {
        &mut self.trailers
    }

    /// Bytes of the body that the other side was not given, or that have not left it.
    pub(super) fn body_bytes_left(&self) -> u64 {
        let (_, body) = self.waiting();
        (body.len() + self.leaving_bytes) as u64
    }

    /// Bytes that it holds: those that wait, and those that are kept.
    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Drops all that it holds, so that it never becomes whole.
    #[cold]
    pub(super) fn give_up(&mut self) {
        self.release_memory();
        (self.head_len, self.sent, self.leaving_bytes) = (0, 0, 0);
        (self.keeps_sent, self.is_whole) = (false, false);
    }

    /// Keeps what is sent, for a second try: as long as it is not too much, or, of what may be sent only once, until any of
    /// it has left.
    pub(super) fn keep_sent(&mut self, is_idempotent: bool) {
        self.keeps_sent = true;
        self.kept_bytes_max = if is_idempotent { KEPT_BYTES_MAX } else { 0 };
    }

    /// Whether bytes are kept that were sent.
    pub(super) fn keeps_sent(&self) -> bool {
        self.keeps_sent && self.kept_bytes_max > 0
    }

    /// Keeps nothing for a second try any more.
    pub(super) fn forget_sent(&mut self) {
        if std::mem::replace(&mut self.keeps_sent, false) {
            self.drop_sent();
        }
    }

    /// Begins anew with the first byte; false when that is gone.
    pub(super) fn rewind(&mut self) -> bool {
        if self.keeps_sent {
            (self.sent, self.leaving_bytes) = (0, 0);
        }
        self.keeps_sent
    }

    /// Whether the other side was given anything of it.
    pub(super) fn has_begun_to_leave(&self) -> bool {
        self.sent > 0 || !self.keeps_sent
    }

    /// Whether some of it was given to the other side, and is kept.
    pub(super) fn has_left_some(&self) -> bool {
        self.sent > 0
    }

    fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether bytes wait for the other side that are not in a pipe.
    pub(super) fn has_bytes_waiting(&self) -> bool {
        self.waiting_bytes() > 0
    }

    /// Whether nothing waits for the other side.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting_bytes() == 0 && !self.has_pipe()
    }

    /// Whether it takes nothing more for now. What the other side has and can't get rid of counts too: a peer that reads
    /// nothing is not to cost it twice.
    pub(super) fn is_full(&self) -> bool {
        self.has_pipe() || self.waiting_bytes() + self.leaving_bytes >= WAITING_BYTES_MAX
    }

    /// The other side was given so many bytes.
    pub(super) fn took(&mut self, len: usize) {
        self.sent += len;
        self.leaving_bytes += len;
        if self.keeps_sent && self.sent <= self.kept_bytes_max {
            return;
        }
        self.keeps_sent = false;
        // What is sent in many pieces is not moved for each of them.
        if self.sent * 2 >= self.bytes.len() {
            self.drop_sent();
        }
    }

    /// It was given all of them.
    #[inline]
    pub(super) fn took_all(&mut self) {
        self.leaving_bytes += self.waiting_bytes();
        if self.keeps_sent && self.bytes.len() <= self.kept_bytes_max {
            self.sent = self.bytes.len();
            return;
        }
        self.keeps_sent = false;
        self.bytes.clear();
        (self.head_len, self.sent) = (0, 0);
    }

    fn drop_sent(&mut self) {
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.head_len = 0;
        } else {
            self.bytes.drain(..self.sent);
            self.head_len = self.head_len.saturating_sub(self.sent);
        }
        self.sent = 0;
    }

    /// What was given to the other side has left it; says whether there is room again for that reason. A pipe that is
    /// empty now goes back to the others.
    pub(super) fn has_left(&mut self, pipes: &mut Pipes) -> bool {
        let was_full = self.is_full();
        self.leaving_bytes = 0;
        match std::mem::take(&mut self.piped) {
            Piped::Leaves(pipe) => pipes.put(pipe),
            as_before => self.piped = as_before,
        }
        was_full && !self.is_full()
    }

    /// Whether there are bytes in a pipe that have not left.
    pub(super) fn has_pipe(&self) -> bool {
        !matches!(self.piped, Piped::Nothing)
    }

    /// Takes bytes that are in this pipe. The other side gets them behind all that it was not given yet. Says whether that is
    /// the first pipe.
    pub(super) fn take_piped(&mut self, pipe: Arc<Pipe>, bytes: u64) -> bool {
        debug_assert!(!self.has_pipe(), "one pipe at a time");
        self.body_bytes += bytes;
        self.piped = Piped::Waits(pipe, bytes);
        !std::mem::replace(&mut self.is_spliced, true)
    }

    /// Gives the other side what is in a pipe, behind all bytes; says how much that was.
    pub(super) fn send_piped(&mut self, actions: &mut Actions<'_>) -> u64 {
        match std::mem::take(&mut self.piped) {
            Piped::Waits(pipe, bytes) => {
                // What has left by a pipe cannot be sent again.
                self.forget_sent();
                actions.send_pipe(Arc::clone(&pipe), bytes);
                self.piped = Piped::Leaves(pipe);
                bytes
            }
            as_before => {
                self.piped = as_before;
                0
            }
        }
    }

    /// Drops what is in a pipe: the connection that it was for is gone.
    #[inline]
    pub(super) fn drop_piped(&mut self, pipes: &mut Pipes) {
        if self.has_pipe() {
            self.give_up_pipe(pipes);
        }
    }

    #[cold]
    fn give_up_pipe(&mut self, pipes: &mut Pipes) {
        if let Piped::Waits(pipe, _) | Piped::Leaves(pipe) = std::mem::take(&mut self.piped) {
            pipes.give_up(pipe);
        }
    }
}
