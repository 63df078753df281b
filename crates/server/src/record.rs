//! The one place where a request is booked: counted and logged, once, when its answer has left or was cut, whatever made
//! the answer. A connection in TCP mode is booked as a request is.
//!
//! | what answers | calls [`Books::book`] |
//! |---|---|
//! | a handler, or the server itself | `front/peer.rs`, `book`, of both versions of HTTP |
//! | a backend, or the proxy in its place | `exchange/booking.rs`, `finish` |
//! | a connection in TCP mode | `exchange/tcp.rs`, `record` |
//!
//! The first two call [`Books::count_answer`] alone where there is no log and an answer left whole.
//!
//! So each line of a log has its counts, which a table test compares (`tests/transcripts/books.rs`):
//!
//! | of the line | is counted in |
//! |---|---|
//! | the status, where one was sent | the answers of its class |
//! | the status of a refusal (`refusal.rs`) | the refusals with this status |
//! | the fault of a request that had an exchange, or of a stream | the faults |

use pollux_engine::CloseCause;
use pollux_http::Status;

use crate::counters::ServerCounters;
use crate::fault::{Fault, ProxyCounter, ProxyCounters};
use crate::log::{AccessLog, Entry};
use crate::refusal::{NOT_ALLOWED, Refusal};

/// The status in the log of a request whose client went away before an answer began, as nginx has it: no status
/// was sent.
const CLIENT_GONE: u16 = 499;

/// Where a request is written down.
pub(crate) struct Books<'b> {
    pub(crate) counters: &'b ServerCounters,
    /// Of what a backend has, or could have had.
    pub(crate) proxied: Option<&'b ProxyCounters>,
    pub(crate) log: Option<&'b mut AccessLog>,
}

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    /// None where no answer began.
    pub(crate) status: Option<Status>,
    /// Of the answer, as far as they were sent; of one from a backend that was cut, as far as they came from there.
    pub(crate) body_bytes: u64,
    pub(crate) end: End,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// With all of its answer.
    Whole,
    /// With a page that says why there is no other answer.
    Refused(Refusal),
    /// Before that, where a handler answers.
    Cut(Cut),
    /// By a fault, where a backend was to answer; and whether its page refuses what the client did.
    Failed(Fault, Option<Refusal>),
}

/// Why an answer of a handler did not come to its end, as the log calls it: the same words as a proxy's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    ClientGone,
    ClientTimeout,
    BadRequest,
    /// It may not ask.
    NotAllowed,
    /// The server ended.
    Ended,
    /// The rest of a file can't be read.
    FileFailed,
}

impl Books<'_> {
    /// Counts and logs it; `entry` makes the line where there is a log.
    #[inline]
    pub(crate) fn book<'e>(
        self,
        outcome: Outcome,
        entry: impl FnOnce(&AccessLog, &Outcome) -> Entry<'e>,
    ) {
        self.count_answer(outcome.status, outcome.body_bytes);
        if self.log.is_some() || !matches!(outcome.end, End::Whole) {
            self.book_rest(outcome, entry);
        }
    }

    /// Counts an answer that came to its end where there is no log: all that there is to book of most.
    #[inline]
    pub(crate) fn count_answer(&self, status: Option<Status>, body_bytes: u64) {
        if let Some(status) = status {
            self.counters.count_answer(status);
        }
        if let Some(proxied) = self.proxied {
            proxied.add(ProxyCounter::AnswerBytes, body_bytes);
        }
    }

    /// The end and the line; a request that came to its end where there is no log has neither.
    #[cold]
    #[inline(never)]
    fn book_rest<'e>(
        self,
        outcome: Outcome,
        entry: impl FnOnce(&AccessLog, &Outcome) -> Entry<'e>,
    ) {
        self.count_end(&outcome);
        if let Some(log) = self.log {
            log.add(&entry(log, &outcome), self.counters);
        }
    }

    fn count_end(&self, outcome: &Outcome) {
        let refusal = match outcome.end {
            End::Whole | End::Cut(_) => None,
            End::Refused(refusal) => Some(refusal),
            End::Failed(fault, refusal) => {
                if let Some(proxied) = self.proxied {
                    proxied.count_fault(fault);
                }
                refusal
            }
        };
        if let Some(status) = outcome.status.filter(|_| refusal.is_some()) {
            self.counters.count_refusal(status);
        }
    }
}

impl Outcome {
    /// The status of the line; 0 where none was sent and the client is still there.
    pub(crate) fn status_logged(&self) -> u16 {
        match (self.status, self.end) {
            (Some(status), _) => status.code(),
            (None, End::Cut(Cut::ClientGone) | End::Failed(Fault::ClientGone, _)) => CLIENT_GONE,
            (None, _) => 0,
        }
    }
}

impl End {
    /// The word of a proxy's log.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Whole => "ok",
            Self::Refused(refusal) => refusal.word(),
            Self::Cut(cut) => cut.name(),
            Self::Failed(fault, _) => fault.name(),
        }
    }

    /// The fault of a request that a backend was to answer.
    pub(crate) const fn fault(self) -> Option<Fault> {
        match self {
            Self::Failed(fault, _) => Some(fault),
            _ => None,
        }
    }
}

impl Cut {
    /// Why, where only the end of the connection says it.
    pub(crate) const fn of_close(cause: CloseCause) -> Self {
        match cause {
            CloseCause::Drained | CloseCause::LoopEnded => Self::Ended,
            CloseCause::SlowReader => Self::ClientTimeout,
            CloseCause::FileFailed => Self::FileFailed,
            _ => Self::ClientGone,
        }
    }

    /// The word of the log.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ClientGone => Fault::ClientGone.name(),
            Self::ClientTimeout => Fault::ClientTimeout.name(),
            Self::BadRequest => Fault::BadRequest(Status::BAD_REQUEST).name(),
            Self::NotAllowed => NOT_ALLOWED,
            Self::Ended => "server_ended",
            Self::FileFailed => "server_file_failed",
        }
    }
}
