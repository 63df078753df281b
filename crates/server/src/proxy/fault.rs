//! What can go wrong between a request and the end of its answer: whose fault it is, what the
//! client gets while no answer has begun, and what the log calls it.
//!
//! Once an answer has begun nothing can be taken back: the client's connection is cut, so that no
//! half of an answer passes for a whole one.

use pollux_http::Status;

/// Who is to blame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    /// Who asked.
    Client,
    /// Who was to answer.
    Upstream,
    /// The proxy itself: its limits, its configuration.
    Proxy,
}

/// Why a request was not answered, or not to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No backend accepted a connection.
    ConnectFailed,
    /// A connection did not come about in time.
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
    /// As many upstream connections are open as there may be.
    UpstreamsFull,
    /// As many requests wait for a connection as may.
    QueueFull,
    /// No connection was free in time.
    QueueTimeout,
    /// The client went away.
    ClientGone,
    /// The body of the request is not sound, or too large.
    BadRequest(Status),
    /// The body of the request stood still.
    ClientTimeout,
}

impl Fault {
    /// How many there are.
    pub(super) const COUNT: usize = 15;

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
        Self::ClientGone,
        Self::BadRequest(Status::BAD_REQUEST),
        Self::ClientTimeout,
    ];

    /// Whose fault it is.
    #[must_use]
    pub const fn party(self) -> Party {
        match self {
            Self::ClientGone | Self::BadRequest(_) | Self::ClientTimeout => Party::Client,
            Self::UpstreamsFull | Self::QueueFull | Self::QueueTimeout => Party::Proxy,
            _ => Party::Upstream,
        }
    }

    /// The answer while none has begun. 503 where no backend could be reached, 502 where one
    /// answered wrongly, 504 where one took too long.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::ConnectFailed | Self::UpstreamsFull | Self::QueueFull | Self::QueueTimeout => {
                Status::UNAVAILABLE
            }
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

    /// Name in the access log and in metrics; begins with who is to blame.
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
            Self::ConnectTimeout => "a connection did not come about in time",
            Self::TlsFailed => "TLS with it failed",
            Self::Closed => "it closed a connection before the first byte of an answer",
            Self::BadAnswer => "what it sent is not an HTTP/1.1 answer to the request",
            Self::FirstByteTimeout => "no answer came in time",
            Self::BodyTimeout => "the body of an answer stood still",
            Self::Cut => "it closed a connection in the middle of an answer",
            Self::RequestTimeout => "request and answer together took too long",
            Self::UpstreamsFull => "as many upstream connections are open as there may be",
            Self::QueueFull => "as many requests wait for a connection as may",
            Self::QueueTimeout => "no connection was free in time",
            Self::ClientGone => "the client went away",
            Self::BadRequest(_) => "the body of the request is not sound, or too large",
            Self::ClientTimeout => "the body of the request stood still",
        }
    }

    /// Its place in [`Fault::ALL`].
    pub(super) fn place(self) -> usize {
        let found = Self::ALL.iter().position(|known| known.name() == self.name());
        found.expect("every fault is in the list")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_fault_it_is() {
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            let party = match fault.party() {
                Party::Client => "client_",
                Party::Upstream => "upstream_",
                Party::Proxy => "proxy_",
            };
            assert!(fault.name().starts_with(party), "{fault:?}");
            assert_eq!(fault.place(), place);
            let is_ours = matches!(fault.status().code(), 502..=504);
            assert_eq!(is_ours, fault.party() != Party::Client, "{fault:?}");
        }
    }
}
