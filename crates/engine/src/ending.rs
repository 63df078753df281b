//! What follows when a session is done or its peer is slow: output that waits, and lingering.
//!
//! Most connections have neither at any time, so both are boxed. Shared by the two loops.

use crate::output::Output;
use crate::{Limits, Moment};

/// What a connection still has to do beside its conversation.
#[derive(Debug, Default)]
pub(crate) enum Tail {
    /// Nothing.
    #[default]
    None,
    /// Send this, when the peer reads.
    Waiting(Box<Output>),
    /// Drop what comes until the peer ends: closing with unread input would make the kernel
    /// reset the connection, and the peer might never see the last answer (RFC 9112 9.6).
    Lingering(Box<Linger>),
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
    /// The deadline that counts: that of the tail, or `session`'s when there is none.
    pub(crate) fn deadline(&self, session: Moment) -> Moment {
        match self {
            Self::None => session,
            Self::Waiting(output) => output.judged_at(),
            Self::Lingering(linger) => linger.until,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self, Self::Lingering(_))
    }
}
