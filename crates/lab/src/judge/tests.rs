//! What a judged record says of servers: answers for rates and costs, and what the load generator
//! found.

use std::collections::BTreeMap;

use crate::host::Reading;
use crate::job::Job;
use crate::plan::{Machine, Plan, Resources};
use crate::record::{
    Badge, Block, Measurement, Outcome, Record, ResultRow, Run, Steady, SteadyKind, Verdict,
};

use super::{answer, judge, row_for_tests, trust};

/// An HTTP server on 64 connections, and one beside up to 60000 dead ones.
const JOB: &str = "[global]\npollers = [\"select\", \"epoll\", \"uring\"]\npeers = \"none\"\n\
                   [[job]]\nname = \"http\"\nexperiment = \"http\"\nconnections = 64\n\
                   keepalive = [true, false]\n\
                   [[job]]\nname = \"dead\"\nexperiment = \"http\"\nconnections = 100\n\
                   dead = [0, 5000, 60000]\n";

fn plan() -> Plan {
    let job = Job::parse(JOB, "test.toml").expect("a job");
    let machine =
        Machine { fds_max: 20_000, cpus: 2, resources: Resources::default(), missing: &|_| None };
    Plan::make(job, &machine)
}

fn row(place: [&str; 3], value: f64, ratio: f64, verdict: Verdict) -> ResultRow {
    let [experiment, point, arm] = place;
    let of_others = verdict != Verdict::Baseline;
    ResultRow {
        experiment: experiment.to_owned(),
        point: point.to_owned(),
        metric: "server CPU per request".to_owned(),
        more_is_better: false,
        value: Some(value),
        ratio: Some(ratio),
        ci_low: of_others.then_some(ratio * 0.99),
        ci_high: of_others.then_some(ratio * 1.01),
        ..row_for_tests(arm, verdict)
    }
}

#[test]
fn a_wide_interval_of_the_same_program_twice_is_no_quiet_machine() {
    let mut record = Record::empty();
    record.runs = vec![run(0, "epoll", &[])];
    record.blocks = vec![Block {
        block: 0,
        repeats: None,
        start_s: 0.0,
        duration_s: 10.0,
        steal: Reading::Value(0.0),
        foreign_cpu: Reading::Value(0.0),
        pressure: Reading::Value(0.0),
        disturbances: Vec::new(),
    }];
    let mut badge = |low: f64, high: f64| {
        record.results = vec![ResultRow {
            ratio: Some(1.0),
            ci_low: Some(low),
            ci_high: Some(high),
            ..row_for_tests("A/A", Verdict::NoiseFloor)
        }];
        trust::of(&record).badge
    };
    assert_eq!(badge(0.96, 1.05), Badge::Quiet);
    assert_eq!(badge(0.92, 1.05), Badge::Quiet, "1/1.08");
    assert_eq!(badge(0.83, 1.05), Badge::Noisy);
    assert_eq!(badge(0.99, 1.38), Badge::Noisy);
    assert_eq!(badge(1.06, 1.38), Badge::Invalid, "apart from itself");
}

#[test]
fn every_load_of_a_server_has_its_answer_and_a_curve_has_one() {
    use Verdict::{Baseline, Equivalent, Faster, Slower};
    let (kept, churn) = ("64 connections", "64 connections, no keepalive");
    let (none, most) = ("100 connections", "100 connections, 60000 dead, 4 processes");
    let mut record = Record::empty();
    record.results = vec![
        row(["http", kept, "epoll"], 8.0, 1.0, Baseline),
        row(["http", kept, "select"], 8.8, 1.1, Slower),
        row(["http", kept, "uring"], 6.8, 0.85, Faster),
        row(["http", churn, "epoll"], 40.0, 1.0, Baseline),
        row(["http", churn, "select"], 40.0, 1.0, Equivalent),
        row(["http", churn, "uring"], 40.0, 1.0, Equivalent),
        row(["dead", none, "epoll"], 8.0, 1.0, Baseline),
        row(["dead", none, "select"], 8.0, 1.0, Equivalent),
        row(["dead", none, "uring"], 8.0, 1.0, Equivalent),
        row(["dead", most, "epoll"], 8.4, 1.0, Baseline),
        row(["dead", most, "select"], 184.0, 21.9, Slower),
        row(["dead", most, "uring"], 8.3, 0.99, Equivalent),
    ];
    let answers = answer::of(&plan(), &record);
    let said: Vec<[&str; 3]> = answers.iter().map(|a| [&*a.load, &*a.choice, &*a.reason]).collect();
    assert_eq!(
        said,
        [
            [
                "HTTP on 64 connections",
                "uring",
                "uring: 15 % less server CPU per request than epoll [0.84, 0.86]; select: 10 % \
                 more server CPU per request than epoll [1.09, 1.11]",
            ],
            [
                "HTTP on 64 connections, each for one request",
                "no difference",
                "epoll is the baseline; uring: as much server CPU per request as epoll \
                 [0.99, 1.01]",
            ],
            [
                "HTTP on 100 connections",
                "no difference",
                "epoll is the baseline; uring: as much server CPU per request as epoll \
                 [0.99, 1.01]",
            ],
            [
                "HTTP on 100 connections, 60000 dead beside them, 4 server processes",
                "uring or epoll",
                "uring: 1 % less server CPU per request than epoll [0.98, 1.00]; uring and epoll \
                 rise less than 15 %; select rises to 23.0 times from 0 to 60000 dead",
            ],
        ]
    );
}

fn run(block: u32, arm: &str, findings: &[(&str, &str)]) -> Run {
    let findings = findings.iter().map(|(kind, text)| ((*kind).into(), (*text).into()));
    let measured = Measurement {
        value: 8.0,
        figures: BTreeMap::new(),
        mechanism: None,
        generator: Some("pollux".to_owned()),
        findings: findings.collect(),
        window_s: 1.0,
        intervals: Vec::new(),
        steadiness: Steady { kind: SteadyKind::TooShort, detail: String::new() },
        turns: None,
        worker_calls: Vec::new(),
        events: Some(1000),
        cpu_ns: Reading::Value(8_000_000),
        process_cpu_ns: Reading::Value(1),
    };
    Run {
        block,
        position: 0,
        experiment: "http".to_owned(),
        point: "64 connections".to_owned(),
        arm: arm.to_owned(),
        outcome: Outcome::Measured(measured),
    }
}

#[test]
fn a_row_tells_what_the_generator_found_of_the_server_and_not_of_itself() {
    let stall = ("delayed-ack", "answers seem to wait for a delayed acknowledgement");
    let bound = ("generator-bound", "the generator is the bottleneck");
    let mut record = Record::empty();
    record.runs = vec![
        run(0, "epoll", &[bound]),
        run(1, "epoll", &[]),
        run(0, "uring", &[bound, stall]),
        run(1, "uring", &[bound]),
    ];
    judge(&plan(), &mut record);
    let notes = |arm: &str| {
        let is_it = |row: &&ResultRow| row.arm == arm && row.point == "64 connections";
        record.results.iter().find(is_it).expect("a row").notes.join("; ")
    };
    assert!(notes("uring").contains(&format!("in 1 of 2 runs: {}", stall.1)), "{}", notes("uring"));
    assert!(!notes("uring").contains(bound.1) && !notes("epoll").contains(bound.1));
}
