//! The conformance suite of the pollers through the plain names of epoll, with the library before the C
//! library: on each mechanism, by one thread, by two, by a child, and by a program that has the instance from
//! the one before it. The same table of differences, and the same names of the tests, as in
//! `crates/epoll-c/tests/conformance`.

#[path = "../../../epoll-c/tests/conformance/interface.rs"]
mod interface;
#[path = "../library/mod.rs"]
#[expect(dead_code, reason = "what is counted is judged by tests of another kind")]
mod library;

use std::process::ExitCode;

use pollux_conformance::runner::{self, Way};
use pollux_poller::{Error, Mechanism, Poller};

use library as calls;

fn main() -> ExitCode {
    let suite = |way: Way| {
        way.suite(open, |process, backend| {
            process.env("LD_PRELOAD", library::built()).env("PX_POLLER", backend.name());
        })
    };
    runner::main(&Way::ALL.map(suite), &[])
}

/// The poller that the scripts run on.
fn open(mechanism: Mechanism) -> Result<Box<dyn Poller>, Error> {
    Ok(Box::new(interface::Interface::open(mechanism, Way::of_this_process())?))
}
