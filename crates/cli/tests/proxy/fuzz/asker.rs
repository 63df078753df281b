//! Clients of fuzzed backends: they ask soundly, and hold each answer to the id of its request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use pollux_testing::{DEADLINE, uninterrupted};

use super::Random;
use super::answers::{POISON, body_of};
use super::strict::{self, Answer};
use super::witness::Witness;

/// How requests ended for clients.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    /// Whole answers of a backend, each with its own id.
    pub(crate) own: u64,
    /// Those whose length could be compared with what the backend meant.
    pub(crate) compared: u64,
    /// Pages of the proxy.
    pub(crate) pages: u64,
    /// Answers that were cut, and requests behind them.
    pub(crate) cut: u64,
    tunnels: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.own += other.own;
        self.compared += other.compared;
        self.pages += other.pages;
        self.cut += other.cut;
        self.tunnels += other.tunnels;
    }
}

struct Question {
    id: String,
    is_head: bool,
    is_upgrade: bool,
    bytes: Vec<u8>,
}

/// A client until `end`.
pub(crate) fn run(
    to: SocketAddr,
    seed: u64,
    number: u64,
    end: Instant,
    witness: &Witness,
) -> Tally {
    let mut tally = Tally::default();
    let mut connection = 0;
    while Instant::now() < end {
        let mut random = Random::new(seed, &[number, connection]);
        if let Err(why) = converse(to, &mut random, end, &mut tally) {
            witness.is_wrong(format!("connection {number}-{connection}: {why}"));
        }
        connection += 1;
    }
    tally
}

fn question(random: &mut Random) -> Question {
    let id = format!("id{:016x}", random.next());
    let method = *random.pick(&["GET", "GET", "GET", "HEAD", "POST", "PUT"]);
    let is_upgrade = method == "GET" && random.once_in(25);
    let mut bytes = format!("{method} /{id} HTTP/1.1\r\nHost: x\r\n").into_bytes();
    if is_upgrade {
        bytes.extend_from_slice(b"Connection: upgrade\r\nUpgrade: websocket\r\n");
    }
    if matches!(method, "POST" | "PUT") {
        let len = random.len(200_000);
        let body = vec![b'b'; len];
        if random.once_in(2) || len == 0 {
            bytes.extend_from_slice(format!("Content-Length: {len}\r\n\r\n").as_bytes());
            bytes.extend_from_slice(&body);
        } else {
            let head = format!("Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n");
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(&body);
            bytes.extend_from_slice(b"\r\n0\r\n\r\n");
        }
    } else {
        bytes.extend_from_slice(b"\r\n");
    }
    Question { id, is_head: method == "HEAD", is_upgrade, bytes }
}

/// Asks on one connection until it ends.
fn converse(
    to: SocketAddr,
    random: &mut Random,
    end: Instant,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut socket = TcpStream::connect(to).expect("the proxy listens");
    socket.set_nodelay(true).expect("set");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    socket.set_write_timeout(Some(DEADLINE)).expect("set");
    let mut given = Vec::new();
    for _ in 0..1 + random.below(12) {
        if Instant::now() >= end {
            break;
        }
        let mut questions: Vec<_> =
            (0..1 + random.below(8).saturating_sub(5)).map(|_| question(random)).collect();
        // What stands behind one is a part of the tunnel.
        if let Some(last) = questions.iter().position(|question| question.is_upgrade) {
            questions.truncate(last + 1);
        }
        for question in &questions {
            tally.requests += 1;
            // The proxy may end the connection before it has read all.
            let _ = socket.write_all(&question.bytes);
        }
        for (place, question) in questions.iter().enumerate() {
            let Some(answer) = receive(&mut socket, &mut given, question)? else {
                tally.cut += (questions.len() - place) as u64;
                return check_ids(&given, question);
            };
            check(&given[..answer.len], &answer, question, tally)?;
            if answer.status == 101 {
                // Both sides are bytes from here on.
                let _ = socket.shutdown(std::net::Shutdown::Write);
                while more(&mut socket, &mut given)? {}
                tally.cut += (questions.len() - place - 1) as u64;
                return check_ids(&given, question);
            }
            given.drain(..answer.len);
            if answer.fields.has("connection", "close") {
                tally.cut += (questions.len() - place - 1) as u64;
                while more(&mut socket, &mut given)? {}
                return match given.len() {
                    0 => Ok(()),
                    _ => Err(format!("bytes behind the last answer: {}", given.escape_ascii())),
                };
            }
        }
    }
    Ok(())
}

/// The final answer; none when the connection ends before.
fn receive(
    socket: &mut TcpStream,
    given: &mut Vec<u8>,
    question: &Question,
) -> Result<Option<Answer>, String> {
    loop {
        match strict::answer(given, question.is_head, false) {
            Ok(Some(answer)) if answer.status >= 200 || answer.status == 101 => {
                return Ok(Some(answer));
            }
            Ok(Some(interim)) => {
                check_ids(&given[..interim.len], question)?;
                given.drain(..interim.len);
            }
            Ok(None) => {
                if !more(socket, given)? {
                    return Ok(None);
                }
            }
            Err(why) => return Err(format!("{}: {why}: {}", question.id, given.escape_ascii())),
        }
    }
}

/// False at the end, a cut among them.
fn more(socket: &mut TcpStream, given: &mut Vec<u8>) -> Result<bool, String> {
    let mut buffer = [0; 16 * 1024];
    match uninterrupted(|| socket.read(&mut buffer)) {
        // A read with a timeout is interrupted when the process is stopped (signal(7)).
        Ok(len) => {
            given.extend_from_slice(&buffer[..len]);
            Ok(len > 0)
        }
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(false),
        Err(error) => Err(format!("no end of an answer: {error}, after {}", given.escape_ascii())),
    }
}

fn check(
    bytes: &[u8],
    answer: &Answer,
    question: &Question,
    tally: &mut Tally,
) -> Result<(), String> {
    check_ids(bytes, question)?;
    let fault = |what: String| {
        let shown = &bytes[..bytes.len().min(600)];
        Err(format!("{}: {what}: {}", question.id, shown.escape_ascii()))
    };
    let len: Option<usize> = answer
        .fields
        .first("x-len")
        .and_then(|len| str::from_utf8(len).ok())
        .and_then(|len| len.parse().ok());
    match answer.fields.first("server") {
        Some(b"pollux") => {
            let is_ours = matches!(answer.status, 400 | 408 | 502..=504);
            tally.pages += 1;
            if is_ours { Ok(()) } else { fault(format!("a page with {}", answer.status)) }
        }
        _ if answer.status == 101 && !question.is_upgrade => fault("not asked for".to_owned()),
        _ if answer.status == 101 => {
            tally.tunnels += 1;
            Ok(())
        }
        _ => {
            tally.own += 1;
            let is_bare = question.is_head || matches!(answer.status, 204 | 304);
            if let Some(len) = len.filter(|_| !is_bare) {
                tally.compared += 1;
                if answer.body != body_of(&question.id, len) {
                    return fault(format!(
                        "{} of {len} bytes pass for the whole",
                        answer.body.len()
                    ));
                }
            }
            Ok(())
        }
    }
}

/// Whether all ids there are of this request, and nothing is there that belongs to none.
fn check_ids(bytes: &[u8], question: &Question) -> Result<(), String> {
    let own = question.id.as_bytes();
    let is_other = |at: usize| {
        let Some(id) = bytes.get(at..at + own.len()) else { return false };
        id.starts_with(b"id") && id[2..].iter().all(u8::is_ascii_hexdigit) && id != own
    };
    let is_poison = |at: usize| bytes[at..].starts_with(POISON.as_bytes());
    match (0..bytes.len()).find(|at| is_other(*at) || is_poison(*at)) {
        None => Ok(()),
        Some(at) => {
            let shown = &bytes[at.saturating_sub(300)..bytes.len().min(at + 100)];
            Err(format!("{} got another one's bytes: {}", question.id, shown.escape_ascii()))
        }
    }
}
