//! A panic of the library stays in it: the program continues, with the kernel's answer where something was
//! only counted, and with an errno where the library stood in the kernel's place.

use std::path::Path;
use std::process::Command;

use pollux_testing::{Ended, Process, has, skip};

use crate::library::Memory;

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
        let Ended { status, stdout, stderr: said } = Process::run(&mut run);
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
