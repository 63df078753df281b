//! The lines that `perf stat` prints of a server, divided by its requests: one table.
//!
//! Under the load table of each experiment that had a load generator. A count that this machine
//! does not have says why.

use std::collections::BTreeMap;

use pollux_report::markup::notes;
use pollux_report::number::NA;
use pollux_report::{Cell, Table};

use crate::host::Reading;
use crate::record::{CountingRun, Measurement, Record};
use crate::report::number;
use crate::report::view::{grouped, in_order};
use crate::report::words::figure_of;
use crate::stats::median;

const HEADINGS: [&str; 13] = [
    "arm",
    "#task clock µs",
    "#CPUs utilized",
    "#context switches",
    "#CPU migrations",
    "#page faults",
    "#system calls",
    "#cycles",
    "#instructions",
    "#instructions per cycle",
    "#branches",
    "#branch misses",
    "#miss rate",
];

/// The table of one experiment; under it why a count is missing, each reason once.
pub(super) fn table(record: &Record, experiment: &str) -> String {
    let mut table = Table::new(HEADINGS);
    let runs: Vec<_> = record.counting.iter().filter(|run| run.experiment == experiment).collect();
    for point in in_order(runs.iter().map(|run| run.point.as_str())) {
        table.group(point);
        for run in runs.iter().filter(|run| run.point == point) {
            let each = |names: &[&str]| per_request(run, names);
            let show = |reading: Reading<f64>| figure_of(&reading, number::si);
            let (cycles, instructions) = (each(&["cycles"]), each(&["instructions"]));
            let (branches, misses) = (each(&["branches"]), each(&["branch_misses"]));
            let share = misses.clone().and_then(|m| branches.clone().map(|b| m / b));
            let per_cycle = instructions.clone().and_then(|i| cycles.clone().map(|c| i / c));
            table.row([
                Cell::text(&run.arm),
                timed(record, run, |m| Some(*m.cpu_ns.value()? as f64 / 1e3 / m.events? as f64)),
                timed(record, run, |m| m.figures.get("server_busy").copied()),
                show(each(&["switches_voluntary", "switches_involuntary"])),
                show(each(&["migrations"])),
                show(each(&["page_faults"])),
                show(each(&["system_calls"])),
                show(cycles),
                show(instructions),
                show(per_cycle),
                show(branches),
                show(misses),
                figure_of(&share, number::percent),
            ]);
        }
    }
    table.html() + &notes(&missing(&runs))
}

/// The median of a figure over the timing runs of the same arm at the same point.
fn timed(record: &Record, like: &CountingRun, read: fn(&Measurement) -> Option<f64>) -> Cell {
    let values: Vec<f64> = record.measured_at(like.place()).filter_map(read).collect();
    Cell::number_or(median(&values), number::si, NA, "no timing run has it")
}

/// One line for each reason, with the counts that it took away.
fn missing(runs: &[&CountingRun]) -> Vec<String> {
    let readings = runs.iter().flat_map(|run| &run.kernel);
    let missing = readings.filter_map(|(name, reading)| {
        let reason = reading.reason()?;
        // A reason may begin with the name of what it took away.
        Some((reason.split_once(": ").map_or(reason, |(_, reason)| reason), name.as_str()))
    });
    let line = |(reason, names): (&str, Vec<&str>)| {
        let names = in_order(names.into_iter()).join(", ").replace('_', " ");
        format!("n/a: {names}: {reason}")
    };
    grouped(missing).into_iter().map(line).collect()
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
