//! Streams, exit codes and signals are those of the program.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_testing::{Output, Pid, Process, Signal, await_end, has, skip};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::{built, read, run, text};

/// Another user than any that tests run as.
const NOBODY: u32 = 65534;

#[test]
fn the_exit_code_is_that_of_the_program_and_the_table_goes_to_standard_error() {
    let Some((_folder, program)) = built("clean", &[]) else { return };
    let program = program.to_str().expect("UTF-8");
    let output = run(&["--", program, "7"]).output().expect("pollux starts");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "");
    let table = text(&output.stderr);
    assert!(table.contains("4,000 events") && table.contains("events per wait"), "{table}");
    assert!(!table.contains('\x1b'), "{table}");
}

#[test]
fn a_report_has_curves_tables_and_nothing_from_elsewhere() {
    let Some((folder, program)) = built("blocks", &[]) else { return };
    let page = folder.path().join("loop.html");
    let output = run(&["--quiet", "--report"]).arg(&page).arg("--").arg(&program).output();
    let output = output.expect("pollux starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let page = std::fs::read_to_string(page).expect("a page");
    for part in ["class=\"finding\"", "Longest turns", "nanosleep", "id=\"histograms\""] {
        assert!(page.contains(part), "{part}");
    }
    for foreign in ["<script", "<link", "src=", "http://", "https://"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

/// What memcached and nginx do: they are started by root and serve as another user.
#[test]
fn a_program_that_becomes_another_user_is_counted() {
    if !geteuid().is_root() {
        return skip("only root may become another user");
    }
    let Some((folder, program)) = built("other_user", &[]) else { return };
    let json = folder.path().join("figures.json");
    let output = run(&["--quiet", "--json"]).arg(&json).arg("--").arg(&program).output();
    let output = output.expect("pollux starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(read(&json, &output)["total"]["empty_polls"], 1);
}

#[test]
fn a_script_and_what_it_starts_have_their_streams_and_a_signal_ends_them() {
    let words = ["--", "sh", "-c", "read line; echo \"got $line\"; exec cat"];
    let mut command = run(&words);
    let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut input = process.take_stdin();
    input.write_all(b"words\n").expect("written");
    let mut said = String::new();
    let mut output = BufReader::new(process.take_stdout());
    output.read_line(&mut said).expect("a line");
    assert_eq!(said, "got words\n");
    process.signal(Signal::TERM);
    let Output { status, stderr: said, .. } = process.ended();
    assert_eq!(status.code(), Some(128 + 15));
    assert!(said.contains("No process called epoll by the C library in "), "{said}");
}

/// What a shell starts in the background ignores the signals of a keyboard, and may ignore SIGTERM.
#[test]
fn what_a_command_leaves_behind_ends_by_interrupts() {
    // Each says its number when it is ready for signals.
    for (left, ends_by) in [
        ("echo $$; exec sleep 1000", 1),
        ("trap \"echo asked\" TERM; echo $$; while :; do sleep 1; done", 2),
    ] {
        let script = format!("sh -c '{left}' & exit 3");
        let mut command = run(&["--quiet", "--", "sh", "-c", &script]);
        let mut process = Process::start(command.stdout(Stdio::piped()));
        let mut output = BufReader::new(process.take_stdout()).lines();
        let mut next = || output.next().expect("a line").expect("UTF-8");
        let left: i32 = next().parse().expect("a number");
        process.wait_for_stderr_line("left processes behind");
        process.signal(Signal::INT);
        if ends_by > 1 {
            assert_eq!(next(), "asked");
            process.signal(Signal::INT);
        }
        assert_eq!(process.wait().code(), Some(3));
        await_end(Pid::from_raw(left).expect("a process"));
    }
}

#[test]
fn a_program_without_the_environment_is_reported_as_not_counted() {
    let Some((folder, program)) = built("clean", &[]) else { return };
    let json = folder.path().join("figures.json");
    let program = program.to_str().expect("UTF-8");
    // The one that is not found was not started.
    let script = format!("env -i {program}; env -i no-such-program; {program}");
    let output = run(&["--json"]).arg(&json).args(["--", "sh", "-c", &script]).output();
    let output = output.expect("pollux starts");
    let figures = read(&json, &output);
    assert_eq!(figures["programs_uncounted"], 1, "{figures:#}");
    assert_eq!(figures["total"]["events"], 4000);
    let said = text(&output.stderr);
    assert!(said.contains("one program started with an environment without LD_PRELOAD"), "{said}");
    let alone = run(&["--", "env", "-i", program]).output().expect("pollux starts");
    let said = text(&alone.stderr);
    assert!(
        said.contains("No process called epoll by the C library in ")
            && said.contains("One program"),
        "{said}"
    );
}

/// By script(1), which gives a program a terminal.
#[test]
fn on_a_terminal_the_live_view_is_redrawn_in_place() {
    let pollux = env!("CARGO_BIN_EXE_pollux");
    if !has("script") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a named pipe");
    let command = format!("{pollux} run --quiet --live -- cat {}", pipe.display());
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    let mut process = Process::start(script.stdout(Stdio::piped()));
    let mut output = process.take_stdout();
    let mut said = String::new();
    while said.matches("longest turn").count() < 2 {
        let mut part = [0; 4096];
        let len = output.read(&mut part).expect("its output");
        assert!(len > 0, "the end after {said:?}");
        said.push_str(&String::from_utf8_lossy(&part[..len]));
    }
    // The program reads its end, and ends.
    drop(std::fs::OpenOptions::new().write(true).open(&pipe).expect("it reads"));
    assert!(process.wait().success() && said.contains("events/s"), "{said:?}");
    // The cursor goes up over the lines before they are drawn again.
    assert!(said.contains("\x1b[") && !said.contains("ctl/s"), "{said:?}");
}

/// What is out of reach is refused before it starts.
/// The variable of the dynamic linker has spaces and colons between names, and `$LIB` for something else.
#[test]
fn pollux_in_a_folder_with_a_space_a_colon_and_a_dollar_counts_as_anywhere() {
    let Some((folder, program)) = built("clean", &[]) else { return };
    let own = Path::new(env!("CARGO_BIN_EXE_pollux"));
    let installed = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let odd = installed.path().join("a b:c$LIB");
    std::fs::create_dir_all(odd.join("deps")).expect("a folder");
    let library = "deps/libpollux_preload.so";
    let built = own.parent().expect("a folder").join(library);
    std::fs::copy(own, odd.join("pollux")).expect("a copy");
    std::fs::copy(built, odd.join(library)).expect("a copy");
    let json = folder.path().join("figures.json");
    let mut command = Command::new(odd.join("pollux"));
    command.args(["run", "--quiet", "--poller", "poll", "--json"]).arg(&json).arg("--");
    let output = command.arg(&program).output().expect("it starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(read(&json, &output)["total"]["adds"], 8);
}

fn refused(program: &str, code: i32, words: &str) {
    let output = run(&["--", program]).output().expect("pollux starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.starts_with(&format!("error: {program}")) && said.contains(words), "{said}");
    assert_eq!(text(&output.stdout), "", "it did not run");
}

#[test]
fn a_static_program_is_refused() {
    let Some((_folder, program)) = built("clean", &["-static"]) else { return };
    refused(program.to_str().expect("UTF-8"), 126, "static");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    refused("no-such-program", 127, "program not found");
    let output = run(&["--", "-x"]).output().expect("pollux starts");
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
}

#[test]
fn an_unknown_flag_is_not_taken_for_the_program() {
    for words in [&["--no-such", "true"][..], &["--poller", "poll", "-x", "--", "true"]] {
        let output = run(words).output().expect("pollux starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(": no such flag; expected those of pollux run --help"), "{said}");
    }
}

#[test]
fn a_go_program_is_refused() {
    let Some(go) = pollux_host::find_program("go") else {
        return skip("no Go program is known here: go is not installed");
    };
    refused(go.to_str().expect("UTF-8"), 126, "a Go program");
}

/// A program with the setuid bit, whose owner is this user or another one.
fn setuid(owner: Option<u32>) -> Option<(TempDir, PathBuf)> {
    let (folder, program) = built("clean", &[])?;
    chown(&program, owner, None).expect("root may");
    std::fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("its owner may");
    Some((folder, program))
}

#[test]
fn a_setuid_program_is_refused() {
    if !geteuid().is_root() {
        return skip("only root may give a file to another user");
    }
    let Some((_folder, program)) = setuid(Some(NOBODY)) else { return };
    refused(program.to_str().expect("UTF-8"), 126, "setuid");
}

#[test]
fn a_program_that_is_setuid_to_the_same_user_is_run() {
    let Some((_folder, program)) = setuid(None) else { return };
    let output = run(&["--"]).arg(&program).arg("3").output().expect("pollux starts");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).contains("4,000 events"), "{output:?}");
}

#[test]
fn a_program_that_gains_capabilities_is_refused() {
    /// VFS_CAP_REVISION_2 of linux/capability.h, with CAP_NET_BIND_SERVICE permitted and effective.
    const CAPABILITIES: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    if !geteuid().is_root() {
        return skip("only root may give a file capabilities");
    }
    let Some((folder, program)) = built("clean", &[]) else { return };
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
    let value = CAPABILITIES.map(u32::to_le_bytes).concat();
    if let Err(error) = setxattr(&program, "security.capability", &value, XattrFlags::empty()) {
        return skip(format!("no capabilities of files here: {error}"));
    }
    let output = match run(&["--"]).arg(&program).uid(NOBODY).gid(NOBODY).output() {
        Ok(output) => output,
        Err(error) => return skip(format!("another user may not start pollux: {error}")),
    };
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    assert!(text(&output.stderr).contains("gives it capabilities"), "{output:?}");
    // Root has them anyhow.
    let output = run(&["--"]).arg(&program).output().expect("pollux starts");
    assert!(text(&output.stderr).contains("4,000 events"), "{output:?}");
}

#[test]
fn what_may_not_be_executed_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes");
    std::fs::write(&path, "#!/bin/sh\n").expect("written");
    for path in [folder.path(), &path] {
        refused(path.to_str().expect("UTF-8"), 126, "not a file that may be executed");
    }
}

#[test]
fn a_text_that_is_not_a_script_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes");
    std::fs::write(&path, "words\n").expect("written");
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its owner may");
    refused(path.to_str().expect("UTF-8"), 126, "neither a 64-bit ELF program nor a script");
}
