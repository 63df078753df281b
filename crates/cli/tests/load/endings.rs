//! How runs end: exit codes, signals, and findings that nobody can miss.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::run::{PATIENCE, Server, interrupted_until_it_ends, load, started};

/// An address where nobody listens: its port was free a moment ago.
pub(crate) fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}/", listener.local_addr().expect("bound"))
}

#[test]
fn a_server_that_is_not_there_ends_the_run_after_a_second() {
    let began = Instant::now();
    let said = load(&["-d", "60s", "-c", "4", &nobody()]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("Connection refused"), "{said:?}");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn a_rate_that_was_missed_is_an_exit_code_and_is_said_beside_json() {
    let server = Server::start();
    // One connection for a request at a time can't reach that on any machine.
    let flags = ["--rate", "2000000", "-c", "1", "-d", "300ms", "--warm-up", "0s"];
    let said = load(&[&flags[..], &["--json", "-", "--quiet", &server.url]].concat());
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("!!") && said.stderr.contains("2,000,000"), "{said:?}");
    let json = said.json();
    let kinds = json["findings"].as_array().expect("findings").iter();
    assert!(kinds.clone().any(|finding| finding["kind"] == "rate-missed"), "{said:?}");
}

#[test]
fn a_host_that_cannot_be_looked_up_is_not_a_wrong_flag() {
    let said = load(&["-n", "1", "http://pollux.invalid/"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("\"pollux.invalid\" can't be looked up"), "{said:?}");
}

#[test]
fn a_server_that_dies_in_the_middle_is_an_exit_code() {
    let server = Server::start();
    let mut load = started(&["-d", "3s", "--warm-up", "0s", "-c", "2", "--json", "-", &server.url]);
    let mut stderr = BufReader::new(load.stderr.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("1.0 s") {
        assert!(stderr.read_line(&mut said).expect("lines") > 0, "{said}");
    }
    drop(server);
    stderr.read_to_string(&mut said).expect("text");
    assert_eq!(load.wait().expect("it ends").code(), Some(3), "{said}");
    assert!(said.contains("!! nothing was answered for "), "{said}");
}

#[test]
fn answers_that_are_not_as_expected_are_an_exit_code() {
    let server = Server::start();
    for (expectation, kind) in [("--expect-status=201", "status"), ("--expect-bytes=5", "mismatch")]
    {
        let said = load(&["-n", "2000", "-c", "2", expectation, "--json", "-", "-q", &server.url]);
        assert_eq!(said.code, Some(3), "{said:?}");
        assert_eq!(said.json()["errors"][kind], 2_000, "{expectation}");
    }
    let right = ["--expect-status=200", "--expect-bytes=128"];
    let said = load(&[&["-n", "2000", "-c", "2"], &right[..], &[&*server.url]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn the_first_interrupt_ends_the_run_and_shows_its_result() {
    let server = &Server::start();
    let ends = |(signal, code)| {
        let flags = ["-d", "60s", "--warm-up", "0s", "-c", "2", "--json", "-", &server.url];
        let mut load = started(&flags);
        let mut stderr = BufReader::new(load.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("1.0 s") {
            assert!(stderr.read_line(&mut said).expect("lines") > 0, "{said}");
        }
        kill_process(Pid::from_child(&load), signal).expect("it runs");
        let mut stdout = String::new();
        load.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
        assert_eq!(load.wait().expect("it ends").code(), Some(code), "{said}");
        let json: Value = serde_json::from_str(&stdout).expect("JSON");
        let measured = json["measured_s"].as_f64().expect("a time");
        assert!((0.9..50.0).contains(&measured), "{measured}");
        assert!(json["totals"]["answered"].as_u64().expect("a count") > 0);
    };
    std::thread::scope(|scope| {
        for one in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
            scope.spawn(move || ends(one));
        }
    });
}

#[test]
fn the_second_interrupt_ends_at_once() {
    // It never answers, so that the gentle end takes a while.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("bound"));
    let mut load = started(&["-d", "60s", "--warm-up", "0s", "-c", "2", &url]);
    let mut stderr = BufReader::new(load.stderr.take().expect("piped"));
    let mut said = String::new();
    stderr.read_line(&mut said).expect("what runs");
    let status = interrupted_until_it_ends(&mut load);
    stderr.read_to_string(&mut said).expect("text");
    let mut stdout = String::new();
    load.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
    assert_eq!((status.code(), &*stdout), (Some(130), ""), "{said}");
    assert!(said.contains("at once"), "{said}");
}
