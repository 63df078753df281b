//! Medians over the timing runs: a group for each point, a row for each arm, a column for each figure.
//!
//! An experiment says which columns; page and CI summary have the same tables.

use pollux_report::number::NA;
use pollux_report::{Cell, Table};

use crate::experiments::Topic;
use crate::record::{Measurement, Place, Record};
use crate::report::view::{Arms, grouped, in_order};

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
