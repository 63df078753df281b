//! A stream that has an exchange ([`Part::Later`]): what its client gives to it (the head of its request, the body behind it),
//! what it gets (the answer of a backend, one of the proxy, or RST_STREAM), and what follows that.
//!
//! It is to a stream what `h1/later.rs` is to a connection of HTTP/1.1: the steps of the request are those of
//! `exchange/request.rs`, and so is the side of the backend.
//!
//! | what of its connection HTTP/1.1 would | a stream |
//! |---|---|
//! | pause, as the backend takes no more of the body | gets no WINDOW_UPDATE until it does: its window bounds what is kept |
//! | have take no more of the answer | waits for its window: its backend is paused when 32 KiB wait |
//! | cut, as an answer has begun | is reset, the others continue |
//! | become a tunnel | does (RFC 8441): DATA is its bytes, END_STREAM the end of a side, RST_STREAM a cut |

use std::time::Duration;

use pollux_engine::{Actions, Moment};
use pollux_http::h2::{ErrorCode, NeverIndexed, Output, Sending};
use pollux_http::{Fields, Framing, Method, Rejection, Request, RequestKind, Status};

use crate::body_clock::BodyClock;
use crate::counters::ServerCounter;
use crate::exchange::asker::Asker;
use crate::exchange::deadlines::Expired;
use crate::exchange::h2_output::{Waits, write_frames};
use crate::exchange::proxy_loop::ProxyLoop;
use crate::exchange::table::Next;
use crate::fault::{Fault, Party};
use crate::front::ask::{self, Origin, Passed, To, Verdict};
use crate::front::h2::{Asked, Call, Http2Session, Part, Task};
use crate::front::peer::Client;
use crate::front::sites::Occasion;
use crate::front::state::LoopState;
use crate::handlers::answer::{Context, Persistence};
use crate::head::{Version, explanation};
use crate::ids::ExchangeId;
use crate::record::Cut;
use crate::refusal::Refusal;

/// What a stream knows of its exchange.
#[derive(Debug)]
pub(super) struct Later {
    at: ExchangeId,
    /// What of the answer waits for windows and room.
    waits: Waits,
    /// Bytes of the request's body of which the window was given back.
    released: u64,
    /// More of it is to come.
    is_reading: bool,
    /// Why the answer is one of the proxy, where it is: the exchange has nothing to do with a backend any more.
    page: Option<Fault>,
    /// Of one that is to become a tunnel, until the backend has agreed: before that it would take them for another request.
    early: Option<Early>,
}

/// What came of a tunnel before there is one: at most the window of its stream.
#[derive(Debug)]
struct Early {
    bytes: Vec<u8>,
    ends: bool,
}

impl Later {
    /// Whether what waits needs a window.
    pub(super) fn waits_for_window(&self) -> bool {
        self.waits == Waits::Body
    }

    /// What of it can be sent now.
    fn sending(&self) -> Sending {
        match self.waits {
            Waits::Nothing => Sending::Nothing,
            Waits::Body => Sending::Data,
            // No window is needed for these.
            Waits::Head(_) | Waits::End(_) => Sending::End,
        }
    }

    /// Room without which nothing is sent now.
    pub(super) fn room_min(&self) -> usize {
        match self.waits {
            Waits::Head(room) | Waits::End(room) => room,
            Waits::Nothing | Waits::Body => 0,
        }
    }

    /// Whether a body is waited for.
    pub(super) fn is_reading(&self) -> bool {
        self.is_reading && self.page.is_none()
    }

    /// By when its client has to have done something, windows aside.
    pub(super) fn deadline(&self, state: &LoopState, stood: Option<Duration>) -> Moment {
        let Some(proxy) = &state.proxy else { return Moment::NEVER };
        match self.page {
            None => proxy.asker_deadline(self.at, stood),
            Some(_) => proxy.drain_end,
        }
    }

    /// Whether its end now costs a connection to a backend, within the answer.
    pub(super) fn costs_backend(&self, proxy: &ProxyLoop) -> bool {
        let exchange = proxy.exchanges.get(self.at);
        exchange.is_committed() && exchange.has_backend()
    }

    /// Whether it is a tunnel that its client has not ended.
    pub(super) fn is_open_tunnel(&self, proxy: &ProxyLoop) -> bool {
        self.is_reading() && proxy.exchanges.get(self.at).is_tunnel()
    }

    /// Books the exchange, which is over, whole or by this fault.
    fn finish(&self, state: &mut LoopState, client: &Client, fault: Option<Fault>) {
        let LoopState { proxy, log, .. } = state;
        let proxy = proxy.as_mut().expect("a proxy has backends");
        proxy.finish(self.at, fault, client.address(), log.as_mut());
    }

    /// The same where the stream came to its end before.
    pub(super) fn finish_cut(&self, state: &mut LoopState, client: &Client, cut: Cut) {
        let exchange = state.proxy().exchange(self.at);
        // What reset the stream from here has said so.
        let fault = exchange.fault.or(match cut {
            Cut::BadRequest => Some(Fault::BadRequest(Status::BAD_REQUEST)),
            Cut::Ended => Some(Fault::Ended),
            // A tunnel has come to its end, by either side.
            _ if exchange.is_tunnel() => None,
            Cut::ClientTimeout => Some(Fault::ClientTimeout),
            // Who may not ask has none.
            Cut::ClientGone | Cut::FileFailed | Cut::NotAllowed => Some(Fault::ClientGone),
        });
        self.finish(state, client, fault);
    }
}

/// What the client gives.
impl Http2Session {
    /// A request has come, which ends with its head or by an empty frame behind it, or continues.
    pub(super) fn on_request(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        (request, never_indexed): (&Request<'_>, NeverIndexed),
        head: &[u8],
        (ends, ends_behind): (bool, bool),
    ) {
        if ends_behind && matches!(request.framing, Framing::Chunked | Framing::Length(0)) {
            // It is passed on without a body: some backends take no GET in chunks.
            let request = Request { framing: Framing::None, expects_continue: false, ..*request };
            if let Some(task) = self.connection.data_mut(stream) {
                // An answer of pollux's own leaves before the end is read.
                task.is_judged_on = true;
            }
            return self.ask(call, stream, (&request, never_indexed), head, true);
        }
        self.ask(call, stream, (request, never_indexed), head, ends);
    }

    /// A request has come: a backend is to answer it, unless that is done here. Its body follows unless it `ends`.
    #[inline]
    pub(super) fn ask(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        (request, never_indexed): (&Request<'_>, NeverIndexed),
        head: &[u8],
        ends: bool,
    ) {
        let origin = self.origin(call, stream);
        if ends
            && never_indexed == NeverIndexed::default()
            && let Some((at, _)) =
                ask::begin_again(call.state, call.actions, call.client, origin, head)
        {
            return self.begin_later(call, stream, at, true);
        }
        call.state.counters.count_request(request.method);
        call.state.identify(call.client, call.actions, request);
        self.pass(call, stream, (request, never_indexed), head, (ends, Occasion::New));
    }

    fn origin(&self, call: &Call<'_, '_>, stream: u32) -> Origin {
        let ready = self.ready.expect("a proxy has exchanges");
        let asker = Asker::of_stream(call.actions, ready, stream);
        Origin { asker, front: self.front, shown: self.shown, is_last: false }
    }

    /// Passes a request on, or answers it here once there is room for that: its front end or its route says which. One that
    /// is not new was kept since.
    pub(super) fn pass(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        (request, never_indexed): (&Request<'_>, NeverIndexed),
        head: &[u8],
        (ends, occasion): (bool, Occasion),
    ) {
        match call.state.proxy().frontends.group(self.front) {
            Some(group) => {
                let to = To::of_front(self.front, group);
                self.pass_to(call, stream, (request, never_indexed), head, ends, to);
            }
            None => self.route(call, stream, (request, never_indexed), head, (ends, occasion)),
        }
    }

    /// Passes a request on to these backends, or answers it here where it goes no further.
    pub(super) fn pass_to(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        (request, never_indexed): (&Request<'_>, NeverIndexed),
        head: &[u8],
        ends: bool,
        to: To,
    ) {
        let proxy = call.state.proxy.as_ref().expect("a proxy has backends");
        let front = self.front;
        let version = Version::Http2;
        match ask::judge(proxy, call.actions, call.client, front, request, version, to) {
            Verdict::Passed(facts, max_forwards) => {
                let origin = self.origin(call, stream);
                let passed = Passed { request, head, facts, max_forwards, never_indexed };
                let at = ask::begin(call.state, call.actions, call.client, origin, passed);
                self.begin_later(call, stream, at, ends);
            }
            Verdict::Https => self.refuse(call, stream, Rejection::HTTPS_WITHOUT_TLS, head),
            Verdict::Here(_) if !self.takes_answer(call) => {
                self.ask_later(call, stream, head, Asked::Sound(request.framing));
            }
            Verdict::Here(refusal) => {
                if call.state.log.is_some() {
                    // The line has it.
                    call.client.peer(call.actions);
                }
                let context = Context {
                    persistence: Persistence::Implicit,
                    is_head: request.method == Method::Head,
                    asked: call.state.common_routed(front).asked(request),
                };
                self.answer_by(call, stream, head, |state, upper| {
                    let common = state.common_by(context.asked);
                    ask::answer_here(upper, common, context, refusal)
                });
            }
        }
    }

    /// The stream has an exchange from now on.
    fn begin_later(&mut self, call: &mut Call<'_, '_>, stream: u32, at: ExchangeId, ends: bool) {
        let stood = self.stood_until(call.state.now.at);
        let proxy = call.state.proxy();
        proxy.begin_standing(at, stood);
        let is_tunnel = proxy.exchange(at).wants_tunnel();
        let early = is_tunnel.then(|| Early { bytes: Vec::new(), ends });
        let waits = Waits::Nothing;
        let released = 0;
        let is_reading = !ends;
        let page = None;
        let later = Later { at, waits, released, is_reading, page, early };
        self.begin_sending(call);
        self.readers += usize::from(is_reading);
        let task = self.connection.data_mut(stream).expect("its request has just come");
        task.part = Part::Later(Box::new(later));
        self.hand_over(call, stream, at, &[], ends || is_tunnel);
    }

    /// An exchange may have less time than it had.
    fn note_deadline(&mut self, state: &LoopState, stream: u32) {
        let stood = self.stood_known();
        if let Some(later) = self.later_mut(stream) {
            let deadline = later.deadline(state, stood);
            self.look_at = self.look_at.min(deadline);
        }
    }

    /// Gives the exchange some of the body, all of which was taken within the window, or its end.
    pub(super) fn give(&mut self, call: &mut Call<'_, '_>, stream: u32, data: &[u8], ends: bool) {
        let Some(later) = self.later_mut(stream) else { return };
        if !later.is_reading() {
            return self.drop_data(call, stream, data.len() as u64);
        }
        later.is_reading = !ends;
        let at = later.at;
        if let Some(early) = &mut later.early {
            early.bytes.extend_from_slice(data);
            early.ends = ends;
            let early_bytes = early.bytes.len();
            self.readers -= usize::from(ends);
            return call.state.proxy().note_early(at, early_bytes);
        }
        self.readers -= usize::from(ends);
        self.hand_over(call, stream, at, data, ends);
    }

    fn hand_over(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        at: ExchangeId,
        data: &[u8],
        ends: bool,
    ) {
        let stood = self.stood_until(call.state.now.at);
        let exchange = call.state.proxy().exchange(at);
        // A tunnel has left the settings that its route is of.
        let route = exchange.route.filter(|_| !exchange.is_tunnel());
        let epoch = exchange.epoch();
        let limits = call.state.under(epoch, |state| *state.limits_of(route));
        call.state.proxy().set_stood(at, stood);
        let given = call.state.proxy().request_data(at, call.actions, data, ends, &limits);
        if let Err(rejection) = given {
            let why = explanation(&rejection, &limits);
            call.client.report_refusal(call.state, call.actions, rejection, false);
            return self.fail_later(call, stream, Fault::BadRequest(rejection.status), Some(&why));
        }
        self.note_deadline(call.state, stream);
    }

    /// Fields behind the body, whose end follows.
    pub(super) fn give_trailers(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        trailers: Fields<'_>,
        never_indexed: NeverIndexed,
    ) {
        if self.keep_trailers(stream, trailers, never_indexed) {
            return;
        }
        if let Some(Later { at, page: None, .. }) = self.later_mut(stream) {
            call.state.proxy().request_trailers(*at, trailers, never_indexed);
        }
    }

    fn later_mut(&mut self, stream: u32) -> Option<&mut Later> {
        match self.connection.data_mut(stream) {
            Some(Task { part: Part::Later(later), .. }) => Some(&mut **later),
            _ => None,
        }
    }
}

/// What the client gets.
impl Http2Session {
    /// Something happened to exchanges of this connection.
    pub(in crate::front) fn on_wake(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        client: &mut Client,
    ) {
        let Some(ready) = self.ready else { return };
        let mut woken = std::mem::take(&mut state.streams.woken);
        state.proxy().ready.take(ready, &mut woken);
        let mut call = Call { state, actions, client };
        for stream in woken.drain(..) {
            self.exchange_moved(&mut call, stream);
        }
        call.state.streams.woken = woken;
        self.checks_moved(&mut call);
        self.send_rests(&mut call);
        self.settle(&mut call);
    }

    /// Something happened to the exchange of a stream: it failed, has something to send, or has got rid of some of the
    /// request.
    fn exchange_moved(&mut self, call: &mut Call<'_, '_>, stream: u32) {
        let Some(later) = self.later_mut(stream) else { return };
        let at = later.at;
        let is_page = later.page.is_some();
        let proxy = call.state.proxy();
        let exchange = proxy.exchange(at);
        (exchange.is_asker_woken, exchange.was_queued) = (false, false);
        if let Some(next) = exchange.next().filter(|_| !is_page) {
            return self.end_by(call, stream, next, None);
        }
        if exchange.is_tunnel() && self.tunnel_moved(call, stream) {
            return;
        }
        self.release_body(call, stream);
        self.note_waits(call.state, stream);
        self.note_deadline(call.state, stream);
    }

    /// Something happened to a tunnel: it has begun, takes bytes or has some, or its backend has left it. Says whether it is no
    /// more.
    fn tunnel_moved(&mut self, call: &mut Call<'_, '_>, stream: u32) -> bool {
        let Some(later) = self.later_mut(stream) else { return true };
        let at = later.at;
        if let Some(Early { bytes, ends }) = later.early.take() {
            call.state.proxy().note_early(at, 0);
            self.hand_over(call, stream, at, &bytes, ends);
        }
        let exchange = call.state.proxy().exchange(at);
        let is_cut = !exchange.response.is_whole();
        // Of one that was not cut all leaves that the backend has said.
        let is_over = !exchange.has_backend() && (is_cut || exchange.response.is_done());
        if is_over {
            self.end_tunnel(call, stream, is_cut);
        }
        is_over
    }

    /// The backend has left a tunnel, in its middle where it `is_cut`; what the client has not ended is cut too.
    fn end_tunnel(&mut self, call: &mut Call<'_, '_>, stream: u32, is_cut: bool) {
        if is_cut || !self.connection.has_peer_ended(stream) {
            return self.reset(call, stream, ErrorCode::CANCEL, Cut::ClientGone);
        }
        let Some(task) = self.connection.data_mut(stream) else { return };
        let task = std::mem::take(task);
        self.left(&task);
        if let Part::Later(later) = &task.part {
            later.finish(call.state, call.client, None);
        }
        self.end_stream(call, stream);
    }

    /// Lets the client send as much of the body as has gone to the backend.
    fn release_body(&mut self, call: &mut Call<'_, '_>, stream: u32) {
        let stood = self.stood_until(call.state.now.at);
        let Some(later) = self.later_mut(stream).filter(|later| later.is_reading()) else { return };
        let proxy = call.state.proxy();
        proxy.set_stood(later.at, stood);
        let exchange = proxy.exchange(later.at);
        let left = exchange.request.body_bytes_left();
        let gone = exchange.request.body_bytes().saturating_sub(left);
        let more = gone.saturating_sub(later.released);
        later.released += more;
        exchange.is_asker_paused = left > 0;
        proxy.set_asker_deadline(later.at, call.actions);
        call.send(|out| self.connection.release(out, stream, more as usize));
    }

    /// Sees what of the answer waits.
    fn note_waits(&mut self, state: &mut LoopState, stream: u32) {
        let Some(task) = self.connection.data_mut(stream) else { return };
        let Part::Later(later) = &mut task.part else { return };
        let response = &mut state.proxy().exchange(later.at).response;
        response.flush();
        let waits = response.waits();
        if waits == Waits::Body && later.waits != Waits::Body {
            // Before that it did not wait for its window.
            (task.pace, task.body_bytes) = (BodyClock::started(state.now.at), 0);
            self.look_at = self.look_at.min(state.now.at + state.limits.write_timeout);
        }
        later.waits = waits;
        let sending = later.sending();
        self.connection.set_sending(stream, sending);
    }

    /// Sends what windows and room take of the answer, up to one frame of its body.
    pub(super) fn send_later(&mut self, call: &mut Call<'_, '_>, stream: u32, later: Box<Later>) {
        let at = later.at;
        let connection = &mut self.connection;
        let proxy = call.state.proxy();
        let exchange = proxy.exchange(at);
        // A frame without bytes for those who wait for the body of a 200.
        let is_bodiless = exchange.kind == RequestKind::Head || exchange.status != Some(Status::OK);
        let hides_empty = is_bodiless || exchange.ends_with_head;
        let mut sent_bytes = 0;
        let is_over = proxy.answer_leaves_by(at, call.actions, |response, actions| {
            let send =
                |out: &mut Output<'_>| response.send_frames(connection, stream, out, hides_empty);
            sent_bytes = write_frames(actions, send);
            sent_bytes
        });
        let exchange = proxy.exchange(at);
        if is_over && exchange.is_tunnel() {
            let Some(task) = self.connection.data_mut(stream) else { return };
            task.part = Part::Later(later);
            return self.end_tunnel(call, stream, false);
        }
        if is_over || (later.page.is_some() && exchange.response.is_done()) {
            self.senders -= 1;
            self.readers -= usize::from(later.is_reading());
            if exchange.status == Some(Status::CONTENT_TOO_LARGE) {
                let kept_bytes = exchange.request.body_bytes().saturating_sub(later.released);
                self.drop_refused(call, stream, kept_bytes);
            }
            later.finish(call.state, call.client, later.page);
            return self.end_stream(call, stream);
        }
        let Some(task) = self.connection.data_mut(stream) else { return };
        task.pace.on_bytes(call.state.now.at);
        task.body_bytes += sent_bytes;
        task.part = Part::Later(later);
        self.note_waits(call.state, stream);
    }

    /// A request was refused for its length, here or by its backend; so much of it was not acknowledged. Its client may have to
    /// send all before it reads that.
    #[cold]
    fn drop_refused(&mut self, call: &mut Call<'_, '_>, stream: u32, kept_bytes: u64) {
        let Some(task) = self.connection.data_mut(stream) else { return };
        task.is_judged_on = true;
        self.drop_data(call, stream, kept_bytes);
    }

    /// The exchange fails by what this side did, or did not do in time; the client gets the reason where it is to blame.
    #[cold]
    fn fail_later(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        fault: Fault,
        because: Option<&str>,
    ) {
        let Some(at) = self.later_mut(stream).map(|later| later.at) else { return };
        let next = call.state.proxy().fault(at, fault);
        self.end_by(call, stream, next, because);
    }

    #[cold]
    fn end_by(&mut self, call: &mut Call<'_, '_>, stream: u32, next: Next, because: Option<&str>) {
        match next {
            Next::Retry => {}
            Next::Cut => self.cut_later(call, stream),
            Next::Page(fault) => self.page(call, stream, fault, because),
        }
    }

    /// Some of an answer has left, of which there is no more: its part must not pass for the whole.
    fn cut_later(&mut self, call: &mut Call<'_, '_>, stream: u32) {
        let Some(at) = self.later_mut(stream).map(|later| later.at) else { return };
        let exchange = call.state.proxy().exchange(at);
        let own = match exchange.fault {
            Some(Fault::StreamsFull) => ErrorCode::ENHANCE_YOUR_CALM,
            Some(fault) if fault.party() == Party::Client => ErrorCode::CANCEL,
            _ => ErrorCode::INTERNAL_ERROR,
        };
        let code = exchange.reset_code.unwrap_or(own);
        self.reset(call, stream, code, Cut::ClientGone);
    }

    /// An answer of the proxy in place of one of the backend: it leaves as that would have.
    fn page(&mut self, call: &mut Call<'_, '_>, stream: u32, fault: Fault, because: Option<&str>) {
        let Some(later) = self.later_mut(stream) else { return };
        let at = later.at;
        let was_reading = later.is_reading();
        (later.page, later.early) = (Some(fault), None);
        self.readers -= usize::from(was_reading);
        let mut room = std::mem::take(&mut call.state.streams.room);
        room.resize(Actions::ROOM_MIN, 0);
        let epoch = call.state.proxy().exchange(at).epoch();
        let (_, len) = call.actions.layered(&mut room, |upper| {
            call.state.under(epoch, |state| {
                ask::answer_fault(state, upper, at, fault, because, Persistence::Implicit)
            })
        });
        let (head, body) = room[..len].split_at(self.connection.head_len(&room[..len]));
        let proxy = call.state.proxy();
        proxy.part(at);
        proxy.note_early(at, 0);
        proxy.exchange(at).response.begin_page(head, body);
        call.state.streams.room = room;
        self.note_waits(call.state, stream);
    }

    /// The deadline of a stream is over.
    pub(super) fn later_too_late(&mut self, call: &mut Call<'_, '_>, stream: u32) {
        let stood = self.stood_known();
        let Some(later) = self.later_mut(stream) else { return };
        let at = later.at;
        let is_page = later.page.is_some();
        let proxy = call.state.proxy();
        let due = if is_page {
            (proxy.drain_end <= proxy.now.at).then_some(Expired::Drain)
        } else {
            proxy.expired(at, stood)
        };
        match due {
            // Its window was closed for too long.
            None => {
                call.count(ServerCounter::Http2WindowTimeouts);
                self.reset(call, stream, ErrorCode::CANCEL, Cut::ClientTimeout);
            }
            Some(Expired::Drain) => {
                proxy.drained(at);
                self.cut_later(call, stream);
            }
            Some(Expired::Request) => self.fail_later(call, stream, Fault::RequestTimeout, None),
            Some(Expired::Queue) => self.fail_later(call, stream, Fault::QueueTimeout, None),
            Some(Expired::Body) => {
                let refusal = Refusal::LateBody;
                refusal.count(&call.state.counters);
                self.fail_later(call, stream, Fault::ClientTimeout, Some(refusal.reason()));
            }
        }
    }
}
