//! What can go wrong between a request and the end of its answer: whose fault it is, what the
//! client gets while no answer has begun, what the log calls it, and whether it is safe to ask again.
//!
//! Once an answer has begun nothing can be taken back: the client's connection is cut, so that no
//! half of an answer passes for a whole one.

use std::io;

use pollux_engine::CloseCause;
use pollux_http::Status;
use rustix::io::Errno;

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

/// Why a request was not answered, or not to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No backend accepted a connection.
    ConnectFailed,
    /// A connection was not established in time.
    ConnectTimeout,
    /// TLS with the backend failed.
    TlsFailed,
    /// The backend closed the connection before the first byte of an answer.
    Closed,
    /// What came is not an answer.
    BadAnswer,
    /// Nothing came in time.
    FirstByteTimeout,
    /// The body of the answer stood still.
    BodyTimeout,
    /// The backend closed the connection in the middle of the answer.
    Cut,
    /// Request and answer together took too long.
    RequestTimeout,
    /// As many upstream connections are open as there may be, or no descriptor or memory is left.
    UpstreamsFull,
    /// As many requests wait for a connection as may.
    QueueFull,
    /// No connection was free in time.
    QueueTimeout,
    /// Every backend was drained by an order.
    AllDrained,
    /// The proxy ended with the answer under way.
    Ended,
    /// The client went away.
    ClientGone,
    /// The body of the request is not sound, or too large.
    BadRequest(Status),
    /// The body of the request stood still, or the client took nothing of the answer.
    ClientTimeout,
}

impl Fault {
    /// How many there are.
    pub(crate) const COUNT: usize = 17;

    /// All of them, in the order of tables.
    pub const ALL: [Self; Self::COUNT] = [
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::TlsFailed,
        Self::Closed,
        Self::BadAnswer,
        Self::FirstByteTimeout,
        Self::BodyTimeout,
        Self::Cut,
        Self::RequestTimeout,
        Self::UpstreamsFull,
        Self::QueueFull,
        Self::QueueTimeout,
        Self::AllDrained,
        Self::Ended,
        Self::ClientGone,
        Self::BadRequest(Status::BAD_REQUEST),
        Self::ClientTimeout,
    ];

    /// Whose fault it is.
    #[must_use]
    pub const fn party(self) -> Party {
        match self {
            Self::ClientGone | Self::BadRequest(_) | Self::ClientTimeout => Party::Client,
            Self::UpstreamsFull
            | Self::QueueFull
            | Self::QueueTimeout
            | Self::AllDrained
            | Self::Ended => Party::Proxy,
            _ => Party::Upstream,
        }
    }

    /// The answer while none has begun. 503 where no backend could be reached, 502 where one
    /// answered wrongly, 504 where one took too long.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::ConnectFailed
            | Self::UpstreamsFull
            | Self::QueueFull
            | Self::QueueTimeout
            | Self::AllDrained
            | Self::Ended => Status::UNAVAILABLE,
            Self::TlsFailed | Self::Closed | Self::BadAnswer | Self::Cut => Status::BAD_GATEWAY,
            Self::ConnectTimeout
            | Self::FirstByteTimeout
            | Self::BodyTimeout
            | Self::RequestTimeout => Status::GATEWAY_TIMEOUT,
            Self::ClientGone => Status::BAD_REQUEST,
            Self::BadRequest(status) => status,
            Self::ClientTimeout => Status::REQUEST_TIMEOUT,
        }
    }

    /// Name in the access log and in metrics; begins with the side that is to blame.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConnectFailed => "upstream_connect_failed",
            Self::ConnectTimeout => "upstream_connect_timeout",
            Self::TlsFailed => "upstream_tls_failed",
            Self::Closed => "upstream_closed",
            Self::BadAnswer => "upstream_bad_answer",
            Self::FirstByteTimeout => "upstream_first_byte_timeout",
            Self::BodyTimeout => "upstream_body_timeout",
            Self::Cut => "upstream_cut",
            Self::RequestTimeout => "upstream_request_timeout",
            Self::UpstreamsFull => "proxy_upstreams_full",
            Self::QueueFull => "proxy_queue_full",
            Self::QueueTimeout => "proxy_queue_timeout",
            Self::AllDrained => "proxy_all_drained",
            Self::Ended => "proxy_ended",
            Self::ClientGone => "client_gone",
            Self::BadRequest(_) => "client_bad_request",
            Self::ClientTimeout => "client_timeout",
        }
    }

    /// What happened, in words.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::ConnectFailed => "no connection came about",
            Self::ConnectTimeout => "a connection was not established in time",
            Self::TlsFailed => "TLS with it failed",
            Self::Closed => "it closed a connection before the first byte of an answer",
            Self::BadAnswer => "what it sent is not an HTTP/1.1 answer to the request",
            Self::FirstByteTimeout => "no answer came in time",
            Self::BodyTimeout => "the body of an answer stood still",
            Self::Cut => "it closed a connection in the middle of an answer",
            Self::RequestTimeout => "request and answer together took too long",
            Self::UpstreamsFull => {
                "as many upstream connections are open as there may be, or no descriptor is left"
            }
            Self::QueueFull => "as many requests wait for a connection as may",
            Self::QueueTimeout => "no connection was free in time",
            Self::AllDrained => "every backend was drained by an order",
            Self::Ended => "the proxy ended with the answer under way",
            Self::ClientGone => "the client went away",
            Self::BadRequest(_) => "the body of the request is not sound, or too large",
            Self::ClientTimeout => {
                "the request's body stood still, or nothing of the answer was taken"
            }
        }
    }

    /// The type of error that Proxy-Status names (RFC 9209 2.3).
    pub(super) const fn error_type(self) -> &'static str {
        match self {
            Self::ConnectFailed | Self::AllDrained => "destination_unavailable",
            Self::ConnectTimeout => "connection_timeout",
            Self::TlsFailed => "tls_protocol_error",
            Self::Closed => "connection_terminated",
            Self::BadAnswer => "http_protocol_error",
            Self::FirstByteTimeout | Self::RequestTimeout => "http_response_timeout",
            Self::BodyTimeout => "connection_read_timeout",
            Self::Cut => "http_response_incomplete",
            Self::UpstreamsFull | Self::QueueFull | Self::QueueTimeout => {
                "connection_limit_reached"
            }
            Self::Ended => "proxy_internal_error",
            Self::ClientGone | Self::BadRequest(_) | Self::ClientTimeout => "http_request_error",
        }
    }

    /// The fault of a connection that was open when its loop ended; none of one that ended otherwise.
    pub(super) fn of_end(cause: CloseCause) -> Option<Self> {
        matches!(cause, CloseCause::Drained | CloseCause::LoopEnded).then_some(Self::Ended)
    }

    /// Why a connection to a backend could not be opened. For want of descriptors, of memory, or of
    /// places in the loop (whose refusals have no number) the backend is not to blame.
    pub(super) fn of_connect(error: &io::Error) -> Self {
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
