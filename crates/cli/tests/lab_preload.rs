//! Installed programs on other mechanisms, measured by the lab: each answers its load, on the mechanism
//! that was asked for and as it is. Nothing is judged of the figures.

use pollux_testing::skip;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// The record of a run with one set, or why a program was left out.
fn record(program: &str) -> Result<Value, String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("preload-{program}"));
    let _ = std::fs::remove_dir_all(&folder);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "run", "preload", "--quiet", "--json", "--program", program]);
    command.args(["--connections", "8", "--arm", "as-is,epoll,poll", "--runtime", "60ms"]);
    command.args(["--blocks", "2", "--max-blocks", "2", "--budget", "2m"]);
    let output = command.arg("--out").arg(&folder).output().expect("pollux starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.stdout.is_empty() && said.contains("is not installed") {
        return Err(said);
    }
    let record = serde_json::from_slice(&output.stdout);
    let record: Value = record.unwrap_or_else(|error| panic!("{program}: {error}: {said}"));
    let _ = std::fs::remove_dir_all(&folder);
    Ok(record)
}

fn is_measured(program: &str) {
    let record = match record(program) {
        Ok(record) => record,
        Err(reason) => return skip(&reason),
    };
    let rows = record["results"].as_array().expect("rows");
    let arms: Vec<&str> = rows.iter().filter_map(|row| row["arm"].as_str()).collect();
    assert_eq!(arms, ["as-is", "epoll", "poll", "A/A"], "{program}");
    for row in rows {
        let is_measured = row["value"].as_f64() > Some(0.0) && row["verdict"] != "failed";
        assert!(is_measured && row["unit"] == "µs/request", "{program}: {row}");
        assert_eq!(row["baseline"], "as-is", "{program}: {row}");
    }
}

#[test]
fn nginx_is_measured_as_it_is_and_on_other_mechanisms() {
    is_measured("nginx");
}

#[test]
fn haproxy_is_measured_as_it_is_and_on_other_mechanisms() {
    is_measured("haproxy");
}

#[test]
fn redis_is_measured_as_it_is_and_on_other_mechanisms() {
    is_measured("redis-server");
}

#[test]
fn memcached_is_measured_as_it_is_and_on_other_mechanisms() {
    is_measured("memcached");
}
