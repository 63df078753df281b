//! A TCP proxy: what comes from one side goes to the other, no faster than that side takes it.
//!
//! ```text
//! cargo run -p pollux-engine --example proxy -- UPSTREAM [MECHANISM]
//! ```
#![expect(clippy::print_stdout, reason = "a program that talks to a person")]

use std::cell::RefCell;
use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;

use pollux_engine::{
    Actions, CloseCause, Command, ConnectTo, ConnectionId, Driver, EventLoop, Limits, Listener,
    Moment, Session,
};

/// The two connections of a client: side 0 is the client, side 1 the upstream server.
#[derive(Default)]
struct Pair {
    ids: [Option<ConnectionId>; 2],
    /// What is to be sent to each side.
    output: [Vec<u8>; 2],
    has_ended: [bool; 2],
    is_over: bool,
}

struct Half {
    pair: Rc<RefCell<Pair>>,
    side: usize,
}

struct Proxy {
    upstream: ConnectTo,
    commands: Vec<Command<Half>>,
}

impl Half {
    /// Sends what there is for this side, or does what is left to do when there is nothing.
    fn proceed(&mut self, actions: &mut Actions<'_>) {
        let (this, other) = (self.side, 1 - self.side);
        let Pair { output, has_ended, is_over, .. } = &mut *self.pair.borrow_mut();
        if output[this].is_empty() && (*is_over || *has_ended == [true; 2]) {
            return actions.close();
        }
        if output[this].is_empty() && has_ended[other] {
            actions.end_output();
        }
        if !output[this].is_empty() {
            let len = output[this].len().min(actions.room());
            actions.send(&output[this][..len]);
            output[this].drain(..len);
            actions.call_again();
        }
        if output[other].is_empty() {
            actions.resume_input();
        }
    }

    fn wake_other(&self, actions: &mut Actions<'_>) {
        if let Some(id) = self.pair.borrow().ids[1 - self.side] {
            actions.wake(id);
        }
    }
}

impl Session for Half {
    type Shared = Proxy;

    fn accepted(proxy: &mut Proxy, actions: &mut Actions<'_>) -> Self {
        let pair = Rc::new(RefCell::new(Pair::default()));
        pair.borrow_mut().ids[0] = Some(actions.id());
        let (to, session) = (proxy.upstream.clone(), Self { pair: Rc::clone(&pair), side: 1 });
        proxy.commands.push(Command::Connect { to, session, deadline: Moment::NEVER });
        Self { pair, side: 0 }
    }

    fn next_command(proxy: &mut Proxy) -> Option<Command<Self>> {
        proxy.commands.pop()
    }

    fn connected(&mut self, _: &mut Proxy, actions: &mut Actions<'_>) {
        self.pair.borrow_mut().ids[1] = Some(actions.id());
        self.proceed(actions);
    }

    fn on_bytes(&mut self, _: &mut Proxy, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        self.pair.borrow_mut().output[1 - self.side].extend_from_slice(input);
        // Until the other side has taken it: so no more than one call's input waits.
        actions.pause_input();
        self.wake_other(actions);
        input.len()
    }

    fn on_drained(&mut self, _: &mut Proxy, actions: &mut Actions<'_>) {
        self.proceed(actions);
        self.wake_other(actions);
    }

    fn on_wake(&mut self, _: &mut Proxy, actions: &mut Actions<'_>) {
        self.proceed(actions);
    }

    fn on_end(&mut self, _: &mut Proxy, actions: &mut Actions<'_>) {
        self.pair.borrow_mut().has_ended[self.side] = true;
        self.proceed(actions);
        self.wake_other(actions);
    }
    fn on_drain(&mut self, _: &mut Proxy, _: &mut Actions<'_>) {}

    fn closed(self, proxy: &mut Proxy, _: CloseCause) {
        let mut pair = self.pair.borrow_mut();
        pair.is_over = true;
        proxy.commands.extend(pair.ids[1 - self.side].map(Command::Wake));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let upstream: SocketAddr =
        arguments.next().ok_or("usage: proxy UPSTREAM [MECHANISM]")?.parse()?;
    let driver = arguments.next().map_or(Ok(Driver::default()), |name| name.parse())?;
    let proxy = Proxy { upstream: upstream.into(), commands: Vec::new() };
    let mut event_loop = EventLoop::<Half>::open(driver, proxy, Limits::default())?;
    let listener = Listener::open(&"127.0.0.1:0".parse()?, false)?;
    println!("proxy {}", listener.address());
    event_loop.listen(listener, false);
    loop {
        event_loop.turn(None)?;
    }
}
