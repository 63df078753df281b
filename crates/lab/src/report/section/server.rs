//! Servers under load: what the generator saw, and what the kernel counted for each request.
//!
//! Only runs that had a load generator are in it. The second table has the lines that `perf stat`
//! prints of a server, divided by the requests; what could not be counted says why.

use crate::record::{Measurement, Place, Record};
use crate::report::markup::{Cell, Table, card, escape, notes, section};
use crate::report::number;
use crate::report::view::{Arms, in_order};
use crate::report::words;
use crate::stats::median;

mod perf;
mod stall;

const LOAD_HEADINGS: [&str; 11] = [
    "arm",
    "#requests/s",
    "#p50 µs",
    "#p99 µs",
    "#p99.9 µs",
    "#rate × latency",
    "#server's CPU busy",
    "#generator's CPU busy",
    "#generator's CPU µs/request",
    "#dead closed",
    "generator",
];

/// Whether any run had a load generator.
pub(crate) fn has_load(record: &Record) -> bool {
    loaded(record).next().is_some()
}

/// The section; empty without a load generator.
pub(crate) fn server(record: &Record, arms: &Arms<'_>) -> String {
    let experiments = in_order(loaded(record).map(|(place, _)| place[0]));
    let mut body = String::new();
    for experiment in experiments {
        let heading = escape(&format!("{}: what the load generator saw", words::part(experiment)));
        let about = "Medians over the runs. On a machine with few CPUs the generator is the bound: \
                     rates and latencies say more of it than of the server. Rate × latency is the \
                     number of requests under way, by Little's law: with one for each connection \
                     it is the number of connections, or rate and latency contradict each other.";
        body.push_str(&card(&format!(
            "<h3>{heading}</h3><p class=\"dim\">{about}</p>{}{}",
            load_table(record, experiment, arms),
            notes(&stall::lines(record, experiment))
        )));
        let heading = escape(&format!(
            "{}: as perf stat prints it, for each request",
            words::part(experiment)
        ));
        let about = "Task clock and CPUs utilized are medians of the timing runs; the rest is from \
                     the counting pass.";
        body.push_str(&card(&format!(
            "<h3>{heading}</h3><p class=\"dim\">{about}</p>{}",
            perf::table(record, experiment)
        )));
    }
    if body.is_empty() { body } else { section("server", "server and load", &body) }
}

fn loaded(record: &Record) -> impl Iterator<Item = (Place<'_>, &Measurement)> {
    let measured = record.runs.iter().filter_map(|run| Some((run.place(), run.measured()?)));
    measured.filter(|(_, measured)| measured.generator.is_some())
}

fn load_table(record: &Record, experiment: &str, arms: &Arms<'_>) -> String {
    let mut table = Table::new(&LOAD_HEADINGS);
    let here = || loaded(record).filter(|(place, _)| place[0] == experiment);
    for point in in_order(here().map(|(place, _)| place[1])) {
        table.group(point);
        let at_point = || here().filter(|(place, _)| place[1] == point);
        // Runs stand in random order; tables show arms in that of the plan.
        let mut names = in_order(at_point().map(|(place, _)| place[2]));
        names.sort_by_key(|name| arms.index(name));
        for arm in names {
            let runs: Vec<&Measurement> =
                at_point().filter(|(place, _)| place[2] == arm).map(|(_, run)| run).collect();
            let generator = runs.iter().find_map(|run| run.generator.as_deref());
            table.row(&[
                Cell::text(arm),
                figure(&runs, "requests_per_s", number::si),
                figure(&runs, "latency_p50_us", number::si),
                figure(&runs, "latency_p99_us", number::si),
                figure(&runs, "latency_p999_us", number::si),
                in_flight(&runs),
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

/// Rate times mean latency.
fn in_flight(runs: &[&Measurement]) -> Cell {
    let values: Vec<f64> = runs.iter().filter_map(|run| stall::in_flight(run)).collect();
    match median(&values) {
        Some(value) => Cell::number(&number::si(value), value),
        None => Cell::missing("–", "not part of these runs"),
    }
}
