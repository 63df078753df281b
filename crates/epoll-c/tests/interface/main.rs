//! The C interface as C programs see it: header, library and what each function answers.
//!
//! Every test compiles a small C program with the header and the library as they were built (that an installation
//! has them, and what pkg-config says of it, is tested in `xtask/src/install.rs`). Without a compiler they are
//! skipped with the reason, which `POLLUX_FORBID_SKIP` forbids.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pollux_conformance::rig::allowed;
use pollux_epoll_c::{BUILT_NAME, LINK_NAME, Mechanism, SONAME};
use pollux_testing::has;
use tempfile::TempDir;

/// The library under the names that linkers look for, and the compiler's flags for it.
struct Installed {
    folder: TempDir,
    flags: Vec<String>,
}

impl Installed {
    fn new() -> Option<Self> {
        if !has("cc") {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let tests = std::env::current_exe().expect("the own path");
        let built = tests.parent().expect("a folder").join(BUILT_NAME);
        for name in [SONAME, LINK_NAME] {
            symlink(&built, folder.path().join(name)).expect("a link");
        }
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include").to_owned();
        let found = format!("-L{}", folder.path().display());
        let flags = vec![include, found, "-lpollux_epoll".to_owned()];
        Some(Self { folder, flags })
    }

    /// Builds a program of `tests/interface` without a warning and returns its path.
    fn program(&self, source: &str, more: &[&str]) -> PathBuf {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interface").join(source);
        let output = self.folder.path().join("program");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        compiler.args(more).arg("-o").arg(&output).arg(path).args(&self.flags);
        compiler.arg(format!("-Wl,-rpath,{}", self.folder.path().display()));
        printed(&compiler.output().expect("the compiler"));
        output
    }
}

/// Asserts success and returns what was printed.
fn printed(output: &Output) -> String {
    let out = &output.stdout;
    let err = &output.stderr;
    let out = String::from_utf8_lossy(out).into_owned();
    assert!(output.status.success(), "{}: {out}{}", output.status, String::from_utf8_lossy(err));
    out
}

fn run(program: &Path, mechanism: Mechanism) -> String {
    let output = Command::new(program).env("PX_POLLER", mechanism.name()).output().expect("run");
    let status = output.status;
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(status.success(), "{mechanism}: {status}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn calls_answer_as_the_manual_pages_say_on_every_mechanism() {
    let Some(installed) = Installed::new() else { return };
    let program = installed.program("calls.c", &[]);
    for mechanism in allowed() {
        assert_eq!(run(&program, mechanism), format!("{mechanism}\n"));
    }
}

#[test]
fn a_program_written_for_epoll_runs_on_every_mechanism_by_other_names() {
    let Some(installed) = Installed::new() else { return };
    let names = ["epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait"];
    let names: Vec<String> = names.iter().map(|name| format!("-D{name}=px_{name}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let program = installed.program("streams.c", &names);
    for mechanism in allowed() {
        assert_eq!(run(&program, mechanism), "50000 bytes\n", "{mechanism}");
    }
}

#[test]
fn a_signal_that_only_the_wait_lets_through_ends_it() {
    let Some(installed) = Installed::new() else { return };
    let program = installed.program("signals.c", &[]);
    for mechanism in allowed() {
        assert_eq!(run(&program, mechanism), "2000\n", "{mechanism}");
    }
}

#[test]
fn threads_that_are_cancelled_leave_the_instance_to_others() {
    let Some(installed) = Installed::new() else { return };
    let program = installed.program("cancel.c", &[]);
    for mechanism in allowed() {
        assert_eq!(run(&program, mechanism), format!("{mechanism}\n"));
    }
}

#[test]
fn a_child_goes_its_own_way_with_a_copy_on_every_mechanism_but_epoll() {
    let Some(installed) = Installed::new() else { return };
    let program = installed.program("fork.c", &[]);
    for mechanism in allowed() {
        let expected = if mechanism == Mechanism::Epoll { "shared\n" } else { "copied\n" };
        assert_eq!(run(&program, mechanism), expected, "{mechanism}");
    }
}

#[test]
fn the_header_is_for_cpp_too() {
    let Some(installed) = Installed::new() else { return };
    if !has("c++") {
        return;
    }
    let source = installed.folder.path().join("header.cc");
    std::fs::write(&source, "#include <pollux/epoll.h>\n#include <pollux/epoll.h>\n").expect("");
    let mut compiler = Command::new("c++");
    compiler.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]).arg(&source);
    printed(&compiler.args(&installed.flags).output().expect("the compiler"));
}
