//! What the HTTP sessions of one loop did, readable while they run.
//!
//! Only the loop's thread writes; the stats endpoints and the lab read. Connections, bytes and
//! turns are counted by the loop itself (`pollux_engine::Counters`).

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use pollux_http::{Method, Status};
use pollux_poller::Count;
use rustix::io::Errno;

use crate::RequestTimes;

/// Methods that are counted apart; all others are `other`.
pub const METHODS: [&str; 10] =
    ["get", "head", "post", "put", "delete", "connect", "options", "trace", "patch", "other"];

/// Classes of status codes, by their first digit.
pub const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Status codes with which requests are refused; the rest is `other`.
pub const REFUSALS: [u16; 10] = [400, 405, 408, 413, 414, 417, 431, 501, 503, 505];

/// A thing that sessions count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerCounter {
    /// Connections that sent nothing in the time for a head; closed silently.
    TimeoutsSilent,
    /// Heads that did not come in time; answered with 408.
    TimeoutsHeader,
    /// Bodies that did not come in time; answered with 408 unless the answer had begun.
    TimeoutsBody,
    /// Connections closed because no further request came.
    TimeoutsIdle,
    /// TLS handshakes that did not come to their end in the time for a head.
    TimeoutsHandshake,
    /// Connections whose peer ended in the middle of a request.
    Incomplete,
    /// TLS handshakes with clients that came to their end.
    Handshakes,
    /// Those of them that took up an earlier session.
    HandshakesResumed,
    /// Connections of clients whose TLS failed, in the handshake or later.
    TlsFailed,
    /// Requests that had a body.
    Bodies,
    /// Bytes of bodies received.
    BodyBytes,
    /// Times that 100 Continue was sent.
    Continues,
    /// Files handed to the loop to be sent.
    FilesSent,
    /// Files answered with 503, as no descriptor or memory was left.
    FilesRefused,
    /// Files that were compressed.
    Compressions,
    /// Answers with a file that was compressed, now or before.
    CompressedSent,
    /// Answers with a file as it is, because enough was compressed in that second or is being sent.
    CompressionsPutOff,
    /// Lines of the access log that were lost: no room, or a write failed.
    LogLinesLost,
    /// Times that the access log could not be opened again.
    LogReopensFailed,
}

impl ServerCounter {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 19] = [
        Self::TimeoutsSilent,
        Self::TimeoutsHeader,
        Self::TimeoutsBody,
        Self::TimeoutsIdle,
        Self::TimeoutsHandshake,
        Self::Incomplete,
        Self::Handshakes,
        Self::HandshakesResumed,
        Self::TlsFailed,
        Self::Bodies,
        Self::BodyBytes,
        Self::Continues,
        Self::FilesSent,
        Self::FilesRefused,
        Self::Compressions,
        Self::CompressedSent,
        Self::CompressionsPutOff,
        Self::LogLinesLost,
        Self::LogReopensFailed,
    ];

    /// Name in tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimeoutsSilent => "timeouts_silent",
            Self::TimeoutsHeader => "timeouts_header",
            Self::TimeoutsBody => "timeouts_body",
            Self::TimeoutsIdle => "timeouts_idle",
            Self::TimeoutsHandshake => "timeouts_handshake",
            Self::Incomplete => "incomplete",
            Self::Handshakes => "tls_handshakes",
            Self::HandshakesResumed => "tls_resumed",
            Self::TlsFailed => "tls_failed",
            Self::Bodies => "bodies",
            Self::BodyBytes => "body_bytes",
            Self::Continues => "continues",
            Self::FilesSent => "files_sent",
            Self::FilesRefused => "files_refused",
            Self::Compressions => "compressions",
            Self::CompressedSent => "compressed_sent",
            Self::CompressionsPutOff => "compressions_put_off",
            Self::LogLinesLost => "log_lines_lost",
            Self::LogReopensFailed => "log_reopens_failed",
        }
    }

    /// What it counts, in one line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::TimeoutsSilent => "Connections that sent nothing in time",
            Self::TimeoutsHeader => "Request heads that did not come in time",
            Self::TimeoutsBody => "Request bodies that did not come in time",
            Self::TimeoutsIdle => "Connections closed because no further request came",
            Self::TimeoutsHandshake => "TLS handshakes that did not end in time",
            Self::Handshakes => "TLS handshakes with clients that came to their end",
            Self::HandshakesResumed => "TLS handshakes that took up an earlier session",
            Self::TlsFailed => "Connections of clients whose TLS failed",
            Self::Incomplete => "Connections whose peer ended in the middle of a request",
            Self::Bodies => "Requests that had a body",
            Self::BodyBytes => "Bytes of request bodies received",
            Self::Continues => "Times that 100 Continue was sent",
            Self::FilesSent => "Files handed to the loop to be sent",
            Self::FilesRefused => "Files answered with 503, as no descriptor or memory was left",
            Self::Compressions => "Files that were compressed",
            Self::CompressedSent => "Answers with a file that was compressed, now or before",
            Self::CompressionsPutOff => {
                "Answers with a file as it is, as enough was compressed then"
            }
            Self::LogLinesLost => "Lines of the access log that were lost",
            Self::LogReopensFailed => "Times that the access log could not be opened again",
        }
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
    times: RequestTimes,
    /// Why lines of the access log were lost last; 0 for a reader without room.
    log_errno: AtomicI32,
}

impl ServerCounters {
    /// Requests with the method at this index of [`METHODS`].
    #[must_use]
    pub fn requests(&self, method: usize) -> u64 {
        self.methods[method].value()
    }

    /// Requests of all methods.
    #[must_use]
    pub fn requests_total(&self) -> u64 {
        self.methods.iter().map(Count::value).sum()
    }

    /// Answers of the class at this index of [`CLASSES`].
    #[must_use]
    pub fn answers(&self, class: usize) -> u64 {
        self.classes[class].value()
    }

    /// Refusals with the status at this index of [`REFUSALS`]; behind the last one, others.
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
}
