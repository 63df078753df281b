//! A client's connection of HTTP/2: its streams, each with a request that the same handlers answer.
//!
//! ```text
//!  bytes ─► Connection (pollux-http) ─► event ─► request ─► handler ─► answer as one of HTTP/1.1
//!                                                                          │
//!                      HEADERS, DATA ◄── windows, turns ◄── head, body ◄───┘
//! ```
//!
//! | a stream | until |
//! |---|---|
//! | `Reading`: its request has a body, which is dropped | it is whole: answered |
//! | `Asked`: its request is whole or refused, and output of before waits, or too much is kept | that has left: answered |
//! | `File`: its answer is a large file, and so many of them are open as may be | one of them is through: answered |
//! | `Rest`: part of its answer waits for a window or for its turn | all was sent |
//! | `Echo`: its body is the answer | both are through |
//! | `Checking`: its password is looked at by another thread (`checking`) | there is a verdict |
//! | `Later`: it has an exchange, by which a backend answers (`later`) | both are through |
//! | `Answered`: it was refused for its method or its length, and its body is still to come | that has ended, or stopped for a second, or gone on for too long; what is wrong with it is said until then |
//!
//! An answer that fits leaves in the call that brought its request, HEADERS and DATA of a burst in one write. Streams with
//! more to send take turns of a frame; one whose window is closed holds up no other. Input is read while output waits
//! (RFC 9113 5.2.2), but for a client that has more answered than it reads.
//!
//! Here is the connection: what comes, whose turn it is, and its end. What a stream does stands in `answers`, `checking`,
//! `later` and `routed`, by when it has to in `deadlines`.
//!
//! | deadline | what happens |
//! |---|---|
//! | header timeout, from the accept, or from the start of a frame or field block that has not come whole; not for DATA | closed |
//! | body timeout and rate of a stream (`body_clock`), while no output waits | 408, or RST_STREAM once its answer has begun |
//! | those of an exchange (`exchange/deadlines.rs`) | a page, or RST_STREAM once its answer has begun |
//! | write timeout of a stream whose window is closed, and the least rate; its share of that where only the connection's is closed | RST_STREAM |
//! | a second without a stream, and without output that waits | it rests: what is left of it is in `resting` |
//! | idle timeout: no stream; other frames don't count | GOAWAY, closed |
//! | a second after the first GOAWAY of a shutdown | the second one, which names the last stream |

mod answers;
mod deadlines;
mod later;
mod password_check;
mod routed;

use std::collections::VecDeque;
use std::time::Duration;

use pollux_engine::{Actions, CloseCause, Moment};
use pollux_http::h2::{
    BlockBytes, CONTROL_ROOM_BYTES, Connection, ErrorCode, Event, Fault, Output, Role, Scratch,
    Sending, Settings, is_data, is_empty_end,
};
use pollux_http::{Framing, Status};
use pollux_tls::ShownId;

use crate::body_clock::BodyClock;
use crate::counters::ServerCounter;
use crate::exchange::h2_output::write_frames;
use crate::front::h2::answers::{Asked, Echo, FILES_MAX, KEPT_BYTES_MAX, Reading, Reads};
use crate::front::h2::later::Later;
use crate::front::h2::password_check::Checking;
use crate::front::kept::Kept;
use crate::front::peer::Client;
use crate::front::request::ECHO_HEAD_BYTES_MAX;
use crate::front::resting::Rested;
use crate::front::state::LoopState;
use crate::handlers::Handler;
use crate::handlers::answer::Unsent;
use crate::ids::{EpochId, FrontId, RestingId, StreamsId};
use crate::log::Event as Reported;
use crate::record::{Cut, End, Outcome};
use crate::refusal::Refusal;

/// Room without which no request is looked at: the largest head of an answer, and the start of its body.
const ROOM_BYTES_MIN: usize = 32 * 1024;

/// The smallest frame of a body that is worth its head, where more is to follow.
const PIECE_BYTES_MIN: usize = 1024;

/// Bytes of answers to control frames that may wait behind other output: a client that wants more of them and reads
/// nothing is not read from.
const CONTROL_BYTES_MAX: usize = 64 * 17;

/// Output that the kernel may hold of a connection beyond what it can send at once: an urgent answer is not behind more. As
/// much as two calls make, so that it never runs dry while the next ones are made.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// A connection without a stream gives its memory back after this time: a client that asks again at once finds it.
const REST_AFTER: Duration = Duration::from_secs(1);

/// How long the body of a request that was answered without it may stop before RST_STREAM: a client that has the answer stops
/// sending, and one that breaks a rule meanwhile is notified of it. All of it has the time of a body.
const JUDGED_ON_FOR: Duration = Duration::from_secs(1);

/// So much of a body that nobody wants is dropped and its window opened again: many clients read no answer before they have
/// sent all, and take RST_STREAM for an error even where it says that there is none (RFC 9113 8.1).
const DROPPED_BYTES_MAX: u64 = 16 << 20;

/// How long a client has to answer the first GOAWAY of a shutdown: requests that were on their way have arrived by then.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// What the PING behind the first GOAWAY carries.
const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

/// A client's streams.
#[derive(Debug)]
pub(super) struct Http2Session {
    connection: Connection<Task>,
    /// The place of the front end that it came by.
    front: FrontId,
    /// The certificate that its client has seen, where there are several by name.
    shown: Option<ShownId>,
    /// Where exchanges of a proxy say which of them have to be looked at.
    ready: Option<StreamsId>,
    /// Streams whose answers are under way.
    senders: usize,
    /// When those are looked at whose windows may have been closed for too long, or whose exchanges may have taken it: never
    /// after one of them is due.
    look_at: Moment,
    /// Streams whose passwords are looked at.
    checks: usize,
    /// Streams whose bodies are still to come.
    readers: usize,
    /// The same for those, in their time.
    look_at_readers: Moment,
    /// Their time stands while output waits: how long it did, and since when it does.
    stood: Duration,
    stands: Option<Moment>,
    /// Requests that wait until output of before has left, or less is kept: how many, and which, among some that are
    /// no more.
    asked: usize,
    asked_order: VecDeque<u32>,
    /// Files that are open.
    files: usize,
    /// Requests for one that wait until fewer are open, in the same way.
    file_waiters: usize,
    file_order: VecDeque<u32>,
    /// Bytes of bodies that are kept until windows take them.
    kept_bytes: usize,
    /// Bytes of control frames that went behind waiting output.
    control_bytes: usize,
    /// Streams that are counted as open, and bytes of heads that are counted.
    counted: (usize, BlockBytes),
    ending: Ending,
    /// Since when there is no stream.
    since: Moment,
    /// When it was woken last, or could not rest as output waited.
    rested: Moment,
    /// Since when a part of a frame or field block has come.
    part_since: Option<Moment>,
}

const _: () = assert!(
    size_of::<Http2Session>() <= 1024,
    "an idle one costs little more than one of HTTP/1.1"
);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    Open,
    /// The first GOAWAY of a shutdown was sent; at this moment the second one follows.
    Announced(Moment),
    /// The client knows the last stream that is answered.
    Said,
    /// Nothing is read any more.
    Over,
}

/// A request under way.
#[derive(Default, Debug)]
struct Task {
    /// Its lines: for the answer behind its body, and for the log.
    head: Box<[u8]>,
    part: Part,
    /// Of the answer, once it has begun.
    status: Option<Status>,
    /// Of the whole answer's body.
    body_bytes: u64,
    refusal: Option<Refusal>,
    /// Of it, what is kept as a copy.
    kept_bytes: usize,
    kept: Kept,
    /// When its answer began, and when something was sent last.
    pace: BodyClock,
    /// Its answer does not wait for its end, and what comes until then is looked at for a while ([`Part::Answered`]).
    is_judged_on: bool,
    /// Bytes of its body that nobody wanted.
    dropped_bytes: u64,
}

#[derive(Default, Debug)]
enum Part {
    #[default]
    New,
    Reading(Box<Reading>),
    Asked(Asked),
    File(Framing),
    Rest(Unsent),
    Echo(Box<Echo>),
    Later(Box<Later>),
    /// Its password is looked at elsewhere.
    Checking(Box<Checking>),
    /// All of its answer was sent, and booked: until `end` what still comes of its request is dropped, or turns out malformed.
    /// More of it puts the end off, but not behind `last`.
    Answered {
        end: Moment,
        last: Moment,
    },
}

/// What a call works with.
struct Call<'c, 'a> {
    state: &'c mut LoopState,
    actions: &'c mut Actions<'a>,
    client: &'c mut Client,
}

impl Call<'_, '_> {
    /// Sends what `write` writes.
    fn send<R>(&mut self, write: impl FnOnce(&mut Output<'_>) -> R) -> R {
        write_frames(self.actions, write)
    }

    /// Whether an answer may be made now.
    fn takes_answer(&self) -> bool {
        let room = ROOM_BYTES_MIN.max(self.state.room_bytes_min);
        !self.actions.is_output_waiting() && self.actions.room() >= room
    }

    fn count(&self, counter: ServerCounter) {
        self.state.counters.add(counter, 1);
    }
}

impl<'a> Call<'_, 'a> {
    /// As [`LoopState::under`].
    #[inline]
    fn under<R>(&mut self, epoch: Option<EpochId>, call: impl FnOnce(&mut Call<'_, 'a>) -> R) -> R {
        let Self { state, actions, client } = self;
        state.under(epoch, |state| call(&mut Call { state, actions, client }))
    }
}

impl Http2Session {
    /// A connection that speaks HTTP/2 from now on.
    pub(super) fn new(state: &mut LoopState, front: FrontId, shown: Option<ShownId>) -> Self {
        let settings = state.streams.settings.unwrap_or(Settings::DEFAULT);
        state.counters.add(ServerCounter::Http2Connections, 1);
        state.streams.resting.begin();
        let ready = state.proxy.as_mut().map(|proxy| proxy.ready.begin());
        let rested = Rested { front, shown, ready, since: state.now.at };
        Self::of(Connection::new(Role::Server, settings), rested, state.now.at)
    }

    /// A connection that rests no more.
    pub(super) fn woken(state: &mut LoopState, at: RestingId) -> Self {
        let (connection, rested) = state.streams.resting.wake(at);
        Self::of(connection, rested, state.now.at)
    }

    fn of(connection: Connection<Task>, rested: Rested, now: Moment) -> Self {
        let Rested { front, shown, ready, since } = rested;
        let counted = (0, connection.block_bytes());
        Self {
            connection,
            front,
            shown,
            ready,
            senders: 0,
            checks: 0,
            look_at: Moment::NEVER,
            readers: 0,
            look_at_readers: Moment::NEVER,
            stood: Duration::ZERO,
            stands: None,
            asked: 0,
            asked_order: VecDeque::new(),
            files: 0,
            file_waiters: 0,
            file_order: VecDeque::new(),
            kept_bytes: 0,
            control_bytes: 0,
            counted,
            ending: Ending::Open,
            since,
            rested: now,
            part_since: None,
        }
    }

    /// Says the first words.
    pub(super) fn start(&mut self, actions: &mut Actions<'_>) {
        write_frames(actions, |out| self.connection.start(out));
        actions.read_on();
        actions.limit_unsent(UNSENT_BYTES_MAX);
    }

    pub(super) fn on_bytes(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        client: &mut Client,
        input: &[u8],
    ) -> usize {
        if self.ending == Ending::Over {
            return input.len();
        }
        let mut scratch = std::mem::take(&mut state.streams.scratch);
        let mut call = Call { state, actions, client };
        let used = self.read(&mut call, &mut scratch, input);
        call.state.streams.scratch = scratch;
        self.send_rests(&mut call);
        self.settle(&mut call);
        used
    }

    fn read(&mut self, call: &mut Call<'_, '_>, scratch: &mut Scratch, input: &[u8]) -> usize {
        let now_ms = call.state.now.at.as_nanos() / 1_000_000;
        let is_waiting = call.actions.is_output_waiting();
        let mut used = 0;
        while used < input.len() && self.ending != Ending::Over {
            if !is_waiting && !call.takes_answer() {
                call.actions.notify_when_sent();
                break;
            }
            let limits = &call.state.head_limits;
            let sent_before = call.actions.len();
            let connection = &mut self.connection;
            let read = write_frames(call.actions, |out| {
                let read = connection.read(&input[used..], scratch, out, limits, now_ms);
                read.inspect_err(|fault| connection.fail(out, fault))
            });
            match read {
                Err(fault) => {
                    self.fail(call, &fault);
                    return input.len();
                }
                Ok(step) => {
                    used += step.used;
                    if step.used > 0 && !self.connection.is_in_block() {
                        self.part_since = None;
                    }
                    let Some(event) = step.event else {
                        self.note_part(call, &input[used..]);
                        break;
                    };
                    if matches!(event, Event::NoRoom) {
                        call.actions.notify_when_sent();
                        break;
                    }
                    self.on_event(call, event, &input[used..]);
                }
            }
            if is_waiting {
                self.control_bytes += call.actions.len() - sent_before;
                if self.control_bytes > CONTROL_BYTES_MAX {
                    call.actions.read_in_turn();
                    call.actions.notify_when_sent();
                    break;
                }
            }
        }
        used
    }

    /// Notes since when what comes next is under way. DATA has the time of its body.
    fn note_part(&mut self, call: &Call<'_, '_>, rest: &[u8]) {
        let is_part = self.connection.is_in_block() || (!rest.is_empty() && !is_data(rest));
        if is_part {
            self.part_since.get_or_insert(call.state.now.at);
        } else {
            self.part_since = None;
        }
    }

    /// Does what an event asks for; `behind` it there is more input.
    fn on_event(&mut self, call: &mut Call<'_, '_>, event: Event<'_, Task>, behind: &[u8]) {
        match event {
            Event::Request { stream, request, head, never_indexed, ends } => {
                if self.ready.is_some() {
                    let ends_behind = !ends && is_empty_end(behind, stream);
                    let marked = (&request, never_indexed);
                    return self.on_request(call, stream, marked, head, (ends, ends_behind));
                }
                call.state.counters.count_request(request.method);
                if call.state.log.is_some() {
                    // The line has it.
                    call.client.peer(call.actions);
                }
                // The body of a method that is not for what answers here is not waited for.
                if !ends && call.state.handler.allows(request.method) {
                    let reads = Reads {
                        echoes: matches!(call.state.handler, Handler::Echo),
                        bytes_max: call.state.head_limits.body_bytes,
                    };
                    return self.begin_body(call, stream, &request, head, reads);
                }
                if let Some(task) = self.connection.data_mut(stream).filter(|_| !ends) {
                    task.is_judged_on = true;
                }
                if self.takes_answer(call) {
                    self.answer(call, stream, &request, head);
                } else {
                    self.ask_later(call, stream, head, Asked::Sound(request.framing));
                }
            }
            Event::Data { stream, data, ends } => self.on_data(call, stream, data, ends),
            Event::Trailers { stream, fields, never_indexed } => {
                self.give_trailers(call, stream, fields, never_indexed);
                self.on_data(call, stream, &[], true);
            }
            Event::WindowOpened => {}
            Event::Refused { stream, rejection, head, .. } => {
                call.state.identify_unread();
                call.client.peer(call.actions);
                self.refuse(call, stream, rejection, head);
            }
            Event::Malformed { code, rejection, head, data, .. } => {
                call.client.peer(call.actions);
                call.state.counters.count_reset(code, true);
                call.client.report_refusal(call.state, call.actions, rejection, false);
                let task = data.unwrap_or_default();
                call.state.identify_unread();
                let head = if task.head.is_empty() { head } else { &task.head };
                task.book_cut(call.state, call.client, head, Cut::BadRequest);
                self.left(&task);
                self.since = call.state.now.at;
            }
            Event::TooMany { for_head, .. } => {
                call.state.counters.count_reset(ErrorCode::REFUSED_STREAM, true);
                call.count(if for_head {
                    ServerCounter::Http2HeadsRefused
                } else {
                    ServerCounter::Http2StreamsRefused
                });
            }
            Event::Reset { code, data, .. } => {
                call.state.counters.count_reset(code, false);
                let costs_backend = data.costs_backend(call.state);
                self.cut(call, &data, Cut::ClientGone);
                let now_ms = call.state.now.at.as_nanos() / 1_000_000;
                if costs_backend && let Err(fault) = self.connection.charge_cut(now_ms) {
                    call.send(|out| self.connection.fail(out, &fault));
                    self.fail(call, &fault);
                }
            }
            Event::PingAnswered { data } => {
                if data == SHUTDOWN_PING && matches!(self.ending, Ending::Announced(_)) {
                    self.say_end(call);
                }
            }
            Event::GoneAway { .. } => {}
            Event::NoRoom => unreachable!("nothing more is read then"),
            Event::Response { .. } => unreachable!("a client answers nothing"),
        }
    }

    /// There is one more answer under way.
    fn begin_sending(&mut self, call: &Call<'_, '_>) {
        if self.senders == 0 {
            self.look_at = Moment::NEVER;
        }
        self.senders += 1;
        self.look_at = self.look_at.min(call.state.now.at + call.state.limits.write_timeout);
    }

    /// The answer is through. What still comes of its request is not wanted (RFC 9113 8.1).
    #[inline]
    fn end_stream(&mut self, call: &mut Call<'_, '_>, stream: u32) {
        self.since = call.state.now.at;
        if !self.connection.forget_done(stream) {
            if let Some(task) = self.connection.data_mut(stream)
                && std::mem::take(&mut task.is_judged_on)
            {
                let now = call.state.now.at;
                let last = now + call.state.limits.body_timeout;
                let end = last.min(now + JUDGED_ON_FOR);
                task.part = Part::Answered { end, last };
                self.begin_sending(call);
                self.look_at = self.look_at.min(end);
                return;
            }
            call.state.counters.count_reset(ErrorCode::NO_ERROR, true);
            call.send(|out| {
                self.connection.reset(out, stream, ErrorCode::NO_ERROR);
            });
        }
    }

    /// Sends what windows and room take of answers under way, a frame of each stream in turn.
    fn send_rests(&mut self, call: &mut Call<'_, '_>) {
        if self.senders == 0 {
            return;
        }
        if call.actions.is_output_waiting() {
            // What ended for want of a window, or of more to echo, has not asked for it: by then either may have come.
            return call.actions.notify_when_sent();
        }
        while let Some(stream) = self.connection.next_sender() {
            let room = call.actions.room().saturating_sub(2 * CONTROL_ROOM_BYTES);
            let Some(task) = self.connection.data_mut(stream) else { return };
            if room < task.piece_room_min() {
                return call.actions.notify_when_sent();
            }
            match std::mem::take(&mut task.part) {
                Part::Rest(unsent) => self.send_rest(call, stream, unsent, room),
                Part::Echo(echo) => {
                    let epoch = task.kept.restore(&call.state.current_id);
                    call.under(epoch, |call| self.send_echo(call, stream, echo));
                }
                Part::Later(later) => self.send_later(call, stream, later),
                other => {
                    task.part = other;
                    self.connection.set_sending(stream, Sending::Nothing);
                }
            }
        }
        let stalls = self.connection.take_stalls();
        call.state.counters.add(ServerCounter::Http2WindowStalls, stalls.into());
    }

    /// Gives up a stream that has begun.
    #[cold]
    fn reset(&mut self, call: &mut Call<'_, '_>, stream: u32, code: ErrorCode, cut: Cut) {
        call.state.counters.count_reset(code, true);
        let mut task = None;
        call.send(|out| task = self.connection.reset(out, stream, code));
        if let Some(task) = task {
            self.cut(call, &task, cut);
        }
    }

    /// A request came to its end before its answer did.
    fn cut(&mut self, call: &mut Call<'_, '_>, task: &Task, cut: Cut) {
        self.left(task);
        self.since = call.state.now.at;
        task.book_cut(call.state, call.client, &task.head, cut);
    }

    /// A stream is no more that had this.
    fn left(&mut self, task: &Task) {
        self.kept_bytes -= task.kept_bytes;
        self.readers -= usize::from(task.is_reading());
        match &task.part {
            Part::Rest(unsent) => {
                self.senders -= 1;
                self.files -= usize::from(unsent.is_file());
            }
            Part::Echo(_) | Part::Later(_) | Part::Answered { .. } => self.senders -= 1,
            Part::Checking(_) => {
                self.senders -= 1;
                self.checks -= 1;
            }
            Part::Asked(_) => self.asked -= 1,
            Part::File(_) => self.file_waiters -= 1,
            Part::New | Part::Reading(_) => {}
        }
    }

    /// The client has broken the rules of the connection, which is over.
    #[cold]
    fn fail(&mut self, call: &mut Call<'_, '_>, fault: &Fault) {
        call.state.counters.count_goaway(fault.code);
        call.state.logs.errors.report(Reported::RequestRefused, call.state.now.unix_s, || {
            format!("{}: HTTP/2: {fault}", call.client.name(call.actions))
        });
        self.drop_all(call.state, call.client, Cut::BadRequest);
        self.ending = Ending::Over;
        call.actions.linger();
    }

    fn drop_all(&mut self, state: &mut LoopState, client: &Client, cut: Cut) {
        (self.senders, self.readers, self.kept_bytes) = (0, 0, 0);
        self.checks = 0;
        (self.asked, self.files, self.file_waiters) = (0, 0, 0);
        for (_, task) in self.connection.take_all() {
            task.book_cut(state, client, &task.head, cut);
        }
    }

    pub(super) fn on_output_sent(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        client: &mut Client,
    ) {
        if self.ending == Ending::Over {
            return;
        }
        self.control_bytes = 0;
        actions.read_on();
        let mut call = Call { state, actions, client };
        self.continue_bodies(call.state.now.at);
        self.answer_file_waiters(&mut call);
        self.answer_asked(&mut call);
        self.send_rests(&mut call);
        self.settle(&mut call);
    }

    /// The client sends nothing more: what it has asked for is still sent.
    pub(super) fn on_end(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        client: &mut Client,
    ) {
        if !self.connection.has_begun() {
            return actions.close();
        }
        let tunnels = self.connection.streams().filter(|(_, task)| task.is_open_tunnel(state));
        let incomplete = self.readers - tunnels.count();
        state.counters.add(ServerCounter::Incomplete, incomplete as u64);
        let answers = state.proxy.as_ref().is_none_or(|it| it.limits.answers_half_closed);
        let unfinished: Vec<u32> = self
            .connection
            .streams()
            .filter(|(_, task)| task.is_reading() || !answers)
            .map(|(stream, _)| stream)
            .collect();
        let mut call = Call { state, actions, client };
        for stream in unfinished {
            self.reset(&mut call, stream, ErrorCode::CANCEL, Cut::ClientGone);
        }
        self.ending = Ending::Said;
        self.settle(&mut call);
    }

    pub(super) fn on_shutdown(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        client: &mut Client,
    ) {
        if let Some(proxy) = &state.proxy {
            self.look_at = self.look_at.min(proxy.drain_end);
        }
        self.announce_end(&mut Call { state, actions, client });
    }

    fn announce_end(&mut self, call: &mut Call<'_, '_>) {
        if self.ending != Ending::Open {
            return;
        }
        call.state.counters.count_goaway(ErrorCode::NO_ERROR);
        call.send(|out| {
            self.connection.announce_end(out);
            self.connection.ping(out, SHUTDOWN_PING);
        });
        let end = call.state.now.at + SHUTDOWN_GRACE;
        self.ending = Ending::Announced(end);
        if !self.connection.has_begun() {
            let deadline = call.actions.deadline().min(end);
            return call.actions.set_deadline(deadline);
        }
        self.settle(call);
    }

    /// From now on no request is taken.
    fn say_end(&mut self, call: &mut Call<'_, '_>) {
        call.state.counters.count_goaway(ErrorCode::NO_ERROR);
        call.send(|out| self.connection.end(out));
        self.ending = Ending::Said;
    }

    /// Says whether the connection has been idle for so long that it [rests](Http2Session::rest).
    pub(super) fn on_deadline(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        client: &mut Client,
    ) -> bool {
        let mut call = Call { state, actions, client };
        let now = call.state.now.at;
        if !self.connection.has_begun() {
            call.count(ServerCounter::TimeoutsSilent);
            call.actions.close();
            return false;
        }
        if let Ending::Announced(at) = self.ending
            && at <= now
        {
            self.say_end(&mut call);
        }
        if self.part_since.is_some_and(|since| since + call.state.limits.header_timeout <= now) {
            call.count(ServerCounter::TimeoutsHeader);
            let fault = Fault::LATE;
            call.send(|out| self.connection.fail(out, &fault));
            self.fail(&mut call, &fault);
            return false;
        }
        if self.next_look() <= now {
            self.look(&mut call);
        }
        let is_rest_due = self.is_idle() && self.next_rest() <= now;
        if is_rest_due {
            self.rested = now;
        }
        if self.is_idle() && self.since + call.state.limits.idle_timeout <= now {
            call.count(ServerCounter::TimeoutsIdle);
            self.say_end(&mut call);
        }
        self.send_rests(&mut call);
        self.settle(&mut call);
        let actions = &*call.actions;
        let has_sent_all = actions.is_empty() && !actions.is_output_waiting();
        is_rest_due && self.is_idle() && has_sent_all && !actions.is_ending()
    }

    /// Whether there is no stream, and nothing else under way.
    fn is_idle(&self) -> bool {
        self.connection.is_empty() && self.ending == Ending::Open && self.part_since.is_none()
    }

    /// When a connection that stays idle rests.
    fn next_rest(&self) -> Moment {
        self.since.max(self.rested) + REST_AFTER
    }

    /// Gives all memory back that a connection without streams does not need; it is found at this place, until the idle timeout at
    /// the latest.
    pub(super) fn rest(self, state: &mut LoopState, actions: &mut Actions<'_>) -> RestingId {
        let Self { connection, front, shown, ready, since, .. } = self;
        actions.set_deadline(since + state.limits.idle_timeout);
        if let (Some(ready), Some(proxy)) = (ready, &mut state.proxy) {
            proxy.ready.release_memory_of(ready);
        }
        state.streams.resting.rest(connection, Rested { front, shown, ready, since })
    }

    /// What follows a call: the end, or the next deadline.
    fn settle(&mut self, call: &mut Call<'_, '_>) {
        self.count_open(call.state);
        if self.readers > 0 && (call.actions.is_output_waiting() || !call.actions.is_empty()) {
            self.stands.get_or_insert(call.state.now.at);
            call.actions.notify_when_sent();
        }
        let state = &*call.state;
        let actions = &mut *call.actions;
        let may_file = self.file_waiters > 0 && self.files < FILES_MAX;
        if (self.asked > 0 || may_file) && self.kept_bytes < KEPT_BYTES_MAX {
            actions.notify_when_sent();
        }
        if self.ending == Ending::Over || actions.is_ending() || !self.connection.has_begun() {
            return;
        }
        if self.connection.is_used_up() && self.ending == Ending::Open {
            return self.announce_end(call);
        }
        let mut deadline = Moment::NEVER;
        if self.connection.is_empty() {
            match self.ending {
                Ending::Said => return actions.linger(),
                _ if self.part_since.is_some() => {}
                _ => deadline = self.next_rest().min(self.since + state.limits.idle_timeout),
            }
        } else {
            deadline = self.next_look();
        }
        if let Some(since) = self.part_since {
            deadline = deadline.min(since + state.limits.header_timeout);
        }
        if let Ending::Announced(at) = self.ending {
            deadline = deadline.min(at);
        }
        actions.set_deadline(deadline);
    }

    /// Counts how many streams are open, of all connections, and what their heads took.
    #[inline]
    fn count_open(&mut self, state: &LoopState) {
        let open = self.connection.len();
        let bytes = self.connection.block_bytes();
        let (open_before, before) = std::mem::replace(&mut self.counted, (open, bytes));
        if open != open_before {
            state.counters.count_streams(open_before, open);
        }
        if bytes != before {
            let (received, sent) =
                (bytes.received - before.received, bytes.answered - before.answered);
            state.counters.add(ServerCounter::Http2HeadBytesReceived, received);
            state.counters.add(ServerCounter::Http2HeadBytesSent, sent);
        }
    }

    /// Books what did not come to its end.
    pub(super) fn closed(mut self, state: &mut LoopState, client: &Client, cause: CloseCause) {
        self.drop_all(state, client, Cut::of_close(cause));
        self.count_open(state);
        state.streams.resting.end();
        if let (Some(ready), Some(proxy)) = (self.ready, &mut state.proxy) {
            proxy.ready.end(ready);
        }
    }
}

impl Task {
    /// Takes it, but for what is known of a body that nobody wants.
    fn take(&mut self) -> Self {
        let Self { is_judged_on, dropped_bytes, .. } = *self;
        std::mem::replace(self, Self { is_judged_on, dropped_bytes, ..Self::default() })
    }

    /// What of the answer's body was not sent.
    fn left_bytes(&self) -> u64 {
        match &self.part {
            Part::Rest(unsent) => unsent.left_bytes(),
            Part::Echo(echo) => echo.waiting.len() as u64,
            _ => 0,
        }
    }

    /// Whether its answer is under way, though there may be nothing of it now.
    fn is_sending(&self) -> bool {
        matches!(self.part, Part::Rest(_) | Part::Echo(_) | Part::Later(_))
    }

    /// Whether its answer has begun, and something of it waits.
    fn has_more(&self) -> bool {
        match &self.part {
            Part::Rest(_) => true,
            Part::Echo(echo) => !echo.waiting.is_empty(),
            Part::Later(later) => later.waits_for_window(),
            _ => false,
        }
    }

    /// Room without which nothing more of its answer is sent now: HPACK may take twice a head.
    fn piece_room_min(&self) -> usize {
        match &self.part {
            Part::Echo(echo) if !echo.has_begun => 2 * ECHO_HEAD_BYTES_MAX + PIECE_BYTES_MIN,
            Part::Later(later) => later.room_min().max(PIECE_BYTES_MIN),
            _ => PIECE_BYTES_MIN,
        }
    }

    /// A body of its request that is still to come, and that no exchange has.
    fn reading(&self) -> Option<&Reading> {
        match &self.part {
            Part::Reading(reading) => Some(reading),
            Part::Echo(echo) if !echo.is_whole => Some(&echo.reading),
            _ => None,
        }
    }

    /// Whether a body of its request is still to come.
    fn is_reading(&self) -> bool {
        match &self.part {
            Part::Later(later) => later.is_reading(),
            Part::Checking(checking) => checking.is_reading(),
            _ => self.reading().is_some(),
        }
    }

    /// Whether it is a tunnel that its client has not ended.
    fn is_open_tunnel(&self, state: &LoopState) -> bool {
        match (&self.part, &state.proxy) {
            (Part::Later(later), Some(proxy)) => later.is_open_tunnel(proxy),
            _ => false,
        }
    }

    /// Whether its end now costs a connection to a backend, within its answer: before that a reset is charged anyway.
    fn costs_backend(&self, state: &LoopState) -> bool {
        match (&self.part, &state.proxy) {
            (Part::Later(later), Some(proxy)) => later.costs_backend(proxy),
            _ => false,
        }
    }

    /// Books a request that came to its end before its answer did, with this head.
    fn book_cut(&self, state: &mut LoopState, client: &Client, head: &[u8], cut: Cut) {
        match &self.part {
            Part::Later(later) => later.finish_cut(state, client, cut),
            Part::Answered { .. } => {}
            _ => {
                let epoch = self.kept.restore(&state.current_id);
                let outcome = self.outcome(self.left_bytes(), End::Cut(cut));
                state.under(epoch, |state| client.book(state, Some(head), outcome));
            }
        }
    }

    fn outcome(&self, left_bytes: u64, end: End) -> Outcome {
        let body_bytes = self.body_bytes.saturating_sub(left_bytes);
        Outcome { status: self.status, body_bytes, end }
    }
}

#[cfg(test)]
mod tests;
