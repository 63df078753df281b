//! The built-in jobs keep what their comments promise, and names find them.

use std::time::Duration;

use crate::experiment::Experiment;
use crate::job::{Job, builtin, find, list};

/// What a fresh process costs beside ramp and runtime.
const PROCESS: Duration = Duration::from_millis(150);

/// Points of the plan of each part, times its arms and the second copy of the baseline, times
/// what a run takes; and the counting pass, which needs no second copy.
fn forecast(job: &Job) -> Duration {
    let runs = |part: &crate::job::Part| {
        let points: usize = part.axes.values().map(Vec::len).product();
        let arms = part.pollers.len() + part.commands.len();
        let more = if part.axes.get("no_poller").is_some_and(|v| v == &["true"]) { 2 } else { 0 };
        let blocks = usize::try_from(job.blocks).expect("a small number");
        let runs = points * ((arms + 1 + more) * blocks + arms + more);
        (part.ramp_time + part.runtime + PROCESS) * u32::try_from(runs).expect("a small number")
    };
    job.parts.iter().map(runs).sum()
}

#[test]
fn every_builtin_is_right_and_called_like_its_file() {
    for known in list() {
        let job = find(known.name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(job.name, known.name);
        assert_eq!(builtin(known.name), Some(known.text));
    }
    assert_eq!(builtin("slow"), None);
}

#[test]
fn the_builtins_take_as_long_as_their_comments_say() {
    let seconds = |name| forecast(&find(name).expect("built in")).as_secs();
    assert_eq!(seconds("quick"), 156, "78 s and 78 s");
    assert!((430..=460).contains(&seconds("seed0")), "7.5 minutes: {}", seconds("seed0"));
    let pipes = seconds("seed1-pipes");
    assert!((900..=960).contains(&pipes), "15.5 minutes: {pipes}");
}

#[test]
fn an_experiment_is_found_by_its_name() {
    let job = find("pipes").expect("an experiment");
    assert_eq!(job.parts[0].experiment, Experiment::Pipes);
    assert_eq!(job.name, "pipes");
}

#[test]
fn a_name_that_means_nothing_is_answered_with_those_that_do() {
    let error = find("quik").expect_err("no such job").to_string();
    assert_eq!(
        error,
        "\"quik\" is no job; right is a path to a .toml file, a built-in job (quick, seed0, \
         seed1-pipes) or an experiment (streams, pipes); did you mean \"quick\"?"
    );
    let error = find("no/such/file.toml").expect_err("no such file").to_string();
    assert!(error.starts_with("no/such/file.toml: cannot be opened: No such file"), "{error}");
}
