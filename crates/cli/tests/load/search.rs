//! The search for the capacity, with trials far too short for a result to be believed.

use std::fs;

use serde_json::Value;

use crate::run::{Server, load};

#[test]
fn a_rate_that_holds_is_found_and_every_trial_is_kept() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("capacity.json");
    let name = file.to_str().expect("UTF-8");
    let flags = ["--find-capacity", "--slo", "p50=2s", "--trial", "100ms", "-c", "8"];
    let said = load(&[&flags[..], &["--json", name, &server.url]].concat());
    // A busy machine may make the generator the bottleneck; the search ends all the same.
    assert!(matches!(said.code, Some(0 | 3)), "{said:?}");
    for words in ["p50 at most 2.00 s", "asked/s", "capacity:"] {
        assert!(said.stdout.contains(words), "no {words} in {}", said.stdout);
    }
    let json: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
    let trials = json["trials"].as_array().expect("trials");
    assert!(trials.len() >= 4, "{json}");
    let lines =
        said.stdout.lines().filter(|line| line.contains("  holds") || line.contains("fails"));
    assert!(lines.count() >= trials.len(), "{}", said.stdout);
    let held = |trial: &&Value| trial["broken_by"].is_null();
    let highest = trials.iter().filter(held).filter_map(|trial| trial["rate_per_s"].as_f64());
    let highest = highest.fold(0.0, f64::max);
    let found = json["highest_holding_per_s"].as_f64().unwrap_or_default();
    assert!(found > 0.0 && found <= highest, "{found} of {highest}");
}

#[test]
fn an_objective_that_nothing_holds_is_an_exit_code() {
    let server = Server::start();
    let flags = ["--find-capacity", "--slo", "p50=1us", "--trial", "100ms", "-c", "1"];
    let said = load(&[&flags[..], &["--json", "-", "-q", &server.url]].concat());
    assert_eq!(said.code, Some(3), "{said:?}");
    assert_eq!(said.json()["highest_holding_per_s"], Value::Null);
    assert_eq!(said.stderr, "");
}

#[test]
fn without_a_server_there_is_no_search() {
    let said =
        load(&["--find-capacity", "--slo", "p99=5ms", "--trial", "2s", "http://127.0.0.1:1/"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("can't connect"), "{said:?}");
}
