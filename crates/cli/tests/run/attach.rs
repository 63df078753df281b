//! A process that already runs is followed by tracepoints: its counts are those of its source, and what
//! cannot be known is null with its reason.
//!
//! Each program starts stopped, so that it is followed from its first call on.

use std::process::{Command, Stdio};

use pollux_testing::{Process, Signal, skip, wait_until};
use serde_json::Value;
use tempfile::TempDir;

use crate::{built, figures, read, run, text};

/// A program of this folder that waits to be continued before its first instruction.
struct Stopped {
    process: Process,
    folder: TempDir,
}

impl Stopped {
    fn start(name: &str) -> Option<Self> {
        let (folder, program) = built(name, &[])?;
        let mut shell = Command::new("sh");
        shell.args(["-c", "kill -STOP $$; exec \"$0\""]).arg(program);
        let stopped = Self { process: Process::start(shell.stdin(Stdio::null())), folder };
        wait_until("the stop", || stopped.state() == 'T');
        Some(stopped)
    }

    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
        let stat = stat.expect("it was not waited for");
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).expect("a state")
    }

    fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// `pollux run --attach` at it, with these words, once it follows the process. Nothing, with the reason
    /// printed, where this user may not follow it.
    fn followed(&self, words: &[&str]) -> Option<Process> {
        let mut command = run(&["--live", "--attach", &self.process.id().to_string()]);
        let mut pollux = Process::start(command.args(words));
        // The first line of --live is written once it follows the process.
        let first = pollux.wait_for_stderr_line("");
        if first.contains("waits/s") {
            return Some(pollux);
        }
        assert_eq!(pollux.wait().code(), Some(126), "{first}");
        skip(&first);
        None
    }

    /// Its figures from the first call to the end; nothing, with the reason printed, where this user may
    /// not follow it.
    fn figures(mut self) -> Option<Value> {
        let json = self.folder.path().join("figures.json");
        let following = self.followed(&["--json", json.to_str()?])?;
        self.resume();
        self.process.wait();
        let ended = following.ended();
        assert!(ended.status.success(), "{ended:?}");
        Some(read(&json, &ended))
    }
}

/// Counters that depend on the machine's speed.
fn is_of_time(counter: &str) -> bool {
    counter.ends_with("_ns") || counter.starts_with("turns_") || counter == "interrupted"
}

/// What the library counts of a program is what tracepoints count, where they can.
fn assert_same_as_the_library(name: &str, counted: &[&str]) {
    let Some(stopped) = Stopped::start(name) else { return };
    let Some(followed) = stopped.figures() else { return };
    let library = figures(name).expect("there is a compiler");
    assert_eq!(
        (&followed["source"], &library["source"]),
        (&"tracepoints".into(), &"library".into())
    );
    assert_eq!((&followed["records_lost"], &followed["threads_lost"]), (&0.into(), &0.into()));
    let unknown = followed["unknown"].as_object().expect("reasons");
    assert!(library["unknown"].as_object().is_some_and(serde_json::Map::is_empty));
    for (counter, value) in library["total"].as_object().expect("counters") {
        let found = &followed["total"][counter];
        if value.is_array() || value.is_object() || is_of_time(counter) {
            continue;
        }
        assert_eq!(found.is_null(), unknown.contains_key(counter), "{counter}");
        assert!(found.is_null() || found == value, "{counter}: {found}, by the library {value}");
    }
    for counter in counted {
        assert!(followed["total"][counter].as_u64() > Some(0), "{counter}");
    }
    assert_eq!(followed["total"]["events_per_wait"], library["total"]["events_per_wait"]);
}

#[test]
fn a_clean_program_has_the_same_counts() {
    assert_same_as_the_library("clean", &["waits", "events", "adds", "dels", "creates"]);
}

#[test]
fn registering_anew_is_counted() {
    assert_same_as_the_library("registers_anew", &["readds"]);
}

#[test]
fn processes_that_are_forked_meanwhile_are_counted() {
    assert_same_as_the_library("herd", &["accepted", "accepts_woken", "accepts_empty"]);
}

#[test]
fn advice_is_given_on_what_is_known() {
    for (name, kind) in [("registers_anew", "registered-anew"), ("herd", "herd")] {
        let Some(figures) = Stopped::start(name).and_then(Stopped::figures) else { return };
        let advice = figures["advice"].as_array().expect("advice");
        // On a busy machine a turn of either may last long.
        let kinds = advice.iter().map(|one| &one["kind"]).filter(|kind| *kind != "turn-blocks");
        assert_eq!(kinds.collect::<Vec<_>>(), [kind], "{advice:#?}");
    }
}

#[test]
fn a_turn_that_blocks_names_the_function_it_slept_in() {
    let Some(figures) = Stopped::start("blocks").and_then(Stopped::figures) else { return };
    let advice = &figures["advice"][0];
    assert_eq!(advice["kind"], "turn-blocks", "{figures:#}");
    assert!(advice["place"].as_str().is_some_and(|place| place.contains("nanosleep")), "{advice}");
    let calls = figures["longest_turns"][0]["calls"].as_array().expect("calls");
    let slept = calls.iter().filter(|call| call["call"] == "asleep");
    let longest = slept.filter_map(|call| call["lasted_ns"].as_u64()).max();
    assert!(longest >= Some(19_000_000), "{calls:#?}");
}

#[test]
fn the_time_and_an_interrupt_end_it_and_not_the_process() {
    let Some(mut stopped) = Stopped::start("clean") else { return };
    let Some(following) = stopped.followed(&["--for", "1500ms"]) else { return };
    let ended = following.ended();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("No process called epoll in "), "{ended:?}");
    let Some(following) = stopped.followed(&["--quiet"]) else { return };
    following.signal(Signal::INT);
    assert!(following.ended().status.success());
    assert_eq!(stopped.state(), 'T', "it is as it was");
    stopped.resume();
    assert!(stopped.process.wait().success());
}

#[test]
fn what_cannot_be_followed_is_refused_with_its_reason() {
    let ran = |words: &[&str]| run(words).output().expect("pollux starts");
    for (words, code, says) in [
        (["--attach", "4194304"], 127, "--attach 4194304: no process has this number"),
        (["--attach", "0"], 2, "not the number of a process"),
        (["--attach", "nginx"], 2, "which `pidof -s NAME` prints"),
    ] {
        let output = ran(&words);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(text(&output.stderr).contains(says), "{output:?}");
    }
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        let output = ran(&["--attach", "2"]);
        assert_eq!(output.status.code(), Some(126), "{output:?}");
        assert!(text(&output.stderr).contains("--attach 2: a thread of the kernel"), "{output:?}");
    } else {
        skip("no thread of the kernel is in this PID namespace");
    }
    let both = ran(&["--attach", "1", "--poller", "poll"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    let command = ran(&["--attach", "1", "--", "true"]);
    assert_eq!(command.status.code(), Some(2), "{command:?}");
    let time = ran(&["--for", "1s", "--", "true"]);
    assert_eq!(time.status.code(), Some(2), "{time:?}");
}
