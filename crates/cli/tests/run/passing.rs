//! Streams, exit codes and signals are those of the program.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::programs::{built, read, run, skip, text};

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

/// What memcached and nginx do: who starts them is root, who serves is not.
#[test]
fn a_program_that_becomes_another_user_is_counted() {
    if !rustix::process::geteuid().is_root() {
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
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pollux starts");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"words\n").expect("written");
    let mut said = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    output.read_line(&mut said).expect("a line");
    assert_eq!(said, "got words\n");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(128 + 15));
    let said = text(&ended.stderr);
    assert!(said.contains("no process called epoll"), "{said}");
}

/// What a shell starts in the background ignores the signals of a keyboard, and may ignore SIGTERM.
#[test]
fn what_a_command_leaves_behind_ends_by_interrupts() {
    for (left, ends_by) in
        [("sleep 1000", 1), ("trap 'echo asked' TERM; while :; do sleep 1; done", 2)]
    {
        let script = format!("({left}) & echo $!; exit 3");
        let mut command = run(&["--quiet", "--", "sh", "-c", &script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("pollux starts");
        let pid = Pid::from_child(&child);
        let mut output = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut next = || output.next().expect("a line").expect("UTF-8");
        let left: i32 = next().parse().expect("a number");
        let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
        let line = said.next().expect("a line").expect("UTF-8");
        assert!(line.contains("left processes behind"), "{line}");
        kill_process(pid, Signal::INT).expect("it runs");
        if ends_by > 1 {
            assert_eq!(next(), "asked");
            kill_process(pid, Signal::INT).expect("it runs");
        }
        assert_eq!(child.wait().expect("it ends").code(), Some(3));
        let left = Pid::from_raw(left).expect("a process");
        assert!(rustix::process::test_kill_process(left).is_err(), "{left:?} is still there");
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
    assert!(said.contains("no process called epoll") && said.contains("One program"), "{said}");
}

/// By script(1), which gives a program a terminal.
#[test]
fn on_a_terminal_the_live_view_is_redrawn_in_place() {
    let pollux = env!("CARGO_BIN_EXE_pollux");
    // Its wait of 2.2 s ends the program.
    let command = format!("{pollux} run --quiet --live -- sleep 2.2");
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    let Ok(output) = script.output() else { return skip("no script(1)") };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let drawn = said.matches("longest turn").count();
    assert!(drawn >= 2 && said.contains("events/s"), "{said:?}");
    // The cursor goes up over the lines before they are drawn again.
    assert!(said.contains("\x1b[") && !said.contains("ctl/s"), "{said:?}");
}
