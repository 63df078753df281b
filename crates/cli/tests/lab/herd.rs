//! Herds of a few workers on a real kernel: every call is answered, every worker ends,
//! and a limit that is too small is named. Nothing is judged of their figures.

use std::ffi::CString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_sys::mqueue::MessageQueue;
use pollux_testing::{
    Output, Pid, Process, Signal, await_end, children, skip, wait_for, wait_until,
};
use serde_json::{Value, json};

const WORKERS: usize = 4;

/// Starts one run of one arm, as the lab does.
fn start(source: &str, wait: &str, runtime_ms: u64, program: &[&str]) -> Process {
    let axes = json!({"source": source, "workers": WORKERS.to_string(), "callers": "3",
                       "calls": "0"});
    start_arm(&axes, &json!({"way": wait}), runtime_ms, program)
}

fn start_arm(axes: &Value, arm: &Value, runtime_ms: u64, program: &[&str]) -> Process {
    let spec = json!({"experiment": "herd", "arm": arm, "axes": axes,
                           "seed": 1, "ramp_ms": 50, "runtime_ms": runtime_ms,
                          "interval_ms": 20, "pass": "timing", "scratch": scratch()});
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).args(["lab", "measure"]);
    let mut run = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    run.take_stdin().write_all(spec.to_string().as_bytes()).expect("written");
    run
}

fn scratch() -> &'static str {
    env!("CARGO_TARGET_TMPDIR")
}

/// The result of one run and the number of its intervals.
fn measured(source: &str, wait: &str) -> (Value, usize) {
    let run = start(source, wait, 200, &[env!("CARGO_BIN_EXE_pollux")]);
    result_of(run, &format!("{wait} on {source}"))
}

fn result_of(run: Process, what: &str) -> (Value, usize) {
    let Output { status, stdout, stderr } = run.ended();
    assert!(status.success(), "{what}: {stderr}");
    let lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let done = lines.last().map(|line| line["done"].clone()).expect("a result");
    (done, lines.len() - 1)
}

/// Whether an arm can be started: a pool needs its program. Where it is not built, the test says so.
fn can_run(arm: &Value) -> bool {
    let program = Path::new(env!("CARGO_BIN_EXE_pollux")).with_file_name("pollux-pool");
    let is_here = arm["peer"].as_str().is_none_or(|peer| !peer.starts_with("pool"));
    if !is_here && !program.is_file() {
        skip("pollux-pool is not built: cargo build -p pollux-pool");
        return false;
    }
    true
}

/// Whether io_uring is allowed here; where it is not, the test says so.
fn has_uring() -> bool {
    let refused = pollux_poller::Mechanism::UringPoll.open().err();
    if let Some(reason) = &refused {
        skip(reason.to_string());
    }
    refused.is_none()
}

/// Calls were made, and the workers that share them counted each of them once.
fn every_call_is_answered(source: &str) {
    for wait in ["exclusive", "epoll", "edge", "shared", "block", "uring"] {
        if wait == "uring" && !has_uring() {
            continue;
        }
        let (done, intervals) = measured(source, wait);
        let shares: Vec<u64> = done["worker_calls"]
            .as_array()
            .expect("shares")
            .iter()
            .filter_map(Value::as_u64)
            .collect();
        let what = format!("{wait} on {source}: {done}");
        assert_eq!(shares.len(), WORKERS, "{what}");
        assert!(done["events"].as_u64() > Some(0), "{what}");
        assert_eq!(done["events"].as_u64(), Some(shares.iter().sum()), "{what}");
        assert_eq!(done["mechanism"], wait, "{what}");
        assert!(intervals >= 1, "{what}");
        let figure = |name: &str| done["figures"][name].as_f64();
        assert!(figure("latency_p50_us") <= figure("latency_p99_us"), "{what}");
        assert!(figure("latency_p99_us") <= figure("latency_max_us"), "{what}");
        assert!((0.0..1.0).contains(&figure("gini").expect("a coefficient")), "{what}");
        if Path::new("/proc/stat").exists() {
            assert!(figure("switches_per_call") > Some(0.0), "{what}");
        }
        assert!(figure("caller_us_per_call") > Some(0.0), "{what}");
    }
}

#[test]
fn every_call_on_a_queue_is_answered() {
    every_call_is_answered("queue");
}

#[test]
fn every_call_on_a_socket_is_answered() {
    every_call_is_answered("socket");
}

#[test]
fn every_call_on_an_eventfd_is_answered() {
    every_call_is_answered("eventfd");
}

#[test]
fn every_call_on_a_pipe_is_answered() {
    every_call_is_answered("pipe");
}

#[test]
fn every_call_to_a_pool_is_answered_and_nothing_of_it_stays() {
    for (peer, wakes) in [
        ("pool", "one, by queues"),
        ("pool-epoll", "all, by queues"),
        ("pool-memory", "one, by memory"),
    ] {
        let axes = json!({"source": "queue", "workers": "8", "callers": "3", "calls": "0"});
        let pollux = [env!("CARGO_BIN_EXE_pollux")];
        let arm = json!({"peer": peer});
        if !can_run(&arm) {
            continue;
        }
        let child = start_arm(&axes, &arm, 200, &pollux);
        let run = child.id();
        let (done, intervals) = result_of(child, peer);
        let what = format!("{peer}: {done}");
        let shares = done["worker_calls"].as_array().expect("shares");
        let calls = shares.iter().filter_map(Value::as_u64).sum::<u64>();
        assert_eq!((shares.len(), done["events"].as_u64()), (8, Some(calls)), "{what}");
        assert!(calls > 0 && intervals >= 1, "{what}");
        assert_eq!(done["mechanism"], format!("a message wakes {wakes}"), "{what}");
        let figure = |name: &str| done["figures"][name].as_f64();
        assert!(figure("worker_switches_voluntary_per_call") > Some(0.0), "{what}");
        assert!(figure("latency_p50_us") <= figure("latency_max_us"), "{what}");
        assert!(figure("boot_s") > Some(0.0), "{what}");
        assert!(!Path::new(scratch()).join(format!("herd-pool-{run}")).exists(), "{what}");
        let queue = CString::new(format!("/pollux-herd-{run},svc,BALANCE")).expect("a name");
        let gone = MessageQueue::open(&queue).expect_err("it was removed");
        assert_eq!(gone.kind(), std::io::ErrorKind::NotFound, "{what}");
    }
}

#[test]
fn the_baseline_in_c_is_measured_like_the_others() {
    let axes = json!({"source": "queue", "workers": "4", "callers": "3", "calls": "0"});
    let pollux = [env!("CARGO_BIN_EXE_pollux")];
    let child = start_arm(&axes, &json!({"peer": "raw-c"}), 200, &pollux);
    let (done, intervals) = result_of(child, "raw-c");
    let shares = done["worker_calls"].as_array().expect("shares");
    let calls = shares.iter().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!((shares.len(), done["events"].as_u64()), (4, Some(calls)), "{done}");
    assert!(calls > 0 && intervals >= 1, "{done}");
    let figure = |name: &str| done["figures"][name].as_f64();
    for name in ["switches_per_call", "worker_switches_voluntary_per_call", "worker_us_per_call"] {
        assert!(figure(name) > Some(0.0), "{name}: {done}");
    }
    assert!(figure("waits_per_call") > Some(0.0) && figure("gini").is_some(), "{done}");
    assert!(figure("latency_p50_us") <= figure("latency_p99_us"), "{done}");
    assert!(figure("latency_p99_us") <= figure("latency_max_us"), "{done}");
}

#[test]
fn a_fixed_number_of_calls_is_made_and_timed_like_a_command() {
    let axes = json!({"source": "queue", "workers": "2", "callers": "3", "calls": "100"});
    let pollux = [env!("CARGO_BIN_EXE_pollux")];
    for arm in [json!({"way": "exclusive"}), json!({"peer": "raw-c"}), json!({"peer": "pool"})] {
        if !can_run(&arm) {
            continue;
        }
        let (done, _) = result_of(start_arm(&axes, &arm, 200, &pollux), &arm.to_string());
        assert_eq!(done["events"], 300, "{arm}: {done}");
        let figure = |name: &str| done["figures"][name].as_f64().expect("a time");
        let window_s = done["window_s"].as_f64().expect("a window");
        let real_s = figure("real_s_per_million_calls") * 300.0 / 1e6;
        assert!((real_s - window_s).abs() < 1e-6, "{arm}: {done}");
        assert!(figure("user_s_per_million_calls") >= 0.0, "{arm}: {done}");
        assert!(figure("sys_s_per_million_calls") >= 0.0, "{arm}: {done}");
    }
}

#[test]
fn what_a_herd_can_not_be_is_answered_with_what_it_can() {
    for (flag, value, right) in [
        ("--workers", "0", "a whole number from 1 to 1,000"),
        ("--callers", "65", "a whole number from 1 to 64"),
        ("--source", "nonsense", "queue, socket, eventfd, pipe"),
        ("--arm", "nonsense", "exclusive, edge, shared, block"),
        ("--calls", "-1", "a whole number from 0"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["lab", "plan", "herd"]).arg(format!("{flag}={value}"));
        let output = command.output().expect("pollux starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(right), "{flag} {value}: {said}");
    }
}

#[test]
fn a_queue_that_does_not_fit_names_its_limit() {
    let program = ["prlimit", "--msgqueue=4000:4000", env!("CARGO_BIN_EXE_pollux")];
    let Output { status, stderr: said, .. } = start("queue", "exclusive", 100, &program).ended();
    assert!(!status.success() && said.contains("RLIMIT_MSGQUEUE is 4000 bytes"), "{said}");
    assert!(said.contains("needs 5632 of them"), "{said}");
}

#[test]
fn an_interrupted_herd_leaves_no_worker_behind() {
    let axes = json!({"source": "queue", "workers": WORKERS.to_string(), "callers": "3",
                      "calls": "0"});
    // Children of the run, children of those, and so on: workers belong to the run, to the manager of a
    // pool, or to the program in C.
    for (arm, levels) in [
        (json!({"way": "exclusive"}), &[WORKERS + 1][..]),
        (json!({"way": "block"}), &[WORKERS + 1]),
        (json!({"peer": "pool"}), &[1, 1, WORKERS]),
        (json!({"peer": "raw-c"}), &[1, WORKERS]),
    ] {
        if !can_run(&arm) {
            continue;
        }
        let mut run = start_arm(&axes, &arm, 600_000, &[env!("CARGO_BIN_EXE_pollux")]);
        let all = all_below(run.id(), levels);
        run.signal(Signal::TERM);
        assert_eq!(run.wait().code(), Some(1), "{arm}: it ended by itself");
        all.into_iter().for_each(await_end);
    }
}

#[test]
fn a_herd_whose_measurer_is_killed_ends_as_well() {
    let axes = json!({"source": "queue", "workers": WORKERS.to_string(), "callers": "3",
                      "calls": "0"});
    for (arm, levels) in [
        (json!({"way": "exclusive"}), &[WORKERS + 1][..]),
        (json!({"peer": "pool"}), &[1, 1, WORKERS]),
        (json!({"peer": "raw-c"}), &[1, WORKERS]),
    ] {
        if !can_run(&arm) {
            continue;
        }
        let mut run = start_arm(&axes, &arm, 600_000, &[env!("CARGO_BIN_EXE_pollux")]);
        let all = all_below(run.id(), levels);
        // More than any of them can use in the ramp.
        wait_until(format_args!("work of {arm}"), || all.iter().any(|pid| cpu_ticks(*pid) > 10));
        run.kill();
        all.into_iter().for_each(await_end);
    }
}

#[test]
fn a_job_of_a_herd_has_rows_shares_and_reasons() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("herd-job");
    let _ = std::fs::remove_dir_all(&folder);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "run", "herd", "--only", "queue", "--workers", "4", "--quiet", "--json"]);
    // A second set of two hundred rounds, as the noise of so short a first one asks for, would take half a minute.
    command.args(["--arm", "exclusive,block", "--blocks", "1", "--runtime", "200ms"]);
    command.args(["--ramp-time", "50ms"]);
    let output = command.arg("--out").arg(&folder).output().expect("pollux starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let record: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    let rows = record["results"].as_array().expect("rows");
    let arms: Vec<&str> = rows.iter().filter_map(|row| row["arm"].as_str()).collect();
    assert_eq!(arms, ["exclusive", "block", "A/A"]);
    assert_eq!((&rows[0]["unit"], &rows[0]["baseline"]), (&json!("µs/call"), &json!("exclusive")));
    let why = record["why"].as_array().expect("counts");
    for row in why {
        let switches = &row["switches_per_event"];
        let is_read = switches["value"].as_f64() > Some(0.0);
        assert!(is_read || switches["unavailable"].is_string(), "{row}");
    }
    let text = std::fs::read_to_string(folder.join("report.md")).expect("the same as text");
    for words in ["queue: what a call cost", "voluntary switches/call, workers", "Gini coefficient"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let page = std::fs::read_to_string(folder.join("report.html")).expect("a report");
    assert!(page.contains("id=\"herd\"") && page.contains("Lorenz curves of 2 arms"));
    let _ = std::fs::remove_dir_all(&folder);
}

/// The processes of a run, once each level of its tree has so many.
fn all_below(run: u32, levels: &[usize]) -> Vec<Pid> {
    wait_for(format_args!("levels of {levels:?} processes"), || {
        let mut found = vec![children(run)];
        for _ in levels {
            let parents = found.last().expect("one at least").iter();
            found
                .push(parents.flat_map(|pid| children(pid.as_raw_pid().cast_unsigned())).collect());
        }
        let counts: Vec<usize> = found.iter().map(Vec::len).collect();
        (counts.split_last() == Some((&0, levels))).then(|| found.concat())
    })
}

/// CPU time of a process in hundredths of a second.
fn cpu_ticks(pid: Pid) -> u64 {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}
