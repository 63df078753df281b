//! Streams, exit codes and signals are those of the program.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::programs::{built, run, text};

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
