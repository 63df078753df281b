//! What a session may do: the only interface from a protocol to its loop.
//!
//! A loop makes one [`Actions`] for each call of a session and carries out afterwards what was
//! asked for. Output goes into a slice that the loop chose and that never moves; a session that
//! needs more room than is left calls [`Actions::notify_when_sent`].

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::pipe::ReadOutcome;
use crate::{ConnectionId, ListenAddress, Moment, Now, Pipe, SharedSocket, SplicedIn};

/// Bytes of an open file that follow the output.
#[derive(Debug)]
pub struct FileRange {
    /// A regular file; closed when the range has been sent.
    pub file: OwnedFd,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; a file that turns out shorter resets the connection
    /// ([`CloseCause::FileFailed`](crate::CloseCause::FileFailed)).
    pub len: u64,
}

/// What follows the bytes of a call.
#[derive(Debug)]
pub(crate) enum Payload {
    File(FileRange),
    /// So many bytes that are in the pipe.
    Pipe(Arc<Pipe>, u64),
}

impl Payload {
    /// Bytes that are still to be sent.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File(range) => range.len,
            Self::Pipe(_, len) => *len,
        }
    }

    /// So many of them have left.
    pub(crate) fn shorten(&mut self, taken: u64) {
        match self {
            Self::File(range) => {
                range.offset += taken;
                range.len -= taken;
            }
            Self::Pipe(_, len) => *len -= taken,
        }
    }
}

/// How a session wants its connection to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// When the output has left.
    Close,
    /// When the output has left: no more output, then wait for the peer's end.
    Linger,
    /// Now.
    Abort,
    /// Now, and so that the peer can't take it for an end.
    Reset,
}

/// A connection's part in a socket that other loops may take over.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) socket: Arc<SharedSocket>,
    /// The number of this loop.
    pub(crate) owner: u32,
}

/// A requested close that was held back; see [`Actions::hold_ending`].
#[derive(Clone, Copy, Debug)]
pub struct DeferredClose(Ending);

/// The requests of one call, carried out when the session has returned.
///
/// ```
/// use pollux_engine::{Actions, CloseCause, Now, Rehearsal, Session};
/// use std::time::Duration;
///
/// /// Repeats what comes, and closes when nothing came for a second.
/// struct Echo;
///
/// impl Session for Echo {
///     type Shared = ();
///
///     fn accepted(_: &mut (), actions: &mut Actions<'_>) -> Self {
///         actions.send(b"hello\n");
///         actions.set_deadline(actions.now().at + Duration::from_secs(1));
///         Self
///     }
///
///     fn on_bytes(&mut self, _: &mut (), actions: &mut Actions<'_>, input: &[u8]) -> usize {
///         let len = input.len().min(actions.room());
///         actions.send(&input[..len]);
///         actions.set_deadline(actions.now().at + Duration::from_secs(1));
///         actions.notify_when_sent(); // with what is left, once this has left
///         len
///     }
///
///     fn on_deadline(&mut self, _: &mut (), actions: &mut Actions<'_>) {
///         actions.close();
///     }
/// }
///
/// let mut play = Rehearsal::<Echo>::new((), Now::default());
/// play.feed(b"one");
/// assert_eq!(play.take_output(), b"hello\none");
/// play.pass(Duration::from_secs(2));
/// assert_eq!(play.closed(), Some(CloseCause::Session));
/// ```
#[derive(Debug)]
pub struct Actions<'a> {
    now: Now,
    id: ConnectionId,
    out: &'a mut [u8],
    filled: usize,
    pub(crate) payload: Option<Payload>,
    pub(crate) ending: Option<Ending>,
    pub(crate) wants_sent_notice: bool,
    pub(crate) is_input_paused: bool,
    pub(crate) ends_output: bool,
    pub(crate) leaves_input: bool,
    pub(crate) reads_on: bool,
    /// How much output of earlier calls waits, if any.
    pub(crate) waiting: Option<u64>,
    pub(crate) receives_little: bool,
    pub(crate) seen: ReadOutcome,
    pub(crate) deadline: Moment,
    wakes: &'a mut Vec<ConnectionId>,
    socket: Option<BorrowedFd<'a>>,
    pub(crate) can_share: bool,
    pub(crate) sharing: Option<Box<Sharing>>,
}

impl<'a> Actions<'a> {
    /// Room for output that every call has, in bytes.
    pub const ROOM_MIN: usize = 64 * 1024;

    #[inline]
    pub(crate) fn new(
        now: Now,
        id: ConnectionId,
        out: &'a mut [u8],
        wakes: &'a mut Vec<ConnectionId>,
        socket: Option<BorrowedFd<'a>>,
    ) -> Self {
        debug_assert!(out.len() >= Self::ROOM_MIN, "a loop gave too little room");
        Self {
            now,
            id,
            out,
            filled: 0,
            payload: None,
            ending: None,
            wants_sent_notice: false,
            is_input_paused: false,
            ends_output: false,
            leaves_input: false,
            reads_on: false,
            waiting: None,
            receives_little: false,
            seen: ReadOutcome::Unseen,
            deadline: Moment::NEVER,
            wakes,
            socket,
            can_share: false,
            sharing: None,
        }
    }

    /// The clocks at the start of this turn.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Now {
        self.now
    }

    /// This connection.
    #[must_use]
    #[inline]
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// The peer's address; none for unix sockets and connections that are gone. A system call.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        let address = rustix::net::getpeername(self.socket?).ok()??;
        SocketAddr::try_from(address).ok()
    }

    /// The address of this end: the one of the listener, or the one that it stands for where that is
    /// a wildcard; none for connections that are gone. A system call.
    #[must_use]
    pub fn local(&self) -> Option<ListenAddress> {
        ListenAddress::of(rustix::net::getsockname(self.socket?).ok()?)
    }

    /// Has the kernel take no more output than this beyond what it can send now: what waits here can still be put in
    /// another order. For connections of TCP, once; others have no such limit. A system call.
    pub fn limit_unsent(&self, bytes: u32) {
        if let Some(socket) = self.socket {
            // Of another family, or gone: either is known by other means.
            let _ = pollux_sys::socket::limit_unsent(socket, bytes);
        }
    }

    /// Whether bytes lie in the socket that were not received; false for connections that are gone, and on a
    /// completion loop for bytes that it has received and not shown yet. A system call.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        let unread = self.socket.map(rustix::io::ioctl_fionread);
        matches!(unread, Some(Ok(1..)))
    }

    /// Lets another protocol speak above this one, such as HTTP above TLS: what `upper` sends is
    /// put into `room` instead of being sent, and what else it requests is requested here. Gives
    /// back what `upper` gave, and how many bytes it wanted to send.
    ///
    /// An ending and an end of the output that `upper` requests come before what this protocol has
    /// still to say of them: see [`Actions::hold_ending`] and [`Actions::hold_output_end`]. A
    /// connection that `upper` shares is shared with what this protocol knows of it, which has to go
    /// where the connection goes.
    ///
    /// # Panics
    /// When `room` has less than [`Actions::ROOM_MIN`] bytes, or `upper` sends a file range: it
    /// would leave past this protocol.
    pub fn layered<R>(
        &mut self,
        room: &mut [u8],
        upper: impl FnOnce(&mut Actions<'_>) -> R,
    ) -> (R, usize) {
        assert!(room.len() >= Self::ROOM_MIN, "an upper protocol has the room that all have");
        let mut above = Actions {
            now: self.now,
            id: self.id,
            out: room,
            filled: 0,
            payload: None,
            ending: self.ending,
            wants_sent_notice: self.wants_sent_notice,
            is_input_paused: self.is_input_paused,
            ends_output: self.ends_output,
            leaves_input: false,
            reads_on: self.reads_on,
            waiting: self.waiting,
            receives_little: false,
            seen: ReadOutcome::Unseen,
            deadline: self.deadline,
            wakes: &mut *self.wakes,
            socket: self.socket,
            can_share: self.can_share,
            sharing: self.sharing.take(),
        };
        let result = upper(&mut above);
        assert!(above.payload.is_none(), "a file range can't pass another protocol");
        let Actions { filled, ending, wants_sent_notice, is_input_paused, deadline, .. } = above;
        (self.ends_output, self.sharing) = (above.ends_output, above.sharing);
        self.reads_on = above.reads_on;
        self.ending = ending;
        self.wants_sent_notice = wants_sent_notice;
        self.is_input_paused = is_input_paused;
        self.deadline = deadline;
        (result, filled)
    }

    /// Bytes that can still be sent in this call.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        self.out.len() - self.filled
    }

    /// Bytes sent so far in this call.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether nothing was sent so far in this call.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Sends a copy of `bytes`.
    ///
    /// # Panics
    /// When they exceed [`Actions::room`], or stand behind a file range.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) {
        assert!(self.payload.is_none(), "nothing may follow a file range in the same call");
        self.out[self.filled..][..bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// The unused room, for output that is made in place; [`Actions::advance`] sends it.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.out[self.filled..]
    }

    /// Sends the first `len_bytes` of what was written into [`Actions::spare`].
    ///
    /// # Panics
    /// When they exceed the room, or stand behind a file range.
    #[inline]
    pub fn advance(&mut self, len_bytes: usize) {
        assert!(self.payload.is_none(), "nothing may follow a file range in the same call");
        assert!(len_bytes <= self.room(), "more than the room");
        self.filled += len_bytes;
    }

    /// Sends a range of a file behind the bytes of this call.
    ///
    /// # Panics
    /// When the call has one already.
    pub fn send_file(&mut self, range: FileRange) {
        assert!(self.payload.is_none(), "one file range in a call");
        self.payload = Some(Payload::File(range));
    }

    /// Sends `len` bytes that are in the pipe behind the bytes of this call. The pipe is empty again when
    /// all output has left ([`Actions::notify_when_sent`]).
    ///
    /// # Panics
    /// When the call has a file range or a pipe already.
    pub fn send_pipe(&mut self, pipe: Arc<Pipe>, len: u64) {
        assert!(self.payload.is_none(), "one file range or pipe in a call");
        self.payload = Some(Payload::Pipe(pipe, len));
    }

    /// Leaves input in the socket: [`Session::on_readable`](crate::Session::on_readable) is called
    /// instead of `on_bytes`. What was received before still comes by that. Not under another protocol,
    /// and where there is no socket, as in a rehearsal, all input comes by `on_bytes`.
    pub fn leave_input(&mut self) {
        self.leaves_input = true;
    }

    /// Takes input by `on_bytes` again.
    pub fn take_input(&mut self) {
        self.leaves_input = false;
    }

    /// Has the next receive be a small one: what comes next may begin with a head, behind which the session leaves the rest in the
    /// socket. A hint, for loops that receive before they know.
    pub fn receive_little(&mut self) {
        self.receives_little = true;
    }

    /// Takes what is in the socket, `bytes_max` bytes of it at most, into a pipe that is empty; in `on_readable`, once in a
    /// call.
    ///
    /// # Panics
    /// When `bytes_max` is 0.
    pub fn splice_in(&mut self, pipe: &Pipe, bytes_max: u64) -> SplicedIn {
        assert!(bytes_max > 0, "nothing is taken by asking for nothing");
        let Some(socket) = self.socket else { return SplicedIn::Nothing };
        let Some(seen) = pipe.fill(socket, bytes_max) else { return SplicedIn::Refused };
        self.seen = seen;
        match seen {
            ReadOutcome::Bytes(taken) => SplicedIn::Bytes(taken.into()),
            ReadOutcome::Nothing | ReadOutcome::Unseen => SplicedIn::Nothing,
            ReadOutcome::Ended | ReadOutcome::Broken(_) => SplicedIn::Over,
        }
    }

    /// Has `on_bytes`, `on_readable` and `on_end` come while output waits, from now on, until [`Actions::read_in_turn`]. For a
    /// session whose peer may wait for it to read before it reads itself, such as one that sends a long body: two that send
    /// and do not read would wait for each other for ever.
    ///
    /// What such a call sends goes behind what waits, and a connection with more than 1 MiB of it is closed
    /// ([`CloseCause::SlowReader`](crate::CloseCause::SlowReader)): a session asks [`Actions::is_output_waiting`] before it sends more
    /// than a few bytes, or stops to read on.
    ///
    /// Where a send fails because the peer has reset the connection, what had come from it before is still shown, and then the
    /// connection is closed: a server that refuses a body answers before it does so (RFC 9112 9.5).
    #[inline]
    pub fn read_on(&mut self) {
        self.reads_on = true;
    }

    /// Has no input come while output waits, as in the beginning: a peer that does not read is not read from.
    #[inline]
    pub fn read_in_turn(&mut self) {
        self.reads_on = false;
    }

    /// Whether input is shown while output waits ([`Actions::read_on`]).
    #[must_use]
    #[inline]
    pub fn reads_on(&self) -> bool {
        self.reads_on
    }

    /// Whether output of earlier calls waits for the peer.
    #[must_use]
    #[inline]
    pub fn is_output_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// How many bytes of earlier calls wait for the peer in this process, those of files and pipes included; what the kernel
    /// has taken is not known here.
    #[must_use]
    #[inline]
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting.unwrap_or(0)
    }

    /// Says to what speaks above this protocol, from now on in this call, that output waits: this protocol holds some of it
    /// for which there was no room.
    #[inline]
    pub fn hold_output(&mut self) {
        self.waiting.get_or_insert(0);
    }

    /// Asks for [`Session::on_output_sent`](crate::Session::on_output_sent) when all output has left;
    /// afterwards unused input comes again without waiting for more.
    #[inline]
    pub fn notify_when_sent(&mut self) {
        self.wants_sent_notice = true;
    }

    /// Stops `on_bytes` until [`Actions::resume_input`]; the peer is slowed down by its window.
    ///
    /// A peer that goes away meanwhile may stay unnoticed: a session that pauses sets a deadline,
    /// or is woken by another session.
    pub fn pause_input(&mut self) {
        self.is_input_paused = true;
    }

    /// Whether input is paused; never in `on_bytes`, which begins without a pause.
    #[must_use]
    pub fn is_input_paused(&self) -> bool {
        self.is_input_paused
    }

    /// Takes input again.
    pub fn resume_input(&mut self) {
        self.is_input_paused = false;
    }

    /// The deadline in force; [`Moment::NEVER`] when none is set.
    #[must_use]
    #[inline]
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Sets, moves or (with [`Moment::NEVER`]) clears the connection's deadline. Moving it
    /// later costs two stores. Deadlines fire up to a millisecond late, never early.
    #[inline]
    pub fn set_deadline(&mut self, deadline: Moment) {
        self.deadline = deadline;
    }

    /// Closes the connection when all output has left. For input that was used up whole: bytes
    /// that arrive unread make the kernel reset the connection, which may destroy the output.
    #[inline]
    pub fn close(&mut self) {
        self.ending.get_or_insert(Ending::Close);
    }

    /// Ends the output when it has left, and keeps the input open: the peer learns that no more will
    /// come (`shutdown(2)`, SHUT_WR). Nothing may be sent afterwards.
    pub fn end_output(&mut self) {
        self.ends_output = true;
    }

    /// Ends the output when it has left, drops what still comes in for a bounded time and number of bytes
    /// ([`Limits::linger_time`](crate::Limits::linger_time), `linger_bytes`), then closes: for refusals that
    /// leave input unread (RFC 9112 9.6). A peer that sends beyond these bounds is reset.
    pub fn linger(&mut self) {
        self.ending.get_or_insert(Ending::Linger);
    }

    /// Closes at once; output that has not left is lost.
    pub fn abort(&mut self) {
        self.ending = Some(Ending::Abort);
    }

    /// As [`Actions::abort`], and resets a TCP connection: the peer gets an error and not an end,
    /// which would mean that it has everything.
    pub fn reset(&mut self) {
        self.ending = Some(Ending::Reset);
    }

    /// Whether an end was requested in this call.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Holds back a requested close or linger, for a lower protocol that still has to send (TLS close_notify).
    /// The session that requested it must not be called again.
    pub fn hold_ending(&mut self) -> Option<DeferredClose> {
        match self.ending {
            Some(ending @ (Ending::Close | Ending::Linger)) => {
                self.ending = None;
                Some(DeferredClose(ending))
            }
            _ => None,
        }
    }

    /// Holds back a requested end of the output, for a lower protocol that still has to send;
    /// whether there was one.
    pub fn hold_output_end(&mut self) -> bool {
        std::mem::take(&mut self.ends_output)
    }

    /// Requests an ending again that was held back.
    pub fn end(&mut self, held: DeferredClose) {
        self.ending.get_or_insert(held.0);
    }

    /// Whether connections of this loop can pass to another one, see [`Actions::share`].
    #[must_use]
    pub fn can_share(&self) -> bool {
        self.can_share
    }

    /// Makes this connection one that other loops may take over ([`Command::TakeOver`]) while the
    /// session has put it down; this loop, whose number is `owner`, owns it. None where the driver
    /// can't do so (a completion loop has a receive under way, which would take what is another
    /// loop's), and when no descriptor is left. Once for a connection.
    ///
    /// From then on the loop acts on the connection only while it owns it, and a session that is
    /// called owns it, also one that had put it down. What it does with [`SharedSocket::release`]
    /// is to be done at the end of a turn ([`Session::end_turn`]): what the loop has to do in this
    /// turn is done by then.
    ///
    /// [`Command::TakeOver`]: crate::Command::TakeOver
    /// [`Session::end_turn`]: crate::Session::end_turn
    pub fn share(&mut self, owner: u32) -> Option<Arc<SharedSocket>> {
        let socket = self.socket.filter(|_| self.can_share)?.try_clone_to_owned().ok()?;
        let socket = Arc::new(SharedSocket::new(socket, owner));
        self.sharing = Some(Box::new(Sharing { socket: Arc::clone(&socket), owner }));
        Some(socket)
    }

    /// Has another session of this loop called in this turn; nothing happens when it is gone.
    pub fn wake(&mut self, other: ConnectionId) {
        self.wakes.push(other);
    }
}
