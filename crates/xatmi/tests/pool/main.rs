//! Pools as processes: managers, workers and clients, each this very program in another role.
//!
//! ```text
//!  pool [FILTER]             the tests whose names hold FILTER, with requests in memory and by queues
//!  pool memory [FILTER]      only in memory; the same with queues
//!  POLLUX_TEST_ROLE=…        a manager or a client that a test has started
//!  POLLUX_POOL_LINK=…        a worker that a manager has started
//!  POLLUX_KILL_SECONDS=60    how long the test of kills takes
//! ```

mod crowd;
mod death;
mod guests;
mod kills;
mod left;
mod life;
mod memory;
mod orders;
mod roles;
mod support;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_xatmi::environment::Transport;

/// Tests at once: most of their time is spent waiting for check cycles.
const THREADS: usize = 6;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(code) = roles::play() {
        return code;
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let names = filters.iter().filter(|part| Transport::named(part).is_none());
    let names: Vec<&String> = names.collect();
    let is_wanted = |(transport, test): &(Transport, Test)| {
        let is_its = filters.iter().filter_map(|part| Transport::named(part));
        let is_its = is_its.into_iter().all(|only| only == *transport);
        is_its && (names.is_empty() || names.iter().any(|part| test.0.contains(*part)))
    };
    let both = [
        life::TESTS,
        orders::TESTS,
        guests::TESTS,
        death::TESTS,
        left::TESTS,
        kills::TESTS,
        crowd::TESTS,
    ]
    .concat();
    let queues = [life::QUEUE_TESTS, guests::QUEUE_TESTS, death::QUEUE_TESTS, left::QUEUE_TESTS];
    let all = both.iter().chain(memory::TESTS).map(|test| (Transport::Memory, *test));
    let queues = both.iter().chain(queues.into_iter().flatten());
    let all = all.chain(queues.map(|test| (Transport::Queues, *test)));
    let tests: Vec<(Transport, Test)> = all.filter(is_wanted).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(tests.len()) {
            scope.spawn(|| {
                while let Some((transport, (name, test))) =
                    tests.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    support::TRANSPORT.set(*transport);
                    let (passed, by) = (catch_unwind(*test).is_ok(), transport.name());
                    let ended = if passed { "ok" } else { "FAILED" };
                    support::say(&format!("test {by} {name} ... {ended}"));
                    if !passed {
                        failed.lock().expect("no thread panics here").push((by, *name));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panics here");
    support::say(&format!("{} tests, {} failed: {failed:?}", tests.len(), failed.len()));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
