//! Whole runs of the experiments that start other programs: nothing is judged of their figures, only that they
//! are there and mean what they say.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pollux_testing::{Process, Signal, children, has, is_running, script, skip, wait_for};
use serde_json::{Value, json};

use crate::measure;

/// The flags of a short run of pollux on one mechanism that is everywhere.
const ON_EPOLL: [&str; 6] = ["--arm", "epoll", "--baseline", "epoll", "--runtime", "500ms"];

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
    measure(&mut command(words, folder))
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
    let folder = Folder::new("http-kept");
    let output = lab(
        &[
            "http",
            "--only",
            "keep-alive",
            "--connections",
            "4",
            "--dead",
            "20",
            "--arm",
            "epoll-et,uring,raw-epoll,nginx",
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
        // The median of the turns is of the order of the mean of all of them: the unit is right.
        assert!((0.1..10.0).contains(&(value / (cpu_us / requests))), "{run}");
        assert!(run["turns"]["rounds"].as_u64() >= Some(8), "{run}");
        assert_eq!(run["turns"]["log_ratio"].is_number(), arm == "A/A", "{run}");
        assert!(run["figures"]["generator_us_per_request"].as_f64() > Some(0.0));
        assert_eq!(run["figures"]["dead_closed"], json!(0.0));
        assert!(run["generator"].as_str().is_some_and(|name| name.starts_with("pollux")));
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
            skip(format!("{arm}: left out of the plan"));
            continue;
        }
        assert_eq!(measured(&record, arm)["mechanism"], arm, "what the server says of itself");
    }
    if has("nginx") {
        measured(&record, "nginx");
    }
}

#[test]
fn every_generator_loads_a_server_in_the_same_blocks() {
    let folder = Folder::new("http-churn");
    let output = lab(
        &[
            "http",
            "--only",
            "churn",
            "--connections",
            "4",
            "--generator",
            "pollux,wrk,ab",
            "--arm",
            "raw-epoll",
            "--baseline",
            "raw-epoll",
            "--runtime",
            "1s",
        ],
        &folder,
    );
    let record = record(&output);
    for generator in ["pollux", "wrk", "ab"] {
        if generator != "pollux" && !has(generator) {
            continue;
        }
        let point = match generator {
            "pollux" => "4 connections, no keepalive".to_owned(),
            other => format!("4 connections, no keepalive, {other}"),
        };
        let runs = record["runs"].as_array().expect("runs");
        let run = runs.iter().find(|run| run["point"] == point && run["arm"] == "raw-epoll");
        let outcome = &run.unwrap_or_else(|| panic!("no run at {point}"))["outcome"];
        let run = &outcome["measured"];
        assert!(run.is_object(), "{outcome}");
        assert!(run["generator"].as_str().is_some_and(|name| name.starts_with(generator)), "{run}");
        assert!(run["events"].as_u64() > Some(0), "{run}");
    }
}

#[test]
fn dead_connections_beyond_a_process_are_held_by_several() {
    let folder = Folder::new("http-dead");
    let words = [
        "dead",
        "--connections",
        "8",
        "--dead",
        "0,1000",
        "--arm",
        "epoll-et,uring,raw-epoll",
        "--baseline",
        "raw-epoll",
        "--runtime",
        "200ms",
    ];
    let mut limited = Command::new("prlimit");
    let lab = command(&words, &folder);
    limited.arg("--nofile=1000:1000").arg(lab.get_program()).args(lab.get_args());
    let record = record(&measure(&mut limited));
    let point = "8 connections, 1000 dead, 2 processes";
    let runs = record["runs"].as_array().expect("runs").iter().filter(|run| run["point"] == point);
    let runs: Vec<&Value> = runs.collect();
    assert!(runs.iter().any(|run| run["arm"] == "raw-epoll"), "{}", record["left_out"]);
    for run in runs {
        let measured = &run["outcome"]["measured"];
        assert_eq!(measured["figures"]["dead_closed"], json!(0.0), "{run}");
        assert!(measured["events"].as_u64() > Some(0), "{run}");
    }
    let answers = record["answers"].as_array().expect("answers").iter();
    let loads: Vec<&str> = answers.filter_map(|answer| answer["load"].as_str()).collect();
    let beside = "HTTP on 8 connections, 1000 dead beside them, 2 server processes";
    assert_eq!(loads, ["HTTP on 8 connections", beside], "the load alone, and the curve's end");
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
            "--arm",
            "epoll,uring-poll,uring,all",
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
            skip(format!("{arm}: left out of the plan"));
            continue;
        }
        let run = measured(&record, arm);
        assert!(run["value"].as_f64().is_some_and(|ns| ns > 0.0), "{arm}");
        assert_eq!(run["events"].as_u64().map(|events| events % 205), Some(0), "whole rounds");
    }
    assert_eq!(record["results"][0]["unit"], "ns/event");
}

#[test]
fn a_split_reply_is_judged_by_its_rate_which_waits_for_acknowledgements() {
    let folder = Folder::new("http-split");
    let words = ["http", "--only", "keep-alive", "--connections", "10", "--reply", "whole,split"];
    let output = lab(&[&words[..], &ON_EPOLL, &["--request-times"]].concat(), &folder);
    let record = record(&output);
    let rows = record["results"].as_array().expect("rows");
    let row = |point: &str| {
        let found = rows.iter().find(|row| row["point"] == point && row["arm"] == "epoll");
        found.unwrap_or_else(|| panic!("no row at {point}"))
    };
    let whole = row("10 connections");
    let split = row("10 connections, split reply");
    assert_eq!((&whole["unit"], &split["unit"]), (&json!("µs/request"), &json!("requests/s")));
    let rate = split["value"].as_f64().expect("a rate");
    // 10 connections / 40 ms, and the first answers of each connection, which do not wait.
    assert!((50.0..600.0).contains(&rate), "{rate} requests/s");
    let timed = record["request_times"].as_array().expect("times");
    assert_eq!(timed.len(), 2, "one arm at two points");
    for run in timed {
        let counted: u64 = run["times"]["buckets"]
            .as_array()
            .expect("buckets")
            .iter()
            .filter_map(|bucket| bucket["requests"].as_u64())
            .sum();
        assert!(counted > 0 && run["times"]["requests"] == json!(counted), "{run}");
    }
}

#[test]
fn builds_are_servers_and_run_workloads() {
    let folder = Folder::new("builds");
    let program = env!("CARGO_BIN_EXE_pollux");
    let old = format!("old={program}");
    let new = format!("new={program}");
    let words = ["version", "--pipes", "10", "--connections", "4", "--dead", "0"];
    let more = ["--arm", &old, "--arm", &new, "--runtime", "200ms", "--interval", "20ms"];
    let record = record(&lab(&[&words[..], &more].concat(), &folder));
    let arms: Vec<&Value> =
        record["runs"].as_array().expect("runs").iter().map(|run| &run["arm"]).collect();
    assert_eq!(arms.len(), 6, "two parts, each with old, new and old again");
    for arm in ["old", "new", "A/A"] {
        assert_eq!(measured(&record, arm)["mechanism"], "epoll", "{arm}");
    }
    assert_eq!(record["results"][0]["baseline"], "old");
    let facts = record["environment"].as_array().expect("facts");
    let fact = facts.iter().find(|fact| fact["name"] == "build new").expect("a fact");
    assert!(fact["reading"]["value"].as_str().is_some_and(|said| said.contains("pollux ")));
    let missing = lab(&["version", "--arm", "old=no/such/pollux"], &folder);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn a_report_made_again() {
    let folder = Folder::new("again");
    record(&lab(&["pipes", "--pipes", "10", "--runtime", "100ms", "--interval", "10ms"], &folder));
    let files = ["report.html", "report.md"].map(|name| folder.0.join(name));
    let written = files.each_ref().map(|file| std::fs::read_to_string(file).expect("a report"));
    files.iter().for_each(|file| std::fs::remove_file(file).expect("it was there"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    let output = command.args(["lab", "report"]).arg(&folder.0).output().expect("pollux starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (file, written) in files.iter().zip(&written) {
        let again = std::fs::read_to_string(file).expect("a report");
        assert!(again == *written, "{} is another one", file.display());
    }
    files.iter().for_each(|file| std::fs::remove_file(file).expect("it was there"));
    let elsewhere = folder.0.join("elsewhere.html");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "report"]).arg(&folder.0).arg("--html").arg(&elsewhere);
    assert!(command.output().expect("pollux starts").status.success());
    assert!(std::fs::read_to_string(elsewhere).expect("a report") == written[0]);
    assert!(files.iter().all(|file| !file.exists()), "beside the result");
}

/// A build that fails as soon as it is to count, as one does whose counters are taken away.
const UNCOUNTED: &str = r#"#!/bin/sh
[ "$1 $2" = "lab subject" ] || exec POLLUX "$@"
while IFS= read -r line; do
    case "$line" in '{"count"'*) echo "no counters today" >&2; exit 1 ;; esac
    printf '%s\n' "$line"
done | POLLUX "$@"
"#;

#[test]
fn an_arm_that_fails_when_it_is_counted_keeps_its_turns() {
    let folder = Folder::new("uncounted");
    let program = folder.0.join("uncounted");
    script(&program, &UNCOUNTED.replace("POLLUX", env!("CARGO_BIN_EXE_pollux")));
    let arm = format!("old=pollux:{}", program.display());
    let words = ["pipes", "--pipes", "10", "--arm", "epoll", "--arm", &arm];
    let more = ["--baseline", "epoll", "--runtime", "100ms", "--interval", "10ms"];
    let record = record(&lab(&[&words[..], &more].concat(), &folder));
    assert!(measured(&record, "old")["value"].as_f64() > Some(0.0));
    let counted = record["counting"].as_array().expect("counts");
    assert!(counted.iter().any(|run| run["arm"] == "epoll"), "{counted:?}");
    assert!(counted.iter().all(|run| run["arm"] != "old"), "{counted:?}");
    let left_out = record["left_out"].as_array().expect("what is left out");
    let why = left_out.iter().find(|left| left["arm"] == "old").expect("a reason");
    assert_eq!(why["reason"], "what is counted beside its turns: no counters today");
}

#[test]
fn an_interrupted_run_leaves_no_process_behind() {
    let folder = Folder::new("http-interrupted");
    let axes = json!({"connections": "4", "pipeline": "1", "keepalive": "true", "dead": "10",
                      "generator": "pollux", "reply_bytes": "128", "request_bytes": "0", "path": "/",
                      "reply": "whole", "file": "false", "encrypted": "false",
                      "resumption": "true", "http": "1.1", "streams": "1"});
    let spec = json!({"experiment": "http", "arm": {"peer": "raw-epoll"}, "axes": axes, "seed": 1, "ramp_ms": 0,
                      "runtime_ms": 600_000, "interval_ms": 100, "pass": "timing",
                      "scratch": folder.0});
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "measure"]).stdin(Stdio::piped());
    let mut run = Process::start(command.stdout(Stdio::null()));
    run.take_stdin().write_all(spec.to_string().as_bytes()).expect("written");
    let children = wait_for("server, holder and generator", || {
        Some(children(run.id())).filter(|children| children.len() == 3)
    });
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), Some(1), "it ended by itself, after them");
    for child in children {
        assert!(!is_running(child), "{child:?} is still there");
    }
}

/// A run of many short blocks, begun; returns when the files of the first are there.
fn long_run(folder: &Folder, nohup: bool) -> Process {
    let mut command = if nohup {
        let mut command = Command::new("nohup");
        command.arg(env!("CARGO_BIN_EXE_pollux"));
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_pollux"))
    };
    command.args(["lab", "run", "pipes", "--pipes", "4", "--arm", "epoll", "--arm", "poll"]);
    command
        .args([
            "--blocks",
            "1000",
            "--max-blocks",
            "1000",
            "--runtime",
            "200ms",
            "--interval",
            "20ms",
        ])
        .args(["--overwrite", "--out"])
        .arg(&folder.0);
    let run = Process::start(command.stdout(Stdio::piped()));
    wait_for("files of the first set", || folder.0.join("job.toml").exists().then_some(()));
    run
}

#[test]
fn a_lab_whose_terminal_goes_ends_in_order_with_its_table_and_whole_files() {
    let folder = Folder::new("hang-up");
    let run = long_run(&folder, false);
    run.signal(Signal::HUP);
    let ended = run.ended();
    assert_eq!(ended.status.code(), Some(129));
    let table = ended.stdout;
    assert!(table.contains("Stopped by the user") && table.contains("A/A"), "{table}");
    let text = std::fs::read_to_string(folder.0.join("result.json")).expect("a result");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(record["ending"], "interrupted");
}

#[test]
fn a_lab_that_was_started_to_survive_its_terminal_does() {
    if !has("nohup") {
        return;
    }
    let folder = Folder::new("nohup");
    let mut run = long_run(&folder, true);
    run.signal(Signal::HUP);
    let result = folder.0.join("result.json");
    let blocks = || {
        let text = std::fs::read_to_string(&result).ok()?;
        serde_json::from_str::<Value>(&text).ok()?["blocks"].as_array().map(Vec::len)
    };
    let before = wait_for("a result", blocks);
    wait_for("more sets than before", || blocks().filter(|now| *now > before + 1));
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), Some(143));
}

#[test]
fn the_files_of_a_killed_lab_are_not_taken_for_those_of_a_whole_run() {
    let folder = Folder::new("killed");
    let mut run = long_run(&folder, false);
    run.signal(Signal::KILL);
    run.wait();
    let again = |words: &[&Path]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.arg("lab").args(words).output().expect("pollux starts")
    };
    let reported = again(&[Path::new("report"), &folder.0]);
    let table = String::from_utf8_lossy(&reported.stdout).into_owned();
    assert!(table.contains("This run did not come to its end"), "{table}");
    for name in ["report.html", "report.md"] {
        let text = std::fs::read_to_string(folder.0.join(name)).expect("a report");
        assert!(text.contains("This run did not come to its end"), "{name}");
    }
    let other = Folder::new("killed-other");
    std::fs::write(other.0.join("result.json"), {
        let text = std::fs::read_to_string(folder.0.join("result.json")).expect("a result");
        text.replace("\"interim\"", "\"complete\"")
    })
    .expect("written");
    let compared = again(&[Path::new("compare"), &other.0, &folder.0]);
    let said = String::from_utf8_lossy(&compared.stderr).into_owned();
    assert!(said.contains("killed is of a run that did not come to its end"), "{said}");
}

#[test]
fn a_budget_is_looked_at_between_points_too() {
    let folder = Folder::new("budget");
    // Each point takes two seconds, which no forecast knows of.
    let line = [
        "pipes",
        "--pipes",
        "2,3,4,5,6,7",
        "--arm",
        "epoll",
        "--runtime",
        "10ms",
        "--interval",
        "10ms",
        "--arm",
        "slow=sh -c 'sleep 2; echo 5'",
        "--arm-pattern",
        "(.*)",
        "--budget",
        "5s",
    ];
    let record = record(&lab(&line, &folder));
    assert_eq!(record["ending"], "budget");
    let runs = record["runs"].as_array().expect("runs");
    let slow = runs.iter().filter(|run| run["arm"] == "slow").count();
    assert!((1..=3).contains(&slow), "{slow} runs of 2 s in 5 s");
}
