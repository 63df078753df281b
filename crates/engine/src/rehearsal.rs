//! A session without a kernel: bytes in, bytes out, time by hand.
//!
//! For tests and fuzzers of protocols. The calls come through the same code as in the loops.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use pollux_poller::Token;

use crate::actions::{Ending, Payload};
use crate::conversation::{ConnectionIo, Conversation, Progress, Sent, SessionCall, Turn};
use crate::{Actions, CloseCause, ConnectionId, FileRange, Moment, Now, Session};

/// One connection of one session, played in memory.
///
/// The peer takes all output at once, unless [`stall`](Self::stall) was called.
///
/// ```
/// use pollux_engine::{Actions, CloseCause, Now, Rehearsal, Session};
/// use std::time::Duration;
///
/// /// Answers each line, and closes a connection that is silent for a second.
/// struct Lines;
///
/// impl Session for Lines {
///     type Shared = ();
///
///     fn accepted(_: &mut (), actions: &mut Actions<'_>) -> Self {
///         actions.set_deadline(actions.now().at + Duration::from_secs(1));
///         Self
///     }
///
///     fn on_bytes(&mut self, _: &mut (), actions: &mut Actions<'_>, input: &[u8]) -> usize {
///         // An incomplete line comes again, with what arrives next.
///         let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
///         actions.send(b"ok\n");
///         actions.notify_when_sent();
///         end + 1
///     }
///
///     fn on_end(&mut self, _: &mut (), actions: &mut Actions<'_>) {
///         actions.close();
///     }
///
///     fn on_deadline(&mut self, _: &mut (), actions: &mut Actions<'_>) {
///         actions.close();
///     }
///
///     fn on_shutdown(&mut self, _: &mut (), actions: &mut Actions<'_>) {
///         actions.close();
///     }
/// }
///
/// let mut play = Rehearsal::<Lines>::new((), Now::default());
/// play.feed(b"one\ntw");
/// assert_eq!(play.take_output(), b"ok\n");
/// play.feed(b"o\n");
/// assert_eq!(play.take_output(), b"ok\n");
/// play.pass(Duration::from_secs(2));
/// assert_eq!(play.closed(), Some(CloseCause::Session));
/// ```
pub struct Rehearsal<S: Session> {
    /// What the sessions of a loop share.
    pub shared: S::Shared,
    conversation: Option<Conversation<S>>,
    stage: Stage,
    now: Now,
    /// Whom the session woke in the call under way; nobody else is there.
    wakes: Vec<ConnectionId>,
    cause: Option<CloseCause>,
}

impl<S: Session> Rehearsal<S> {
    /// Accepts a connection at `now`.
    pub fn new(shared: S::Shared, now: Now) -> Self {
        let stage = Stage {
            room: vec![0; Actions::ROOM_MIN],
            output: Vec::new(),
            waiting: Vec::new(),
            is_stalled: false,
        };
        let conversation = None;
        let cause = None;
        let mut this = Self { shared, conversation, stage, now, wakes: Vec::new(), cause };
        S::begin_turn(&mut this.shared, now);
        let mut turn = Turn { now, id: ID, wakes: &mut this.wakes };
        let (conversation, done) =
            Conversation::accept(&mut this.shared, &mut turn, &mut this.stage);
        this.conversation = Some(conversation);
        this.finish(done);
        this.call_session(|_| {}, None, &[]);
        this
    }

    /// A connection that the loop opened for `session` ([`Command::Connect`](crate::Command::Connect)), which is not there
    /// yet.
    pub fn outgoing(session: S, mut shared: S::Shared, now: Now) -> Self {
        let stage = Stage {
            room: vec![0; Actions::ROOM_MIN],
            output: Vec::new(),
            waiting: Vec::new(),
            is_stalled: false,
        };
        S::begin_turn(&mut shared, now);
        let conversation = Some(Conversation::connecting(session, Moment::NEVER));
        Self { shared, conversation, stage, now, wakes: Vec::new(), cause: None }
    }

    /// The peer of [`Rehearsal::outgoing`] is there.
    pub fn connected(&mut self) {
        self.call_session(Conversation::output_left, Some(SessionCall::Connected), &[]);
    }

    /// Another session woke this one.
    pub fn woken(&mut self) {
        self.call_session(|_| {}, Some(SessionCall::Wake), &[]);
    }

    /// Bytes arrive from the peer; ignored when the connection is closed.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.call_session(|_| {}, None, bytes);
    }

    /// The peer says that it will send no more.
    pub fn end(&mut self) {
        self.call_session(Conversation::input_ended, None, &[]);
    }

    /// Time passes; the deadline fires when it lies within.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now.at + time;
        let deadline = self.deadline();
        if deadline <= until {
            self.set_now(deadline.max(self.now.at));
            self.call_session(Conversation::deadline_fired, Some(SessionCall::Deadline), &[]);
        }
        self.set_now(until);
    }

    /// The loop drains.
    pub fn drain(&mut self) {
        self.call_session(|_| {}, Some(SessionCall::Shutdown), &[]);
    }

    /// The peer takes no more output, until [`Rehearsal::flow`].
    pub fn stall(&mut self) {
        self.stage.is_stalled = true;
    }

    /// The peer takes all output again.
    pub fn flow(&mut self) {
        self.stage.is_stalled = false;
        self.stage.output.append(&mut self.stage.waiting);
        self.call_session(Conversation::output_left, None, &[]);
    }

    /// Takes what the peer has received since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.stage.output)
    }

    /// The session's deadline.
    pub fn deadline(&self) -> Moment {
        self.conversation.as_ref().map_or(Moment::NEVER, Conversation::deadline)
    }

    /// The session, while the connection is open.
    pub fn session(&self) -> Option<&S> {
        self.conversation.as_ref().map(Conversation::session)
    }

    /// Why the connection was closed; none while it is open.
    pub fn closed(&self) -> Option<CloseCause> {
        self.cause
    }

    fn set_now(&mut self, at: Moment) {
        let seconds = (at - self.now.at).as_secs();
        self.now = Now { at, unix_s: self.now.unix_s + seconds };
        S::begin_turn(&mut self.shared, self.now);
    }

    fn call_session(
        &mut self,
        prepare: impl FnOnce(&mut Conversation<S>),
        call: Option<SessionCall>,
        mut input: &[u8],
    ) {
        let Some(conversation) = &mut self.conversation else { return };
        prepare(conversation);
        let mut turn = Turn { now: self.now, id: ID, wakes: &mut self.wakes };
        let stage = &mut self.stage;
        let mut done = call
            .map_or(Ok(()), |call| conversation.notify(call, &mut self.shared, &mut turn, stage));
        while done.is_ok() {
            match conversation.pump(&mut self.shared, &mut turn, stage, input) {
                Ok(Progress::Unfinished) => input = &[],
                Ok(Progress::Idle) => break,
                Err(cause) => done = Err(cause),
            }
        }
        self.finish(done.map(|()| Progress::Idle));
        self.wakes.clear();
        S::end_turn(&mut self.shared);
    }

    fn finish(&mut self, done: Result<Progress, CloseCause>) {
        let Some(conversation) = &self.conversation else { return };
        let cause = match (done, conversation.ending()) {
            (Err(cause), _) => cause,
            (Ok(_), Some(Ending::Close | Ending::Linger)) if !conversation.is_waiting() => {
                CloseCause::Session
            }
            _ => return,
        };
        self.cause = Some(cause);
        if let Some(mut conversation) = self.conversation.take() {
            conversation.lose(self.stage.waiting.len() as u64);
            conversation.closed(&mut self.shared, cause);
        }
    }
}

const ID: ConnectionId = ConnectionId(Token::new(0, 0));

struct Stage {
    room: Vec<u8>,
    output: Vec<u8>,
    waiting: Vec<u8>,
    is_stalled: bool,
}

impl ConnectionIo for Stage {
    fn parts(&mut self) -> (&mut [u8], Option<BorrowedFd<'_>>) {
        (&mut self.room, None)
    }

    fn send(&mut self, len: usize, payload: Option<Payload>) -> Result<Sent, CloseCause> {
        let to = if self.is_stalled { &mut self.waiting } else { &mut self.output };
        to.extend_from_slice(&self.room[..len]);
        let read = match payload {
            Some(Payload::File(range)) => read_range(&range, to),
            Some(Payload::Pipe(pipe, len)) => pipe.read(len, to),
            None => Ok(()),
        };
        read.map_err(|_| CloseCause::SocketError)?;
        Ok(if self.is_stalled { Sent::Waits } else { Sent::Gone })
    }

    fn waiting_bytes(&self) -> u64 {
        self.waiting.len() as u64
    }
}

fn read_range(range: &FileRange, into: &mut Vec<u8>) -> rustix::io::Result<()> {
    let start = into.len();
    into.resize(start + usize::try_from(range.len).unwrap_or(usize::MAX), 0);
    let mut at = start;
    while at < into.len() {
        let offset = range.offset + (at - start) as u64;
        match rustix::io::pread(&range.file, &mut into[at..], offset)? {
            0 => return Err(rustix::io::Errno::IO),
            read => at += read,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each line with itself; a line "big" with 200,000 bytes; closes at "end".
    struct Lines {
        remaining: usize,
    }

    impl Session for Lines {
        type Shared = ();

        fn accepted((): &mut (), actions: &mut Actions<'_>) -> Self {
            actions.set_deadline(actions.now().at + Duration::from_secs(1));
            Self { remaining: 0 }
        }

        fn on_bytes(&mut self, (): &mut (), actions: &mut Actions<'_>, input: &[u8]) -> usize {
            let mut used = 0;
            while let Some(len) = input[used..].iter().position(|byte| *byte == b'\n') {
                let line = &input[used..=used + len];
                used += len + 1;
                match line {
                    b"big\n" => {
                        self.remaining = 200_000;
                        self.on_output_sent(&mut (), actions);
                        return used;
                    }
                    b"end\n" => actions.close(),
                    line => actions.send(line),
                }
            }
            used
        }

        fn on_end(&mut self, (): &mut (), actions: &mut Actions<'_>) {
            actions.send(b"bye");
            actions.close();
        }

        fn on_output_sent(&mut self, (): &mut (), actions: &mut Actions<'_>) {
            let len = self.remaining.min(actions.room());
            actions.spare()[..len].fill(b'x');
            actions.advance(len);
            self.remaining -= len;
            // Also when nothing remains: lines may wait behind this one.
            if len > 0 {
                actions.notify_when_sent();
            }
        }

        fn on_deadline(&mut self, (): &mut (), actions: &mut Actions<'_>) {
            actions.abort();
        }
    }

    fn rehearsal() -> Rehearsal<Lines> {
        Rehearsal::new((), Now::default())
    }

    /// Says who it is once it is connected, and again when it is woken.
    struct Caller;

    impl Session for Caller {
        type Shared = ();

        fn accepted((): &mut (), _: &mut Actions<'_>) -> Self {
            unreachable!("it is opened")
        }

        fn connected(&mut self, (): &mut (), actions: &mut Actions<'_>) {
            actions.send(b"hello");
        }

        fn on_bytes(&mut self, (): &mut (), actions: &mut Actions<'_>, input: &[u8]) -> usize {
            actions.wake(actions.id());
            input.len()
        }

        fn on_wake(&mut self, (): &mut (), actions: &mut Actions<'_>) {
            actions.send(b"again");
        }

        fn on_end(&mut self, (): &mut (), actions: &mut Actions<'_>) {
            actions.close();
        }

        fn on_deadline(&mut self, (): &mut (), _: &mut Actions<'_>) {}
    }

    #[test]
    fn a_connection_that_was_opened_begins_when_its_peer_is_there() {
        let mut play = Rehearsal::outgoing(Caller, (), Now::default());
        assert_eq!(play.take_output(), b"");
        play.connected();
        assert_eq!(play.take_output(), b"hello");
        play.feed(b"x");
        assert_eq!(play.take_output(), b"", "it is woken by who plays it");
        play.woken();
        assert_eq!(play.take_output(), b"again");
    }

    #[test]
    fn split_input_is_kept_until_it_is_whole() {
        let mut play = rehearsal();
        for byte in b"one\ntwo\n" {
            play.feed(&[*byte]);
        }
        assert_eq!(play.take_output(), b"one\ntwo\n");
    }

    #[test]
    fn output_beyond_the_room_comes_in_pieces_and_input_behind_it_in_order() {
        let mut play = rehearsal();
        play.feed(b"big\nafter\nend\n");
        let output = play.take_output();
        assert_eq!(output.len(), 200_000 + 6);
        assert!(output.ends_with(b"xafter\n"));
        assert_eq!(play.closed(), Some(CloseCause::Session));
    }

    #[test]
    fn a_stalled_peer_stops_the_session_and_nothing_is_lost() {
        let mut play = rehearsal();
        play.stall();
        play.feed(b"one\n");
        play.feed(b"two\n");
        play.end();
        assert!(play.take_output().is_empty());
        play.flow();
        assert_eq!(play.take_output(), b"one\ntwo\nbye");
        assert_eq!(play.closed(), Some(CloseCause::Session));
    }

    #[test]
    fn a_deadline_fires_once_it_has_come() {
        let mut play = rehearsal();
        play.pass(Duration::from_millis(999));
        assert_eq!(play.closed(), None);
        play.pass(Duration::from_millis(1));
        assert_eq!(play.closed(), Some(CloseCause::Aborted));
    }

    #[test]
    fn draining_is_reported() {
        let mut play = rehearsal();
        play.drain();
        assert_eq!(play.closed(), Some(CloseCause::Session));
    }

    /// Never uses anything until it is woken; then it calls `notify_when_sent`, to see its input once more.
    struct NeverReads {
        shown: usize,
    }

    impl Session for NeverReads {
        type Shared = ();

        fn accepted((): &mut (), actions: &mut Actions<'_>) -> Self {
            actions.set_deadline(actions.now().at + Duration::from_secs(1));
            Self { shown: 0 }
        }

        fn on_bytes(&mut self, (): &mut (), _: &mut Actions<'_>, input: &[u8]) -> usize {
            self.shown = input.len();
            0
        }

        fn on_deadline(&mut self, (): &mut (), actions: &mut Actions<'_>) {
            self.shown = 0;
            actions.notify_when_sent();
        }

        fn on_shutdown(&mut self, (): &mut (), _: &mut Actions<'_>) {}
    }

    #[test]
    fn input_that_no_session_uses_is_bounded() {
        let mut play = Rehearsal::<NeverReads>::new((), Now::default());
        for _ in 0..64 {
            play.feed(&[b'x'; 64 * 1024]);
        }
        assert_eq!(play.closed(), Some(CloseCause::InputLimit));
    }

    /// Sends a long answer to "go", and takes four bytes at a time where no output waits, two where some does.
    struct ReadsOn {
        shown: Vec<Vec<u8>>,
    }

    impl Session for ReadsOn {
        type Shared = ();

        fn accepted((): &mut (), _: &mut Actions<'_>) -> Self {
            Self { shown: Vec::new() }
        }

        fn on_bytes(&mut self, (): &mut (), actions: &mut Actions<'_>, input: &[u8]) -> usize {
            self.shown.push(input.to_vec());
            if input == b"go" {
                actions.read_on();
                actions.send(&[b'x'; 100]);
            }
            let used = input.len().min(if actions.is_output_waiting() { 2 } else { 4 });
            if used < input.len() {
                actions.notify_when_sent();
            }
            used
        }
    }

    #[test]
    fn a_session_that_reads_on_is_shown_each_input_once_while_output_waits() {
        let mut play = Rehearsal::<ReadsOn>::new((), Now::default());
        play.stall();
        let shown = |play: &Rehearsal<ReadsOn>| play.session().map(|it| it.shown.concat());
        play.feed(b"go");
        play.feed(b"abc");
        assert_eq!(shown(&play).as_deref(), Some(&b"goabc"[..]));
        play.feed(b"d");
        // What it left is in front of what came.
        assert_eq!(shown(&play).as_deref(), Some(&b"goabccd"[..]));
        play.feed(b"efghijkl");
        assert_eq!(shown(&play).as_deref(), Some(&b"goabccdefghijkl"[..]));
        play.flow();
        assert_eq!(play.take_output(), [b'x'; 100]);
        assert_eq!(shown(&play).as_deref(), Some(&b"goabccdefghijklghijklkl"[..]));
    }

    /// Sends piece after piece from the word "go", until "stop" comes or all are sent.
    struct Talks {
        left: usize,
    }

    impl Session for Talks {
        type Shared = ();

        fn accepted((): &mut (), actions: &mut Actions<'_>) -> Self {
            actions.read_on();
            Self { left: 1000 }
        }

        fn on_bytes(&mut self, (): &mut (), actions: &mut Actions<'_>, input: &[u8]) -> usize {
            if input == b"stop" {
                actions.abort();
                return input.len();
            }
            actions.notify_when_sent();
            2
        }

        fn on_output_sent(&mut self, (): &mut (), actions: &mut Actions<'_>) {
            actions.send(b"x");
            self.left -= 1;
            if self.left > 0 {
                actions.notify_when_sent();
            }
        }
    }

    #[test]
    fn a_session_that_reads_on_sees_input_though_it_always_has_more_to_send() {
        let mut play = Rehearsal::<Talks>::new((), Now::default());
        play.feed(b"gostop");
        assert_eq!(play.closed(), Some(CloseCause::Aborted));
        assert_eq!(play.take_output(), b"x");
    }

    #[test]
    fn a_session_that_asks_to_be_called_again_sees_its_unused_input() {
        let mut play = Rehearsal::<NeverReads>::new((), Now::default());
        play.feed(b"abc");
        play.pass(Duration::from_secs(1));
        assert_eq!(play.session().map(|session| session.shown), Some(3));
    }
}
