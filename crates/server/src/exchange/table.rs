//! One request with its answer, as both sides know it, and the upstream connections of a loop.
//!
//! ```text
//!  Client begins it ─► an upstream connection has it ─► answer begins ─► answer whole ─► Client ends it
//!                          │  ▲ a second try, when safe      │
//!                          └──┘                              └─► upgrade: a tunnel until either side ends
//! ```
//!
//! The client's session owns it: it is there from a sound request head to the end of its answer,
//! and gone when the client is. The upstream connection that has it is known by its link; both
//! directions of that knowledge change together, in [`Upstreams`](crate::exchange::upstreams::Upstreams), so neither ever
//! names one that is gone.

use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{ConnectionId, Moment};
use pollux_http::h2::ErrorCode;
use pollux_http::{ProxyHeader, RequestKind, Status};
use pollux_tls::SharedTls;

use crate::backends::passing::Pooled;
use crate::backends::pool::Ticket;
use crate::body_clock::BodyClock;
use crate::exchange::asker::Asker;
use crate::exchange::direction::{Direction, Side};
use crate::fault::{Fault, Party};
use crate::head::Version;
use crate::head::websocket::Accept;
use crate::ids::{BackendId, ExchangeId, FrontId, GroupId, PairId, RouteId, UpstreamId};
use crate::refusal::Refusal;

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
    pub(super) link: Option<UpstreamId>,
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
    /// The place of the front end that it came by.
    pub(crate) front: FrontId,
    /// What a backend is chosen by, where that counts.
    pub(super) key: u64,
    /// The route that leads to its backends, where there are sites.
    pub(crate) route: Option<RouteId>,
    /// The rules for fields of its answer that apply to its path.
    pub(crate) rules: u64,
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
    /// What the backend has to answer then, where the asker is a stream: its client knows no key.
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
    /// Names of fields that its client has marked as never to be put into a table of HPACK, each with a line feed behind it.
    pub(super) never_indexed: Vec<u8>,
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
    pub(crate) fn of(stage: Stage, fault: Fault) -> Self {
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
            link: None,
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
            front: FrontId::default(),
            key: 0,
            route: None,
            rules: 0,
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
            never_indexed: Vec::new(),
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
        self.link.is_some()
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
        self.accept.is_some()
    }

    /// It came to this stage, if it was not further before: a second try goes no step back.
    pub(super) fn reach(&mut self, stage: Stage) {
        self.stage = self.stage.max(stage);
    }

    /// What its asker has to do, where something went wrong.
    pub(crate) fn next(&self) -> Option<Next> {
        self.fault.map(|fault| Next::of(self.stage, fault))
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
        self.never_indexed.clear();
        (self.link, self.backend, self.fault) = (None, None, None);
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

/// The exchanges of one loop, by number. The one that was freed last is used next: its memory is
/// warm.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    all: Vec<Exchange>,
    free: Vec<ExchangeId>,
}

impl Exchanges {
    /// Begins one.
    pub(crate) fn begin(&mut self, asker: Asker, began: Moment) -> ExchangeId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.all.push(Exchange::new(asker));
            ExchangeId::of_place(self.all.len() - 1)
        });
        let exchange = &mut self.all[at.place()];
        (exchange.asker, exchange.times.began) = (asker, began);
        exchange.moved = began;
        exchange.body_clock = BodyClock::started(began);
        at
    }

    /// Makes the number free; nothing names it any more.
    pub(crate) fn end(&mut self, at: ExchangeId) {
        let exchange = &mut self.all[at.place()];
        debug_assert!(exchange.link.is_none(), "an upstream connection still has it");
        debug_assert!(exchange.ticket.is_none(), "it still waits for one");
        exchange.reset();
        self.free.push(at);
    }

    /// Drops what is kept for the next exchanges, and the places behind the last one that is in use.
    pub(crate) fn release_memory(&mut self) {
        let len = used_len(self.all.len(), self.free.iter().map(|at| at.place()));
        self.all.truncate(len);
        self.all.shrink_to_fit();
        self.free.retain(|at| at.place() < len);
        self.free.shrink_to_fit();
        for at in &self.free {
            let exchange = &mut self.all[at.place()];
            exchange.request.release_memory();
            exchange.response.release_memory();
            (exchange.line, exchange.never_indexed) = (Vec::new(), Vec::new());
        }
    }

    pub(crate) fn get_mut(&mut self, at: ExchangeId) -> &mut Exchange {
        &mut self.all[at.place()]
    }

    pub(crate) fn get(&self, at: ExchangeId) -> &Exchange {
        &self.all[at.place()]
    }

    /// All that are under way, and places that are free.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ExchangeId, &Exchange)> {
        self.all.iter().enumerate().map(|(place, exchange)| (ExchangeId::of_place(place), exchange))
    }

    /// The one of a number that may be no more.
    pub(super) fn find_mut(&mut self, at: ExchangeId) -> Option<&mut Exchange> {
        self.all.get_mut(at.place())
    }

    /// How many are under way.
    pub(crate) fn open(&self) -> usize {
        self.all.len() - self.free.len()
    }
}

/// How many of so many places there are up to the last one that is not free: a table may be so short.
pub(super) fn used_len(places: usize, free: impl Iterator<Item = usize>) -> usize {
    let mut is_free = vec![false; places];
    free.for_each(|place| is_free[place] = true);
    is_free.iter().rposition(|is_free| !is_free).map_or(0, |last| last + 1)
}

/// One upstream connection.
///
/// ```text
///  Connecting ── connected ──► Busy ── answer whole ──► Idle ── next request ──► Busy
///       └────────── closed ──────┴──────── closed ────────┴──► gone
///
///  Idle:  Here ── end of the turn, where other loops may take it ──► Shelved ── taken ──► elsewhere
/// ```
///
/// One that another loop has taken keeps its link until this loop lets go of its descriptor. One of HTTP/2 stays with its
/// loop, and carries many requests (`multiplex.rs`).
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) backend: BackendId,
    /// None until it is connected.
    pub(crate) id: Option<ConnectionId>,
    /// The request that it has, where it has one at a time.
    pub(crate) exchange: Option<ExchangeId>,
    /// Those that it has, where it carries many.
    pub(super) streams: Option<Box<LinkStreams>>,
    /// It was woken and has not been called yet.
    pub(super) is_woken: bool,
    /// Its request was taken away in the middle: nothing that comes belongs to another one.
    pub(super) is_cut: bool,
    pub(crate) idle: Idle,
    /// Its encryption, until other loops may take it.
    pub(crate) tls: Option<SharedTls>,
    /// What other loops may take it by.
    pub(super) pooled: Option<Arc<Pooled>>,
}

/// What a loop knows of a connection of HTTP/2 beside its session.
#[derive(Debug)]
pub(super) struct LinkStreams {
    /// Requests that it has, with a stream or without.
    pub(super) carried: u32,
    /// So many it may have.
    pub(super) streams_max: u32,
    /// It has none, and is counted as such.
    pub(super) is_idle: bool,
    /// Requests that its session has to look at.
    pub(super) ready: Vec<ExchangeId>,
    /// Since when its output waits.
    pub(super) stands_since: Option<Moment>,
    /// Streams whose requests were taken from it.
    pub(super) dropped: Vec<u32>,
}

/// Where an upstream connection without a request is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Idle {
    /// It is not idle, or another loop has it.
    No,
    /// With this loop.
    Here,
    /// In the pool of all loops.
    Shelved,
}

/// What a connection to a backend is opened for, with its encryption: the session on it is made of this.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) purpose: Purpose,
    pub(crate) tls: Option<SharedTls>,
}

/// What a connection to a backend is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Requests, by the link of this number.
    Requests(UpstreamId),
    /// The same on its streams.
    Streams(UpstreamId),
    /// A check of this backend.
    Check(BackendId),
    /// The stream of this pair.
    Stream(PairId),
}

/// The upstream connections of one loop, by number, and those of each backend that it keeps idle.
#[derive(Debug)]
pub(crate) struct Links {
    all: Vec<Link>,
    free: Vec<UpstreamId>,
    /// The one that was used last is taken first: the others may be closed in peace.
    here: Vec<Vec<UpstreamId>>,
    /// Those of HTTP/2 that take requests, by backend.
    pub(super) multiplexed: Vec<Vec<UpstreamId>>,
    /// How many of them each backend has allowed on a connection last.
    pub(super) streams_max: Vec<u32>,
}

impl Links {
    pub(crate) fn new(backends: usize) -> Self {
        let none = || vec![Vec::new(); backends];
        let streams_max = vec![u32::MAX; backends];
        Self { all: Vec::new(), free: Vec::new(), here: none(), multiplexed: none(), streams_max }
    }

    /// A connection that is about to be there.
    pub(crate) fn begin(&mut self, backend: BackendId, exchange: Option<ExchangeId>) -> UpstreamId {
        let link = Link {
            backend,
            id: None,
            exchange,
            streams: None,
            is_woken: false,
            is_cut: false,
            idle: Idle::No,
            tls: None,
            pooled: None,
        };
        match self.free.pop() {
            Some(at) => {
                self.all[at.place()] = link;
                at
            }
            None => {
                self.all.push(link);
                UpstreamId::of_place(self.all.len() - 1)
            }
        }
    }

    pub(crate) fn get_mut(&mut self, at: UpstreamId) -> &mut Link {
        &mut self.all[at.place()]
    }

    pub(crate) fn get(&self, at: UpstreamId) -> &Link {
        &self.all[at.place()]
    }

    /// Whether this loop keeps an idle connection to `backend`.
    pub(super) fn has_here(&self, backend: BackendId) -> bool {
        !self.here[backend.place()].is_empty()
    }

    /// Takes an idle connection to `backend` that this loop keeps.
    pub(super) fn take_here(&mut self, backend: BackendId) -> Option<UpstreamId> {
        let at = self.here[backend.place()].pop()?;
        self.all[at.place()].idle = Idle::No;
        Some(at)
    }

    /// Takes the one that this loop has kept longest, to the backend to which it keeps most.
    pub(super) fn take_oldest_here(&mut self) -> Option<UpstreamId> {
        let here = self.here.iter_mut().max_by_key(|here| here.len())?;
        if here.is_empty() {
            return None;
        }
        let at = here.remove(0);
        self.all[at.place()].idle = Idle::No;
        Some(at)
    }

    /// Keeps a connection that has no request.
    pub(super) fn keep_here(&mut self, at: UpstreamId) {
        let link = &mut self.all[at.place()];
        link.idle = Idle::Here;
        self.here[link.backend.place()].push(at);
    }

    /// Keeps it here no more; false when it was not.
    pub(super) fn remove_idle_local(&mut self, at: UpstreamId) -> bool {
        let link = &mut self.all[at.place()];
        if link.idle != Idle::Here {
            return false;
        }
        link.idle = Idle::No;
        let here = &mut self.here[link.backend.place()];
        let place = here.iter().rposition(|each| *each == at);
        here.remove(place.expect("what is idle here is on the list"));
        true
    }

    /// Forgets a connection that is gone, and was taken out of the idle ones.
    pub(crate) fn end(&mut self, at: UpstreamId) {
        debug_assert!(!self.free.contains(&at), "a link ends once");
        let link = &mut self.all[at.place()];
        (link.tls, link.pooled, link.streams) = (None, None, None);
        self.free.push(at);
    }

    /// The session of a link, if that is in the pool, or was taken from there.
    pub(super) fn id_of_shelved(&self, at: UpstreamId) -> Option<ConnectionId> {
        let link = self.all.get(at.place())?;
        link.id.filter(|_| link.idle == Idle::Shelved)
    }

    /// Connections that are open or being opened.
    pub(crate) fn open(&self) -> usize {
        self.all.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_ends_with_the_last_place_that_is_in_use() {
        for (places, free, expected) in [
            (0, &[][..], 0),
            (3, &[], 3),
            (3, &[0, 1], 3),
            (3, &[2], 2),
            (4, &[3, 1], 3),
            (4, &[2, 0, 3], 2),
            (4, &[3, 0, 2, 1], 0),
        ] {
            assert_eq!(used_len(places, free.iter().copied()), expected, "{places} {free:?}");
        }
    }
}
