//! A server of one thread: echo over TCP and UDP, a line each second, an orderly end by signal.
//!
//! ```text
//! cargo run -p pollux-engine --example server -- [MECHANISM]      epoll-et, uring, poll, …
//! ```
//!
//! It prints where it listens. `nc 127.0.0.1 PORT` and `nc -u 127.0.0.1 PORT` are answered; Ctrl-C
//! or SIGTERM ends it when the connections have ended, after five seconds at the latest.
#![expect(clippy::print_stdout, reason = "a program that talks to a person")]

use std::error::Error;
use std::net::UdpSocket;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use pollux_engine::{
    Actions, CloseCause, Driver, EventLoop, Limits, Listener, Session, Signal, Signals,
};

/// How long connections may take to end after a signal.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// How long a connection may be silent.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// What all connections of the loop share.
#[derive(Default)]
struct Server {
    connections: u64,
    bytes: u64,
    datagrams: u64,
    is_ending: bool,
}

/// One TCP connection: sends back what it is sent.
struct Echo;

impl Session for Echo {
    type Shared = Server;

    fn accepted(server: &mut Server, actions: &mut Actions<'_>) -> Self {
        server.connections += 1;
        actions.set_deadline(actions.now().at + IDLE_TIME);
        Self
    }

    fn on_bytes(&mut self, server: &mut Server, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        actions.set_deadline(actions.now().at + IDLE_TIME);
        let len = input.len().min(actions.room());
        actions.send(&input[..len]);
        if len < input.len() {
            // The rest comes again when this has left.
            actions.notify_when_sent();
        }
        server.bytes += len as u64;
        len
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let driver = std::env::args().nth(1).map_or(Ok(Driver::default()), |name| name.parse())?;
    let mut event_loop = EventLoop::<Echo>::open(driver, Server::default(), Limits::default())?;

    let listener = Listener::open(&"127.0.0.1:0".parse()?, false)?;
    println!("tcp {}", listener.address());
    event_loop.listen(listener, false);

    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    println!("udp {}", socket.local_addr()?);
    event_loop.watch(socket, |socket, server, _now| {
        let mut datagram = [0; 65_536];
        while let Ok((len, from)) = socket.recv_from(&mut datagram) {
            // A datagram may be lost: a full socket is not a reason to wait.
            let _ = socket.send_to(&datagram[..len], from);
            server.datagrams += 1;
        }
        ControlFlow::Continue(())
    })?;

    event_loop.every(Duration::from_secs(1), |server, _now| {
        let Server { connections, bytes, datagrams, .. } = server;
        println!("{connections} connections, {bytes} bytes, {datagrams} datagrams");
        ControlFlow::Continue(())
    })?;

    let signals = Signals::catch(&[Signal::Interrupt, Signal::Terminate])?;
    event_loop.watch(signals, |signals, server, _now| {
        while let Some(signal) = signals.take() {
            println!("{}: ending", signal.name());
            server.is_ending = true;
        }
        ControlFlow::Continue(())
    })?;

    while !event_loop.shared().is_ending {
        event_loop.turn(None)?;
    }
    event_loop.drain();
    let end = Instant::now() + DRAIN_TIME;
    while event_loop.open_connections() > 0 && Instant::now() < end {
        event_loop.turn(Some(end.saturating_duration_since(Instant::now())))?;
    }
    event_loop.close_all(CloseCause::Drained);
    println!("ended");
    Ok(())
}
