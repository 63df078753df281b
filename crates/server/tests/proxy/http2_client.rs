//! A client of HTTP/2 in the hands of a test: the other end of the same protocol, whose windows open when the test says so.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use pollux_http::h2::{Ask, Connection, ErrorCode, Event, Output, Role, Scratch, Settings};
use pollux_http::{Field, Limits, Method};
use pollux_testing::{DEADLINE, uninterrupted};

use crate::Proxy;
use crate::http2_backend::marked;

/// Windows that never close.
const WIDE: u32 = 1 << 30;

/// What came of a request.
#[derive(Default, Debug)]
pub(crate) struct Answer {
    /// Each as lines without versions and reasons: `200|content-length: 2`.
    pub(crate) heads: Vec<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<String>,
    pub(crate) reset: Option<ErrorCode>,
    pub(crate) is_whole: bool,
    /// By the frame of its head.
    pub(crate) ended_with_head: bool,
    /// Names of fields that are to be put into no table.
    pub(crate) never_indexed: Vec<String>,
}

impl Answer {
    pub(crate) fn is_over(&self) -> bool {
        self.is_whole || self.reset.is_some()
    }

    /// The status of the last head.
    pub(crate) fn status(&self) -> &str {
        self.heads.last().and_then(|head| head.get(..3)).unwrap_or("")
    }
}

/// One connection.
pub(crate) struct Client2<S = TcpStream> {
    socket: S,
    connection: Connection<()>,
    scratch: Scratch,
    unread: Vec<u8>,
    /// Of requests by their streams.
    pub(crate) answers: BTreeMap<u32, Answer>,
    /// The last streams that GOAWAYs have named, and their codes.
    pub(crate) gone: Vec<(u32, ErrorCode)>,
    pub(crate) is_closed: bool,
    /// Whether what comes of a body opens its window again.
    pub(crate) releases: bool,
}

impl Client2 {
    /// A client whose windows never close.
    pub(crate) fn connect(proxy: &Proxy) -> Self {
        Self::with_window(proxy, WIDE)
    }

    /// One with this window for each stream.
    pub(crate) fn with_window(proxy: &Proxy, window: u32) -> Self {
        let socket = TcpStream::connect(proxy.address).expect("connected");
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        socket.set_write_timeout(Some(DEADLINE)).expect("set");
        socket.set_nodelay(true).expect("set");
        Self::on(socket, window)
    }

    /// Leaves without a word, whatever it has read: the proxy sees an error.
    pub(crate) fn leave(self) {
        let linger = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&self.socket, linger).expect("set");
    }
}

impl<S: Read + Write> Client2<S> {
    /// On a connection that is there.
    pub(crate) fn on(socket: S, stream_window: u32) -> Self {
        let settings = Settings { stream_window, connection_window: WIDE, ..Settings::DEFAULT };
        let mut client = Self {
            socket,
            connection: Connection::new(Role::Client, settings),
            scratch: Scratch::default(),
            unread: Vec::new(),
            answers: BTreeMap::new(),
            gone: Vec::new(),
            is_closed: false,
            releases: true,
        };
        client.says(Connection::start);
        client
    }

    /// What the client says next, in one piece.
    pub(crate) fn says<R>(
        &mut self,
        say: impl FnOnce(&mut Connection<()>, &mut Output<'_>) -> R,
    ) -> R {
        let mut room = vec![0; 1 << 17];
        let mut out = Output::new(&mut room);
        let said = say(&mut self.connection, &mut out);
        self.socket.write_all(out.bytes()).expect("taken");
        said
    }

    /// Begins a request.
    pub(crate) fn ask(
        &mut self,
        method: Method<'_>,
        path: &str,
        fields: &[(&str, &str)],
        ends: bool,
    ) -> u32 {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        let ask = Ask { method, scheme: "http", authority: "x", path, fields: &fields };
        let stream = self.says(|client, out| client.ask(out, &ask, ends, ()));
        let stream = stream.expect("a stream is free");
        self.answers.insert(stream, Answer::default());
        stream
    }

    /// Begins a GET.
    pub(crate) fn get(&mut self, path: &str) -> u32 {
        self.ask(Method::Get, path, &[], true)
    }

    /// Asks for this protocol on a stream (RFC 8441), once the proxy has said that it may.
    pub(crate) fn ask_for(&mut self, protocol: &str, path: &str, fields: &[(&str, &str)]) -> u32 {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        let method = Method::Connect;
        let scheme = "http";
        let authority = "x";
        let ask = Ask { method, scheme, authority, path, fields: &fields };
        loop {
            let asked = self.says(|client, out| client.ask_for_protocol(out, &ask, protocol, ()));
            if let Some(stream) = asked {
                self.answers.insert(stream, Answer::default());
                return stream;
            }
            assert!(self.more(), "the connection ended before it was allowed");
        }
    }

    /// Reads until so many bytes of a stream are there, which are taken.
    pub(crate) fn bytes(&mut self, stream: u32, len: usize) -> Vec<u8> {
        self.until(|client| {
            let answer = &client.answers[&stream];
            answer.body.len() >= len || answer.is_over()
        });
        let body = &mut self.answers.get_mut(&stream).expect("it is there").body;
        body.drain(..len.min(body.len())).collect()
    }

    /// Sends of this body what the windows take now; says how much that was.
    pub(crate) fn send_some(&mut self, stream: u32, body: &[u8], ends: bool) -> usize {
        let mut sent = 0;
        loop {
            let piece = (body.len() - sent).min(self.connection.data_room(stream));
            let is_last = ends && sent + piece == body.len();
            if piece == 0 && !is_last {
                return sent;
            }
            let piece = &body[sent..sent + piece];
            self.says(|client, out| client.send_data(out, stream, piece, is_last));
            sent += piece.len();
            if sent == body.len() {
                return sent;
            }
        }
    }

    /// Sends all of a body, and reads while windows are closed.
    pub(crate) fn send(&mut self, stream: u32, body: &[u8], ends: bool) {
        let mut sent = 0;
        loop {
            sent += self.send_some(stream, &body[sent..], ends);
            if sent == body.len() {
                return;
            }
            assert!(self.more(), "the connection ended behind {sent} bytes");
        }
    }

    /// Sends trailers, which end the request.
    pub(crate) fn send_trailers(&mut self, stream: u32, fields: &[(&str, &str)]) {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        self.says(|client, out| client.send_trailers(out, stream, &fields));
    }

    pub(crate) fn reset(&mut self, stream: u32, code: ErrorCode) {
        self.says(|client, out| client.reset(out, stream, code));
    }

    /// Reads something; false at the end of the connection.
    pub(crate) fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        match uninterrupted(|| self.socket.read(&mut buffer)) {
            Ok(0) => self.is_closed = true,
            Ok(len) => self.unread.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.is_closed = true,
            Err(error) => panic!("{error}, with {:?}", self.answers),
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
            let Self { connection, scratch, answers, gone, releases, .. } = self;
            let limits = Limits { head_bytes: 1 << 20, ..Limits::DEFAULT };
            let step = connection.read(&unread[at..], scratch, &mut out, &limits, 0);
            let step = step.expect("the proxy keeps the rules");
            at += step.used;
            let Some(event) = step.event else { break };
            match event {
                Event::Response { stream, response, never_indexed: marks, ends } => {
                    let mut head = response.facts.status.code().to_string();
                    for Field { name, value } in response.fields {
                        head += &format!("|{name}: {}", String::from_utf8_lossy(value));
                    }
                    let answer = answers.entry(stream).or_default();
                    answer.heads.push(head);
                    answer.never_indexed.extend(marked(response.fields, marks));
                    (answer.is_whole, answer.ended_with_head) = (ends, ends);
                }
                Event::Data { stream, data, ends } => {
                    let answer = answers.entry(stream).or_default();
                    answer.body.extend_from_slice(data);
                    answer.is_whole = ends;
                    if *releases {
                        connection.release(&mut out, stream, data.len());
                    }
                }
                Event::Trailers { stream, fields, never_indexed: marks } => {
                    let answer = answers.entry(stream).or_default();
                    answer.never_indexed.extend(marked(fields, marks));
                    let line = |Field { name, value }| {
                        format!("{name}: {}", String::from_utf8_lossy(value))
                    };
                    answer.trailers.extend(fields.map(line));
                    answer.is_whole = true;
                }
                Event::Reset { stream, code, .. } => {
                    answers.entry(stream).or_default().reset = Some(code);
                }
                Event::GoneAway { last, code } => gone.push((last, code)),
                Event::WindowOpened | Event::PingAnswered { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        self.unread = unread[at..].to_vec();
        if !out.is_empty() && self.socket.write_all(out.bytes()).is_err() {
            self.is_closed = true;
        }
    }

    /// Reads until `is_so`, or the end of the connection.
    pub(crate) fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            assert!(self.more(), "the connection ended: {:?}", self.answers);
        }
    }

    /// Reads until a stream is over; its answer.
    pub(crate) fn answer(&mut self, stream: u32) -> Answer {
        self.until(|client| client.answers[&stream].is_over());
        // Both ends have ended it, if it was not reset.
        let _ = self.connection.take_done(stream);
        self.answers.remove(&stream).expect("it is there")
    }

    /// Answers what was asked by a GET of this path.
    pub(crate) fn answer_to(&mut self, path: &str) -> Answer {
        let stream = self.get(path);
        self.answer(stream)
    }
}
