//! Fuzzed clients: scripts of requests over many connections, in pieces, and what comes back.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_testing::{DEADLINE, uninterrupted};

use super::Random;
use super::requests::{Script, script};
use super::strict::{self, Asked, Read as Verdict, asked};
use super::witness::Witness;

/// What a connection sent.
pub(crate) struct Sent {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) asked: Vec<Asked>,
}

/// What one client did.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) sent: Vec<Sent>,
    pub(crate) tally: Tally,
}

/// How requests ended for clients.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) connections: u64,
    /// Requests that a strict reader finds.
    pub(crate) requests: u64,
    /// Answered by a backend, each with its own answer.
    pub(crate) right: u64,
    /// Pages of the proxy, by the class of their status.
    pages_400: u64,
    pages_500: u64,
    /// Refused by nginx, behind the proxy.
    pub(crate) by_nginx: u64,
    /// Connections that the client left early.
    pub(crate) left: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.requests += other.requests;
        self.right += other.right;
        self.pages_400 += other.pages_400;
        self.pages_500 += other.pages_500;
        self.by_nginx += other.by_nginx;
        self.left += other.left;
    }
}

/// A client until `end`.
pub(crate) fn run(
    to: SocketAddr,
    seed: u64,
    number: u64,
    end: Instant,
    witness: &Arc<Witness>,
) -> Done {
    let mut done = Done::default();
    let mut connection = 0;
    while Instant::now() < end {
        let mut random = Random::new(seed, &[number, connection]);
        let id = format!("{number}-{connection}");
        let script = script(&mut random, &id);
        let sent = converse(to, &mut random, id, &script, &mut done.tally, witness);
        done.tally.connections += 1;
        done.tally.requests += sent.asked.len() as u64;
        done.sent.push(sent);
        connection += 1;
    }
    done
}

/// How a client behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Sends all, ends its side and reads all.
    AtOnce,
    /// Sends a request when the one before was answered.
    InTurn,
    /// Sends a part and ends its side.
    Part,
    /// Sends a part and goes away.
    Leaves,
    /// Sends a part and resets the connection.
    Resets,
}

fn converse(
    to: SocketAddr,
    random: &mut Random,
    name: String,
    script: &Script,
    tally: &mut Tally,
    witness: &Witness,
) -> Sent {
    let manner = match random.below(20) {
        0 => Manner::Part,
        1 => Manner::Leaves,
        2 => Manner::Resets,
        3..9 if script.is_sound => Manner::InTurn,
        _ => Manner::AtOnce,
    };
    let len = match manner {
        Manner::AtOnce | Manner::InTurn => script.bytes.len(),
        _ => random.below(script.bytes.len() + 1),
    };
    let bytes = script.bytes[..len].to_vec();
    let sent = Sent { name, asked: asked(&bytes), bytes };
    let mut socket = TcpStream::connect(to).expect("the proxy listens");
    socket.set_nodelay(true).expect("set");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    socket.set_write_timeout(Some(DEADLINE)).expect("set");
    let fault = |what: String| {
        witness.is_wrong(format!(
            "connection {}: {what}\n{}",
            sent.name,
            sent.bytes.escape_ascii()
        ));
    };
    let mut given = Vec::new();
    let received = if manner == Manner::InTurn {
        let ends = script.begins[1..].iter().copied().chain([len]);
        let mut begin = 0;
        for (count, end) in ends.enumerate() {
            send(&mut socket, random, &sent.bytes[begin..end]);
            begin = end;
            if count + 1 < script.begins.len() {
                let enough = |given: &[u8]| {
                    let answers = answers(given, &sent.asked, false).unwrap_or_default();
                    answers.len() > count
                };
                while !enough(&given)
                    && receive(&mut socket, &mut given).is_ok_and(|is_more| is_more)
                {
                }
            }
        }
        let _ = socket.shutdown(Shutdown::Write);
        receive_all(&mut socket, &mut given)
    } else {
        send(&mut socket, random, &sent.bytes);
        match manner {
            Manner::Leaves => {
                tally.left += 1;
                return sent;
            }
            Manner::Resets => {
                let linger = rustix::net::sockopt::set_socket_linger;
                linger(&socket, Some(Duration::ZERO)).expect("set");
                tally.left += 1;
                return sent;
            }
            _ => {}
        }
        let _ = socket.shutdown(Shutdown::Write);
        receive_all(&mut socket, &mut given)
    };
    let is_cut = match received {
        Ok(()) => false,
        Err(ErrorKind::ConnectionReset) => true,
        Err(kind) => {
            fault(format!("no end of the answers: {kind:?}, after {}", given.escape_ascii()));
            return sent;
        }
    };
    let is_sound = script.is_sound && manner != Manner::Part;
    if let Err(what) = judge(&given, &sent.asked, is_sound, is_cut, tally) {
        fault(format!("{what}; got {}", given.escape_ascii()));
    }
    sent
}

fn send(socket: &mut TcpStream, random: &mut Random, bytes: &[u8]) {
    let mut begin = 0;
    for end in random.cuts(bytes.len()) {
        // A connection that the proxy has ended takes nothing more.
        if socket.write_all(&bytes[begin..end]).is_err() {
            return;
        }
        begin = end;
        if random.once_in(4) {
            std::thread::yield_now();
        }
    }
}

fn receive(socket: &mut TcpStream, given: &mut Vec<u8>) -> Result<bool, ErrorKind> {
    let mut buffer = [0; 16 * 1024];
    let len = uninterrupted(|| socket.read(&mut buffer)).map_err(|error| error.kind())?;
    given.extend_from_slice(&buffer[..len]);
    Ok(len > 0)
}

fn receive_all(socket: &mut TcpStream, given: &mut Vec<u8>) -> Result<(), ErrorKind> {
    while receive(socket, given)? {}
    Ok(())
}

/// The final answers there, each with the request that it is to.
fn answers(given: &[u8], asked: &[Asked], has_ended: bool) -> Result<Vec<strict::Answer>, String> {
    let mut at = 0;
    let mut found = Vec::new();
    while at < given.len() {
        let is_head = asked.get(found.len()).is_some_and(|asked| asked.head.method == "HEAD");
        let mut verdict: Verdict<_> = strict::answer(&given[at..], is_head, has_ended);
        if has_ended && found.len() >= asked.len() && !matches!(verdict, Ok(Some(_))) {
            // What was refused may have been HEAD.
            verdict = strict::answer(&given[at..], true, has_ended);
        }
        match verdict {
            Ok(Some(answer)) => {
                at += answer.len;
                if answer.status >= 200 {
                    found.push(answer);
                }
            }
            Ok(None) if has_ended => return Err(format!("answer {} is not whole", found.len())),
            Ok(None) => break,
            Err(why) => return Err(format!("answer {}: {why}", found.len())),
        }
    }
    Ok(found)
}

fn judge(
    given: &[u8],
    asked: &[Asked],
    is_sound: bool,
    is_cut: bool,
    tally: &mut Tally,
) -> Result<(), String> {
    let found = match answers(given, asked, !is_cut) {
        Ok(found) => found,
        Err(_) if is_cut && !is_sound => return Ok(()),
        Err(why) => return Err(why),
    };
    // A client of HTTP/1.0 gets chunks as what lasts until the end of the connection.
    let has_old_end = found.last().is_some_and(|last| {
        asked.get(found.len() - 1).is_some_and(|asked| asked.head.minor == 0)
            && last.fields.has("connection", "close")
    });
    if is_sound && (is_cut || (found.len() != asked.len() && !has_old_end)) {
        return Err(format!("{} of {} sound requests were answered", found.len(), asked.len()));
    }
    for (place, answer) in found.iter().enumerate() {
        let own = asked.get(place).map(Asked::as_forwarded);
        let target = own.as_deref().and_then(|head| head.split([' ', '\n']).nth(1));
        let id = answer.fields.first("x-id");
        match id {
            Some(id) if Some(id) == target.map(str::as_bytes) => tally.right += 1,
            Some(id) => {
                return Err(format!("answer {place} is to {}, not {target:?}", id.escape_ascii()));
            }
            // A page of nginx itself.
            None if answer.fields.first("server").is_some_and(|it| it.starts_with(b"nginx")) => {
                tally.by_nginx += 1;
            }
            None if answer.status < 500 => tally.pages_400 += 1,
            None => tally.pages_500 += 1,
        }
        let is_right = id.is_some() && answer.status == 200;
        if is_sound && !is_right {
            return Err(format!("sound request {place} was answered with {}", answer.status));
        }
        if is_right && asked[place].head.method != "HEAD" && Some(&answer.body[..]) != id {
            return Err(format!("the body of answer {place} is another one's"));
        }
    }
    Ok(())
}
