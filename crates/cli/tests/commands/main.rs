//! `pollux` as a user calls it: help, manual pages, completions, wrong command lines, and the commands that
//! only look and print.
//!
//! | file | subject |
//! |---|---|
//! | `agents` | `pollux load --agents` as it finds and runs `pollux-agent` |
//! | `mistakes` | what a wrong command line is answered with, and what a shell completes |
//! | `password` | `pollux serve password` at a terminal |
//! | `pool` | `pollux pool` and `pollux fld` as they find and run `pollux-pool` |
//!
//! Here is what is printed to be read: manual pages, rendered by groff, beside `--help`; summaries through a pipe and
//! in the letters of the locale; what `pollux doctor` says of this machine, whatever it is.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use pollux_testing::DEADLINE;
use serde_json::Value;

mod agents;
mod mistakes;
mod password;
mod pool;

/// `pollux` with these words, to its end.
fn pollux(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(words).stdin(Stdio::null()).output().expect("pollux runs")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

fn help(command: &str) -> String {
    let words: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
    text(pollux(&words).stdout)
}

/// The lines of a section of a help text, without their indentation.
fn section<'a>(help: &'a str, heading: &str) -> Vec<&'a str> {
    let after = help.split_once(&format!("{heading}:\n")).map_or("", |(_, after)| after);
    after.lines().take_while(|line| line.starts_with("  ")).map(str::trim).collect()
}

/// All pages in a folder.
fn pages() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let written = pollux(&["man", folder.path().to_str().expect("UTF-8")]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    folder
}

/// The commands that have a page, without `pollux` before them.
fn commands(folder: &Path) -> Vec<String> {
    let files =
        std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a page").path());
    let command = |page: String| {
        let line =
            page.lines().find_map(|line| line.strip_prefix(".SY \"pollux")).expect("a synopsis");
        line.trim_matches(['"', ' ']).replace("\\-", "-")
    };
    files.map(|file| command(std::fs::read_to_string(file).expect("text"))).collect()
}

/// The page of a command as text, and what groff warns of; none without groff.
fn rendered(folder: &Path, command: &str) -> Option<(String, String)> {
    let name = format!("pollux {command}").trim_end().replace(' ', "-");
    let page = folder.join(format!("{name}.1"));
    // Plain letters, without the escapes and overstrikes of bold and italic.
    let groff = ["-man", "-Tutf8", "-ww", "-P-cbou"];
    match Command::new("groff").args(groff).arg(&page).output() {
        Ok(Output { stdout, stderr, .. }) => Some((text(stdout), text(stderr))),
        Err(error) => {
            pollux_testing::skip(format_args!("groff: {error}"));
            None
        }
    }
}

#[test]
fn every_command_has_examples_and_they_stand_in_the_manual_as_they_can_be_copied() {
    let folder = pages();
    let commands = commands(folder.path());
    assert!(commands.len() > 20, "{commands:?}");
    for command in &commands {
        let Some((page, warnings)) = rendered(folder.path(), command) else { return };
        assert_eq!(warnings, "", "{command}");
        // Neither hyphens of broken words nor dashes and typographic quotes: all is ASCII to copy.
        let typographic =
            page.matches(['\u{2010}', '\u{2212}', '\u{2018}', '\u{2019}', '\u{02c6}']);
        assert_eq!(typographic.count(), 0, "{page}");
        let help = help(command);
        let examples = section(&help, "Examples");
        assert!(!examples.is_empty(), "{command} has no examples:\n{help}");
        let page: Vec<_> = page.lines().map(str::trim).collect();
        for line in examples {
            assert!(page.contains(&line), "{command}: no line {line:?} in\n{}", page.join("\n"));
        }
    }
}

#[test]
fn a_manual_page_has_the_usual_sections_in_the_usual_order() {
    let folder = pages();
    for (command, expected) in [
        ("load", "NAME SYNOPSIS DESCRIPTION OPTIONS SIGNALS EXIT STATUS EXAMPLES SEE ALSO"),
        ("serve", "NAME SYNOPSIS DESCRIPTION OPTIONS SIGNALS EXIT STATUS EXAMPLES SEE ALSO"),
        ("lab", "NAME SYNOPSIS DESCRIPTION OPTIONS COMMANDS SIGNALS EXIT STATUS EXAMPLES"),
    ] {
        let page = std::fs::read_to_string(folder.path().join(format!("pollux-{command}.1")));
        let page = page.expect("a page");
        let headings = page.lines().filter_map(|line| line.strip_prefix(".SH "));
        let headings: Vec<_> = headings.map(|heading| heading.trim_matches('"')).collect();
        let mut place = headings.iter();
        let words = expected.replace("EXIT STATUS", "EXIT-STATUS").replace("SEE ALSO", "SEE-ALSO");
        for heading in words.split(' ').map(|word| word.replace('-', " ")) {
            assert!(place.any(|found| **found == heading), "{command}: {heading} in {headings:?}");
        }
        assert!(!headings.contains(&"EXTRA") && !headings.contains(&"VERSION"), "{headings:?}");
    }
}

#[test]
fn a_manual_page_names_values_version_and_its_neighbours() {
    let folder = pages();
    let Some((page, _)) = rendered(folder.path(), "lab run") else { return };
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["[--only NAME]", "[-q]", "[--profile[=HZ]]", "pollux-lab(1)", "pollux-lab-plan(1)"]
    {
        assert!(flat.contains(part), "no {part} in {flat}");
    }
    let version = String::from_utf8(pollux(&["-V"]).stdout).expect("UTF-8");
    assert!(flat.contains(version.trim()) && !flat.contains(" v0."), "{flat}");
}

fn report(locale: &str, words: &[&str]) -> (PathBuf, Output) {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/2026-11-21-quick");
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shown-{locale}.html"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "report"]).arg(run).args(words).arg("--html").arg(&page);
    (page, command.env("LC_ALL", locale).output().expect("pollux starts"))
}

fn summary(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text(output.stdout.clone())
}

#[test]
fn a_summary_through_a_pipe_is_whole() {
    let text = summary(&report("C.UTF-8", &[]).1);
    assert!(!text.contains('…'), "{text}");
    assert!(text.contains("to decide") || text.contains("would decide"), "the last column: {text}");
}

#[test]
fn a_locale_without_utf_8_gets_ascii_and_programs_get_the_same_bytes() {
    let plain = summary(&report("C", &[]).1);
    assert!(plain.is_ascii(), "{plain}");
    assert!(plain.contains("+-") && plain.contains("baseline"), "{plain}");
    assert!(summary(&report("C.UTF-8", &[]).1).contains('±'));
    assert_eq!(summary(&report("C", &["--json"]).1), summary(&report("en_GB.utf8", &["--json"]).1));
    let [here, there] = ["C", "C.UTF-8"].map(|locale| report(locale, &["--json"]).0);
    assert_eq!(std::fs::read(here).expect("a page"), std::fs::read(there).expect("a page"));
}

fn doctor(words: &[&str]) -> Output {
    pollux(&[&["doctor"], words].concat())
}

#[test]
fn the_table_is_plain_in_a_pipe_and_begins_with_the_summary() {
    let start = Instant::now();
    let output = doctor(&[]);
    assert!(start.elapsed() < DEADLINE);
    let text = text(output.stdout.clone());
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
    assert!(shell.wait().expect("it ends").success(), "{}", text(output.stdout.clone()));
    assert!(text(output.stdout.clone()).starts_with("#!/bin/sh\n"));
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
    let help = text(doctor(&["--help"]).stdout);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
}
