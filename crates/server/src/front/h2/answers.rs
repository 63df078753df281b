//! Streams that are answered here, by the same handlers as requests of HTTP/1: what becomes of their bodies, answers that
//! leave at once, and the rests of those that wait for windows and turns.
//!
//! The connection (`h2.rs`) says what has come and whose turn it is; what backends answer is in `later`.

use std::time::Instant;

use pollux_engine::{Actions, Moment};
use pollux_http::h2::{CONTROL_ROOM_BYTES, ErrorCode, NeverIndexed, Sending};
use pollux_http::{CONTINUE, Framing, Method, Rejection, Request, Status};
use rustix::io::Errno;

use crate::body_clock::{BodyClock, BodyTime};
use crate::counters::ServerCounter;
use crate::front::h2::{Call, DROPPED_BYTES_MAX, Http2Session, JUDGED_ON_FOR, Part, Task};
use crate::front::kept::Kept;
use crate::front::request::{ECHO_HEAD_BYTES_MAX, body_time, is_head, write_echo_head};
use crate::front::sites::Occasion;
use crate::front::state::LoopState;
use crate::handlers::Handler;
use crate::handlers::answer;
use crate::handlers::answer::{Answered, Context, Left, Persistence, Unsent};
use crate::handlers::respond::respond;
use crate::handlers::sites::Ending;
use crate::head::shared_fields::FieldContext;
use crate::record::{Cut, End, Outcome};

/// Bytes of bodies that the streams of a connection may keep while their windows are closed: with more, requests wait.
pub(super) const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Large files that the streams of a connection may have open: each is a descriptor for as long as its client takes, which
/// opens windows as it likes. A page has fewer at a time, and a process shares its descriptors among all connections.
pub(super) const FILES_MAX: usize = 16;

/// What an echo answers to GET, which has no body: a stream has something to send, whose window can be seen to work.
pub(super) const ECHO_OF_NOTHING: &str = "what is sent here comes back\n";

/// What waits for room for its answer.
#[derive(Debug)]
pub(super) enum Asked {
    Sound(Framing),
    Refused(Box<Rejection>),
    /// It goes no further, which was decided before.
    Ended(Framing, Ending),
}

/// How the body of a request is read that a handler answers.
#[derive(Clone, Copy)]
pub(super) struct Reads {
    /// It is the body of the answer.
    pub(super) echoes: bool,
    pub(super) bytes_max: u64,
}

/// A body of a request that is dropped.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) framing: Framing,
    pub(super) clock: BodyClock,
    pub(super) received: u64,
    /// It may have no more.
    pub(super) bytes_max: u64,
    /// How long it may take.
    pub(super) time: BodyTime,
}

/// A body of a request that is the body of its answer.
#[derive(Debug)]
pub(super) struct Echo {
    pub(super) reading: Reading,
    pub(super) asked: FieldContext,
    /// What came and was not sent: at most the window of the stream.
    pub(super) waiting: Vec<u8>,
    pub(super) has_begun: bool,
    pub(super) is_whole: bool,
}

impl Http2Session {
    /// A request whose body is to come.
    pub(super) fn begin_body(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        request: &Request<'_>,
        head: &[u8],
        reads: Reads,
    ) {
        call.count(ServerCounter::Bodies);
        if request.expects_continue {
            call.count(ServerCounter::Continues);
            call.send(|out| self.connection.send_head(out, stream, CONTINUE, false));
        }
        let now = call.state.now.at;
        let body_now = self.body_time(call.state.now.at);
        let clock = BodyClock::started(body_now);
        if self.readers == 0 {
            self.look_at_readers = Moment::NEVER;
        }
        self.readers += 1;
        self.look_at_readers = self.look_at_readers.min(body_now + call.state.limits.body_timeout);
        let Reads { echoes, bytes_max } = reads;
        let time = body_time(&call.state.limits);
        let reading = Reading { framing: request.framing, clock, received: 0, bytes_max, time };
        let has_answer_body = !matches!(request.method, Method::Head | Method::Options);
        let part = if echoes && has_answer_body {
            self.begin_sending(call);
            let asked = call.state.common_routed(self.front).asked(request);
            let waiting = Vec::new();
            let has_begun = false;
            let is_whole = false;
            Part::Echo(Box::new(Echo { reading, asked, waiting, has_begun, is_whole }))
        } else {
            Part::Reading(Box::new(reading))
        };
        let kept = call.state.keep();
        let Some(task) = self.connection.data_mut(stream) else { return };
        (task.head, task.part, task.pace) = (head.into(), part, BodyClock::started(now));
        task.kept = kept;
    }

    /// More of a body, or its end.
    pub(super) fn on_data(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        data: &[u8],
        ends: bool,
    ) {
        let Some(task) = self.connection.data_mut(stream) else { return };
        let epoch = task.kept.restore(&call.state.current_id);
        call.under(epoch, |call| self.take_data(call, stream, data, ends));
    }

    fn take_data(&mut self, call: &mut Call<'_, '_>, stream: u32, data: &[u8], ends: bool) {
        let now = call.state.now.at;
        let body_now = self.body_time(call.state.now.at);
        let len = data.len() as u64;
        let Some(task) = self.connection.data_mut(stream) else { return };
        if matches!(task.part, Part::Later(_)) {
            return self.give(call, stream, data, ends);
        }
        let reading = match &mut task.part {
            Part::Reading(reading) => &mut **reading,
            Part::Echo(echo) => &mut echo.reading,
            Part::Answered { .. } if ends => {
                self.senders -= 1;
                self.connection.take_done(stream);
                return;
            }
            Part::Checking(_) => return self.keep_body(stream, data, ends),
            Part::New
            | Part::Asked(_)
            | Part::File(_)
            | Part::Rest(_)
            | Part::Later(_)
            | Part::Answered { .. } => return self.drop_data(call, stream, len),
        };
        reading.received += len;
        reading.clock.on_bytes(body_now);
        let is_too_long = reading.received > reading.bytes_max;
        let framing = reading.framing;
        call.state.counters.add(ServerCounter::BodyBytes, len);
        if is_too_long {
            return self.refuse_body(call, stream, len);
        }
        self.readers -= usize::from(ends);
        if let Part::Echo(echo) = &mut task.part {
            if echo.waiting.is_empty() {
                // It did not wait for its window before.
                task.pace.on_bytes(now);
            }
            echo.waiting.extend_from_slice(data);
            echo.is_whole = ends;
            echo.reading.clock.set_standing(!echo.waiting.is_empty(), body_now);
            let sending = echo.sending();
            return self.connection.set_sending(stream, sending);
        }
        if !ends {
            call.send(|out| self.connection.release(out, stream, data.len()));
            return;
        }
        task.part = Part::New;
        let head = std::mem::take(&mut task.head);
        match Request::of_stream(&head, framing, false) {
            Some(request) if self.takes_answer(call) => self.answer(call, stream, &request, &head),
            _ => self.ask_later(call, stream, &head, Asked::Sound(framing)),
        }
    }

    /// Drops so many bytes of a body that nobody wants. Its client may continue with it for a while.
    pub(super) fn drop_data(&mut self, call: &mut Call<'_, '_>, stream: u32, len: u64) {
        let now = call.state.now.at;
        let Some(task) = self.connection.data_mut(stream) else { return };
        task.dropped_bytes += len;
        let is_too_much = task.dropped_bytes > DROPPED_BYTES_MAX;
        if let Part::Answered { end, last } = &mut task.part {
            if is_too_much {
                self.senders -= 1;
                task.part = Part::New;
                return self.end_stream(call, stream);
            }
            *end = (*last).min(now + JUDGED_ON_FOR);
        }
        if !is_too_much {
            call.send(|out| self.connection.release(out, stream, len as usize));
        }
    }

    /// A body is longer than the limit, and did not say so; the last of it that came has this length.
    #[cold]
    fn refuse_body(&mut self, call: &mut Call<'_, '_>, stream: u32, len: u64) {
        let Some(task) = self.connection.data_mut(stream) else { return };
        if task.status.is_some() {
            return self.reset(call, stream, ErrorCode::CANCEL, Cut::BadRequest);
        }
        let task = task.take();
        self.left(&task);
        let unsent_bytes = match &task.part {
            Part::Echo(echo) => echo.waiting.len() as u64,
            _ => 0,
        };
        self.drop_data(call, stream, unsent_bytes + len);
        self.refuse(call, stream, Rejection::BODY_LARGE, &task.head);
    }

    /// Answers what is sound and not served, once there is room for it.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        rejection: Rejection,
        head: &[u8],
    ) {
        if rejection.status == Status::CONTENT_TOO_LARGE
            && let Some(task) = self.connection.data_mut(stream)
        {
            task.is_judged_on = true;
        }
        if !self.takes_answer(call) {
            return self.ask_later(call, stream, head, Asked::Refused(Box::new(rejection)));
        }
        call.client.report_refusal(call.state, call.actions, rejection, false);
        let is_head = is_head(head);
        let front = self.front;
        self.answer_by(call, stream, head, |state, upper| {
            let common = state.common_of(front);
            answer::refusal(upper, common, rejection, &state.head_limits, is_head)
        });
    }

    /// Whether an answer may be made now, of which something may have to be kept.
    pub(super) fn takes_answer(&self, call: &Call<'_, '_>) -> bool {
        self.kept_bytes < KEPT_BYTES_MAX && call.takes_answer()
    }

    /// Keeps a request until there is room for its answer.
    pub(super) fn ask_later(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        head: &[u8],
        asked: Asked,
    ) {
        let kept = call.state.keep();
        let Some(task) = self.connection.data_mut(stream) else { return };
        (task.head, task.part, task.kept) = (head.into(), Part::Asked(asked), kept);
        if self.asked == 0 {
            self.asked_order.clear();
        }
        self.asked += 1;
        self.asked_order.push_back(stream);
        call.actions.notify_when_sent();
    }

    /// Answers requests that had to wait, as far as there is room.
    pub(super) fn answer_asked(&mut self, call: &mut Call<'_, '_>) {
        while self.asked > 0 && self.takes_answer(call) {
            let Some(stream) = self.asked_order.pop_front() else { return };
            let Some(task) = self.connection.data_mut(stream) else { continue };
            if !matches!(task.part, Part::Asked(_)) {
                continue;
            }
            let task = task.take();
            let epoch = task.kept.restore(&call.state.current_id);
            let Task { head, part: Part::Asked(asked), kept: _kept, .. } = task else { return };
            self.asked -= 1;
            call.under(epoch, |call| self.answer_one(call, stream, asked, &head));
        }
    }

    fn answer_one(&mut self, call: &mut Call<'_, '_>, stream: u32, asked: Asked, head: &[u8]) {
        match asked {
            Asked::Refused(rejection) => self.refuse(call, stream, *rejection, head),
            Asked::Sound(framing) => {
                if let Some(request) = Request::of_stream(head, framing, false) {
                    self.answer(call, stream, &request, head);
                }
            }
            Asked::Ended(framing, ending) => {
                if let Some(request) = Request::of_stream(head, framing, false) {
                    let request = (&request, NeverIndexed::default());
                    self.route(call, stream, request, head, (true, Occasion::Ended(ending)));
                }
            }
        }
    }

    /// Keeps a request for a file until fewer are open.
    #[cold]
    pub(super) fn wait_for_file(
        &mut self,
        call: &Call<'_, '_>,
        stream: u32,
        head: &[u8],
        framing: Framing,
    ) {
        call.count(ServerCounter::Http2FilesWaited);
        let kept = call.state.keep();
        let Some(task) = self.connection.data_mut(stream) else { return };
        (task.head, task.part, task.kept) = (head.into(), Part::File(framing), kept);
        if self.file_waiters == 0 {
            self.file_order.clear();
        }
        self.file_waiters += 1;
        self.file_order.push_back(stream);
    }

    /// Answers requests for files that had to wait, as far as there is room.
    pub(super) fn answer_file_waiters(&mut self, call: &mut Call<'_, '_>) {
        while self.file_waiters > 0 && self.files < FILES_MAX && self.takes_answer(call) {
            let Some(stream) = self.file_order.pop_front() else { return };
            let Some(task) = self.connection.data_mut(stream) else { continue };
            let Part::File(framing) = task.part else { continue };
            let task = task.take();
            self.file_waiters -= 1;
            if let Some(request) = Request::of_stream(&task.head, framing, false) {
                let epoch = task.kept.restore(&call.state.current_id);
                call.under(epoch, |call| self.answer(call, stream, &request, &task.head));
            }
        }
    }

    #[inline]
    pub(super) fn answer(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        request: &Request<'_>,
        head: &[u8],
    ) {
        if self.ready.is_some() {
            // What had to wait is answered here: there is no next hop for what its client has marked.
            let request = (request, NeverIndexed::default());
            return self.pass(call, stream, request, head, (true, Occasion::Kept));
        }
        let began = call.state.is_timing.then(Instant::now);
        let context = Context {
            persistence: Persistence::Implicit,
            is_head: request.method == Method::Head,
            asked: call.state.common.asked(request),
        };
        let is_read = matches!(request.method, Method::Get | Method::Head);
        let has_nothing_to_echo = matches!(call.state.handler, Handler::Echo) && is_read;
        let has_begun = self.answer_by(call, stream, head, |state, upper| {
            if has_nothing_to_echo {
                let common = &state.common;
                return answer::document(upper, common, context, "text/plain", ECHO_OF_NOTHING);
            }
            let (handler, parts) = state.handler_and_parts();
            let answered = respond(handler, &parts, upper, request, None, context);
            answered.expect("an exchange was made for backends")
        });
        if !has_begun {
            self.wait_for_file(call, stream, head, request.framing);
        }
        if let Some(began) = began {
            let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            call.state.counters.times().record(nanoseconds);
        }
    }

    /// Has an answer made as one of HTTP/1.1, and sends what it can of it. False where it is a file, and no more of them may
    /// be open: then there is no answer yet.
    #[inline]
    pub(super) fn answer_by(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        head: &[u8],
        make: impl FnOnce(&mut LoopState, &mut Actions<'_>) -> Answered,
    ) -> bool {
        let mut room = std::mem::take(&mut call.state.streams.room);
        room.resize(Actions::ROOM_MIN, 0);
        // What a body is made of is read when a window takes it.
        let reads_all = call.state.handler.set_reads_all(true);
        let (answered, len) = call.actions.layered(&mut room, |upper| make(call.state, upper));
        call.state.handler.set_reads_all(reads_all);
        // An end is that of the stream.
        let _ending = call.actions.hold_ending();
        let is_file = matches!(&answered.left, Left::Unsent(unsent) if unsent.is_file());
        let begins = !is_file || self.files < FILES_MAX;
        if begins {
            self.begin_answer(call, stream, head, answered, &room[..len]);
        }
        call.state.streams.room = room;
        begins
    }

    #[inline]
    fn begin_answer(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        head: &[u8],
        answered: Answered,
        text: &[u8],
    ) {
        let Answered { status, body_bytes, left, refusal } = answered;
        let (answer_head, mut body) = text.split_at(self.connection.head_len(text));
        let is_whole = !matches!(left, Left::Unsent(_));
        let ends = is_whole && body.is_empty();
        // A frame without bytes for those who wait for the body of a 200.
        let is_empty_body = ends && status == Status::OK && !is_head(head);
        let connection = &mut self.connection;
        call.send(|out| {
            connection.send_head(out, stream, answer_head, ends && !is_empty_body);
            if is_empty_body {
                connection.send_data(out, stream, &[], true);
            }
            let room = out.room().saturating_sub(CONTROL_ROOM_BYTES);
            let piece = body.len().min(connection.data_room(stream)).min(room);
            // A large body does not get in front of a more urgent one.
            let waits = (!is_whole || piece < body.len()) && connection.is_behind(stream);
            if piece > 0 && !waits {
                let is_last = is_whole && piece == body.len();
                connection.send_data(out, stream, &body[..piece], is_last);
                body = &body[piece..];
            }
        });
        if is_whole && body.is_empty() {
            let end = refusal.map_or(End::Whole, End::Refused);
            let outcome = Outcome { status: Some(status), body_bytes, end };
            call.client.book(call.state, Some(head), outcome);
            return self.end_stream(call, stream);
        }
        let (unsent, kept_bytes) = match left {
            Left::Unsent(mut unsent) => {
                unsent.take_back(body.len() as u64);
                (*unsent, 0)
            }
            _ => (Unsent::once(body.to_vec()), body.len()),
        };
        self.begin_sending(call);
        self.files += usize::from(unsent.is_file());
        self.kept_bytes += kept_bytes;
        self.connection.set_sending(stream, Sending::Data);
        let now = call.state.now.at;
        let has_log = call.state.log.is_some();
        let kept = if has_log { call.state.keep() } else { Kept::default() };
        let Some(task) = self.connection.data_mut(stream) else { return };
        (task.head, task.kept) = (if has_log { head.into() } else { Box::default() }, kept);
        task.part = Part::Rest(unsent);
        (task.status, task.body_bytes, task.refusal) = (Some(status), body_bytes, refusal);
        (task.pace, task.kept_bytes) = (BodyClock::started(now), kept_bytes);
    }

    pub(super) fn send_rest(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        mut unsent: Unsent,
        room: usize,
    ) {
        let left = usize::try_from(unsent.left_bytes()).unwrap_or(usize::MAX);
        let piece = left.min(self.connection.data_room(stream)).min(room);
        let mut sent: Result<(), Errno> = Ok(());
        call.send(|out| {
            let fill = |room: &mut [u8]| unsent.fill(room);
            sent = self.connection.send_data_with(out, stream, piece, piece == left, fill);
        });
        let now = call.state.now.at;
        let Some(task) = self.connection.data_mut(stream) else { return };
        task.pace.on_bytes(now);
        if let Err(errno) = sent {
            task.part = Part::Rest(unsent);
            call.state.report_cut(errno);
            // Its length was announced: the client must not take what there is for all.
            return self.reset(call, stream, ErrorCode::INTERNAL_ERROR, Cut::FileFailed);
        }
        if piece < left {
            task.part = Part::Rest(unsent);
            return;
        }
        let task = task.take();
        self.senders -= 1;
        self.files -= usize::from(unsent.is_file());
        self.kept_bytes -= task.kept_bytes;
        let end = task.refusal.map_or(End::Whole, End::Refused);
        let epoch = task.kept.restore(&call.state.current_id);
        call.under(epoch, |call| {
            // Without one where there was no log when it began.
            let head = Some(&*task.head).filter(|head| !head.is_empty());
            call.client.book(call.state, head, task.outcome(0, end));
        });
        self.end_stream(call, stream);
    }

    pub(super) fn send_echo(&mut self, call: &mut Call<'_, '_>, stream: u32, mut echo: Box<Echo>) {
        if !echo.has_begun {
            echo.has_begun = true;
            let mut head = [0; ECHO_HEAD_BYTES_MAX];
            let common = call.state.common_by(echo.asked);
            let framing = echo.reading.framing;
            let len =
                write_echo_head(common, &mut head, framing, Persistence::Implicit, echo.asked);
            call.send(|out| self.connection.send_head(out, stream, &head[..len], false));
        }
        let room = call.actions.room().saturating_sub(2 * CONTROL_ROOM_BYTES);
        let piece = echo.waiting.len().min(self.connection.data_room(stream)).min(room);
        let is_last = echo.is_whole && piece == echo.waiting.len();
        call.send(|out| {
            self.connection.send_data(out, stream, &echo.waiting[..piece], is_last);
            self.connection.release(out, stream, piece);
        });
        echo.waiting.drain(..piece);
        let now = call.state.now.at;
        let body_now = self.body_time(call.state.now.at);
        echo.reading.clock.set_standing(!echo.waiting.is_empty(), body_now);
        if !is_last {
            // Its time may have stood when it was looked at last.
            let deadline = echo.reading.deadline();
            self.look_at_readers = self.look_at_readers.min(deadline);
            self.connection.set_sending(stream, echo.sending());
        }
        let Some(task) = self.connection.data_mut(stream) else { return };
        task.pace.on_bytes(now);
        task.status = Some(Status::OK);
        task.body_bytes = echo.reading.received;
        if !is_last {
            task.part = Part::Echo(echo);
            return;
        }
        self.senders -= 1;
        let task = std::mem::take(task);
        call.client.book(call.state, Some(&task.head), task.outcome(0, End::Whole));
        self.end_stream(call, stream);
    }
}

impl Echo {
    /// What of it can be sent now.
    pub(super) fn sending(&self) -> Sending {
        if !self.waiting.is_empty() {
            Sending::Data
        } else if self.is_whole {
            Sending::End
        } else {
            Sending::Nothing
        }
    }
}

impl Reading {
    /// By when more of it has to come, in the time of bodies.
    pub(super) fn deadline(&self) -> Moment {
        self.clock.deadline(self.received, self.time)
    }
}
