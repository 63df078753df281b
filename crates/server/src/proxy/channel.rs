//! The bytes of one direction: taken from one connection, framed anew, and kept until the other connection
//! takes them; and the pair of two directions that is a stream of TCP mode.
//!
//! ```text
//!  input ─► reader: where does the body end? ─► framing anew ─► bytes ─► output of the other side
//!                                                  bounded ▲        sent ─► kept for a second try
//! ```
//!
//! A channel knows no connection. One that is full takes nothing more: its filler pauses, and is woken when
//! there is room. The sessions of [`Stream`](super::stream::Stream) find their [`Pair`] by its number; its bytes
//! may go through pipes in the kernel instead.

use std::sync::Arc;

use pollux_engine::{Actions, ConnectionId, Moment, Pipe};
use pollux_http::{
    BodyReader, CHUNK_END, CHUNK_HEAD_BYTES_MAX, Framing, LAST_CHUNK, Limits, ProxyHeader,
    Rejection, write_chunk_head,
};

use super::exchange::Tried;
use super::fault::Fault;

/// A channel with that much waiting is full. What one call of a filler adds may exceed it by [`PIECE_BYTES_MAX`].
const WAITING_BYTES_MAX: usize = 32 * 1024;
/// What is added at a time: as much as is received at a time.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// What was sent of a request is kept for a second try up to this much.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// Room that a channel keeps for the next exchange.
const ROOM_KEPT: usize = 16 * 1024;

/// How body bytes are framed on their way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Frame {
    /// As they are: a known length, the end of the connection, or no HTTP at all.
    #[default]
    Plain,
    /// In chunks.
    Chunks,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Channel {
    bytes: Vec<u8>,
    /// How many of them the other side was given.
    sent: usize,
    /// What the other side was given last and has not left it yet, as far as that is known.
    leaving_bytes: usize,
    /// What was sent stays in front, for a second try.
    keeps_sent: bool,
    reader: BodyReader,
    frame: Frame,
    /// All of it was taken from its connection.
    pub(super) is_whole: bool,
    /// What was given to the other side last has not left it yet.
    pub(super) is_leaving: bool,
    /// Body bytes, without framing.
    pub(super) body_bytes: u64,
}

impl Default for Channel {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            sent: 0,
            leaving_bytes: 0,
            keeps_sent: false,
            reader: BodyReader::new(Framing::None, &Limits::default()),
            frame: Frame::Plain,
            is_whole: false,
            is_leaving: false,
            body_bytes: 0,
        }
    }
}

impl Channel {
    /// Makes it anew for the next exchange; keeps some of its room.
    pub(super) fn reset(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(ROOM_KEPT);
        (self.sent, self.leaving_bytes) = (0, 0);
        (self.keeps_sent, self.frame) = (false, Frame::Plain);
        (self.is_whole, self.is_leaving, self.body_bytes) = (false, false, 0);
    }

    /// Drops the room of one that is not in use.
    pub(super) fn release_memory(&mut self) {
        self.bytes = Vec::new();
    }

    /// Where a head is written, in front of all body bytes.
    pub(super) fn head(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What follows the head: a body that `reader` finds the end of.
    pub(super) fn begin_body(&mut self, reader: BodyReader, frame: Frame) {
        self.is_whole = reader.is_done();
        (self.reader, self.frame) = (reader, frame);
    }

    /// Nothing follows the head.
    pub(super) fn begin_without_body(&mut self) {
        (self.is_whole, self.frame) = (true, Frame::Plain);
    }

    /// Keeps what is sent, for a second try, as long as it is not too much.
    pub(super) fn keep_sent(&mut self) {
        self.keeps_sent = true;
    }

    /// Keeps nothing for a second try any more.
    pub(super) fn forget_sent(&mut self) {
        if std::mem::replace(&mut self.keeps_sent, false) {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Begins anew with the first byte; false when that is gone.
    pub(super) fn rewind(&mut self) -> bool {
        if self.keeps_sent {
            (self.sent, self.leaving_bytes, self.is_leaving) = (0, 0, false);
        }
        self.keeps_sent
    }

    /// Whether the other side was given anything of it.
    pub(super) fn has_begun_to_leave(&self) -> bool {
        self.sent > 0 || !self.keeps_sent
    }

    fn waiting(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether nothing waits for the other side.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Whether it takes nothing more for now. What the other side has and can't get rid of counts too: a peer that reads
    /// nothing is not to cost it twice.
    pub(super) fn is_full(&self) -> bool {
        self.waiting() + self.leaving_bytes >= WAITING_BYTES_MAX
    }

    /// What was given to the other side has left it; says whether there is room again for that reason.
    pub(super) fn has_left(&mut self) -> bool {
        let was_full = self.is_full();
        (self.leaving_bytes, self.is_leaving) = (0, false);
        was_full && !self.is_full()
    }

    /// Whether all of it was taken and given on.
    pub(super) fn is_done(&self) -> bool {
        self.is_whole && self.is_empty()
    }

    /// Takes body bytes until the body ends or the channel is full; says how many bytes it used.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub(super) fn take(&mut self, input: &[u8]) -> Result<usize, Rejection> {
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
    pub(super) fn take_raw(&mut self, input: &[u8]) -> usize {
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
    pub(super) fn end(&mut self) -> Result<(), Rejection> {
        if !self.is_whole {
            self.reader.end()?;
            self.finish();
        }
        Ok(())
    }

    /// Gives the other side what its room takes; says how much that was.
    pub(super) fn send(&mut self, actions: &mut Actions<'_>) -> usize {
        let waiting = &self.bytes[self.sent..];
        let len = waiting.len().min(actions.room());
        actions.send(&waiting[..len]);
        self.sent += len;
        self.leaving_bytes += len;
        if self.keeps_sent && self.sent <= KEPT_BYTES_MAX {
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

/// A side of a pair: what it sends goes into the channel of the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChannelEnd {
    Client = 0,
    Backend = 1,
}

impl ChannelEnd {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Backend,
            Self::Backend => Self::Client,
        }
    }
}

/// What a channel has in a pipe.
#[derive(Debug, Default)]
pub(super) enum Piped {
    #[default]
    Nothing,
    /// So many bytes, for the other side to send.
    Waits(Arc<Pipe>, u64),
    /// The other side sends it.
    Leaves(Arc<Pipe>),
}

/// What both sides know.
#[derive(Debug)]
pub(super) struct Pair {
    /// None for a side that is not there yet, or gone.
    pub(super) ids: [Option<ConnectionId>; 2],
    pub(super) channels: [Channel; 2],
    pub(super) piped: [Piped; 2],
    /// No side is encrypted: bytes may stay in the kernel.
    pub(super) is_spliced: bool,
    pub(super) is_paused: [bool; 2],
    pub(super) is_woken: [bool; 2],
    pub(super) has_ended_output: [bool; 2],
    /// Sessions that have it.
    pub(super) sides: u8,
    pub(super) group: usize,
    pub(super) header: ProxyHeader,
    pub(super) peer: Box<str>,
    pub(super) backend: usize,
    pub(super) tries: usize,
    /// Those before, which failed.
    pub(super) tried: Tried,
    /// One side was cut: the other one has to be.
    pub(super) fault: Option<Fault>,
    pub(super) is_recorded: bool,
    pub(super) began: Moment,
    pub(super) connected: Option<Moment>,
    pub(super) first_byte: Option<Moment>,
    /// When the last byte came, from either side.
    pub(super) active: Moment,
}

impl Pair {
    /// That of a client that has no backend yet. Whose connection it is stands in `header`.
    pub(super) fn new(
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
            piped: Default::default(),
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

    /// Whether nothing that this side said is still to be sent.
    pub(super) fn is_empty(&self, side: ChannelEnd) -> bool {
        let piped = &self.piped[side as usize];
        self.channels[side as usize].is_empty() && matches!(piped, Piped::Nothing)
    }

    /// Whether all that this side will say was sent.
    pub(super) fn is_done(&self, side: ChannelEnd) -> bool {
        self.channels[side as usize].is_whole && self.is_empty(side)
    }
}

/// The pairs of one loop, by number.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    all: Vec<Option<Pair>>,
    free: Vec<u32>,
}

impl Pairs {
    pub(super) fn begin(&mut self, pair: Pair) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.all[at as usize] = Some(pair);
                at
            }
            None => {
                self.all.push(Some(pair));
                self.all.len() as u32 - 1
            }
        }
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut Pair {
        self.all[at as usize].as_mut().expect("a pair is there as long as one of its sides")
    }

    pub(super) fn end(&mut self, at: u32) {
        self.all[at as usize] = None;
        self.free.push(at);
    }

    /// How many are under way.
    pub(super) fn open(&self) -> usize {
        self.all.len() - self.free.len()
    }
}

/// Empty pipes that a loop keeps.
const PIPES_KEPT_MAX: usize = 64;

/// The pipes of one loop.
///
/// The pipes that bytes of streams go through, so that they stay in the kernel: a bounded number for each
/// loop, held only while something is in them.
#[derive(Debug)]
pub(super) struct Pipes {
    empty: Vec<Arc<Pipe>>,
    open: usize,
    open_max: usize,
}

impl Pipes {
    pub(super) fn new(open_max: usize) -> Self {
        Self { empty: Vec::new(), open: 0, open_max }
    }

    /// Whether bytes may go through pipes at all.
    pub(super) fn is_on(&self) -> bool {
        self.open_max > 0
    }

    /// Whether one may be used.
    pub(super) fn has_one(&self) -> bool {
        !self.empty.is_empty() || self.open < self.open_max
    }

    /// An empty one; none when there are as many as may be, or no descriptor is left.
    pub(super) fn take(&mut self) -> Option<Arc<Pipe>> {
        if let Some(pipe) = self.empty.pop() {
            return Some(pipe);
        }
        if self.open >= self.open_max {
            return None;
        }
        let pipe = Pipe::open().ok()?;
        self.open += 1;
        Some(Arc::new(pipe))
    }

    /// One that is empty again.
    pub(super) fn put(&mut self, pipe: Arc<Pipe>) {
        if self.empty.len() < PIPES_KEPT_MAX {
            self.empty.push(pipe);
        } else {
            self.open -= 1;
        }
    }

    /// One whose connection is gone: the bytes in it are dropped.
    pub(super) fn give_up(&mut self, pipe: Arc<Pipe>) {
        self.open -= 1;
        drop(pipe);
    }
}
