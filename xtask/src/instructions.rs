//! Instructions for each request of `crates/server/examples/request_cost.rs`, counted by valgrind's callgrind: they do not
//! depend on what else the machine does, so two revisions can be compared to less than a percent.

use std::path::Path;
use std::process::Command;

/// The cases of the example, by name.
const CASES: [&str; 15] = [
    "reply-least",
    "reply-ab",
    "reply-browser",
    "reply-equal",
    "file-browser",
    "file-equal",
    "proxy-browser",
    "proxy-equal",
    "sites-1-by-1",
    "sites-1000-by-20",
    "h2-1",
    "h2-100",
    "h2-open-16",
    "h2-open-100",
    "h2-open-1000",
];
/// Rounds of a run, and of one beside it: what a start costs is in both, and falls out of their difference.
const ROUNDS: [u32; 2] = [200, 600];
/// What valgrind says of openat2(2), by which files are opened, where it does not know it.
const NO_OPENAT2: &str = "unhandled amd64-linux syscall: 437";

/// Builds the example for release and has valgrind count each case; the lines to print.
///
/// # Errors
/// What could not be built or run.
pub(crate) fn count(root: &Path) -> Result<String, String> {
    let mut build = crate::cargo();
    build.args(["build", "--release", "--quiet", "-p", "pollux-server"]);
    build.args(["--example", "request_cost"]);
    let built = build.current_dir(root).status().map_err(|error| format!("cargo: {error}"))?;
    if !built.success() {
        return Err("the example does not build".to_owned());
    }
    let lines = CASES.iter().map(|case| line(root, case)).collect::<Result<Vec<_>, String>>();
    Ok(lines?.join("\n"))
}

fn line(root: &Path, case: &str) -> Result<String, String> {
    let [few, many] = ROUNDS.map(|rounds| counted(root, case, rounds));
    let (Some(few), Some(many)) = (few?, many?) else {
        return Ok(format!("{case:16} not counted: this valgrind does not know openat2(2)"));
    };
    let each = (many.instructions - few.instructions) / (many.requests - few.requests);
    Ok(format!("{case:16} {each:9.1} instructions a request"))
}

struct Counted {
    instructions: f64,
    requests: f64,
}

/// A run of so many rounds of a case; none where valgrind can't follow it.
fn counted(root: &Path, case: &str, rounds: u32) -> Result<Option<Counted>, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(root.join("target/release/examples/request_cost"));
    let output = valgrind.args(["count", case, &rounds.to_string()]).output();
    let output = output.map_err(|error| format!("valgrind: {error}; install it"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains(NO_OPENAT2) {
        return Ok(None);
    }
    let requests = String::from_utf8_lossy(&output.stdout);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let instructions = collected.and_then(|(_, number)| number.trim().parse().ok());
    match (instructions, requests.trim().parse()) {
        (Some(instructions), Ok(requests)) => Ok(Some(Counted { instructions, requests })),
        _ => Err(format!("{case}: {said}{requests}")),
    }
}
