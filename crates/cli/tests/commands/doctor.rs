//! `pollux doctor` as a user runs it: on this machine, whatever it is.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use pollux_testing::DEADLINE;
use serde_json::Value;

use crate::pollux;

fn doctor(words: &[&str]) -> Output {
    pollux(&[&["doctor"], words].concat())
}

fn text(output: &Output) -> String {
    crate::text(output.stdout.clone())
}

#[test]
fn the_table_is_plain_in_a_pipe_and_begins_with_the_summary() {
    let start = Instant::now();
    let output = doctor(&[]);
    assert!(start.elapsed() < DEADLINE);
    let text = text(&output);
    assert!(!text.contains('\x1b'), "{text}");
    let summary = text.lines().next().expect("a first line");
    assert!(summary.contains(" limit") && summary.contains(" block"), "{summary}");
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("What to do now: ")), "{text}");
    let is_free = summary.ends_with("nothing keeps `pollux lab` from running");
    assert_eq!(output.status.code(), Some(i32::from(!is_free)));
    assert!(output.stderr.is_empty());
}

#[test]
fn the_script_of_fixes_is_one_that_a_shell_can_read() {
    let output = doctor(&["--fix-script"]);
    assert!(output.status.success());
    let mut shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn().expect("a shell");
    shell.stdin.take().expect("piped").write_all(&output.stdout).expect("written");
    assert!(shell.wait().expect("it ends").success(), "{}", text(&output));
    assert!(text(&output).starts_with("#!/bin/sh\n"));
}

#[test]
fn json_of_one_concern_has_only_its_checks() {
    let output = doctor(&["--for", "queues", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&json["schema"], &json["for"]), (&2.into(), &"queues".into()));
    let checks = json["checks"].as_array().expect("a list");
    let of_queues = |check: &Value| {
        let concerns = check["concerns"].as_array().expect("a list");
        concerns.iter().any(|concern| concern == "queues" || concern == "everything")
    };
    assert!(checks.iter().all(of_queues), "{json}");
    assert!(checks.iter().any(|check| check["name"] == "message_queue_bytes"));
    for check in checks {
        let found = &check["found"];
        let is_read = found.get("value").is_some();
        assert_ne!(is_read, found["unavailable"].is_string(), "{check}");
        assert_eq!(is_read, check["verdict"] != "not_available", "{check}");
    }
    let is_blocked = json["is_blocked"].as_bool().expect("a truth");
    assert_eq!(output.status.code(), Some(i32::from(is_blocked)));
}

#[test]
fn every_job_and_every_experiment_can_be_asked_for_by_its_name() {
    let list = pollux(&["lab", "list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let entries = |of: &str| list[of].as_array().expect("a list").clone();
    let all = [entries("jobs"), entries("experiments")].concat();
    assert!(["version", "proxy"].iter().all(|name| all.iter().any(|one| one["name"] == *name)));
    let is_known = |name: &str| {
        let output = doctor(&["--for", name, "--json"]);
        assert_ne!(output.status.code(), Some(2), "{name} is unknown");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(json["for"], name);
        assert_eq!(output.status.code(), Some(i32::from(json["is_blocked"] == true)));
    };
    // Each waits most of its time.
    std::thread::scope(|scope| {
        for name in all.iter().filter_map(|one| one["name"].as_str()) {
            scope.spawn(move || is_known(name));
        }
    });
}

#[test]
fn an_unknown_experiment_is_a_wrong_flag_that_lists_the_right_ones() {
    let output = doctor(&["--for", "weather"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("weather") && said.contains("herd"), "{said}");
    let help = text(&doctor(&["--help"]));
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
}
