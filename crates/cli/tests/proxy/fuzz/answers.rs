//! Fuzzed backends: what they answer is decided by the id of the request and the number of times that it
//! came. All that belongs to an answer holds its id; what belongs to none says so.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pollux_testing::uninterrupted;

use super::Random;
use super::strict::{self, Head, Writer, mark};
use super::witness::{Stand, Witness};

/// What must never reach a client.
pub(crate) const POISON: &str = "poison";

/// How long a client waits at most for the first byte of an answer; a backend that hangs takes longer.
pub(crate) const FIRST_BYTE_TIMEOUT: Duration = Duration::from_millis(200);

/// A request that comes so soon behind unasked bytes may have been sent before the proxy
/// could know of them, so that no proxy can tell them from an answer: they come within one turn of its
/// loop. Longer than turns are on a busy machine.
const TURN_MAX: Duration = Duration::from_millis(50);

/// What a backend sends, piece by piece, and what it does then.
struct Play {
    pieces: Vec<Vec<u8>>,
    then: Then,
    /// It does not wait for the end of the request.
    is_early: bool,
    is_slow: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Waits for the next request.
    GoOn,
    Close,
    Reset,
    /// Says nothing more until the proxy closes.
    Hang,
    /// Sends what belongs to no request a little later.
    Poison,
}

/// A backend whose answers are made by that seed.
pub(crate) fn fuzzed(seed: u64, witness: Arc<Witness>) -> Stand {
    let attempts = Mutex::<HashMap<String, u64>>::default();
    Stand::start(move |_, socket| {
        let _ = serve(socket, seed, &witness, &attempts);
    })
}

fn serve(
    mut socket: TcpStream,
    seed: u64,
    witness: &Witness,
    attempts: &Mutex<HashMap<String, u64>>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let head = loop {
            match strict::request(&bytes, Writer::Proxy) {
                Ok(Some(head)) => break head,
                Ok(None) if !more(&mut socket, &mut bytes)? => return Ok(()),
                Ok(None) => {}
                Err(why) => {
                    let bytes = bytes.escape_ascii();
                    witness.is_wrong(format!("what the proxy sent: {why}: {bytes}"));
                    return Ok(());
                }
            }
        };
        bytes.drain(..head.len);
        let id = head.target[1..].to_owned();
        let attempt = {
            let mut attempts = attempts.lock().expect("whole");
            let attempt = attempts.entry(id.clone()).or_default();
            *attempt += 1;
            *attempt
        };
        let mut random = Random::new(seed, &[mark(id.as_bytes()).1, attempt]);
        let play = play(&mut random, &id, &head);
        if !play.is_early {
            loop {
                match strict::body(&bytes, head.frame, Writer::Proxy) {
                    Ok(Some((_, len))) => break drop(bytes.drain(..len)),
                    Ok(None) if !more(&mut socket, &mut bytes)? => return Ok(()),
                    Ok(None) => {}
                    Err(why) => {
                        witness.is_wrong(format!("a body that the proxy sent: {why}"));
                        return Ok(());
                    }
                }
            }
        }
        for piece in &play.pieces {
            socket.write_all(piece)?;
            if play.is_slow {
                std::thread::sleep(Duration::from_millis(1 + random.next() % 4));
            }
        }
        match play.then {
            Then::Hang | Then::Reset => {}
            // The rest of the request was not read.
            _ if play.is_early => return Ok(()),
            _ => {}
        }
        match play.then {
            Then::GoOn => {}
            Then::Close => return Ok(()),
            Then::Reset => {
                rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
                return Ok(());
            }
            Then::Hang => {
                while more(&mut socket, &mut bytes)? {
                    bytes.clear();
                }
                return Ok(());
            }
            Then::Poison => {
                if random.once_in(2) {
                    std::thread::sleep(Duration::from_millis(random.next() % 3));
                }
                if !is_silent(&socket) {
                    continue;
                }
                let name = format!("{POISON}-{id}");
                socket.write_all(poison(&name).as_bytes())?;
                // The proxy closes the connection, or has a request on its way.
                let sent = Instant::now();
                if more(&mut socket, &mut bytes)? && sent.elapsed() < TURN_MAX {
                    witness.crossed.lock().expect("whole").push(name);
                    return Ok(());
                }
            }
        }
    }
}

/// Whether the proxy has sent nothing that was not read.
fn is_silent(socket: &TcpStream) -> bool {
    rustix::io::ioctl_fionread(socket).is_ok_and(|waiting| waiting == 0)
}

fn more(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut buffer = [0; 16 * 1024];
    let len = uninterrupted(|| socket.read(&mut buffer))?;
    bytes.extend_from_slice(&buffer[..len]);
    Ok(len > 0)
}

/// An answer without a request.
fn poison(kind: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nX-Id: {kind}\r\nContent-Length: 6\r\n\r\n{POISON}")
}

/// The body of the answer to that request.
pub(crate) fn body_of(id: &str, len: usize) -> Vec<u8> {
    id.bytes().chain(*b"; ").cycle().take(len).collect()
}

fn chunked(random: &mut Random, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(1 + random.below(rest.len().min(2_000)));
        let extension = if random.once_in(4) { ";a=\"b\"" } else { "" };
        out.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        rest = behind;
    }
    let trailer = if random.once_in(3) { "X-Trailer: t\r\n" } else { "" };
    out.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
    out
}

/// An answer in parts.
struct Answer {
    before: String,
    line: String,
    /// Each with its end.
    fields: Vec<String>,
    body: Vec<u8>,
    behind: Vec<u8>,
    then: Then,
}

impl Answer {
    fn bytes(&self) -> Vec<u8> {
        let head = format!("{}{}\r\n{}\r\n", self.before, self.line, self.fields.concat());
        [head.as_bytes(), &self.body, &self.behind].concat()
    }

    /// What follows belongs to it, whatever it is.
    fn is_until_end(&self) -> bool {
        let frames = |line: &String| {
            line.starts_with("Content-Length") || line.starts_with("Transfer-Encoding")
        };
        !self.fields.iter().any(frames)
    }

    fn drop_field(&mut self, name: &str) {
        self.fields.retain(|line| !line.starts_with(name));
    }
}

fn play(random: &mut Random, id: &str, head: &Head) -> Play {
    if head.fields.first("upgrade").is_some() && random.once_in(2) {
        let head = format!(
            "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Id: {id}\r\n\r\n"
        );
        let pieces = vec![[head.as_bytes(), &body_of(id, random.len(20_000))].concat()];
        let then = *random.pick(&[Then::Close, Then::Hang, Then::Reset, Then::Close]);
        return Play { pieces, then, is_early: false, is_slow: false };
    }
    let mut answer = sound(random, id, head);
    let mut cut = usize::MAX;
    let mut is_early = false;
    if random.once_in(2) {
        match random.below(10) {
            0 => is_early = true,
            1 | 2 => {
                if answer.is_until_end() {
                    // That the rest is missing does not show.
                    answer.drop_field("X-Len");
                }
                cut = random.below(answer.bytes().len() + 1);
                answer.then = *random.pick(&[Then::Close, Then::Reset, Then::Hang]);
            }
            3 if !answer.is_until_end() => answer.behind = behind(random),
            4 if !answer.is_until_end() => answer.then = Then::Poison,
            _ => make_odd(random, &mut answer, id),
        }
    }
    let mut bytes = answer.bytes();
    bytes.truncate(cut);
    let mut pieces = Vec::new();
    let mut begin = 0;
    // What stands behind comes with the end of the answer: later it may look like the next one.
    let whole = bytes.len().saturating_sub(answer.behind.len()).max(1);
    let mut cuts = random.cuts(whole);
    cuts.pop();
    for end in cuts.into_iter().chain([bytes.len()]) {
        pieces.push(bytes[begin..end].to_vec());
        begin = end;
    }
    let is_slow = pieces.len() < 20 && random.once_in(4);
    Play { pieces, then: answer.then, is_early, is_slow }
}

/// What may stand behind a whole answer.
fn behind(random: &mut Random) -> Vec<u8> {
    match random.below(5) {
        0 => poison(POISON).into_bytes(),
        1 => b"\r\n".to_vec(),
        2 => POISON.as_bytes().to_vec(),
        3 => [poison(POISON).into_bytes(), poison(POISON).into_bytes()].concat(),
        _ => b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(),
    }
}

/// An answer whose body has the length that it names beside the framing (`X-Len`).
fn sound(random: &mut Random, id: &str, head: &Head) -> Answer {
    let statuses = [
        "200 OK",
        "200 OK",
        "200 OK",
        "404 Not Found",
        "500",
        "301 Moved",
        "204 No Content",
        "304 Not Modified",
    ];
    let status = *random.pick(&statuses);
    let data = body_of(id, random.len(100_000));
    let is_bare = head.method == "HEAD" || status.starts_with("204") || status.starts_with("304");
    let mut fields = vec![format!("X-Id: {id}\r\n"), format!("X-Len: {}\r\n", data.len())];
    let mut before = String::new();
    let mut then = Then::GoOn;
    let mut line = format!("HTTP/1.1 {status}");
    if status == "500" {
        line.push(' ');
    }
    let body = match random.below(5) {
        0 if !is_bare => {
            then = Then::Close;
            data
        }
        1 | 2 => {
            fields.push("Transfer-Encoding: chunked\r\n".to_owned());
            chunked(random, &data)
        }
        _ => {
            fields.push(format!("Content-Length: {}\r\n", data.len()));
            data
        }
    };
    let body = if is_bare { Vec::new() } else { body };
    if random.once_in(8) {
        let code = random.pick(&["100 Continue", "103 Early Hints", "102 Processing"]);
        before = format!("HTTP/1.1 {code}\r\nX-Id: {id}\r\n\r\n").repeat(1 + random.below(3));
    }
    if random.once_in(10) {
        fields.push("Connection: close\r\n".to_owned());
        then = *random.pick(&[Then::Close, Then::GoOn]);
    }
    if random.once_in(12) {
        line = line.replace("HTTP/1.1", "HTTP/1.0");
        if body.len() > 5 && fields.iter().any(|line| line.starts_with("Transfer")) {
            // HTTP/1.0 knows no chunks.
            line = line.replace("HTTP/1.0", "HTTP/1.1");
        }
    }
    Answer { before, line, fields, body, behind: Vec::new(), then }
}

const LINES: &[&str] = &[
    "A: b\r\n c\r\n",
    " A: b\r\n",
    "A : b\r\n",
    "A: b\rc\r\n",
    "A: b\nc: d\r\n",
    "A: b\0c\r\n",
    "no colon\r\n",
    ": no name\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: -1\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 5, 6\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Content-Length : 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: chunked, chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Connection: X-Id, Content-Length\r\n",
    "Connection: upgrade\r\nUpgrade: h2c\r\n",
    "Keep-Alive: timeout=1\r\n",
    "Set-Cookie: a=b\r\n",
];

const STATUS_LINES: &[&str] = &[
    "HTTP/2.0 200 OK",
    "HTTP/1.1 20 OK",
    "HTTP/1.1 2000 OK",
    "HTTP/1.1 099 Low",
    "HTTP/1.1 600 High",
    "HTTP/1.1  200 OK",
    "HTTP/1.1 200",
    "HTTP/1.1 200 O\rK",
    "HTTP/1.1 200 O\0K",
    "HTTP/1.7 200 OK",
    "HTTP/1.0 200 OK",
    "HTTP 200 OK",
    "ICY 200 OK",
    "HTTP/1.1 101 Go",
    "HTTP/1.1 204 None",
    "HTTP/1.1 304 Same",
    "\r\nHTTP/1.1 200 OK",
    "SSH-2.0-x",
];

const ODD_CHUNKS: &[&str] = &[
    "5\r\nid\r\n0\r\n\r\n",
    "1\r\nid\r\n0\r\n\r\n",
    "2\nid\r\n0\r\n\r\n",
    "2\r\nid\n0\r\n\r\n",
    "0x2\r\nid\r\n0\r\n\r\n",
    "-2\r\nid\r\n0\r\n\r\n",
    "FFFFFFFFFFFFFFFFF\r\nid\r\n0\r\n\r\n",
    "2\r\nid\r\n0\r\nA b\r\n\r\n",
    "2\r\nid\r\n0\r\n",
    "2\r\nid\r\n0\n\n",
    "2 \r\nid\r\n0\r\n\r\n",
    "2;\r\nid\r\n0\r\n\r\n",
];

fn make_odd(random: &mut Random, answer: &mut Answer, id: &str) {
    // The length that it names may no longer be what comes.
    answer.drop_field("X-Len");
    match random.below(12) {
        0 => {
            let at = random.below(answer.fields.len() + 1);
            answer.fields.insert(at, (*random.pick(LINES)).to_owned());
        }
        1 => answer.line = (*random.pick(STATUS_LINES)).to_owned(),
        2 => {
            answer.drop_field("Content-Length");
            answer.drop_field("Transfer-Encoding");
            answer.fields.push("Transfer-Encoding: chunked\r\n".to_owned());
            answer.body = random.pick(ODD_CHUNKS).as_bytes().to_vec();
            answer.behind = behind(random);
        }
        3 => {
            // A length that is not the body's.
            answer.drop_field("Content-Length");
            answer.drop_field("Transfer-Encoding");
            let len = random.below(2 * answer.body.len() + 2);
            answer.fields.push(format!("Content-Length: {len}\r\n"));
            answer.then = *random.pick(&[Then::GoOn, Then::Close, Then::Hang]);
        }
        4 => {
            // A body where there is none.
            answer.line = (*random.pick(&["HTTP/1.1 204 None", "HTTP/1.1 304 Same"])).to_owned();
            answer.body = body_of(id, 30);
        }
        5 => answer.fields.extend((0..200).map(|number| format!("X-{number}: y\r\n"))),
        6 => answer.fields.push(format!("X-Huge: {}\r\n", "y".repeat(100_000))),
        7 => {
            let interim = format!("HTTP/1.1 100 Continue\r\nX-Id: {id}\r\n\r\n");
            answer.before = interim.repeat(10 + random.below(20));
        }
        8 => answer.fields.push(format!("X-Bytes: {}\r\n", "\u{80}\u{ff}".repeat(3))),
        9 => {
            let garbage: Vec<u8> = (0..random.below(300)).map(|_| random.next() as u8).collect();
            (answer.before, answer.line) = (String::new(), String::new());
            (answer.body, answer.fields) = (garbage, Vec::new());
            answer.then = *random.pick(&[Then::Close, Then::Hang]);
        }
        10 => {
            answer.before = format!(
                "HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Id: {id}\r\n\r\n"
            );
        }
        _ => {
            // Bytes of the head are changed, but not those that say whose it is.
            let head = answer.fields.iter_mut().filter(|line| !line.starts_with("X-Id"));
            let mut lines: Vec<&mut String> = head.chain([&mut answer.line]).collect();
            let at = random.below(lines.len());
            let line = &mut *lines[at];
            let place = random.below(line.len());
            if line.is_char_boundary(place) && line.is_char_boundary(place + 1) {
                let put = *random.pick(&["", "\r", "\n", "\0", " ", ":", "9", "\t", "x"]);
                line.replace_range(place..=place, put);
            }
        }
    }
}
