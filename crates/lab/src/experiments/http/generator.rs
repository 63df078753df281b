//! The load generator of a run: pollux itself, or wrk or ab to repeat a figure with them.
//!
//! Each runs once for the ramp and once for the window, in a process of its own on the
//! generator's CPU, and prints what it counted over exactly its run. Pollux ends by itself; wrk
//! and ab know whole seconds only and are interrupted at the end of the window. In turns pollux is on this thread.
//!
//! All are closed loops: each connection asks again as soon as it was answered. Latencies of pollux count from the
//! moment a request is sent to the last byte of its answer, each request for itself also where they are pipelined, and
//! all are recorded. ab (ApacheBench) speaks HTTP/1.0 and shows latencies in whole milliseconds. wrk has a script that
//! makes it pipeline and print exact counts; its latencies are its own: it fills in, after the run, the requests that a
//! stalled connection did not send, from the mean time between two of them, and with pipelining it times the batch.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use pollux_host::{self as host, Backlog, Program};
use pollux_load::{End, Expect, LoadError, Plan, Protocol};
use pollux_report::number;
use rustix::process::Signal;
use serde::Deserialize;

use super::load::Load;
use super::load_turns::are_too_many;
use super::server::ServerSpec;
use super::{Generator, agent};
use crate::error::MeasureError;

/// How long a generator may run after its time: pollux waits for what is under way, wrk looks
/// ten times a second whether it was interrupted.
const STOP_PATIENCE: Duration = REQUEST_TIME_MAX.saturating_mul(2);
/// More than ab itself can ask; ab keeps 40 bytes for each request that it is asked for.
const REQUESTS_PER_S: u64 = 200_000;
/// Longer than any window; the run ends by an interrupt.
const DURATION: &str = "3600s";
/// The word before the figures.
const MARK: &str = "pollux-lab:";
/// What the script prints, in this order.
const PRINTED: &str =
    "requests, duration, connect, wrk_read, write, status, timeout, p50, p99, mean";
/// A connect or an answer that takes longer has failed: longer than a server that looks at tens
/// of thousands of connections in each turn takes, shorter than the patience of a run.
pub(super) const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);

/// What a generator counted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counted {
    /// Requests that were answered.
    pub(super) requests: u64,
    /// How long its run was, by its own clock.
    pub(super) elapsed: Duration,
    /// Requests and connections that failed.
    pub(super) failed: u64,
    /// Latencies and the like, by name with the unit last.
    pub(super) figures: BTreeMap<String, f64>,
    /// What it found about its run, by kind.
    pub(super) findings: BTreeMap<String, String>,
    /// What failed, by kind, where it says so.
    pub(super) kinds: Option<String>,
    /// Its name with its version or driver, where it says so itself.
    pub(super) described: Option<String>,
}

/// Runs the load's generator for `time` against a server; only while it runs is there any load.
pub(super) fn run(
    load: &Load,
    asked: &ServerSpec,
    time: Duration,
    scratch: &Path,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Counted, MeasureError> {
    let generator = load.generator;
    let mut command = command(load, asked, time, scratch)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Program::start(generator.name(), command)?;
    match generator {
        Generator::Pollux | Generator::Agent => {}
        Generator::Wrk | Generator::Ab => {
            // It catches interrupts just before its requests: an earlier one would end it without a result.
            process.catches_within(Signal::INT, STOP_PATIENCE, is_interrupted)?;
            let has_ended = process.ends_within(time, is_interrupted)?;
            if has_ended && generator == Generator::Wrk {
                return Err(process.failed("ended before it was asked to").into());
            }
        }
    }
    let has_ended = match generator {
        Generator::Pollux | Generator::Agent => {
            process.ends_within(time + STOP_PATIENCE, is_interrupted)?
        }
        // One that comes before wrk sleeps, while it still opens connections, ends its threads and not
        // its sleep.
        Generator::Wrk | Generator::Ab => {
            process.ends_by(Signal::INT, STOP_PATIENCE, is_interrupted)?
        }
    };
    if !has_ended {
        return Err(process.failed("did not end when it should").into());
    }
    let failure = process.failed("printed no result");
    let (text, _) = process.output()?;
    let read = match generator {
        Generator::Pollux | Generator::Agent => pollux_read(&text),
        Generator::Wrk => wrk_read(&text),
        Generator::Ab => ab_read(&text),
    };
    checked(generator, read.ok_or(failure)?)
}

fn command(
    load: &Load,
    asked: &ServerSpec,
    time: Duration,
    scratch: &Path,
) -> Result<Command, MeasureError> {
    let setup = |what: &str| {
        let what = what.to_owned();
        move |cause| MeasureError::Setup { what, cause }
    };
    let program = || {
        let name = load.generator.name();
        host::find_program(name).ok_or_else(|| MeasureError::Program {
            program: name.to_owned(),
            what: missing(load.generator).unwrap_or_default(),
        })
    };
    match load.generator {
        Generator::Pollux => {
            pollux_command(load, asked, time, scratch).map_err(setup("the command of pollux load"))
        }
        Generator::Agent => Err(MeasureError::Spec(
            "an agent gives a load in turns; `pollux load --agents` measures rates".to_owned(),
        )),
        Generator::Wrk => wrk_command(&program()?, load, &asked.target.url, scratch)
            .map_err(setup("the script for wrk")),
        Generator::Ab => ab_command(&program()?, load, &asked.target.url, time, scratch)
            .map_err(setup("the body for ab")),
    }
}

/// Why this machine lacks a generator, if it does.
pub(crate) fn missing(generator: Generator) -> Option<String> {
    if generator == Generator::Agent {
        return agent::missing();
    }
    host::missing_program(generator.name(), generator.package()?)
}

fn checked(generator: Generator, counted: Counted) -> Result<Counted, MeasureError> {
    let failed =
        |what: String| MeasureError::Program { program: generator.name().to_owned(), what };
    if counted.requests == 0 {
        let found = counted.findings.values().next();
        let found = found.map_or_else(String::new, |text| format!(": {text}"));
        return Err(failed(format!("had not one request answered{found}")));
    }
    if are_too_many(counted.failed, counted.requests) {
        let bad = counted.failed;
        let all = counted.requests;
        let bad = number::plural(bad, "failure");
        let all = number::plural(all, "answer");
        let kinds = counted.kinds.map_or_else(String::new, |kinds| format!(": {kinds}"));
        return Err(failed(format!("{bad} beside {all}{kinds}")));
    }
    Ok(counted)
}

/// A generator from elsewhere with its version, for the record.
pub(super) fn with_version(generator: Generator) -> String {
    // Neither has a flag that prints the version alone; both begin with it.
    let flag = if generator == Generator::Ab { "-V" } else { "-v" };
    let output = host::find_program(generator.name())
        .and_then(|program| Command::new(program).arg(flag).stdin(Stdio::null()).output().ok());
    let version = output.and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let words = text.lines().next()?.split_whitespace().map(str::to_owned);
        words.into_iter().find(|word| word.contains(|c: char| c.is_ascii_digit()))
    });
    match version {
        Some(version) => format!("{generator} {version}"),
        None => generator.to_string(),
    }
}

/// The command: more requests than fit into `time`, so that it is always ended by an interrupt.
fn ab_command(
    program: &Path,
    load: &Load,
    url: &str,
    time: Duration,
    scratch: &Path,
) -> io::Result<Command> {
    let requests = REQUESTS_PER_S * (time.as_secs() + 1) + load.connections as u64;
    let mut command = Command::new(program);
    command.args(["-q", "-r", "-n", &requests.to_string(), "-c", &load.connections.to_string()]);
    if load.is_kept_alive {
        command.arg("-k");
    }
    if load.request_bytes > 0 {
        command.arg("-p").arg(load.body_file(scratch)?).args(["-T", "application/octet-stream"]);
    }
    command.arg(url);
    Ok(command)
}

/// What its report says.
fn ab_read(text: &str) -> Option<Counted> {
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let percentile = |name: &str| {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1000.0)
    };
    let latencies = [("latency_p50_us", percentile("50%")), ("latency_p99_us", percentile("99%"))];
    let latencies = latencies.into_iter().filter_map(|(name, us)| Some((name.to_owned(), us?)));
    Some(Counted {
        requests: number("Complete requests:")? as u64,
        elapsed: Duration::try_from_secs_f64(number("Time taken for tests:")?).ok()?,
        failed: (number("Failed requests:")? + number("Non-2xx responses:").unwrap_or(0.0)) as u64,
        figures: latencies.collect::<BTreeMap<_, _>>(),
        findings: BTreeMap::new(),
        kinds: None,
        described: None,
    })
}

/// The command; its script is written into `folder`.
fn wrk_command(program: &Path, load: &Load, url: &str, folder: &Path) -> io::Result<Command> {
    let path = folder.join(format!("wrk-{}-{}.lua", load.pipeline, load.request_bytes));
    fs::write(&path, script(load.pipeline, load.request_bytes))?;
    let mut command = Command::new(program);
    command.args(["-t1", "-d", DURATION, "-c", &load.connections.to_string(), "-s"]).arg(&path);
    if !load.is_kept_alive {
        command.args(["-H", "Connection: close"]);
    }
    command.arg(url);
    Ok(command)
}

fn script(pipeline: usize, request_bytes: usize) -> String {
    let body = match request_bytes {
        0 => String::new(),
        _ => format!("wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", {request_bytes})\n"),
    };
    let batch = match pipeline {
        // Without a request function wrk sends one constant request.
        1 => String::new(),
        _ => format!(
            "local batch\n\
             function init(args)\n\
             \x20 local one = wrk.format()\n\
             \x20 batch = string.rep(one, {pipeline})\n\
             end\n\
             function request()\n\
             \x20 return batch\n\
             end\n"
        ),
    };
    format!(
        "-- {PRINTED}\n{body}{batch}\
         function done(summary, latency, requests)\n\
         \x20 local e = summary.errors\n\
         \x20 io.write(string.format(\"{MARK} %d %d %d %d %d %d %d %d %d %d\\n\",\n\
         \x20   summary.requests, summary.duration, e.connect, e.read, e.write, e.status, e.timeout,\n\
         \x20   latency:percentile(50), latency:percentile(99), latency.mean))\n\
         end\n"
    )
}

/// What the script printed.
fn wrk_read(text: &str) -> Option<Counted> {
    let line = text.lines().find_map(|line| line.strip_prefix(MARK))?;
    let words = line.split_whitespace().map(|word| word.parse::<u64>().ok());
    let numbers = words.collect::<Option<Vec<u64>>>()?;
    let [requests, duration_us, errors @ .., p50_us, p99_us, mean_us] = numbers.as_slice() else {
        return None;
    };
    Some(Counted {
        requests: *requests,
        elapsed: Duration::from_micros(*duration_us),
        failed: errors.iter().sum(),
        figures: BTreeMap::from([
            ("latency_p50_us".to_owned(), *p50_us as f64),
            ("latency_p99_us".to_owned(), *p99_us as f64),
            ("latency_mean_us".to_owned(), *mean_us as f64),
        ]),
        findings: BTreeMap::new(),
        kinds: None,
        described: None,
    })
}

/// The load as turns have it. Its end does not matter: turns have lengths of their own.
///
/// Where the backlog of the server is smaller than the load, new connections wait for each other instead.
pub(super) fn plan(
    load: &Load,
    asked: &ServerSpec,
    backlog: Option<Backlog>,
) -> Result<Plan, LoadError> {
    let limit =
        backlog.map(|backlog| backlog.limit).filter(|limit| *limit < load.connections as u32);
    let urls = load.urls(&asked.target.url);
    let targets = urls.iter().map(|url| load.target(url)).collect::<Result<_, _>>()?;
    Ok(Plan {
        connections: load.connections as u32,
        end: End { requests: None, after: Some(REQUEST_TIME_MAX) },
        requests_per_connection: (!load.is_kept_alive).then_some(NonZeroU32::MIN),
        unproven_max: limit.map(|limit| NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN)),
        pipeline: load.pipeline as u32,
        http: load.http,
        streams: load.streams as u32,
        connect_timeout: REQUEST_TIME_MAX,
        request_timeout: REQUEST_TIME_MAX,
        grace: REQUEST_TIME_MAX,
        expect: Expect { status: Some(asked.status), body_bytes: asked.body_bytes },
        trust: load.trust(),
        resumes: load.is_resumed,
        ..Plan::new(targets, load.driver)
    })
}

/// The command for a whole run; it ends by itself after `time`.
pub(super) fn pollux_command(
    load: &Load,
    asked: &ServerSpec,
    time: Duration,
    scratch: &Path,
) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("load").args(load.urls(&asked.target.url));
    command.args(["--quiet", "--json", "-", "--warm-up", "0s"]);
    command.args(["--poller", load.driver.name()]);
    command.args(["--connections", &load.connections.to_string()]);
    match load.http {
        Protocol::Http2 => command.args(["--http", "2", "--streams", &load.streams.to_string()]),
        _ => command.args(["--pipeline", &load.pipeline.to_string()]),
    };
    command.args(["--duration", &format!("{}ms", time.as_millis())]);
    command.args(["--expect-status", &asked.status.to_string()]);
    if let Some(bytes) = asked.body_bytes {
        command.args(["--expect-bytes", &bytes.to_string()]);
    }
    let patience = format!("{}s", REQUEST_TIME_MAX.as_secs());
    command.args(["--connect-timeout", &patience, "--timeout", &patience]);
    if !load.is_kept_alive {
        command.arg("--no-keepalive");
    }
    if load.request_bytes > 0 {
        command.arg("--body").arg(format!("@{}", load.body_file(scratch)?.display()));
    }
    if let Some(certificate) = &load.certificate {
        command.arg("--cacert").arg(&certificate.cert);
        if !load.is_resumed {
            command.arg("--no-resumption");
        }
    }
    Ok(command)
}

/// What is read of the JSON that it prints.
#[derive(Deserialize)]
struct Outcome {
    measured_s: f64,
    waited_s: f64,
    setting: Setting,
    totals: Totals,
    latency: Latency,
    errors: BTreeMap<String, u64>,
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Setting {
    driver: String,
}

#[derive(Deserialize)]
struct Totals {
    right: u64,
    redirected: u64,
}

#[derive(Deserialize)]
struct Latency {
    mean_ns: Option<f64>,
    quantiles: Vec<Quantile>,
}

#[derive(Deserialize)]
struct Quantile {
    quantile: f64,
    ns: u64,
}

#[derive(Deserialize)]
struct Finding {
    kind: String,
    text: String,
}

/// The quantiles that a run keeps, by the name of their figure.
const QUANTILES: [(&str, f64); 4] = [
    ("latency_p50_us", 0.5),
    ("latency_p90_us", 0.9),
    ("latency_p99_us", 0.99),
    ("latency_p999_us", 0.999),
];

/// What it printed.
fn pollux_read(text: &str) -> Option<Counted> {
    let outcome: Outcome = serde_json::from_str(text).ok()?;
    let latency = |(name, quantile): (&str, f64)| {
        let mut quantiles = outcome.latency.quantiles.iter();
        let found = quantiles.find(|found| (found.quantile - quantile).abs() < 1e-9)?;
        Some((name.to_owned(), found.ns as f64 / 1000.0))
    };
    let mean = outcome.latency.mean_ns.map(|ns| ("latency_mean_us".to_owned(), ns / 1000.0));
    let version = env!("CARGO_PKG_VERSION");
    let driver = &outcome.setting.driver;
    let failed = outcome.errors.iter().filter(|(_, count)| **count > 0);
    let kinds = failed.map(|(kind, count)| format!("{} {kind}", number::count(*count)));
    Some(Counted {
        requests: outcome.totals.right,
        elapsed: Duration::try_from_secs_f64(outcome.measured_s + outcome.waited_s).ok()?,
        failed: outcome.errors.values().sum::<u64>() + outcome.totals.redirected,
        figures: QUANTILES.into_iter().filter_map(latency).chain(mean).collect(),
        findings: outcome.findings.into_iter().map(|found| (found.kind, found.text)).collect(),
        kinds: Some(kinds.collect::<Vec<_>>().join(", ")).filter(|kinds| !kinds.is_empty()),
        described: Some(format!("pollux {version} ({driver})")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_failures_is_not_a_measurement() {
        let counted = |requests, failed| Counted {
            requests,
            failed,
            elapsed: Duration::from_secs(1),
            figures: BTreeMap::new(),
            findings: BTreeMap::from([("no-answers".to_owned(), "nothing came".to_owned())]),
            kinds: Some("7 reset".to_owned()),
            described: None,
        };
        assert!(checked(Generator::Wrk, counted(100_000, 100)).is_ok());
        let error = checked(Generator::Wrk, counted(100_000, 101)).expect_err("too many");
        assert_eq!(error.to_string(), "wrk: 101 failures beside 100,000 answers: 7 reset");
        assert!(checked(Generator::Pollux, counted(11, 1)).is_ok(), "one is not enough");
        assert!(checked(Generator::Pollux, counted(11, 4)).is_err());
        let error = checked(Generator::Pollux, counted(0, 0)).expect_err("no answer");
        let expected = "pollux: had not one request answered: nothing came";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn the_report_is_read() {
        let text = "Server Software:        raw\n\
                Concurrency Level:      100\n\
                Time taken for tests:   0.504 seconds\n\
                Complete requests:      15004\n\
                Failed requests:        2\n\
                \x20  (Connect: 0, Receive: 0, Length: 2, Exceptions: 0)\n\
                Non-2xx responses:      1\n\
                Percentage of the requests served within a certain time (ms)\n\
                \x20 50%      3\n  99%      7\n 100%     12 (longest request)\n";
        let counted = ab_read(text).expect("a report");
        assert_eq!((counted.requests, counted.failed), (15_004, 3));
        assert_eq!(counted.elapsed, Duration::from_millis(504));
        assert_eq!(counted.figures["latency_p50_us"], 3000.0);
        assert_eq!(counted.figures["latency_p99_us"], 7000.0);
        assert_eq!(ab_read("ab: invalid URL\n"), None);
    }

    #[test]
    fn the_line_of_the_script_is_read() {
        let text = "Running 1h test\npollux-lab: 190000 1000123 0 1 0 0 2 310 905 340\n";
        let counted = wrk_read(text).expect("the figures");
        assert_eq!((counted.requests, counted.failed), (190_000, 3));
        assert_eq!(counted.elapsed, Duration::from_micros(1_000_123));
        assert_eq!(counted.figures["latency_p99_us"], 905.0);
        assert_eq!(counted.figures["latency_mean_us"], 340.0);
        assert_eq!(wrk_read("unable to connect to 127.0.0.1:1 Connection refused\n"), None);
        assert_eq!(wrk_read("pollux-lab: 1 2 three\n"), None);
    }

    #[test]
    fn only_a_pipelining_script_makes_requests() {
        assert!(!script(1, 0).contains("function request"));
        assert!(script(16, 0).contains("string.rep(one, 16)"));
        assert!(script(16, 0).contains(MARK) && !script(16, 0).contains("POST"));
        let post = "wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", 300)\n";
        assert!(script(16, 300).contains(post) && script(1, 300).contains(post));
    }

    #[test]
    fn what_it_prints_is_read() {
        let text = r#"{"schema":"pollux-load-outcome","measured_s":1.25,"waited_s":0.25,
            "setting":{"driver":"uring"},"totals":{"right":90000,"redirected":0,"due":90002},
            "latency":{"mean_ns":420000.5,"quantiles":[{"quantile":0.5,"ns":410000},
            {"quantile":0.95,"ns":1},{"quantile":0.999,"ns":2000500}]},
            "errors":{"timeout":1,"status":1},
            "findings":[{"kind":"generator-bound","text":"a thread of it worked 99 %"}]}"#;
        let counted = pollux_read(text).expect("the figures");
        assert_eq!((counted.requests, counted.failed), (90_000, 2));
        assert_eq!(counted.elapsed, Duration::from_millis(1500));
        assert_eq!(counted.figures["latency_p50_us"], 410.0);
        assert_eq!(counted.figures["latency_p999_us"], 2000.5);
        assert_eq!(counted.figures["latency_mean_us"], 420.0005);
        assert_eq!(counted.figures.len(), 3);
        assert!(counted.findings.contains_key("generator-bound"));
        assert!(counted.described.is_some_and(|text| text.ends_with("(uring)")));
        assert_eq!(pollux_read("pollux: connect failed\n"), None);
    }
}
