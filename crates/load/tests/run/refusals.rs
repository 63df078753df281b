//! Plans that make no sense are refused before anything is opened, by the name of the flag.

use std::time::Duration;

use pollux_load::{Arrival, Load, Pace, Plan, Stage, Target};

use crate::plan;

type Change = fn(&mut Plan);

const WRONG: [(&str, Change); 15] = [
    ("URL", |plan| plan.targets.clear()),
    ("URL", |plan| plan.targets[0].weight = 0),
    ("URL", |plan| plan.targets.push(Target::parse("http://127.0.0.2:1/", None).expect("a URL"))),
    ("URL", |plan| {
        plan.targets.push(Target::parse("https://127.0.0.1:1/", None).expect("a URL"));
    }),
    ("request", |plan| plan.targets[0].fields.push(("A B".into(), "c".into()))),
    ("--threads", |plan| plan.threads = 0),
    ("--connections", |plan| plan.connections = 0),
    ("--connections", |plan| plan.crowd.dead = u32::MAX / 2),
    ("--pipeline", |plan| plan.pipeline = 0),
    ("--duration", |plan| plan.end.requests = None),
    ("--timeout", |plan| plan.request_timeout = Duration::ZERO),
    ("--think", |plan| {
        plan.pipeline = 2;
        plan.think_time = Duration::from_secs(1);
    }),
    ("--source", |plan| plan.sources.push("::1".parse().expect("an address"))),
    ("--rate", |plan| {
        let stage = Stage { from_per_s: f64::NAN, to_per_s: 1.0, lasts: None };
        plan.pace = Pace::Open { arrival: Arrival::Constant, stages: vec![stage] };
    }),
    ("--rate", |plan| {
        let stage = Stage { from_per_s: 9.0, to_per_s: 0.0, lasts: Some(Duration::from_secs(1)) };
        plan.pace = Pace::Open { arrival: Arrival::Constant, stages: vec![stage] };
    }),
];

#[test]
fn plans_without_sense_are_refused() {
    for (number, (what, change)) in WRONG.iter().enumerate() {
        let mut plan = plan("poll".parse().expect("a driver"), "http://127.0.0.1:1/", 1, 1);
        change(&mut plan);
        let error = Load::start(plan).expect_err(what).to_string();
        assert!(error.starts_with(&format!("{what}: ")), "{number}: {error}");
    }
}

#[test]
fn a_thread_that_cannot_begin_ends_the_others() {
    let mut plan = plan("poll".parse().expect("a driver"), "http://127.0.0.1:1/", 2, 1);
    plan.threads = 2;
    plan.cpus = Some("0,1023".parse().expect("a list"));
    let error = Load::start(plan).expect_err("there is no such CPU").to_string();
    assert!(error.starts_with("--cpus: "), "{error}");
}
