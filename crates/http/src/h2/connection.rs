//! One connection of either end: bytes in, events out; commands in, bytes out.
//!
//! ```text
//!  bytes ─► frame ─► checks ─► state of the stream ─► windows, HPACK, rules of fields ─► event
//!                      │              │                         │
//!                      └──────────────┴── Fault ────────────────┘── malformed: RST_STREAM, event
//!                         (GOAWAY, the end)
//! ```
//!
//! What a frame does in each state (RFC 9113 5.1), where `ES` ends a side, and a fault ends the connection:
//!
//! | stream | HEADERS | DATA | RST_STREAM | WINDOW_UPDATE |
//! |---|---|---|---|---|
//! | idle | begins it | fault | fault | fault |
//! | open | trailers, with ES | body | over | more room |
//! | its peer has ended it | fault | fault | over | more room |
//! | reset from here | decoded, dropped | counted, dropped | ignored | ignored |
//! | over | fault | fault | ignored | ignored |
//!
//! What a peer could use to have streams reset from here (updates by nothing, frames behind an end, priorities of a
//! wrong length) is a fault of the connection, which RFC 9113 5.4.1 allows: so nothing is won by it. Only a malformed
//! message, which one user may send through a proxy beside others, and a window that overflows reset a stream alone, and
//! are charged. A client is milder with what its server sends of streams that it has given up, however long ago.

mod commands;
mod resting;

use std::collections::VecDeque;
use std::ops::Range;

use crate::framing::BODY_LARGE;
use crate::h2::abuse::{self, Abuse};
use crate::h2::error::{ErrorCode, Fault};
use crate::h2::event::{Event, Found, Step};
use crate::h2::fields::{
    LENGTH, NeverIndexed, RequestFacts, RequestReader, ResponseReader, Scratch, TrailersReader,
    Verdict,
};
use crate::h2::frame::{self, FrameHead, HEAD_BYTES, PAYLOAD_BYTES_MAX, PREFACE};
use crate::h2::hpack::decode::Decoder;
use crate::h2::hpack::encode::Encoder;
use crate::h2::output::Output;
use crate::h2::priority::Priority;
use crate::h2::schedule::SendOrder;
use crate::h2::settings::{PeerSettings, Role, Settings};
use crate::h2::streams::{Stream, Streams};
use crate::h2::window::{ReceiveWindow, SendWindow, WINDOW_INITIAL};
use crate::{Framing, Limits, Rejection, RequestKind, Response, ResponseBody, ResponseFacts};

/// Room for output that [`Connection::read`] needs for each frame: what it answers to one fits.
pub const CONTROL_ROOM_BYTES: usize = 128;

/// Largest payload of DATA: with its head it fits into one record of TLS.
pub const DATA_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - HEAD_BYTES;

/// So many streams that were reset from here are remembered at least, because their peer may not know yet; twice as many as
/// may be open, where that is more.
const RESETS_KEPT_MIN: usize = 64;

/// Heads of requests up to this length are always taken.
const HEAD_BYTES_SMALL: usize = 4 * 1024;

/// What the larger heads of all open streams may take together: HPACK makes one of the largest of 25 bytes.
const LARGE_HEADS_BYTES_MAX: usize = 512 * 1024;

/// How long a client may leave our SETTINGS without an answer, and still begin streams.
const ACKNOWLEDGE_MS_MAX: u64 = 10_000;

/// So many streams beyond the limit cost nothing before the client knows it: most begin with 100, whatever they open later.
const REFUSED_MIN: u32 = 100;

/// So many streams that are not begun may have a priority: those of a page that a browser is about to ask for. A client that
/// says more has the first ones forgotten.
const PRIORITIES_KEPT_MAX: usize = 16;

/// Blocks and heads up to these sizes are kept, to be known when they come again.
const KNOWN_BLOCK_BYTES_MAX: usize = 128;
const KNOWN_HEAD_BYTES_MAX: usize = 512;

/// Interim answers to a request, as many as a proxy takes of a backend: a sign of life each ten seconds makes 360 in an hour.
const INTERIMS_MAX: u16 = 1024;

const STREAM_MAX: u32 = (1 << 31) - 1;

pub use commands::{Ask, AskHead, KnownBlock};
pub use resting::{RestingBytes, RestingConnection};

/// One end of a connection. `T` is what its user keeps with each stream.
#[derive(Debug)]
pub struct Connection<T> {
    role: Role,
    settings: Settings,
    phase: Phase,
    peer: PeerSettings,
    /// The peer knows our settings.
    is_acknowledged: bool,
    /// When its first SETTINGS came.
    begun_ms: u64,
    /// PINGs of this end that were not answered.
    pings: u32,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams<T>,
    /// Those that have something to send.
    send_order: SendOrder,
    /// Streams that came to wait for a window, as far as they were not asked for.
    stalls: u32,
    /// Something waits for the window of the connection, which was counted.
    is_stalled: bool,
    /// What the heads of open streams take, of those that are large.
    large_heads_bytes: usize,
    /// The last stream that a client has begun: the peer of a server, or this end.
    last: u32,
    /// Both ends of the last numbers that a client has left out.
    left_out: (u32, u32),
    requests: u32,
    /// Streams beyond the limit.
    refused: u32,
    /// No later stream of the peer is looked at.
    last_accepted: u32,
    /// What the peer said of its last stream.
    peer_last: Option<u32>,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    block: Option<Box<OpenBlock>>,
    resets: VecDeque<u32>,
    /// The last stream that was reset from here and is not remembered any more.
    reset_forgotten: u32,
    /// What a client has said of streams that it has not begun, the latest last.
    priorities: VecDeque<(u32, Priority)>,
    abuse: Abuse,
    known_request: Option<Box<KnownRequest>>,
    known_answer: Option<Box<KnownAnswer>>,
    known_response: Option<Box<KnownResponse>>,
    block_bytes: BlockBytes,
    /// Where the frame stands that has ended the connection, in what was read last.
    fault_at: usize,
}

/// Bytes of all field blocks of a connection, without the heads of their frames.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BlockBytes {
    /// That came.
    pub received: u64,
    /// That a client has sent with its requests.
    pub asked: u64,
    /// That a server has sent with its answers and trailers.
    pub answered: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// A server waits for the preface of its client.
    Preface,
    /// The first frame has to be SETTINGS.
    Settings,
    Frames,
}

/// A field block of which a part has come.
#[derive(Debug)]
struct OpenBlock {
    stream: u32,
    ends: bool,
    bytes: Vec<u8>,
    continuations: usize,
}

/// The request that came last, of a head that changed no table.
#[derive(Debug)]
struct KnownRequest {
    block: Vec<u8>,
    head: Vec<u8>,
    facts: RequestFacts,
    changes: u64,
}

/// The head that was sent last, of a block that changed no table.
#[derive(Debug)]
struct KnownAnswer {
    head: Vec<u8>,
    block: Vec<u8>,
    changes: u64,
}

/// The answer that a client got last, of a block that changed no table: a server under load says the same again and again.
#[derive(Debug)]
struct KnownResponse {
    block: Vec<u8>,
    head: Vec<u8>,
    facts: ResponseFacts,
    /// What it answered.
    kind: RequestKind,
    never_indexed: NeverIndexed,
    changes: u64,
}

impl<T: Default> Connection<T> {
    /// One end of a new connection; [`Connection::start`] says the first words.
    #[must_use]
    pub fn new(role: Role, settings: Settings) -> Self {
        let (receive_window, _) = ReceiveWindow::widened(settings.connection_window);
        Self {
            role,
            settings,
            phase: match role {
                Role::Server => Phase::Preface,
                Role::Client => Phase::Settings,
            },
            peer: PeerSettings::default(),
            is_acknowledged: false,
            begun_ms: 0,
            pings: 0,
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            streams: Streams::default(),
            send_order: SendOrder::default(),
            stalls: 0,
            is_stalled: false,
            large_heads_bytes: 0,
            last: 0,
            left_out: (0, 0),
            requests: 0,
            refused: 0,
            last_accepted: STREAM_MAX,
            peer_last: None,
            send_window: SendWindow::new(WINDOW_INITIAL),
            receive_window,
            block: None,
            resets: VecDeque::new(),
            reset_forgotten: 0,
            priorities: VecDeque::new(),
            abuse: Abuse::new(role),
            known_request: None,
            known_answer: None,
            known_response: None,
            block_bytes: BlockBytes::default(),
            fault_at: 0,
        }
    }

    /// Says the first words: a client its preface, both their settings and the window of the connection.
    pub fn start(&mut self, out: &mut Output<'_>) {
        if self.role == Role::Client {
            out.put(PREFACE);
        }
        self.settings.write(out, self.role);
        let (_, update) = ReceiveWindow::widened(self.settings.connection_window);
        if update > 0 {
            frame::write_window_update(out, 0, update);
        }
    }

    /// Reads frames from the front of `input` until one says something; control frames are answered into `out`.
    /// It is called again with what is left, and with more behind it.
    ///
    /// `now_ms` is any clock that does not go back; the limits of what a peer may cost are counted by it.
    ///
    /// # Errors
    /// The connection is over: [`Connection::fail`] tells the peer, and nothing more is read.
    pub fn read<'i>(
        &mut self,
        input: &'i [u8],
        scratch: &'i mut Scratch,
        out: &mut Output<'_>,
        limits: &Limits,
        now_ms: u64,
    ) -> Result<Step<'i, T>, Fault> {
        let mut used = 0;
        let found = loop {
            let rest = &input[used..];
            if self.phase == Phase::Preface {
                let len = rest.len().min(PREFACE.len());
                if rest[..len] != PREFACE[..len] {
                    return Err(Fault::protocol(
                        "the preface is not that of HTTP/2",
                        "RFC 9113 3.4",
                    ));
                }
                if len < PREFACE.len() {
                    return Ok(Step { used, event: None });
                }
                used += len;
                self.phase = Phase::Settings;
                continue;
            }
            let Some(head) = FrameHead::read(rest) else { return Ok(Step { used, event: None }) };
            if let Err(fault) = self.check_order(&head) {
                return Err(self.failed(used, fault));
            }
            let Some(payload) = rest.get(HEAD_BYTES..HEAD_BYTES + head.len) else {
                return Ok(Step { used, event: None });
            };
            if out.room() < CONTROL_ROOM_BYTES {
                return Ok(Step { used, event: Some(Event::NoRoom) });
            }
            let mut around = Around { scratch: &mut *scratch, out, limits, now_ms };
            let found = match self.frame(&head, payload, &mut around) {
                Ok(found) => found,
                Err(fault) => return Err(self.failed(used, fault)),
            };
            used += HEAD_BYTES + head.len;
            if let Some(found) = found {
                break found;
            }
        };
        Ok(Step { used, event: Some(found.event(scratch)) })
    }

    #[cold]
    fn failed(&mut self, at: usize, fault: Fault) -> Fault {
        self.fault_at = at;
        fault
    }

    /// What the head of a frame alone decides.
    #[inline]
    fn check_order(&mut self, head: &FrameHead) -> Result<(), Fault> {
        head.check()?;
        if let Some(open) = &self.block {
            if head.kind != frame::CONTINUATION || head.stream != open.stream {
                return Err(Fault::protocol("a frame inside a field block", "RFC 9113 6.10"));
            }
        } else if head.kind == frame::CONTINUATION {
            return Err(Fault::protocol("CONTINUATION of nothing", "RFC 9113 6.10"));
        }
        let is_first = self.phase == Phase::Settings;
        if is_first && (head.kind != frame::SETTINGS || head.has(frame::ACK)) {
            return Err(Fault::protocol("the first frame is not SETTINGS", "RFC 9113 3.4"));
        }
        Ok(())
    }

    #[inline]
    fn frame<'i>(
        &mut self,
        head: &FrameHead,
        payload: &'i [u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        match head.kind {
            frame::HEADERS => self.on_headers(head, payload, around),
            frame::DATA => self.on_data(head, payload, around),
            frame::WINDOW_UPDATE => self.on_window_update(head, payload, around),
            frame::CONTINUATION => self.on_continuation(head, payload, around),
            _ => self.on_rare(head, payload, around),
        }
    }

    #[cold]
    fn on_rare<'i>(
        &mut self,
        head: &FrameHead,
        payload: &'i [u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        match head.kind {
            frame::PRIORITY => {
                check_dependency(head.stream, payload)?;
                self.abuse.control(1, around.now_ms)?;
            }
            frame::RST_STREAM => return self.on_reset(head.stream, payload, around.now_ms),
            frame::SETTINGS => return self.on_settings(head, payload, around),
            frame::PUSH_PROMISE => {
                return Err(Fault::protocol("PUSH_PROMISE without leave", "RFC 9113 6.6"));
            }
            frame::PING if head.has(frame::ACK) => {
                match self.pings.checked_sub(1) {
                    Some(pings) => self.pings = pings,
                    None => self.abuse.control(1, around.now_ms)?,
                }
                let data = *payload.first_chunk().expect("its size was checked");
                return Ok(Some(Found::Plain(Event::PingAnswered { data })));
            }
            frame::PING => {
                self.abuse.control(1, around.now_ms)?;
                frame::write(around.out, frame::PING, frame::ACK, 0, payload);
            }
            frame::GOAWAY => {
                self.abuse.control(1, around.now_ms)?;
                let last = frame::number(payload) & STREAM_MAX;
                let code = ErrorCode::of(frame::number(&payload[4..]));
                if self.peer_last.is_some_and(|before| before < last) {
                    return Err(Fault::protocol("a later GOAWAY takes back more", "RFC 9113 6.8"));
                }
                self.peer_last = Some(last);
                return Ok(Some(Found::Plain(Event::GoneAway { last, code })));
            }
            frame::PRIORITY_UPDATE => self.on_priority_update(payload, around.now_ms)?,
            _ => self.abuse.control(1, around.now_ms)?,
        }
        Ok(None)
    }

    fn on_priority_update(&mut self, payload: &[u8], now_ms: u64) -> Result<(), Fault> {
        let stream = frame::number(payload) & STREAM_MAX;
        let is_sound = self.role == Role::Server && stream % 2 == 1;
        if !is_sound {
            return Err(Fault::protocol("PRIORITY_UPDATE of no request", "RFC 9218 7.1"));
        }
        self.abuse.control(1, now_ms)?;
        // What cannot be read says nothing (RFC 9218 7.1).
        let Some(priority) = Priority::parse(&payload[4..], None) else { return Ok(()) };
        if let Some(at) = self.place(stream) {
            self.streams[at].priority = priority;
            self.send_order.change(at, priority);
        } else if self.is_idle(stream) {
            self.priorities.retain(|(of, _)| *of != stream);
            if self.priorities.len() == PRIORITIES_KEPT_MAX {
                self.priorities.pop_front();
            }
            self.priorities.push_back((stream, priority));
        }
        Ok(())
    }

    /// What a client has said of the priority of a stream before it began it, if so: that comes before its field.
    fn take_priority(&mut self, id: u32) -> Option<Priority> {
        let said = self.priorities.iter().find(|(of, _)| *of == id).map(|(_, priority)| *priority);
        // Those that were left out cannot be begun any more.
        self.priorities.retain(|(of, _)| *of > id);
        said
    }

    fn on_settings<'i>(
        &mut self,
        head: &FrameHead,
        payload: &'i [u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        if head.has(frame::ACK) {
            return self.on_acknowledged(around.now_ms).map(|()| None);
        }
        if self.phase == Phase::Frames {
            let price = 1 + u32::try_from(self.streams.len() / 10).unwrap_or(u32::MAX);
            self.abuse.control(price, around.now_ms)?;
        } else {
            self.begun_ms = around.now_ms;
        }
        self.phase = Phase::Frames;
        let before = self.peer;
        let of = match self.role {
            Role::Server => Role::Client,
            Role::Client => Role::Server,
        };
        self.peer.take(payload, of)?;
        self.encoder.resize(self.peer.table_bytes_least);
        self.encoder.resize(self.peer.table_bytes);
        let by = i64::from(self.peer.window) - i64::from(before.window);
        if by != 0 {
            for (at, stream) in self.streams.iter_mut() {
                stream.send_window.change(by)?;
                if stream.send_window.room() > 0 {
                    self.send_order.unblock(at, stream.priority);
                }
            }
        }
        frame::write(around.out, frame::SETTINGS, frame::ACK, 0, &[]);
        Ok(Some(Found::Plain(Event::WindowOpened)))
    }

    fn on_acknowledged(&mut self, now_ms: u64) -> Result<(), Fault> {
        if std::mem::replace(&mut self.is_acknowledged, true) {
            return self.abuse.control(1, now_ms);
        }
        let excess = WINDOW_INITIAL.unsigned_abs().saturating_sub(self.settings.stream_window);
        for (_, stream) in self.streams.iter_mut() {
            stream.receive_window.narrow(excess);
        }
        Ok(())
    }

    fn on_window_update<'i>(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        let by = frame::number(payload) & STREAM_MAX;
        if by == 0 {
            return Err(Fault::protocol("WINDOW_UPDATE by nothing", "RFC 9113 6.9"));
        }
        if by < abuse::SMALL_UPDATE_BYTES {
            self.abuse.control(1, around.now_ms)?;
        }
        if head.stream == 0 {
            self.send_window.widen(by)?;
            self.is_stalled &= self.send_window.room() == 0;
            return Ok(Some(Found::Plain(Event::WindowOpened)));
        }
        match self.place(head.stream) {
            Some(at) if self.streams[at].send_window.widen(by).is_err() => {
                let code = ErrorCode::FLOW_CONTROL_ERROR;
                return self.broken(head.stream, code, &WINDOW, 0..0, around).map(Some);
            }
            Some(at) => {
                let stream = &self.streams[at];
                if stream.send_window.room() > 0 {
                    self.send_order.unblock(at, stream.priority);
                }
            }
            None if self.is_idle(head.stream) => return Err(IDLE),
            None => return Ok(None),
        }
        Ok(Some(Found::Plain(Event::WindowOpened)))
    }

    fn on_reset<'i>(
        &mut self,
        stream: u32,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        let Some(at) = self.place(stream) else {
            self.abuse.control(1, now_ms)?;
            return if self.is_idle(stream) { Err(IDLE) } else { Ok(None) };
        };
        let code = ErrorCode::of(frame::number(payload));
        // A stream that costs too much is still there for who ends them all.
        if self.role == Role::Server && !self.streams[at].is_answered {
            self.abuse.reset(now_ms)?;
        }
        let Stream { data, .. } = self.remove(at);
        Ok(Some(Found::Plain(Event::Reset { stream, code, data })))
    }

    #[inline]
    fn on_data<'i>(
        &mut self,
        head: &FrameHead,
        payload: &'i [u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        let id = head.stream;
        let ends = head.has(frame::END_STREAM);
        let data = head.unpadded(payload)?;
        self.receive_window.arrive(payload.len())?;
        let place = self.place(id);
        if place.is_none() && self.is_idle(id) {
            return Err(IDLE);
        }
        // What is shown is kept by the user within the window of its stream: the others have theirs back.
        if let Some(update) = self.receive_window.release(payload.len()) {
            frame::write_window_update(around.out, 0, update);
        }
        let Some(at) = place else {
            self.abuse.data(data.len(), ends, around.now_ms)?;
            return if self.is_unknown_there(id) { Ok(None) } else { Err(CLOSED) };
        };
        let stream = &mut self.streams[at];
        if stream.is_peer_done {
            return Err(CLOSED);
        }
        stream.receive_window.arrive(payload.len())?;
        let padding = payload.len() - data.len();
        if padding > 0
            && !ends
            && let Some(update) = stream.receive_window.release(padding)
        {
            frame::write_window_update(around.out, id, update);
        }
        self.abuse.data(data.len(), ends, around.now_ms)?;
        stream.received += data.len() as u64;
        let is_wrong = match stream.length {
            Some(length) if ends => stream.received != length,
            Some(length) => stream.received > length,
            None => false,
        };
        if self.role == Role::Client && !stream.is_answered {
            return self.malformed(id, &HEADLESS, 0..0, around).map(Some);
        }
        if is_wrong {
            return self.malformed(id, &LENGTH, 0..0, around).map(Some);
        }
        stream.is_peer_done = ends;
        if data.is_empty() && !ends {
            return Ok(None);
        }
        Ok(Some(Found::Plain(Event::Data { stream: id, data, ends })))
    }

    fn on_headers<'i>(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        let mut block = head.unpadded(payload)?;
        if head.has(frame::WITH_PRIORITY) {
            let cut = if head.has(frame::PADDED) {
                frame::PADDING
            } else {
                Fault::size("a frame has a wrong size", "RFC 9113 6.2")
            };
            let (priority, rest) = block.split_at_checked(5).ok_or(cut)?;
            check_dependency(head.stream, priority)?;
            block = rest;
        }
        let ends = head.has(frame::END_STREAM);
        if head.has(frame::END_HEADERS) {
            return self.on_block(head.stream, ends, block, around);
        }
        let open = OpenBlock { stream: head.stream, ends, bytes: block.to_vec(), continuations: 0 };
        self.block = Some(Box::new(open));
        Ok(None)
    }

    #[cold]
    fn on_continuation<'i>(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        let mut open = self.block.take().expect("the order was checked");
        let is_last = head.has(frame::END_HEADERS);
        open.continuations += 1;
        let head_bytes = around.limits.head_bytes;
        if open.bytes.len() + payload.len() > abuse::block_bytes_max(head_bytes)
            || open.continuations > abuse::continuations_max(head_bytes)
            || (payload.is_empty() && !is_last)
        {
            return Err(abuse::BLOCK);
        }
        open.bytes.extend_from_slice(payload);
        if is_last {
            return self.on_block(open.stream, open.ends, &open.bytes, around);
        }
        self.block = Some(open);
        Ok(None)
    }

    /// A whole field block. It is decoded whatever becomes of it: the tables of both ends must stay the same.
    #[inline]
    fn on_block<'i>(
        &mut self,
        id: u32,
        ends: bool,
        block: &[u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        self.abuse.headers();
        self.block_bytes.received += block.len() as u64;
        let place = self.place(id);
        if let Some(at) = place {
            return match self.role {
                Role::Client if !self.streams[at].is_answered => {
                    self.on_answer(at, ends, block, around)
                }
                _ => self.on_trailers(at, ends, block, around),
            };
        }
        let is_new = self.role == Role::Server && id > self.last;
        if is_new && id % 2 == 1 {
            return self.on_request(id, ends, block, around);
        }
        if is_new || self.is_idle(id) {
            return Err(Fault::protocol("a stream that its peer cannot begin", "RFC 9113 5.1.1"));
        }
        let is_unknown_there = self.is_unknown_there(id);
        let (before, behind) = self.left_out;
        if !is_unknown_there && before < id && id < behind {
            return Err(Fault::protocol("a stream below one that was begun", "RFC 9113 5.1.1"));
        }
        self.drop_block(block, around)?;
        if is_unknown_there { Ok(None) } else { Err(CLOSED) }
    }

    /// Decodes what is not looked at.
    #[cold]
    fn drop_block(&mut self, block: &[u8], around: &mut Around<'_, '_>) -> Result<(), Fault> {
        self.abuse.control(1, around.now_ms)?;
        self.decoder.decode(block, &mut around.scratch.strings, |_| {})
    }

    #[inline]
    fn on_request<'i>(
        &mut self,
        id: u32,
        ends: bool,
        block: &[u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        if id - self.last > 2 {
            self.left_out = (self.last, id);
        }
        self.last = id;
        if !self.is_acknowledged && around.now_ms.saturating_sub(self.begun_ms) > ACKNOWLEDGE_MS_MAX
        {
            return Err(UNACKNOWLEDGED);
        }
        if id > self.last_accepted {
            self.drop_block(block, around)?;
            return Ok(None);
        }
        if self.streams.len() >= self.settings.streams_max as usize {
            self.drop_block(block, around)?;
            self.write_reset(around.out, id, ErrorCode::REFUSED_STREAM);
            // Before it knows the limit a client may exceed it in good faith.
            self.refused = self.refused.saturating_add(1);
            if self.is_acknowledged || self.refused > self.settings.streams_max.max(REFUSED_MIN) {
                self.abuse.reset(around.now_ms)?;
            }
            return Ok(Some(Found::Plain(Event::TooMany { stream: id, for_head: false })));
        }
        self.requests += 1;
        let (head, verdict) = self.read_request(ends, block, around)?;
        if let Err(Verdict::Malformed(rejection)) = verdict {
            return self.malformed(id, rejection, head, around).map(Some);
        }
        let head_bytes = head.len();
        // Those of all open streams count, whatever their user has kept of them.
        if large(head_bytes) > 0 && self.large_heads_bytes + head_bytes > LARGE_HEADS_BYTES_MAX {
            self.abuse.control(1, around.now_ms)?;
            self.write_reset(around.out, id, ErrorCode::REFUSED_STREAM);
            return Ok(Some(Found::Plain(Event::TooMany { stream: id, for_head: true })));
        }
        let priority = verdict.as_ref().ok().and_then(|(facts, _)| facts.priority);
        let is_tunnel = verdict.as_ref().is_ok_and(|(facts, _)| facts.is_websocket);
        let (length, found) = match verdict {
            Err(Verdict::Malformed(_)) => unreachable!("its stream was reset"),
            Err(Verdict::Refused(rejection)) => {
                (None, Found::Refused { stream: id, rejection, head, ends })
            }
            Ok((facts, Framing::Length(length))) if length > around.limits.body_bytes => {
                (facts.length, Found::Refused { stream: id, rejection: &BODY_LARGE, head, ends })
            }
            Ok((facts, framing)) => {
                (facts.length, Found::Request { stream: id, head, framing, facts, ends })
            }
        };
        let mut stream = Stream::new(id, self.peer.window, self.new_receive_window(), T::default());
        if let Some(priority) = priority {
            stream.priority = priority;
        }
        if !self.priorities.is_empty()
            && let Some(priority) = self.take_priority(id)
        {
            stream.priority = priority;
        }
        (stream.length, stream.is_peer_done, stream.head_bytes) = (length, ends, head_bytes);
        if is_tunnel {
            stream.kind = RequestKind::Connect;
        }
        self.large_heads_bytes += large(head_bytes);
        self.streams.push(stream);
        Ok(Some(found))
    }

    /// Reads the head of a request, or finds that it is the last one again.
    #[inline]
    fn read_request(
        &mut self,
        ends: bool,
        block: &[u8],
        around: &mut Around<'_, '_>,
    ) -> Result<(Range<usize>, ReadRequest), Fault> {
        if let Some(known) = &self.known_request
            && known.changes == self.decoder.changes()
            && known.block == block
            && ends
        {
            let text = &mut around.scratch.text;
            text.clear();
            text.extend_from_slice(&known.head);
            return Ok((0..text.len(), Ok((known.facts, Framing::None))));
        }
        let before = self.decoder.changes();
        let has_connect_protocol = self.settings.has_connect_protocol;
        let (mut reader, strings) =
            RequestReader::new(around.scratch, around.limits, has_connect_protocol);
        self.decoder.decode(block, strings, |field| reader.take(field))?;
        let (head, verdict) = reader.finish().ok_or(TOO_MUCH)?;
        let verdict = verdict.and_then(|facts| match facts.framing(ends) {
            Ok(framing) => Ok((facts, framing)),
            Err(rejection) => Err(Verdict::Malformed(rejection)),
        });
        if let Ok((facts, Framing::None)) = verdict
            && before == self.decoder.changes()
            && block.len() <= KNOWN_BLOCK_BYTES_MAX
            && head.len() <= KNOWN_HEAD_BYTES_MAX
        {
            self.keep_request(block, &around.scratch.text[head.clone()], facts);
        }
        Ok((head, verdict))
    }

    fn keep_request(&mut self, block: &[u8], head: &[u8], facts: RequestFacts) {
        let changes = self.decoder.changes();
        let known = self.known_request.get_or_insert_with(|| {
            let block = Vec::new();
            let head = Vec::new();
            Box::new(KnownRequest { block, head, facts, changes })
        });
        known.block.clear();
        known.block.extend_from_slice(block);
        known.head.clear();
        known.head.extend_from_slice(head);
        (known.facts, known.changes) = (facts, changes);
    }

    fn on_answer<'i>(
        &mut self,
        at: usize,
        ends: bool,
        block: &[u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        let id = self.streams[at].id;
        let read = self.read_answer(self.streams[at].kind, block, around)?;
        let (facts, never_indexed, len) = match read {
            Ok(read) => read,
            Err(rejection) => return self.malformed(id, &rejection, 0..0, around).map(Some),
        };
        let stream = &mut self.streams[at];
        let is_interim = facts.status.code() < 200;
        if is_interim && (ends || facts.status.code() == 101) {
            return self.malformed(id, &NO_ANSWER, 0..0, around).map(Some);
        }
        if is_interim {
            stream.interims += 1;
            if stream.interims > INTERIMS_MAX {
                return self.malformed(id, &INTERIMS, 0..0, around).map(Some);
            }
        } else {
            stream.is_answered = true;
            let is_tunnel = stream.kind.leaves_http(facts.status);
            if stream.kind == RequestKind::Connect && !is_tunnel {
                // It has an answer as any other.
                stream.kind = RequestKind::Other;
            }
            stream.length = match facts.body {
                // What follows is the other protocol's.
                _ if is_tunnel => None,
                ResponseBody::None => Some(0),
                ResponseBody::Length(length) => Some(length),
                ResponseBody::Chunked | ResponseBody::UntilClose => None,
            };
            stream.is_peer_done = ends;
            if ends && stream.length.is_some_and(|length| length > 0) {
                return self.malformed(id, &LENGTH, 0..0, around).map(Some);
            }
        }
        Ok(Some(Found::Response { stream: id, facts, never_indexed, len, ends }))
    }

    /// Reads the head of an answer, or finds that it is the last one again; which of its fields are marked, and how long its lines
    /// are in the scratch.
    #[inline]
    fn read_answer(
        &mut self,
        kind: RequestKind,
        block: &[u8],
        around: &mut Around<'_, '_>,
    ) -> Result<ReadAnswer, Fault> {
        if let Some(known) = &self.known_response
            && known.changes == self.decoder.changes()
            && known.kind == kind
            && known.block == block
        {
            let text = &mut around.scratch.text;
            text.clear();
            text.extend_from_slice(&known.head);
            return Ok(Ok((known.facts, known.never_indexed, text.len())));
        }
        let before = self.decoder.changes();
        let (mut reader, strings) = ResponseReader::new(around.scratch, around.limits);
        self.decoder.decode(block, strings, |field| reader.take(field))?;
        let (len, never_indexed) = match reader.finish().ok_or(TOO_MUCH)? {
            Ok(read) => read,
            Err(Verdict::Malformed(rejection) | Verdict::Refused(rejection)) => {
                return Ok(Err(rejection.of_answer()));
            }
        };
        let head = &around.scratch.text[..len];
        let facts = match Response::parse(head, around.limits, kind) {
            Ok(Some(response)) => response.facts,
            Ok(None) => return Ok(Err(NO_ANSWER)),
            Err(rejection) => return Ok(Err(rejection)),
        };
        if before == self.decoder.changes()
            && block.len() <= KNOWN_BLOCK_BYTES_MAX
            && len <= KNOWN_HEAD_BYTES_MAX
        {
            let known = self.known_response.get_or_insert_with(|| {
                let block = Vec::new();
                let head = Vec::new();
                let changes = before;
                Box::new(KnownResponse { block, head, facts, kind, never_indexed, changes })
            });
            known.block.clear();
            known.block.extend_from_slice(block);
            known.head.clear();
            known.head.extend_from_slice(head);
            (known.facts, known.kind, known.changes) = (facts, kind, before);
            known.never_indexed = never_indexed;
        }
        Ok(Ok((facts, never_indexed, len)))
    }

    fn on_trailers<'i>(
        &mut self,
        at: usize,
        ends: bool,
        block: &[u8],
        around: &mut Around<'_, '_>,
    ) -> Result<Option<Found<'i, T>>, Fault> {
        if self.streams[at].is_peer_done {
            return Err(CLOSED);
        }
        let (mut reader, strings) = TrailersReader::new(around.scratch, around.limits);
        self.decoder.decode(block, strings, |field| reader.take(field))?;
        let read = reader.finish().ok_or(TOO_MUCH)?;
        let stream = &mut self.streams[at];
        let id = stream.id;
        let received = stream.received;
        let wrong = match read {
            Err(Verdict::Malformed(rejection) | Verdict::Refused(rejection)) => Some(rejection),
            Ok(_) if !ends => Some(&TRAILERS),
            // A tunnel is DATA alone.
            Ok(_) if stream.kind == RequestKind::Connect => Some(&IN_TUNNEL),
            Ok(_) if stream.length.is_some_and(|length| length != received) => Some(&LENGTH),
            Ok(_) => None,
        };
        match (wrong, read) {
            (None, Ok((len, never_indexed))) => {
                stream.is_peer_done = true;
                Ok(Some(Found::Trailers { stream: id, never_indexed, len }))
            }
            (wrong, _) => self.malformed(id, wrong.unwrap_or(&TRAILERS), 0..0, around).map(Some),
        }
    }

    /// Resets the stream of a message that breaks the rules.
    #[cold]
    fn malformed<'i>(
        &mut self,
        id: u32,
        rejection: &Rejection,
        head: Range<usize>,
        around: &mut Around<'_, '_>,
    ) -> Result<Found<'i, T>, Fault> {
        self.broken(id, ErrorCode::PROTOCOL_ERROR, rejection, head, around)
    }

    /// Resets a stream for what its peer has done. That is charged: a peer must not win work by it.
    #[cold]
    fn broken<'i>(
        &mut self,
        id: u32,
        code: ErrorCode,
        rejection: &Rejection,
        head: Range<usize>,
        around: &mut Around<'_, '_>,
    ) -> Result<Found<'i, T>, Fault> {
        // A backend, or a server under a load, answers what it was asked: what is wrong with it costs its stream alone.
        if self.role == Role::Server {
            self.abuse.reset(around.now_ms)?;
        }
        self.write_reset(around.out, id, code);
        let data = self.place(id).map(|at| self.remove(at).data);
        Ok(Found::Malformed { stream: id, code, rejection: *rejection, head, data })
    }
}

impl<T> Connection<T> {
    #[inline]
    fn place(&self, id: u32) -> Option<usize> {
        self.streams.place(id)
    }

    #[inline]
    fn remove(&mut self, at: usize) -> Stream<T> {
        self.send_order.forget(at);
        let stream = self.streams.remove(at);
        self.large_heads_bytes -= large(stream.head_bytes);
        stream
    }

    /// Whether this stream was never begun.
    fn is_idle(&self, id: u32) -> bool {
        id > self.last || id.is_multiple_of(2)
    }

    /// Whether the peer may not know yet that this stream was reset, or not looked at.
    fn is_unknown_there(&self, id: u32) -> bool {
        id > self.last_accepted
            || self.resets.contains(&id)
            || (self.role == Role::Client && self.is_given_up(id))
    }

    /// Whether a client has given up this stream long ago, or because its server has said that it takes none so late: what
    /// a slow server still sends of it breaks nothing.
    fn is_given_up(&self, id: u32) -> bool {
        id <= self.reset_forgotten || self.peer_last.is_some_and(|last| id > last)
    }

    /// Resets a stream that is there, or was never kept.
    fn write_reset(&mut self, out: &mut Output<'_>, id: u32, code: ErrorCode) {
        frame::write_reset(out, id, code);
        let kept = RESETS_KEPT_MIN.max(2 * self.settings.streams_max as usize);
        if self.resets.len() >= kept {
            self.forget_resets(1);
        }
        self.resets.push_back(id);
    }

    /// Forgets the first of the streams that were reset.
    fn forget_resets(&mut self, count: usize) {
        for id in self.resets.drain(..count) {
            self.reset_forgotten = self.reset_forgotten.max(id);
        }
    }

    /// The window of a new stream. Before it knows our settings a peer may use the one of the standard (RFC 9113 6.9.2).
    fn new_receive_window(&self) -> ReceiveWindow {
        let excess = WINDOW_INITIAL.unsigned_abs().saturating_sub(self.settings.stream_window);
        ReceiveWindow::widened_until_known(
            self.settings.stream_window,
            if self.is_acknowledged { 0 } else { excess },
        )
    }
}

/// What a head counts among the large ones.
fn large(head_bytes: usize) -> usize {
    if head_bytes > HEAD_BYTES_SMALL { head_bytes } else { 0 }
}

/// What came of the head of a request.
type ReadRequest = Result<(RequestFacts, Framing), Verdict>;

/// The same of an answer: what it says, which of its fields are marked, and how long its lines are.
type ReadAnswer = Result<(ResponseFacts, NeverIndexed, usize), Rejection>;

/// What a frame is read with.
struct Around<'a, 'o> {
    scratch: &'a mut Scratch,
    out: &'a mut Output<'o>,
    limits: &'a Limits,
    now_ms: u64,
}

const IDLE: Fault = Fault::protocol("a frame for a stream that was not begun", "RFC 9113 5.1");
const CLOSED: Fault = Fault::closed("a frame for a stream that its peer has ended");
const UNACKNOWLEDGED: Fault = Fault::new(
    ErrorCode::SETTINGS_TIMEOUT,
    "SETTINGS were not acknowledged within 10 s",
    "RFC 9113 6.5.3",
);
const TOO_MUCH: Fault = Fault::calm("a head far beyond every limit");
const NO_ANSWER: Rejection = Rejection::new(
    crate::Status::BAD_GATEWAY,
    "an answer that HTTP/2 does not have",
    "RFC 9113 8.1",
);
const HEADLESS: Rejection = Rejection::new(
    crate::Status::BAD_GATEWAY,
    "a body before the head of its answer",
    "RFC 9113 8.1",
);
const INTERIMS: Rejection = Rejection::new(
    crate::Status::BAD_GATEWAY,
    "more interim answers than 1024, and no other",
    "RFC 9110 15.2",
);
const WINDOW: Rejection = Rejection::new(
    crate::Status::BAD_REQUEST,
    "the window of a stream grows beyond 2^31 - 1",
    "RFC 9113 6.9.1",
);
const TRAILERS: Rejection = Rejection::new(
    crate::Status::BAD_REQUEST,
    "trailers that do not end their stream",
    "RFC 9113 8.1",
);

const IN_TUNNEL: Rejection = Rejection::new(
    crate::Status::BAD_REQUEST,
    "fields in a tunnel, which has bytes alone",
    "RFC 9113 8.5",
);

fn check_dependency(stream: u32, priority: &[u8]) -> Result<(), Fault> {
    if frame::number(priority) & STREAM_MAX == stream {
        return Err(Fault::protocol("a stream that depends on itself", "RFC 7540 5.3.1"));
    }
    Ok(())
}
