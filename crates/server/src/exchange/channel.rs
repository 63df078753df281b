//! The bytes of one direction: taken from one connection, framed anew, and kept until the other connection
//! takes them; and the pair of two directions that is a stream of TCP mode.
//!
//! ```text
//!  input ─► reader: where does the body end? ─► framing anew ─► bytes ─► output of the other side
//!                                                  bounded ▲        sent ─► kept for a second try
//! ```
//!
//! A channel knows no connection. One that is full takes nothing more: its filler pauses, and is woken when
//! there is room. The sessions of [`Stream`](crate::exchange::stream::Stream) find their [`Pair`] by its number.
//!
//! Bytes may go through a [pipe](crate::exchange::splicing) in the kernel instead; a channel that has one is full.

use std::sync::Arc;

use pollux_engine::{Actions, ConnectionId, Moment, Pipe};
use pollux_http::{
    BodyReader, CHUNK_END, CHUNK_HEAD_BYTES_MAX, Framing, LAST_CHUNK, Limits, ProxyHeader,
    Rejection, write_chunk_head,
};

use crate::exchange::pipes::Pipes;
use crate::exchange::table::Tried;
use crate::fault::Fault;
use crate::head::Frame;
use crate::ids::PairId;

/// A channel with that much waiting is full. What one call of a filler adds may exceed it by [`PIECE_BYTES_MAX`].
const WAITING_BYTES_MAX: usize = 32 * 1024;
/// What is added at a time: as much as is received at a time.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// What was sent of a request is kept for a second try up to this much.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// Room that a channel keeps for the next exchange.
const ROOM_KEPT: usize = 16 * 1024;

/// What a channel has in a pipe.
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
#[derive(Debug)]
pub(crate) struct Channel {
    bytes: Vec<u8>,
    /// How many of them the other side was given.
    sent: usize,
    /// What the other side was given last and has not left it yet, as far as that is known.
    leaving_bytes: usize,
    /// What was sent stays in front, for a second try, as long as it is no more than that.
    keeps_sent: bool,
    kept_bytes_max: usize,
    /// What follows all bytes.
    piped: Piped,
    /// Some of the body went through a pipe.
    is_spliced: bool,
    reader: BodyReader,
    frame: Frame,
    /// All of it was taken from its connection.
    pub(crate) is_whole: bool,
    /// What was given to the other side last has not left it yet.
    pub(crate) is_leaving: bool,
    /// Body bytes, without framing.
    pub(crate) body_bytes: u64,
}

impl Default for Channel {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            sent: 0,
            leaving_bytes: 0,
            keeps_sent: false,
            kept_bytes_max: 0,
            piped: Piped::Nothing,
            is_spliced: false,
            reader: BodyReader::new(Framing::None, &Limits::default()),
            frame: Frame::Plain,
            is_whole: false,
            is_leaving: false,
            body_bytes: 0,
        }
    }
}

impl Channel {
    /// Makes it anew for the next exchange; keeps some of its room. A pipe that it has is dropped before
    /// ([`Channel::drop_piped`]).
    pub(crate) fn reset(&mut self) {
        debug_assert!(!self.has_pipe(), "a pipe is counted until it is dropped");
        self.bytes.clear();
        self.bytes.shrink_to(ROOM_KEPT);
        (self.sent, self.leaving_bytes) = (0, 0);
        (self.keeps_sent, self.is_spliced, self.frame) = (false, false, Frame::Plain);
        (self.is_whole, self.is_leaving, self.body_bytes) = (false, false, 0);
    }

    /// Drops the room of one that is not in use.
    pub(crate) fn release_memory(&mut self) {
        self.bytes = Vec::new();
    }

    /// Where a head is written, in front of all body bytes.
    pub(crate) fn head(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What follows the head: a body that `reader` finds the end of.
    pub(crate) fn begin_body(&mut self, reader: BodyReader, frame: Frame) {
        self.is_whole = reader.is_done();
        (self.reader, self.frame) = (reader, frame);
    }

    /// Nothing follows the head.
    pub(crate) fn begin_without_body(&mut self) {
        (self.is_whole, self.frame) = (true, Frame::Plain);
    }

    /// Keeps what is sent, for a second try: as long as it is not too much, or, of what may be sent only once, until any of
    /// it has left.
    pub(crate) fn keep_sent(&mut self, is_idempotent: bool) {
        self.keeps_sent = true;
        self.kept_bytes_max = if is_idempotent { KEPT_BYTES_MAX } else { 0 };
    }

    /// Keeps nothing for a second try any more.
    pub(crate) fn forget_sent(&mut self) {
        if std::mem::replace(&mut self.keeps_sent, false) {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Begins anew with the first byte; false when that is gone.
    pub(crate) fn rewind(&mut self) -> bool {
        if self.keeps_sent {
            (self.sent, self.leaving_bytes, self.is_leaving) = (0, 0, false);
        }
        self.keeps_sent
    }

    /// Whether the other side was given anything of it.
    pub(crate) fn has_begun_to_leave(&self) -> bool {
        self.sent > 0 || !self.keeps_sent
    }

    fn waiting(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether nothing waits for the other side.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting() == 0 && !self.has_pipe()
    }

    /// Whether it takes nothing more for now. What the other side has and can't get rid of counts too: a peer that reads
    /// nothing is not to cost it twice.
    pub(crate) fn is_full(&self) -> bool {
        self.has_pipe() || self.waiting() + self.leaving_bytes >= WAITING_BYTES_MAX
    }

    /// Whether there are bytes in a pipe that have not left.
    pub(crate) fn has_pipe(&self) -> bool {
        !matches!(self.piped, Piped::Nothing)
    }

    /// What was given to the other side has left it; says whether there is room again for that reason. A pipe that is
    /// empty now goes back to the others.
    pub(crate) fn has_left(&mut self, pipes: &mut Pipes) -> bool {
        let was_full = self.is_full();
        (self.leaving_bytes, self.is_leaving) = (0, false);
        match std::mem::take(&mut self.piped) {
            Piped::Leaves(pipe) => pipes.put(pipe),
            as_before => self.piped = as_before,
        }
        was_full && !self.is_full()
    }

    /// How many bytes of the body may still go through pipes; none where they are framed anew, or kept for a second try.
    pub(crate) fn spliceable(&self) -> Option<u64> {
        let is_kept = self.keeps_sent && self.kept_bytes_max > 0;
        self.reader.plain_left().filter(|_| self.frame == Frame::Plain && !is_kept)
    }

    /// Whether it was a body of so many bytes that could go through pipes.
    pub(crate) fn was_long(&self, bytes_min: u64) -> bool {
        self.is_whole && self.frame == Frame::Plain && self.body_bytes >= bytes_min
    }

    /// Whether some of the body went through a pipe.
    pub(crate) fn is_spliced(&self) -> bool {
        self.is_spliced
    }

    /// Takes bytes that are in this pipe. The other side gets them behind all that it was not given yet.
    pub(crate) fn take_piped(&mut self, pipe: Arc<Pipe>, bytes: u64) {
        debug_assert!(!self.has_pipe(), "one pipe at a time");
        self.body_bytes += bytes;
        self.piped = Piped::Waits(pipe, bytes);
    }

    /// The same of a body; says whether that is its first pipe.
    pub(crate) fn take_piped_body(&mut self, pipe: Arc<Pipe>, bytes: u64) -> bool {
        self.reader.skip(bytes);
        self.is_whole = self.reader.is_done();
        self.take_piped(pipe, bytes);
        !std::mem::replace(&mut self.is_spliced, true)
    }

    /// Drops what is in a pipe: the connection that it was for is gone.
    pub(crate) fn drop_piped(&mut self, pipes: &mut Pipes) {
        if let Piped::Waits(pipe, _) | Piped::Leaves(pipe) = std::mem::take(&mut self.piped) {
            pipes.give_up(pipe);
        }
    }

    /// Whether all of it was taken and given on.
    pub(crate) fn is_done(&self) -> bool {
        self.is_whole && self.is_empty()
    }

    /// Takes body bytes until the body ends or the channel is full; says how many bytes it used.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub(crate) fn take(&mut self, input: &[u8]) -> Result<usize, Rejection> {
        let mut used = 0;
        while used < input.len() && !self.is_whole && !self.is_full() {
            let rest = &input[used..];
            let piece = &rest[..rest.len().min(PIECE_BYTES_MAX)];
            let step = self.reader.feed(piece)?;
            used += step.consumed;
            self.push(&piece[step.data]);
            if step.is_done {
                self.finish();
            }
        }
        Ok(used)
    }

    /// Takes bytes that are not HTTP, as long as the channel is not full.
    pub(crate) fn take_raw(&mut self, input: &[u8]) -> usize {
        if self.is_full() {
            return 0;
        }
        let used = input.len().min(PIECE_BYTES_MAX);
        self.push(&input[..used]);
        used
    }

    /// The connection that it is taken from has ended.
    ///
    /// # Errors
    /// The body should have continued.
    pub(crate) fn end(&mut self) -> Result<(), Rejection> {
        if !self.is_whole {
            self.reader.end()?;
            self.finish();
        }
        Ok(())
    }

    /// Gives the other side what its room takes, and behind the last byte what is in a pipe; says how much that was.
    pub(crate) fn send(&mut self, actions: &mut Actions<'_>) -> u64 {
        let len = self.send_bytes(actions) as u64;
        if self.waiting() > 0 {
            return len;
        }
        match std::mem::take(&mut self.piped) {
            Piped::Waits(pipe, bytes) => {
                // What has left by a pipe cannot be sent again.
                self.forget_sent();
                actions.send_pipe(Arc::clone(&pipe), bytes);
                self.piped = Piped::Leaves(pipe);
                len + bytes
            }
            as_before => {
                self.piped = as_before;
                len
            }
        }
    }

    fn send_bytes(&mut self, actions: &mut Actions<'_>) -> usize {
        let waiting = &self.bytes[self.sent..];
        let len = waiting.len().min(actions.room());
        actions.send(&waiting[..len]);
        self.sent += len;
        self.leaving_bytes += len;
        if self.keeps_sent && self.sent <= self.kept_bytes_max {
            return len;
        }
        self.keeps_sent = false;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
        } else {
            self.bytes.drain(..self.sent);
        }
        self.sent = 0;
        len
    }

    fn push(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.body_bytes += data.len() as u64;
        if self.frame == Frame::Plain {
            return self.bytes.extend_from_slice(data);
        }
        let mut head = [0; CHUNK_HEAD_BYTES_MAX];
        let head_bytes = write_chunk_head(&mut head, data.len() as u64).expect("room for any");
        self.bytes.extend_from_slice(&head[..head_bytes]);
        self.bytes.extend_from_slice(data);
        self.bytes.extend_from_slice(CHUNK_END);
    }

    fn finish(&mut self) {
        self.is_whole = true;
        if self.frame == Frame::Chunks {
            self.bytes.extend_from_slice(LAST_CHUNK);
        }
    }
}

/// A side of a pair, or of an exchange: what it sends goes into the channel of the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChannelEnd {
    Client = 0,
    Backend = 1,
}

impl ChannelEnd {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Backend,
            Self::Backend => Self::Client,
        }
    }
}

/// What both sides know.
#[derive(Debug)]
pub(crate) struct Pair {
    /// None for a side that is not there yet, or gone.
    pub(crate) ids: [Option<ConnectionId>; 2],
    pub(crate) channels: [Channel; 2],
    /// No side is encrypted: bytes may stay in the kernel.
    pub(crate) is_spliced: bool,
    pub(crate) is_paused: [bool; 2],
    pub(crate) is_woken: [bool; 2],
    pub(crate) has_ended_output: [bool; 2],
    /// Sessions that have it.
    pub(crate) sides: u8,
    pub(crate) group: usize,
    pub(crate) header: ProxyHeader,
    pub(crate) peer: Box<str>,
    pub(crate) backend: usize,
    pub(crate) tries: usize,
    /// Those before, which failed.
    pub(crate) tried: Tried,
    /// One side was cut: the other one has to be.
    pub(crate) fault: Option<Fault>,
    pub(crate) is_recorded: bool,
    pub(crate) began: Moment,
    pub(crate) connected: Option<Moment>,
    pub(crate) first_byte: Option<Moment>,
    /// When the last byte came, from either side.
    pub(crate) active: Moment,
}

impl Pair {
    /// That of a client that has no backend yet. Whose connection it is stands in `header`.
    pub(crate) fn new(
        client: ConnectionId,
        group: usize,
        header: ProxyHeader,
        is_spliced: bool,
        now: Moment,
    ) -> Self {
        let peer = header
            .source()
            .map_or_else(String::new, |source| source.ip().to_canonical().to_string());
        Self {
            ids: [Some(client), None],
            channels: Default::default(),
            is_spliced,
            is_paused: [false; 2],
            is_woken: [false; 2],
            has_ended_output: [false; 2],
            sides: 1,
            group,
            header,
            peer: peer.into(),
            backend: usize::MAX,
            tries: 0,
            tried: Tried::default(),
            fault: None,
            is_recorded: false,
            began: now,
            connected: None,
            first_byte: None,
            active: now,
        }
    }

    /// Whether all that this side will say was sent.
    pub(crate) fn is_done(&self, side: ChannelEnd) -> bool {
        self.channels[side as usize].is_done()
    }
}

/// The pairs of one loop, by number.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    all: Vec<Option<Pair>>,
    free: Vec<PairId>,
}

impl Pairs {
    pub(crate) fn begin(&mut self, pair: Pair) -> PairId {
        match self.free.pop() {
            Some(at) => {
                self.all[at.place()] = Some(pair);
                at
            }
            None => {
                self.all.push(Some(pair));
                PairId::of_place(self.all.len() - 1)
            }
        }
    }

    pub(crate) fn get_mut(&mut self, at: PairId) -> &mut Pair {
        self.all[at.place()].as_mut().expect("a pair is there as long as one of its sides")
    }

    pub(crate) fn end(&mut self, at: PairId) {
        self.all[at.place()] = None;
        self.free.push(at);
    }

    /// How many are under way.
    pub(crate) fn open(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
