//! The built-in jobs keep what their comments promise, and names find them.

use crate::experiment::Experiment;
use crate::job::{builtin, find, list};
use crate::plan::{Machine, Plan, Wanted};

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
    let seconds = |name| {
        let machine = Machine { fds_max: 1 << 20, cpus: 2, missing: &|_| None };
        Plan::make(find(name).expect("built in"), &machine).forecast().total.as_secs()
    };
    assert!((140..=165).contains(&seconds("quick")), "155 s: {}", seconds("quick"));
    assert!((450..=530).contains(&seconds("seed0")), "8.5 minutes: {}", seconds("seed0"));
    let pipes = seconds("seed1-pipes");
    assert!((900..=1200).contains(&pipes), "17 minutes: {pipes}");
    assert!((490..=560).contains(&seconds("chain")), "9 minutes: {}", seconds("chain"));
    assert!((920..=1000).contains(&seconds("http")), "16 minutes: {}", seconds("http"));
    assert!((570..=650).contains(&seconds("http-idle")), "10 minutes: {}", seconds("http-idle"));
    assert!((560..=640).contains(&seconds("seed2")), "10 minutes: {}", seconds("seed2"));
}

#[test]
fn points_that_mean_nothing_or_need_too_much_are_left_out_with_the_reason() {
    let plan = |name, fds_max| {
        let machine = Machine { fds_max, cpus: 2, missing: &|_| None };
        Plan::make(find(name).expect("built in"), &machine)
    };
    let chain = plan("chain", 1 << 20);
    assert_eq!(chain.points.len(), 5);
    assert!(chain.left_out[0].reason.contains("more bytes under way than there are pairs"));
    let idle = plan("http-idle", 10_000);
    let labels: Vec<_> = idle.points.iter().map(|point| point.point.label.as_str()).collect();
    let (none, some) = ("100 connections", "100 connections, 1000 idle");
    assert_eq!(labels, [none, some, "100 connections, 5000 idle", "100 connections, 9000 idle"]);
    assert!(idle.left_out[0].reason.contains("needs 18164 descriptors"));
    let labels: Vec<_> =
        plan("http", 1 << 20).points.iter().map(|point| point.point.label.clone()).collect();
    assert_eq!(labels[3..], ["64 connections, 16 pipeline", "100 connections, no keepalive"]);
}

#[test]
fn without_the_generator_an_experiment_is_left_out_as_a_whole() {
    let missing = |wanted| match wanted {
        Wanted::Experiment(Experiment::Http) => Some("wrk is not installed here".to_owned()),
        _ => None,
    };
    let machine = Machine { fds_max: 1 << 20, cpus: 2, missing: &missing };
    let plan = Plan::make(find("http").expect("built in"), &machine);
    assert!(plan.points.is_empty());
    assert!(plan.left_out.iter().all(|left| left.reason == "wrk is not installed here"));
    assert_eq!(plan.left_out.len(), 3);
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
         seed1-pipes, chain, http, http-idle, seed2, version) or an experiment (streams, pipes, chain, http); did you mean \"quick\"?"
    );
    let error = find("no/such/file.toml").expect_err("no such file").to_string();
    assert!(error.starts_with("no/such/file.toml: cannot be opened: No such file"), "{error}");
}
