//! What both sides of a stream know: the bytes under way, the sides that are there, how it ends, and the
//! pipes that bytes go through in the kernel.
//!
//! The sessions of [`Stream`](super::stream::Stream) find it by its number.

use std::sync::Arc;

use pollux_engine::{ConnectionId, Moment, Pipe};
use pollux_http::ProxyHeader;

use super::channel::Channel;
use super::fault::Fault;

/// A side of a pair: what it sends goes into the channel of the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Client = 0,
    Backend = 1,
}

impl Side {
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
            fault: None,
            is_recorded: false,
            began: now,
            connected: None,
            first_byte: None,
            active: now,
        }
    }

    /// Whether nothing that this side said is still to be sent.
    pub(super) fn is_empty(&self, side: Side) -> bool {
        let piped = &self.piped[side as usize];
        self.channels[side as usize].is_empty() && matches!(piped, Piped::Nothing)
    }

    /// Whether all that this side will say was sent.
    pub(super) fn is_done(&self, side: Side) -> bool {
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
const KEPT_MAX: usize = 64;

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
        if self.empty.len() < KEPT_MAX {
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
