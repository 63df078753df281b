//! A backend of HTTP/2 in the hands of a test: one connection, whose frames say what the test wants. What it reads is taken by
//! the protocol's other end, what it sends may be anything.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use pollux_http::h2::{
    Connection, ErrorCode, Event, NeverIndexed, Output, Role, Scratch, Settings,
};
use pollux_http::{Field, Fields, Limits};
use pollux_testing::{DEADLINE, uninterrupted};

use crate::{Backend, Client};

/// A request that came.
#[derive(Default, Debug)]
pub(crate) struct Asked {
    /// As lines.
    pub(crate) head: String,
    /// Names of fields that are to be put into no table.
    pub(crate) never_indexed: Vec<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<String>,
    pub(crate) is_whole: bool,
}

impl Asked {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

/// One connection.
pub(crate) struct Peer2<S = TcpStream> {
    pub(crate) socket: S,
    pub(crate) connection: Connection<()>,
    scratch: Scratch,
    unread: Vec<u8>,
    /// By their streams.
    pub(crate) asked: BTreeMap<u32, Asked>,
    pub(crate) resets: Vec<(u32, ErrorCode)>,
    /// The codes of GOAWAYs.
    pub(crate) gone: Vec<ErrorCode>,
    pub(crate) is_closed: bool,
    /// Whether what comes of a body opens its window again.
    pub(crate) releases: bool,
    pub(crate) pings: usize,
}

impl Backend {
    /// A backend of HTTP/2, whose connections are played so.
    pub(crate) fn of_http2(play: impl Fn(u64, Peer2) + Send + Sync + 'static) -> Self {
        Self::with_settings(Settings::DEFAULT, play)
    }

    /// The same, with these settings.
    pub(crate) fn with_settings(
        settings: Settings,
        play: impl Fn(u64, Peer2) + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |number, client| play(number, Peer2::of(client, settings)))
    }

    /// A backend of HTTP/2 that answers each whole request with what `answer` makes of it: a head, and a body.
    pub(crate) fn answering2(
        answer: impl Fn(&Asked) -> (String, Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        Self::of_http2(move |_, mut peer| {
            while let Some((stream, asked)) = peer.next_whole() {
                let (head, body) = answer(&asked);
                peer.answer(stream, &head, &body);
            }
        })
    }
}

impl Peer2 {
    fn of(client: Client, settings: Settings) -> Self {
        let Client { socket, .. } = client;
        socket.set_write_timeout(Some(DEADLINE)).expect("set");
        Self::on(socket, settings)
    }
}

impl<S: Read + Write> Peer2<S> {
    /// On a connection that is there.
    pub(crate) fn on(socket: S, settings: Settings) -> Self {
        let mut peer = Self::silent(socket, settings);
        peer.says(Connection::start);
        peer
    }

    /// The same of one that says nothing by itself.
    pub(crate) fn silent(socket: S, settings: Settings) -> Self {
        Self {
            socket,
            connection: Connection::new(Role::Server, settings),
            scratch: Scratch::default(),
            unread: Vec::new(),
            asked: BTreeMap::new(),
            resets: Vec::new(),
            gone: Vec::new(),
            is_closed: false,
            releases: true,
            pings: 0,
        }
    }

    /// What it says next, in one piece.
    pub(crate) fn says<R>(
        &mut self,
        say: impl FnOnce(&mut Connection<()>, &mut Output<'_>) -> R,
    ) -> R {
        let mut room = vec![0; 1 << 17];
        let mut out = Output::new(&mut room);
        let said = say(&mut self.connection, &mut out);
        self.raw(out.bytes());
        said
    }

    /// Sends these bytes, if they are still taken.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.is_closed |= self.socket.write_all(bytes).is_err();
    }

    /// Reads something; false at the end of the connection.
    pub(crate) fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        match uninterrupted(|| self.socket.read(&mut buffer)) {
            Ok(0) => self.is_closed = true,
            Ok(len) => self.unread.extend_from_slice(&buffer[..len]),
            Err(_) => self.is_closed = true,
        }
        self.take();
        !self.is_closed
    }

    fn take(&mut self) {
        let unread = std::mem::take(&mut self.unread);
        let mut room = vec![0; 1 << 17];
        let mut out = Output::new(&mut room);
        let mut at = 0;
        loop {
            let Self { connection, scratch, asked, resets, gone, releases, .. } = self;
            let limits = Limits { head_bytes: 1 << 20, body_bytes: u64::MAX, ..Limits::DEFAULT };
            let step = connection.read(&unread[at..], scratch, &mut out, &limits, 0);
            let step = step.expect("the proxy keeps the rules");
            at += step.used;
            let Some(event) = step.event else { break };
            match event {
                Event::Request { stream, request, head, never_indexed: marks, ends } => {
                    let head = String::from_utf8_lossy(head).into_owned();
                    let names = marked(request.fields, marks);
                    let path = marks.has_path().then(|| ":path".to_owned());
                    let never_indexed = names.chain(path).collect();
                    let new = Asked { head, never_indexed, is_whole: ends, ..Asked::default() };
                    asked.insert(stream, new);
                }
                Event::Data { stream, data, ends } => {
                    let request = asked.entry(stream).or_default();
                    request.body.extend_from_slice(data);
                    request.is_whole = ends;
                    if *releases {
                        connection.release(&mut out, stream, data.len());
                    }
                }
                Event::Trailers { stream, fields, never_indexed: marks } => {
                    let request = asked.entry(stream).or_default();
                    request.never_indexed.extend(marked(fields, marks));
                    let line = |Field { name, value }| {
                        format!("{name}: {}", String::from_utf8_lossy(value))
                    };
                    request.trailers.extend(fields.map(line));
                    request.is_whole = true;
                }
                Event::Reset { stream, code, .. } => resets.push((stream, code)),
                Event::GoneAway { code, .. } => gone.push(code),
                Event::WindowOpened => {}
                Event::PingAnswered { .. } => self.pings += 1,
                other => panic!("{other:?}"),
            }
        }
        self.unread = unread[at..].to_vec();
        let out = out.bytes().to_vec();
        if !out.is_empty() {
            self.raw(&out);
        }
    }

    /// Reads until `is_so`; false where the connection ends before.
    pub(crate) fn until(&mut self, is_so: impl Fn(&Self) -> bool) -> bool {
        while !is_so(self) {
            if !self.more() {
                return is_so(self);
            }
        }
        true
    }

    /// The first request that is whole, and not taken yet; none at the end of the connection.
    pub(crate) fn next_whole(&mut self) -> Option<(u32, Asked)> {
        self.until(|peer| peer.asked.values().any(|asked| asked.is_whole));
        let stream =
            self.asked.iter().find(|(_, asked)| asked.is_whole).map(|(stream, _)| *stream)?;
        Some((stream, self.asked.remove(&stream).expect("it is there")))
    }

    /// The same of one of which the head is there.
    pub(crate) fn next_head(&mut self) -> Option<u32> {
        self.until(|peer| !peer.asked.is_empty());
        self.asked.keys().next().copied()
    }

    /// Answers with this head, the lines without an empty one, and body, as windows allow.
    pub(crate) fn answer(&mut self, stream: u32, head: &str, body: &[u8]) {
        let head = format!("{head}\r\n");
        self.says(|peer, out| peer.send_head(out, stream, head.as_bytes(), body.is_empty()));
        if !body.is_empty() {
            self.send(stream, body, true);
        }
        let _ = self.connection.take_done(stream);
    }

    /// Sends of a body what the windows take now; says how much that was.
    pub(crate) fn send_some(&mut self, stream: u32, body: &[u8], ends: bool) -> usize {
        let mut sent = 0;
        loop {
            let piece = (body.len() - sent).min(self.connection.data_room(stream));
            let is_last = ends && sent + piece == body.len();
            if piece == 0 && !is_last {
                return sent;
            }
            let piece = &body[sent..sent + piece];
            self.says(|peer, out| peer.send_data(out, stream, piece, is_last));
            sent += piece.len();
            if sent == body.len() {
                return sent;
            }
        }
    }

    /// Sends all of a body, and reads while windows are closed; gives up with the stream or the connection.
    pub(crate) fn send(&mut self, stream: u32, body: &[u8], ends: bool) {
        let mut sent = 0;
        loop {
            sent += self.send_some(stream, &body[sent..], ends);
            let is_reset = self.resets.iter().any(|(reset, _)| *reset == stream);
            if sent == body.len() || is_reset || !self.more() {
                return;
            }
        }
    }

    /// Sends trailers, which end the answer.
    pub(crate) fn send_trailers(&mut self, stream: u32, fields: &[(&str, &str)]) {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        self.says(|peer, out| peer.send_trailers(out, stream, &fields));
        let _ = self.connection.take_done(stream);
    }

    pub(crate) fn reset(&mut self, stream: u32, code: ErrorCode) {
        self.says(|peer, out| peer.reset(out, stream, code));
    }
}

/// The names of fields that are marked as never to be put into a table.
pub(crate) fn marked(fields: Fields<'_>, marks: NeverIndexed) -> impl Iterator<Item = String> {
    let fields = fields.into_iter().enumerate();
    fields.filter(move |(place, _)| marks.has(*place)).map(|(_, field)| field.name.to_owned())
}

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field block of literals that are put into no table.
pub(crate) fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            let len = u8::try_from(text.len()).expect("short");
            assert!(len < 127, "its length is a byte");
            block.push(len);
            block.extend_from_slice(text);
        }
    }
    block
}

/// Kinds and flags of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
