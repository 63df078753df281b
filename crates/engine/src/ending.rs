//! What follows when a session is done or its peer is slow: output that waits, and lingering.
//!
//! Most connections have neither at any time, so both are boxed. Shared by the two loops.

use crate::output::Output;
use crate::{CloseCause, Limits, Moment};

/// What a connection still has to do beside its conversation.
#[derive(Debug, Default)]
pub(crate) enum Tail {
    /// Nothing.
    #[default]
    None,
    /// Send this, when the peer reads; when there is one, for a connection that is not there yet.
    Waiting(Box<Output>),
    /// Drop what comes until the peer ends: closing with unread input would make the kernel
    /// reset the connection, and the peer might never see the last answer (RFC 9112 9.6).
    Lingering(Box<Linger>),
}

/// What follows when a deadline of a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// The connection closes.
    Close(CloseCause),
    /// The session is told.
    Session,
    /// Nothing yet.
    Later(Moment),
}

/// How much longer a closed conversation waits for its peer.
#[derive(Debug)]
pub(crate) struct Linger {
    /// When it closes at the latest.
    pub(crate) until: Moment,
    bytes_left: u64,
}

impl Linger {
    pub(crate) fn new(now: Moment, limits: &Limits) -> Box<Self> {
        Box::new(Self { until: now + limits.linger_time, bytes_left: limits.linger_bytes })
    }

    /// Books dropped input; false when it was too much.
    pub(crate) fn drops(&mut self, bytes: usize) -> bool {
        self.bytes_left = self.bytes_left.saturating_sub(bytes as u64);
        self.bytes_left > 0
    }
}

impl Tail {
    /// The deadline that comes first: `session`'s, or that of the tail.
    pub(crate) fn deadline(&self, session: Moment) -> Moment {
        match self {
            Self::None => session,
            Self::Waiting(output) => output.judged_at().min(session),
            Self::Lingering(linger) => linger.until,
        }
    }

    /// What is due when the clock of a connection rings whose session has the deadline
    /// `session`.
    pub(crate) fn due(&mut self, session: Moment, now: Moment, limits: &Limits) -> Due {
        match self {
            Self::Lingering(_) => return Due::Close(CloseCause::Session),
            Self::Waiting(output) => {
                if !output.is_fast_enough(now, limits) {
                    return Due::Close(CloseCause::SlowReader);
                }
            }
            Self::None => {}
        }
        if session <= now { Due::Session } else { Due::Later(self.deadline(session)) }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self, Self::Waiting(output) if output.is_connecting())
    }

    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self, Self::Lingering(_))
    }
}
