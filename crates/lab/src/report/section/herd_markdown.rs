//! Workers and calls for the page of a CI step: the tables of `herd` without their charts.
//!
//! `report::markdown` calls it. Figures, words and their order are those of the page.

use std::fmt::Write as _;

use super::herd::{COSTS, Herd, SHARES, TIMES, Topic, arms_at, herds, with_a_figure};
use crate::record::Record;
use crate::report::view::{Arms, in_order};
use crate::report::words;

/// The tables; nothing without workers. `escape` makes text safe within a table.
pub(crate) fn herd(out: &mut String, record: &Record, escape: fn(&str) -> String) {
    let arms = Arms::of(record);
    for experiment in in_order(herds(record).map(|run| run.experiment)) {
        let runs: Vec<Herd<'_>> =
            herds(record).filter(|run| run.experiment == experiment).collect();
        for topic in [&TIMES, &COSTS, &SHARES] {
            let runs = with_a_figure(&runs, topic);
            if !runs.is_empty() {
                let heading = escape(&format!("{}: {}", words::part(experiment), topic.heading));
                let _ = writeln!(out, "### {heading}\n\n{}\n", escape(topic.about));
                table(out, topic, &runs, &arms, escape);
            }
        }
    }
}

fn table(
    out: &mut String,
    topic: &Topic,
    runs: &[Herd<'_>],
    arms: &Arms<'_>,
    escape: fn(&str) -> String,
) {
    let headings: Vec<&str> = topic.columns.iter().map(|column| column.heading).collect();
    let mut lacking = Vec::new();
    let rules = "--:|".repeat(headings.len());
    let _ = writeln!(out, "| point | arm | {} |\n|:--|:--|{rules}", headings.join(" | "));
    for point in in_order(runs.iter().map(|run| run.point)) {
        for (arm, runs) in arms_at(runs, point, arms) {
            let cells: Vec<String> =
                topic.columns.iter().map(|column| column.text(&runs)).collect();
            lacking.extend(topic.columns.iter().filter_map(|column| column.reason(&runs)));
            let (point, arm) = (escape(point), escape(arm));
            let _ = writeln!(out, "| {point} | {arm} | {} |", cells.join(" | "));
        }
    }
    out.push('\n');
    for reason in in_order(lacking.into_iter()) {
        let _ = writeln!(out, "n/a: {}\n", escape(reason));
    }
}
