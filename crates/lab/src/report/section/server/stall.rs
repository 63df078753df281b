//! Replies that wait for delayed acknowledgements: noticed by their latency and by Little's law.
//!
//! A head and a body in two writes without TCP_NODELAY wait for the peer's acknowledgement, which
//! a peer that has nothing to send delays by 40 ms. Then every connection has one request under
//! way that does nothing, and rate times latency is the number of connections.

use crate::record::{Measurement, Record, ResultRow};
use crate::report::number;
use crate::report::view::{NOISE_ARM, grouped};
use crate::stats::median;

/// Latencies that look like a delayed acknowledgement: Linux waits 40 ms, and a network adds some.
const SUSPECT_US: std::ops::RangeInclusive<f64> = 38_000.0..=50_000.0;
/// Requests under way, relative to connections, between which each connection has one.
const EACH_HAS_ONE: std::ops::RangeInclusive<f64> = 0.8..=1.25;

/// Requests under way, by Little's law: it holds for the mean. Where a generator tells none the
/// median stands for it.
pub(super) fn in_flight(run: &Measurement) -> Option<f64> {
    let mean_us = run.figures.get("latency_mean_us");
    let latency_us = mean_us.or_else(|| run.figures.get("latency_p50_us"))?;
    Some(run.figures.get("requests_per_s")? * latency_us / 1e6)
}

/// What to say of the points of an experiment at which replies wait, one line for each arm.
pub(super) fn lines(record: &Record, experiment: &str) -> Vec<String> {
    let rows = record.results.iter().filter(|row| row.experiment == experiment);
    let stalled = rows.filter(|row| row.arm != NOISE_ARM).filter_map(|row| {
        // Whether it was told to make the mistake.
        let is_meant = row.axes.get("reply").is_some_and(|reply| reply == "split");
        Some(((row.arm.as_str(), is_meant), stall(record, row)?))
    });
    let found = grouped(stalled).into_iter();
    found.map(|((arm, is_meant), stalls)| line(arm, is_meant, &stalls)).collect()
}

fn line(arm: &str, is_meant: bool, stalls: &[(u64, f64)]) -> String {
    let mut connections: Vec<String> =
        stalls.iter().map(|(connections, _)| number::count(*connections)).collect();
    connections.dedup();
    let latencies: Vec<f64> = stalls.iter().map(|(_, us)| us / 1000.0).collect();
    let latency_ms = median(&latencies).unwrap_or_default();
    let why = match is_meant {
        true => {
            "as it must with a reply in two writes: the rate is connections / latency, \
                 whatever the mechanism"
        }
        false => "look for a reply in two writes without TCP_NODELAY",
    };
    format!(
        "{arm}: every connection waits {latency_ms:.0} ms for a delayed acknowledgement (at {} \
         connections), {why}",
        connections.join(", ")
    )
}

/// Connections and latency, where each connection waits as long as a delayed acknowledgement takes.
fn stall(record: &Record, row: &ResultRow) -> Option<(u64, f64)> {
    let connections: u64 = row.axes.get("connections")?.parse().ok()?;
    let runs: Vec<&Measurement> = super::loaded(record)
        .filter(|(place, _)| *place == row.place())
        .map(|(_, run)| run)
        .collect();
    let under_way: Vec<f64> = runs.iter().filter_map(|run| in_flight(run)).collect();
    let latencies: Vec<f64> =
        runs.iter().filter_map(|run| run.figures.get("latency_p50_us").copied()).collect();
    let latency_us = median(&latencies)?;
    let each = median(&under_way)? / connections as f64;
    let is_stalled = SUSPECT_US.contains(&latency_us) && EACH_HAS_ONE.contains(&each);
    is_stalled.then_some((connections, latency_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_that_nobody_asked_for_is_a_hint() {
        let stalls = [(100, 44_000.0), (300, 43_000.0), (300, 44_000.0)];
        let said = line("nginx", false, &stalls);
        assert!(said.starts_with("nginx: every connection waits 44 ms"), "{said}");
        assert!(said.contains("(at 100, 300 connections), look for a reply in two"), "{said}");
        assert!(line("uring", true, &stalls).contains("whatever the mechanism"));
    }
}
