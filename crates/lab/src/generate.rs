//! Pollux's own load generator as the lab uses it: one run in a fresh process, one line of JSON.
//!
//! `pollux lab generate` calls [`run`] and prints what it answers; the `http` experiment starts
//! that command beside its server and reads the line. It is a closed loop on one thread: each
//! connection asks again as soon as it was answered. What is under way at its end is waited for,
//! so the count is exactly that of the requests that were sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_load::{
    Crowd, End, Expect, Finding, Load, LoadError, Outcome, Pace, Plan, Target, Trust,
};
use pollux_poller::Mechanism;
use serde::{Deserialize, Serialize};

/// A connect or an answer that takes longer has failed: longer than a server that looks at tens
/// of thousands of connections in each turn takes, shorter than the patience of a run.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The quantiles that a run keeps, by the name of their figure.
const QUANTILES: [(&str, f64); 4] = [
    ("latency_p50_us", 0.5),
    ("latency_p90_us", 0.9),
    ("latency_p99_us", 0.99),
    ("latency_p999_us", 0.999),
];

/// What the generator is told.
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// The server.
    pub to: SocketAddr,
    /// Active connections.
    pub connections: u32,
    /// Requests under way on one connection.
    pub pipeline: u32,
    /// Whether each request has a connection of its own.
    pub closes: bool,
    /// Length of a right answer's body.
    pub reply_bytes: u64,
    /// How long requests are sent.
    pub time: Duration,
}

/// What a run of the generator found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    /// The driver that the generator ran on.
    pub driver: String,
    /// Right answers.
    pub requests: u64,
    /// From the first request to the last answer.
    pub elapsed_s: f64,
    /// Requests and connections that failed.
    pub failed: u64,
    /// Latencies by name, in microseconds.
    pub latencies: BTreeMap<String, f64>,
    /// What a reader has to know, by the kind of finding.
    pub findings: BTreeMap<String, String>,
}

/// The loop that the generator runs on, whichever server it asks: by completion where the kernel
/// allows it, which costs a client least.
#[must_use]
pub fn driver() -> Driver {
    match Mechanism::UringPoll.open() {
        Ok(_) => Driver::Completion,
        Err(_) => Driver::Readiness(Mechanism::EpollEt),
    }
}

/// Asks a server for `options.time`.
///
/// # Errors
/// [`LoadError`] when the generator could not be started or its loop failed. Failed requests are
/// counted in the answer.
pub fn run(options: &GenerateOptions) -> Result<Generated, LoadError> {
    let outcome = Load::start(plan(options)?)?.join()?;
    Ok(Generated::of(&outcome))
}

pub(crate) fn plan(options: &GenerateOptions) -> Result<Plan, LoadError> {
    Ok(Plan {
        targets: vec![Target::parse(&format!("http://{}/", options.to), None)?],
        driver: driver(),
        threads: 1,
        // The process is pinned by who starts it, like every other generator.
        cpus: None,
        connections: options.connections,
        pace: Pace::Closed,
        end: End { requests: None, after: Some(options.time) },
        warm_up: Duration::ZERO,
        requests_per_connection: options.closes.then_some(NonZeroU32::MIN),
        pipeline: options.pipeline,
        think_time: Duration::ZERO,
        connect_timeout: PATIENCE,
        request_timeout: PATIENCE,
        grace: PATIENCE,
        expect: Expect { status: Some(200), body_bytes: Some(options.reply_bytes) },
        objective: None,
        sources: Vec::new(),
        crowd: Crowd::default(),
        trust: Trust::default(),
        seed: 0,
    })
}

impl Generated {
    /// The line that `pollux lab generate` printed; nothing where it is none.
    pub(crate) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn of(outcome: &Outcome) -> Self {
        let latency = |(name, quantile): (&str, f64)| {
            let ns = outcome.latency.quantile_ns(quantile)?;
            Some((name.to_owned(), ns as f64 / 1000.0))
        };
        let mean = outcome.latency.mean_ns().map(|ns| ("latency_mean_us".to_owned(), ns / 1000.0));
        Self {
            driver: outcome.setting.driver.clone(),
            requests: outcome.totals.right,
            elapsed_s: (outcome.measured + outcome.waited).as_secs_f64(),
            failed: outcome.errors.total(),
            latencies: QUANTILES.into_iter().filter_map(latency).chain(mean).collect(),
            findings: outcome.findings.iter().filter_map(by_kind).collect(),
        }
    }
}

/// The finding with the name of its kind, as results of the generator spell it.
fn by_kind(finding: &Finding) -> Option<(String, String)> {
    let kind = serde_json::to_value(finding.kind).ok()?;
    Some((kind.as_str()?.to_owned(), finding.text.clone()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// A server that gives each connection one answer at a time until the client leaves.
    fn server() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let address = listener.local_addr().expect("its address");
        std::thread::spawn(move || {
            while let Ok((mut connection, _)) = listener.accept() {
                let mut request = [0; 4096];
                while let Ok(1..) = connection.read(&mut request) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
                    if connection.write_all(answer).is_err() {
                        break;
                    }
                }
            }
        });
        address
    }

    #[test]
    fn what_was_answered_is_counted_with_its_latencies() {
        let options = GenerateOptions {
            to: server(),
            connections: 1,
            pipeline: 1,
            closes: false,
            reply_bytes: 3,
            time: Duration::from_millis(50),
        };
        let generated = run(&options).expect("a run");
        assert!(generated.requests > 0, "{generated:?}");
        assert_eq!(generated.failed, 0, "{generated:?}");
        assert!(generated.elapsed_s > 0.02, "{generated:?}");
        let latency = |name: &str| generated.latencies[name];
        assert!(latency("latency_p50_us") <= latency("latency_p999_us"), "{generated:?}");
        assert_eq!(generated.driver, driver().name());

        let line = serde_json::to_string(&generated).expect("plain data");
        assert_eq!(Generated::read(&line), Some(generated));
        assert_eq!(Generated::read("connect failed"), None);
    }

    #[test]
    fn answers_of_another_length_are_failures() {
        let options = GenerateOptions {
            to: server(),
            connections: 1,
            pipeline: 1,
            closes: false,
            reply_bytes: 4,
            time: Duration::from_millis(20),
        };
        let generated = run(&options).expect("a run");
        assert!(generated.failed > 0 && generated.requests == 0, "{generated:?}");
        assert!(generated.findings.contains_key("many-errors"), "{generated:?}");
    }
}
