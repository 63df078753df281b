//! Pollux as the load generator: `pollux load`, in turns on this thread, or whole in a process.
//!
//! A closed loop on one thread: each connection asks again as soon as it was answered. Latencies
//! count from the moment a request is sent to the last byte of its answer, each request for itself
//! also where they are pipelined, and all are recorded.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::process::Command;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_load::{Crowd, End, Expect, LoadError, Pace, Plan, Target};
use pollux_poller::Mechanism;
use serde::Deserialize;

use super::generator::Counted;
use super::load::Load;
use super::server::Asked;

/// A connect or an answer that takes longer has failed: longer than a server that looks at tens
/// of thousands of connections in each turn takes, shorter than the patience of a run.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The quantiles that a run keeps, by the name of their figure.
const QUANTILES: [(&str, f64); 4] = [
    ("latency_p50_us", 0.5),
    ("latency_p90_us", 0.9),
    ("latency_p99_us", 0.99),
    ("latency_p999_us", 0.999),
];

/// The loop that the generator runs on, whichever server it asks: by completion where the kernel
/// allows it, which costs a client least.
pub(super) fn driver() -> Driver {
    match Mechanism::UringPoll.open() {
        Ok(_) => Driver::Completion,
        Err(_) => Driver::Readiness(Mechanism::EpollEt),
    }
}

/// The load as turns have it. Its end does not matter: turns have lengths of their own.
pub(super) fn plan(load: &Load, asked: &Asked) -> Result<Plan, LoadError> {
    let urls = load.urls(&asked.url);
    Ok(Plan {
        targets: urls.iter().map(|url| Target::parse(url, None)).collect::<Result<_, _>>()?,
        driver: driver(),
        threads: 1,
        // The process is pinned by who starts it, like every other generator.
        cpus: None,
        connections: load.connections as u32,
        pace: Pace::Closed,
        end: End { requests: None, after: Some(PATIENCE) },
        warm_up: Duration::ZERO,
        requests_per_connection: (!load.is_kept_alive).then_some(NonZeroU32::MIN),
        pipeline: load.pipeline as u32,
        think_time: Duration::ZERO,
        connect_timeout: PATIENCE,
        request_timeout: PATIENCE,
        grace: PATIENCE,
        expect: Expect { status: Some(asked.status), body_bytes: asked.body_bytes },
        list: None,
        objectives: Vec::new(),
        quantiles: Vec::new(),
        sources: Vec::new(),
        crowd: Crowd::default(),
        trust: load.trust(),
        resumes: load.is_resumed,
        keeps_cookies: false,
        identity: None,
        server_pid: None,
        seed: 0,
    })
}

/// The command for a whole run; it ends by itself after `time`.
pub(super) fn command(load: &Load, asked: &Asked, time: Duration) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("load").args(load.urls(&asked.url));
    command.args(["--quiet", "--json", "-", "--warm-up", "0s"]);
    command.args(["--poller", driver().name()]);
    command.args(["--connections", &load.connections.to_string()]);
    command.args(["--pipeline", &load.pipeline.to_string()]);
    command.args(["--duration", &format!("{}ms", time.as_millis())]);
    command.args(["--expect-status", &asked.status.to_string()]);
    if let Some(bytes) = asked.body_bytes {
        command.args(["--expect-bytes", &bytes.to_string()]);
    }
    let patience = format!("{}s", PATIENCE.as_secs());
    command.args(["--connect-timeout", &patience, "--timeout", &patience]);
    if !load.is_kept_alive {
        command.arg("--no-keepalive");
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

/// What it printed.
pub(super) fn read(text: &str) -> Option<Counted> {
    let outcome: Outcome = serde_json::from_str(text).ok()?;
    let latency = |(name, quantile): (&str, f64)| {
        let mut quantiles = outcome.latency.quantiles.iter();
        let found = quantiles.find(|found| (found.quantile - quantile).abs() < 1e-9)?;
        Some((name.to_owned(), found.ns as f64 / 1000.0))
    };
    let mean = outcome.latency.mean_ns.map(|ns| ("latency_mean_us".to_owned(), ns / 1000.0));
    let (version, driver) = (env!("CARGO_PKG_VERSION"), &outcome.setting.driver);
    Some(Counted {
        requests: outcome.totals.right,
        elapsed: Duration::try_from_secs_f64(outcome.measured_s + outcome.waited_s).ok()?,
        failed: outcome.errors.values().sum::<u64>() + outcome.totals.redirected,
        figures: QUANTILES.into_iter().filter_map(latency).chain(mean).collect(),
        findings: outcome.findings.into_iter().map(|found| (found.kind, found.text)).collect(),
        described: Some(format!("pollux {version} ({driver})")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_prints_is_read() {
        let text = r#"{"schema":"pollux-load-outcome","measured_s":1.25,"waited_s":0.25,
            "setting":{"driver":"uring"},"totals":{"right":90000,"redirected":0,"due":90002},
            "latency":{"mean_ns":420000.5,"quantiles":[{"quantile":0.5,"ns":410000},
            {"quantile":0.95,"ns":1},{"quantile":0.999,"ns":2000500}]},
            "errors":{"timeout":1,"status":1},
            "findings":[{"kind":"generator-bound","text":"a thread of it worked 99 %"}]}"#;
        let counted = read(text).expect("the figures");
        assert_eq!((counted.requests, counted.failed), (90_000, 2));
        assert_eq!(counted.elapsed, Duration::from_millis(1500));
        assert_eq!(counted.figures["latency_p50_us"], 410.0);
        assert_eq!(counted.figures["latency_p999_us"], 2000.5);
        assert_eq!(counted.figures["latency_mean_us"], 420.0005);
        assert_eq!(counted.figures.len(), 3);
        assert!(counted.findings.contains_key("generator-bound"));
        assert!(counted.described.is_some_and(|text| text.ends_with("(uring)")));
        assert_eq!(read("pollux: connect failed\n"), None);
    }
}
