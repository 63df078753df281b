//! Why: counts per event behind each arm, how full the waits were, where the samples fell.

use pollux_report::markup::{card_of, escape, section};
use pollux_report::{Cell, Table, Tone};

use super::folded;
use crate::record::{CountingRun, Record, WhyRow};
use crate::report::chart::bars;
use crate::report::number;
use crate::report::view::{Arms, in_order};
use crate::report::words::{self, figure_of};

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
