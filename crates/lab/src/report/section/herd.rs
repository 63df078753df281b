//! Workers that share one source: what a call cost the machine, and how the calls were shared.
//!
//! Only runs that had workers are in it. All figures are medians over the timing runs; the curves
//! are the mean of the runs, rank by rank.

use crate::record::{Measurement, Outcome, Record};
use crate::report::chart::lorenz::{self, Shared};
use crate::report::markup::{Cell, Table, card, details, escape, section};
use crate::report::number;
use crate::report::section::why::split_points;
use crate::report::view::{Arms, NOISE_ARM, in_order};
use crate::stats::median;

const COST_HEADINGS: [&str; 9] = [
    "arm",
    "#calls/s",
    "#switches/call, whole machine",
    "#voluntary switches/call, workers",
    "#CPU µs/call, workers",
    "#CPU µs/call, callers",
    "#p50 µs",
    "#p99 µs",
    "#longest µs",
];
const SHARE_HEADINGS: [&str; 7] = [
    "arm",
    "#Gini coefficient",
    "#share of the busiest",
    "#workers above 1 %",
    "#workers without a call",
    "#waits/call",
    "#waits in vain/call",
];

/// Whether any run had workers.
pub(crate) fn has_workers(record: &Record) -> bool {
    herds(record).next().is_some()
}

/// The section; empty without workers.
pub(crate) fn herd(record: &Record, arms: &Arms<'_>) -> String {
    let mut body = String::new();
    for (index, experiment) in in_order(herds(record).map(|run| run.experiment)).iter().enumerate()
    {
        let runs: Vec<Herd<'_>> =
            herds(record).filter(|run| run.experiment == *experiment).collect();
        body.push_str(&costs(experiment, &runs, arms));
        body.push_str(&shares(experiment, &runs, arms, index));
    }
    if body.is_empty() { body } else { section("herd", "workers and calls", &body) }
}

/// A timing run with workers.
#[derive(Clone, Copy)]
struct Herd<'a> {
    experiment: &'a str,
    point: &'a str,
    arm: &'a str,
    measured: &'a Measurement,
}

fn herds(record: &Record) -> impl Iterator<Item = Herd<'_>> {
    record.runs.iter().filter_map(|run| match &run.outcome {
        Outcome::Measured(measured) if !measured.worker_calls.is_empty() => {
            Some(Herd { experiment: &run.experiment, point: &run.point, arm: &run.arm, measured })
        }
        _ => None,
    })
}

fn costs(experiment: &str, runs: &[Herd<'_>], arms: &Arms<'_>) -> String {
    let heading = escape(&format!("{experiment}: what a call cost"));
    let about = "Switches of the whole machine are those of callers, workers and everybody else. \
                 A worker that is woken in vain, finds nothing and sleeps again switches twice and \
                 answers nothing: a herd shows here before it shows anywhere else. The kernel wakes \
                 workers in the time of whoever calls.";
    let row = |arm: &str, runs: &[&Measurement]| {
        let rate: Vec<f64> = runs.iter().map(|run| run.value).collect();
        let rate = median(&rate).unwrap_or_default();
        vec![
            Cell::text(arm),
            Cell::number(&number::si(rate), rate),
            figure(runs, "switches_per_call", number::si),
            figure(runs, "worker_switches_voluntary_per_call", number::si),
            figure(runs, "worker_us_per_call", number::si),
            figure(runs, "caller_us_per_call", number::si),
            figure(runs, "latency_p50_us", number::si),
            figure(runs, "latency_p99_us", number::si),
            figure(runs, "latency_max_us", number::si),
        ]
    };
    let points = in_order(runs.iter().map(|run| run.point));
    let table = table(&COST_HEADINGS, runs, &points, arms, &row);
    card(&format!("<h3>{heading}</h3><p class=\"dim\">{about}</p>{table}"))
}

fn shares(experiment: &str, runs: &[Herd<'_>], arms: &Arms<'_>, index: usize) -> String {
    let has_several = |run: &&Herd<'_>| run.measured.worker_calls.len() > 1;
    let points = in_order(runs.iter().filter(has_several).map(|run| run.point));
    let (open, folded) = split_points(&points);
    if open.is_empty() {
        return String::new();
    }
    let heading = escape(&format!("{experiment}: how the calls were shared"));
    let about = "As the workers counted them. A curve shows which part of the calls the least busy \
                 workers had together: on the diagonal all had the same. The Gini coefficient is \
                 twice the area between both, 0 where all had the same, near 1 where few had all.";
    let key = format!("lorenz-{index}");
    let mut body = format!("<h3>{heading}</h3><p class=\"dim\">{about}</p>");
    body.push_str(&share_panels(runs, &open, arms, &key));
    if !folded.is_empty() {
        let rest = share_panels(runs, &folded, arms, &format!("{key}-more"));
        body.push_str(&details(&format!("The other {} points", folded.len()), &rest));
    }
    card(&body)
}

fn share_panels(runs: &[Herd<'_>], points: &[&str], arms: &Arms<'_>, key: &str) -> String {
    let one = |(place, point): (usize, &&str)| {
        let here: Vec<Herd<'_>> = runs.iter().copied().filter(|run| run.point == *point).collect();
        let mut names = in_order(here.iter().map(|run| run.arm).filter(|arm| *arm != NOISE_ARM));
        names.sort_by_key(|name| arms.index(name));
        let of_arm = |arm: &&str| {
            let runs = here.iter().filter(|run| run.arm == *arm);
            let counts = runs.map(|run| run.measured.worker_calls.as_slice());
            Shared { arm: (*arm).to_owned(), shares: lorenz::mean_shares(counts) }
        };
        let shared: Vec<Shared> = names.iter().map(of_arm).collect();
        let chart = lorenz::lorenz(&shared, arms, &format!("{key}-{place}"));
        format!("<div><h4>{}</h4>{chart}</div>", escape(point))
    };
    let charts: String = points.iter().enumerate().map(one).collect();
    let row = |arm: &str, runs: &[&Measurement]| {
        vec![
            Cell::text(arm),
            figure(runs, "gini", number::si),
            figure(runs, "busiest_share", number::percent),
            figure(runs, "workers_above_1pct", number::tick),
            figure(runs, "workers_idle", number::tick),
            figure(runs, "waits_per_call", number::si),
            figure(runs, "empty_waits_per_call", number::si),
        ]
    };
    let table = table(&SHARE_HEADINGS, runs, points, arms, &row);
    format!("<div class=\"panels\">{charts}</div>{table}")
}

/// A table with a group for each point and a row for each arm, by what `row` makes of its runs.
fn table(
    headings: &[&str],
    runs: &[Herd<'_>],
    points: &[&str],
    arms: &Arms<'_>,
    row: &dyn Fn(&str, &[&Measurement]) -> Vec<Cell>,
) -> String {
    let mut table = Table::new(headings);
    for point in points {
        table.group(point);
        let at_point = || runs.iter().filter(|run| run.point == *point);
        // Runs stand in random order; tables show arms in that of the plan.
        let mut names = in_order(at_point().map(|run| run.arm));
        names.sort_by_key(|name| arms.index(name));
        for arm in names {
            let runs = at_point().filter(|run| run.arm == arm).map(|run| run.measured);
            table.row(&row(arm, &runs.collect::<Vec<_>>()));
        }
    }
    table.finish()
}

/// The median of one figure over the runs that have it.
fn figure(runs: &[&Measurement], name: &str, show: fn(f64) -> String) -> Cell {
    let values: Vec<f64> = runs.iter().filter_map(|run| run.figures.get(name).copied()).collect();
    match median(&values) {
        Some(value) => Cell::number(&show(value), value),
        None => Cell::missing("n/a", "could not be read in these runs"),
    }
}
