//! Output that waits for its peer: bytes, ranges of files, what is in a pipe.
//!
//! Only connections whose socket is full have one, so it is boxed by its owner. Both loops keep
//! what the kernel did not take here, in order; the readiness loop also sends from here.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use pollux_sys::ring::InFlight;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::actions::Source;
use crate::flow::Flow;
use crate::{CloseCause, Counter, Counters, Limits, Moment};

/// Most bytes that wait for one peer, beside files: a session is not called while output waits,
/// but for deadlines and wakes, which say little.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Most bytes of a file in one call, so that one connection can't keep a turn to itself.
const FILE_CHUNK: usize = 1 << 20;

/// A part of the output.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes, of which the first so many have left.
    Bytes(Vec<u8>, usize),
    /// What remains of a range of a file, or of what is in a pipe.
    Source(Source),
}

/// What the completion loop waits for on behalf of an output.
#[derive(Debug)]
pub(crate) enum UnderWay {
    /// A request has a piece in its hands, from this byte on.
    Send(InFlight, usize),
    /// The socket was full, or connects: a poll reports when it is writable.
    Poll,
}

/// What waits for a peer.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pieces: VecDeque<Piece>,
    pub(crate) under_way: Option<UnderWay>,
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

    /// Sends a head and the source behind it as far as a non-blocking socket takes them: what is left
    /// waits.
    ///
    /// # Errors
    /// As [`Output::flush`].
    pub(crate) fn begin_with_source(
        head: &[u8],
        source: Source,
        socket: BorrowedFd<'_>,
        counters: &Counters,
        flow: &mut Flow,
        now: Moment,
        limits: &Limits,
    ) -> Result<Self, CloseCause> {
        let mut output = Self::default();
        output.push_bytes(head)?;
        output.push_source(source);
        // What is left of it is known by the output.
        let _ = output.flush(socket, counters, flow, now, limits)?;
        Ok(output)
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
    pub(crate) fn push_source(&mut self, source: Source) {
        if source.len() > 0 {
            self.pieces.push_back(Piece::Source(source));
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
    pub(crate) fn begins_with_source(&self) -> bool {
        matches!(self.pieces.front(), Some(Piece::Source(_)))
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
            Piece::Source(source) if source.len() == 0 => return,
            Piece::Bytes(bytes, sent) => self.waiting_bytes += bytes.len() - sent,
            Piece::Source(_) => {}
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
                Piece::Source(source) => (send_source(socket, source)?, true),
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
                Err(errno) => return Err(broken(errno)),
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
            Some(Piece::Source(source)) => {
                source.shorten(taken as u64);
                source.len() == 0
            }
            None => false,
        };
        if is_done {
            self.pieces.pop_front();
        }
    }
}

/// One call's share of what is not in memory.
///
/// # Errors
/// The file was cut while it was sent: the promised length can't be kept.
fn send_source(
    socket: BorrowedFd<'_>,
    source: &Source,
) -> Result<rustix::io::Result<usize>, CloseCause> {
    let range = match source {
        Source::File(range) => range,
        Source::Pipe(pipe, len) => return Ok(pipe.drain(socket, *len)),
    };
    let mut offset = range.offset;
    let len = range.len.min(FILE_CHUNK as u64) as usize;
    let outcome = sendfile(socket, &range.file, Some(&mut offset), len);
    if outcome == Ok(0) { Err(CloseCause::SocketError) } else { Ok(outcome) }
}

/// What an error of a socket means: gone peers are distinguished from other errors.
pub(crate) fn broken(errno: Errno) -> CloseCause {
    match errno {
        Errno::CONNRESET | Errno::PIPE => CloseCause::PeerReset,
        // Keep-alive probes or retransmissions had no answer.
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => CloseCause::PeerReset,
        _ => CloseCause::SocketError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

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
        let (mut flow, now, limits) = (Flow::Quiet, Moment::default(), Limits::default());
        let mut output = Output::default();
        let range = crate::FileRange { file: file_again.into(), offset: 0, len: LEN };
        output.push_source(Source::File(range));
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
