//! Clients that do what clients should not: scripts of requests, parts of requests and garbage,
//! sent and read in pieces at random, half-closed, reset, or left alone. Nothing blocks, and
//! nothing of what comes is looked at: that is the healthy clients' part.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use crate::random::Random;

/// Connections that one client has open at most.
const OPEN_MAX: usize = 40;
/// Largest script.
const SCRIPT_BYTES_MAX: usize = 1 << 21;

/// What a chaotic client knows of the server.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) address: SocketAddr,
    /// Paths that exist.
    pub(crate) paths: &'a [String],
}

struct Victim {
    stream: TcpStream,
    script: Vec<u8>,
    sent: usize,
}

/// Plays until `end`; says how many connections it made.
pub(crate) fn rage(target: Target<'_>, mut random: Random, end: Instant) -> u64 {
    let (mut open, mut connects) = (Vec::<Victim>::new(), 0);
    while Instant::now() < end {
        if open.is_empty() || open.len() < OPEN_MAX && random.below(4) == 0 {
            open.push(Victim::connect(target, &mut random));
            connects += 1;
        }
        let place = random.below(open.len());
        if !open[place].act(&mut random) {
            open.swap_remove(place);
        }
    }
    connects
}

impl Victim {
    fn connect(target: Target<'_>, random: &mut Random) -> Self {
        let stream = TcpStream::connect(target.address).expect("connected");
        stream.set_nonblocking(true).expect("set");
        let mut script = Vec::new();
        for _ in 0..random.size(32) {
            fragment(&mut script, target, random);
            script.truncate(SCRIPT_BYTES_MAX);
        }
        Self { stream, script, sent: 0 }
    }

    /// Does something; false when the connection is over.
    fn act(&mut self, random: &mut Random) -> bool {
        match random.below(32) {
            0..14 => {
                let len = random.size(self.script.len() - self.sent + 1);
                let piece = &self.script[self.sent..(self.sent + len).min(self.script.len())];
                match self.stream.write(piece) {
                    Ok(written) => self.sent += written,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return false,
                }
            }
            14..26 => {
                let mut room = vec![0; random.size(1 << 18) + 1];
                match self.stream.read(&mut room) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return false,
                }
            }
            26..28 => {
                let _ = self.stream.shutdown(Shutdown::Write);
            }
            28 => {
                set_socket_linger(&self.stream, Some(Duration::ZERO)).expect("set");
                return false;
            }
            29 => return false,
            _ => {}
        }
        true
    }
}

/// Adds a part of a script.
fn fragment(script: &mut Vec<u8>, Target { paths, .. }: Target<'_>, random: &mut Random) {
    let path = &paths[random.below(paths.len())];
    match random.below(12) {
        0 => {
            let len = random.size(2000);
            script.extend(random.bytes(len));
        }
        1..5 => {
            let method = random.of(&["GET", "GET", "HEAD", "OPTIONS", "DELETE", "BREW"]);
            let field =
                random.of(&["", "Connection: close\r\n", "Range: bytes=5-\r\n", "X : y\r\n"]);
            script.extend(format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{field}\r\n").bytes());
        }
        5 => {
            let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n");
            script.extend(&head.as_bytes()[..random.below(head.len())]);
        }
        6..9 => {
            let (len, said) = (random.size(1 << 20), random.of(&[0, 0, 0, 7]));
            let expect = random.of(&["", "", "Expect: 100-continue\r\n"]);
            let length = len + said;
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: h\r\n{expect}Content-Length: {length}");
            script.extend(head.bytes().chain(*b"\r\n\r\n"));
            script.resize(script.len() + len, b'b');
        }
        9..11 => {
            let head = "Host: h\r\nTransfer-Encoding: chunked\r\n\r\n";
            script.extend(format!("PUT {path} HTTP/1.1\r\n{head}").bytes());
            for _ in 0..random.size(64) {
                let len = random.size(5000) + 1;
                script.extend(format!("{len:x}\r\n{}\r\n", "c".repeat(len)).bytes());
            }
            script.extend(random.of(&["0\r\n\r\n", "0\r\nX: y\r\n\r\n", "g\r\n", ""]).bytes());
        }
        _ => script.extend(b"\r\n"),
    }
}
