//! `pollux run` as a user starts it, on small programs in C whose loops are known to the last call.
//!
//! | file | what it holds the command to |
//! |---|---|
//! | `attach` | a process that already runs is followed by tracepoints, with the same counts |
//! | `passing` | streams, exit codes and signals are those of the program; what is out of reach is refused |
//! | `servers` | installed programs answer on other mechanisms, each answer checked |
//!
//! Here they are built and run. A fault that was planted is named with its line, and a clean program gets no advice;
//! on every mechanism they do the same, with the same counts. Counts are judged, never times.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_poller::Mechanism;
use pollux_testing::skip;
use serde_json::Value;
use tempfile::TempDir;

mod attach;
mod passing;
mod servers;

/// Where the sources stand.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run").join(name)
}

/// A program of this folder, built with these flags; nothing, with the reason printed, without a compiler.
pub(crate) fn built(name: &str, flags: &[&str]) -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    let output = compiler.arg(&program).arg(source(&format!("{name}.c"))).args(flags).output();
    let Ok(output) = output else {
        skip("no compiler");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((folder, program))
}

/// `pollux run` with these words.
pub(crate) fn run(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.arg("run").args(words).stdin(Stdio::null());
    command
}

/// What was printed and written.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The figures of a program of this folder, run to its end.
pub(crate) fn figures(name: &str) -> Option<Value> {
    let (folder, program) = built(name, &[])?;
    let json = folder.path().join("figures.json");
    let words = ["--quiet", "--json", json.to_str()?, "--", program.to_str()?];
    let output = run(&words).output().expect("pollux starts");
    assert!(output.status.success(), "{output:?}");
    Some(read(&json, &output))
}

pub(crate) fn read(json: &Path, output: &impl Debug) -> Value {
    let read = std::fs::read_to_string(json).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    serde_json::from_str(&read).expect("JSON")
}

/// The line of the planted fault as the table of lines has it.
fn assert_names_the_line(place: &Value, file: &str) {
    let text = std::fs::read_to_string(source(file)).expect("the source");
    let line = text.lines().position(|line| line.contains("/* fault */")).expect("a fault") + 1;
    let place = place.as_str().expect("a place");
    assert!(place.contains(&format!("{file}:{line}")), "{place}, expected line {line}");
}

fn only_advice(figures: &Value) -> &Value {
    let advice = figures["advice"].as_array().expect("advice");
    assert_eq!(advice.len(), 1, "{advice:#?}");
    &advice[0]
}

#[test]
fn one_event_for_each_wait_is_named() {
    let Some(figures) = figures("one_by_one") else { return };
    let advice = only_advice(&figures);
    assert_eq!(advice["kind"], "one-event-per-wait");
    let measured = advice["measured"].as_str().expect("a figure");
    assert!(measured.contains("of 2,400 waits"), "{measured}");
    assert_names_the_line(&advice["place"], "one_by_one.c");
    assert_eq!(figures["total"]["full"], 2400);
    assert_eq!(figures["total"]["events_per_wait"][1]["count"], 2400);
}

#[test]
fn mod_to_and_fro_is_named() {
    let Some(figures) = figures("to_and_fro") else { return };
    let advice = only_advice(&figures);
    assert_eq!(advice["kind"], "mod-to-and-fro");
    let measured = advice["measured"].as_str().expect("a figure");
    assert!(measured.starts_with("500 MODs asked for writability"), "{measured}");
    assert_names_the_line(&advice["place"], "to_and_fro.c");
    assert_eq!(figures["total"]["mods"], 1000);
    assert_eq!(figures["total"]["mods_back"], 999, "all but the first");
}

#[test]
fn a_turn_that_blocks_is_named_with_what_it_called() {
    let Some(figures) = figures("blocks") else { return };
    let advice = only_advice(&figures);
    assert_eq!(advice["kind"], "turn-blocks");
    assert_names_the_line(&advice["place"], "blocks.c");
    // On a busy machine a turn may be kept from the CPU for longer than it slept.
    let blocked = figures["total"]["turns_blocked"].as_u64().expect("a count");
    assert!((3..=12).contains(&blocked), "{blocked}");
    let calls = figures["longest_turns"][0]["calls"].as_array().expect("calls");
    let of = |name: &str| calls.iter().find(|call| call["call"] == name);
    assert!(of("nanosleep").is_some_and(|call| call["lasted_ns"].as_u64() >= Some(20_000_000)));
    assert!(of("read").is_some(), "{calls:#?}");
}

/// What a turn of `sleeps.c` sleeps in; the call that is listed for it.
const SLEEPS: [(&str, &str); 12] = [
    ("pthread_mutex_lock", "pthread_mutex_lock"),
    ("pthread_rwlock_lock", "pthread_rwlock_lock"),
    ("mtx_lock", "pthread_mutex_lock"),
    ("pthread_barrier_wait", "pthread_barrier_wait"),
    ("pthread_join", "pthread_join"),
    ("pthread_cond_timedwait", "pthread_cond_timedwait"),
    ("sem_wait", "sem_wait"),
    ("system", "system"),
    ("posix_spawn", "waitpid"),
    ("futex", "futex"),
    ("sigtimedwait", "sigwait"),
    ("loop", "epoll_wait"),
];

#[test]
fn a_turn_that_sleeps_in_a_lock_a_process_or_a_loop_of_its_own_is_named() {
    let Some((folder, program)) = built("sleeps", &["-D_GNU_SOURCE"]) else { return };
    let json = folder.path().join("figures.json");
    let others = [("nothing that is followed", "read")];
    for (how, call) in SLEEPS.into_iter().chain(others) {
        let mut command = run(&["--quiet", "--json"]);
        let output = command.arg(&json).arg("--").arg(&program).arg(how).output();
        let output = output.expect("pollux starts");
        assert!(output.status.success(), "{how}: {output:?}");
        let figures = read(&json, &output);
        let total = &figures["total"];
        // The first turn has the start of the threads and libraries in it.
        assert!(total["turns_blocked"].as_u64() >= Some(5), "{how}: {total:#}");
        assert_eq!(only_advice(&figures)["kind"], "turn-blocks", "{how}");
        if how.starts_with("nothing") {
            let place = figures["advice"][0]["place"].as_str().expect("a place");
            assert!(place.starts_with("a call that is not followed"), "{place}");
            continue;
        }
        let turns = figures["longest_turns"].as_array().expect("turns");
        let has = |turn: &Value| {
            let mut calls = turn["calls"].as_array().expect("calls").iter();
            calls.any(|one| one["call"] == call && one["lasted_ns"].as_u64() >= Some(15_000_000))
        };
        assert!(turns.iter().any(has), "{how}: {turns:#?}");
    }
}

#[test]
fn a_turn_that_computes_and_then_sleeps_longer_is_named_for_both_computing_first() {
    let Some((folder, program)) = built("sleeps", &["-D_GNU_SOURCE"]) else { return };
    let json = folder.path().join("figures.json");
    let output = run(&["--json"]).arg(&json).arg("--").arg(&program).arg("after work").output();
    let output = output.expect("pollux starts");
    assert!(output.status.success(), "{output:?}");
    let figures = read(&json, &output);
    let total = &figures["total"];
    for kind in ["turns_computed", "turns_blocked"] {
        assert!(total[kind].as_u64() >= Some(5), "{kind}: {total:#}");
    }
    let advice = figures["advice"].as_array().expect("advice").iter();
    let kinds: Vec<_> = advice.map(|one| one["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["turn-computes", "turn-blocks"], "{figures:#}");
    let said = text(&output.stderr);
    assert!(
        said.contains("2 things to change, first of all: the loop computes for long"),
        "{said}"
    );
}

/// By instructions of the program's own, as rustix makes system calls.
#[test]
#[cfg(target_arch = "x86_64")]
fn epoll_past_the_c_library_is_served_and_said() {
    let Some((folder, program)) = built("past", &["-D_GNU_SOURCE"]) else { return };
    let json = folder.path().join("figures.json");
    for mechanism in mechanisms() {
        for what in ["registers", "all"] {
            let mut command = run(&["--poller", mechanism.name(), "--json"]);
            let output = command.arg(&json).arg("--").arg(&program).arg(what).output();
            let output = output.expect("pollux starts");
            let said = text(&output.stderr);
            assert!(output.status.success(), "{what} on {mechanism}: {said}");
            let total = &read(&json, &output)["total"];
            assert!(said.contains("past the C library"), "{what} on {mechanism}: {said}");
            if mechanism != Mechanism::Epoll {
                let is_line = |line: &&str| line.starts_with("pollux run: process ");
                assert_eq!(
                    said.lines().filter(is_line).count(),
                    1,
                    "{what} on {mechanism}: {said}"
                );
            }
            if what == "all" {
                assert_eq!(total["past_instances"], 1, "{mechanism}");
            } else {
                assert_eq!((&total["adds"], &total["waits"]), (&Value::Null, &20.into()));
            }
        }
    }
}

/// A peer saw no end, a number that another file had was reported with the data of the closed one, and the library wrote
/// to and closed files of the program that had got its numbers.
#[test]
#[cfg(target_arch = "x86_64")]
fn closes_past_the_c_library_hand_the_instances_to_the_kernel_and_are_said() {
    let Some((_folder, program)) = built("closes_past", &["-D_GNU_SOURCE"]) else { return };
    for mechanism in mechanisms() {
        for what in ["streams", "used_again", "listeners", "behind", "all", "instances"] {
            // By numbers, as by syscall(2), they are seen.
            for (how, lines) in [("number", 0), ("own", 1)] {
                let mut command = run(&["--quiet", "--poller", mechanism.name(), "--"]);
                let output = command.arg(&program).args([what, how]).output();
                let output = output.expect("pollux starts");
                let said = text(&output.stderr);
                assert!(output.status.success(), "{what} by {how} on {mechanism}: {said}");
                let is_line = |line: &&str| line.contains("closed descriptors past the C library");
                let found = said.lines().filter(is_line).count();
                // Nothing is met of an instance that was closed with all that it had.
                let is_met = mechanism != Mechanism::Epoll && !["all", "instances"].contains(&what);
                let least = if is_met { lines } else { 0 };
                assert!((least..=lines).contains(&found), "{what} by {how} on {mechanism}: {said}");
            }
        }
    }
}

#[test]
fn registering_for_each_request_is_named() {
    let Some(figures) = figures("registers_anew") else { return };
    let advice = only_advice(&figures);
    assert_eq!(advice["kind"], "registered-anew");
    assert_names_the_line(&advice["place"], "registers_anew.c");
    assert_eq!(figures["total"]["readds"], 399, "all but the first");
}

#[test]
fn a_herd_is_named_with_each_of_its_processes() {
    let Some(figures) = figures("herd") else { return };
    // Its workers wait for each other within their turns: long on a busy machine, which is named as well then.
    let (waits, advice): (Vec<_>, Vec<_>) = figures["advice"]
        .as_array()
        .expect("advice")
        .iter()
        .partition(|advice| advice["kind"] == "turn-blocks");
    assert!(waits.len() <= 1 && advice.len() == 1, "{waits:#?} {advice:#?}");
    let advice = advice[0];
    assert_eq!(advice["kind"], "herd");
    let measured = advice["measured"].as_str().expect("a figure");
    assert!(measured.contains("180 of 240 wakes"), "{measured}");
    assert_names_the_line(&advice["place"], "herd.c");
    let processes = figures["processes"].as_array().expect("processes");
    let workers = processes.iter().filter(|process| process["waits"] == 60);
    assert_eq!(workers.count(), 4, "{processes:#?}");
    assert_eq!(figures["total"]["accepted"], 60);
}

#[test]
fn a_clean_program_gets_no_advice_and_is_counted_to_the_last_call() {
    let Some(figures) = figures("clean") else { return };
    assert_eq!(figures["advice"].as_array().map(Vec::len), Some(0), "{:#}", figures["advice"]);
    let total = &figures["total"];
    for (name, expected) in [
        ("events", 4000),
        ("adds", 8),
        ("dels", 8),
        ("mods", 0),
        ("creates", 1),
        ("controls_failed", 0),
        ("stale", 0),
        ("unknown", 0),
        ("again", 0),
        ("accepted", 0),
    ] {
        assert_eq!(total[name], expected, "{name} in {total:#}");
    }
}

/// What may be opened here; others are named.
pub(crate) fn mechanisms() -> Vec<Mechanism> {
    let opens = |mechanism: &Mechanism| match mechanism.open() {
        Ok(_) => true,
        Err(error) => {
            skip(format!("{mechanism}: {error}"));
            false
        }
    };
    Mechanism::PLAIN.into_iter().filter(opens).collect()
}

#[test]
fn programs_do_the_same_on_every_mechanism() {
    for (name, expected) in [
        ("clean", &[("events", 4000), ("adds", 8), ("mods", 0), ("dels", 8)][..]),
        ("to_and_fro", &[("events", 1000), ("adds", 1), ("mods", 1000), ("mods_back", 999)]),
        ("one_by_one", &[("events", 2400), ("full", 2400), ("waits", 2400)]),
        // By syscall(2), and by a ring where the program gets one.
        (
            "by_number",
            &[
                ("waits", 320),
                ("events", 320),
                ("unknown", 0),
                ("stale", 0),
                ("creates", 40),
                ("adds", 320),
                ("mods", 320),
                ("dels", 320),
                ("controls_failed", 320),
                ("transfers", 640),
            ],
        ),
    ] {
        let Some((folder, program)) = built(name, &[]) else { return };
        let json = folder.path().join("figures.json");
        for mechanism in mechanisms() {
            let output = run(&["--quiet", "--poller", mechanism.name(), "--json"])
                .arg(&json)
                .arg("--")
                .arg(&program)
                .output()
                .expect("pollux starts");
            assert!(output.status.success(), "{name} on {mechanism}: {output:?}");
            let figures = read(&json, &output);
            for (counter, expected) in expected {
                assert_eq!(
                    figures["total"][counter], *expected,
                    "{counter}, {name} on {mechanism}"
                );
            }
        }
    }
}

/// A ring that two threads use, closes and links by it, streams opened anew, forks by number, errno.
#[test]
fn rings_that_threads_share_closes_and_links_are_followed() {
    let Some((_folder, program)) = built("ring", &["-D_GNU_SOURCE", "-pthread"]) else { return };
    for mechanism in mechanisms() {
        let mut command = run(&["--quiet", "--poller", mechanism.name(), "--"]);
        let output = command.arg(&program).output().expect("pollux starts");
        assert!(output.status.success(), "{mechanism}: {output:?}");
    }
}

/// The shape of `epoll_bench`: pipes by edge, a thread that writes, waits that a timer interrupts.
#[test]
fn streams_are_read_to_the_last_byte_on_every_mechanism() {
    let Some((_folder, program)) = built("streams", &[]) else { return };
    for mechanism in mechanisms() {
        let mut command = run(&["--quiet", "--poller", mechanism.name(), "--"]);
        let output = command.arg(&program).output().expect("pollux starts");
        assert!(output.status.success(), "{mechanism}: {output:?}");
        assert_eq!(text(&output.stdout), "100000 bytes\n", "{mechanism}");
    }
}

/// Threads that wait on and change one instance while others fork, vfork, spawn and call system(3).
#[test]
fn threads_and_the_processes_that_they_start_lose_no_byte_on_any_mechanism() {
    let Some((_folder, program)) = built("threads", &["-D_GNU_SOURCE"]) else { return };
    for mechanism in mechanisms() {
        for counts in [&["--stats"][..], &[]] {
            let mut command = run(&["--quiet", "--poller", mechanism.name()]);
            let output = command.args(counts).arg("--").arg(&program).output();
            let output = output.expect("pollux starts");
            assert!(output.status.success(), "{mechanism} {counts:?}: {output:?}");
            assert_eq!(text(&output.stdout), "4000 bytes\n", "{mechanism}");
        }
    }
}

/// `epoll_bench.c` itself, by Eric Dumazet, which can't be part of this repository: as it is, where
/// `POLLUX_EPOLL_BENCH` names the file.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn epoll_bench_as_it_is_runs_on_every_mechanism() {
    const SOURCE: &str = "POLLUX_EPOLL_BENCH";
    let Some(source) = std::env::var_os(SOURCE) else {
        // Never forbidden: no machine can install the file.
        eprintln!("skipped: {SOURCE} does not name epoll_bench.c");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("epoll_bench");
    let mut compiler = Command::new("cc");
    // It is of 2006: yields by a name that is gone, and counts on headers that others include.
    compiler.args(["-O1", "-w", "-D_GNU_SOURCE", "-Dpthread_yield=sched_yield", "-fpermissive"]);
    compiler.args(["-include", "stdint.h", "-include", "sched.h", "-include", "sys/wait.h"]);
    let output = compiler.arg("-pthread").arg(source).arg("-o").arg(&program).output();
    let output = output.expect("a compiler");
    assert!(output.status.success(), "{SOURCE}: {}", String::from_utf8_lossy(&output.stderr));
    for mechanism in mechanisms() {
        let mut command = run(&["--quiet", "--poller", mechanism.name(), "--"]);
        let output = command.arg(&program).args(["-n", "300", "-t", "1"]).output();
        let output = output.expect("pollux starts");
        let said = text(&output.stderr);
        let average = said.lines().find_map(|line| line.strip_prefix("Avg: "));
        let events = average.and_then(|average| average.split(' ').next()?.parse::<u64>().ok());
        assert!(output.status.success() && events > Some(0), "{mechanism}: {output:?}");
    }
}

#[test]
fn what_survives_exec_keeps_its_registrations_on_every_mechanism() {
    let Some((_folder, program)) = built("becomes_another", &["-D_GNU_SOURCE"]) else { return };
    for mechanism in mechanisms() {
        let mut command = run(&["--quiet", "--poller", mechanism.name(), "--"]);
        let output = command.arg(&program).output().expect("pollux starts");
        assert!(output.status.success(), "{mechanism}: {output:?}");
        assert_eq!(text(&output.stdout), "by fork\nby vfork\nitself\n", "{mechanism}");
    }
}

#[test]
fn without_statistics_a_program_on_another_mechanism_prints_only_its_own() {
    let Some((_folder, program)) = built("clean", &[]) else { return };
    let output = run(&["--poller", "poll", "--"]).arg(&program).arg("3").output();
    let output = output.expect("pollux starts");
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stderr.is_empty() && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn locks_within_a_turn_answer_as_they_do_without_the_library() {
    let Some((_folder, program)) = built("locks", &["-D_GNU_SOURCE"]) else { return };
    let plain = Command::new(&program).output().expect("it starts");
    assert!(text(&plain.stdout).starts_with("robust 130 131 131\n"), "{plain:?}");
    let output = run(&["--quiet", "--stats", "--"]).arg(&program).output().expect("pollux starts");
    assert_eq!(text(&output.stdout), text(&plain.stdout), "{output:?}");
}

#[test]
fn a_program_that_locks_itself_up_is_served_and_said() {
    let Some((folder, program)) = built("locked_up", &["-D_GNU_SOURCE"]) else { return };
    let json = folder.path().join("figures.json");
    for how in ["prctl", "number", "seccomp"] {
        for poller in ["epoll", "poll"] {
            let mut command = run(&["--poller", poller, "--json"]);
            let output = command.arg(&json).arg("--").arg(&program).arg(how).output();
            let output = output.expect("pollux starts");
            assert!(output.status.success(), "{how} on {poller}: {output:?}");
            assert_eq!(text(&output.stdout), "served\n");
            assert!(text(&output.stderr).contains("locked up by seccomp"), "{output:?}");
            let total = &read(&json, &output)["total"];
            assert_eq!((&total["waits"], &total["filtered"]), (&20.into(), &1.into()), "{how}");
        }
    }
    let output = run(&["--quiet", "--"]).arg(&program).arg("forbidden").output();
    let output = output.expect("pollux starts");
    assert_eq!(output.status.code(), Some(128 + 31), "{output:?}");
    assert!(text(&output.stderr).contains("ended by SIGSYS"), "{output:?}");
}
