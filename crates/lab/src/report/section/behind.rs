//! What is behind the results: counts for each event, times inside the server, and every run.
//!
//! The times are those of the server's own clock, in a pass of its own, where a job asked for them.

use pollux_report::markup::{card, card_of, escape, section};
use pollux_report::{Cell, Table, Tone};

use super::{folded, panels};
use crate::record::{CountingRun, Measurement, Record, RequestTimesRun, Run, SteadyKind, WhyRow};
use crate::report::chart::{bars, intervals, strip, times};
use crate::report::view::{Arms, grouped, in_order};
use crate::report::words::figure_of;
use crate::report::{number, words};

const HEADINGS: [&str; 9] = [
    "arm",
    "#system calls/event",
    "#events/wait",
    "#updates/event",
    "#switches/event",
    "#wakeups/event",
    "#page faults/event",
    "#CPU ns/event",
    "in words",
];

/// The section; empty when nothing was counted.
pub(crate) fn why(record: &Record, arms: &Arms<'_>) -> String {
    let experiments = record.why.iter().map(|row| row.experiment.as_str());
    let counted = record.counting.iter().map(|run| run.experiment.as_str());
    let mut body = String::new();
    for (index, experiment) in in_order(experiments.chain(counted)).into_iter().enumerate() {
        body.push_str(&counts(record, experiment));
        body.push_str(&histograms(record, experiment, arms, index));
    }
    body.push_str(&profiles(record, arms));
    if body.is_empty() { body } else { section("why", "why", &body) }
}

fn counts(record: &Record, experiment: &str) -> String {
    let rows: Vec<_> = record.why.iter().filter(|row| row.experiment == experiment).collect();
    let points = in_order(rows.iter().map(|row| row.point.as_str()));
    let tables = folded(&points, |points, _| count_table(&rows, points));
    let heading = format!("{}: counts per event", words::part(record, experiment));
    if tables.is_empty() { tables } else { card_of(&heading, "", &tables) }
}

fn count_table(rows: &[&WhyRow], points: &[&str]) -> String {
    let mut table = Table::new(HEADINGS);
    for point in points {
        table.group(point);
        for row in rows.iter().filter(|row| row.point == *point) {
            let figure = |reading| figure_of(reading, number::si);
            table.row([
                Cell::text(&row.arm),
                figure(&row.system_calls_per_event),
                figure(&row.events_per_wait),
                figure(&row.updates_per_event),
                figure(&row.switches_per_event),
                figure(&row.wakeups_per_event),
                figure(&row.page_faults_per_event),
                figure_of(&row.cpu_ns_per_event, number::nanoseconds),
                Cell::text(&row.sentence).wide().tone(Tone::Dim),
            ]);
        }
    }
    table.html()
}

fn histograms(record: &Record, experiment: &str, arms: &Arms<'_>, index: usize) -> String {
    let runs: Vec<_> = record.counting.iter().filter(|run| run.experiment == experiment).collect();
    let points = in_order(runs.iter().map(|run| run.point.as_str()));
    let body = folded(&points, |points, more| {
        let charts = points.iter().enumerate().map(|(place, point)| {
            histogram(&runs, point, arms, &format!("waits-{index}{more}-{place}"))
        });
        charts.collect()
    });
    let heading = format!("{}: share of waits by events returned", words::part(record, experiment));
    if body.is_empty() { body } else { card_of(&heading, "", &body) }
}

fn histogram(runs: &[&CountingRun], point: &str, arms: &Arms<'_>, key: &str) -> String {
    let here: Vec<_> = runs.iter().copied().filter(|run| run.point == point).collect();
    let heading = escape(point);
    bars::events_per_wait(&here, arms, key)
        .map_or_else(String::new, |chart| format!("<h4>{heading}</h4>{chart}"))
}

fn profiles(record: &Record, arms: &Arms<'_>) -> String {
    if record.profiles.is_empty() {
        return String::new();
    }
    let draw = |(index, profile)| bars::profile(profile, arms, &format!("profile-{index}"));
    let charts: String = record.profiles.iter().enumerate().map(draw).collect();
    let panels = format!("<div class=\"panels\">{charts}</div>");
    card_of("Where the time went: samples of the CPU clock", "", &panels)
}

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

/// Points with runs in two regimes that are drawn beside the first point.
const ODD_POINTS_MAX: usize = 6;

/// The section.
pub(crate) fn runs(record: &Record, arms: &Arms<'_>) -> String {
    let mut body = String::new();
    let experiments = in_order(record.runs.iter().map(|run| run.experiment.as_str()));
    for (index, experiment) in experiments.into_iter().enumerate() {
        let strip = strip::strip(record, experiment, arms, &format!("strip-{index}"));
        let heading = "every run against the median of its own arm and point";
        body += &card_of(&format!("{}: {heading}", words::part(record, experiment)), "", &strip);
        body.push_str(&inside(record, experiment, arms, index));
    }
    if body.is_empty() { body } else { section("runs", "every run", &body) }
}

/// The first point, and each point at which some run changed its regime.
fn inside(record: &Record, experiment: &str, arms: &Arms<'_>, index: usize) -> String {
    let runs: Vec<_> = record.runs.iter().filter(|run| run.experiment == experiment).collect();
    let points = in_order(runs.iter().map(|run| run.point.as_str()));
    let is_odd = |point: &str| runs.iter().any(|run| run.point == point && is_two_regime(run));
    let mut shown = String::new();
    let odd = points.iter().skip(1).filter(|point| is_odd(point)).take(ODD_POINTS_MAX);
    for (place, point) in points.iter().take(1).chain(odd).enumerate() {
        let key = format!("inside-{index}-{place}");
        let chart = intervals::intervals(record, experiment, point, arms, &key);
        if !chart.is_empty() {
            shown.push_str(&format!("<h4>{}</h4>{chart}", escape(point)));
        }
    }
    let heading = format!("{}: inside the runs", words::part(record, experiment));
    if shown.is_empty() { shown } else { card_of(&heading, "", &shown) }
}

fn is_two_regime(run: &Run) -> bool {
    let of_kind = |m: &Measurement| m.steadiness.kind == SteadyKind::TwoRegime;
    run.measured().is_some_and(of_kind)
}
