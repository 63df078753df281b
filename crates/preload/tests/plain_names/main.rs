//! The library before a program that calls epoll by its own names: on every mechanism it sees what the
//! kernel's epoll does, but for what the table of deviations declares, and where calls are only passed
//! on or counted it sees no difference at all.
//!
//! The scripts are those of `crates/epoll-c/tests/deviations`. They run in a process for each mechanism, which
//! is this binary again with the library before its C library.

#[path = "../library/mod.rs"]
mod library;
#[path = "../../../epoll-c/tests/deviations/scripts/mod.rs"]
mod scripts;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use pollux_conformance::rig::allowed_but_epoll;
use pollux_epoll_c::{Mechanism, deviations};
use pollux_testing::{Output, Process, has, skip};

use library::{self as calls, Memory};
use scripts::{SCRIPTS, Subject};

/// Says to a process that it runs the scripts.
const RUNS: &str = "POLLUX_TEST_RUNS_SCRIPTS";

/// Nothing but for [`answers`], which starts this binary again.
#[test]
fn this_runs_the_scripts() {
    if std::env::var_os(RUNS).is_none() {
        return;
    }
    scripts::print_answers(Mechanism::Epoll);
    // Until the end, where the library looks for what it did not make.
    let subject = Subject::new(Mechanism::Epoll);
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    subject.add(&listener, libc::EPOLLIN, 1);
    assert!(subject.wait(Duration::ZERO).is_empty(), "nobody connects");
    std::mem::forget((subject, listener));
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
    scripts::answers_of(title, &mut command)
}

#[test]
fn a_mechanism_differs_where_the_table_says_and_nowhere_else() {
    let mechanisms = [Mechanism::Epoll].into_iter().chain(allowed_but_epoll());
    // Passed on, and counted; most of a script is waiting.
    let cases = mechanisms.flat_map(|mechanism| [(mechanism, false), (mechanism, true)]);
    let (expected, seen) = thread::scope(|scope| {
        let seen: Vec<_> = cases.map(|case| scope.spawn(move || (case, seen_by(case)))).collect();
        let expected = answers("as it is", |_| {});
        let seen = seen.into_iter().map(|seen| seen.join().expect("no panic"));
        (expected, seen.collect::<Vec<_>>())
    });
    let mut wrong = Vec::new();
    for (case, seen) in seen {
        let title = title(case);
        for (name, _) in SCRIPTS {
            let declared = deviations::of_preloaded(name, case.0);
            let both = (&*expected[*name], &*seen[*name]);
            let judged = scripts::judge(name, case.0, both, declared);
            wrong.extend(judged.map(|why| format!("{title}: {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What each script saw on a mechanism, which counts or does not.
fn seen_by((mechanism, is_counted): (Mechanism, bool)) -> BTreeMap<String, String> {
    let library = library::built();
    let memory = Memory::new();
    answers(&title((mechanism, is_counted)), |command| {
        command.env("LD_PRELOAD", &library).env("PX_POLLER", mechanism.name());
        if is_counted {
            memory.count(command);
        }
    })
}

fn title((mechanism, is_counted): (Mechanism, bool)) -> String {
    format!("{mechanism}, counted: {is_counted}")
}

/// A panic of the library stays in it: the program continues, with the kernel's answer where something was only
/// counted, and with an errno where the library stood in the kernel's place.
#[test]
fn a_program_continues_after_a_panic_of_the_library() {
    let tests = std::env::current_exe().expect("the own path");
    let built = tests.parent().and_then(Path::parent).expect("two folders up");
    let library = built.join("examples/libplanted.so");
    if !library.exists() {
        return skip("the example is not built (cargo build -p pollux-preload --examples)");
    }
    if !has("cc") {
        return skip("no compiler: expected cc in PATH");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("planted");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plain_names/planted.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o"]);
    let compiled = Process::run(compiler.arg(&program).arg(source));
    assert!(compiled.status.success(), "{}", compiled.stderr);
    let memory = Memory::new();
    for mechanism in ["epoll", "poll"] {
        let mut run = Command::new(&program);
        run.env("LD_PRELOAD", &library).env("PX_POLLER", mechanism);
        memory.count(&mut run);
        let Output { status, stdout, stderr: said } = Process::run(&mut run);
        assert!(status.success(), "{mechanism}: {status}: {said}");
        assert_eq!(stdout, "done\n", "{mechanism}");
        let lines: Vec<&str> = said.lines().collect();
        let [counted, replaced] = lines[..] else { panic!("{mechanism}: not two lines: {said}") };
        for (line, call, end) in [
            (counted, "getppid: fault in the library, the thread is no longer", "it counts"),
            (replaced, "getpgrp: fault in the library, this call fails with", "of the call"),
        ] {
            let starts = line.starts_with(&format!("pollux: {call}"));
            assert!(starts && line.ends_with(end), "{mechanism}: {line}");
        }
    }
}
