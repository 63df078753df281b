//! `pollux load --agents` and `pollux load agents` as they find and run `pollux-agent`: its order, what is shown of
//! what it answers, exit codes, and what is said where it is missing. A script stands for that program.

use std::process::{Command, Output};

use pollux_testing::{Process, addresses};
use serde_json::Value;

use super::pool::{Installed, said};

const URL: &str = "http://127.0.0.1:9/";

/// A result, as `pollux load` has it: nobody listens there.
fn result(installed: &Installed) -> Value {
    let file = installed.path("own.json");
    let file = file.to_str().expect("UTF-8");
    let output = installed.run(&[
        "load",
        "-q",
        "-c",
        "1",
        "-d",
        "50ms",
        "--warm-up",
        "0s",
        "--json",
        file,
        URL,
    ]);
    let text = std::fs::read_to_string(file);
    let text = text.unwrap_or_else(|error| panic!("{error}: {}", said(&output)));
    serde_json::from_str(&text).expect("JSON")
}

/// The same, of a server that answers.
fn answered(installed: &Installed) -> Value {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_pollux"));
    let mut serve =
        Process::start(serve.args(["serve", "--reply", "5", "--listen", "127.0.0.1:0"]));
    let url = serve.wait_for_stderr_line("http://");
    let url = format!("http://{}/", addresses(&url)[0]);
    let file = installed.path("answered.json");
    let file = file.to_str().expect("UTF-8");
    let flags = ["load", "-q", "-c", "1", "-n", "50", "--warm-up", "0s", "--json", file, &url];
    let output = installed.run(&flags);
    let text = std::fs::read_to_string(file);
    let text = text.unwrap_or_else(|error| panic!("{error}: {}", said(&output)));
    serde_json::from_str(&text).expect("JSON")
}

/// A script that keeps its order and answers with this.
fn telling(installed: &Installed, told: &Value) {
    std::fs::write(installed.path("told"), told.to_string()).expect("written");
    let words = installed.path("words");
    let order = installed.path("order");
    let told = installed.path("told");
    let [words, order, told] = [words, order, told].map(|path| path.display().to_string());
    let script = format!(
        "echo \"$@\" > {words}\nread -r line\necho \"$line\" > {order}\n/bin/cat {told}\necho"
    );
    installed.script("bin/pollux-agent", &script);
}

fn kept(installed: &Installed, name: &str) -> String {
    std::fs::read_to_string(installed.path(name)).expect("the script ran")
}

#[test]
fn the_order_goes_to_the_program_and_its_result_is_that_of_the_run() {
    let installed = Installed::new();
    let mut outcome = result(&installed);
    outcome["agents"] = serde_json::json!([]);
    telling(&installed, &serde_json::json!({ "outcome": outcome }));
    let words =
        ["load", "--agents", "3", "--nats", "nats://h:1", "--group", "g", "-n", "90", "-c", "6"];
    let output = installed.run(&[&words[..], &["--json", "-", URL]].concat());
    assert_eq!(kept(&installed, "words"), "drive --nats nats://h:1 --group g\n");
    let order: Value = serde_json::from_str(&kept(&installed, "order")).expect("a line of JSON");
    let run = &order["run"];
    assert_eq!((&run["agents"], &run["on_lost_agent"]), (&3.into(), &"stop".into()));
    assert_eq!((&run["order"]["requests"], &run["order"]["connections"]), (&90.into(), &6.into()));
    assert_eq!(run["order"]["driver"], Value::Null);
    let printed: Value = serde_json::from_slice(&output.stdout).expect("the result");
    assert_eq!(printed["began_unix_s"], outcome["began_unix_s"]);
    assert_eq!(output.status.code(), Some(1), "nothing was answered: {}", said(&output));
}

#[test]
fn what_fails_there_fails_here() {
    let installed = Installed::new();
    let words = ["load", "-q", "--agents", "2", URL];
    for (is_usage, code) in [(false, 1), (true, 2)] {
        let why = "agent b refuses the order: no";
        telling(&installed, &serde_json::json!({ "failed": { "why": why, "is_usage": is_usage } }));
        let output = installed.run(&words);
        assert_eq!(output.status.code(), Some(code));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
    for (script, says) in [
        ("read -r line; exit 5", "pollux-agent ended without a result (exit status: 5)"),
        ("read -r line; echo nonsense", "pollux-agent is of another version"),
    ] {
        installed.script("bin/pollux-agent", script);
        let output = installed.run(&words);
        assert!(said(&output).contains(says), "{}", said(&output));
        assert_eq!(output.status.code(), Some(1));
    }
}

/// The script answers each trial with the same result, in which nothing waits: every rate holds, until the search ends.
#[test]
fn trials_of_a_search_are_orders_to_agents() {
    let installed = Installed::new();
    let mut outcome = answered(&installed);
    telling(&installed, &serde_json::json!({ "outcome": outcome }));
    let words = ["load", "--agents", "3", "-c", "6", "--find-capacity", "--slo", "p99=50s"];
    let output = installed.run(&[&words[..], &["--trial", "2s", "--json", "-", URL]].concat());
    let found: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", said(&output)));
    let trials = found["trials"].as_array().expect("trials");
    assert!(trials.len() > 2, "{found}");
    // The last one is the one whose order was kept.
    let order: Value = serde_json::from_str(&kept(&installed, "order")).expect("a line of JSON");
    let run = &order["run"];
    assert_eq!((&run["agents"], &run["order"]["after_ns"]), (&3.into(), &2_000_000_000_u64.into()));
    let last = trials.last().expect("one");
    assert_eq!(run["order"]["schedule"]["stages"][0]["from_per_s"], last["rate_per_s"]);
    // One that is lost ends it: what is left is another load.
    outcome["findings"] = serde_json::json!([
        { "kind": "agent-lost", "text": "agent b was lost", "advice": "" }
    ]);
    telling(&installed, &serde_json::json!({ "outcome": outcome }));
    let output = installed.run(&[&words[..], &[URL]].concat());
    assert!(said(&output).contains("the search ends: agent b was lost"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn agents_are_listed_by_the_program() {
    let installed = Installed::new();
    installed.script("path/pollux-agent", "echo \"$@\"; exit 7");
    let output = installed.run(&["load", "agents", "--nats", "nats://h:1", "--json"]);
    let words = "list --nats nats://h:1 --group default --json\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), words);
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn where_the_program_is_missing_the_remedy_is_named() {
    let installed = Installed::new();
    for words in [&["load", "agents"][..], &["load", "--agents", "2", URL]] {
        let output = installed.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        for part in
            ["pollux-agent", "PATH", "cargo build --release -p pollux-agent", "cargo xtask install"]
        {
            assert!(said(&output).contains(part), "{words:?}: no {part} in {}", said(&output));
        }
    }
}

#[test]
fn flags_that_are_of_this_host_alone_are_refused() {
    let refused = |words: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["load", "-q", "--agents", "2"]).args(words).arg(URL);
        command.output().expect("pollux runs")
    };
    for (words, says) in [
        (&["--find-capacity"][..], "--slo"),
        (&["--source", "127.0.0.2"], "--source"),
        (&["--cpus", "0"], "--cpus"),
        (&["--server-pid", "1"], "--server-pid"),
        (&["--unix", "/run/s"], "--unix"),
        (&["--cacert", "/x", "--connect-to", "127.0.0.1:9"], "--cacert"),
        (&["-c", "1"], "--connections"),
        (&["-n", "1"], "--requests"),
    ] {
        let output = refused(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{words:?}: {}", said(&output));
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    let output = command.args(["load", "--nats", "nats://h", URL]).output().expect("pollux runs");
    assert!(said(&output).contains("--agents"), "{}", said(&output));
}
