//! A TCP proxy: what comes from one side goes to the other, no faster than that side takes it.
//!
//! ```text
//! cargo run -p pollux-engine --example proxy -- UPSTREAM [MECHANISM]
//! ```
#![expect(clippy::print_stdout, reason = "a program that talks to a person")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use pollux_engine::{Actions, CloseCause, Command, ConnectTo, Driver, EventLoop};
use pollux_engine::{Limits, Listener, Moment, Relay, Session};

struct Proxy {
    upstream: ConnectTo,
    commands: Vec<Command<Side>>,
}

/// A client, or its connection to the upstream server.
struct Side(Relay);

impl Session for Side {
    type Shared = Proxy;

    fn accepted(proxy: &mut Proxy, actions: &mut Actions<'_>) -> Self {
        let (mut client, upstream) = Relay::pair();
        client.opened(actions);
        let to = proxy.upstream.clone();
        let deadline = actions.now().at + Duration::from_secs(5);
        proxy.commands.push(Command::Connect { to, session: Self(upstream), deadline });
        Self(client)
    }
    fn next_command(proxy: &mut Proxy) -> Option<Command<Self>> {
        proxy.commands.pop()
    }
    fn connected(&mut self, _: &mut Proxy, actions: &mut Actions<'_>) {
        actions.set_deadline(Moment::NEVER);
        self.0.opened(actions);
    }
    fn on_bytes(&mut self, _: &mut Proxy, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        self.0.on_bytes(actions, input)
    }
    fn on_output_sent(&mut self, _: &mut Proxy, actions: &mut Actions<'_>) {
        self.0.on_output_sent(actions);
    }
    fn on_wake(&mut self, _: &mut Proxy, actions: &mut Actions<'_>) {
        self.0.on_wake(actions);
    }
    fn on_end(&mut self, _: &mut Proxy, actions: &mut Actions<'_>) {
        self.0.on_end(actions);
    }
    fn closed(self, proxy: &mut Proxy, _: CloseCause) {
        proxy.commands.extend(self.0.closed().map(Command::Wake));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: proxy UPSTREAM [MECHANISM]";
    let upstream: SocketAddr = std::env::args().nth(1).ok_or(usage)?.parse()?;
    let driver = std::env::args().nth(2).map_or(Ok(Driver::default()), |name| name.parse())?;
    let proxy = Proxy { upstream: upstream.into(), commands: Vec::new() };
    let mut event_loop = EventLoop::<Side>::open(driver, proxy, Limits::default())?;
    let listener = Listener::open(&"127.0.0.1:0".parse()?, false)?;
    println!("proxy {}", listener.address());
    event_loop.listen(listener, false);
    loop {
        event_loop.turn(None)?;
    }
}
