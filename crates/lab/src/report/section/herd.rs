//! Workers that share one source: what a call cost the machine, and how the calls were shared.
//!
//! Only runs that had workers are in it. All figures are medians over the timing runs; the curves
//! are the mean of the runs, rank by rank.

use pollux_report::Table;
use pollux_report::markup::{card_of, section};

use super::columns::{Column, Timed, Topic, by_experiment, points, timed};
use super::{folded, panels};
use crate::record::Record;
use crate::report::chart::lorenz::{self, Shared};
use crate::report::number;
use crate::report::view::{Arms, NOISE_ARM};
use crate::report::words;

const UNCOUNTED: &str = "a pool's workers don't count their waits";

/// What a call cost.
const COSTS: Topic = Topic {
    heading: "what a call cost",
    about: "Switches of the whole machine are those of callers, workers and everybody else. A worker \
            that is woken in vain, finds nothing and sleeps again switches twice and answers nothing: \
            a herd shows here before it shows anywhere else. Callers are a closed loop, each with one \
            call under way: a stall is one long latency for each of them, and not one for every call \
            that others would have wanted to make meanwhile.",
    columns: &[
        Column::of("calls/s", |run| Some(run.value), number::si),
        Column::figure("switches/call, whole machine", "switches_per_call", number::si),
        Column::figure(
            "voluntary switches/call, workers",
            "worker_switches_voluntary_per_call",
            number::si,
        ),
        Column::figure("CPU µs/call, workers", "worker_us_per_call", number::si),
        Column::figure("CPU µs/call, callers", "caller_us_per_call", number::si),
        Column::figure("p50 µs", "latency_p50_us", number::si),
        Column::figure("p99 µs", "latency_p99_us", number::si),
        Column::figure("longest µs", "latency_max_us", number::si),
    ],
};

/// How the calls were shared.
const SHARES: Topic = Topic {
    heading: "how the calls were shared",
    about: "As the workers counted them. A curve shows which part of the calls the least busy workers \
            had together: on the diagonal all had the same. The Gini coefficient is twice the area \
            between both, 0 where all had the same, near 1 where few had all.",
    columns: &[
        Column::figure("Gini coefficient", "gini", number::si),
        Column::figure("share of the busiest", "busiest_share", number::percent),
        Column::figure("workers above 1 %", "workers_above_1pct", number::tick),
        Column::figure("workers without a call", "workers_idle", number::tick),
        Column::figure("waits/call", "waits_per_call", number::si).lacking(UNCOUNTED),
        Column::figure("waits in vain/call", "empty_waits_per_call", number::si).lacking(UNCOUNTED),
    ],
};

/// A fixed number of calls, as a shell's `time` shows it.
const TIMES: Topic = Topic {
    heading: "the time of 1,000,000 calls",
    about: "Each caller made so many calls as the point says; where that is not a million in all, the \
            times are scaled to a million. Real is from the first request to the last answer; user and \
            sys are the CPU time of the callers' process meanwhile, which is what `time` of a client \
            shows.",
    columns: &[
        Column::figure("real s", "real_s_per_million_calls", number::si),
        Column::figure("user s", "user_s_per_million_calls", number::si),
        Column::figure("sys s", "sys_s_per_million_calls", number::si),
    ],
};

/// Whether any run had workers.
pub(crate) fn has_workers(record: &Record) -> bool {
    herds(record).next().is_some()
}

fn herds(record: &Record) -> impl Iterator<Item = Timed<'_>> {
    timed(record, |run| !run.worker_calls.is_empty())
}

/// The section; empty without workers.
pub(crate) fn herd(record: &Record, arms: &Arms<'_>) -> String {
    let mut body = String::new();
    for (index, (experiment, runs)) in by_experiment(herds(record)).iter().enumerate() {
        for topic in [&TIMES, &COSTS] {
            let table = topic.table(runs, &points(runs), arms);
            let of_topic =
                |table: Table| card_of(&heading(experiment, topic), topic.about, &table.html());
            body += &table.map_or_else(String::new, of_topic);
        }
        let several = runs.iter().filter(|(_, run)| run.worker_calls.len() > 1);
        let several: Vec<Timed<'_>> = several.copied().collect();
        let shared = folded(&points(&several), |points, more| {
            shares(runs, points, arms, &format!("lorenz-{index}{more}"))
        });
        if !shared.is_empty() {
            body += &card_of(&heading(experiment, &SHARES), SHARES.about, &shared);
        }
    }
    if body.is_empty() { body } else { section("herd", "workers and calls", &body) }
}

/// Every table with its heading and how it is to be read.
pub(crate) fn tables(record: &Record, arms: &Arms<'_>) -> Vec<(String, &'static str, Table)> {
    let mut tables = Vec::new();
    for (experiment, runs) in by_experiment(herds(record)) {
        for topic in [&TIMES, &COSTS, &SHARES] {
            let table = topic.table(&runs, &points(&runs), arms);
            tables.extend(table.map(|table| (heading(experiment, topic), topic.about, table)));
        }
    }
    tables
}

fn heading(experiment: &str, topic: &Topic) -> String {
    format!("{}: {}", words::part(experiment), topic.heading)
}

fn shares(runs: &[Timed<'_>], at: &[&str], arms: &Arms<'_>, key: &str) -> String {
    let charts = panels(at, |place, point| {
        let here = || runs.iter().filter(|(place, _)| place[1] == point);
        let names = here().map(|(place, _)| place[2]).filter(|arm| *arm != NOISE_ARM);
        let of_arm = |arm: &str| {
            let runs = here().filter(|(place, _)| place[2] == arm);
            let counts = runs.map(|(_, run)| run.worker_calls.as_slice());
            Shared { arm: arm.to_owned(), shares: lorenz::mean_shares(counts) }
        };
        let shared: Vec<Shared> = arms.sorted(names).into_iter().map(of_arm).collect();
        Some(lorenz::lorenz(&shared, arms, &format!("{key}-{place}")))
    });
    charts + &SHARES.table(runs, at, arms).map_or_else(String::new, |table| table.html())
}
