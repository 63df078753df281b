//! One request with its answer, as both sides know it.
//!
//! ```text
//!  Client begins it ─► an upstream connection has it ─► answer begins ─► answer whole ─► Client ends it
//!                          │  ▲ a second try, when safe      │
//!                          └──┘                              └─► upgrade: a tunnel until either side ends
//! ```
//!
//! The client's session owns it: it is there from a sound request head to the end of its answer,
//! and gone when the client is. The upstream connection that has it is known by its number; both
//! directions of that knowledge change together, in [`ProxyLoop`](crate::exchange::proxy_loop::ProxyLoop), so neither ever
//! names one that is gone.

use std::time::Duration;

use pollux_engine::Moment;
use pollux_http::h2::ErrorCode;
use pollux_http::{ProxyHeader, RequestKind, Status};

use crate::backends::pool::Ticket;
use crate::body_clock::BodyClock;
use crate::exchange::asker::Asker;
use crate::exchange::direction::{Direction, Side};
use crate::fault::{Fault, Party};
use crate::head::Version;
use crate::head::changed::Wishes;
use crate::head::websocket::Accept;
use crate::ids::{
    BackendId, EpochId, ExchangeId, FieldSetId, GroupId, RouteCountId, RouteId, UpstreamId,
};
use crate::places::Places;
use crate::refusal::Refusal;
use crate::sticky::Brought;

/// Backends that a request may be offered to where each refuses the connection, which costs nothing of it, and little
/// time.
pub(crate) const OFFERS_MAX: usize = 8;

/// A request under way.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) asker: Asker,
    /// The asker was woken and has not come yet.
    pub(crate) is_asker_woken: bool,
    /// The asker is paused until the backend takes more of the request; of a stream, what it has sent waits for that.
    pub(crate) is_asker_paused: bool,
    /// The upstream connection that has it.
    pub(super) upstream: Option<UpstreamId>,
    /// That is of HTTP/2 and carries others beside it.
    pub(super) is_multiplexed: bool,
    /// Its stream there, once that has begun; 0 before.
    pub(super) stream: u32,
    /// The session of that connection is going to look at it.
    pub(super) is_ready: bool,
    /// By when something has to happen to it there.
    pub(super) upstream_deadline: Moment,
    /// Bytes of its answer's body of which the window was given back there.
    pub(super) released: u64,
    /// How often it went to another connection before it was sent.
    pub(super) moves: usize,
    /// What its backend has reset that stream with, within the answer.
    pub(crate) reset_code: Option<ErrorCode>,
    /// The answer ended with its head, as its backend said by that.
    pub(crate) ends_with_head: bool,
    /// Its place in the queue for one.
    pub(super) ticket: Option<Ticket>,
    /// It waits no more, which the client's session does not know yet.
    pub(crate) was_queued: bool,
    /// Whether that one was idle before.
    pub(super) is_reused: bool,
    /// The group of backends that may have it.
    pub(crate) group: GroupId,
    /// Whose it is, where a PROXY head says so in front of the connection.
    pub(super) header: ProxyHeader,
    /// The backend that had it last.
    pub(super) backend: Option<BackendId>,
    /// Those before, which failed.
    pub(super) tried: Tried,
    /// What a backend is chosen by, where that counts.
    pub(super) key: u64,
    /// What its client brought of the cookie of its group.
    pub(super) brought: Brought,
    /// The settings that it goes by; none of a tunnel, nor before it begins.
    pub(super) epoch: Option<EpochId>,
    /// The route that leads to its backends, where there are sites.
    pub(crate) route: Option<RouteId>,
    /// Where its answer is counted by that.
    pub(super) counted: Option<RouteCountId>,
    /// Of a tunnel: how long nothing may be said.
    pub(super) tunnel_timeout: Duration,
    /// What is done to its fields, and those of its answer.
    pub(crate) fields: FieldSetId,
    /// The rules of these for its answer that apply to its path.
    pub(crate) rules: u64,
    /// What of the changes of answers its client wants.
    pub(super) wishes: Wishes,
    /// Upstream connections that had it.
    pub(super) tries: u32,
    pub(crate) kind: RequestKind,
    /// Sent twice it does no more than once (RFC 9110 9.2.2).
    pub(super) is_idempotent: bool,
    /// What the client speaks.
    pub(crate) version: Version,
    /// No request may follow on the client's connection.
    pub(crate) is_last: bool,
    /// It asks for a WebSocket.
    pub(super) wants_upgrade: bool,
    /// What proves then that the key was understood, where one side has it: the backend has to answer this to an asker that is
    /// a stream; a client of HTTP/1.1 gets it where the backend answers by one.
    pub(super) accept: Option<Accept>,
    pub(super) stage: Stage,
    /// Interim answers so far.
    pub(super) interims: u32,
    /// Neither side is encrypted: bytes of bodies may stay in the kernel.
    pub(super) may_splice: bool,
    pub(crate) fault: Option<Fault>,
    /// Of a stream: bytes that its asker keeps until it is a tunnel.
    pub(super) early_bytes: usize,
    /// Of a stream: those and the bytes of both messages, as they were counted last.
    pub(super) held_bytes: usize,
    /// Of a stream: when something of it left last, on either side, or when it began.
    pub(super) moved: Moment,
    /// By when more of the request's body has to come.
    pub(super) body_clock: BodyClock,
    /// How long the time that it goes by has stood on the asker's connection, beside what it stood itself.
    pub(super) stood: Duration,
    pub(crate) request: Direction,
    pub(crate) response: Direction,
    /// Of the answer; none while there is no head of one.
    pub(crate) status: Option<Status>,
    /// Why the answer is a page that refuses what the client did, where it is one.
    pub(crate) refusal: Option<Refusal>,
    pub(super) times: Times,
    /// The request's method and target for the log; empty without one.
    pub(super) line: Vec<u8>,
    /// The id of the request; empty where it has none.
    pub(super) id: Vec<u8>,
    /// The host that the backend is asked for, where its route changes paths; else empty.
    pub(super) host: Vec<u8>,
}

/// How far a request came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    /// It has had no upstream connection.
    Queued,
    /// One is being opened.
    Connecting,
    /// It is being sent.
    Requesting,
    /// All of it was sent.
    Waiting,
    /// The head of the answer is there; nothing of it has left.
    Answering,
    /// Some of the answer has left: there is no other one any more.
    Committed,
    /// It was upgraded: bytes go both ways.
    Tunnel,
}

impl Stage {
    /// The word of the log.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queue",
            Self::Connecting => "connect",
            Self::Requesting => "request",
            Self::Waiting => "wait",
            Self::Answering | Self::Committed => "answer",
            Self::Tunnel => "tunnel",
        }
    }
}

/// What becomes of a request of which something went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Another upstream connection has it, or it waits for one.
    Retry,
    /// The client gets a page.
    Page(Fault),
    /// Some of an answer has left: the client's connection is cut.
    Cut,
}

impl Next {
    /// Once some of an answer has left there is no other one.
    pub(crate) fn after_fault(stage: Stage, fault: Fault) -> Self {
        if stage >= Stage::Committed { Self::Cut } else { Self::Page(fault) }
    }
}

/// Backends that failed a request, or a stream, which goes to others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried {
    places: [u32; OFFERS_MAX],
    len: usize,
}

impl Tried {
    /// This one failed too. Beyond as many as may be tried none is noted.
    pub(crate) fn add(&mut self, backend: BackendId) {
        if let Some(place) = self.places.get_mut(self.len) {
            *place = backend.place() as u32;
            self.len += 1;
        }
    }

    /// Whether it failed.
    pub(crate) fn has(&self, backend: BackendId) -> bool {
        self.places[..self.len].iter().any(|place| *place as usize == backend.place())
    }
}

/// When what happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(super) began: Moment,
    /// It came to wait for a connection first.
    pub(super) queued: Option<Moment>,
    /// A connect was begun for it, or an idle connection was found.
    pub(super) assigned: Option<Moment>,
    pub(super) connected: Option<Moment>,
    /// The head of the answer proper was there.
    pub(super) first_byte: Option<Moment>,
}

impl Exchange {
    fn new(asker: Asker) -> Self {
        let mut exchange = Self {
            asker,
            is_asker_woken: false,
            is_asker_paused: false,
            upstream: None,
            is_multiplexed: false,
            stream: 0,
            is_ready: false,
            upstream_deadline: Moment::NEVER,
            released: 0,
            moves: 0,
            reset_code: None,
            ends_with_head: false,
            ticket: None,
            was_queued: false,
            is_reused: false,
            group: GroupId::default(),
            header: ProxyHeader::Own,
            backend: None,
            tried: Tried::default(),
            key: 0,
            brought: Brought::default(),
            epoch: None,
            route: None,
            counted: None,
            tunnel_timeout: Duration::ZERO,
            fields: FieldSetId::default(),
            rules: 0,
            wishes: Wishes::default(),
            tries: 0,
            kind: RequestKind::Other,
            is_idempotent: false,
            version: Version::default(),
            is_last: false,
            wants_upgrade: false,
            accept: None,
            stage: Stage::Queued,
            interims: 0,
            may_splice: false,
            fault: None,
            early_bytes: 0,
            held_bytes: 0,
            moved: Moment::default(),
            body_clock: BodyClock::default(),
            stood: Duration::ZERO,
            request: Direction::default(),
            response: Direction::default(),
            status: None,
            refusal: None,
            times: Times::default(),
            line: Vec::new(),
            id: Vec::new(),
            host: Vec::new(),
        };
        exchange.reset();
        exchange
    }

    /// What this side sends.
    pub(super) fn sent_by(&self, side: Side) -> &Direction {
        match side {
            Side::Client => &self.request,
            Side::Backend => &self.response,
        }
    }

    /// The same, to be changed.
    pub(crate) fn direction(&mut self, side: Side) -> &mut Direction {
        match side {
            Side::Client => &mut self.request,
            Side::Backend => &mut self.response,
        }
    }

    /// How many bytes of the body of this side may still go through pipes; none where it has to go through buffers.
    pub(super) fn spliceable(&self, side: Side) -> Option<u64> {
        let direction = self.sent_by(side);
        let has_body = !direction.is_whole() && (side == Side::Client || self.has_answer());
        let may_splice = self.may_splice && has_body && !self.is_tunnel();
        direction.spliceable().filter(|_| may_splice)
    }

    /// The settings that it goes by; none of a tunnel.
    pub(crate) fn epoch(&self) -> Option<EpochId> {
        self.epoch
    }

    /// The time of its request's body.
    #[inline]
    pub(super) fn body_time(&self, now: Moment) -> Moment {
        Moment::from_nanos(now.as_nanos().saturating_sub(self.stood.as_nanos() as u64))
    }

    /// Whether it is a tunnel that both sides may still use.
    pub(super) fn is_open_tunnel(&self) -> bool {
        self.is_tunnel() && !self.request.is_whole() && !self.response.is_whole()
    }

    /// Whether it may be asked again without being done twice: no backend was sent anything of it, or has looked at it, or
    /// twice is as good as once (RFC 9110 9.2.2).
    pub(super) fn is_retry_safe(&self) -> bool {
        let is_unseen = self.fault == Some(Fault::Refused);
        self.is_idempotent || is_unseen || !self.request.has_begun_to_leave()
    }

    /// Whether the head of an answer is there.
    pub(super) fn has_answer(&self) -> bool {
        self.stage >= Stage::Answering
    }

    /// Whether an upstream connection has it.
    pub(crate) fn has_backend(&self) -> bool {
        self.upstream.is_some()
    }

    /// Whether some of the answer has left.
    pub(crate) fn is_committed(&self) -> bool {
        self.stage >= Stage::Committed
    }

    pub(crate) fn is_tunnel(&self) -> bool {
        self.stage == Stage::Tunnel
    }

    /// Whether it is a stream that is to become a tunnel.
    pub(crate) fn wants_tunnel(&self) -> bool {
        self.wants_upgrade && self.asker.is_stream()
    }

    /// It came to this stage, if it was not further before: a second try goes no step back.
    pub(super) fn reach(&mut self, stage: Stage) {
        self.stage = self.stage.max(stage);
    }

    /// What its asker has to do, where something went wrong.
    pub(crate) fn next(&self) -> Option<Next> {
        self.fault.map(|fault| Next::after_fault(self.stage, fault))
    }

    /// Has the request begin anew with its first byte, for another try; false when that is gone.
    pub(super) fn rewind(&mut self) -> bool {
        let can_begin_anew = self.request.rewind();
        if can_begin_anew {
            self.reset_code = None;
            self.stage = self.stage.min(Stage::Requesting);
        }
        can_begin_anew
    }

    /// A fault in words for the client: what it was, how far the request came, and whether a retry is safe.
    pub(crate) fn details(&self, fault: Fault) -> String {
        let advice = match (fault.party(), self.is_retry_safe()) {
            (Party::Client, _) => "",
            (_, true) => ", a retry is safe",
            (_, false) => ", it may have been done: a retry is not safe",
        };
        format!("{}/{}{advice}", fault.name(), self.state())
    }

    /// How far it came, for the log.
    pub(crate) fn state(&self) -> &'static str {
        if self.ticket.is_some() { Stage::Queued.name() } else { self.stage.name() }
    }

    /// As new, but for the room of its messages.
    fn reset(&mut self) {
        self.request.reset();
        self.response.reset();
        self.line.clear();
        self.host.clear();
        self.id.clear();
        (self.upstream, self.backend, self.fault) = (None, None, None);
        (self.is_multiplexed, self.stream, self.is_ready) = (false, 0, false);
        (self.upstream_deadline, self.released, self.moves) = (Moment::NEVER, 0, 0);
        (self.reset_code, self.ends_with_head) = (None, false);
        self.tried = Tried::default();
        self.was_queued = false;
        (self.is_asker_woken, self.is_reused, self.wants_upgrade) = (false, false, false);
        (self.stage, self.is_asker_paused) = (Stage::Queued, false);
        (self.tries, self.interims, self.status) = (0, 0, None);
        (self.refusal, self.accept, self.early_bytes) = (None, None, 0);
        self.times = Times::default();
        self.stood = Duration::ZERO;
    }
}

/// The exchanges of one loop, by number. A free one keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Exchanges(Places<ExchangeId, Exchange>);

impl Exchanges {
    /// Begins one.
    pub(crate) fn begin(&mut self, asker: Asker, began: Moment) -> ExchangeId {
        let at = self.0.reuse(|| Exchange::new(asker));
        let exchange = self.0.get_mut(at);
        (exchange.asker, exchange.times.began) = (asker, began);
        exchange.moved = began;
        exchange.body_clock = BodyClock::started(began);
        at
    }

    /// Makes the number free; nothing names it any more.
    pub(crate) fn end(&mut self, at: ExchangeId) {
        let exchange = self.0.get_mut(at);
        debug_assert!(exchange.upstream.is_none(), "an upstream connection still has it");
        debug_assert!(exchange.ticket.is_none(), "it still waits for one");
        debug_assert!(exchange.epoch.is_none(), "it still holds its settings");
        exchange.reset();
        self.0.free(at);
    }

    /// Drops what is kept for the next exchanges, and the places behind the last one that is in use.
    pub(crate) fn release_memory(&mut self) {
        self.0.release_memory(|exchange| {
            exchange.request.release_memory();
            exchange.response.release_memory();
            exchange.line = Vec::new();
            exchange.host = Vec::new();
        });
    }

    pub(crate) fn get_mut(&mut self, at: ExchangeId) -> &mut Exchange {
        self.0.get_mut(at)
    }

    pub(crate) fn get(&self, at: ExchangeId) -> &Exchange {
        self.0.get(at)
    }

    /// All that are under way, and places that are free.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ExchangeId, &Exchange)> {
        self.0.iter()
    }

    /// The one of a number that may be no more.
    pub(super) fn find_mut(&mut self, at: ExchangeId) -> Option<&mut Exchange> {
        self.0.find_mut(at)
    }

    /// How many are under way.
    pub(crate) fn open(&self) -> usize {
        self.0.in_use()
    }
}
