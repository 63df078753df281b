//! What the user of a connection has it do: requests, answers, bodies, ends.

use crate::h2::connection::{
    BlockBytes, Connection, DATA_BYTES_MAX, KNOWN_BLOCK_BYTES_MAX, KNOWN_HEAD_BYTES_MAX,
    KnownAnswer, Phase, STREAM_MAX, large,
};
use crate::h2::error::{ErrorCode, Fault};
use crate::h2::fields::NeverIndexed;
use crate::h2::frame::{self, HEAD_BYTES, PAYLOAD_BYTES_MAX};
use crate::h2::hpack::encode::Encoder;
use crate::h2::output::Output;
use crate::h2::schedule::{SendOrder, Sending};
use crate::h2::settings::Role;
use crate::h2::streams::Stream;
use crate::{Field, Method, RequestKind};

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What is to be done.
    pub method: Method<'a>,
    /// `http` or `https`; not sent for CONNECT.
    pub scheme: &'a str,
    /// `host[:port]`.
    pub authority: &'a str,
    /// With its query; not sent for CONNECT.
    pub path: &'a str,
    /// All other fields, whose names may have upper case.
    pub fields: &'a [Field<'a>],
}

/// What a client asks for, as a head of HTTP/1.1: with its request line, Host and empty line.
#[derive(Debug)]
pub struct AskHead<'a> {
    /// All of the head.
    pub head: &'a [u8],
    /// `http` or `https`; not sent for CONNECT.
    pub scheme: &'a str,
    /// What is known of the same head from before, on the same connection.
    pub known: Option<&'a mut KnownBlock>,
    /// The target of this head as [`path_block`](crate::h2::path_block) has made it; what is known is then of all heads that differ in it alone.
    pub path: Option<&'a [u8]>,
}

/// The field block of one head, once it is the same each time that it is sent: copying it costs less than encoding. It
/// belongs to one connection.
#[derive(Clone, Default, Debug)]
pub struct KnownBlock {
    /// Empty where none is known.
    block: Vec<u8>,
    /// Where its `:path` is left out, which each request brings.
    path_at: Option<usize>,
    changes: u64,
}

impl<T> Connection<T> {
    /// Begins a stream with the request of this head, as [`Connection::ask`] does.
    ///
    /// The room has to be `2 * len + 9 * (1 + len / 8192) + 64`, where `len` is that of the head.
    pub fn ask_head(
        &mut self,
        out: &mut Output<'_>,
        ask: AskHead<'_>,
        ends: bool,
        data: T,
    ) -> Option<u32> {
        self.ask_head_marked(out, ask, &[], ends, data)
    }

    /// As [`Connection::ask_head`], with the fields of these names put into no table, as a client has marked them: in lower case,
    /// `:path` among them, each with a line feed behind it.
    pub fn ask_head_marked(
        &mut self,
        out: &mut Output<'_>,
        ask: AskHead<'_>,
        never_indexed: &[u8],
        ends: bool,
        data: T,
    ) -> Option<u32> {
        self.begin_head(out, ask, None, never_indexed, ends, data)
    }

    /// As [`Connection::ask_for_protocol`], with the request of this head, whose method is sent as CONNECT, and as
    /// [`Connection::ask_head_marked`] has it.
    pub fn ask_head_for_protocol(
        &mut self,
        out: &mut Output<'_>,
        ask: AskHead<'_>,
        protocol: &str,
        never_indexed: &[u8],
        data: T,
    ) -> Option<u32> {
        if !self.peer.has_connect_protocol {
            return None;
        }
        self.begin_head(out, ask, Some(protocol), never_indexed, false, data)
    }

    #[inline]
    fn begin_head(
        &mut self,
        out: &mut Output<'_>,
        ask: AskHead<'_>,
        protocol: Option<&str>,
        never_indexed: &[u8],
        ends: bool,
        data: T,
    ) -> Option<u32> {
        if !self.can_ask() {
            return None;
        }
        let id = if self.last == 0 { 1 } else { self.last + 2 };
        self.last = id;
        let kind = match ask.head {
            _ if protocol.is_some() => RequestKind::Connect,
            [b'H', b'E', b'A', b'D', b' ', ..] => RequestKind::Head,
            head if head.starts_with(b"CONNECT ") => RequestKind::Connect,
            _ => RequestKind::Other,
        };
        let len = self.write_asked(out, ask, (protocol, never_indexed), kind, id, ends);
        self.block_bytes.asked += len as u64;
        let mut stream = Stream::new(id, self.peer.window, self.new_receive_window(), data);
        (stream.kind, stream.is_own_done) = (kind, ends);
        self.streams.push(stream);
        self.abuse.sent();
        Some(id)
    }

    /// Writes the block of a request, and says how long it is.
    #[inline]
    fn write_asked(
        &mut self,
        out: &mut Output<'_>,
        ask: AskHead<'_>,
        (protocol, never_indexed): (Option<&str>, &[u8]),
        kind: RequestKind,
        id: u32,
        ends: bool,
    ) -> usize {
        let AskHead { head, scheme, known, path } = ask;
        // What is known of a head says nothing of a protocol.
        let known = known.filter(|_| protocol.is_none());
        let has_path = kind != RequestKind::Connect || protocol.is_some();
        let path_block = path.filter(|_| has_path);
        let before = self.encoder.changes();
        let frame_bytes = self.peer.frame_bytes.min(PAYLOAD_BYTES_MAX);
        let path_bytes = path_block.unwrap_or_default();
        if let Some(known) = &known
            && !known.block.is_empty()
            && known.path_at.is_some() == path_block.is_some()
            && known.block.len() + path_bytes.len() <= frame_bytes
            && known.changes == before
            && !self.encoder.has_new_size()
        {
            let flags = frame::END_HEADERS | if ends { frame::END_STREAM } else { 0 };
            let len = known.block.len() + path_bytes.len();
            let (first, rest) = known.block.split_at(known.path_at.unwrap_or(0));
            out.put(&frame::head(len, frame::HEADERS, flags, id));
            [first, path_bytes, rest].into_iter().for_each(|part| out.put(part));
            return len;
        }
        let start = out.len();
        let mut path_at = None;
        let encoder = &mut self.encoder;
        let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let mut words = line.split(|&byte| byte == b' ');
        let mut word = || words.next().unwrap_or_default();
        let method = word();
        let path = word();
        let len = write_block(out, id, ends, frame_bytes, |out| {
            encoder.begin(out);
            if let Some(protocol) = protocol {
                encoder.field(out, b":method", b"CONNECT");
                encoder.field(out, b":protocol", protocol.as_bytes());
            } else {
                encoder.field(out, b":method", method);
            }
            if has_path {
                encoder.field(out, b":scheme", scheme.as_bytes());
                if let Some(block) = path_block {
                    path_at = Some(out.len() - start - HEAD_BYTES);
                    out.put(block);
                } else {
                    field(encoder, out, b":path", path, never_indexed);
                }
            }
            if never_indexed.split(|&byte| byte == b'\n').any(|it| it == b"host") {
                encoder.never_indexed(out, b":authority", host(head));
            } else {
                encoder.field(out, b":authority", host(head));
            }
            lines(head, |name, value| {
                let is_sent =
                    name != b"host" && (name != b"te" || value.eq_ignore_ascii_case(b"trailers"));
                if is_sent {
                    field(encoder, out, name, value, never_indexed);
                }
            });
        });
        if let Some(known) = known
            && len - path_bytes.len() <= KNOWN_HEAD_BYTES_MAX
            && len <= frame_bytes
            && before == self.encoder.changes()
            && !out.is_short()
        {
            let block = &out.bytes()[start + HEAD_BYTES..];
            let (first, rest) = block.split_at(path_at.unwrap_or(0));
            known.block.clear();
            known.block.extend_from_slice(first);
            known.block.extend_from_slice(&rest[path_bytes.len()..]);
            (known.path_at, known.changes) = (path_at, before);
        }
        len
    }

    /// Whether the peer has said that it may be asked for a protocol such as `websocket` (RFC 8441 3).
    #[must_use]
    pub fn takes_protocols(&self) -> bool {
        self.peer.has_connect_protocol
    }

    /// How many streams the peer allows at a time; as many as there are numbers before it has said so.
    #[must_use]
    pub fn peer_streams_max(&self) -> u32 {
        self.peer.streams_max
    }

    /// How much stands in front of the frame for which [`Connection::read`] has ended the connection, of the input that it was
    /// given then.
    #[must_use]
    pub fn sound_bytes(&self) -> usize {
        self.fault_at
    }

    /// Bytes of all field blocks so far.
    #[must_use]
    pub fn block_bytes(&self) -> BlockBytes {
        self.block_bytes
    }

    /// Begins a stream with this request, which `ends` where no body follows, and keeps `data` with it. None when the peer
    /// takes no more of them now, or at all.
    ///
    /// Its fields of a connection, and Host, are left out: HTTP/2 has none (RFC 9113 8.2.2, 8.3.1).
    ///
    /// The room has to be `len + 9 * (1 + len / 16,384) + 32`, where `len` counts 32 for each field, those of the request line
    /// among them, beside its bytes.
    pub fn ask(&mut self, out: &mut Output<'_>, ask: &Ask<'_>, ends: bool, data: T) -> Option<u32> {
        self.ask_marked(out, ask, NeverIndexed::default(), ends, data)
    }

    /// As [`Connection::ask`], with those fields put into no table that a client has marked so.
    pub fn ask_marked(
        &mut self,
        out: &mut Output<'_>,
        ask: &Ask<'_>,
        never_indexed: NeverIndexed,
        ends: bool,
        data: T,
    ) -> Option<u32> {
        self.begin(out, ask, None, never_indexed, ends, data)
    }

    /// As [`Connection::ask`], for a tunnel in which `protocol` is spoken, such as `websocket` (RFC 8441); its method is CONNECT
    /// whatever `ask` says. None also where the server has not said that it may be asked so. An answer of 2xx makes it one.
    pub fn ask_for_protocol(
        &mut self,
        out: &mut Output<'_>,
        ask: &Ask<'_>,
        protocol: &str,
        data: T,
    ) -> Option<u32> {
        if !self.peer.has_connect_protocol {
            return None;
        }
        let ask = Ask { method: Method::Connect, ..*ask };
        self.begin(out, &ask, Some(protocol), NeverIndexed::default(), false, data)
    }

    fn begin(
        &mut self,
        out: &mut Output<'_>,
        ask: &Ask<'_>,
        protocol: Option<&str>,
        never_indexed: NeverIndexed,
        ends: bool,
        data: T,
    ) -> Option<u32> {
        if !self.can_ask() {
            return None;
        }
        let id = if self.last == 0 { 1 } else { self.last + 2 };
        self.last = id;
        let is_plain_connect = ask.method == Method::Connect && protocol.is_none();
        let frame_bytes = self.peer.frame_bytes.min(PAYLOAD_BYTES_MAX);
        let encoder = &mut self.encoder;
        let len = write_block(out, id, ends, frame_bytes, |out| {
            encoder.begin(out);
            encoder.field(out, b":method", ask.method.name().as_bytes());
            if let Some(protocol) = protocol {
                encoder.field(out, b":protocol", protocol.as_bytes());
            }
            if !is_plain_connect {
                encoder.field(out, b":scheme", ask.scheme.as_bytes());
                if never_indexed.has_path() {
                    encoder.never_indexed(out, b":path", ask.path.as_bytes());
                } else {
                    encoder.field(out, b":path", ask.path.as_bytes());
                }
            }
            encoder.field(out, b":authority", ask.authority.as_bytes());
            for (place, field) in ask.fields.iter().enumerate() {
                with_lower_case(field.name.as_bytes(), |name| {
                    let is_sent = !is_of_connection(name)
                        && name != b"host"
                        && (name != b"te" || field.value.eq_ignore_ascii_case(b"trailers"));
                    if is_sent && never_indexed.has(place) {
                        encoder.never_indexed(out, name, field.value);
                    } else if is_sent {
                        encoder.field(out, name, field.value);
                    }
                });
            }
        });
        self.block_bytes.asked += len as u64;
        let mut stream = Stream::new(id, self.peer.window, self.new_receive_window(), data);
        (stream.kind, stream.is_own_done) = (RequestKind::of(ask.method), ends);
        self.streams.push(stream);
        self.abuse.sent();
        Some(id)
    }

    /// Whether a client may begin a stream now.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        let is_below = self.streams.len() < self.peer.streams_max as usize;
        self.role == Role::Client
            && self.peer_last.is_none()
            && self.last < STREAM_MAX - 1
            && is_below
    }

    /// Sends the head of an answer, written as one of HTTP/1.1: with its status line, without the fields of a connection.
    /// Nothing follows it where it `ends`.
    ///
    /// The room has to be twice as large as the head, and 32 bytes.
    pub fn send_head(&mut self, out: &mut Output<'_>, stream: u32, head: &[u8], ends: bool) {
        self.send_head_marked(out, stream, head, &[], ends);
    }

    /// As [`Connection::send_head`], with the fields of these names put into no table, as in [`Connection::ask_head_marked`].
    pub fn send_head_marked(
        &mut self,
        out: &mut Output<'_>,
        stream: u32,
        head: &[u8],
        never_indexed: &[u8],
        ends: bool,
    ) {
        let Some(at) = self.place(stream) else { return };
        let status = head.get(9..12).unwrap_or_default();
        let own = &mut self.streams[at];
        if status.first() != Some(&b'1') {
            own.is_answered = true;
            self.abuse.answered();
        }
        own.is_own_done |= ends;
        self.abuse.sent();
        if let Some(known) = &self.known_answer
            && known.changes == self.encoder.changes()
            && known.head == head
            && never_indexed.is_empty()
            && !self.encoder.has_new_size()
        {
            self.block_bytes.answered += known.block.len() as u64;
            let flags = frame::END_HEADERS | if ends { frame::END_STREAM } else { 0 };
            return frame::write(out, frame::HEADERS, flags, stream, &known.block);
        }
        let before = self.encoder.changes();
        let start = out.len();
        let frame_bytes = self.peer.frame_bytes.min(PAYLOAD_BYTES_MAX);
        let encoder = &mut self.encoder;
        let len = write_block(out, stream, ends, frame_bytes, |out| {
            encoder.begin(out);
            encoder.field(out, b":status", status);
            lines(head, |name, value| field(encoder, out, name, value, never_indexed));
        });
        self.block_bytes.answered += len as u64;
        if out.is_short() {
            return;
        }
        let block = &out.bytes()[start..];
        let is_kept = block.len() <= KNOWN_BLOCK_BYTES_MAX && head.len() <= KNOWN_HEAD_BYTES_MAX;
        if is_kept && never_indexed.is_empty() && before == self.encoder.changes() {
            let block = &block[HEAD_BYTES..];
            let known = self.known_answer.get_or_insert_with(|| {
                Box::new(KnownAnswer { head: Vec::new(), block: Vec::new(), changes: 0 })
            });
            known.head.clear();
            known.head.extend_from_slice(head);
            known.block.clear();
            known.block.extend_from_slice(block);
            known.changes = before;
        }
    }

    /// How long the head is that this answer of HTTP/1.1 begins with: all of it where it has no end.
    #[must_use]
    #[inline]
    pub fn head_len(&self, answer: &[u8]) -> usize {
        match &self.known_answer {
            Some(known) if answer.starts_with(&known.head) => known.head.len(),
            _ => answer
                .windows(4)
                .position(|end| end == b"\r\n\r\n")
                .map_or(answer.len(), |at| at + 4),
        }
    }

    /// Sends trailers, which end the stream. Fields that do not belong there are left out: those of the connection, of framing
    /// and of routing.
    ///
    /// The room has to be `len + 9 * (1 + len / 16,384) + 32`, where `len` counts 32 for each field beside its bytes.
    pub fn send_trailers(&mut self, out: &mut Output<'_>, stream: u32, fields: &[Field<'_>]) {
        self.send_trailers_marked(out, stream, fields, &[]);
    }

    /// As [`Connection::send_trailers`], with those of these names put into no table, as in [`Connection::ask_head_marked`].
    pub fn send_trailers_marked(
        &mut self,
        out: &mut Output<'_>,
        stream: u32,
        fields: &[Field<'_>],
        never_indexed: &[u8],
    ) {
        let Some(at) = self.place(stream) else { return };
        self.streams[at].is_own_done = true;
        self.abuse.sent();
        let frame_bytes = self.peer.frame_bytes.min(PAYLOAD_BYTES_MAX);
        let encoder = &mut self.encoder;
        let len = write_block(out, stream, true, frame_bytes, |out| {
            encoder.begin(out);
            for Field { name, value } in fields {
                with_lower_case(name.as_bytes(), |name| {
                    let is_in_place = !matches!(name, b"content-length" | b"host" | b"te");
                    if is_in_place && !is_of_connection(name) {
                        field(encoder, out, name, value, never_indexed);
                    }
                });
            }
        });
        self.block_bytes.answered += len as u64;
    }

    /// How many bytes of a body may be sent now in one frame.
    #[must_use]
    #[inline]
    pub fn data_room(&self, stream: u32) -> usize {
        let Some(at) = self.place(stream) else { return 0 };
        let window = self.streams[at].send_window.room().min(self.send_window.room());
        window.min(DATA_BYTES_MAX)
    }

    /// Whether the peer takes no more of a stream, whatever it takes of others.
    #[must_use]
    pub fn is_window_closed(&self, stream: u32) -> bool {
        self.place(stream).is_some_and(|at| self.streams[at].send_window.room() == 0)
    }

    /// Sends a part of a body that `fill` writes into the room.
    ///
    /// # Errors
    /// That of `fill`; nothing was sent then.
    ///
    /// # Panics
    /// When it is more than [`Connection::data_room`], or than the room for output with a head of nine bytes.
    #[inline]
    pub fn send_data_with<E>(
        &mut self,
        out: &mut Output<'_>,
        stream: u32,
        len: usize,
        ends: bool,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(at) = self.place(stream) else { return Ok(()) };
        let room = out.spare();
        let (head, payload) = room.split_at_mut(HEAD_BYTES);
        fill(&mut payload[..len])?;
        let flags = if ends { frame::END_STREAM } else { 0 };
        head.copy_from_slice(&frame::head(len, frame::DATA, flags, stream));
        out.advance(HEAD_BYTES + len);
        let own = &mut self.streams[at];
        own.is_own_done |= ends;
        own.send_window.take(len);
        self.send_window.take(len);
        self.abuse.sent_data(len, own.send_window.room().min(self.send_window.room()));
        self.send_order.sent(at);
        Ok(())
    }

    /// Sends a part of a body.
    ///
    /// # Panics
    /// As [`Connection::send_data_with`].
    pub fn send_data(&mut self, out: &mut Output<'_>, stream: u32, data: &[u8], ends: bool) {
        let sent = self.send_data_with(out, stream, data.len(), ends, |room| {
            room.copy_from_slice(data);
            Ok::<(), std::convert::Infallible>(())
        });
        sent.expect("copying does not fail");
    }

    /// Says what a stream has to send from now on: [`Connection::next_sender`] tells whose turn it is.
    pub fn set_sending(&mut self, stream: u32, sending: Sending) {
        let Some(at) = self.place(stream) else { return };
        self.send_order.set(at, stream, self.streams[at].priority, sending);
    }

    /// The stream whose turn it is, of those that have something to send which their windows take: the most urgent first, equal
    /// ones by turns (RFC 9218 10). It stays the same until some of it was sent, or it has nothing more.
    pub fn next_sender(&mut self) -> Option<u32> {
        let is_window_open = self.send_window.room() > 0;
        while let Some(at) = self.send_order.first(is_window_open) {
            let stream = &self.streams[at];
            if stream.send_window.room() > 0 || self.send_order.is_at_end(at) {
                return Some(stream.id);
            }
            self.send_order.block(at);
            self.stalls += 1;
        }
        if self.send_order.has_data() && !std::mem::replace(&mut self.is_stalled, true) {
            self.stalls += 1;
        }
        None
    }

    /// Whether a stream has to wait with its data for a more urgent one.
    #[must_use]
    #[inline]
    pub fn is_behind(&self, stream: u32) -> bool {
        !self.send_order.is_empty()
            && self
                .place(stream)
                .is_some_and(|at| self.send_order.is_behind(self.streams[at].priority))
    }

    /// How often something came to wait for a window since this was asked last: each stream for its own, and all for that of
    /// the connection.
    #[inline]
    pub fn take_stalls(&mut self) -> u32 {
        std::mem::take(&mut self.stalls)
    }

    /// So much of a body is done with: the peer may send as much again.
    pub fn release(&mut self, out: &mut Output<'_>, stream: u32, bytes: usize) {
        let Some(at) = self.place(stream) else { return };
        let own = &mut self.streams[at];
        // Nothing more comes of one that has ended.
        if !own.is_peer_done
            && let Some(update) = own.receive_window.release(bytes)
        {
            frame::write_window_update(out, stream, update);
        }
    }

    /// Gives up a stream, with what was kept with it. Nothing is sent for one that is not there.
    pub fn reset(&mut self, out: &mut Output<'_>, stream: u32, code: ErrorCode) -> Option<T> {
        let at = self.place(stream)?;
        self.write_reset(out, stream, code);
        Some(self.remove(at).data)
    }

    /// Takes a stream that the peer has said it will not look at, with what was kept with it: nothing is sent for that.
    pub fn forget(&mut self, stream: u32) -> Option<T> {
        let at = self.place(stream)?;
        Some(self.remove(at).data)
    }

    /// A stream that the peer has reset within its answer has cost more than the work on it, such as a connection to a backend:
    /// that is charged.
    ///
    /// # Errors
    /// The peer has done so too often: the connection is over.
    pub fn charge_cut(&mut self, now_ms: u64) -> Result<(), Fault> {
        self.abuse.cut(now_ms)
    }

    /// What was kept with a stream that both ends have ended, which is no more.
    #[inline]
    pub fn take_done(&mut self, stream: u32) -> Option<T> {
        let at = self.place(stream)?;
        let is_done = self.streams[at].is_peer_done && self.streams[at].is_own_done;
        is_done.then(|| self.remove(at).data)
    }

    /// Forgets a stream that both ends have ended, with what was kept with it, in its place: [`Connection::take_done`] moves
    /// it. Whether that was so.
    #[inline]
    pub fn forget_done(&mut self, stream: u32) -> bool {
        let Some(at) = self.place(stream) else { return false };
        let own = &self.streams[at];
        let is_done = own.is_peer_done && own.is_own_done;
        if is_done {
            self.large_heads_bytes -= large(own.head_bytes);
            self.send_order.forget(at);
            self.streams.forget(at);
        }
        is_done
    }

    /// Whether this end has ended its side of a stream.
    #[must_use]
    pub fn has_ended(&self, stream: u32) -> bool {
        self.place(stream).is_none_or(|at| self.streams[at].is_own_done)
    }

    /// Whether the peer has ended its side of a stream.
    #[must_use]
    pub fn has_peer_ended(&self, stream: u32) -> bool {
        self.place(stream).is_none_or(|at| self.streams[at].is_peer_done)
    }

    /// What is kept with a stream.
    #[must_use]
    #[inline]
    pub fn data_mut(&mut self, stream: u32) -> Option<&mut T> {
        let at = self.place(stream)?;
        Some(&mut self.streams[at].data)
    }

    /// All streams that are open in any way, in order.
    pub fn streams(&self) -> impl DoubleEndedIterator<Item = (u32, &T)> {
        self.streams.iter().map(|stream| (stream.id, &stream.data))
    }

    /// Takes the streams above `last`, the latest first: those that a server has said that it does not look at (GOAWAY).
    /// Nothing is sent of them: to the server they were never begun.
    pub fn take_above(&mut self, last: u32) -> impl Iterator<Item = (u32, T)> {
        let above = self.streams.iter().rev().map(|stream| stream.id);
        let above: Vec<u32> = above.take_while(|id| *id > last).collect();
        above.into_iter().filter_map(move |id| {
            let at = self.place(id)?;
            Some((id, self.remove(at).data))
        })
    }

    /// Takes all streams, when the connection is over.
    pub fn take_all(&mut self) -> impl Iterator<Item = (u32, T)> + use<T> {
        (self.send_order, self.large_heads_bytes) = (SendOrder::default(), 0);
        self.streams.take_all().map(|stream| (stream.id, stream.data))
    }

    /// How many streams are open in any way.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether no stream is open.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether the peer has said its first words.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.phase == Phase::Frames
    }

    /// Whether a field block has begun and not ended.
    #[must_use]
    pub fn is_in_block(&self) -> bool {
        self.block.is_some()
    }

    /// Whether the client had as many requests as it may have on one connection, or its numbers come to an end.
    #[must_use]
    #[inline]
    pub fn is_used_up(&self) -> bool {
        self.requests >= self.settings.requests_max || self.last > STREAM_MAX - (1 << 16)
    }

    /// Asks whether the peer is there, and has read what was sent before.
    pub fn ping(&mut self, out: &mut Output<'_>, data: [u8; 8]) {
        self.pings = self.pings.saturating_add(1);
        frame::write(out, frame::PING, 0, 0, &data);
    }

    /// Says that the connection ends soon, while streams that the client has on the way are still taken (RFC 9113 6.8).
    pub fn announce_end(&mut self, out: &mut Output<'_>) {
        write_goaway(out, STREAM_MAX, ErrorCode::NO_ERROR, "");
    }

    /// Says that no stream is taken from now on; those that are open are finished.
    pub fn end(&mut self, out: &mut Output<'_>) {
        // The number that was said first stands (RFC 9113 6.8).
        self.last_accepted = match self.role {
            Role::Server => self.last.min(self.last_accepted),
            Role::Client => 0,
        };
        write_goaway(out, self.last_accepted, ErrorCode::NO_ERROR, "");
    }

    /// Tells the peer why the connection is over; without the words where there is no room for them.
    pub fn fail(&mut self, out: &mut Output<'_>, fault: &Fault) {
        let last = if self.role == Role::Server { self.last.min(self.last_accepted) } else { 0 };
        write_goaway(out, last, fault.code, fault.reason);
    }
}

fn write_goaway(out: &mut Output<'_>, last: u32, code: ErrorCode, words: &str) {
    const BYTES: usize = HEAD_BYTES + 8;
    let words = if out.room() < BYTES + words.len() { "" } else { words };
    let mut frame = [0; BYTES];
    frame[..HEAD_BYTES].copy_from_slice(&frame::head(8 + words.len(), frame::GOAWAY, 0, 0));
    frame[HEAD_BYTES..][..4].copy_from_slice(&last.to_be_bytes());
    frame[HEAD_BYTES + 4..].copy_from_slice(&code.number().to_be_bytes());
    out.put(&frame);
    out.put(words.as_bytes());
}

/// Writes HEADERS, and CONTINUATION behind where one frame does not take it all. How long the block is.
#[inline]
fn write_block(
    out: &mut Output<'_>,
    stream: u32,
    ends: bool,
    frame_bytes: usize,
    encode: impl FnOnce(&mut Output<'_>),
) -> usize {
    let start = out.len();
    out.put(&[0; HEAD_BYTES]);
    encode(out);
    let len = (out.len() - start).saturating_sub(HEAD_BYTES);
    let mut left = len;
    let mut flags = if ends { frame::END_STREAM } else { 0 };
    let mut at = start;
    let mut kind = frame::HEADERS;
    loop {
        let piece = left.min(frame_bytes);
        left -= piece;
        flags |= if left == 0 { frame::END_HEADERS } else { 0 };
        out.put_at(at, &frame::head(piece, kind, flags, stream));
        if left == 0 {
            return len;
        }
        at += HEAD_BYTES + piece;
        out.shift(at, HEAD_BYTES);
        if out.is_short() {
            return len;
        }
        (kind, flags) = (frame::CONTINUATION, 0);
    }
}

/// Adds a field, put into no table where its name is one of `never_indexed`.
#[inline]
fn field(
    encoder: &mut Encoder,
    out: &mut Output<'_>,
    name: &[u8],
    value: &[u8],
    never_indexed: &[u8],
) {
    let mut marked = never_indexed.split(|&byte| byte == b'\n');
    if !never_indexed.is_empty() && marked.any(|it| it == name) {
        return encoder.never_indexed(out, name, value);
    }
    encoder.field(out, name, value);
}

/// The value of Host in a head of HTTP/1.1; nothing where there is none.
fn host(head: &[u8]) -> &[u8] {
    let mut lines = head.split(|&byte| byte == b'\n').skip(1);
    let value = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(b"host:".len())?;
        name.eq_ignore_ascii_case(b"host:").then_some(value)
    });
    value.unwrap_or_default().trim_ascii()
}

/// Gives each field of a head of HTTP/1.1, with its name in lower case, to `take`, but for those of the connection.
fn lines(head: &[u8], mut take: impl FnMut(&[u8], &[u8])) {
    let mut rest = head;
    let mut is_first = true;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let line = &rest[..end];
        rest = &rest[end + 2..];
        if std::mem::take(&mut is_first) {
            continue;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let value = line[colon + 1..].trim_ascii();
        with_lower_case(&line[..colon], |name| {
            if !is_of_connection(name) {
                take(name, value);
            }
        });
    }
}

fn is_of_connection(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade"
    )
}

/// Names up to this length are put into lower case without memory of their own.
const NAME_BYTES: usize = 64;

fn with_lower_case(name: &[u8], take: impl FnOnce(&[u8])) {
    let mut room = [0; NAME_BYTES];
    match room.get_mut(..name.len()) {
        Some(room) => {
            room.copy_from_slice(name);
            room.make_ascii_lowercase();
            take(room);
        }
        None => take(&name.to_ascii_lowercase()),
    }
}
