//! The library before a program that calls epoll by its own names: on every mechanism it sees what the
//! kernel's epoll does, but for what the table of deviations declares, and where calls are only passed
//! on or counted it sees no difference at all.
//!
//! The scripts are those of `crates/epoll-c/tests/deviations`. They run in a process for each mechanism, which
//! is this binary again with the library before its C library.

mod calls;
#[path = "../library/mod.rs"]
mod library;
#[path = "../../../epoll-c/tests/mechanisms/mod.rs"]
mod mechanisms;
mod panics;
#[path = "../../../epoll-c/tests/deviations/scripts/mod.rs"]
mod scripts;
#[path = "../../../epoll-c/tests/deviations/subject.rs"]
mod subject;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::thread;

use pollux_epoll_c::{Mechanism, deviations};
use pollux_testing::{Ended, Process};

use library::Memory;
use mechanisms::others;
use scripts::SCRIPTS;
use subject::Subject;

/// Says to a process that it runs the scripts.
const RUNS: &str = "POLLUX_TEST_RUNS_SCRIPTS";
/// Stands between the answers, which have lines of their own.
const END: &str = "\n--- end of script ";

/// Nothing but for [`answers`], which starts this binary again.
#[test]
fn this_runs_the_scripts() {
    if std::env::var_os(RUNS).is_none() {
        return;
    }
    for (name, script) in SCRIPTS {
        let seen = script(&Subject::new(Mechanism::Epoll));
        let mut output = std::io::stdout();
        write!(output, "{END}{name}\n{seen}{END}").expect("it is read");
        output.flush().expect("it is read");
    }
}

/// Nothing but for a script, which starts this binary again.
#[test]
fn this_is_a_new_program() {
    scripts::be_a_new_program();
}

/// What each script saw in a process that `adjust` makes.
fn answers(title: &str, adjust: impl FnOnce(&mut Command)) -> BTreeMap<String, String> {
    let mut command = Command::new(std::env::current_exe().expect("the own path"));
    command.args(["--exact", "this_runs_the_scripts"]).env(RUNS, "1");
    adjust(&mut command);
    let Ended { status, stdout: said, stderr } = Process::run(&mut command);
    assert!(status.success(), "{title}: {status}: {said}\n{stderr}");
    let parts = said.split(END).filter_map(|part| part.split_once('\n'));
    let answers: BTreeMap<String, String> =
        parts.map(|(name, seen)| (name.to_owned(), seen.to_owned())).collect();
    for (name, _) in SCRIPTS {
        assert!(answers.contains_key(*name), "{title}: no answer of {name} in {said}");
    }
    answers
}

#[test]
fn a_mechanism_differs_where_the_table_says_and_nowhere_else() {
    let expected = &answers("as it is", |_| {});
    let wrong: Vec<String> = thread::scope(|scope| {
        let mechanisms = [Mechanism::Epoll].into_iter().chain(others());
        let judged: Vec<_> = mechanisms
            .map(|mechanism| scope.spawn(move || differences(mechanism, expected)))
            .collect();
        judged.into_iter().flat_map(|judged| judged.join().expect("no panic")).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a mechanism does otherwise than declared, passed on and counted.
fn differences(mechanism: Mechanism, expected: &BTreeMap<String, String>) -> Vec<String> {
    let (library, memory) = (library::built(), Memory::new());
    let mut wrong = Vec::new();
    for is_counted in [false, true] {
        let title = format!("{mechanism}, counted: {is_counted}");
        let seen = answers(&title, |command| {
            command.env("LD_PRELOAD", &library).env("PX_POLLER", mechanism.name());
            if is_counted {
                memory.count(command);
            }
        });
        for (name, _) in SCRIPTS {
            let is_declared = deviations::is_of_preloaded(name, mechanism);
            let both = (&*expected[*name], &*seen[*name]);
            let judged = scripts::judge(name, mechanism, both, is_declared);
            wrong.extend(judged.map(|why| format!("{title}: {why}")));
        }
    }
    wrong
}
