//! What an echo costs on each loop, and without one: `cargo bench -p pollux-engine`.
//!
//! Times of one process on one machine: to see what a change to a loop does before the lab decides it
//! (`pollux lab version`), which puts both builds side by side.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use divan::Bencher;
use divan::counter::BytesCount;
use pollux_engine::{Actions, Driver, EventLoop, Limits, Now, Rehearsal, Session};

fn main() {
    divan::main();
}

const DRIVERS: [&str; Driver::ALL.len()] = {
    let mut names = [""; Driver::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Driver::ALL[at].name();
        at += 1;
    }
    names
};

struct Echo;

impl Session for Echo {
    type Shared = ();

    fn accepted((): &mut (), _: &mut Actions<'_>) -> Self {
        Self
    }

    fn on_bytes(&mut self, (): &mut (), actions: &mut Actions<'_>, input: &[u8]) -> usize {
        let len = input.len().min(actions.room());
        actions.send(&input[..len]);
        if len < input.len() {
            actions.notify_when_sent();
        }
        len
    }
}

/// What the code around a session costs, with no kernel in it.
#[divan::bench(args = [64, 16_384])]
fn rehearsed(bencher: Bencher<'_, '_>, len: usize) {
    let mut echo = Rehearsal::<Echo>::new((), Now::default());
    let sent = vec![7; len];
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        echo.feed(&sent);
        echo.take_output().len()
    });
}

/// One message there and back over a unix socket, with both ends in this thread.
#[divan::bench(args = DRIVERS)]
fn there_and_back(bencher: Bencher<'_, '_>, driver: &str) {
    let driver: Driver = driver.parse().expect("a driver");
    // Forbidden here: the row has no figure.
    let Ok(mut event_loop) = EventLoop::<Echo>::open(driver, (), Limits::default()) else { return };
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("set");
    peer.set_nonblocking(true).expect("set");
    event_loop.adopt(ours.into(), Echo).map_err(|(_, _, error)| error).expect("a stream");
    let sent = [7; 64];
    let mut got = [0; 64];
    bencher.bench_local(|| {
        peer.write_all(&sent).expect("room");
        loop {
            event_loop.turn(Some(Duration::ZERO)).expect("it turns");
            match peer.read(&mut got) {
                Ok(len) => return len,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
    });
}
