//! Answers out of the bytes of a connection, one after the other; and one request asked by itself before any load.
//!
//! Most answers lie whole in the input and have the head of the one before; they cost a
//! comparison. Sessions call it; it reads no clock and counts nothing.
//!
//! One request and its answer, before there is any load: is this server the one that is meant? The lab asks each server
//! once. It blocks, and uses no loop.

mod streams;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_http::{BodyReader, HeadCache, Rejection, RequestKind, ResponseBody, ResponseFacts};
use pollux_tls::{HTTP_2, Layer, server_name};

use crate::kept_answer::Kept;
use crate::requests::{ANSWER_LIMITS, Prepared, prepare};
use crate::{LoadError, Protocol, Target, Trust};
use streams::{Http2, Whole};

/// What is read at once.
const PART_BYTES: usize = 64 * 1024;

/// A whole answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether another one can follow on its connection.
    pub(crate) keep_alive: bool,
    /// Bytes of its body.
    pub(crate) body_bytes: u64,
    /// All its bytes, interim answers before it included.
    pub(crate) wire_bytes: u64,
}

/// How far the answer that is under way was read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Its body, once the head is known and not all of it was there.
    body: Option<(BodyReader, Answer)>,
    /// Bytes of interim answers before it.
    interim_bytes: u64,
    /// Its start, where that is of interest.
    kept: Option<Box<Kept>>,
}

impl Reading {
    /// Reads `input`, which follows what was used before, up to the end of one answer. Says how
    /// many bytes are used up, and the answer when it is whole. `seen` is given the head of an answer
    /// that is not an interim one, and says whether its start is to be kept.
    ///
    /// # Errors
    /// What comes is not HTTP.
    #[inline]
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        cache: &mut HeadCache,
        to: RequestKind,
        seen: impl FnOnce(&[u8]) -> bool,
    ) -> Result<(usize, Option<Answer>), Rejection> {
        if self.body.is_some() {
            return self.read_body(input, 0);
        }
        let Some(facts) = cache.read(input, to)? else { return Ok((0, None)) };
        if facts.is_interim() {
            return self.begin(input, facts, cache, to, seen);
        }
        if seen(&input[..facts.head_len]) {
            self.kept = Some(Box::new(Kept::of(&input[..facts.head_len])));
        }
        let here = (input.len() - facts.head_len) as u64;
        match facts.body {
            ResponseBody::Length(len) if len <= here => Ok(self.whole(input, &facts, len)),
            ResponseBody::None => Ok(self.whole(input, &facts, 0)),
            _ => self.begin(input, facts, cache, to, |_| false),
        }
    }

    /// The peer has ended: an answer that lasts until then is whole.
    pub(crate) fn end(&mut self) -> Option<Answer> {
        let (mut body, answer) = self.body.take()?;
        body.end().ok().map(|()| answer)
    }

    /// Bytes of the answer under way that were used up.
    pub(crate) fn bytes_so_far(&self) -> u64 {
        self.body.as_ref().map_or(self.interim_bytes, |(_, answer)| answer.wire_bytes)
    }

    /// Bytes of the body that is read, so far.
    pub(crate) fn body_bytes_so_far(&self) -> u64 {
        self.body.as_ref().map_or(0, |(_, answer)| answer.body_bytes)
    }

    /// The start of the answer that was read, where it was kept.
    pub(crate) fn take_kept(&mut self) -> Option<Box<Kept>> {
        self.kept.take()
    }

    /// Whether the body of an answer is read.
    pub(crate) fn is_in_body(&self) -> bool {
        self.body.is_some()
    }

    #[inline]
    fn whole(
        &mut self,
        input: &[u8],
        facts: &ResponseFacts,
        body_bytes: u64,
    ) -> (usize, Option<Answer>) {
        let used = facts.head_len + body_bytes as usize;
        if let Some(kept) = &mut self.kept {
            kept.body(&input[facts.head_len..used]);
        }
        (used, Some(self.answer(facts, body_bytes, used as u64)))
    }

    #[inline]
    fn answer(&mut self, facts: &ResponseFacts, body_bytes: u64, bytes: u64) -> Answer {
        Answer {
            status: facts.status.code(),
            keep_alive: facts.keep_alive,
            body_bytes,
            wire_bytes: bytes + std::mem::take(&mut self.interim_bytes),
        }
    }

    /// Passes interim answers, and begins a body that is not whole yet.
    fn begin(
        &mut self,
        input: &[u8],
        mut facts: ResponseFacts,
        cache: &mut HeadCache,
        to: RequestKind,
        seen: impl FnOnce(&[u8]) -> bool,
    ) -> Result<(usize, Option<Answer>), Rejection> {
        let mut used = facts.head_len;
        let was_interim = facts.is_interim();
        while facts.is_interim() {
            self.interim_bytes += facts.head_len as u64;
            facts = match cache.read(&input[used..], to)? {
                Some(facts) => facts,
                None => return Ok((used, None)),
            };
            used += facts.head_len;
        }
        let head = &input[used - facts.head_len..used];
        if was_interim && seen(head) {
            self.kept = Some(Box::new(Kept::of(head)));
        }
        let reader = BodyReader::of_response(facts.body, &ANSWER_LIMITS);
        let answer = self.answer(&facts, 0, facts.head_len as u64);
        if reader.is_done() {
            return Ok((used, Some(answer)));
        }
        self.body = Some((reader, answer));
        self.read_body(input, used)
    }

    fn read_body(
        &mut self,
        input: &[u8],
        mut used: usize,
    ) -> Result<(usize, Option<Answer>), Rejection> {
        let Some((reader, answer)) = &mut self.body else {
            unreachable!("only called while a body is read");
        };
        while used < input.len() {
            let step = reader.feed(&input[used..])?;
            if let Some(kept) = &mut self.kept {
                kept.body(&input[used..][step.data.clone()]);
            }
            used += step.consumed;
            answer.wire_bytes += step.consumed as u64;
            answer.body_bytes += step.data.len() as u64;
            if step.is_done {
                return Ok((used, self.body.take().map(|(_, answer)| answer)));
            }
        }
        Ok((used, None))
    }
}

/// What a server answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered {
    /// Status, interim ones passed over.
    pub status: u16,
    /// Length of the body, without the framing of chunks.
    pub body_bytes: u64,
    /// Whether the connection stays open for another request.
    pub keep_alive: bool,
    /// Whether its body comes in chunks.
    pub is_chunked: bool,
    /// Version and cipher suite of TLS, as rustls names them; none of a connection without it.
    pub tls: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is no listener, or not yet.
    #[error("no connection")]
    Connect(#[source] io::Error),
    /// The connection failed before the answer was whole, or nothing came in time.
    #[error("no whole answer")]
    Answer(#[source] io::Error),
    /// The server does not speak TLS, or can't be believed.
    #[error("TLS failed")]
    Tls(#[source] pollux_tls::Error),
    /// What came is not an answer of the HTTP that was asked for; in words.
    #[error("not an HTTP answer: {0}")]
    Malformed(String),
    /// The target can't be asked for.
    #[error(transparent)]
    Target(#[from] LoadError),
}

/// Sends one request for `target`, on a connection in TLS where its URL says so, and reads its
/// answer. Connecting and each part of the answer may take `patience`; `trust` says which
/// certificates are believed.
///
/// # Errors
/// [`RequestError`]; any status is an answer.
pub fn ask(target: &Target, trust: &Trust, patience: Duration) -> Result<Answered, RequestError> {
    ask_by(Protocol::Http1, target, trust, patience)
}

/// The same by this HTTP; [`Protocol::Auto`] is HTTP/1.1 here.
///
/// # Errors
/// [`RequestError`]; any status is an answer.
pub fn ask_by(
    http: Protocol,
    target: &Target,
    trust: &Trust,
    patience: Duration,
) -> Result<Answered, RequestError> {
    let mut client = Client::open(http, target, trust, patience)?;
    match client.send(1) {
        // A server may refuse a body before it has read it, and close: its answer says why (RFC 9112, 9.3).
        Err(unsent) if unsent.is_cut() => client.answer(patience).map_err(|_| unsent),
        sent => sent.and_then(|()| client.answer(patience)),
    }
}

impl RequestError {
    /// Whether the server has ended the connection.
    fn is_cut(&self) -> bool {
        let Self::Answer(cause) = self else { return false };
        matches!(cause.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
    }
}

/// A connection that asks for one thing again and again, and blocks: for looks at a server before any load.
pub struct Client {
    line: Line,
    request: Prepared,
    head_bytes: usize,
    reading: Reading,
    /// Where HTTP/2 is spoken.
    http2: Option<Http2>,
    unread: Vec<u8>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Connects, which may take `patience`; `trust` says which certificates are believed. [`Protocol::Auto`] is HTTP/1.1
    /// here.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn open(
        http: Protocol,
        target: &Target,
        trust: &Trust,
        patience: Duration,
    ) -> Result<Self, RequestError> {
        let request = prepare(target, false)?;
        let http = if http == Protocol::Http2 { http } else { Protocol::Http1 };
        let line = Line::open(http, target, trust, patience)?;
        let head_bytes = request.bytes.len() - target.body.len();
        let http2 = (http == Protocol::Http2).then(|| Http2::new(head_bytes));
        let reading = Reading::default();
        let unread = Vec::new();
        Ok(Self { line, request, head_bytes, reading, http2, unread })
    }

    /// Sends so many requests at once.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn send(&mut self, requests: usize) -> Result<(), RequestError> {
        let Some(http2) = &mut self.http2 else {
            return self.line.write(&self.request.bytes.repeat(requests));
        };
        let scheme = if self.line.tls.is_some() { "https" } else { "http" };
        for _ in 0..requests {
            http2.ask(&self.request.bytes, self.head_bytes, scheme)?;
        }
        self.line.write(&http2.take_output())
    }

    /// The next answer on a stream.
    fn answer_of_stream(&mut self) -> Result<Answered, RequestError> {
        let Self { line, request, http2: Some(http2), unread, .. } = self else {
            unreachable!("only called where HTTP/2 is spoken");
        };
        loop {
            if let Some(whole) = http2.answer() {
                let Whole { status, body_bytes, .. } = whole?;
                let keep_alive = http2.keeps();
                let tls = line.tls.as_ref().and_then(Layer::suite);
                return Ok(Answered { status, body_bytes, keep_alive, is_chunked: false, tls });
            }
            let len =
                line.read(unread).map_err(|error| in_a_body(error, http2.body_bytes_so_far()))?;
            if line.tls.as_ref().is_some_and(|tls| tls.protocol() != Some(HTTP_2)) {
                let why = "the server does not offer HTTP/2 in TLS (ALPN h2)";
                return Err(RequestError::Malformed(why.to_owned()));
            }
            if len == 0 {
                return Err(RequestError::Answer(io::ErrorKind::UnexpectedEof.into()));
            }
            let used = http2.read(unread, &request.bytes)?;
            unread.drain(..used);
            line.write(&http2.take_output())?;
        }
    }

    /// An error of an answer of which a part of the body has come says so.
    fn in_its_body(&self, error: RequestError) -> RequestError {
        let so_far = self.reading.is_in_body().then(|| self.reading.body_bytes_so_far());
        in_a_body(error, so_far)
    }

    /// Reads the next answer, each part of which may take `patience`. After one that did not come in time it can be
    /// waited for again.
    ///
    /// # Errors
    /// [`RequestError`]; any status is an answer.
    pub fn answer(&mut self, patience: Duration) -> Result<Answered, RequestError> {
        self.line.wait_at_most(patience)?;
        if self.http2.is_some() {
            return self.answer_of_stream();
        }
        let mut is_chunked = false;
        // What follows an answer may be there already.
        let mut len = self.unread.len();
        loop {
            if len == 0 {
                let read = self.line.read(&mut self.unread);
                len = read.map_err(|error| self.in_its_body(error))?;
            }
            let Self { line, request, reading, unread, .. } = self;
            let read = match len {
                0 => reading
                    .end()
                    .map(|answer| (0, Some(answer)))
                    .ok_or_else(|| RequestError::Answer(io::ErrorKind::UnexpectedEof.into()))?,
                _ => {
                    let seen = |head: &[u8]| {
                        is_chunked = says_chunked(head);
                        false
                    };
                    let read = reading.read(unread, &mut request.cache, request.kind, seen);
                    read.map_err(|rejection| RequestError::Malformed(rejection.to_string()))?
                }
            };
            unread.drain(..read.0);
            if let Some(answer) = read.1 {
                let status = answer.status;
                let body_bytes = answer.body_bytes;
                // One that is ended by the end of its connection says so by nothing else.
                let keep_alive = answer.keep_alive && len > 0;
                let tls = line.tls.as_ref().and_then(Layer::suite);
                return Ok(Answered { status, body_bytes, keep_alive, is_chunked, tls });
            }
            len = 0;
        }
    }
}

/// The same error; where so much of a body had come it says so.
fn in_a_body(error: RequestError, so_far: Option<u64>) -> RequestError {
    match (error, so_far) {
        (RequestError::Answer(cause), Some(so_far)) => {
            let what = format!("{so_far} bytes of its body, and then {cause}");
            RequestError::Answer(io::Error::new(cause.kind(), what))
        }
        (error, _) => error,
    }
}

/// Whether a head says that its body comes in chunks.
fn says_chunked(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut codings = head.lines().filter_map(|line| line.strip_prefix("transfer-encoding:"));
    codings.any(|coding| coding.contains("chunked"))
}

/// A connection that blocks, with what encrypts it.
struct Line {
    socket: TcpStream,
    tls: Option<Layer>,
    patience: Duration,
    part: Vec<u8>,
}

impl Line {
    fn open(
        http: Protocol,
        target: &Target,
        trust: &Trust,
        patience: Duration,
    ) -> Result<Self, RequestError> {
        let tls = match &target.tls_name {
            None => None,
            Some(name) => {
                let wrong = |why| LoadError::Url { url: target.url.clone(), why };
                let name = server_name(name).map_err(wrong)?;
                let unread = |error: pollux_tls::TlsError| LoadError::Plan {
                    what: "--cacert",
                    why: error.to_string(),
                };
                let config = trust.config(http.offered().iter().copied()).map_err(unread)?;
                Some(Layer::client(&config, &name))
            }
        };
        let socket = connect(target, patience).map_err(RequestError::Connect)?;
        let limits = socket.set_read_timeout(Some(patience));
        limits
            .and_then(|()| socket.set_write_timeout(Some(patience)))
            .map_err(RequestError::Answer)?;
        Ok(Self { socket, tls, patience, part: vec![0; PART_BYTES] })
    }

    /// Each part of what is read may take so long from now on.
    fn wait_at_most(&mut self, patience: Duration) -> Result<(), RequestError> {
        self.patience = patience;
        self.socket.set_read_timeout(Some(patience)).map_err(RequestError::Answer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        let Some(tls) = &mut self.tls else {
            return self.socket.write_all(bytes).map_err(RequestError::Answer);
        };
        // It leaves when the handshake is through, which `read` continues.
        tls.encrypt(bytes);
        self.flush()
    }

    /// Puts what comes next behind what is in `unread`; says how many bytes, none at the end.
    fn read(&mut self, unread: &mut Vec<u8>) -> Result<usize, RequestError> {
        loop {
            let len = match self.socket.read(&mut self.part) {
                // With a timeout the kernel does not continue after a signal, nor after a stop (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|error| in_time(error, self.patience))?,
            };
            let Some(tls) = self.tls.as_mut().filter(|_| len > 0) else {
                unread.extend_from_slice(&self.part[..len]);
                return Ok(len);
            };
            let mut rest = &self.part[..len];
            while !rest.is_empty() {
                tls.decrypt(&mut rest).map_err(RequestError::Tls)?;
            }
            let plain = tls.take_input();
            let len = plain.len();
            let is_closed = tls.is_closed();
            unread.extend_from_slice(&plain);
            self.flush()?;
            if len > 0 || is_closed {
                return Ok(len);
            }
        }
    }

    /// Sends what is encrypted.
    fn flush(&mut self) -> Result<(), RequestError> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            let len = tls.write(&mut self.part);
            self.socket.write_all(&self.part[..len]).map_err(RequestError::Answer)?;
        }
        Ok(())
    }
}

/// A connection to the first address that takes one; else why the last does not.
fn connect(target: &Target, patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::Unsupported.into();
    for address in target.addresses() {
        let ListenAddress::Tcp(address) = address else { continue };
        match TcpStream::connect_timeout(address, patience) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A read that has waited long enough says "try again".
fn in_time(error: io::Error, patience: Duration) -> RequestError {
    RequestError::Answer(match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, format!("nothing came for {patience:?}"))
        }
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use pollux_http::Limits;

    use super::*;

    /// Feeds `wire` in pieces of `piece` bytes, as a loop would: what is unused comes again.
    fn read_all(wire: &[u8], piece: usize) -> (Vec<(u16, u64, u64)>, Option<Answer>) {
        let mut cache = HeadCache::new(Limits::default());
        let mut reading = Reading::default();
        let mut kept = Vec::new();
        let mut found = Vec::new();
        for part in wire.chunks(piece) {
            kept.extend_from_slice(part);
            let mut used = 0;
            while used < kept.len() {
                let read = reading.read(&kept[used..], &mut cache, RequestKind::Other, |_| false);
                let (now, answer) = read.expect("sound");
                used += now;
                match answer {
                    Some(each) => found.push((each.status, each.body_bytes, each.wire_bytes)),
                    None => break,
                }
            }
            kept.drain(..used);
        }
        (found, reading.end())
    }

    #[test]
    fn answers_are_the_same_in_whatever_pieces_they_come() {
        let fixed = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let chunked = "HTTP/1.1 404 \r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let interim = "HTTP/1.1 100 Continue\r\n\r\n";
        let empty = "HTTP/1.1 204 No Content\r\n\r\n";
        let wire = [fixed, interim, interim, fixed, chunked, empty, fixed].concat();
        let len = |text: &str| text.len() as u64;
        let expected = [
            (200, 5, len(fixed)),
            (200, 5, len(fixed) + 2 * len(interim)),
            (404, 3, len(chunked)),
            (204, 0, len(empty)),
            (200, 5, len(fixed)),
        ];
        for piece in 1..=wire.len() {
            let (found, rest) = read_all(wire.as_bytes(), piece);
            assert_eq!((&found[..], rest), (&expected[..], None), "pieces of {piece}");
        }
    }

    #[test]
    fn the_end_completes_only_an_answer_that_lasts_until_it() {
        let (found, rest) = read_all(b"HTTP/1.0 200 OK\r\n\r\nabc", 7);
        assert_eq!((found.len(), rest.map(|answer| answer.body_bytes)), (0, Some(3)));
        let (found, rest) = read_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", 7);
        assert_eq!((found.len(), rest), (0, None));
    }

    /// What `ask` makes of these pieces, after which the server closes.
    fn asked(pieces: &'static [&'static str]) -> Result<Answered, RequestError> {
        asked_with(Vec::new(), pieces)
    }

    /// The same of a request with a body, of which the server reads no more than the start.
    fn asked_with(
        body: Vec<u8>,
        pieces: &'static [&'static str],
    ) -> Result<Answered, RequestError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let to = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a connection");
            let len = connection.read(&mut [0; 4096]).expect("a request");
            for piece in pieces {
                connection.write_all(piece.as_bytes()).expect("written");
            }
            len
        });
        let target = Target::parse(&format!("http://{to}/x"), None).expect("a URL");
        let target = Target { body, ..target };
        let answered = ask(&target, &Trust::default(), Duration::from_secs(20));
        assert!(server.join().expect("the server ends well") > 0);
        answered
    }

    #[test]
    fn the_answer_of_a_server_that_refuses_a_body_and_closes_is_read() {
        let body = || vec![b'x'; 64 << 20];
        const REFUSED: &[&str] =
            &["HTTP/1.1 413 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"];
        let answered = asked_with(body(), REFUSED).expect("an answer");
        assert_eq!((answered.status, answered.keep_alive), (413, false));
        let cut = asked_with(body(), &[]).expect_err("no answer");
        assert!(cut.is_cut(), "{cut:?}");
    }

    #[test]
    fn every_framing_is_understood() {
        let of = |status, body_bytes, keep_alive| Answered {
            status,
            body_bytes,
            keep_alive,
            is_chunked: false,
            tls: None,
        };
        let fixed = asked(&["HTTP/1.1 500 x\r\nContent-", "Length: 5\r\n\r\nhe", "llo"]);
        assert_eq!(fixed.expect("an answer"), of(500, 5, true));
        let chunked = asked(&[
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ]);
        assert_eq!(chunked.expect("an answer"), Answered { is_chunked: true, ..of(200, 3, true) });
        let until_the_end = asked(&["HTTP/1.0 200 OK\r\n\r\nabcd"]);
        assert_eq!(until_the_end.expect("an answer"), of(200, 4, false));
    }

    #[test]
    fn every_address_of_a_name_is_tried() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let to = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a connection");
            let len = connection.read(&mut [0; 4096]).expect("a request");
            connection.write_all(b"HTTP/1.1 204 x\r\n\r\n").expect("written");
            len
        });
        let mut target = Target::parse(&format!("http://{to}/"), None).expect("a URL");
        // The same port, where nobody listens.
        let closed = std::net::SocketAddr::new([127, 0, 0, 2].into(), to.port());
        target.further = vec![std::mem::replace(&mut target.address, closed.into())];
        let answered = ask(&target, &Trust::default(), Duration::from_secs(20));
        assert_eq!(answered.expect("an answer").status, 204);
        assert!(server.join().expect("the server ends well") > 0);
    }

    #[test]
    fn failures_to_answer_are_distinguished() {
        let short = asked(&["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"]);
        assert!(matches!(short, Err(RequestError::Answer(_))), "{short:?}");
        let other = asked(&["SSH-2.0-OpenSSH\r\n\r\n"]);
        assert!(matches!(other, Err(RequestError::Malformed(_))), "{other:?}");
        let nobody = pollux_testing::Refusing::bind();
        let to = nobody.address();
        let target = Target::parse(&format!("http://{to}/"), None).expect("a URL");
        let refused = ask(&target, &Trust::default(), Duration::from_secs(20));
        assert!(matches!(refused, Err(RequestError::Connect(_))), "{refused:?}");
    }
}
