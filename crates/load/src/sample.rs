//! Outcomes for the tests of this crate: one whose answers are all alike, a plausible one, one without any answer.

use std::time::Duration;

use crate::{
    AnswerStart, CrowdOutcome, Distribution, Errors, Finding, FindingKind, Generator, Outcome,
    SHOWN, Second, Setting, TargetOutcome, Totals,
};

/// Seconds of warm-up of [`outcome`].
const WARM_UP: u32 = 2;
/// Its measured seconds; two whole windows of httperf and a tail.
const MEASURED: u32 = 12;

/// A run of ten seconds over `connections` with `answers`, all of which took `latency_ns`.
pub(crate) fn sample(connections: u32, answers: u64, latency_ns: u64) -> Outcome {
    let mut latency = Distribution::new();
    (0..answers).for_each(|_| latency.record(latency_ns));
    let setting = Setting {
        urls: vec!["http://127.0.0.1:8080/".to_owned()],
        listed: None,
        driver: "epoll-et".to_owned(),
        threads: 1,
        connections,
        pipeline: 1,
        http: "1.1".to_owned(),
        spoken: "1.1".to_owned(),
        streams: 1,
        windows: None,
        think_s: 0.0,
        requests_per_connection: None,
        pace: "closed".to_owned(),
        asked_per_s: None,
        warm_up_s: 0.0,
        quantiles: SHOWN.to_vec(),
    };
    let totals = Totals {
        due: answers,
        sent: answers,
        answered: answers,
        right: answers,
        by_class: [0, 0, answers, 0, 0, 0],
        connects: u64::from(connections),
        ..Totals::default()
    };
    let generator = Generator {
        cpu: Duration::from_secs(3),
        cpu_us_per_answer: None,
        busy_share: vec![0.3],
        cpus: Some(2),
        spun: Duration::ZERO,
        lag: Distribution::new(),
        coarse_timers: None,
        stalls: Vec::new(),
        involuntary_switches: Some(0),
    };
    Outcome {
        began_unix_s: 0.0,
        measured: Duration::from_secs(10),
        waited: Duration::ZERO,
        was_ended_early: false,
        in_time: None,
        sent_to_answer: None,
        setting,
        totals,
        first_byte: latency.clone(),
        latency,
        connect: Distribution::new(),
        lifetime: Distribution::new(),
        http2: None,
        errors: Errors::default(),
        warm_up_errors: Errors::default(),
        statuses: [(200, answers)].into_iter().filter(|(_, count)| *count > 0).collect(),
        first_failure: None,
        was_first_failure_early: false,
        first_wrong: None,
        first_redirect: None,
        unanswered: Distribution::new(),
        standstills: Vec::new(),
        silence: None,
        objectives: Vec::new(),
        targets: Vec::new(),
        seconds: Vec::new(),
        crowd: Vec::new(),
        generator,
        server: None,
        agents: Vec::new(),
        findings: Vec::new(),
    }
}

/// A closed loop of 64 connections over two threads for 12 s: second `n` of the measured part
/// (from 0) has `1000 + 100 n` answers, the warm-up 500 each.
pub(crate) fn outcome() -> Outcome {
    let seconds: Vec<Second> = (0..WARM_UP + MEASURED).map(second).collect();
    let measured = || seconds.iter().filter(|second| !second.is_warm_up);
    let mut latency = Distribution::new();
    measured().for_each(|second| latency.add(&second.latency));
    let answered: u64 = measured().map(|second| second.answered).sum();
    let timeout = 2;
    let reset = 3;
    let short = 1;
    let connect = 4;
    let connect_no_port = 1;
    let errors = Errors { timeout, reset, short, connect, connect_no_port, ..Errors::default() };
    let url = "http://127.0.0.1:8080/a?x=1&y=<2>".to_owned();
    let like = sample(64, 0, 0);
    Outcome {
        began_unix_s: 1_795_250_411.25,
        measured: Duration::from_secs(u64::from(MEASURED)),
        setting: Setting {
            urls: vec![url.clone()],
            threads: 2,
            warm_up_s: f64::from(WARM_UP),
            ..like.setting
        },
        totals: Totals {
            due: answered + 10,
            sent: answered + 6,
            answered,
            right: answered - 20,
            by_class: [0, 0, answered - 20, 0, 15, 5],
            connects: 20,
            bytes_out: (answered + 6) * 62,
            bytes_in: answered * 256,
            body_bytes_in: answered * 128,
            first_body_bytes: Some(128),
            unlike_first: Some(7),
            ..Totals::default()
        },
        statuses: [(200, answered - 20), (404, 15), (503, 5)].into_iter().collect(),
        first_wrong: Some(AnswerStart {
            status_line: "HTTP/1.1 404 Not Found".to_owned(),
            location: None,
            body: "<h1>gone</h1>".to_owned(),
            why: None,
        }),
        connect: times(20, |index| 50_000 + index * 1_000),
        lifetime: times(10, |index| (index + 1) * 1_000_000 + 200_000),
        first_byte: scaled(&latency, 0.9),
        errors,
        targets: vec![TargetOutcome { url, weight: 3, answered, errors, latency: latency.clone() }],
        latency,
        seconds,
        crowd: vec![crowd()],
        generator: Generator {
            cpu: Duration::from_millis(2_400),
            cpu_us_per_answer: Some(2_400_000.0 / answered as f64),
            busy_share: vec![0.11, 0.09],
            spun: Duration::from_millis(600),
            lag: times(1000, |index| 1_000 + index * 100),
            involuntary_switches: Some(17),
            ..like.generator
        },
        agents: Vec::new(),
        findings: vec![Finding {
            kind: FindingKind::DelayedAck,
            text: "Answers take 41.2 ms at the median & that is <a timer>.".to_owned(),
            advice: "Set TCP_NODELAY in the server, or write head and body at once.".to_owned(),
        }],
        ..like
    }
}

/// A run in which nothing was answered.
pub(crate) fn empty() -> Outcome {
    let like = outcome();
    Outcome {
        measured: Duration::ZERO,
        setting: like.setting,
        totals: Totals { due: 9, ..Totals::default() },
        errors: Errors { connect: 9, ..Errors::default() },
        generator: Generator {
            cpu: Duration::ZERO,
            cpu_us_per_answer: None,
            busy_share: Vec::new(),
            cpus: None,
            involuntary_switches: None,
            ..sample(64, 0, 0).generator
        },
        agents: Vec::new(),
        findings: vec![Finding {
            kind: FindingKind::NoAnswers,
            text: "None of 9 requests was answered.".to_owned(),
            advice: "Look whether the server listens at that address.".to_owned(),
        }],
        began_unix_s: like.began_unix_s,
        ..sample(64, 0, 0)
    }
}

/// The distribution of `of(0)`, `of(1)`, …
pub(crate) fn times(count: u64, of: impl Fn(u64) -> u64) -> Distribution {
    let mut times = Distribution::new();
    (0..count).for_each(|index| times.record(of(index)));
    times
}

fn second(index: u32) -> Second {
    let is_warm_up = index < WARM_UP;
    let answered = if is_warm_up { 500 } else { 1000 + 100 * u64::from(index - WARM_UP) };
    // Most between 0.1 and 0.5 ms, a hundredth around 3 ms, one that grows with the run.
    let latency = times(answered, |each| match each {
        0 => 8_000_000 + 1_000_000 * u64::from(index),
        each if each % 100 == 1 => 3_000_000 + each * 500,
        each => 100_000 + each * each % 997 * 400,
    });
    Second {
        end_s: f64::from(index + 1),
        is_warm_up,
        sent: answered + 1,
        answered,
        errors: u64::from(index % 5 == 4) * 5,
        bytes_in: answered * 256,
        open: 64,
        latency,
        ..Second::default()
    }
}

fn scaled(times: &Distribution, factor: f64) -> Distribution {
    let mut scaled = Distribution::new();
    for step in times.histogram().iter_recorded() {
        let value = (step.value_iterated_to() as f64 * factor) as u64;
        (0..step.count_since_last_iteration()).for_each(|_| scaled.record(value));
    }
    scaled
}

fn crowd() -> CrowdOutcome {
    CrowdOutcome {
        kind: "dead",
        asked: 1000,
        connected: 998,
        refused: 2,
        answered: 998,
        closed_by_server: 40,
        reset_by_server: 3,
        open_at_end: 955,
        closed_after_s: Some((5.0, 9.5)),
        set_up_s: 0.21,
    }
}
