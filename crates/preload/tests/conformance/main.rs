//! The conformance suite of the pollers through the plain names of epoll, with the library before the C
//! library: on each mechanism, by one thread, by two, by a child, and by a program that has the instance from
//! the one before it. The same table of differences, as in `crates/epoll-c/tests/conformance`.

#[path = "../plain_names/calls.rs"]
#[expect(dead_code, reason = "scripts of another kind use the others")]
mod calls;
#[path = "../../../epoll-c/tests/conformance/groups.rs"]
mod groups;
#[path = "../../../epoll-c/tests/conformance/interface.rs"]
mod interface;
#[path = "../library/mod.rs"]
#[expect(dead_code, reason = "what is counted is judged by tests of another kind")]
mod library;
#[path = "../../../poller/tests/suite/mod.rs"]
#[expect(dead_code, reason = "the verbs of the other test binaries stand there too")]
mod suite;
#[path = "../../../epoll-c/tests/conformance/ways.rs"]
mod ways;

use std::process::ExitCode;

use pollux_poller::{Backend, Error, Mechanism, Poller};

use suite::runner::say;
use ways::Way;

/// Names the mechanism, to the library and to this binary.
const MECHANISM: &str = "PX_POLLER";

const MECHANISMS: [(Mechanism, &[Backend]); 5] = [
    (Mechanism::Select, &[Backend::Select]),
    (Mechanism::Poll, &[Backend::Poll]),
    (Mechanism::Aio, &[Backend::Aio]),
    (Mechanism::Epoll, &[Backend::Epoll]),
    (Mechanism::UringPoll, &[Backend::Uring]),
];

fn main() -> ExitCode {
    if let Some(way) = Way::of_this_process() {
        let name = std::env::var(MECHANISM).expect("said by the first process");
        let is_it = |(mechanism, _): &&(Mechanism, &[Backend])| mechanism.name() == name;
        let (mechanism, backends) = MECHANISMS.iter().find(is_it).expect("a mechanism");
        let title = format!("by the plain names on {mechanism}, {}", way.title());
        return way.run(title.leak(), backends);
    }
    let library = library::built();
    let has_passed = |(mechanism, way): (Mechanism, Way)| {
        let mut process = way.process();
        process.env("LD_PRELOAD", &library).env(MECHANISM, mechanism.name());
        process.status().expect("it starts").success()
    };
    let mut failed = 0;
    for (mechanism, _) in MECHANISMS {
        if let Err(refused) = mechanism.open() {
            assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{mechanism}: {refused}");
            say(&format!("skip    {mechanism}: {refused}"));
            continue;
        }
        // All of them, also behind one that failed.
        failed += Way::ALL.iter().filter(|way| !has_passed((mechanism, **way))).count();
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The poller that the scripts run on.
fn open(mechanism: Mechanism) -> Result<Box<dyn Poller>, Error> {
    let way = Way::of_this_process().expect("said by the first process");
    Ok(Box::new(interface::Interface::open(mechanism, way)?))
}
