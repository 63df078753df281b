//! A client of many peers: opens connections at once, sends a line to each, and counts the answers.
//!
//! ```text
//! cargo run -p pollux-engine --example client -- ADDRESS CONNECTIONS [MECHANISM]
//! ```
//!
//! Each connection sends one line to an echo server and waits for it to come back, for five
//! seconds at most.
#![expect(clippy::print_stdout, reason = "a program that talks to a person")]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use pollux_engine::{Actions, ConnectTo, Driver, EventLoop, Limits, Session};

const QUESTION: &[u8] = b"hello?\n";
const TIME: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Outcome {
    answers: u32,
    late: u32,
    refused: u32,
}

struct Question;

impl Session for Question {
    type Shared = Outcome;

    fn accepted(_: &mut Outcome, _: &mut Actions<'_>) -> Self {
        unreachable!("a client does not listen")
    }

    fn connected(&mut self, _: &mut Outcome, actions: &mut Actions<'_>) {
        actions.send(QUESTION);
    }

    fn connect_failed(&mut self, outcome: &mut Outcome, error: io::Error) {
        println!("not connected: {error}");
        outcome.refused += 1;
    }

    fn on_bytes(
        &mut self,
        outcome: &mut Outcome,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        if input.len() < QUESTION.len() {
            // It comes again with the rest.
            return 0;
        }
        outcome.answers += u32::from(input == QUESTION);
        actions.close();
        input.len()
    }

    fn on_deadline(&mut self, outcome: &mut Outcome, actions: &mut Actions<'_>) {
        outcome.late += 1;
        actions.abort();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: client ADDRESS CONNECTIONS [MECHANISM]";
    let peer: SocketAddr = arguments.next().ok_or(usage)?.parse()?;
    let connections: u32 = arguments.next().ok_or(usage)?.parse()?;
    let driver = arguments.next().map_or(Ok(Driver::default()), |name| name.parse())?;
    let outcome = Outcome::default();
    let mut event_loop = EventLoop::<Question>::open(driver, outcome, Limits::default())?;
    let to = ConnectTo::from(peer);
    let deadline = event_loop.now().at + TIME;
    for _ in 0..connections {
        event_loop.connect(&to, Question, deadline).map_err(|(_, error)| error)?;
    }
    while event_loop.open_connections() > 0 {
        event_loop.turn(None)?;
    }
    let Outcome { answers, late, refused } = event_loop.shared();
    println!("{connections} connections, {answers} answers, {late} late, {refused} refused");
    Ok(())
}
