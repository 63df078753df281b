//! Reports: what a reader sees of a run, each a pure function of the [`Record`].
//!
//! `pollux lab run` and `pollux lab report` call the three functions here. Nothing in this folder
//! measures, judges, reads a file or asks the host for anything: the same record gives the same
//! bytes on every machine, so a report can be made again from `result.json` alone.
//!
//! - [`html`]: one file for a browser, without network, complete without JavaScript;
//! - [`table`]: the summary for a terminal;
//! - [`markdown`]: the summary for the page of a CI step.
//!
//! Labels, reasons and commands of a record are foreign text: each form escapes them in its way.
//!
//! All three read the record regrouped the way it is shown: comparisons, their points, their curves, arm colours.
//! That only sorts and groups; it never computes a figure, so nothing can be shown that the record does not hold.

use pollux_report::chart::{Line, Marker, Marks, Vertex};
use pollux_report::markup::escape;
use pollux_report::number;

use crate::experiments::PROCESSES;
use crate::record::{LeftOut, Record, ResultRow, Run, Verdict};
use section::behind;

pub use terminal::{markdown, table};

mod advice;
mod chart;
mod glossary;
mod section;
mod terminal;
mod words;

/// Name of the second copy of the baseline.
pub(super) const NOISE_ARM: &str = "A/A";
/// Colours in the style sheet; further arms use them again with another marker.
const COLOURS: usize = 8;
/// An axis with fewer values than this is a list, not a curve.
const CURVE_VALUES_MIN: usize = 3;

/// The record as one HTML file, in UTF-8.
///
/// The same record gives the same bytes. All text of the record is escaped, the record itself is
/// embedded as JSON in the script element with the id `record`.
#[must_use]
pub fn html(record: &Record) -> String {
    let arms = Arms::of(record);
    let comparisons = Comparison::all(record);
    let sections = [
        section::title(record, &comparisons),
        section::answers(record),
        section::trust(record),
        contents(record, &comparisons),
        section::results(record, &comparisons, &arms),
        behind::published(record),
        section::html(record, &arms),
        behind::times(record, &arms),
        behind::why(record, &arms),
        behind::runs(record, &arms),
        behind::sources(record),
        behind::looks(record),
        behind::left_out(record),
        behind::environment(record),
        behind::job(record),
        glossary::html(record),
    ];
    let data = behind::embedded(record);
    pollux_report::page_with_script(&record.job.question, &sections.concat(), &data)
}

/// The badge in words.
pub(crate) fn badge(record: &Record) -> String {
    words::badge_of_all(record, &Comparison::all(record)).0
}

/// Links to the sections.
fn contents(record: &Record, comparisons: &[Comparison<'_>]) -> String {
    let link = |(id, name): (String, String)| format!("<a href=\"#{id}\">{}</a>", escape(&name));
    let results = comparisons.iter().enumerate().map(|(index, comparison)| {
        let is_one_of_several = comparisons.iter().any(|other| {
            other.experiment == comparison.experiment && other.unit() != comparison.unit()
        });
        let name = if is_one_of_several {
            format!("{}, {}", comparison.title, comparison.unit())
        } else {
            comparison.title.clone()
        };
        (format!("result-{index}"), name)
    });
    let mut fixed = vec![("published", "beside the published result", behind::is_there(record))];
    fixed.extend(
        section::there(record).into_iter().map(|section| (section.id, section.title, true)),
    );
    fixed.push(("times", "inside the server", behind::has_times(record)));
    fixed.push(("why", "why", !record.why.is_empty() || !record.counting.is_empty()));
    fixed.push(("runs", "every run", !record.runs.is_empty()));
    fixed.push(("unread", "could not be read", true));
    fixed.push(("looks", "a look before the plan", !record.looks.is_empty()));
    fixed.push(("left-out", "left out", !record.left_out.is_empty() || !record.cuts.is_empty()));
    fixed.push(("environment", "environment", true));
    fixed.push(("job", "repeat it", true));
    fixed.push(("words", "words", true));
    let there = fixed.into_iter().filter(|(.., is_there)| *is_there);
    let links: Vec<_> = results
        .chain(there.map(|(id, name, _)| (id.to_owned(), name.to_owned())))
        .map(link)
        .collect();
    format!("<nav>{}</nav>\n", links.join(" "))
}

/// Everything of one experiment that is measured in one unit.
pub(super) struct Comparison<'a> {
    /// What its headings begin with.
    pub(super) title: String,
    pub(super) experiment: &'a str,
    /// What is compared.
    pub(super) metric: &'a str,
    /// The rows in the order of the record.
    pub(super) rows: Vec<&'a ResultRow>,
    /// The axes that differ between points of the experiment, also those in another unit.
    varying: Vec<&'a str>,
}

/// Rows over one numeric axis, all other axes held still.
pub(super) struct Panel<'a> {
    pub(super) axis: &'a str,
    /// The other axes that differ between panels.
    pub(super) held: Vec<(&'a str, &'a str)>,
    /// Values of the axis, as written and as numbers, ascending.
    pub(super) values: Vec<(&'a str, f64)>,
    pub(super) rows: Vec<&'a ResultRow>,
}

/// The arms of a record in the order in which they are first named.
pub(super) struct Arms<'a>(Vec<&'a str>);

impl<'a> Arms<'a> {
    /// The arms of all results and runs.
    pub(super) fn of(record: &'a Record) -> Self {
        let results = record.results.iter().map(|row| row.arm.as_str());
        let runs = record.runs.iter().map(|run| run.arm.as_str());
        Self(in_order(results.chain(runs).filter(|arm| *arm != NOISE_ARM)))
    }

    /// Position of the arm; the A/A arm stands after all others.
    pub(super) fn index(&self, arm: &str) -> usize {
        self.0.iter().position(|known| *known == arm).unwrap_or(self.0.len())
    }

    /// The class that gives the arm its colour.
    pub(super) fn class(&self, arm: &str) -> String {
        match self.index(arm) {
            at if at < self.0.len() => format!("s{}", at % COLOURS),
            _ => "aa".to_owned(),
        }
    }

    /// Each of these once, in the order of the record.
    pub(super) fn sorted<'b>(&self, names: impl Iterator<Item = &'b str>) -> Vec<&'b str> {
        let mut names = in_order(names);
        names.sort_by_key(|name| self.index(name));
        names
    }

    /// The line of an arm in a chart.
    pub(super) fn line(&self, arm: &str, pieces: Vec<Vec<Vertex>>) -> Line {
        let at = self.index(arm);
        let class = self.class(arm);
        let marks = Marks::Each(Marker::of(at));
        Line { name: arm.to_owned(), class, series: Some(at), marks, pieces }
    }
}

impl<'a> Comparison<'a> {
    /// The comparisons of a record in its order.
    pub(super) fn all(record: &'a Record) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for row in &record.results {
            let same = |c: &&mut Self| c.experiment == row.experiment && c.metric == row.metric;
            match all.iter_mut().find(same) {
                Some(found) => found.rows.push(row),
                None => all.push(Self {
                    title: words::part(record, &row.experiment),
                    experiment: &row.experiment,
                    metric: &row.metric,
                    rows: vec![row],
                    varying: varying(record, &row.experiment),
                }),
            }
        }
        all
    }

    /// The arm that the others are compared with.
    pub(super) fn baseline(&self) -> &'a str {
        self.rows.first().map_or("", |row| row.baseline.as_str())
    }

    /// Whether more is better.
    pub(super) fn more_is_better(&self) -> bool {
        self.rows.first().is_none_or(|row| row.more_is_better)
    }

    /// Unit of the values.
    pub(super) fn unit(&self) -> &'a str {
        self.rows.first().map_or("", |row| row.unit.as_str())
    }

    /// The unit as the head of a column; of whole runs the values have an interval of their own.
    pub(super) fn value_heading(&self, interval: &str) -> String {
        let has_interval =
            |row: &&ResultRow| row.verdict != Verdict::Baseline && row.value_half_width.is_some();
        if self.rows.iter().any(has_interval) {
            format!("{} ({interval})", self.unit())
        } else {
            self.unit().to_owned()
        }
    }

    /// Labels of the points in order.
    pub(super) fn points(&self) -> Vec<&'a str> {
        in_order(self.rows.iter().map(|row| row.point.as_str()))
    }

    /// The rows of one point.
    pub(super) fn at(&self, point: &str) -> impl Iterator<Item = &'a ResultRow> {
        self.rows.iter().copied().filter(move |row| row.point == point)
    }

    /// What is shown over it.
    pub(super) fn heading(&self) -> String {
        format!("{}: {} against {}", self.title, self.metric, self.baseline())
    }

    /// A panel for each curve chart; none when no axis is numeric and long enough.
    pub(super) fn panels(&self) -> Vec<Panel<'a>> {
        let Some(axis) = self.curve_axis() else { return Vec::new() };
        let mut panels: Vec<Panel<'a>> = Vec::new();
        for row in &self.rows {
            let Some((value, number)) = axis_number(row, axis) else { continue };
            let held: Vec<_> =
                other_axes(row, axis).filter(|(name, _)| self.varying.contains(name)).collect();
            let at = panels.iter().position(|panel| panel.held == held).unwrap_or_else(|| {
                panels.push(Panel { axis, held, values: Vec::new(), rows: Vec::new() });
                panels.len() - 1
            });
            let panel = &mut panels[at];
            if !panel.values.iter().any(|(known, _)| *known == value) {
                panel.values.push((value, number));
            }
            panel.rows.push(row);
        }
        for panel in &mut panels {
            panel.values.sort_by(|a, b| a.1.total_cmp(&b.1));
        }
        panels
    }

    /// The numeric axis with the most values.
    fn curve_axis(&self) -> Option<&'a str> {
        let names = in_order(self.rows.iter().flat_map(|row| row.axes.keys().map(String::as_str)));
        let mut best: Option<(usize, &str)> = None;
        for name in names.into_iter().filter(|name| *name != PROCESSES) {
            let values = self.values_of(name);
            let is_numeric =
                values.iter().all(|value| value.parse::<f64>().is_ok_and(f64::is_finite));
            let is_longer = best.is_none_or(|(length, _)| values.len() > length);
            if is_numeric && values.len() >= CURVE_VALUES_MIN && is_longer {
                best = Some((values.len(), name));
            }
        }
        best.map(|(_, name)| name)
    }

    fn values_of(&self, axis: &str) -> Vec<&'a str> {
        in_order(self.rows.iter().filter_map(|row| row.axes.get(axis).map(String::as_str)))
    }
}

impl<'a> Panel<'a> {
    /// The arms in order.
    pub(super) fn arms(&self) -> Vec<&'a str> {
        in_order(self.rows.iter().map(|row| row.arm.as_str()))
    }

    /// The row of one arm at one value of the axis.
    pub(super) fn row(&self, arm: &str, value: &str) -> Option<&'a ResultRow> {
        let is_it = |row: &&&ResultRow| {
            row.arm == arm && row.axes.get(self.axis).is_some_and(|known| known == value)
        };
        self.rows.iter().find(is_it).copied()
    }

    /// The label of the point at one value of the axis.
    pub(super) fn point(&self, value: &str) -> Option<&'a str> {
        let is_it = |row: &&&ResultRow| row.axes.get(self.axis).is_some_and(|known| known == value);
        self.rows.iter().find(is_it).map(|row| row.point.as_str())
    }
}

/// Why there is no figure for one arm at one point, where the record says so.
pub(super) fn gap_reason<'a>(
    record: &'a Record,
    experiment: &str,
    point: &str,
    arm: &str,
) -> Option<&'a str> {
    let covers = |left: &&LeftOut| {
        left.experiment == experiment
            && (left.point == point || left.point == "*")
            && (left.arm == arm || left.arm == "*")
    };
    let left_out = record.left_out.iter().find(covers).map(|left| left.reason.as_str());
    left_out.or_else(|| failure_reason(record, experiment, point, arm))
}

/// The same for one arm at a value of a panel's axis.
pub(super) fn panel_gap<'a>(
    record: &'a Record,
    comparison: &Comparison<'_>,
    panel: &Panel<'_>,
    arm: &str,
    value: &str,
) -> Option<&'a str> {
    let point = panel.point(value).unwrap_or_default();
    gap_reason(record, comparison.experiment, point, arm)
}

/// Why the first failed run of one arm at one point failed.
pub(super) fn failure_reason<'a>(
    record: &'a Record,
    experiment: &str,
    point: &str,
    arm: &str,
) -> Option<&'a str> {
    record.runs.iter().filter(|run| run.key() == [experiment, point, arm]).find_map(Run::failure)
}

/// Whether the row has a ratio to be drawn.
pub(super) fn is_drawn(row: &ResultRow) -> bool {
    let bounds = [row.ratio, row.ci_low, row.ci_high];
    row.verdict != Verdict::Baseline
        && bounds.iter().all(|b| b.is_some_and(|b| b.is_finite() && b > 0.0))
}

/// Each text once, in the order of its first appearance.
pub(super) fn in_order<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen
}

/// What belongs to the same thing together, in the order in which the things are first named.
pub(super) fn grouped<K: PartialEq, V>(
    pairs: impl IntoIterator<Item = (K, V)>,
) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// The axes of an experiment that have more than one value in a record.
fn varying<'a>(record: &'a Record, experiment: &str) -> Vec<&'a str> {
    let rows = || record.results.iter().filter(|row| row.experiment == experiment);
    let names = in_order(rows().flat_map(|row| row.axes.keys().map(String::as_str)));
    let varies = |name: &&str| {
        let values = rows().filter_map(|row| row.axes.get(*name).map(String::as_str));
        in_order(values).len() > 1
    };
    names.into_iter().filter(varies).collect()
}

fn axis_number<'a>(row: &'a ResultRow, axis: &str) -> Option<(&'a str, f64)> {
    let value = row.axes.get(axis)?;
    value.parse().ok().map(|number| (value.as_str(), number))
}

/// Not the number of processes, which follows from the axis and the limits of the machine.
fn other_axes<'a>(row: &'a ResultRow, axis: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let axes = row.axes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    axes.filter(move |(name, _)| *name != axis && *name != PROCESSES)
}
