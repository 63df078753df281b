//! Output of a connection: the calls that send it, of bytes, of a file or out of a pipe, and what its peer has not taken yet,
//! in order. Beside it the end of a connection, which waits for that of its peer.
//!
//! The readiness loop sends from here, whether something waits or not; both loops keep here what the kernel did not take.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use pollux_sys::ring::InFlight;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendFlags, send};

use crate::actions::Payload;
use crate::flow::Flow;
use crate::{CloseCause, Counter, Counters, Limits, Moment};

/// Most bytes that wait for one peer, beside files: a session is not called while output waits,
/// but for deadlines and wakes, which say little.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Most bytes of a file in one call, so that one connection can't keep a turn to itself.
const FILE_CHUNK: usize = 1 << 20;

/// What a connection still has to do beside its conversation.
///
/// Most connections have neither output that waits nor an end to linger for at any time, so both are boxed.
#[derive(Debug, Default)]
pub(crate) enum OutputState {
    /// Nothing.
    #[default]
    None,
    /// Send this, when the peer reads; when there is one, for a connection that is not there yet.
    Waiting(Box<Output>),
    /// Drop what comes until the peer ends: closing with unread input would make the kernel
    /// reset the connection, and the peer might never see the last answer (RFC 9112 9.6).
    Lingering(Box<Linger>),
    /// The peer takes nothing any more, and the session reads on: show what came before, then close.
    Broken(Box<Broken>),
}

/// A connection that can't be sent to any more.
#[derive(Debug)]
pub(crate) struct Broken {
    /// What it will be closed for.
    pub(crate) cause: CloseCause,
    /// What was to be sent.
    pub(crate) lost_bytes: u64,
    /// When it closes at the latest: on a unix socket the peer may have ended one direction alone.
    until: Moment,
}

impl Broken {
    pub(crate) fn new(
        cause: CloseCause,
        lost_bytes: u64,
        now: Moment,
        limits: &Limits,
    ) -> Box<Self> {
        Box::new(Self { cause, lost_bytes, until: now + limits.linger_time })
    }
}

/// What follows when a deadline of a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expiry {
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

impl OutputState {
    /// The deadline that comes first: `session`'s, that of the output, or the next check of how
    /// the peer takes its output.
    #[inline]
    pub(crate) fn deadline(&self, flow: &Flow, session: Moment) -> Moment {
        match self {
            Self::None | Self::Waiting(_) => session.min(flow.look_at()),
            Self::Lingering(linger) => linger.until.min(flow.look_at()),
            Self::Broken(broken) => session.min(broken.until),
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
    ) -> Expiry {
        if let Self::Broken(broken) = self {
            return match (broken.until <= now, session <= now) {
                (true, _) => Expiry::Close(broken.cause),
                (false, true) => Expiry::Session,
                (false, false) => Expiry::Later(self.deadline(flow, session)),
            };
        }
        let is_over = matches!(self, Self::Lingering(linger) if linger.until <= now);
        if is_over || flow.look_at() <= now {
            counters.count(Counter::UntakenLooks);
            // A socket of which this fails is broken, and reports that by itself.
            let outq_bytes = pollux_sys::socket::outq_bytes(socket).unwrap_or(0);
            if !flow.look(outq_bytes, self.is_waiting(), now, limits) {
                return Expiry::Close(CloseCause::SlowReader);
            }
            let waits_for_room = matches!(self, Self::Waiting(output) if output.is_blocked());
            if waits_for_room && outq_bytes == 0 {
                counters.count(Counter::WritableUnreported);
                return Expiry::Flush;
            }
            if let (Self::Lingering(linger), true) = (&mut *self, is_over) {
                if outq_bytes == 0 {
                    return Expiry::Close(CloseCause::Session);
                }
                linger.until = now + limits.linger_time;
            }
        }
        let is_session_due = session <= now && !self.is_lingering();
        if is_session_due { Expiry::Session } else { Expiry::Later(self.deadline(flow, session)) }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self, Self::Waiting(output) if output.is_connecting())
    }

    /// Bytes of output that wait; what a request of the completion loop has in its hands is counted whole.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        match self {
            Self::Waiting(output) => output.unsent_bytes() + output.bytes_under_way(),
            Self::None | Self::Lingering(_) | Self::Broken(_) => 0,
        }
    }

    /// Sending has failed: what waited is lost, and what came is still shown.
    pub(crate) fn break_off(&mut self, more: u64, cause: CloseCause, now: Moment, limits: &Limits) {
        let lost_bytes = match self {
            Self::Waiting(output) => output.unsent_bytes() + more,
            Self::Broken(broken) => {
                broken.lost_bytes += more;
                return;
            }
            Self::None | Self::Lingering(_) => more,
        };
        *self = Self::Broken(Broken::new(cause, lost_bytes, now, limits));
    }

    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self, Self::Lingering(_))
    }
}

/// A part of the output.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes, of which the first so many have left.
    Bytes(Vec<u8>, usize),
    /// What remains of a range of a file, or of what is in a pipe.
    Payload(Payload),
}

/// What the completion loop waits for on behalf of an output.
#[derive(Debug)]
pub(crate) enum PendingOutput {
    /// A request has a piece of so many bytes in its hands, from this byte on.
    Send { request: InFlight, from: usize, len: usize },
    /// The socket was full, or connects: a poll reports when it is writable.
    Poll,
}

/// What waits for a peer.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pieces: VecDeque<Piece>,
    pub(crate) under_way: Option<PendingOutput>,
    waiting_bytes: usize,
    /// The socket was full when it was tried last: an event follows when it is not.
    is_blocked: bool,
    /// The socket has no peer yet; room to write will mean that it has one, or never will.
    is_connecting: bool,
}

/// How far a flush came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Flushed {
    /// Everything has left.
    All,
    /// The socket is full.
    Full,
    /// There is more, and the socket may take it: others first.
    Budget,
}

impl Output {
    /// The output of a socket that has no peer yet: nothing, or what a session says meanwhile.
    pub(crate) fn connecting(is_in_progress: bool) -> Self {
        Self { is_blocked: is_in_progress, is_connecting: true, ..Self::default() }
    }

    /// Sends bytes as far as a non-blocking socket takes them; what is left, if anything, waits.
    ///
    /// # Errors
    /// As [`Output::flush`] and [`Output::push_bytes`].
    #[inline]
    pub(crate) fn begin(
        bytes: &[u8],
        socket: BorrowedFd<'_>,
        counters: &Counters,
        flow: &mut Flow,
        now: Moment,
        limits: &Limits,
    ) -> Result<Option<Self>, CloseCause> {
        let taken = match bytes {
            [] => Some(0),
            _ => send_once(bytes, socket, counters, flow, now, limits)?,
        };
        if taken == Some(bytes.len()) {
            return Ok(None);
        }
        let mut output = Self::default();
        if taken.is_none() {
            output.blocked();
        }
        output.push_bytes(&bytes[taken.unwrap_or(0)..])?;
        Ok(Some(output))
    }

    /// Sends a head and the payload behind it as far as a non-blocking socket takes them: what is left
    /// waits, or is lost when the connection is broken.
    pub(crate) fn begin_with_payload(
        head: &[u8],
        payload: Payload,
        socket: BorrowedFd<'_>,
        counters: &Counters,
        flow: &mut Flow,
        now: Moment,
        limits: &Limits,
    ) -> (Self, Result<(), CloseCause>) {
        let mut output = Self::default();
        let pushed = output.push_bytes(head);
        output.push_payload(payload);
        // What is left of it is known by the output.
        let sent = pushed.and_then(|()| output.flush(socket, counters, flow, now, limits));
        (output, sent.map(|_| ()))
    }

    /// The peer is there.
    pub(crate) fn connected(&mut self) {
        (self.is_blocked, self.is_connecting) = (false, false);
    }

    /// Whether the socket has no peer yet.
    pub(crate) fn is_connecting(&self) -> bool {
        self.is_connecting
    }

    /// Puts bytes behind what waits.
    ///
    /// # Errors
    /// [`CloseCause::SlowReader`] when that is too much.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), CloseCause> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.waiting_bytes += bytes.len();
        if self.waiting_bytes > WAITING_BYTES_MAX {
            return Err(CloseCause::SlowReader);
        }
        self.pieces.push_back(Piece::Bytes(bytes.to_vec(), 0));
        Ok(())
    }

    /// Puts a file range, or what is in a pipe, behind what waits.
    pub(crate) fn push_payload(&mut self, payload: Payload) {
        if payload.len() > 0 {
            self.pieces.push_back(Piece::Payload(payload));
        }
    }

    /// What waits, whatever it consists of; not what a request has in its hands.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        let len = |piece: &Piece| match piece {
            Piece::Bytes(bytes, sent) => (bytes.len() - sent) as u64,
            Piece::Payload(payload) => payload.len(),
        };
        self.pieces.iter().map(len).sum()
    }

    /// What a request has in its hands.
    fn bytes_under_way(&self) -> u64 {
        match &self.under_way {
            Some(PendingOutput::Send { from, len, .. }) => (len - from) as u64,
            Some(PendingOutput::Poll) | None => 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The socket is full.
    pub(crate) fn blocked(&mut self) {
        self.is_blocked = true;
    }

    /// Whether the socket was full when it was tried last.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Whether a request of the completion loop will say how it continues.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether something is to be sent next that is not in memory.
    pub(crate) fn begins_with_payload(&self) -> bool {
        matches!(self.pieces.front(), Some(Piece::Payload(_)))
    }

    /// The piece to send next.
    pub(crate) fn pop_front(&mut self) -> Option<Piece> {
        self.is_blocked = false;
        let piece = self.pieces.pop_front()?;
        if let Piece::Bytes(bytes, sent) = &piece {
            self.waiting_bytes -= bytes.len() - sent;
        }
        Some(piece)
    }

    /// Puts back what a send left of the first piece.
    pub(crate) fn push_front(&mut self, piece: Piece) {
        match &piece {
            Piece::Bytes(bytes, sent) if *sent == bytes.len() => return,
            Piece::Payload(payload) if payload.len() == 0 => return,
            Piece::Bytes(bytes, sent) => self.waiting_bytes += bytes.len() - sent,
            Piece::Payload(_) => {}
        }
        self.pieces.push_front(piece);
    }

    /// Sends to a non-blocking socket until nothing is left or it is full.
    ///
    /// # Errors
    /// The connection is broken, or a file is shorter than was promised.
    pub(crate) fn flush(
        &mut self,
        socket: BorrowedFd<'_>,
        counters: &Counters,
        flow: &mut Flow,
        now: Moment,
        limits: &Limits,
    ) -> Result<Flushed, CloseCause> {
        self.is_blocked = false;
        let mut of_files = 0;
        while let Some(piece) = self.pieces.front() {
            counters.count(Counter::Sends);
            let (outcome, is_file) = match piece {
                Piece::Bytes(bytes, sent) => {
                    // Bytes with a file behind them wait for it and leave in the same segment.
                    let more =
                        if self.pieces.len() > 1 { SendFlags::MORE } else { SendFlags::empty() };
                    (send(socket, &bytes[*sent..], SendFlags::NOSIGNAL | more), false)
                }
                Piece::Payload(payload) => (send_payload(socket, payload)?, true),
            };
            match outcome {
                Ok(taken) => {
                    counters.add(Counter::BytesOut, taken as u64);
                    flow.sent(taken, now, limits);
                    self.shorten_first(taken);
                    of_files += if is_file { taken } else { 0 };
                    if of_files >= FILE_CHUNK && !self.pieces.is_empty() {
                        return Ok(Flushed::Budget);
                    }
                }
                Err(Errno::AGAIN) => {
                    counters.count(Counter::SendsShort);
                    flow.is_full(now, limits);
                    self.is_blocked = true;
                    return Ok(Flushed::Full);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(cause_of(errno)),
            }
        }
        Ok(Flushed::All)
    }

    /// The first piece was sent in part or whole.
    fn shorten_first(&mut self, taken: usize) {
        let is_done = match self.pieces.front_mut() {
            Some(Piece::Bytes(bytes, sent)) => {
                self.waiting_bytes -= taken;
                *sent += taken;
                *sent == bytes.len()
            }
            Some(Piece::Payload(payload)) => {
                payload.shorten(taken as u64);
                payload.len() == 0
            }
            None => false,
        };
        if is_done {
            self.pieces.pop_front();
        }
    }
}

/// How much of some bytes a non-blocking socket takes in one call; nothing when it is full.
#[inline]
fn send_once(
    bytes: &[u8],
    socket: BorrowedFd<'_>,
    counters: &Counters,
    flow: &mut Flow,
    now: Moment,
    limits: &Limits,
) -> Result<Option<usize>, CloseCause> {
    loop {
        counters.count(Counter::Sends);
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(taken) => {
                counters.add(Counter::BytesOut, taken as u64);
                flow.sent(taken, now, limits);
                if taken < bytes.len() {
                    counters.count(Counter::SendsShort);
                    flow.is_full(now, limits);
                }
                return Ok(Some(taken));
            }
            Err(Errno::AGAIN) => {
                counters.count(Counter::SendsShort);
                flow.is_full(now, limits);
                return Ok(None);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(cause_of(errno)),
        }
    }
}

/// One call's share of what is not in memory.
///
/// # Errors
/// The file was cut while it was sent: the promised length can't be kept.
fn send_payload(
    socket: BorrowedFd<'_>,
    payload: &Payload,
) -> Result<rustix::io::Result<usize>, CloseCause> {
    let range = match payload {
        Payload::File(range) => range,
        Payload::Pipe(pipe, len) => return Ok(pipe.drain(socket, *len)),
    };
    let mut offset = range.offset;
    let len = range.len.min(FILE_CHUNK as u64) as usize;
    match sendfile(socket, &range.file, Some(&mut offset), len) {
        // EIO is the file's: a socket never gives it.
        Ok(0) | Err(Errno::IO) => Err(CloseCause::FileFailed),
        outcome => Ok(outcome),
    }
}

/// What an error of a socket means: gone peers are distinguished from other errors.
pub(crate) fn cause_of(errno: Errno) -> CloseCause {
    match errno {
        Errno::CONNRESET | Errno::PIPE => CloseCause::PeerReset,
        // Keep-alive probes or retransmissions had no answer.
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => CloseCause::PeerReset,
        _ => CloseCause::SocketError,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn output_that_waits_for_an_empty_socket_is_sent_on_though_no_event_came() {
        let (socket, _peer) = UnixStream::pair().expect("two descriptors");
        let limits = Limits::default();
        let counters = Counters::default();
        let mut output = Output::default();
        output.push_bytes(b"rest").expect("within the bound");
        output.blocked();
        let mut output_state = OutputState::Waiting(Box::new(output));
        let mut flow = Flow::Quiet;
        flow.is_full(Moment::default(), &limits);
        let now = output_state.deadline(&flow, Moment::NEVER);
        let due =
            output_state.due(&mut flow, socket.as_fd(), Moment::NEVER, now, &limits, &counters);
        assert_eq!(due, Expiry::Flush);
        assert_eq!(counters.value(Counter::WritableUnreported), 1);
        assert!(output_state.deadline(&flow, Moment::NEVER) > now, "it is checked again");
    }

    #[test]
    fn a_file_for_a_peer_that_reads_fast_leaves_the_turn_to_others() {
        const LEN: u64 = 64 << 20;
        let file = std::env::temp_dir().join(format!("pollux-budget-{}", std::process::id()));
        let sparse = std::fs::File::create_new(&file).expect("a name of our own");
        sparse.set_len(LEN).expect("a file with a hole");
        let file_again = std::fs::File::open(&file).expect("just made");
        std::fs::remove_file(&file).expect("ours");
        let (ours, mut theirs) = UnixStream::pair().expect("two descriptors");
        ours.set_nonblocking(true).expect("set");
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            let mut total = 0;
            while let Ok(read @ 1..) = theirs.read(&mut buffer) {
                total += read as u64;
            }
            total
        });
        let counters = Counters::default();
        let mut flow = Flow::Quiet;
        let now = Moment::default();
        let limits = Limits::default();
        let mut output = Output::default();
        let range = crate::FileRange { file: file_again.into(), offset: 0, len: LEN };
        output.push_payload(Payload::File(range));
        loop {
            let before = counters.value(Counter::BytesOut);
            let flushed = output.flush(ours.as_fd(), &counters, &mut flow, now, &limits);
            let flushed = flushed.expect("the peer reads");
            let share = counters.value(Counter::BytesOut) - before;
            assert!(share < 2 * FILE_CHUNK as u64, "{share} bytes at once");
            if flushed == Flushed::All {
                break;
            }
            std::thread::yield_now();
        }
        drop(ours);
        assert_eq!(reader.join().expect("the reader"), LEN);
    }
}
