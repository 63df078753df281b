//! The built-in jobs keep what their comments promise, and names find them.

use crate::experiment::{Experiment, Generator};
use crate::job::{builtin, find, list};
use crate::plan::{Machine, Plan, Wanted};

fn machine(fds_max: u64, missing: &dyn Fn(Wanted) -> Option<String>) -> Machine<'_> {
    Machine { fds_max, cpus: 2, memory_bytes: None, missing }
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
    let seconds = |name| {
        Plan::make(find(name).expect("built in"), &machine(1 << 20, &|_| None))
            .forecast()
            .total
            .as_secs()
    };
    for (name, forecast) in [
        ("quick", 240..=270),
        ("seed0", 450..=530),
        ("seed1", 1500..=1620),
        ("chain", 490..=560),
        ("http", 920..=1000),
        ("dead", 1030..=1130),
        ("seed2", 560..=640),
    ] {
        assert!(forecast.contains(&seconds(name)), "{name}: {} s", seconds(name));
    }
}

#[test]
fn points_that_mean_nothing_or_need_too_much_are_left_out_with_the_reason() {
    let plan =
        |name, fds_max| Plan::make(find(name).expect("built in"), &machine(fds_max, &|_| None));
    let chain = plan("chain", 1 << 20);
    assert_eq!(chain.points.len(), 5);
    assert!(chain.left_out[0].reason.contains("more bytes under way than there are pairs"));
    let dead = plan("dead", 20_000);
    let labels: Vec<_> = dead.points.iter().map(|point| point.point.label.as_str()).collect();
    assert_eq!(labels[..2], ["100 connections", "100 connections, 1000 dead"]);
    assert_eq!(labels[4], "100 connections, 18000 dead");
    assert_eq!(labels[5], "100 connections, 30000 dead, 2 processes");
    assert_eq!(labels[7], "100 connections, 60000 dead, 4 processes");
    let alone: Vec<_> = dead.left_out.iter().map(|left| (&*left.arm, &*left.point)).collect();
    assert_eq!(alone.len(), 3, "nginx at the points of several processes");
    assert_eq!(alone[0], ("nginx", labels[5]));
    assert_eq!(dead.points[7].arms.len(), dead.points[0].arms.len() - 1);
    let labels: Vec<_> =
        plan("http", 1 << 20).points.iter().map(|point| point.point.label.clone()).collect();
    assert_eq!(labels[3..], ["64 connections, 16 pipeline", "100 connections, no keepalive"]);
}

#[test]
fn without_its_generator_a_point_is_left_out() {
    let missing = |wanted| match wanted {
        Wanted::Generator(Generator::Wrk) => Some("wrk is not installed here".to_owned()),
        _ => None,
    };
    let mut job = find("http").expect("built in");
    let part = job.parts.iter_mut().find(|part| part.name == "churn").expect("a part");
    part.axes.insert("generator".into(), ["pollux", "wrk", "ab"].map(String::from).to_vec());
    let plan = Plan::make(job, &machine(1 << 20, &missing));
    let labels: Vec<_> = plan.points.iter().map(|point| point.point.label.as_str()).collect();
    let churn = "100 connections, no keepalive";
    assert_eq!(labels[4..], [churn.to_owned(), format!("{churn}, ab")]);
    assert_eq!(plan.left_out[0].point, format!("{churn}, wrk"));
    assert_eq!(plan.left_out[0].reason, "wrk is not installed here");
}

#[test]
fn a_generator_that_does_not_pipeline_is_not_asked_to() {
    let mut job = find("http").expect("built in");
    for part in &mut job.parts {
        part.axes.insert("generator".into(), vec!["ab".to_owned()]);
    }
    let plan = Plan::make(job, &machine(1 << 20, &|_| None));
    assert_eq!(plan.points.len(), 4);
    assert!(plan.left_out[0].reason.contains("one request at a time"));
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
         seed1, chain, http, dead, seed2, version) or an experiment (streams, pipes, chain, http); did you mean \"quick\"?"
    );
    let error = find("no/such/file.toml").expect_err("no such file").to_string();
    assert!(error.starts_with("no/such/file.toml: cannot be opened: No such file"), "{error}");
}
