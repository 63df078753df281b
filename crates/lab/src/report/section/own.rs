//! The sections that experiments bring, each with the runs that have something of it.
//!
//! All figures are medians over the timing runs. Under the tables stand the counts of the kernel as
//! `perf stat` prints them, where the section asks for them; what could not be counted says why.

use pollux_report::Table;
use pollux_report::markup::{card_of, notes, section};

use super::columns::{Timed, by_experiment, points, table, timed};
use super::{folded, panels, perf};
use crate::experiments::{self, Section, Topic};
use crate::record::Record;
use crate::report::chart::lorenz::{self, Shared};
use crate::report::view::{Arms, NOISE_ARM};
use crate::report::words;
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
            body += &card_of(&heading, PERF, &perf::table(record, part));
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
