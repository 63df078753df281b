//! Pools as processes: managers, workers and clients, each this very program in another role.
//!
//! ```text
//!  pool [FILTER]             the tests whose names hold FILTER
//!  POLLUX_TEST_ROLE=…        a manager or a client that a test has started
//!  POLLUX_POOL_LINK=…        a worker that a manager has started
//!  POLLUX_KILL_SECONDS=60    how long the test of kills goes on
//! ```

mod crowd;
mod death;
mod guests;
mod kills;
mod left;
mod life;
mod orders;
mod roles;
mod support;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tests at once: most of their time is spent waiting for check cycles.
const THREADS: usize = 6;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(code) = roles::play() {
        return code;
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted =
        |test: &&Test| filters.is_empty() || filters.iter().any(|part| test.0.contains(part));
    let all = [
        life::TESTS,
        orders::TESTS,
        guests::TESTS,
        death::TESTS,
        left::TESTS,
        kills::TESTS,
        crowd::TESTS,
    ]
    .concat();
    let tests: Vec<&Test> = all.iter().filter(is_wanted).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(tests.len()) {
            scope.spawn(|| {
                while let Some((name, test)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let passed = catch_unwind(*test).is_ok();
                    support::say(&format!(
                        "test {name} ... {}",
                        if passed { "ok" } else { "FAILED" }
                    ));
                    if !passed {
                        failed.lock().expect("no thread panics here").push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panics here");
    support::say(&format!("{} tests, {} failed: {failed:?}", tests.len(), failed.len()));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
