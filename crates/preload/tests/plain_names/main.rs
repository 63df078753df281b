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
use std::io::Write;
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
    let Output { status, stdout: said, stderr } = Process::run(&mut command);
    assert!(status.success(), "{title}: {status}: {said}\n{stderr}");
    assert!(!stderr.contains("past the C library"), "{title}: {stderr}");
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
        let mechanisms = [Mechanism::Epoll].into_iter().chain(allowed_but_epoll());
        let judged: Vec<_> = mechanisms
            .map(|mechanism| scope.spawn(move || differences(mechanism, expected)))
            .collect();
        judged.into_iter().flat_map(|judged| judged.join().expect("no panic")).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a mechanism does otherwise than declared, passed on and counted.
fn differences(mechanism: Mechanism, expected: &BTreeMap<String, String>) -> Vec<String> {
    let library = library::built();
    let memory = Memory::new();
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
            let declared = deviations::of_preloaded(name, mechanism);
            let both = (&*expected[*name], &*seen[*name]);
            let judged = scripts::judge(name, mechanism, both, declared);
            wrong.extend(judged.map(|why| format!("{title}: {why}")));
        }
    }
    wrong
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
