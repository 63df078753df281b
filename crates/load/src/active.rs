//! An active connection: requests out, answers in, each with its times.
//!
//! ```text
//!   Connecting ──► Open ──► sends, up to `pipeline` under way ──► answer: next, think, or close
//!        │           ▲                                                        │
//!        └─ failed ──┼──────────────── opened again by the worker ◄───────────┘
//! ```
//!
//! The turn's clock says when an answer came. When a request leaves is read anew once for each
//! call, because the turn may be old by then; so a request costs one read at most. A deadline
//! that is earlier than needed stays: it is looked up what is due when it fires, which is once in
//! thousands of requests.
//!
//! What speaks HTTP/2 has its requests on streams (`streams`), which is known when the connection is open.

mod streams;

use std::collections::VecDeque;
use std::time::Duration;

use pollux_engine::{Actions, CloseCause, Moment};
use pollux_http::{Rejection, RequestKind, Status};
use pollux_tls::HTTP_2;

use crate::Protocol;
use crate::answer::{Answer, Reading};
use crate::cookies::Cookies;
use crate::shared::{Came, Reopen, Shared, Stage};
use crate::tally::{Cause, Fault, Verdict, shows_tls};
use streams::Streams;

/// How long a connection that failed waits before it is tried again; doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(1);
/// And at most.
const RETRY_MAX: Duration = Duration::from_millis(128);

/// What servers that speak TLS answer a plain request with, if they answer it.
const BAD_REQUEST: u16 = 400;

/// A request that was sent, or is being sent.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct UnderWay {
    /// From when its latency counts.
    pub(crate) start_ns: u64,
    pub(crate) sent_ns: u64,
    pub(crate) target: u32,
    /// What its answer is read as.
    kind: RequestKind,
}

/// A request that was sent, and that its server has not looked at: it may be sent again, whatever it asks for (RFC 9113 8.7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Again {
    pub(crate) request: UnderWay,
    /// How often it was refused.
    pub(crate) refused: u8,
    /// The active connection that has refused it.
    pub(crate) refused_by: u32,
    /// Not before, on any other connection.
    pub(crate) at_ns: u64,
    /// And not before on that one.
    pub(crate) anywhere_ns: u64,
}

impl Again {
    /// Whether an active connection may take it now.
    #[inline]
    pub(crate) fn may_go_to(&self, slot: u32, now_ns: u64) -> bool {
        self.at_ns <= now_ns && (slot != self.refused_by || self.anywhere_ns <= now_ns)
    }

    /// When more connections may take it than at this time, if ever.
    pub(crate) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        [self.at_ns, self.anywhere_ns].into_iter().find(|at_ns| *at_ns > now_ns)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Connecting,
    Open,
    /// Waits until it may send again.
    Thinking,
}

/// The state of an active connection; it survives its sockets.
#[derive(Debug)]
pub(crate) struct Active {
    slot: u32,
    state: State,
    under_way: VecDeque<UnderWay>,
    reading: Reading,
    /// When the first byte came of the answer that is under way.
    first_byte_ns: Option<u64>,
    /// How much of the youngest request was sent, while all of it did not fit, and which one that is: its answer may have
    /// come already.
    sent_bytes: Option<usize>,
    sending: u32,
    /// What of it did not leave when the connection ended.
    lost_bytes: u64,
    /// Requests that this socket may still send.
    left: u32,
    opened_ns: u64,
    /// Whether this socket had an answer.
    has_answer: bool,
    /// Whether its life is over and counted.
    has_ended: bool,
    /// Failures since the last answer.
    failures: u32,
    /// The client asks nothing before, on whatever socket.
    thinks_until_ns: u64,
    /// Whether the first request of its next socket is taken from the number of the run already.
    is_reserved: bool,
    /// None where they are not kept.
    cookies: Option<Box<Cookies>>,
    /// What both ends have agreed on in TLS is HTTP/2.
    has_agreed_http2: bool,
    /// Of a socket that speaks HTTP/2.
    streams: Option<Box<Streams>>,
    /// Another socket has taken its place, or is to; this one ends with its last answer.
    is_replaced: bool,
    has_successor: bool,
    /// Streams that were under way then, and are still.
    leaving: u32,
}

impl Active {
    /// One that has no socket yet.
    pub(crate) fn new(slot: u32, pipeline: u32, keeps_cookies: bool) -> Box<Self> {
        Box::new(Self {
            slot,
            state: State::Connecting,
            under_way: VecDeque::with_capacity(pipeline as usize),
            reading: Reading::default(),
            first_byte_ns: None,
            sent_bytes: None,
            sending: 0,
            lost_bytes: 0,
            left: 0,
            opened_ns: 0,
            has_answer: false,
            has_ended: false,
            failures: 0,
            thinks_until_ns: 0,
            is_reserved: false,
            cookies: keeps_cookies.then(Box::default),
            has_agreed_http2: false,
            streams: None,
            is_replaced: false,
            has_successor: false,
            leaving: 0,
        })
    }

    /// Takes the first request of the next socket; false when there is none, and nothing to open a socket for.
    pub(crate) fn reserve(&mut self, shared: &mut Shared, now_ns: u64) -> bool {
        if !self.is_reserved {
            let Some(is_reserved) = shared.reserve(now_ns) else { return false };
            self.is_reserved = is_reserved;
        }
        true
    }

    /// Books that it did not come to a connection.
    #[cold]
    pub(crate) fn failed_to_open(&mut self, shared: &mut Shared, cause: &Cause<'_>) {
        shared.connect_failed(cause, &mut self.is_reserved);
    }

    /// A socket is about to be opened for it.
    pub(crate) fn begins(&mut self, now_ns: u64, requests: u32) {
        self.state = State::Connecting;
        self.reading = Reading::default();
        self.first_byte_ns = None;
        (self.sent_bytes, self.lost_bytes) = (None, 0);
        self.left = requests;
        self.opened_ns = now_ns;
        self.has_answer = false;
        self.has_ended = false;
        self.has_agreed_http2 = false;
        self.streams = None;
    }

    /// What both ends speak in TLS.
    pub(crate) fn agreed(&mut self, protocol: &[u8]) {
        self.has_agreed_http2 = protocol == HTTP_2;
    }

    pub(crate) fn connected(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        let is_http2 = match (shared.terms.http, shared.terms.is_encrypted) {
            (Protocol::Http1, _) => false,
            (Protocol::Http2, false) => true,
            _ => self.has_agreed_http2,
        };
        if shared.terms.http == Protocol::Http2 && !is_http2 {
            self.failed_to_open(shared, &Cause::NoHttp2);
            return actions.abort();
        }
        self.state = State::Open;
        shared.was_connected = true;
        shared.connecting -= 1;
        shared.open += 1;
        let took_ns = shared.turn_ns.saturating_sub(self.opened_ns);
        let tally = shared.tally(self.opened_ns);
        tally.totals.connects += 1;
        tally.connect.record(took_ns);
        // An answer may come, or begin, before its request has left.
        actions.read_on();
        let spoke = &mut shared.interval.spoke;
        *if is_http2 { &mut spoke.http2 } else { &mut spoke.http1 } += 1;
        if is_http2 {
            return self.begin_streams(shared, actions);
        }
        self.send(shared, actions);
    }

    #[inline]
    pub(crate) fn on_bytes(
        &mut self,
        shared: &mut Shared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        if self.streams.is_some() {
            return self.on_frames(shared, actions, input);
        }
        let mut used = 0;
        while used < input.len() {
            let Some(request) = self.under_way.front().copied() else {
                // There was no request for this.
                self.note_unasked(shared, &input[used..]);
                return self.give_up(shared, actions, Fault::Malformed, input.len());
            };
            let kind = request.kind;
            let cache = shared.requests.cache(request.target);
            let cookies = &mut self.cookies;
            let wanted = shared.firsts.wanted(shared.terms.expect);
            let seen = |head: &[u8]| {
                if let Some(cookies) = cookies {
                    cookies.note(head);
                }
                wanted.is_suspect(head)
            };
            let (now_used, answer) = match self.reading.read(&input[used..], cache, kind, seen) {
                Ok(read) => read,
                Err(rejection) => {
                    self.look_for_tls(shared, &input[used..]);
                    self.note_unreadable(shared, &request, &input[used..], &rejection);
                    return self.give_up(shared, actions, Fault::Malformed, input.len());
                }
            };
            let came = &input[used..];
            used += now_used;
            if self.cookies.as_ref().is_some_and(|cookies| cookies.is_fresh()) {
                self.learn(shared, &request);
            }
            let Some(answer) = answer else {
                let came_ns = shared.came_ns(&request);
                self.first_byte_ns.get_or_insert(came_ns);
                if !self.has_answer && self.look_for_tls(shared, came) {
                    return self.give_up(shared, actions, Fault::Malformed, input.len());
                }
                break;
            };
            if answer.status == BAD_REQUEST && !self.has_answer {
                self.look_for_tls(shared, came);
            }
            self.answered(shared, &answer);
            if !answer.keep_alive {
                self.fail_all(shared, Fault::Short);
                self.count_life(shared);
                self.end(actions);
                return input.len();
            }
        }
        self.follow_up(shared, actions);
        used
    }

    /// The peer will send no more.
    pub(crate) fn on_end(&mut self, shared: &mut Shared) {
        if let Some(answer) = self.reading.end() {
            self.answered(shared, &answer);
        }
        self.fail_all(shared, Fault::Short);
    }

    pub(crate) fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if self.streams.is_some() && self.state == State::Open {
            return self.on_stream_deadline(shared, actions);
        }
        match (self.state, self.under_way.front()) {
            (State::Connecting, _) => {
                self.failed_to_open(shared, &Cause::Timeout);
                actions.abort();
            }
            (State::Thinking, _) => {
                self.state = State::Open;
                self.send(shared, actions);
            }
            (State::Open, None) => {}
            (State::Open, Some(oldest)) => {
                let due = Moment::from_nanos(oldest.sent_ns) + shared.terms.request_timeout;
                if due > actions.now().at {
                    return actions.set_deadline(due);
                }
                self.fail_all(shared, Fault::Timeout);
                actions.abort();
            }
        }
    }

    /// Sends what may be sent now.
    #[inline]
    pub(crate) fn send(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if actions.is_output_waiting() {
            if self.streams.is_some() && !self.is_replaced {
                shared.idle_queue.is_busy(self.slot);
            }
            return actions.notify_when_sent();
        }
        if self.streams.is_some() {
            return self.send_streams(shared, actions);
        }
        if self.state == State::Connecting || !self.send_rest(shared, actions) {
            return;
        }
        if self.state != State::Open {
            return;
        }
        if self.can_send(shared) {
            let now_ns = shared.read_clock();
            while self.can_send(shared) && self.send_one(shared, actions, now_ns) {}
        }
        if self.can_send(shared) && self.sent_bytes.is_none() && shared.stage != Stage::Ending {
            shared.idle_queue.is_idle(self.slot, actions.id());
        } else {
            shared.idle_queue.is_busy(self.slot);
        }
        if !self.under_way.is_empty() {
            // An earlier one stays: see `on_deadline`.
            let due = actions.now().at + shared.terms.request_timeout;
            actions.set_deadline(actions.deadline().min(due));
        }
    }

    /// So much of what was sent will not leave.
    pub(crate) fn output_lost(&mut self, bytes: u64) {
        self.lost_bytes = bytes;
    }

    pub(crate) fn closed(mut self: Box<Self>, shared: &mut Shared, cause: CloseCause) {
        if self.lost_bytes > 0 {
            let turn_ns = shared.turn_ns;
            let totals = &mut shared.tally(turn_ns).totals;
            totals.bytes_out = totals.bytes_out.saturating_sub(self.lost_bytes);
        }
        if self.is_replaced {
            let leaving = std::mem::take(&mut self.leaving);
            let slot = &mut shared.slots[self.slot as usize];
            slot.leaving -= leaving;
            shared.freed.extend(slot.socket.filter(|_| leaving > 0));
        } else {
            shared.idle_queue.is_busy(self.slot);
        }
        if self.state == State::Connecting {
            shared.connecting -= 1;
            // The others were counted where they showed.
            if cause == CloseCause::SocketError {
                self.failed_to_open(shared, &Cause::Broken);
            }
        } else {
            shared.open -= 1;
            self.count_end(shared, cause);
        }
        shared.unproven -= u32::from(!self.has_answer);
        // At the end only what was sent already, and to no avail, is worth a connection.
        let is_over = shared.stage == Stage::Ending && shared.again.is_empty();
        if is_over || self.is_replaced {
            return;
        }
        let at_ns = self.retry_at(shared.turn_ns);
        shared.reopen.push(Reopen { active: self, at_ns });
    }

    /// When the next socket may be opened: after one that had an answer when its client has thought, which
    /// without a time to think is at once; later and later after those that had none.
    pub(crate) fn retry_at(&mut self, now_ns: u64) -> u64 {
        if self.has_answer {
            self.failures = 0;
            return self.thinks_until_ns;
        }
        let factor = 1_u32 << self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        now_ns + (RETRY_FIRST * factor).min(RETRY_MAX).as_nanos() as u64
    }

    /// Whether its last socket had no answer.
    pub(crate) fn is_retrying(&self) -> bool {
        self.failures > 0
    }

    /// Books the oldest request as answered.
    #[inline]
    fn answered(&mut self, shared: &mut Shared, answer: &Answer) {
        let Some(request) = self.under_way.pop_front() else { return };
        shared.under_way -= 1;
        shared.unproven -= u32::from(!std::mem::replace(&mut self.has_answer, true));
        let now_ns = shared.came_ns(&request);
        let first_ns = self.first_byte_ns.take().unwrap_or(now_ns);
        let verdict = Verdict::of(answer, &shared.terms.expect);
        if !shared.terms.think_time.is_zero() {
            self.thinks_until_ns = now_ns + shared.terms.think_time.as_nanos() as u64;
        }
        if let Some(kept) = self.reading.take_kept()
            && request.start_ns >= shared.measure_from_ns
        {
            let expect = shared.terms.expect;
            shared.firsts.note(now_ns, verdict, &kept, (answer.body_bytes, &expect));
        }
        shared.answered(&request, &Came { first_ns, now_ns, verdict }, answer);
    }

    /// What follows answers: more requests, a pause, or the end.
    #[inline]
    fn follow_up(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if self.under_way.is_empty() {
            if self.left == 0 {
                self.count_life(shared);
                return self.end(actions);
            }
            if !shared.terms.think_time.is_zero() {
                self.state = State::Thinking;
                return actions.set_deadline(actions.now().at + shared.terms.think_time);
            }
        }
        self.send(shared, actions);
    }

    /// Ends the connection behind its last answer. One that came before its request was sent says that the rest is not
    /// wanted (RFC 9112 9.5).
    fn end(&self, actions: &mut Actions<'_>) {
        if self.sent_bytes.is_none() && !actions.is_output_waiting() {
            actions.close();
        } else {
            actions.abort();
        }
    }

    #[inline]
    fn can_send(&self, shared: &Shared) -> bool {
        self.left > 0 && self.under_way.len() < shared.terms.pipeline as usize
    }

    /// Sends the next request, if there is one and it fits; returns whether another may follow.
    #[inline]
    fn send_one(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, now_ns: u64) -> bool {
        if self.sent_bytes.is_some() {
            return false;
        }
        let Some(start) = shared.start(now_ns, &mut self.is_reserved) else { return false };
        let target = shared.requests.choose();
        if let Some(cookies) = &mut self.cookies {
            cookies.compose(shared.requests.bytes(target));
        }
        let len = self.bytes(shared, target).len();
        shared.note_lag(&start, now_ns);
        let totals = &mut shared.tally(start.at_ns).totals;
        totals.sent += 1;
        shared.under_way += 1;
        self.left -= 1;
        let kind = shared.requests.kind(target);
        self.under_way.push_back(UnderWay { start_ns: start.at_ns, sent_ns: now_ns, target, kind });
        shared.sends(now_ns);
        if actions.room() >= len {
            shared.tally(start.at_ns).totals.bytes_out += len as u64;
            actions.send(self.bytes(shared, target));
        } else {
            (self.sent_bytes, self.sending) = (Some(0), target);
            self.send_rest(shared, actions);
        }
        true
    }

    /// The bytes of the youngest request, with its cookies.
    #[inline]
    fn bytes<'a>(&'a self, shared: &'a Shared, target: u32) -> &'a [u8] {
        let composed = self.cookies.as_ref().and_then(|cookies| cookies.composed());
        composed.unwrap_or_else(|| shared.requests.bytes(target))
    }

    /// Keeps the cookies that an answer set.
    #[cold]
    fn learn(&mut self, shared: &mut Shared, request: &UnderWay) {
        let Some(cookies) = &mut self.cookies else { return };
        let learnt = cookies.learn(shared.requests.bytes(request.target));
        let totals = &mut shared.tally(request.start_ns).totals;
        totals.cookies_set += learnt.set;
        totals.cookies_refused += learnt.refused;
    }

    /// Sends more of a request that did not fit; returns whether all of it was sent.
    #[inline]
    fn send_rest(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) -> bool {
        let Some(sent) = self.sent_bytes else { return true };
        let rest = &self.bytes(shared, self.sending)[sent..];
        let now = rest.len().min(actions.room());
        actions.send(&rest[..now]);
        let is_all = now == rest.len();
        let turn_ns = shared.turn_ns;
        shared.tally(turn_ns).totals.bytes_out += now as u64;
        self.sent_bytes = (!is_all).then_some(sent + now);
        if !is_all {
            actions.notify_when_sent();
        }
        is_all
    }

    /// Whether the first bytes on a plain connection say that the server speaks TLS; it is then the first failure.
    #[cold]
    fn look_for_tls(&self, shared: &mut Shared, came: &[u8]) -> bool {
        let says_so = !self.has_answer && shows_tls(came);
        says_so && shared.speaks_tls()
    }

    /// Keeps what can't be read as the answer to a request that counts, if it is the first.
    #[cold]
    fn note_unreadable(
        &self,
        shared: &mut Shared,
        request: &UnderWay,
        input: &[u8],
        rejection: &Rejection,
    ) {
        if request.start_ns >= shared.measure_from_ns {
            let is_start = !self.reading.is_in_body();
            shared.firsts.note_unreadable(shared.turn_ns, (input, is_start), rejection);
        }
    }

    /// The same of what came without a request.
    #[cold]
    fn note_unasked(&self, shared: &mut Shared, input: &[u8]) {
        if shared.stage == Stage::Running && shared.turn_ns >= shared.measure_from_ns {
            const UNASKED: Rejection =
                Rejection::new(Status::BAD_GATEWAY, "there was no request for it", "RFC 9112 9.2");
            shared.firsts.note_unreadable(shared.turn_ns, (input, true), &UNASKED);
        }
    }

    /// Books that the peer can't be understood, and gives the connection up.
    #[cold]
    fn give_up(
        &mut self,
        shared: &mut Shared,
        actions: &mut Actions<'_>,
        fault: Fault,
        input_len: usize,
    ) -> usize {
        self.broken(shared, fault);
        actions.abort();
        input_len
    }

    /// Books that what came can't be understood.
    #[cold]
    pub(crate) fn broken(&mut self, shared: &mut Shared, fault: Fault) {
        let has_streams = self.streams.as_ref().is_some_and(|streams| !streams.is_empty());
        if self.under_way.is_empty() && !has_streams && shared.stage == Stage::Running {
            let now_ns = shared.turn_ns;
            shared.tally(now_ns).failed(fault, None);
        }
        self.fail_all(shared, fault);
    }

    /// Whether its socket is connected, in TLS where the target is encrypted.
    pub(crate) fn is_connected(&self) -> bool {
        self.state != State::Connecting
    }

    /// Books all requests under way as failed.
    fn fail_all(&mut self, shared: &mut Shared, fault: Fault) {
        if self.streams.is_some() {
            return self.fail_streams(shared, fault);
        }
        let mut part_bytes = self.reading.bytes_so_far();
        if !self.under_way.is_empty() {
            shared.last_outcome_ns = shared.turn_ns;
        }
        while let Some(request) = self.under_way.pop_front() {
            shared.under_way -= 1;
            shared.waited(request.start_ns, shared.turn_ns);
            let tally = shared.tally(request.start_ns);
            tally.totals.bytes_in += std::mem::take(&mut part_bytes);
            tally.failed(fault, Some(request.target));
        }
    }

    /// Books the end of a socket that was open.
    fn count_end(&mut self, shared: &mut Shared, cause: CloseCause) {
        match cause {
            CloseCause::PeerClosed => self.fail_all(shared, Fault::Short),
            CloseCause::SlowReader => self.fail_all(shared, Fault::Timeout),
            // Out at the end of the run: neither the server's fault nor an answer.
            CloseCause::LoopEnded => {
                self.cut_off_streams(shared);
                shared.under_way -= self.under_way.len() as u64;
                self.under_way.drain(..).for_each(|request| shared.cut_off(request.start_ns));
            }
            _ => self.fail_all(shared, Fault::Reset),
        }
        if shared.stage == Stage::Running {
            self.count_life(shared);
        }
    }

    /// Counts the time from connect to close, once. A close that the connection itself decides on is counted
    /// there: the run may be over before the socket is.
    fn count_life(&mut self, shared: &mut Shared) {
        if self.has_answer && !std::mem::replace(&mut self.has_ended, true) {
            let lasted_ns = shared.turn_ns.saturating_sub(self.opened_ns);
            shared.tally(self.opened_ns).lifetime.record(lasted_ns);
        }
    }
}
