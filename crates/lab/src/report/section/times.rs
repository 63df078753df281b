//! How long requests took inside the server: its own clock, in a pass of its own.
//!
//! Shown where a job asked for it; the plot that the comparison of 2020 has of its `do_request`.

use pollux_report::Table;
use pollux_report::markup::{card, section};

use super::{folded, panels};
use crate::record::{Record, RequestTimesRun};
use crate::report::chart::times;
use crate::report::view::{Arms, grouped, in_order};

/// How the times were taken.
const ABOUT: &str = "From a request's head that is in memory to its answer handed over, without the system \
                     calls that bring the one and take the other. By the server's own clock in runs of their \
                     own, as reading it costs something; a time is known to a fifth.";

/// Whether anything was timed.
pub(crate) fn has_times(record: &Record) -> bool {
    timed(record).next().is_some()
}

fn timed(record: &Record) -> impl Iterator<Item = &RequestTimesRun> {
    record.request_times.iter().filter(|run| run.times.requests > 0)
}

/// The section; empty where nothing was timed.
pub(crate) fn times(record: &Record, arms: &Arms<'_>) -> String {
    if !has_times(record) {
        return String::new();
    }
    let mut body = format!("<p class=\"dim\">{ABOUT}</p>");
    let experiments = grouped(timed(record).map(|run| (run.experiment.as_str(), run)));
    for (index, (_, runs)) in experiments.into_iter().enumerate() {
        let points = in_order(runs.iter().map(|run| run.point.as_str()));
        body += &folded(&points, |points, more| {
            panels(points, |place, point| {
                let here: Vec<_> = runs.iter().copied().filter(|run| run.point == point).collect();
                times::times(&here, arms, &format!("times-{index}{more}-{place}"))
            })
        });
    }
    section("times", "inside the server: the time of a request", &card(&body))
}

/// The same as a heading, how it is to be read, and a table; none where nothing was timed.
pub(crate) fn summary(record: &Record) -> Option<(&'static str, &'static str, Table)> {
    let place = |run: &RequestTimesRun| format!("{}, {}", run.experiment, run.point);
    let places = grouped(timed(record).map(|run| (place(run), run)));
    let mut table = times::quantiles(&[]);
    for (place, runs) in &places {
        table.group(place);
        times::add(&mut table, runs);
    }
    (!table.is_empty()).then_some(("Inside the server: the time of a request", ABOUT, table))
}
