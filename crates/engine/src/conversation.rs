//! What every loop does with a session, whatever mechanism moves the bytes.
//!
//! A loop keeps one [`Conversation`] for each connection and feeds it what arrives; the
//! conversation calls the session in the order that `session.rs` promises, keeps input that was
//! not used, and hands output to the loop's [`ConnectionIo`]. It makes no system call.
//!
//! ```text
//!            input, peer's end, output has left, deadline, wake
//!                                │
//!                                ▼
//!   told to notify?   ── yes ──► on_output_sent ─┐
//!   unseen input?     ── yes ──► on_bytes ───┤ output ► ConnectionIo ─► gone: continue
//!   peer's end?       ── yes ──► on_end ─────┘                      └─► waits: stop until it left
//!   else: done for now
//! ```
//!
//! A session that [reads on](Actions::read_on) gets `on_bytes` and `on_end` also while output waits. What it leaves of
//! its input then, though it asked for another call, comes again when the output has left, or with what arrives next.

use std::io;
use std::os::fd::BorrowedFd;

use crate::actions::{Ending, Payload, Sharing};
use crate::output::OutputState;
use crate::pipe::{PackedReadOutcome, ReadOutcome};
use crate::{Actions, CloseCause, ConnectionId, Moment, Now, Session};

/// Most input that a connection keeps unused: a whole pool of receive buffers may be under way
/// when a session stops reading. Protocols bound what they need far below.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Calls of one session in a row before the others get their turn.
const CALLS_MAX: u32 = 16;

/// A connection's I/O as its loop does it: the conversation hands output to it.
pub(crate) trait ConnectionIo {
    /// Whether connections of this loop can pass to another one.
    const CAN_SHARE: bool = false;

    /// Room for the output of one call, at least [`Actions::ROOM_MIN`] bytes, and the socket.
    fn parts(&mut self) -> (&mut [u8], Option<BorrowedFd<'_>>);

    /// Takes the first `len` bytes of the room, and a file or a pipe behind them. Output that waits is
    /// kept by it, in order.
    fn send(&mut self, len: usize, payload: Option<Payload>) -> Result<Sent, CloseCause>;

    /// Bytes of output that wait.
    fn waiting_bytes(&self) -> u64;

    /// A send of so many bytes failed, and the session is to be shown what has come.
    ///
    /// # Errors
    /// The connection closes at once all the same.
    fn keep_reading(&mut self, bytes: u64, cause: CloseCause) -> Result<(), CloseCause> {
        let _ = bytes;
        Err(cause)
    }
}

/// What became of output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// The kernel has it all.
    Gone,
    /// Some of it waits; the loop says [`Conversation::output_left`] when it has left.
    Waits,
}

/// What a turn is made of, for one connection.
pub(crate) struct Turn<'a> {
    pub(crate) now: Now,
    pub(crate) id: ConnectionId,
    pub(crate) wakes: &'a mut Vec<ConnectionId>,
}

/// How far a conversation came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Progress {
    /// Nothing more to do until something happens.
    Idle,
    /// It had its share of this turn and continues in the next one.
    Unfinished,
}

/// A call that comes from outside the stream of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionCall {
    Connected,
    Readable,
    Deadline,
    Wake,
    Shutdown,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Bytes,
    End,
    OutputSent,
    Outside(SessionCall),
}

const PAUSED: u8 = 1 << 0;
const NOTIFY_WHEN_SENT: u8 = 1 << 1;
const UNSEEN: u8 = 1 << 2;
const INPUT_ENDED: u8 = 1 << 3;
const END_SEEN: u8 = 1 << 4;
const WAITING: u8 = 1 << 5;
const CLOSE: u8 = 1 << 6;
const LINGER: u8 = 1 << 7;

/// A session and what its loop remembers of it between calls.
pub(crate) struct Conversation<S> {
    session: S,
    /// Boxed, so that a connection without unused input pays one pointer.
    #[expect(clippy::box_collection, reason = "a thin pointer: most connections keep nothing")]
    kept: Option<Box<Vec<u8>>>,
    deadline: Moment,
    /// Others may take the connection over. Boxed for the same reason.
    sharing: Option<Box<Sharing>>,
    state: u8,
    /// The loop opened the connection.
    is_outgoing: bool,
    /// The output is to end, once none waits; it has not yet.
    ends_output: bool,
    /// Input stays in the socket until the session takes it.
    leaves_input: bool,
    /// Input is shown while output waits.
    reads_on: bool,
    /// The peer is not there yet.
    is_connecting: bool,
    /// The unseen input was shown, and comes again when the output has left.
    was_shown: bool,
    /// The next receive is to be a small one.
    receives_little: bool,
    /// What its loop knows of [`Conversation::is_waiting`].
    was_waiting: bool,
    /// What it found there last.
    seen: PackedReadOutcome,
}

impl<S: Session> Conversation<S> {
    /// Accepts a connection. [`Conversation::pump`] follows when it is unfinished.
    pub(crate) fn accept(
        shared: &mut S::Shared,
        turn: &mut Turn<'_>,
        io: &mut impl ConnectionIo,
    ) -> (Self, Result<Progress, CloseCause>) {
        let (out, socket) = io.parts();
        let mut actions = Actions::new(turn.now, turn.id, out, turn.wakes, socket);
        let session = S::accepted(shared, &mut actions);
        let requested = Requested::of(actions);
        let mut conversation = Self::new(session);
        let done = conversation.apply_requests(requested, io);
        let done = done.map(|()| conversation.progress());
        (conversation, done)
    }

    /// A conversation of a session that exists already.
    pub(crate) fn new(session: S) -> Self {
        let kept = None;
        let sharing = None;
        let deadline = Moment::NEVER;
        let is_outgoing = false;
        let ends_output = false;
        let leaves_input = false;
        let state = 0;
        let was_waiting = false;
        let seen = PackedReadOutcome::default();
        Self {
            session,
            kept,
            deadline,
            sharing,
            state,
            is_outgoing,
            ends_output,
            leaves_input,
            reads_on: false,
            is_connecting: false,
            was_shown: false,
            receives_little: false,
            was_waiting,
            seen,
        }
    }

    /// A conversation whose peer is not there yet: as with output that waits, only occasions
    /// reach the session until [`Conversation::output_left`].
    pub(crate) fn connecting(session: S, deadline: Moment) -> Self {
        let is_outgoing = true;
        let is_connecting = true;
        Self { deadline, state: WAITING, is_outgoing, is_connecting, ..Self::new(session) }
    }

    /// A conversation on a connection that another loop had.
    pub(crate) fn taken_over(session: S, deadline: Moment, sharing: Sharing) -> Self {
        let sharing = Some(Box::new(sharing));
        Self { deadline, sharing, is_outgoing: true, ..Self::new(session) }
    }

    /// Feeds `input`, or nothing, and calls the session as long as there is something to do.
    ///
    /// # Errors
    /// The connection is to be closed at once, for the cause given.
    pub(crate) fn pump(
        &mut self,
        shared: &mut S::Shared,
        turn: &mut Turn<'_>,
        io: &mut impl ConnectionIo,
        mut input: &[u8],
    ) -> Result<Progress, CloseCause> {
        for _ in 0..CALLS_MAX {
            if self.ending().is_some() {
                self.kept = None;
                return Ok(Progress::Idle);
            }
            let Some(call) = self.next_call(input) else {
                return self.keep(input).map(|()| Progress::Idle);
            };
            if call == Call::Bytes {
                self.on_bytes(shared, turn, io, &mut input)?;
            } else {
                self.call(call, shared, turn, io)?;
            }
        }
        self.keep(input)?;
        Ok(self.progress())
    }

    /// Calls the session for something that is not input; [`Conversation::pump`] follows.
    pub(crate) fn notify(
        &mut self,
        call: SessionCall,
        shared: &mut S::Shared,
        turn: &mut Turn<'_>,
        io: &mut impl ConnectionIo,
    ) -> Result<(), CloseCause> {
        if self.ending().is_some() {
            return Ok(());
        }
        self.is_connecting &= call != SessionCall::Connected;
        self.call(Call::Outside(call), shared, turn, io)
    }

    /// The peer will send no more.
    pub(crate) fn input_ended(&mut self) {
        self.state |= INPUT_ENDED;
    }

    pub(crate) fn has_input_ended(&self) -> bool {
        self.state & INPUT_ENDED != 0
    }

    /// All output has left; [`Conversation::pump`] follows.
    pub(crate) fn output_left(&mut self) {
        self.state &= !WAITING;
        self.was_shown = false;
    }

    /// Output that was taken for gone has come back.
    pub(crate) fn output_waits(&mut self) {
        self.state |= WAITING;
    }

    /// Output waits to leave.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state & WAITING != 0
    }

    /// Whether output waits to leave, where that was different when this was called last.
    #[inline]
    pub(crate) fn waiting_changed(&mut self) -> Option<bool> {
        let is_waiting = self.is_waiting();
        let was_waiting = std::mem::replace(&mut self.was_waiting, is_waiting);
        (is_waiting != was_waiting).then_some(is_waiting)
    }

    /// Whether output waited when [`Conversation::waiting_changed`] was called last.
    pub(crate) fn was_waiting(&self) -> bool {
        self.was_waiting
    }

    /// Whether reading more makes sense now.
    #[inline]
    pub(crate) fn wants_input(&self) -> bool {
        let stops = PAUSED | INPUT_ENDED | CLOSE | UNSEEN;
        match self.state & (stops | WAITING) {
            0 => true,
            WAITING => self.reads_on(),
            _ => false,
        }
    }

    /// Whether input is shown while output waits.
    pub(crate) fn reads_on(&self) -> bool {
        self.reads_on && !self.is_connecting
    }

    /// How the connection is to end, once no output waits.
    pub(crate) fn ending(&self) -> Option<Ending> {
        match self.state & (CLOSE | LINGER) {
            0 => None,
            CLOSE => Some(Ending::Close),
            _ => Some(Ending::Linger),
        }
    }

    /// Whether the loop has to end the output now that none waits; true until it has.
    pub(crate) fn ends_output(&self) -> bool {
        self.ends_output
    }

    /// Whether input stays in the socket: [`SessionCall::Readable`] reports it.
    pub(crate) fn leaves_input(&self) -> bool {
        self.leaves_input
    }

    /// What the session found in the socket since the last call.
    pub(crate) fn take_seen(&mut self) -> ReadOutcome {
        std::mem::take(&mut self.seen).unpacked()
    }

    /// Whether the next receive is to be a small one; true until it has brought something.
    pub(crate) fn receives_little(&self) -> bool {
        self.receives_little
    }

    /// A receive has brought something.
    pub(crate) fn has_received(&mut self) {
        self.receives_little = false;
    }

    /// The loop has ended the output.
    pub(crate) fn output_ended(&mut self) {
        self.ends_output = false;
    }

    /// Whether the loop opened the connection, and accepted or adopted no other's.
    pub(crate) fn is_outgoing(&self) -> bool {
        self.is_outgoing
    }

    /// What other loops take the connection over by.
    #[inline]
    pub(crate) fn sharing(&self) -> Option<&Sharing> {
        self.sharing.as_deref()
    }

    /// The session's deadline.
    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// The deadline has come: it is no longer set.
    pub(crate) fn deadline_fired(&mut self) {
        self.deadline = Moment::NEVER;
    }

    /// Bytes of input that wait for the session.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.len())
    }

    /// Notifies the session that its peer will not be there; [`Conversation::closed`] follows.
    pub(crate) fn connect_failed(&mut self, shared: &mut S::Shared, error: io::Error) {
        self.session.connect_failed(shared, error);
    }

    /// Notifies the session of output that will not leave; [`Conversation::closed`] follows.
    pub(crate) fn output_lost(&mut self, output_state: &OutputState) {
        match output_state {
            OutputState::Waiting(output) => self.lose(output.unsent_bytes()),
            OutputState::Broken(broken) => self.lose(broken.lost_bytes),
            OutputState::None | OutputState::Lingering(_) => {}
        }
    }

    /// As [`Conversation::output_lost`], where so many bytes wait.
    pub(crate) fn lose(&mut self, bytes: u64) {
        if bytes > 0 {
            self.session.output_lost(bytes);
        }
    }

    /// Notifies the session that the connection is over.
    pub(crate) fn closed(self, shared: &mut S::Shared, cause: CloseCause) {
        self.session.closed(shared, cause);
    }

    pub(crate) fn session(&self) -> &S {
        &self.session
    }

    /// Whether there is something to do without more input.
    pub(crate) fn progress(&self) -> Progress {
        if self.next_call(&[]).is_some() { Progress::Unfinished } else { Progress::Idle }
    }

    fn next_call(&self, input: &[u8]) -> Option<Call> {
        let is_waiting = self.state & WAITING != 0;
        if is_waiting && !self.reads_on() {
            return None;
        }
        if !is_waiting && self.state & NOTIFY_WHEN_SENT != 0 && !self.shows_input_first(input) {
            return Some(Call::OutputSent);
        }
        if self.state & PAUSED != 0 {
            return None;
        }
        if !input.is_empty() || self.state & UNSEEN != 0 && !(is_waiting && self.was_shown) {
            return Some(Call::Bytes);
        }
        if is_waiting && self.state & UNSEEN != 0 {
            return None;
        }
        (self.state & (INPUT_ENDED | END_SEEN) == INPUT_ENDED).then_some(Call::End)
    }

    /// Whether input comes before another call to send more: a session that reads on, and always has more to send, would
    /// see none as long as its peer reads as fast.
    fn shows_input_first(&self, input: &[u8]) -> bool {
        let is_new = !input.is_empty() || self.state & UNSEEN != 0 && !self.was_shown;
        is_new && self.reads_on() && self.state & PAUSED == 0
    }

    /// Shows the session its input: `input` itself, or behind what was kept.
    fn on_bytes<O: ConnectionIo>(
        &mut self,
        shared: &mut S::Shared,
        turn: &mut Turn<'_>,
        io: &mut O,
        input: &mut &[u8],
    ) -> Result<(), CloseCause> {
        let mut kept = self.kept.take();
        if let Some(kept) = &mut kept {
            kept.extend_from_slice(input);
            *input = &[];
        }
        let shown = kept.as_ref().map_or(*input, |kept| kept.as_slice());
        let waiting = self.waiting(io);
        let (out, socket) = io.parts();
        let mut actions = Actions::new(turn.now, turn.id, out, turn.wakes, socket);
        actions.deadline = self.deadline;
        actions.can_share = O::CAN_SHARE;
        actions.leaves_input = self.leaves_input;
        actions.reads_on = self.reads_on;
        actions.waiting = waiting;
        let used = self.session.on_bytes(shared, &mut actions, shown);
        assert!(used <= shown.len(), "a session used more input than there was");
        let is_rest = used < shown.len();
        let mut requested = Requested::of(actions);
        match &mut kept {
            Some(kept) => drop(kept.drain(..used)),
            None => *input = &input[used..],
        }
        self.kept = kept.filter(|kept| !kept.is_empty());
        let comes_again = is_rest && (requested.wants_sent_notice || requested.is_input_paused);
        self.set(UNSEEN, comes_again);
        // What was asked for before stands: only where output waited it is still to come.
        requested.wants_sent_notice |= self.state & NOTIFY_WHEN_SENT != 0;
        self.was_shown = comes_again;
        self.apply_requests(requested, io)?;
        // What is left unused without a request needs more input: it waits where it is kept.
        self.keep_rest(input)
    }

    fn keep_rest(&mut self, input: &mut &[u8]) -> Result<(), CloseCause> {
        let unseen = self.state & UNSEEN;
        let was_shown = self.was_shown;
        self.keep(input)?;
        *input = &[];
        self.state = self.state & !UNSEEN | unseen;
        self.was_shown = was_shown;
        Ok(())
    }

    fn call<O: ConnectionIo>(
        &mut self,
        call: Call,
        shared: &mut S::Shared,
        turn: &mut Turn<'_>,
        io: &mut O,
    ) -> Result<(), CloseCause> {
        let waiting = self.waiting(io);
        let (out, socket) = io.parts();
        let mut actions = Actions::new(turn.now, turn.id, out, turn.wakes, socket);
        actions.deadline = self.deadline;
        actions.can_share = O::CAN_SHARE;
        actions.leaves_input = self.leaves_input;
        actions.reads_on = self.reads_on;
        actions.waiting = waiting;
        actions.is_input_paused = self.state & PAUSED != 0;
        actions.wants_sent_notice = self.state & NOTIFY_WHEN_SENT != 0;
        match call {
            Call::OutputSent => {
                actions.wants_sent_notice = false;
                self.session.on_output_sent(shared, &mut actions);
            }
            Call::End => {
                self.state |= END_SEEN;
                self.session.on_end(shared, &mut actions);
            }
            Call::Outside(SessionCall::Connected) => self.session.connected(shared, &mut actions),
            Call::Outside(SessionCall::Readable) => self.session.on_readable(shared, &mut actions),
            Call::Outside(SessionCall::Deadline) => self.session.on_deadline(shared, &mut actions),
            Call::Outside(SessionCall::Wake) => self.session.on_wake(shared, &mut actions),
            Call::Outside(SessionCall::Shutdown) => self.session.on_shutdown(shared, &mut actions),
            Call::Bytes => unreachable!("on_bytes has its own way"),
        }
        let requested = Requested::of(actions);
        if requested.wants_sent_notice && self.kept.is_some() {
            self.state |= UNSEEN;
        }
        if requested.is_input_paused || self.state & WAITING == 0 {
            self.was_shown = false;
        }
        self.apply_requests(requested, io)
    }

    fn apply_requests(
        &mut self,
        requested: Requested,
        io: &mut impl ConnectionIo,
    ) -> Result<(), CloseCause> {
        self.deadline = requested.deadline;
        self.set(PAUSED, requested.is_input_paused);
        self.set(NOTIFY_WHEN_SENT, requested.wants_sent_notice);
        self.ends_output |= requested.ends_output;
        self.leaves_input = requested.leaves_input;
        self.reads_on = requested.reads_on;
        self.receives_little |= requested.receives_little;
        if requested.seen != ReadOutcome::Unseen {
            self.seen = requested.seen.into();
        }
        if requested.sharing.is_some() {
            self.sharing = requested.sharing;
        }
        match requested.ending {
            Some(Ending::Abort) => return Err(CloseCause::Aborted),
            Some(Ending::Reset) => return Err(CloseCause::Reset),
            Some(Ending::Close) => self.state |= CLOSE,
            Some(Ending::Linger) => self.state |= LINGER,
            None => {}
        }
        if requested.len == 0 && requested.payload.is_none() {
            return Ok(());
        }
        match io.send(requested.len, requested.payload) {
            Ok(Sent::Gone) => {}
            Ok(Sent::Waits) => self.state |= WAITING,
            Err(CloseCause::PeerReset) if self.reads_on() => {
                self.state |= WAITING;
                return io.keep_reading(requested.len as u64, CloseCause::PeerReset);
            }
            Err(cause) => return Err(cause),
        }
        Ok(())
    }

    /// How much output waits, if any.
    fn waiting(&self, io: &impl ConnectionIo) -> Option<u64> {
        self.is_waiting().then(|| io.waiting_bytes())
    }

    /// Puts `input`, which no session has seen, behind what is kept, which is bounded.
    #[inline]
    fn keep(&mut self, input: &[u8]) -> Result<(), CloseCause> {
        if input.is_empty() && self.kept.is_none() { Ok(()) } else { self.keep_more(input) }
    }

    #[inline(never)]
    fn keep_more(&mut self, input: &[u8]) -> Result<(), CloseCause> {
        if !input.is_empty() {
            self.kept.get_or_insert_default().extend_from_slice(input);
            self.state |= UNSEEN;
            self.was_shown = false;
        }
        if self.kept_bytes() > KEPT_BYTES_MAX { Err(CloseCause::InputLimit) } else { Ok(()) }
    }

    fn set(&mut self, bit: u8, is_set: bool) {
        if is_set {
            self.state |= bit;
        } else {
            self.state &= !bit;
        }
    }
}

/// What is left of [`Actions`] when the borrow of the room is over.
struct Requested {
    len: usize,
    payload: Option<Payload>,
    ending: Option<Ending>,
    wants_sent_notice: bool,
    is_input_paused: bool,
    ends_output: bool,
    leaves_input: bool,
    reads_on: bool,
    receives_little: bool,
    seen: ReadOutcome,
    deadline: Moment,
    sharing: Option<Box<Sharing>>,
}

impl Requested {
    fn of(actions: Actions<'_>) -> Self {
        Self {
            len: actions.len(),
            payload: actions.payload,
            ending: actions.ending,
            wants_sent_notice: actions.wants_sent_notice,
            is_input_paused: actions.is_input_paused,
            ends_output: actions.ends_output,
            leaves_input: actions.leaves_input,
            reads_on: actions.reads_on,
            receives_little: actions.receives_little,
            seen: actions.seen,
            deadline: actions.deadline,
            sharing: actions.sharing,
        }
    }
}
