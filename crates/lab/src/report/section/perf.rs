//! The lines that `perf stat` prints of a server, divided by its requests: one table.
//!
//! Under the load table of each experiment that had a load generator. A count that this machine
//! does not have says why.

use pollux_report::markup::notes;
use pollux_report::number::NA;
use pollux_report::{Cell, Table};

use crate::host::Reading;
use crate::record::{CountingRun, Measurement, Record};
use crate::report::number;
use crate::report::view::{grouped, in_order};
use crate::report::words::figure_of;

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
            let each = |names: &[&str]| run.per_event(names);
            let show = |reading: Reading<f64>| figure_of(&reading, number::si);
            let (cycles, instructions) = (each(&["cycles"]), each(&["instructions"]));
            let (branches, misses) = (each(&["branches"]), each(&["branch_misses"]));
            let share = misses.clone().and_then(|m| branches.clone().map(|b| m / b));
            let per_cycle = instructions.clone().and_then(|i| cycles.clone().map(|c| i / c));
            table.row([
                Cell::text(&run.arm),
                timed(record, run, |m| Some(m.cpu_ns_per_event()? / 1e3)),
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
    Cell::number_or(record.median_at(like.place(), read), number::si, NA, "no timing run has it")
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
