//! What can go wrong between a request and the end of its answer: whose fault it is, what the
//! client gets while no answer has begun, and what the log calls it; and
//! the counts of faults and of all else that only a proxy counts.
//!
//! Once an answer has begun nothing can be taken back: the client's connection is cut, so that no
//! half of an answer passes for a whole one. Only a loop's thread writes its counters; the endpoints read.

use std::io;
use std::sync::OnceLock;

use pollux_engine::{CloseCause, named_counters};
use pollux_http::Status;
use pollux_http::h2::ErrorCode;
use pollux_poller::Count;
use rustix::io::Errno;

use crate::counters::CLASSES;
use crate::ids::RouteCountId;

/// The side that is to blame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    /// The side that asked.
    Client,
    /// The side that was to answer.
    Upstream,
    /// The proxy itself: its limits, its configuration.
    Proxy,
}

/// Declares the faults: the party that is to blame, the answer while none has begun, the name, the type of error,
/// and what happened. A macro, as no function declares a type.
macro_rules! faults {
    ($($fault:ident $(($of:ident))?: $party:ident, $status:ident, $name:literal, $error_type:literal, $about:literal;)*) => {
        /// Why a request was not answered, or not to its end.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Fault { $(#[doc = concat!("In the log: ", $about, ".")] $fault $(($of))?,)* }

        impl Fault {
            /// How many there are.
            pub(crate) const COUNT: usize = [$($name),*].len();

            /// All of them, in the order of tables.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$fault $(($of::$status))?,)*];

            /// Whose fault it is.
            #[must_use]
            pub const fn party(self) -> Party {
                match self { $(Self::$fault { .. } => Party::$party,)* }
            }

            /// The answer while none has begun. 503 where no backend could be reached, 502 where one
            /// answered wrongly, 504 where one took too long.
            #[must_use]
            pub const fn status(self) -> Status {
                if let Self::BadRequest(status) | Self::Replaced(status) = self {
                    return status;
                }
                match self { $(Self::$fault { .. } => Status::$status,)* }
            }

            /// Name in the access log and in metrics; begins with the side that is to blame.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$fault { .. } => $name,)* }
            }

            /// What happened, in words.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$fault { .. } => $about,)* }
            }

            /// The type of error that Proxy-Status names (RFC 9209 2.3).
            pub(crate) const fn error_type(self) -> &'static str {
                match self { $(Self::$fault { .. } => $error_type,)* }
            }
        }
    };
}

faults! {
    ConnectFailed: Upstream, UNAVAILABLE, "upstream_connect_failed", "destination_unavailable",
        "no connection came about";
    ConnectTimeout: Upstream, GATEWAY_TIMEOUT, "upstream_connect_timeout", "connection_timeout",
        "a connection did not come about in time";
    TlsFailed: Upstream, BAD_GATEWAY, "upstream_tls_failed", "tls_protocol_error",
        "TLS with it failed";
    Closed: Upstream, BAD_GATEWAY, "upstream_closed", "connection_terminated",
        "it closed a connection before the head of an answer was whole";
    NoHttp2: Upstream, BAD_GATEWAY, "upstream_no_http2", "http_protocol_error",
        "it does not speak HTTP/2, as its settings say";
    NoWebSocket: Upstream, BAD_GATEWAY, "upstream_no_websocket", "http_upgrade_failed",
        "it takes no WebSockets on streams (RFC 8441), as its SETTINGS do not say so";
    Refused: Upstream, UNAVAILABLE, "upstream_refused", "destination_unavailable",
        "it refused the stream of a request that it had not looked at";
    Reset: Upstream, BAD_GATEWAY, "upstream_reset", "connection_terminated",
        "it reset the stream of a request";
    BadAnswer: Upstream, BAD_GATEWAY, "upstream_bad_answer", "http_protocol_error",
        "what it sent is not an HTTP/1.1 answer to the request";
    Replaced(Status): Upstream, BAD_GATEWAY, "upstream_replaced", "proxy_internal_response",
        "it answered with a status that a page takes the place of";
    FirstByteTimeout: Upstream, GATEWAY_TIMEOUT, "upstream_first_byte_timeout", "http_response_timeout",
        "no answer came in time";
    BodyTimeout: Upstream, GATEWAY_TIMEOUT, "upstream_body_timeout", "connection_read_timeout",
        "the body of an answer stood still";
    Cut: Upstream, BAD_GATEWAY, "upstream_cut", "http_response_incomplete",
        "it closed a connection in the middle of an answer";
    RequestTimeout: Upstream, GATEWAY_TIMEOUT, "upstream_request_timeout", "http_response_timeout",
        "request and answer together took too long";
    UpstreamsFull: Proxy, UNAVAILABLE, "proxy_upstreams_full", "connection_limit_reached",
        "as many upstream connections are open as there may be, or no descriptor is left";
    QueueFull: Proxy, UNAVAILABLE, "proxy_queue_full", "connection_limit_reached",
        "as many requests wait for a connection as may";
    QueueTimeout: Proxy, UNAVAILABLE, "proxy_queue_timeout", "connection_limit_reached",
        "no connection was free in time";
    StreamsFull: Proxy, UNAVAILABLE, "proxy_streams_full", "proxy_internal_error",
        "streams of HTTP/2 held as much as they may, and nothing of this one had left for longest";
    AllDrained: Proxy, UNAVAILABLE, "proxy_all_drained", "destination_unavailable",
        "every backend was drained by an order";
    NoAddress: Proxy, UNAVAILABLE, "proxy_no_address", "destination_unavailable",
        "no server has an address that may be used";
    Ended: Proxy, UNAVAILABLE, "proxy_ended", "proxy_internal_error",
        "the proxy ended with the answer under way";
    ClientGone: Client, BAD_REQUEST, "client_gone", "http_request_error",
        "the client went away";
    BadRequest(Status): Client, BAD_REQUEST, "client_bad_request", "http_request_error",
        "the body of the request is not sound, or too large";
    ClientTimeout: Client, REQUEST_TIMEOUT, "client_timeout", "http_request_error",
        "the request's body stood still, or nothing of the answer was taken";
}

impl Fault {
    /// The fault of a connection that was open when its loop ended; none of one that ended otherwise.
    pub(crate) fn of_end(cause: CloseCause) -> Option<Self> {
        matches!(cause, CloseCause::Drained | CloseCause::LoopEnded).then_some(Self::Ended)
    }

    /// Why a connection to a backend could not be opened. For want of descriptors, of memory, or of
    /// places in the loop (whose refusals have no number) the backend is not to blame.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            None | Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                Self::UpstreamsFull
            }
            Some(_) => Self::ConnectFailed,
        }
    }

    /// Its index in [`Fault::ALL`].
    pub(crate) fn index(self) -> usize {
        let found = Self::ALL.iter().position(|known| known.name() == self.name());
        found.expect("every fault is in the list")
    }
}

named_counters! {
    /// A thing that a proxy counts.
    ProxyCounter {
        /// Requests that began a connection to a backend.
        Connects = "connects",
        /// Requests that took an idle upstream connection of their own thread.
        Reuses = "reuses",
        /// Upstream connections that were taken over from another thread.
        TakenOver = "taken_over",
        /// Upstream connections that were found ended, or with bytes that no request asked for, when they were
        /// taken over.
        Stale = "stale",
        /// Upstream connections that were not kept because enough are, or because the proxy ends.
        NotKept = "refused",
        /// Requests that waited for an upstream connection.
        Queued = "queued",
        /// Requests that waited for an upstream connection to a server that went down, and went to another
        /// one.
        MovedOn = "moved_on",
        /// Upstream connections that were kept when their answer was whole.
        Parked = "parked",
        /// Idle upstream connections that the backend closed.
        IdleClosed = "idle_closed",
        /// Idle upstream connections that were closed for lack of requests, for one of another thread, or for
        /// want of room.
        IdleDropped = "idle_dropped",
        /// Upstream connections that were closed for bytes that no request asked for.
        Unasked = "unasked",
        /// Requests that were sent a second time, when that was safe.
        Retries = "retries",
        /// Requests with a cookie of a server that went to it.
        StickyKept = "sticky_kept",
        /// Requests with a cookie of a server that went to another one, as that was down, drained or not there any more.
        StickyMoved = "sticky_moved",
        /// Answers that set such a cookie.
        StickySet = "sticky_set",
        /// Interim answers (1xx) that were passed on.
        Interim = "interim",
        /// Connections that became tunnels by an upgrade.
        Upgrades = "upgrades",
        /// Streams of HTTP/2 that were cut because all of their thread held more than they may.
        StreamsCut = "streams_cut",
        /// Times that a sender was paused because the other side did not take enough out of a buffer.
        Pauses = "pauses",
        /// Bodies that went through pipes in the kernel, but for what came with their head.
        BodiesSpliced = "bodies_spliced",
        /// Times that bytes of a stream, or of a long body, went through buffers because no pipe was left.
        PipesMissing = "pipes_missing",
        /// Connections that were closed because they did not begin with a head of the PROXY protocol.
        HeadersRefused = "headers_refused",
        /// Streams that came to wait for a window of their backend, or of its connection.
        Http2WindowStalls = "backend_http2_window_stalls",
        /// Times that a backend was asked by PING whether it is there, as nothing came by a connection for long.
        Http2Pings = "backend_http2_pings",
        /// Streams whose backend opened no window in time, or one by less than the least rate.
        Http2WindowTimeouts = "backend_http2_window_timeouts",
        /// Requests that went to another connection before they were sent, as theirs took no more.
        Http2Moved = "backend_http2_moved",
        /// Answers of backends that were compressed.
        AnswersCompressed = "answers_compressed",
        /// Answers of backends that were to be compressed, and passed as they were: as many were at once as may, or enough for
        /// this second.
        CompressionsPutOff = "answers_compressions_put_off",
        /// Bytes of bodies of answers that were compressed, as backends sent them.
        CompressBytes = "answers_compress_bytes",
        /// Bytes that were made of them.
        CompressedBytes = "answers_compressed_bytes",
        /// Reloads whose settings this worker took while it ran.
        ReloadsInPlace = "reloads_in_place",
        /// Reloads that went by another worker, as requests under way kept this one at as many earlier settings as it may have.
        ReloadsWithoutPlace = "reloads_without_place",
        /// Checks of backends.
        Checks = "checks",
        /// Bytes of bodies of answers.
        AnswerBytes = "answer_bytes",
    }
}

/// Live counters of the sessions of one loop.
#[derive(Debug)]
#[repr(align(128))]
pub struct ProxyCounters {
    counts: [Count; ProxyCounter::ALL.len()],
    faults: [Count; Fault::COUNT],
    held_bytes: Count,
    backends: Box<[BackendCounts]>,
    routes: [OnceLock<Box<RouteChunk>>; ROUTES_COUNTED_MAX / ROUTES_OF_CHUNK + 1],
    streams: StreamCounts,
}

/// Routes whose counts are made together: more come with other settings.
const ROUTES_OF_CHUNK: usize = 64;

type RouteChunk = [RouteCounts; ROUTES_OF_CHUNK];

/// Most routes whose answers are counted apart, each by five classes; those behind them are counted together.
pub(crate) const ROUTES_COUNTED_MAX: usize = 1000;

/// Answers of a route, by the class of their status.
#[derive(Debug, Default)]
pub(crate) struct RouteCounts([Count; CLASSES.len()]);

impl RouteCounts {
    /// Those of the class at this index of `CLASSES`.
    pub(crate) fn answers(&self, class: usize) -> u64 {
        self.0[class].value()
    }
}

impl ProxyCounters {
    /// Those of a proxy with so many backends.
    #[must_use]
    pub fn new(backends: usize) -> Self {
        Self {
            counts: std::array::from_fn(|_| Count::default()),
            faults: std::array::from_fn(|_| Count::default()),
            held_bytes: Count::default(),
            backends: (0..backends).map(|_| BackendCounts::default()).collect(),
            routes: std::array::from_fn(|_| OnceLock::new()),
            streams: StreamCounts::default(),
        }
    }

    /// With those of so many routes of sites.
    #[must_use]
    pub(crate) fn with_routes(self, routes: usize) -> Self {
        self.make_routes(routes);
        self
    }

    /// Makes the counts of so many routes, where they are not there yet; from any thread.
    pub(crate) fn make_routes(&self, routes: usize) {
        // One more for all others.
        let chunks = routes.min(ROUTES_COUNTED_MAX + 1).div_ceil(ROUTES_OF_CHUNK);
        for chunk in &self.routes[..chunks] {
            chunk.get_or_init(|| Box::new(std::array::from_fn(|_| RouteCounts::default())));
        }
    }

    /// What the routes at these places have answered, as far as they have counts, in order; behind the last one that is counted
    /// apart, all others.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &RouteCounts> {
        self.routes.iter().filter_map(OnceLock::get).flat_map(|chunk| chunk.iter())
    }

    /// Counts an answer of a route.
    pub(crate) fn count_route(&self, route: RouteCountId, status: Status) {
        let place = route.place();
        if let Some(chunk) = self.routes[place / ROUTES_OF_CHUNK].get() {
            let class = usize::from(status.code() / 100).clamp(1, CLASSES.len()) - 1;
            chunk[place % ROUTES_OF_CHUNK].0[class].add(1);
        }
    }

    /// What ended streams of HTTP/2 to backends, and connections with them.
    #[must_use]
    pub fn streams(&self) -> &StreamCounts {
        &self.streams
    }

    /// What the loop did with each backend.
    #[must_use]
    pub fn backends(&self) -> &[BackendCounts] {
        &self.backends
    }

    /// The count of `counter`.
    #[must_use]
    pub fn value(&self, counter: ProxyCounter) -> u64 {
        self.counts[counter as usize].value()
    }

    /// Requests that ended by the fault at this place of [`Fault::ALL`].
    #[must_use]
    pub fn faults(&self, place: usize) -> u64 {
        self.faults[place].value()
    }

    /// Bytes that streams of HTTP/2 hold: of requests for their backends, and of answers for their clients.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.value()
    }

    pub(crate) fn set_held(&self, bytes: usize) {
        // What wraps comes back.
        self.held_bytes.add((bytes as u64).wrapping_sub(self.held_bytes.value()));
    }

    pub(crate) fn add(&self, counter: ProxyCounter, amount: u64) {
        self.counts[counter as usize].add(amount);
    }

    pub(crate) fn count(&self, counter: ProxyCounter) {
        self.add(counter, 1);
    }

    pub(crate) fn count_fault(&self, fault: Fault) {
        self.faults[fault.index()].add(1);
    }
}

/// What one loop did with one backend; only that loop writes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct BackendCounts {
    /// Requests that were given to it.
    pub begun: Count,
    /// Those that it has no more, answered or not.
    pub ended: Count,
    /// Those that failed by its fault.
    pub failed: Count,
    /// Those that it has begun to answer.
    pub answered: Count,
    /// Microseconds from a connection to the head of those answers, together.
    pub wait_us: Count,
    /// Connections of HTTP/2 to it that came about.
    pub http2_opened: Count,
    /// Those of them that are gone.
    pub http2_closed: Count,
    /// Streams that were begun on them.
    pub streams_begun: Count,
    /// Those of them that are over.
    pub streams_ended: Count,
}

/// Resets and GOAWAYs of connections of HTTP/2 to backends, by the places of their codes; only the loop of the connections
/// writes.
#[derive(Debug)]
pub struct StreamCounts {
    /// Streams that were reset here.
    pub resets_sent: [Count; ErrorCode::NAMED],
    /// Streams that backends have reset.
    pub resets_received: [Count; ErrorCode::NAMED],
    /// GOAWAYs that backends got.
    pub goaways_sent: [Count; ErrorCode::NAMED],
    /// GOAWAYs of backends.
    pub goaways_received: [Count; ErrorCode::NAMED],
}

impl Default for StreamCounts {
    fn default() -> Self {
        let none = || std::array::from_fn(|_| Count::default());
        Self {
            resets_sent: none(),
            resets_received: none(),
            goaways_sent: none(),
            goaways_received: none(),
        }
    }
}

impl BackendCounts {
    /// Requests that it has.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.begun.value().saturating_sub(self.ended.value())
    }

    /// Connections of HTTP/2 to it that are open.
    #[must_use]
    pub fn http2_connections(&self) -> u64 {
        self.http2_opened.value().saturating_sub(self.http2_closed.value())
    }

    /// Streams that are open on them.
    #[must_use]
    pub fn streams(&self) -> u64 {
        self.streams_begun.value().saturating_sub(self.streams_ended.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_not_blamed_for_what_the_proxy_lacks() {
        let of = |errno: Errno| Fault::of_connect(&errno.into());
        assert_eq!(of(Errno::CONNREFUSED), Fault::ConnectFailed);
        assert_eq!(of(Errno::MFILE), Fault::UpstreamsFull);
        assert_eq!(Fault::of_connect(&io::Error::other("full")), Fault::UpstreamsFull);
    }

    #[test]
    fn names_say_whose_fault_it_is() {
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            let party = match fault.party() {
                Party::Client => "client_",
                Party::Upstream => "upstream_",
                Party::Proxy => "proxy_",
            };
            assert!(fault.name().starts_with(party), "{fault:?}");
            assert_eq!(fault.index(), place);
            let is_ours = matches!(fault.status().code(), 502..=504);
            assert_eq!(is_ours, fault.party() != Party::Client, "{fault:?}");
        }
    }
}
