//! The sections that experiments bring, with their columns and what `perf stat` counted of their servers.
//!
//! All figures are medians over the timing runs; page and CI summary have the same tables. Under them stand
//! the counts of the kernel as `perf stat` prints them, divided by requests, where the section asks for them;
//! what could not be counted says why.

use pollux_report::markup::{card_of, notes, section};
use pollux_report::number::NA;
use pollux_report::{Cell, Table};

use super::{folded, panels};
use crate::experiments::{self, Section, Topic};
use crate::host::Reading;
use crate::record::{CountingRun, Measurement, Place, Record};
use crate::report::chart::lorenz::{self, Shared};
use crate::report::view::{Arms, NOISE_ARM, grouped, in_order};
use crate::report::words::figure_of;
use crate::report::{number, words};
use crate::stats;

const PERF: &str = "Task clock and CPUs utilized are medians of the timing runs; the rest is from the counting pass.";

/// Those of which a record has something.
pub(crate) fn there(record: &Record) -> Vec<&'static Section> {
    let mut sections = experiments::sections();
    sections.retain(|section| timed(record, section.is_of).next().is_some());
    sections
}

/// All of them, in the order of the experiments.
pub(crate) fn html(record: &Record, arms: &Arms<'_>) -> String {
    let sections = there(record).into_iter();
    sections.map(|each| section(each.id, each.title, &body(each, record, arms))).collect()
}

fn body(section: &Section, record: &Record, arms: &Arms<'_>) -> String {
    let mut body = String::new();
    for (index, (part, runs)) in by_experiment(timed(record, section.is_of)).iter().enumerate() {
        let mut remarks = notes(&(section.remarks)(record, part));
        for topic in section.topics {
            let key = format!("{}-{index}", section.id);
            let shown = match topic.is_drawn {
                true => drawn(topic, runs, arms, &key),
                false => tabled(topic, runs, &points(runs), arms),
            };
            let shown = shown + &std::mem::take(&mut remarks);
            if !shown.is_empty() {
                body += &card_of(&heading(record, part, topic), topic.about, &shown);
            }
        }
        if let Some(unit) = section.counts_for_each {
            let heading =
                format!("{}: as perf stat prints it, for each {unit}", words::part(record, part));
            body += &card_of(&heading, PERF, &perf_table(record, part));
        }
    }
    body
}

/// Every table of the summary with its heading and how it is to be read.
pub(crate) fn tables(record: &Record, arms: &Arms<'_>) -> Vec<(String, &'static str, Table)> {
    let mut tables = Vec::new();
    for section in there(record).into_iter().filter(|section| section.is_in_summary) {
        for (part, runs) in by_experiment(timed(record, section.is_of)) {
            for topic in section.topics {
                let table = table(topic, &runs, &points(&runs), arms);
                tables
                    .extend(table.map(|table| (heading(record, part, topic), topic.about, table)));
            }
        }
    }
    tables
}

fn heading(record: &Record, part: &str, topic: &Topic) -> String {
    format!("{}: {}", words::part(record, part), topic.heading)
}

fn tabled(topic: &Topic, runs: &[Timed<'_>], at: &[&str], arms: &Arms<'_>) -> String {
    table(topic, runs, at, arms).map_or_else(String::new, |table| table.html())
}

/// The curves of shares of the points with several workers, above the table.
fn drawn(topic: &Topic, runs: &[Timed<'_>], arms: &Arms<'_>, key: &str) -> String {
    let several = runs.iter().filter(|(_, run)| run.worker_calls.len() > 1);
    let several: Vec<Timed<'_>> = several.copied().collect();
    folded(&points(&several), |points, more| {
        let charts = panels(points, |place, point| {
            let here = || several.iter().filter(|(place, _)| place[1] == point);
            let names = here().map(|(place, _)| place[2]).filter(|arm| *arm != NOISE_ARM);
            let of_arm = |arm: &str| {
                let runs = here().filter(|(place, _)| place[2] == arm);
                let counts = runs.map(|(_, run)| run.worker_calls.as_slice());
                Shared { arm: arm.to_owned(), shares: stats::mean_shares(counts) }
            };
            let shared: Vec<Shared> = arms.sorted(names).into_iter().map(of_arm).collect();
            Some(lorenz::lorenz(&shared, arms, &format!("{key}{more}-{place}")))
        });
        charts + &tabled(topic, &several, points, arms)
    })
}

/// A timing run that went to its end, with where it was.
pub(super) type Timed<'a> = (Place<'a>, &'a Measurement);

/// Those of a record that are of a kind.
pub(super) fn timed(
    record: &Record,
    is_of: fn(&Measurement) -> bool,
) -> impl Iterator<Item = Timed<'_>> {
    let measured = record.runs.iter().filter_map(|run| Some((run.place(), run.measured()?)));
    measured.filter(move |(_, run)| is_of(run))
}

/// Their experiments, each with its runs.
pub(super) fn by_experiment<'a>(
    runs: impl Iterator<Item = Timed<'a>>,
) -> Vec<(&'a str, Vec<Timed<'a>>)> {
    grouped(runs.map(|(place, run)| (place[0], (place, run))))
}

/// Their points.
pub(super) fn points<'a>(runs: &[Timed<'a>]) -> Vec<&'a str> {
    in_order(runs.iter().map(|(place, _)| place[1]))
}

/// The table of some points; an arm without any of its figures is not in it, and there is none
/// without arms.
pub(super) fn table(
    topic: &Topic,
    runs: &[Timed<'_>],
    points: &[&str],
    arms: &Arms<'_>,
) -> Option<Table> {
    let headings = topic.columns.iter().map(|column| format!("#{}", column.heading));
    let mut table = Table::new(std::iter::once("arm".to_owned()).chain(headings));
    for point in points {
        let here = || runs.iter().filter(|(place, _)| place[1] == *point);
        // Runs stand in random order; tables show arms in that of the plan.
        let rows = arms.sorted(here().map(|(place, _)| place[2])).into_iter().map(|arm| {
            let runs = here().filter(|(place, _)| place[2] == arm);
            let runs: Vec<&Measurement> = runs.map(|(_, run)| *run).collect();
            (arm, topic.columns.iter().map(|column| column.median(&runs)).collect())
        });
        let has_one = |(_, values): &(&str, Vec<Option<f64>>)| values.iter().any(Option::is_some);
        let mut rows = rows.filter(has_one).peekable();
        if rows.peek().is_some() {
            table.group(point);
        }
        for (arm, values) in rows {
            let cells = topic
                .columns
                .iter()
                .zip(values)
                .map(|(column, value)| Cell::number_or(value, column.show, NA, column.lacking));
            table.row(std::iter::once(Cell::text(arm)).chain(cells).collect::<Vec<_>>());
        }
    }
    (!table.is_empty()).then_some(table)
}

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
pub(super) fn perf_table(record: &Record, experiment: &str) -> String {
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
                counted(record, run, |m| Some(m.cpu_ns_per_event()? / 1e3)),
                counted(record, run, |m| m.figures.get("server_busy").copied()),
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
fn counted(record: &Record, like: &CountingRun, read: fn(&Measurement) -> Option<f64>) -> Cell {
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
