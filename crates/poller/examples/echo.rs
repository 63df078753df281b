//! An echo server with a loop of its own over any mechanism: level-triggered, on non-blocking sockets of the standard
//! library.
//!
//! ```text
//! cargo run -p pollux-poller --example echo -- [MECHANISM]      epoll, poll, select, uring-poll, …
//! ```
//!
//! It prints where it listens; `nc 127.0.0.1 PORT` is answered. A peer that does not read gets nothing more until it
//! does, and is not read from meanwhile.
#![expect(clippy::print_stdout, reason = "a program that talks to a person")]

use std::collections::HashMap;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use pollux_poller::{Events, Interest, Mechanism, Registration, Token, Trigger};

/// A connection, with what was read from it and is not yet written back.
struct Connection {
    stream: TcpStream,
    output: Vec<u8>,
}

impl Connection {
    /// Reads once where nothing waits for the peer, then writes what it takes. None at the end or after an error.
    fn echo(&mut self) -> Option<Interest> {
        let done = |result: std::io::Result<usize>| match result {
            Ok(0) => None,
            Err(error) if error.kind() != ErrorKind::WouldBlock => None,
            result => Some(result.unwrap_or(0)),
        };
        if self.output.is_empty() {
            let mut input = [0; 4096];
            let len = done(self.stream.read(&mut input))?;
            self.output.extend(&input[..len]);
        }
        if !self.output.is_empty() {
            let taken = done(self.stream.write(&self.output))?;
            self.output.drain(..taken);
        }
        Some(if self.output.is_empty() { Interest::READABLE } else { Interest::WRITABLE })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mechanism: Mechanism =
        std::env::args().nth(1).map_or(Ok(Mechanism::Epoll), |name| name.parse())?;
    let mut poller = mechanism.open()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    println!("{mechanism}: {}", listener.local_addr()?);
    let listening = Token::new(0, 0);
    let of = |interest| Registration::new(interest, Trigger::Level);
    poller.add(listener.as_fd(), listening, of(Interest::READABLE))?;

    let mut connections: HashMap<Token, Connection> = HashMap::new();
    let mut next = 0;
    let mut events = Events::with_capacity(256);
    loop {
        poller.wait(&mut events, None)?;
        for event in &events {
            if event.token == listening {
                let Ok((stream, _)) = listener.accept() else { continue };
                stream.set_nonblocking(true)?;
                // Never used again, so an event of an earlier connection finds none.
                next += 1;
                let token = Token::new(next, 0);
                poller.add(stream.as_fd(), token, of(Interest::READABLE))?;
                connections.insert(token, Connection { stream, output: Vec::new() });
                continue;
            }
            let Some(connection) = connections.get_mut(&event.token) else { continue };
            match connection.echo() {
                Some(interest) => {
                    poller.modify(connection.stream.as_fd(), event.token, of(interest))?;
                }
                None => {
                    poller.delete(connection.stream.as_fd())?;
                    connections.remove(&event.token);
                }
            }
        }
    }
}
