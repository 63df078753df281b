//! What a connection still waits for beside its conversation: output that its peer has not taken, or the
//! peer's end.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use crate::flow::Flow;
use crate::output::Output;
use crate::{CloseCause, Counter, Counters, Limits, Moment};

/// What a connection still has to do beside its conversation.
///
/// Most connections have neither output that waits nor an end to linger for at any time, so both are boxed.
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
    /// The session is called.
    Session,
    /// Output waits for room in a socket that is empty: it is sent on.
    Flush,
    /// Nothing yet.
    Later(Moment),
}

/// How much longer a closed conversation waits for its peer.
#[derive(Debug)]
pub(crate) struct Linger {
    /// When it closes, if the peer has taken everything by then.
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

/// Has the kernel drop what the peer has not taken, and reset a TCP connection, when `socket` is
/// closed. Else it would keep megabytes for minutes, for a peer that can't get all of it.
pub(crate) fn drop_untaken(socket: BorrowedFd<'_>) {
    // What fails here is a socket that has no peer any more.
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}

impl Tail {
    /// The deadline that comes first: `session`'s, that of the tail, or the next check of how
    /// the peer takes its output.
    #[inline]
    pub(crate) fn deadline(&self, flow: &Flow, session: Moment) -> Moment {
        match self {
            Self::None | Self::Waiting(_) => session.min(flow.look_at()),
            Self::Lingering(linger) => linger.until.min(flow.look_at()),
        }
    }

    /// What is due when the clock of a connection rings whose session has the deadline
    /// `session`.
    pub(crate) fn due(
        &mut self,
        flow: &mut Flow,
        socket: BorrowedFd<'_>,
        session: Moment,
        now: Moment,
        limits: &Limits,
        counters: &Counters,
    ) -> Due {
        let is_over = matches!(self, Self::Lingering(linger) if linger.until <= now);
        if is_over || flow.look_at() <= now {
            counters.count(Counter::UntakenLooks);
            // A socket of which this fails is broken, and reports that by itself.
            let untaken_bytes = pollux_sys::socket::untaken_bytes(socket).unwrap_or(0);
            if !flow.look(untaken_bytes, self.is_waiting(), now, limits) {
                return Due::Close(CloseCause::SlowReader);
            }
            let waits_for_room = matches!(self, Self::Waiting(output) if output.is_blocked());
            if waits_for_room && untaken_bytes == 0 {
                counters.count(Counter::RoomUntold);
                return Due::Flush;
            }
            if let (Self::Lingering(linger), true) = (&mut *self, is_over) {
                if untaken_bytes == 0 {
                    return Due::Close(CloseCause::Session);
                }
                linger.until = now + limits.linger_time;
            }
        }
        let is_session_due = session <= now && !self.is_lingering();
        if is_session_due { Due::Session } else { Due::Later(self.deadline(flow, session)) }
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn output_that_waits_for_an_empty_socket_is_sent_on_though_no_event_came() {
        let (socket, _peer) = UnixStream::pair().expect("two descriptors");
        let (limits, counters) = (Limits::default(), Counters::default());
        let mut output = Output::default();
        output.push_bytes(b"rest").expect("within the bound");
        output.blocked();
        let mut tail = Tail::Waiting(Box::new(output));
        let mut flow = Flow::Quiet;
        flow.is_full(Moment::default(), &limits);
        let now = tail.deadline(&flow, Moment::NEVER);
        let due = tail.due(&mut flow, socket.as_fd(), Moment::NEVER, now, &limits, &counters);
        assert_eq!(due, Due::Flush);
        assert_eq!(counters.value(Counter::RoomUntold), 1);
        assert!(tail.deadline(&flow, Moment::NEVER) > now, "it is checked again");
    }
}
