//! Whole runs of the experiments that start other programs, with windows of tenths of a second:
//! nothing is judged of their figures, only that they are there and mean what they say.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// A folder below the target folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn lab(words: &[&str], folder: &Folder) -> Output {
    command(words, folder).output().expect("pollux starts")
}

fn command(words: &[&str], folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "run"]).args(words);
    command.args(["--blocks", "1", "--ramp-time", "50ms", "--quiet", "--json", "--out"]);
    command.arg(&folder.0);
    command
}

fn record(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Whether a program is there; where it is not, the test says so and is over.
fn has(program: &str) -> bool {
    let found = pollux_lab::host::programs::find(program).is_some();
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn skip(reason: &str) {
    assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
}

fn measured<'a>(record: &'a Value, arm: &str) -> &'a Value {
    let runs = record["runs"].as_array().expect("runs");
    let run =
        runs.iter().find(|run| run["arm"] == arm).unwrap_or_else(|| panic!("no run of {arm}"));
    let measured = &run["outcome"]["measured"];
    assert!(measured.is_object(), "{arm}: {}", run["outcome"]);
    measured
}

#[test]
fn a_server_is_measured_by_its_cpu_time_for_each_request() {
    if !has("wrk") {
        return;
    }
    let folder = Folder::new("http-kept");
    let output = lab(
        &[
            "http",
            "--only",
            "keep-alive",
            "--connections",
            "4",
            "--idle",
            "20",
            "--poller",
            "epoll-et,uring",
            "--peer",
            "raw-epoll,nginx",
            "--baseline",
            "raw-epoll",
            "--runtime",
            "300ms",
        ],
        &folder,
    );
    let record = record(&output);
    for arm in ["raw-epoll", "A/A"] {
        let run = measured(&record, arm);
        let requests = run["events"].as_f64().expect("requests");
        let cpu_us = run["cpu_ns"]["value"].as_f64().expect("CPU time") / 1000.0;
        let value = run["value"].as_f64().expect("the metric");
        assert!((value - cpu_us / requests).abs() < 1e-6, "{run}");
        assert!(
            run["figures"]["latency_p99_us"].as_f64() >= run["figures"]["latency_p50_us"].as_f64()
        );
        assert_eq!(run["figures"]["idle_closed"], json!(0.0));
        assert!(run["generator"].as_str().is_some_and(|name| name.starts_with("wrk")));
    }
    let row = &record["results"][0];
    assert_eq!((&row["unit"], &row["more_is_better"]), (&json!("µs/request"), &json!(false)));
    let counting = record["counting"].as_array().expect("a list");
    let counting = counting.iter().find(|run| run["arm"] == "raw-epoll").expect("counted");
    let calls = &counting["kernel"]["system_calls"];
    if let (Some(calls), Some(requests)) = (calls["value"].as_f64(), counting["events"].as_f64()) {
        let each = calls / requests;
        assert!((2.0..4.0).contains(&each), "{each} system calls for each request");
    }
    let left_out = record["left_out"].as_array().expect("a list");
    for arm in ["epoll-et", "uring"] {
        if left_out.iter().any(|left| left["arm"] == arm) {
            skip(&format!("{arm}: left out of the plan"));
            continue;
        }
        assert_eq!(measured(&record, arm)["mechanism"], arm, "what the server says of itself");
    }
    if has("nginx") {
        measured(&record, "nginx");
    }
}

#[test]
fn connections_for_one_request_are_made_by_ab_and_by_wrk() {
    if !(has("wrk") && has("ab")) {
        return;
    }
    let folder = Folder::new("http-churn");
    let words = [
        "http",
        "--only",
        "churn",
        "--connections",
        "4",
        "--poller",
        "none",
        "--peer",
        "raw-epoll",
        "--baseline",
        "raw-epoll",
        "--runtime",
        "200ms",
    ];
    // Where there is no ab on PATH, wrk asks for the end of each connection.
    let only_wrk = folder.0.join("bin");
    std::fs::create_dir_all(&only_wrk).expect("a folder");
    let wrk = pollux_lab::host::programs::find("wrk").expect("it is there");
    std::os::unix::fs::symlink(wrk, only_wrk.join("wrk")).expect("a link");
    let path = std::env::var_os("PATH").expect("a PATH");
    for (generator, path) in [("ab", path.as_os_str()), ("wrk", only_wrk.as_os_str())] {
        let record = record(&command(&words, &folder).env("PATH", path).output().expect("it runs"));
        let run = measured(&record, "raw-epoll");
        assert!(run["generator"].as_str().is_some_and(|name| name.starts_with(generator)), "{run}");
        assert!(run["events"].as_u64() > Some(0));
    }
}

#[test]
fn the_chain_runs_on_pollers_rings_and_libraries() {
    let folder = Folder::new("chain");
    let output = lab(
        &[
            "chain",
            "--pairs",
            "10",
            "--active",
            "5",
            "--writes",
            "200",
            "--poller",
            "epoll,uring-poll,uring",
            "--peer",
            "all",
            "--baseline",
            "raw-epoll",
            "--runtime",
            "100ms",
            "--interval",
            "10ms",
        ],
        &folder,
    );
    let record = record(&output);
    let left_out = record["left_out"].as_array().expect("a list");
    for arm in [
        "epoll",
        "uring-poll",
        "uring",
        "raw-epoll",
        "mio",
        "polling",
        "libev",
        "libuv",
        "libevent",
        "A/A",
    ] {
        if left_out.iter().any(|left| left["arm"] == arm) {
            skip(&format!("{arm}: left out of the plan"));
            continue;
        }
        let run = measured(&record, arm);
        assert!(run["value"].as_f64().is_some_and(|ns| ns > 0.0), "{arm}");
        assert_eq!(run["events"].as_u64().map(|events| events % 205), Some(0), "whole rounds");
    }
    assert_eq!(record["results"][0]["unit"], "ns/event");
}

#[test]
fn an_interrupted_run_leaves_no_process_behind() {
    if !has("wrk") {
        return;
    }
    let folder = Folder::new("http-interrupted");
    let axes = json!({"connections": "4", "pipeline": "1", "keepalive": "true", "idle": "0",
                      "reply_bytes": "128"});
    let spec = json!({"experiment": "http", "poller": null, "peer": "raw-epoll",
                      "pattern": "random", "axes": axes, "seed": 1, "ramp_ms": 0,
                      "runtime_ms": 600_000, "interval_ms": 100, "pass": "timing",
                      "scratch": folder.0});
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "measure"]).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = command.spawn().expect("pollux starts");
    let mut stdin = run.stdin.take().expect("a pipe");
    stdin.write_all(spec.to_string().as_bytes()).expect("written");
    drop(stdin);
    let start = Instant::now();
    let children = loop {
        let children = children_of(run.id());
        if children.len() == 2 {
            break children;
        }
        assert!(start.elapsed() < PATIENCE, "server and generator do not run: {children:?}");
        std::thread::yield_now();
    };
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    let status = run.wait().expect("its end");
    assert_eq!(status.code(), Some(1), "it ended by itself, after both");
    for child in children {
        assert!(!Path::new(&format!("/proc/{child}/exe")).exists(), "{child} is still there");
    }
}

/// Processes whose parent this is.
fn children_of(pid: u32) -> Vec<u32> {
    let numbers = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |number: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields.to_owned());
        let parent = fields.and_then(|fields| fields.split_whitespace().nth(1)?.parse().ok());
        parent == Some(pid)
    };
    numbers.filter(is_child).collect()
}
