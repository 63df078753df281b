//! Pools as processes: managers, workers and clients, each this very program in another role.
//!
//! The name of a test begins with the way in which requests travel, `memory::` or `queues::`.
//!
//! ```text
//!  pool [FILTER]             the tests whose names contain FILTER
//!  POLLUX_TEST_ROLE=…        a manager or a client that a test has started
//!  POLLUX_POOL_LINK=…        a worker that a manager has started
//!  POLLUX_KILL_SECONDS=60    how long the test of kills takes
//! ```

mod death;
mod guests;
mod kills;
mod left;
mod life;
mod memory;
mod orders;
mod roles;
mod support;

use std::process::ExitCode;

use pollux_testing::{run_tests, test};
use pollux_xatmi::environment::Transport;

/// Tests at once: most of their time is spent waiting for check cycles.
const THREADS: usize = 6;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(code) = roles::play() {
        return code;
    }
    let both = [life::TESTS, orders::TESTS, guests::TESTS, death::TESTS, left::TESTS, kills::TESTS]
        .concat();
    let memory = [&both, memory::TESTS].concat();
    let queues =
        [&both, life::QUEUE_TESTS, guests::QUEUE_TESTS, death::QUEUE_TESTS, left::QUEUE_TESTS];
    let over = |transport: Transport, tests: Vec<Test>| {
        tests.into_iter().map(move |(name, run)| {
            test(format!("{}::{name}", transport.name()), move || {
                support::TRANSPORT.set(transport);
                run();
            })
        })
    };
    let all = over(Transport::Memory, memory).chain(over(Transport::Queues, queues.concat()));
    run_tests(THREADS, None, all.collect())
}
