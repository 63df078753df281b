//! A panic of the library stays in it: the program continues, with the kernel's answer where something was
//! only counted, and with an errno where the library stood in the kernel's place.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Command;

use pollux_loop_stats::{Region, VARIABLE, WORDS};
use pollux_sys::shared::SharedWords;

/// Says why a test does not run, which `POLLUX_FORBID_SKIP` forbids.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skip(reason: &str) {
    assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
}

#[test]
fn a_program_continues_after_a_panic_of_the_library() {
    let tests = std::env::current_exe().expect("the own path");
    let built = tests.parent().and_then(Path::parent).expect("two folders up");
    let library = built.join("examples/libplanted.so");
    if !library.exists() {
        return skip("the example is not built (cargo build -p pollux-preload --examples)");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("planted");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/panics/planted.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o"]);
    let Ok(compiled) = compiler.arg(&program).arg(source).output() else {
        return skip("no compiler");
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let words = SharedWords::create(WORDS).expect("memory");
    Region::begin(&words).expect("as many words as it has");
    let memory = format!("/proc/{}/fd/{}", std::process::id(), words.as_fd().as_raw_fd());
    for mechanism in ["epoll", "poll"] {
        let mut run = Command::new(&program);
        run.env("LD_PRELOAD", &library).env("PX_POLLER", mechanism).env(VARIABLE, &memory);
        let output = run.output();
        let output = output.expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{mechanism}: {}: {said}", output.status);
        assert_eq!(output.stdout, b"done\n", "{mechanism}");
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
