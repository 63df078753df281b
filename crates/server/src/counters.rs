//! What the sessions of one loop did, and how long their requests took, readable while they run. What only a proxy
//! counts stands in `fault.rs`.
//!
//! Only the loop's thread writes; the stats endpoints and the lab read. Connections, bytes and
//! turns are counted by the loop itself (`pollux_engine::Counters`).

use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use pollux_engine::named_counters;
use pollux_http::h2::ErrorCode;
use pollux_http::{Method, Status};
use pollux_poller::Count;
use rustix::io::Errno;

/// Methods that are counted apart; all others are `other`.
pub(crate) const METHODS: [&str; 10] =
    ["get", "head", "post", "put", "delete", "connect", "options", "trace", "patch", "other"];

/// Classes of status codes, by their first digit.
pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Status codes with which requests are refused; the rest is `other`.
pub const REFUSALS: [u16; 10] = [400, 405, 408, 413, 414, 417, 431, 501, 503, 505];

named_counters! {
    /// A thing that sessions count.
    ServerCounter {
        /// Connections that sent nothing in time
        TimeoutsSilent = "timeouts_silent",
        /// Connections closed because their client had as many as it may
        ClientsRefused = "client_connections_refused",
        /// Request heads that did not come in time
        TimeoutsHeader = "timeouts_header",
        /// Request bodies that did not come in time
        TimeoutsBody = "timeouts_body",
        /// Connections closed because no further request came
        TimeoutsIdle = "timeouts_idle",
        /// TLS handshakes that did not end in time
        TimeoutsHandshake = "timeouts_handshake",
        /// Connections whose peer ended in the middle of a request
        Incomplete = "incomplete",
        /// TLS handshakes with clients that came to their end
        Handshakes = "tls_handshakes",
        /// TLS handshakes that took up an earlier session
        HandshakesResumed = "tls_resumed",
        /// Connections of clients whose TLS failed
        TlsFailed = "tls_failed",
        /// Requests that had a body
        Bodies = "bodies",
        /// Bytes of request bodies received
        BodyBytes = "body_bytes",
        /// Times that 100 Continue was sent
        Continues = "continues",
        /// Files handed to the loop to be sent
        FilesSent = "files_sent",
        /// Files answered with 503, as no descriptor or memory was left
        FilesRefused = "files_refused",
        /// Requests that were denied, as their site or route takes nothing from where they come
        AccessDenied = "access_denied",
        /// Requests that were refused for their password: there was none, it was wrong, or could not be checked
        PasswordsRefused = "passwords_refused",
        /// Requests that were refused for the certificate of their client: there was none, it was not believed, or not asked for
        CertificatesRefused = "client_certificates_refused",
        /// Files that were compressed
        Compressions = "compressions",
        /// Answers with a file that was compressed, now or before
        CompressedSent = "compressed_sent",
        /// Answers with a file as it is, as enough was compressed then
        CompressionsPutOff = "compressions_put_off",
        /// Connections of HTTP/2
        Http2Connections = "http2_connections",
        /// Streams that were refused, as their connection had as many as it may have
        Http2StreamsRefused = "http2_streams_refused",
        /// Streams that were refused, as the heads of the others of their connection took as much as they may
        Http2HeadsRefused = "http2_heads_refused",
        /// Bytes of the compressed heads of requests of HTTP/2
        Http2HeadBytesReceived = "http2_head_bytes_received",
        /// Bytes of the compressed heads of answers of HTTP/2
        Http2HeadBytesSent = "http2_head_bytes_sent",
        /// Times that a large file waited until its connection had fewer of them open
        Http2FilesWaited = "http2_files_waited",
        /// Times that an answer had to wait for its client to open a window
        Http2WindowStalls = "http2_window_stalls",
        /// Streams whose clients opened no window in time
        Http2WindowTimeouts = "http2_window_timeouts",
        /// Lines of the access log that were lost
        LogLinesLost = "log_lines_lost",
        /// Times that the access log could not be opened again
        LogReopensFailed = "log_reopens_failed",
    }
}

/// Live counters of the sessions of one loop.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ServerCounters {
    methods: [Count; METHODS.len()],
    classes: [Count; CLASSES.len()],
    refusals: [Count; REFUSALS.len() + 1],
    counts: [Count; ServerCounter::ALL.len()],
    resets_sent: [Count; ErrorCode::NAMED],
    resets_received: [Count; ErrorCode::NAMED],
    goaways: [Count; ErrorCode::NAMED],
    streams_open: Count,
    times: RequestTimes,
    /// Why lines of the access log were lost last; 0 for a reader without room.
    log_errno: AtomicI32,
}

impl ServerCounters {
    /// Requests with the method at this index of `METHODS`.
    #[must_use]
    pub fn requests(&self, method: usize) -> u64 {
        self.methods[method].value()
    }

    /// Requests of all methods.
    #[must_use]
    pub fn requests_total(&self) -> u64 {
        self.methods.iter().map(Count::value).sum()
    }

    /// Answers of the class at this index of `CLASSES`.
    #[must_use]
    pub fn answers(&self, class: usize) -> u64 {
        self.classes[class].value()
    }

    /// Refusals with the status at this index of `REFUSALS`; behind the last one, others.
    #[must_use]
    pub fn refused(&self, refusal: usize) -> u64 {
        self.refusals[refusal].value()
    }

    /// The count of `counter`.
    #[must_use]
    pub fn value(&self, counter: ServerCounter) -> u64 {
        self.counts[counter as usize].value()
    }

    /// Times of requests inside the loop; none are counted unless the configuration asks for it.
    #[must_use]
    pub fn times(&self) -> &RequestTimes {
        &self.times
    }

    /// The error that cost lines of the access log last; none when its reader had no room.
    pub(crate) fn log_errno(&self) -> Option<Errno> {
        let raw = self.log_errno.load(Relaxed);
        (raw != 0).then(|| Errno::from_raw_os_error(raw))
    }

    pub(crate) fn set_log_errno(&self, errno: Option<Errno>) {
        self.log_errno.store(errno.map_or(0, Errno::raw_os_error), Relaxed);
    }

    pub(crate) fn add(&self, counter: ServerCounter, amount: u64) {
        self.counts[counter as usize].add(amount);
    }

    pub(crate) fn count_request(&self, method: Method<'_>) {
        self.count_request_at(index_of(method));
    }

    /// Counts a request whose method has this [`index_of`].
    pub(crate) fn count_request_at(&self, index: usize) {
        self.methods[index].add(1);
    }

    pub(crate) fn count_answer(&self, status: Status) {
        let class = usize::from(status.code() / 100).clamp(1, CLASSES.len()) - 1;
        self.classes[class].add(1);
    }

    /// Counts a handshake with a client.
    pub(crate) fn count_handshake(&self, is_resumed: bool) {
        self.add(ServerCounter::Handshakes, 1);
        self.add(ServerCounter::HandshakesResumed, is_resumed.into());
    }

    /// Counts a stream that was reset from here, or by its client.
    pub(crate) fn count_reset(&self, code: ErrorCode, is_own: bool) {
        let resets = if is_own { &self.resets_sent } else { &self.resets_received };
        resets[code.index()].add(1);
    }

    /// Counts a GOAWAY that was sent.
    pub(crate) fn count_goaway(&self, code: ErrorCode) {
        self.goaways[code.index()].add(1);
    }

    /// The streams of a connection are so many now, and were so many.
    pub(crate) fn count_streams(&self, before: usize, now: usize) {
        // What wraps comes back.
        self.streams_open.add((now as u64).wrapping_sub(before as u64));
    }

    /// Streams of HTTP/2 that are open.
    #[must_use]
    pub fn streams_open(&self) -> u64 {
        self.streams_open.value()
    }

    /// Streams of HTTP/2 that were reset from here with the code at this index.
    #[must_use]
    pub fn resets_sent(&self, code: usize) -> u64 {
        self.resets_sent[code].value()
    }

    /// Streams that clients reset with the code at this index.
    #[must_use]
    pub fn resets_received(&self, code: usize) -> u64 {
        self.resets_received[code].value()
    }

    /// GOAWAYs that were sent with the code at this index.
    #[must_use]
    pub fn goaways(&self, code: usize) -> u64 {
        self.goaways[code].value()
    }

    pub(crate) fn count_refusal(&self, status: Status) {
        let index = REFUSALS.iter().position(|code| *code == status.code());
        self.refusals[index.unwrap_or(REFUSALS.len())].add(1);
    }
}

/// The index of a method in [`METHODS`].
pub(crate) fn index_of(method: Method<'_>) -> usize {
    match method {
        Method::Get => 0,
        Method::Head => 1,
        Method::Post => 2,
        Method::Put => 3,
        Method::Delete => 4,
        Method::Connect => 5,
        Method::Options => 6,
        Method::Trace => 7,
        Method::Patch => 8,
        Method::Other(_) => 9,
    }
}

/// Times of this many bits and more nanoseconds share the last bucket: over a minute.
const BITS_MAX: u32 = 36;
const PARTS: usize = 4;
const BUCKETS: usize = PARTS * (BITS_MAX as usize - 1);

/// Times of the requests of one loop.
///
/// Only counted with `request-times`: it costs a clock reading for each request. The loop's
/// thread writes, the endpoints for monitoring read. Buckets are quarters of powers of two, so a
/// time is known to a fifth.
#[derive(Debug)]
pub struct RequestTimes {
    buckets: [Count; BUCKETS],
    sum_ns: Count,
}

impl Default for RequestTimes {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Count::default()), sum_ns: Count::default() }
    }
}

impl RequestTimes {
    pub(crate) fn record(&self, nanoseconds: u64) {
        self.buckets[bucket(nanoseconds)].add(1);
        self.sum_ns.add(nanoseconds);
    }

    /// Pairs of a time in nanoseconds and how many requests took less, rising; empty buckets at
    /// both ends are left out.
    #[must_use]
    pub fn below(&self) -> Vec<(u64, u64)> {
        let mut below = 0;
        let total = self.count();
        let pairs = self.buckets.iter().enumerate().filter_map(|(index, count)| {
            let before = below;
            below += count.value();
            (below > 0 && before < total).then(|| (end_ns(index), below))
        });
        pairs.collect()
    }

    /// Requests that were timed.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Count::value).sum()
    }

    /// Time of all of them.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.value()
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let Some(power) = nanoseconds.checked_ilog2().filter(|power| *power >= 2) else {
        return nanoseconds as usize;
    };
    let part = (nanoseconds >> (power - 2)) as usize % PARTS;
    (PARTS * (power as usize - 1) + part).min(BUCKETS - 1)
}

/// The shortest time that is too long for a bucket.
fn end_ns(index: usize) -> u64 {
    if index < PARTS {
        return index as u64 + 1;
    }
    let power = index / PARTS + 1;
    let part = index % PARTS;
    ((PARTS + part + 1) as u64) << (power - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_counted_under_its_name() {
        let counters = ServerCounters::default();
        for (index, name) in METHODS.iter().enumerate() {
            counters.count_request(Method::named(&name.to_uppercase()));
            assert_eq!(counters.requests(index), 1, "{name}");
        }
        assert_eq!(counters.requests_total(), 10);
    }

    #[test]
    fn refusals_without_a_place_of_their_own_are_counted_as_others() {
        let counters = ServerCounters::default();
        counters.count_refusal(Status::BAD_REQUEST);
        counters.count_refusal(Status::NOT_FOUND);
        counters.count_answer(Status::NOT_FOUND);
        assert_eq!((counters.refused(0), counters.refused(REFUSALS.len())), (1, 1));
        assert_eq!(counters.answers(3), 1);
    }

    #[test]
    fn every_time_lies_in_the_bucket_that_ends_behind_it() {
        let edges = (0..BITS_MAX).flat_map(|bits| {
            let power = 1_u64 << bits;
            [power.saturating_sub(1), power, power + 1, power + power / 4, power + power / 2 + 1]
        });
        for nanoseconds in edges {
            let index = bucket(nanoseconds);
            assert!(nanoseconds < end_ns(index), "{nanoseconds} in {index}");
            let begin = if index == 0 { 0 } else { end_ns(index - 1) };
            assert!(nanoseconds >= begin, "{nanoseconds} in {index} from {begin}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn what_is_read_adds_up() {
        let times = RequestTimes::default();
        assert_eq!((times.below(), times.count()), (vec![], 0));
        [100, 100, 1_000].iter().for_each(|each| times.record(*each));
        let below = times.below();
        assert_eq!(below.first(), Some(&(112, 2)));
        assert_eq!(below.last(), Some(&(1_024, 3)));
        assert_eq!((times.count(), times.sum_ns()), (3, 1_200));
    }
}
