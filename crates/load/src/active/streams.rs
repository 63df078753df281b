//! An active connection of HTTP/2: requests out on streams, answers in, each with its times.
//!
//! ```text
//!  supply, again ─► ask: HEADERS ─► bodies in turn, as windows allow ─► answer: booked, its slot is free
//!                    ▲                                                      │
//!                    └── again ◄── refused, or above the last of a GOAWAY ◄─┤
//!                                                                           └─► reset, timeout, malformed: failed
//! ```
//!
//! | what a server does | what becomes of it |
//! |---|---|
//! | answers a stream | an answer, as of HTTP/1.1 |
//! | `refused_stream` | the request is sent again, on another connection where one has a free stream, at most eight times, with its first start: then it has failed |
//! | another RST_STREAM | that request has failed; the others continue |
//! | GOAWAY | streams up to the last continue; the others are sent again, and another socket takes the place of this one at once |
//! | ends the connection between streams | another socket takes its place; nothing has failed |
//! | an answer takes too long | its stream is cancelled; a connection on which nothing came meanwhile is given up |
//! | allows fewer streams than were asked for | so many are used |
//!
//! Nothing here holds up a server: windows are large, and all that comes is read at once, also while output waits.

use std::collections::VecDeque;

use pollux_engine::{Actions, Moment};
use pollux_http::h2::{
    AskHead, BlockBytes, CONTROL_ROOM_BYTES, Connection, ErrorCode, Event, KnownBlock, Output,
    PREFACE, Role, Scratch,
};
use pollux_http::{Rejection, Response, Status};

use super::{Active, Again, State, UnderWay};
use crate::answer::Answer;
use crate::frames::{self, Frames};
use crate::kept_answer::Kept;
use crate::protocol::{HEAD_BYTES_MAX, ask_room_bytes};
use crate::requests::ANSWER_LIMITS;
use crate::shared::{Came, Reopen, Shared, Stage};
use crate::tally::{Cause, Fault, Verdict, shows_http1};

/// How often a request that was refused is sent again.
const REFUSED_MAX: u8 = 8;

/// How long one waits that was refused for the first time; twice as long each time.
const REFUSED_PAUSE_NS: u64 = 1_000_000;

/// The smallest frame of a body that is worth its head, where more is to follow.
const PIECE_BYTES_MIN: usize = 1024;

/// Room that is left when bodies are sent: for the head of a frame, and answers to what comes next.
const SPARE_BYTES: usize = 2 * CONTROL_ROOM_BYTES;

/// The line of a status and the empty line behind the fields, as HTTP/1.1 has them.
const STATUS_LINE_BYTES: usize = b"HTTP/1.1 200 OK\r\n\r\n".len();

/// What HTTP/2 is on one socket.
#[derive(Debug)]
pub(super) struct Streams {
    connection: Connection<Asked>,
    /// As `Requests::known` numbers them.
    known: Box<[KnownBlock]>,
    /// Streams with more of a body to send, in turn.
    senders: VecDeque<u32>,
    /// With what the server has given up the connection.
    gone: Option<ErrorCode>,
    /// The fewest streams that the server has allowed, where that is fewer than there should be.
    limit: Option<u32>,
    /// Since when the server allows none at all.
    starved_ns: Option<u64>,
    /// When a request was sent last.
    sent_ns: u64,
    /// When something came last.
    received_ns: u64,
    /// What was counted of these.
    blocks: BlockBytes,
    /// What is not counted yet.
    fresh: Fresh,
}

/// What came and was sent since it was counted last.
#[derive(Default, Debug)]
struct Fresh {
    frames_in: Frames,
    frames_out: Frames,
    /// Heads as lines of text.
    text_bytes_in: u64,
    text_bytes_out: u64,
}

/// A request on a stream.
#[derive(Default, Debug)]
struct Asked {
    request: UnderWay,
    /// How often it was refused.
    refused: u8,
    /// Its answer was whole before it had left itself.
    is_answered: bool,
    /// Its body waits for a window.
    is_stalled: bool,
    /// Of its answer; 0 before there is one.
    status: u16,
    /// Where the rest of its body begins.
    rest_at: u32,
    first_ns: u64,
    body_bytes: u64,
    wire_bytes: u64,
    /// The start of its answer, where that is of interest.
    kept: Option<Box<Kept>>,
}

impl Streams {
    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.connection.is_empty()
    }

    /// Has the connection write frames, which are sent and counted.
    #[inline]
    fn say<R>(
        &mut self,
        actions: &mut Actions<'_>,
        write: impl FnOnce(&mut Connection<Asked>, &mut Output<'_>) -> R,
    ) -> R {
        let Self { connection, fresh, .. } = self;
        write_frames(actions, &mut fresh.frames_out, |out| write(connection, out))
    }
}

/// Sends the frames that `write` writes, and counts them.
#[inline]
fn write_frames<R>(
    actions: &mut Actions<'_>,
    frames: &mut Frames,
    write: impl FnOnce(&mut Output<'_>) -> R,
) -> R {
    let mut out = Output::new(actions.spare());
    let wrote = write(&mut out);
    frames.count(out.bytes());
    let len = out.len();
    actions.advance(len);
    wrote
}

impl Active {
    /// The connection is there: says the first words, and asks.
    pub(super) fn begin_streams(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        let known = shared.requests.known_max();
        let mut connection = Connection::new(Role::Client, shared.terms.settings);
        let mut out = Output::new(actions.spare());
        connection.start(&mut out);
        let mut fresh = Fresh::default();
        fresh.frames_out.count(&out.bytes()[PREFACE.len()..]);
        let len = out.len();
        actions.advance(len);
        self.streams = Some(Box::new(Streams {
            connection,
            known: vec![KnownBlock::default(); known].into(),
            senders: VecDeque::new(),
            gone: None,
            limit: None,
            starved_ns: None,
            sent_ns: 0,
            received_ns: 0,
            blocks: BlockBytes::default(),
            fresh,
        }));
        let tally = shared.tally(self.opened_ns);
        tally.http2.connections += 1;
        tally.totals.bytes_out += len as u64;
        shared.slots[self.slot as usize].socket = Some(actions.id());
        self.send(shared, actions);
    }

    /// Sends what may be sent now; no output waits.
    pub(super) fn send_streams(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if self.state != State::Open {
            return;
        }
        let sent_before = actions.len();
        if self.streams.as_ref().is_some_and(|streams| streams.connection.is_used_up()) {
            self.replace(shared);
        }
        loop {
            if self.can_ask(shared) {
                let now_ns = shared.read_clock();
                while self.can_ask(shared) && self.ask(shared, actions, now_ns) {}
            }
            // Behind the heads: what is due is not to wait for long bodies of others.
            let has_freed = self.send_bodies(shared, actions);
            if !has_freed || self.rests(shared, actions) {
                break;
            }
        }
        self.count_output(shared, actions.len() - sent_before);
        self.give_back(shared, actions);
        if !self.is_replaced {
            if self.state == State::Open && self.can_ask(shared) {
                shared.idle_queue.is_idle(self.slot, actions.id());
            } else {
                shared.idle_queue.is_busy(self.slot);
            }
        }
        if self.is_over() {
            return self.end_streams(shared, actions);
        }
        if self.state != State::Open {
            return;
        }
        let Some(streams) = &mut self.streams else { return };
        let is_starved = self.left > 0 && streams.connection.peer_streams_max() == 0;
        let starved_ns = streams.starved_ns.unwrap_or(shared.turn_ns);
        streams.starved_ns = is_starved.then_some(starved_ns);
        if is_starved || !streams.connection.is_empty() {
            // An earlier one stays, and what is due is looked up then.
            let due = actions.now().at + shared.terms.request_timeout;
            actions.set_deadline(actions.deadline().min(due));
        }
    }

    /// Ends a connection on which nothing is under way, and says so (RFC 9113 6.8).
    fn end_streams(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        self.count_life(shared);
        let sent_before = actions.len();
        if !actions.is_output_waiting()
            && actions.room() >= CONTROL_ROOM_BYTES
            && let Some(streams) = &mut self.streams
        {
            streams.say(actions, Connection::end);
        }
        self.count_output(shared, actions.len() - sent_before);
        close(actions);
    }

    /// Whether nothing is under way any more on a socket that asks nothing any more.
    fn is_over(&self) -> bool {
        let is_empty = self.streams.as_ref().is_some_and(|streams| streams.connection.is_empty());
        is_empty && (self.left == 0 || self.is_replaced)
    }

    #[inline]
    fn can_ask(&self, shared: &Shared) -> bool {
        let Some(streams) = &self.streams else { return false };
        // Before its server has said how many it allows: as many as it did before.
        let allowed = if streams.connection.has_begun() {
            shared.terms.streams
        } else {
            shared.terms.streams.min(shared.streams_allowed)
        };
        // With those that are under way on sockets whose place it has taken.
        let under_way =
            streams.connection.len() + shared.slots[self.slot as usize].leaving as usize;
        self.left > 0
            && !self.is_replaced
            && under_way < allowed as usize
            && streams.connection.can_ask()
    }

    /// Gives the socket that has taken the place of this one the streams that are over.
    fn give_back(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if !self.is_replaced {
            return;
        }
        let left = self.streams.as_ref().map_or(0, |streams| streams.connection.len() as u32);
        let slot = &mut shared.slots[self.slot as usize];
        let over = self.leaving.saturating_sub(left);
        (self.leaving, slot.leaving) = (left, slot.leaving - over);
        if let Some(successor) = slot.socket.filter(|_| over > 0) {
            actions.wake(successor);
        }
    }

    /// Sends the next request, if there is one and it fits; returns whether another may follow.
    #[inline]
    fn ask(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, now_ns: u64) -> bool {
        if actions.room() < shared.ask_room_bytes {
            actions.notify_when_sent();
            return false;
        }
        let (request, refused) = match shared.take_again(self.slot, now_ns) {
            Some(again) => {
                shared.tally(now_ns).http2.resent += 1;
                (UnderWay { sent_ns: now_ns, ..again.request }, again.refused)
            }
            None => {
                let Some(start) = shared.start(now_ns, &mut self.is_reserved) else { return false };
                let target = shared.requests.choose();
                shared.note_lag(&start, now_ns);
                shared.tally(start.at_ns).totals.sent += 1;
                shared.under_way += 1;
                let kind = shared.requests.kind(target);
                (UnderWay { start_ns: start.at_ns, sent_ns: now_ns, target, kind }, 0)
            }
        };
        self.left -= 1;
        shared.sends(now_ns);
        self.learn_late(shared);
        let bytes = shared.requests.bytes(request.target);
        let head_len = shared.requests.head_len(bytes);
        let mut head = &bytes[..head_len];
        let ends = head_len == bytes.len();
        let mut is_own = false;
        let mut is_too_long = false;
        if let Some(cookies) = &mut self.cookies
            && cookies.compose(bytes)
            && let Some(composed) = cookies.composed()
        {
            let composed = &composed[..composed.len() - (bytes.len() - head_len)];
            is_too_long = composed.len() > HEAD_BYTES_MAX;
            is_own = !is_too_long;
            head = if is_own { composed } else { head };
        }
        let Some(streams) = &mut self.streams else { return false };
        let Streams { connection, known, senders, sent_ns, fresh, .. } = &mut **streams;
        *sent_ns = now_ns;
        fresh.text_bytes_out += head.len() as u64;
        let place = if is_own { None } else { shared.requests.known(request.target) };
        let (known, path) = place.map_or((None, None), |(at, path)| (known.get_mut(at), path));
        let scheme = if shared.terms.is_encrypted { "https" } else { "http" };
        let rest_at = head_len as u32;
        let asked = Asked { request, refused, rest_at, ..Asked::default() };
        let ask = AskHead { head, scheme, known, path };
        let frames = &mut fresh.frames_out;
        let id = write_frames(actions, frames, |out| connection.ask_head(out, ask, ends, asked));
        senders.extend(id.filter(|_| !ends));
        if is_too_long {
            shared.tally(request.start_ns).totals.cookies_refused += 1;
        }
        true
    }

    /// Takes the cookies that answers have set on the socket whose place this one has taken.
    #[inline]
    fn learn_late(&mut self, shared: &mut Shared) {
        if self.cookies.is_some() && !shared.slots[self.slot as usize].late_cookies.is_empty() {
            self.learn_all(shared);
        }
    }

    #[cold]
    fn learn_all(&mut self, shared: &mut Shared) {
        let late = std::mem::take(&mut shared.slots[self.slot as usize].late_cookies);
        for (request, value) in late {
            if let Some(cookies) = &mut self.cookies {
                cookies.note_value(&value);
            }
            self.learn(shared, &request);
        }
    }

    /// Sends more of the bodies, a frame of each in turn. Whether a slot has become free: that of an answer which was whole
    /// before its request had left.
    fn send_bodies(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) -> bool {
        let Some(streams) = &mut self.streams else { return false };
        let mut in_vain = 0;
        let mut stalls = 0;
        let mut has_freed = false;
        while in_vain < streams.senders.len() {
            let room = actions.room().saturating_sub(SPARE_BYTES);
            if room < PIECE_BYTES_MIN {
                actions.notify_when_sent();
                break;
            }
            let Some(stream) = streams.senders.pop_front() else { break };
            let window = streams.connection.data_room(stream);
            let Some(asked) = streams.connection.data_mut(stream) else { continue };
            let rest = &shared.requests.bytes(asked.request.target)[asked.rest_at as usize..];
            let piece = &rest[..rest.len().min(window).min(room)];
            if piece.is_empty() && asked.is_answered {
                // Its answer is whole, and the rest is not taken: it is not wanted (RFC 9113 8.1).
                let cancel = ErrorCode::CANCEL;
                let _answered =
                    streams.say(actions, |connection, out| connection.reset(out, stream, cancel));
                has_freed = true;
                continue;
            }
            if piece.is_empty() {
                stalls += u64::from(!std::mem::replace(&mut asked.is_stalled, true));
                streams.senders.push_back(stream);
                in_vain += 1;
                continue;
            }
            asked.rest_at += piece.len() as u32;
            asked.is_stalled = false;
            let ends = piece.len() == rest.len();
            streams.say(actions, |connection, out| connection.send_data(out, stream, piece, ends));
            in_vain = 0;
            if ends {
                // One that was answered before has its slot only until now.
                has_freed |= streams.connection.take_done(stream).is_some();
            } else {
                streams.senders.push_back(stream);
            }
        }
        let turn_ns = shared.turn_ns;
        shared.tally(turn_ns).http2.window_stalls += stalls;
        has_freed
    }

    /// Counts what was sent in this call.
    fn count_output(&mut self, shared: &mut Shared, bytes: usize) {
        let Some(streams) = &mut self.streams else { return };
        let now = streams.connection.block_bytes();
        let before = std::mem::replace(&mut streams.blocks, now);
        let fresh = std::mem::take(&mut streams.fresh);
        let turn_ns = shared.turn_ns;
        let tally = shared.tally(turn_ns);
        tally.totals.bytes_out += bytes as u64;
        let http2 = &mut tally.http2;
        http2.header_bytes_in += now.received - before.received;
        http2.header_bytes_out += now.asked - before.asked;
        http2.header_text_bytes_in += fresh.text_bytes_in;
        http2.header_text_bytes_out += fresh.text_bytes_out;
        http2.frames_in.add(&fresh.frames_in);
        http2.frames_out.add(&fresh.frames_out);
    }

    pub(super) fn on_frames(
        &mut self,
        shared: &mut Shared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let sent_before = actions.len();
        let mut scratch = std::mem::take(&mut shared.scratch);
        let used = self.read_frames(shared, actions, &mut scratch, input);
        shared.scratch = scratch;
        self.count_output(shared, actions.len() - sent_before);
        self.give_back(shared, actions);
        if !actions.is_ending() {
            self.follow_streams(shared, actions);
        }
        used
    }

    fn read_frames(
        &mut self,
        shared: &mut Shared,
        actions: &mut Actions<'_>,
        scratch: &mut Scratch,
        input: &[u8],
    ) -> usize {
        let now_ms = shared.turn_ns / 1_000_000;
        let Some(streams) = &mut self.streams else { return input.len() };
        streams.received_ns = shared.turn_ns;
        // Where a request left later in the same turn its answer may be here already.
        let is_later = shared.turn_ns <= streams.sent_ns;
        let came_ns = if is_later { shared.read_clock() } else { shared.turn_ns };
        let mut used = 0;
        while used < input.len() {
            let Some(streams) = &mut self.streams else { break };
            let read = streams.say(actions, |connection, out| {
                let read = connection.read(&input[used..], scratch, out, &ANSWER_LIMITS, now_ms);
                read.inspect_err(|fault| connection.fail(out, fault))
            });
            let step = match read {
                Ok(step) => step,
                Err(fault) => {
                    let why = Rejection::new(Status::BAD_GATEWAY, fault.reason, fault.rfc);
                    let at = used + streams.connection.sound_bytes();
                    self.give_up_streams(shared, &input[at..], &why);
                    close(actions);
                    return input.len();
                }
            };
            streams.fresh.frames_in.count(&input[used..used + step.used]);
            used += step.used;
            let Some(event) = step.event else { break };
            if matches!(event, Event::NoRoom) {
                actions.notify_when_sent();
                break;
            }
            self.on_event(shared, actions, event, (step.used as u64, came_ns));
        }
        used
    }

    #[inline]
    fn on_event(
        &mut self,
        shared: &mut Shared,
        actions: &mut Actions<'_>,
        event: Event<'_, Asked>,
        (used, came_ns): (u64, u64),
    ) {
        let turn_ns = shared.turn_ns;
        let Some(streams) = &mut self.streams else { return };
        match event {
            Event::Response { stream, response, ends, .. } => {
                self.on_response(shared, stream, &response, (used, came_ns));
                if ends && !response.facts.is_interim() {
                    self.stream_answered(shared, stream, came_ns);
                }
            }
            Event::Data { stream, data, ends } => {
                let Some(asked) = streams.connection.data_mut(stream) else { return };
                asked.wire_bytes += used;
                asked.body_bytes += data.len() as u64;
                if let Some(kept) = &mut asked.kept {
                    kept.body(data);
                }
                if ends {
                    return self.stream_answered(shared, stream, came_ns);
                }
                let len = data.len();
                streams.say(actions, |connection, out| connection.release(out, stream, len));
            }
            Event::Trailers { stream, fields, .. } => {
                streams.fresh.text_bytes_in += fields.len_bytes() as u64;
                if let Some(asked) = streams.connection.data_mut(stream) {
                    asked.wire_bytes += used;
                }
                self.stream_answered(shared, stream, came_ns);
            }
            Event::Reset { code, data, .. } => {
                shared.tally(turn_ns).http2.resets[code.index()] += 1;
                let is_unseen = code == ErrorCode::REFUSED_STREAM && data.status == 0;
                if is_unseen && data.refused < REFUSED_MAX {
                    self.was_refused(shared, &data);
                } else if is_unseen {
                    failed(shared, &data, Fault::StreamRefused);
                } else {
                    failed(shared, &data, Fault::StreamReset);
                }
            }
            Event::Malformed { rejection, head, data: Some(asked), .. } => {
                if asked.request.start_ns >= shared.measure_from_ns && !asked.is_answered {
                    shared.firsts.note_unreadable(turn_ns, (head, true), &rejection);
                }
                failed(shared, &asked, Fault::Malformed);
            }
            Event::GoneAway { last, code } => self.goes_away(shared, last, code),
            Event::WindowOpened => self.note_limit(shared),
            Event::Malformed { .. } | Event::PingAnswered { .. } | Event::NoRoom => {}
            Event::Request { .. } | Event::Refused { .. } | Event::TooMany { .. } => {
                unreachable!("a server asks nothing")
            }
        }
    }

    /// The head of an answer, or of one that is interim.
    #[inline]
    fn on_response(
        &mut self,
        shared: &mut Shared,
        stream: u32,
        response: &Response<'_>,
        (used, came_ns): (u64, u64),
    ) {
        let Some(streams) = &mut self.streams else { return };
        let text_bytes = response.fields.len_bytes() + STATUS_LINE_BYTES;
        streams.fresh.text_bytes_in += text_bytes as u64;
        let Some(asked) = streams.connection.data_mut(stream) else { return };
        asked.wire_bytes += used;
        if response.facts.is_interim() {
            return;
        }
        asked.status = response.facts.status.code();
        asked.first_ns = came_ns;
        if shared.firsts.wanted(shared.terms.expect).is_suspect_status(asked.status) {
            asked.kept = Some(Box::new(kept_of(response)));
        }
        let request = asked.request;
        if let Some(cookies) = &mut self.cookies {
            response.fields.all("set-cookie").for_each(|value| cookies.note_value(value));
            if cookies.is_fresh() {
                self.learn(shared, &request);
            }
        } else if shared.terms.keeps_cookies {
            // They are with the socket that has taken the place of this one.
            let late = &mut shared.slots[self.slot as usize].late_cookies;
            let values = response.fields.all("set-cookie");
            late.extend(values.map(|value| (request, value.to_vec())));
        }
    }

    /// Books the answer of a stream, which is whole.
    #[inline]
    fn stream_answered(&mut self, shared: &mut Shared, stream: u32, now_ns: u64) {
        let Some(streams) = &mut self.streams else { return };
        let asked = match streams.connection.take_done(stream) {
            Some(asked) => asked,
            None => {
                // The rest of its request follows.
                let Some(asked) = streams.connection.data_mut(stream) else { return };
                asked.is_answered = true;
                Asked { kept: asked.kept.take(), ..*asked }
            }
        };
        shared.under_way -= 1;
        shared.unproven -= u32::from(!std::mem::replace(&mut self.has_answer, true));
        if !shared.terms.think_time.is_zero() {
            self.thinks_until_ns = now_ns + shared.terms.think_time.as_nanos() as u64;
        }
        let Asked { request, status, first_ns, body_bytes, wire_bytes, .. } = asked;
        let answer = Answer { status, keep_alive: true, body_bytes, wire_bytes };
        let verdict = Verdict::of(&answer, &shared.terms.expect);
        if let Some(kept) = &asked.kept
            && request.start_ns >= shared.measure_from_ns
        {
            let expect = shared.terms.expect;
            shared.firsts.note(now_ns, verdict, kept, (body_bytes, &expect));
        }
        shared.answered(&request, &Came { first_ns, now_ns, verdict }, &answer);
    }

    /// What follows answers: more requests, a pause, or the end.
    fn follow_streams(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if self.is_over() {
            return self.end_streams(shared, actions);
        }
        if !self.rests(shared, actions) {
            self.send(shared, actions);
        }
    }

    /// Whether its client thinks now: nothing is under way, and it is not time to ask again.
    fn rests(&mut self, shared: &Shared, actions: &mut Actions<'_>) -> bool {
        let is_empty = self.streams.as_ref().is_some_and(|streams| streams.is_empty());
        let rests = is_empty && self.thinks_until_ns > shared.turn_ns;
        if rests {
            self.state = State::Thinking;
            actions.set_deadline(Moment::from_nanos(self.thinks_until_ns));
        }
        rests
    }

    /// A request was refused: another connection may take it after a pause, and this one after another, unless it is the
    /// only one.
    #[cold]
    fn was_refused(&self, shared: &mut Shared, asked: &Asked) {
        if asked.is_answered {
            return;
        }
        let pause_ns = REFUSED_PAUSE_NS << asked.refused;
        let at_ns = shared.turn_ns + pause_ns;
        let anywhere_ns = if shared.slots.len() > 1 { at_ns + pause_ns } else { at_ns };
        shared.again.push_back(Again {
            request: asked.request,
            refused: asked.refused + 1,
            refused_by: self.slot,
            at_ns,
            anywhere_ns,
        });
    }

    /// The server takes no stream above `last`: what stands there is sent again, elsewhere.
    #[cold]
    fn goes_away(&mut self, shared: &mut Shared, last: u32, code: ErrorCode) {
        let turn_ns = shared.turn_ns;
        shared.tally(turn_ns).http2.goaways[code.index()] += 1;
        let Some(streams) = &mut self.streams else { return };
        // The last one says why.
        streams.gone = Some(code);
        // The latest first, so that the first of them stands in front.
        for (_, asked) in streams.connection.take_above(last) {
            if asked.is_answered {
                continue;
            }
            // A server that gives up each connection before it answers anything refuses them all.
            let refused = asked.refused + u8::from(!self.has_answer);
            if refused > REFUSED_MAX {
                shared.note_failure(&Cause::GivesUp(code));
                failed(shared, &asked, Fault::GoAway);
            } else {
                let request = asked.request;
                let refused_by = self.slot;
                let again = Again { request, refused, refused_by, at_ns: 0, anywhere_ns: 0 };
                shared.again.push_front(again);
            }
        }
        self.replace(shared);
    }

    /// Has another socket take the place of this one, which ends with its last answer.
    #[cold]
    fn replace(&mut self, shared: &mut Shared) {
        if !std::mem::replace(&mut self.is_replaced, true) {
            shared.idle_queue.is_busy(self.slot);
            self.leaving = self.streams.as_ref().map_or(0, |own| own.connection.len() as u32);
            let slot = &mut shared.slots[self.slot as usize];
            (slot.leaving, slot.socket) = (slot.leaving + self.leaving, None);
        }
        if self.has_successor {
            return;
        }
        // At once, but for a server that gives up each connection before it answers anything.
        let at_ns = self.retry_at(shared.turn_ns);
        if shared.stage == Stage::Ending && shared.again.is_empty() {
            return;
        }
        self.has_successor = true;
        let mut active = Self::new(self.slot, shared.terms.pipeline, false);
        active.cookies = self.cookies.take();
        active.is_reserved = std::mem::take(&mut self.is_reserved);
        active.failures = self.failures;
        active.thinks_until_ns = self.thinks_until_ns;
        shared.reopen.push(Reopen { active, at_ns });
    }

    /// Counts, once of each connection, that the server allows fewer streams than were asked for, and notes the fewest.
    #[cold]
    fn note_limit(&mut self, shared: &mut Shared) {
        let Some(streams) = &mut self.streams else { return };
        let allowed = streams.connection.peer_streams_max();
        shared.streams_allowed = allowed;
        if allowed < shared.terms.streams && streams.limit.is_none_or(|before| allowed < before) {
            let is_first = streams.limit.replace(allowed).is_none();
            shared.interval.spoke.note_limit(allowed, is_first);
        }
    }

    pub(super) fn on_stream_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        let now = actions.now().at;
        let timeout = shared.terms.request_timeout;
        let sent_before = actions.len();
        while let Some(streams) = &mut self.streams {
            let first = streams.connection.streams().next();
            let first = first.map(|(stream, asked)| (stream, asked.request.sent_ns));
            let Some((stream, sent_ns)) = first else { break };
            let due = Moment::from_nanos(sent_ns) + timeout;
            if due > now {
                actions.set_deadline(due);
                break;
            }
            let was_alive = streams.received_ns >= sent_ns;
            if !was_alive || actions.room() < CONTROL_ROOM_BYTES {
                self.fail_streams(shared, Fault::Timeout);
                return actions.abort();
            }
            let cancel = ErrorCode::CANCEL;
            let asked =
                streams.say(actions, |connection, out| connection.reset(out, stream, cancel));
            if let Some(asked) = asked {
                failed(shared, &asked, Fault::Timeout);
            }
        }
        self.count_output(shared, actions.len() - sent_before);
        self.give_back(shared, actions);
        if self.is_starved_too_long(shared, actions) {
            return;
        }
        self.follow_streams(shared, actions);
    }

    /// Gives up a connection whose server allows no stream, with the request that it is there for. Those that it has refused
    /// may go elsewhere, and have their own time.
    fn is_starved_too_long(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) -> bool {
        let since = self.streams.as_ref().and_then(|streams| streams.starved_ns);
        let Some(since) = since.map(Moment::from_nanos) else { return false };
        if since + shared.terms.request_timeout > actions.now().at {
            return false;
        }
        let now_ns = shared.turn_ns;
        if let Some(start) = shared.start(now_ns, &mut self.is_reserved) {
            shared.last_outcome_ns = now_ns;
            shared.waited(start.at_ns, now_ns);
            shared.tally(start.at_ns).failed(Fault::Timeout, None);
        }
        actions.abort();
        true
    }

    /// Books that the peer can't be understood.
    #[cold]
    fn give_up_streams(&mut self, shared: &mut Shared, input: &[u8], why: &Rejection) {
        let Some(streams) = &mut self.streams else { return };
        if !streams.connection.has_begun() {
            if shows_http1(input) && shared.last_answer_ns == 0 {
                shared.speaks_other(&Cause::SpeaksHttp1);
            } else {
                self.look_for_tls(shared, input);
            }
        }
        let is_of_run = shared.stage == Stage::Running && shared.turn_ns >= shared.measure_from_ns;
        if is_of_run {
            // Its frame, where it speaks HTTP/2.
            let has_begun = self.streams.as_ref().is_some_and(|own| own.connection.has_begun());
            let frame = frames::in_words(input).filter(|_| has_begun);
            let shown = frame.as_deref().map_or(input, str::as_bytes);
            shared.firsts.note_unreadable(shared.turn_ns, (shown, true), why);
        }
        let has_none = self.streams.as_ref().is_none_or(|streams| streams.connection.is_empty());
        if has_none && shared.stage == Stage::Running {
            let now_ns = shared.turn_ns;
            shared.tally(now_ns).failed(Fault::Malformed, None);
        }
        self.fail_streams(shared, Fault::Malformed);
    }

    /// Books all requests under way as failed.
    pub(super) fn fail_streams(&mut self, shared: &mut Shared, fault: Fault) {
        let Some(streams) = &mut self.streams else { return };
        let is_explained = streams.gone.is_some_and(|code| code != ErrorCode::NO_ERROR);
        let fault = match fault {
            Fault::Short | Fault::Reset if is_explained => Fault::GoAway,
            fault => fault,
        };
        streams.senders.clear();
        for (_, asked) in streams.connection.take_all() {
            failed(shared, &asked, fault);
        }
    }

    /// Books what is out when the run ends.
    pub(super) fn cut_off_streams(&mut self, shared: &mut Shared) {
        let Some(streams) = &mut self.streams else { return };
        for (_, asked) in streams.connection.take_all() {
            if !asked.is_answered {
                shared.under_way -= 1;
                shared.cut_off(asked.request.start_ns);
            }
        }
    }
}

const _: () = assert!(ask_room_bytes(HEAD_BYTES_MAX) + SPARE_BYTES < Actions::ROOM_MIN);

/// Ends a connection; what its peer does not read can't leave.
fn close(actions: &mut Actions<'_>) {
    if actions.is_output_waiting() { actions.abort() } else { actions.close() }
}

/// Books a request that has failed.
#[cold]
fn failed(shared: &mut Shared, asked: &Asked, fault: Fault) {
    if asked.is_answered {
        return;
    }
    let now_ns = shared.turn_ns;
    shared.under_way -= 1;
    shared.last_outcome_ns = now_ns;
    shared.waited(asked.request.start_ns, now_ns);
    let tally = shared.tally(asked.request.start_ns);
    tally.totals.bytes_in += asked.wire_bytes;
    tally.failed(fault, Some(asked.request.target));
}

/// The start of an answer, as one of HTTP/1.1 has it.
#[cold]
fn kept_of(response: &Response<'_>) -> Kept {
    let mut head = format!("HTTP/2 {}\r\n", response.facts.status.code()).into_bytes();
    for field in response.fields {
        for part in [field.name.as_bytes(), b": ", field.value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    Kept::of(&head)
}
