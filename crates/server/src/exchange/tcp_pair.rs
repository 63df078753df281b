//! The two directions in TCP mode, as both sides know them: a
//! [`TcpSession`](crate::exchange::tcp::TcpSession) finds its [`TcpPair`] by its number.

use pollux_engine::{ConnectionId, Moment};
use pollux_http::ProxyHeader;

use crate::exchange::direction::{Direction, Side};
use crate::exchange::table::Tried;
use crate::fault::Fault;
use crate::ids::{BackendId, GroupId, TcpPairId};
use crate::places::Places;

/// What both sides know.
#[derive(Debug)]
pub(crate) struct TcpPair {
    /// None for a side that is not there yet, or gone.
    pub(crate) ids: [Option<ConnectionId>; 2],
    pub(super) directions: [Direction; 2],
    /// No side is encrypted: bytes may stay in the kernel.
    pub(super) is_spliced: bool,
    pub(super) is_paused: [bool; 2],
    pub(super) is_woken: [bool; 2],
    pub(super) has_ended_output: [bool; 2],
    /// Sessions that have it.
    pub(super) sides: u8,
    pub(crate) group: GroupId,
    pub(crate) header: ProxyHeader,
    pub(crate) peer: Box<str>,
    /// None until one was chosen.
    pub(crate) backend: Option<BackendId>,
    pub(crate) tries: usize,
    /// Those before, which failed.
    pub(crate) tried: Tried,
    /// One side was cut: the other one has to be.
    pub(crate) fault: Option<Fault>,
    pub(super) is_recorded: bool,
    pub(crate) began: Moment,
    pub(crate) connected: Option<Moment>,
    pub(crate) first_byte: Option<Moment>,
    /// When the last byte came, from either side.
    pub(crate) active: Moment,
}

impl TcpPair {
    /// That of a client that has no backend yet. Whose connection it is stands in `header`.
    pub(crate) fn new(
        client: ConnectionId,
        group: GroupId,
        header: ProxyHeader,
        is_spliced: bool,
        now: Moment,
    ) -> Self {
        let peer = header
            .source()
            .map_or_else(String::new, |source| source.ip().to_canonical().to_string());
        Self {
            ids: [Some(client), None],
            directions: Default::default(),
            is_spliced,
            is_paused: [false; 2],
            is_woken: [false; 2],
            has_ended_output: [false; 2],
            sides: 1,
            group,
            header,
            peer: peer.into(),
            backend: None,
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

    /// The backend of its other side, which is there.
    ///
    /// # Panics
    /// When none was chosen.
    pub(crate) fn chosen(&self) -> BackendId {
        self.backend.expect("a side that goes to a backend has one")
    }

    /// Whether all that this side will say was sent.
    pub(crate) fn is_done(&self, side: Side) -> bool {
        self.directions[side as usize].is_done()
    }
}

/// The pairs of one loop, by number.
#[derive(Debug, Default)]
pub(crate) struct TcpPairs(Places<TcpPairId, Option<TcpPair>>);

impl TcpPairs {
    pub(crate) fn begin(&mut self, pair: TcpPair) -> TcpPairId {
        self.0.put(Some(pair))
    }

    pub(crate) fn get_mut(&mut self, at: TcpPairId) -> &mut TcpPair {
        self.0.get_mut(at).as_mut().expect("a pair is there as long as one of its sides")
    }

    pub(crate) fn get(&self, at: TcpPairId) -> &TcpPair {
        self.0.get(at).as_ref().expect("a pair is there as long as one of its sides")
    }

    pub(crate) fn end(&mut self, at: TcpPairId) {
        *self.0.get_mut(at) = None;
        self.0.free(at);
    }

    /// How many are under way.
    pub(crate) fn open(&self) -> usize {
        self.0.in_use()
    }
}
