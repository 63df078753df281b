//! Servers under load: what the generator saw, and what the kernel counted for each request.
//!
//! Only runs that had a load generator are in it. The second table has the lines that `perf stat`
//! prints of a server, divided by the requests; what could not be counted says why.

use std::collections::BTreeMap;

use crate::host::Reading;
use crate::record::{CountingRun, Measurement, Outcome, Record};
use crate::report::markup::{Cell, Table, card, details, escape, section};
use crate::report::number;
use crate::report::view::{Arms, in_order};
use crate::stats::median;

const LOAD_HEADINGS: [&str; 10] = [
    "arm",
    "#requests/s",
    "#p50 µs",
    "#p99 µs",
    "#p99.9 µs",
    "#server's CPU busy",
    "#generator's CPU busy",
    "#generator's CPU µs/request",
    "#dead closed",
    "generator",
];
const PERF_HEADINGS: [&str; 9] = [
    "arm",
    "#task clock µs",
    "#context switches",
    "#CPU migrations",
    "#page faults",
    "#system calls",
    "#cycles",
    "#instructions",
    "#instructions/cycle",
];

/// Whether any run had a load generator.
pub(crate) fn has_load(record: &Record) -> bool {
    loaded(record).next().is_some()
}

/// The section; empty without a load generator.
pub(crate) fn server(record: &Record, arms: &Arms<'_>) -> String {
    let experiments = in_order(loaded(record).map(|(place, _)| place.experiment));
    let mut body = String::new();
    for experiment in experiments {
        let heading = escape(&format!("{experiment}: what the load generator saw"));
        let about = "Medians over the runs. On a machine with few CPUs the generator is the bound: \
                     rates and latencies say more of it than of the server.";
        body.push_str(&card(&format!(
            "<h3>{heading}</h3><p class=\"dim\">{about}</p>{}",
            load_table(record, experiment, arms)
        )));
        let perf = perf_table(record, experiment);
        let heading = "As perf stat prints it, for each request (counting pass)";
        body.push_str(&card(&details(heading, &perf)));
    }
    if body.is_empty() { body } else { section("server", "server and load", &body) }
}

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place<'a> {
    experiment: &'a str,
    point: &'a str,
    arm: &'a str,
}

fn loaded(record: &Record) -> impl Iterator<Item = (Place<'_>, &Measurement)> {
    record.runs.iter().filter_map(|run| match &run.outcome {
        Outcome::Measured(measured) if measured.generator.is_some() => {
            let (experiment, point, arm) = (&*run.experiment, &*run.point, &*run.arm);
            Some((Place { experiment, point, arm }, measured))
        }
        _ => None,
    })
}

fn load_table(record: &Record, experiment: &str, arms: &Arms<'_>) -> String {
    let mut table = Table::new(&LOAD_HEADINGS);
    let here = || loaded(record).filter(|(place, _)| place.experiment == experiment);
    for point in in_order(here().map(|(place, _)| place.point)) {
        table.group(point);
        let at_point = || here().filter(|(place, _)| place.point == point);
        // Runs stand in random order; tables show arms in that of the plan.
        let mut names = in_order(at_point().map(|(place, _)| place.arm));
        names.sort_by_key(|name| arms.index(name));
        for arm in names {
            let runs: Vec<&Measurement> =
                at_point().filter(|(place, _)| place.arm == arm).map(|(_, run)| run).collect();
            let generator = runs.iter().find_map(|run| run.generator.as_deref());
            table.row(&[
                Cell::text(arm),
                figure(&runs, "requests_per_s", number::si),
                figure(&runs, "latency_p50_us", number::si),
                figure(&runs, "latency_p99_us", number::si),
                figure(&runs, "latency_p999_us", number::si),
                figure(&runs, "server_busy", number::percent),
                figure(&runs, "generator_busy", number::percent),
                figure(&runs, "generator_us_per_request", number::si),
                figure(&runs, "dead_closed", number::si),
                Cell::text(generator.unwrap_or_default()),
            ]);
        }
    }
    table.finish()
}

/// The median of one figure over the runs that have it.
fn figure(runs: &[&Measurement], name: &str, show: fn(f64) -> String) -> Cell {
    let values: Vec<f64> = runs.iter().filter_map(|run| run.figures.get(name).copied()).collect();
    match median(&values) {
        Some(value) => Cell::number(&show(value), value),
        None => Cell::missing("–", "not part of these runs"),
    }
}

fn perf_table(record: &Record, experiment: &str) -> String {
    let mut table = Table::new(&PERF_HEADINGS);
    let runs: Vec<_> = record.counting.iter().filter(|run| run.experiment == experiment).collect();
    for point in in_order(runs.iter().map(|run| run.point.as_str())) {
        table.group(point);
        for run in runs.iter().filter(|run| run.point == point) {
            let each = |names: &[&str]| per_request(run, names);
            let show = |reading: Reading<f64>| Cell::reading(&reading, number::si);
            let (cycles, instructions) = (each(&["cycles"]), each(&["instructions"]));
            let per_cycle = instructions.clone().and_then(|i| cycles.clone().map(|c| i / c));
            table.row(&[
                Cell::text(&run.arm),
                show(each(&["cpu_ns"]).map(|ns| ns / 1000.0)),
                show(each(&["switches_voluntary", "switches_involuntary"])),
                show(each(&["migrations"])),
                show(each(&["page_faults"])),
                show(each(&["system_calls"])),
                show(cycles),
                show(instructions),
                show(per_cycle),
            ]);
        }
    }
    table.finish()
}

/// The sum of some counts over the requests of a run.
fn per_request(run: &CountingRun, names: &[&str]) -> Reading<f64> {
    if run.events == 0 {
        return Reading::unavailable("no request in the counted window");
    }
    let sum = names.iter().fold(Reading::Value(0), |sum, name| {
        let count = count_of(&run.kernel, name);
        sum.and_then(|sum| count.map(|count| sum + count))
    });
    sum.map(|sum: u64| sum as f64 / run.events as f64)
}

fn count_of(kernel: &BTreeMap<String, Reading<u64>>, name: &str) -> Reading<u64> {
    let count = kernel.get(name).cloned();
    count.unwrap_or_else(|| Reading::unavailable(format!("{name} not counted")))
}
