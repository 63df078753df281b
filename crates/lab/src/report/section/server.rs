//! Servers under load: what the generator saw, and what the kernel counted for each request.
//!
//! Only runs that had a load generator are in it. The second table has the lines that `perf stat`
//! prints of a server, divided by the requests; what could not be counted says why.

use pollux_report::markup::{card_of, notes, section};

use super::columns::{Column, Timed, Topic, by_experiment, points, timed};
use crate::record::Record;
use crate::report::number;
use crate::report::view::{Arms, in_order};
use crate::report::words;

mod perf;
mod stall;

const LOAD: Topic = Topic {
    heading: "what the load generator saw",
    about: "Medians over the runs. On a machine with few CPUs the generator is the bound: rates and \
            latencies say more of it than of the server. Rate × latency is the number of requests under \
            way, by Little's law: with one for each connection it is the number of connections, or rate \
            and latency contradict each other.",
    columns: &[
        column("requests/s", "requests_per_s", number::si),
        column("p50 µs", "latency_p50_us", number::si),
        column("p99 µs", "latency_p99_us", number::si),
        column("p99.9 µs", "latency_p999_us", number::si),
        Column::of("rate × latency", stall::in_flight, number::si).lacking(NOT_HERE),
        column("server's CPU busy", "server_busy", number::percent),
        column("generator's CPU busy", "generator_busy", number::percent),
        column("generator's CPU µs/request", "generator_us_per_request", number::si),
        column("dead closed", "dead_closed", number::si),
    ],
};

const NOT_HERE: &str = "not part of these runs";

const fn column(heading: &'static str, name: &'static str, show: fn(f64) -> String) -> Column {
    Column::figure(heading, name, show).lacking(NOT_HERE)
}

const PERF: &str = "Task clock and CPUs utilized are medians of the timing runs; the rest is from the counting pass.";

/// Whether any run had a load generator.
pub(crate) fn has_load(record: &Record) -> bool {
    loaded(record).next().is_some()
}

fn loaded(record: &Record) -> impl Iterator<Item = Timed<'_>> {
    timed(record, |run| run.generator.is_some())
}

/// The section; empty without a load generator.
pub(crate) fn server(record: &Record, arms: &Arms<'_>) -> String {
    let mut body = String::new();
    for (experiment, runs) in by_experiment(loaded(record)) {
        let part = words::part(experiment);
        let table = LOAD.table(&runs, &points(&runs), arms).map(|table| table.html());
        let by = in_order(runs.iter().filter_map(|(_, run)| run.generator.as_deref()));
        let mut lines = stall::lines(record, experiment);
        lines.push(format!("the load was made by {}", by.join(" and ")));
        let saw = table.unwrap_or_default() + &notes(&lines);
        body += &card_of(&format!("{part}: {}", LOAD.heading), LOAD.about, &saw);
        let heading = format!("{part}: as perf stat prints it, for each request");
        body += &card_of(&heading, PERF, &perf::table(record, experiment));
    }
    if body.is_empty() { body } else { section("server", "server and load", &body) }
}
