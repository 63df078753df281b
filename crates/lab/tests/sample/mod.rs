//! A record for the tests of the report and of the schema: two experiments with everything in
//! them that a report has to cope with. Deterministic; its figures are invented.

use std::collections::BTreeMap;

use pollux_lab::host::Reading;
use pollux_lab::record::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

mod judged;

/// A label that would be markup if anybody forgot to escape it.
pub(crate) const HOSTILE: &str = "ext: <script>alert(1)</script> & \"it's\"";
/// Why one arm fails everywhere.
pub(crate) const FAILURE: &str = "descriptor 1024 is not below FD_SETSIZE <1024>";
/// Why the curve of one arm ends.
pub(crate) const GAP: &str = "select cannot watch descriptors from 1024 on";
/// Why the hardware counters are missing.
pub(crate) const NO_PMU: &str = "no PMU in this guest";

const BLOCKS: u32 = 13;
const DISTURBED: u32 = 7;
const INTERVALS: u32 = 15;
const TRANSPORTS: [(&str, f64); 3] =
    [("pipe", 1_210_000.0), ("unix", 690_000.0), ("tcp", 305_000.0)];
const PIPES: [u32; 8] = [10, 100, 500, 1000, 2000, 4000, 8000, 9000];

/// The record.
pub(crate) fn record() -> Record {
    let runs = runs();
    let results = judged::results(&runs);
    let why = judged::why(&results);
    Record {
        schema: SCHEMA_VERSION,
        tool: "pollux 0.1.0".into(),
        started: "2026-11-21T08:40:11Z".into(),
        duration_s: 161.4,
        ending: Ending::Budget,
        command: ["pollux", "lab", "run", "jobs/quick.toml", "--note", "it's <quick>"]
            .map(Into::into)
            .into(),
        job: job(),
        environment: environment(),
        sources: sources(),
        left_out: left_out(),
        cuts: vec![
            "pipes: 16000 needs 32,000 descriptors, the limit is 20,000; 9000 instead".into(),
        ],
        blocks: (0..BLOCKS).map(block).collect(),
        counting: judged::counting(&results),
        profiles: profiles(),
        request_times: request_times(),
        why,
        trust: trust(&runs),
        answers: answers(),
        runs,
        results,
        ..Record::default()
    }
}

/// A value that was read; built from JSON, as a reader of the file would get it.
pub(crate) fn read<T: DeserializeOwned>(value: impl Into<Value>) -> Reading<T> {
    serde_json::from_value(json!({ "value": value.into() })).expect("a value")
}

/// A value that was not read.
pub(crate) fn unread<T: DeserializeOwned>(reason: &str, enable: Option<&str>) -> Reading<T> {
    let mut json = json!({ "unavailable": reason });
    if let Some(command) = enable {
        json["enable"] = command.into();
    }
    serde_json::from_value(json).expect("a reason")
}

/// Numbers that look drawn and are always the same (an LCG; Knuth's MMIX constants).
pub(crate) struct Noise(u64);

impl Noise {
    /// Between -1 and 1.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / f64::from(1 << 23) - 1.0
    }
}

fn job() -> JobRecord {
    JobRecord {
        name: "quick".into(),
        question: "Which event mechanism for which load?".into(),
        toml: "schema = 1\n[global]\nseed = 20061106\nbaseline = \"epoll\"\n\n[[job]]\nname = \"streams\"\n\
               transport = [\"pipe\", \"unix\", \"tcp\"] # <b>not bold</b>\n"
            .into(),
        seed: 20_061_106,
        blocks: 12,
        blocks_max: 30,
        min_effect: 0.03,
        target_ci: 0.015,
    }
}

fn environment() -> Vec<Fact> {
    let fact = |name: &str, reading| Fact { name: name.into(), reading };
    vec![
        fact("kernel", read("Linux 6.18.44")),
        fact("cpu", read("2 × Xeon 2.3 GHz")),
        fact("memory", read("24 GiB")),
        fact("frequency governor", unread("no cpufreq directory", None)),
        fact(
            "kernel locks",
            unread(
                "perf_event_paranoid is 2 & we are not root",
                Some("sysctl kernel.perf_event_paranoid=1"),
            ),
        ),
    ]
}

fn sources() -> Vec<Source> {
    let source = |name: &str, gives: &str, reason: Option<&str>, enable: Option<&str>| Source {
        name: name.into(),
        gives: gives.into(),
        available: reason.is_none(),
        reason: reason.map(Into::into),
        enable: enable.map(Into::into),
    };
    vec![
        source("poller counters", "events per wait, updates", None, None),
        source("getrusage(RUSAGE_THREAD)", "CPU ns, switches", None, None),
        source("tracepoint raw_syscalls:sys_enter", "system calls", None, None),
        source("hardware counters", "cycles, instructions", Some(NO_PMU), None),
        source(
            "tracepoint sched:sched_waking",
            "wake-ups",
            Some("tracefs is not mounted"),
            Some("mount -t tracefs tracefs /sys/kernel/tracing"),
        ),
    ]
}

fn left_out() -> Vec<LeftOut> {
    let left = |experiment: &str, point: String, arm: &str, reason: &str| LeftOut {
        experiment: experiment.into(),
        point,
        arm: arm.into(),
        reason: reason.into(),
    };
    let mut all =
        vec![left("streams", "*".into(), "uring", "completions have no readiness to compare")];
    for rule in ["fixed", "hopping"] {
        for pipes in PIPES.into_iter().filter(|pipes| *pipes >= 1000) {
            all.push(left("pipes", pipe_label(pipes, rule), "select", GAP));
        }
    }
    all
}

fn block(block: u32) -> Block {
    let is_disturbed = block == DISTURBED;
    Block {
        block,
        repeats: (block + 1 == BLOCKS).then_some(DISTURBED),
        start_s: f64::from(block) * 12.4,
        duration_s: 12.1,
        steal: read(if is_disturbed { 0.061 } else { 0.002 }),
        foreign_cpu: read(0.011),
        pressure: unread("/proc/pressure/cpu: No such file or directory", Some("boot with psi=1")),
        disturbances: if is_disturbed {
            vec!["6.1 % of CPU time stolen".into()]
        } else {
            Vec::new()
        },
    }
}

fn pipe_label(pipes: u32, rule: &str) -> String {
    format!("{pipes} pipes, {rule}")
}

/// Each arm with its speed relative to epoll, at a number of watched descriptors.
fn speeds(watched: f64, is_streams: bool) -> Vec<(&'static str, f64)> {
    let scan = |cost: f64| 1.0 / (0.94 + cost * watched);
    let mut all = vec![("poll", scan(0.0011)), ("aio", scan(0.0009)), ("epoll", 1.0)];
    all.extend([("A/A", 1.0), ("epoll-et", 1.11), ("uring-poll", 1.012)]);
    if is_streams {
        all.extend([("select", 0.0), ("epoll-oneshot", 0.83), (HOSTILE, 0.97)]);
    } else if watched < 1000.0 {
        all.push(("select", scan(0.002)));
    }
    all
}

fn runs() -> Vec<Run> {
    let mut noise = Noise(20_061_106);
    let mut runs = Vec::new();
    for block in 0..BLOCKS {
        let mut position = 0;
        let mut add = |experiment: &str, point: String, speeds: Vec<(&str, f64)>, rate: f64| {
            for (arm, speed) in speeds {
                let outcome = outcome(&point, arm, rate * speed, block, &mut noise);
                let (experiment, point, arm) = (experiment.into(), point.clone(), arm.into());
                runs.push(Run { block, position, experiment, point, arm, outcome });
                position += 1;
            }
        };
        for (transport, rate) in TRANSPORTS {
            add("streams", format!("{transport}, 2000 streams"), speeds(2000.0, true), rate);
        }
        for (rule, rate) in [("fixed", 281_000.0), ("hopping", 196_000.0)] {
            for pipes in PIPES {
                let cold = 1.0 - 0.03 * f64::from(pipes).ln() / 2.0;
                add("pipes", pipe_label(pipes, rule), speeds(f64::from(pipes), false), rate * cold);
            }
        }
    }
    runs
}

fn outcome(point: &str, arm: &str, rate: f64, block: u32, noise: &mut Noise) -> Outcome {
    if rate == 0.0 {
        return Outcome::Failed { reason: FAILURE.into() };
    }
    let slow = if block == DISTURBED && noise.next() > 0.2 { 0.86 } else { 1.0 };
    let rate = rate * slow * (1.0 + 0.011 * noise.next());
    let is_two_regime =
        point.starts_with("unix") && block.is_multiple_of(4) && arm != "poll" && arm != "aio";
    let kind = if is_two_regime { SteadyKind::TwoRegime } else { SteadyKind::Steady };
    let intervals: Vec<_> =
        (0..INTERVALS).map(|index| interval(index, rate, is_two_regime, noise)).collect();
    let value =
        intervals.iter().map(|interval| interval.events_per_s).sum::<f64>() / f64::from(INTERVALS);
    Outcome::Measured(Measurement {
        value,
        worker_calls: vec![3, 0, 9],
        mechanism: (arm != HOSTILE).then(|| arm.into()),
        window_s: 1.5,
        intervals,
        steadiness: Steady {
            kind,
            detail: if is_two_regime {
                "2.4 times slower from 0.60 s on".into()
            } else {
                "within 1 %".into()
            },
        },
        events: (arm != HOSTILE).then_some((value * 1.5) as u64),
        cpu_ns: read((1.2e9 + 1e6 * noise.next()) as u64),
        process_cpu_ns: unread("the process ended first", None),
        ..Measurement::default()
    })
}

fn interval(index: u32, rate: f64, is_two_regime: bool, noise: &mut Noise) -> Interval {
    let level = match (is_two_regime, index < 6) {
        (true, true) => 1.15,
        (true, false) => 0.48,
        _ => 1.0,
    };
    Interval {
        end_s: f64::from(index + 1) * 0.1,
        events_per_s: rate * level * (1.0 + 0.012 * noise.next()),
        events_per_wait: Some(12.7 * level * (1.0 + 0.05 * noise.next())),
        process_switches_per_s: Some(1800.0 / level * (1.0 + 0.05 * noise.next())),
        machine_switches_per_s: None,
    }
}

fn profiles() -> Vec<Profile> {
    let symbols = |names: &str| {
        let shares = [0.212, 0.143, 0.097, 0.061, 0.018];
        let one = |(name, share): (&str, f64)| SymbolShare {
            symbol: name.into(),
            samples: (share * 1480.0) as u64,
            share,
        };
        names.split('|').zip(shares).map(one).collect()
    };
    let profile = |arm: &str, samples, symbols| Profile {
        experiment: "streams".into(),
        point: "pipe, 2000 streams".into(),
        arm: arm.into(),
        samples,
        symbols,
    };
    let epoll = "anon_pipe_read|ep_poll_callback|do_epoll_wait|entry_SYSCALL_64|vfs_read";
    let poll = "do_sys_poll|pipe_poll|__fdget|a_template<with, a_very_long_name_of_its_own>::poll|\
                copy_from_user";
    vec![
        profile("epoll", read(1480), symbols(epoll)),
        profile("poll", read(1480), symbols(poll)),
        profile("epoll-et", unread("cpu-clock sampling needs CAP_PERFMON", None), Vec::new()),
    ]
}

/// Two arms at two points: one bucket far out, and a gap between buckets.
fn request_times() -> Vec<RequestTimesRun> {
    let one = |point: &str, arm: &str, scale: f64| {
        let counts = [(1024.0, 1280.0, 900), (1280.0, 1536.0, 80), (40_960.0, 49_152.0, 20)];
        let buckets = counts.map(|(from_ns, below_ns, requests)| TimeBucket {
            from_ns: from_ns * scale,
            below_ns: below_ns * scale,
            requests,
        });
        RequestTimesRun {
            experiment: "streams".into(),
            point: point.into(),
            arm: arm.into(),
            times: RequestTimes { requests: 1000, sum_ns: 2.1e6 * scale, buckets: buckets.into() },
        }
    };
    let points = ["pipe, 2000 streams", "tcp, 2000 streams"];
    points
        .iter()
        .flat_map(|point| [one(point, "epoll", 1.0), one(point, "epoll-et", 2.0)])
        .collect()
}

fn trust(runs: &[Run]) -> Trust {
    let count = |is_it: &dyn Fn(&Run) -> bool| runs.iter().filter(|run| is_it(run)).count() as u32;
    let is_two = |run: &Run| matches!(&run.outcome, Outcome::Measured(m) if m.steadiness.kind == SteadyKind::TwoRegime);
    Trust {
        badge: Badge::Quiet,
        noise: Some([1.001, 0.987, 1.016]),
        blocks_disturbed: 1,
        blocks: BLOCKS,
        steal: read(0.002),
        runs_unsteady: count(&is_two),
        runs_two_regime: count(&is_two),
        runs_failed: count(&|run| matches!(run.outcome, Outcome::Failed { .. })),
        runs: runs.len() as u32,
        hardware_counters: unread(NO_PMU, None),
        ..Trust::default()
    }
}

fn answers() -> Vec<Answer> {
    let answer = |load: &str, choice: &str, reason: &str| Answer {
        load: load.into(),
        choice: choice.into(),
        reason: reason.into(),
    };
    vec![
        answer(
            "Many streams, all active (pipes)",
            "epoll-et",
            "1.11 of epoll [1.10, 1.12]; poll loses 68 %",
        ),
        answer(
            "One active descriptor among thousands",
            "epoll-et or uring-poll",
            "flat to 9,000 pipes; poll loses 91 % at 9,000",
        ),
        answer(
            "Loopback TCP",
            "any but poll",
            "uring-poll 1.01 [1.00, 1.02]: no difference & \"<less>\" to learn",
        ),
    ]
}

/// Axis names and values from the label of a point.
pub(crate) fn axes(experiment: &str, point: &str) -> BTreeMap<String, String> {
    let (first, second) = point.split_once(", ").unwrap_or((point, ""));
    let number = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    match experiment {
        "pipes" => {
            BTreeMap::from([("pipes".into(), number(first)), ("rule".into(), second.into())])
        }
        _ => BTreeMap::from([("transport".into(), first.into()), ("nfds".into(), number(second))]),
    }
}
