//! Unmodified programs on every mechanism: what they ask for comes true, and the counts are the same.

use pollux_poller::Mechanism;
use pollux_testing::skip;

use crate::{built, read, run, text};

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
    let mut compiler = std::process::Command::new("cc");
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
