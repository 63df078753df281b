//! What a report shows of servers under load: what the generator saw, and what the kernel counted for each request.
//!
//! Replies that wait for delayed acknowledgements are noticed by their latency and by Little's law: a
//! head and a body in two writes without TCP_NODELAY wait for the peer's acknowledgement, which a
//! peer that has nothing to send delays by 40 ms. Then every connection has one request under way
//! that does nothing, and rate times latency is the number of connections.

use std::collections::{BTreeMap, BTreeSet};

use pollux_report::number;
use pollux_stats::median;

use crate::experiments::{Column, Generator, Section, Topic};
use crate::record::{Measurement, Record, ResultRow, Verdict};

/// Of runs that had a load generator.
pub(crate) const SECTION: Section = Section {
    id: "server",
    title: "server and load",
    is_of: |run| run.generator.is_some(),
    topics: &[LOAD],
    remarks,
    counts_for_each: Some("request"),
    is_in_summary: false,
};

/// What stands out, and what made the load.
fn remarks(record: &Record, part: &str) -> Vec<String> {
    let runs = record.runs.iter().filter(|run| run.experiment == part);
    let by: BTreeSet<&str> = runs.filter_map(|run| run.measured()?.generator.as_deref()).collect();
    let by = by.into_iter().collect::<Vec<_>>().join(" and ");
    let mut lines = stalls(record, part);
    lines.push(format!("the load was made by {by}"));
    let is_of_part = |row: &&ResultRow| row.experiment == part;
    if record.results.iter().filter(is_of_part).any(|row| agent_of(row).is_some()) {
        lines.push(FROM_ANOTHER_HOST.to_owned());
    }
    lines
}

/// What differs from a load of this host.
const FROM_ANOTHER_HOST: &str = "where the load came from an agent, it came from another host over the network: what \
    packets cost the server beyond loopback (its interface, interrupts, acknowledgements) is in its CPU time, as far as \
    the kernel counts it for the server; that was read here before and after each turn, while the server slept, so that \
    neither the way of an order through the broker nor the distance of clocks is in it; the generator's CPU time is that \
    of the agent's host";

/// The agent that made the load of a row.
fn agent_of(row: &ResultRow) -> Option<&str> {
    row.axes.get("generator")?.strip_prefix(Generator::Agent.name())?.strip_prefix(':')
}

const LOAD: Topic = Topic {
    heading: "what the load generator saw",
    about: "Medians over the runs. On a machine with few CPUs the generator is the bound: rates and \
            latencies say more of it than of the server. Rate × latency is the number of requests under \
            way, by Little's law: with one for each connection it is the number of connections, or rate \
            and latency contradict each other.",
    columns: &[
        Column::of("requests/s", rate, number::si).lacking(IN_TURNS),
        column("p50 µs", "latency_p50_us", number::si),
        column("p99 µs", "latency_p99_us", number::si),
        column("p99.9 µs", "latency_p999_us", number::si),
        Column::of("rate × latency", in_flight, number::si).lacking(NOT_HERE),
        column("server's CPU busy", "server_busy", number::percent),
        column("generator's CPU busy", "generator_busy", number::percent),
        column("generator's CPU µs/request", "generator_us_per_request", number::si),
        column("dead closed", "dead_closed", number::si),
    ],
    is_drawn: false,
};

/// Requests per second, of a run that was loaded throughout. In turns each arm has the machine to itself for
/// milliseconds: what it does then is not the rate of a server.
fn rate(run: &Measurement) -> Option<f64> {
    run.figures.get("requests_per_s").copied().filter(|_| run.turns.is_none())
}

const IN_TURNS: &str = "turns show what a request costs, not rate or latency (--rates)";
const NOT_HERE: &str = "not part of these runs";

const fn column(heading: &'static str, name: &'static str, show: fn(f64) -> String) -> Column {
    Column::figure(heading, name, show).lacking(NOT_HERE)
}

/// Latencies that look like a delayed acknowledgement: Linux waits 40 ms, and a network adds some.
const SUSPECT_US: std::ops::RangeInclusive<f64> = 38_000.0..=50_000.0;
/// Requests under way, relative to connections, between which each connection has one.
const EACH_HAS_ONE: std::ops::RangeInclusive<f64> = 0.8..=1.25;

/// Requests under way, by Little's law: it holds for the mean. Where a generator shows none the
/// median stands for it.
fn in_flight(run: &Measurement) -> Option<f64> {
    let mean_us = run.figures.get("latency_mean_us");
    let latency_us = mean_us.or_else(|| run.figures.get("latency_p50_us"))?;
    Some(run.figures.get("requests_per_s")? * latency_us / 1e6)
}

/// What to say of the points of an experiment at which replies wait, one line for each arm.
fn stalls(record: &Record, experiment: &str) -> Vec<String> {
    let rows = record.results.iter().filter(|row| row.experiment == experiment);
    let mut found: BTreeMap<(&str, bool), Vec<(u64, f64)>> = BTreeMap::new();
    for row in rows.filter(|row| row.verdict != Verdict::NoiseLevel) {
        // Whether it was asked to make the mistake.
        let is_meant = row.axes.get("reply").is_some_and(|reply| reply == "split");
        if let Some(stall) = stall(record, row) {
            found.entry((&row.arm, is_meant)).or_default().push(stall);
        }
    }
    found.into_iter().map(|((arm, is_meant), stalls)| line(arm, is_meant, &stalls)).collect()
}

fn line(arm: &str, is_meant: bool, stalls: &[(u64, f64)]) -> String {
    let mut connections: Vec<String> =
        stalls.iter().map(|(connections, _)| number::count(*connections)).collect();
    connections.dedup();
    let latencies: Vec<f64> = stalls.iter().map(|(_, us)| us / 1000.0).collect();
    let latency_ms = median(&latencies).unwrap_or_default();
    let why = if is_meant {
        "as it must with a reply in two writes: the rate is connections / latency, \
                 whatever the mechanism"
    } else {
        "look for a reply in two writes without TCP_NODELAY"
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
    let runs: Vec<&Measurement> =
        record.measured_at(row.key()).filter(|run| run.generator.is_some()).collect();
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
    fn a_stall_that_was_not_asked_for_is_a_hint() {
        let stalls = [(100, 44_000.0), (300, 43_000.0), (300, 44_000.0)];
        let said = line("nginx", false, &stalls);
        assert!(said.starts_with("nginx: every connection waits 44 ms"), "{said}");
        assert!(said.contains("(at 100, 300 connections), look for a reply in two"), "{said}");
        assert!(line("uring", true, &stalls).contains("whatever the mechanism"));
    }
}
