//! Where in a record the place of a document stands: its rows, or why there is none.
//!
//! Called by `seeds` for every place of a series. A place names only the axes that tell it from its
//! neighbours; every other axis has to stand at its default, or a figure of another load would be
//! put beside the document.

use super::Place;
use crate::experiment::{Axis, AxisKind, Experiment, Generator, PROCESSES};
use crate::plan::label;
use crate::record::{LeftOut, Record, ResultRow};

/// The axis that says what makes the load.
const GENERATOR: &str = "generator";

/// Whether a row is the arm of a place, there.
pub(super) fn is_at(
    record: &Record,
    row: &ResultRow,
    experiment: Experiment,
    place: &Place,
) -> bool {
    row.arm == place.arm && is_at_point(record, row, experiment, place)
}

/// Whether a row stands at the point of a place: the same experiment, and every axis as the place
/// or its default has it.
pub(super) fn is_at_point(
    record: &Record,
    row: &ResultRow,
    experiment: Experiment,
    place: &Place,
) -> bool {
    is_of(row, experiment)
        && experiment.axes().iter().all(|axis| {
            // A switch adds arms; the others are what they are without it. Results of versions that
            // did not know an axis stand where it has its default.
            let Some(value) = row.axes.get(axis.name) else { return !is_told(place, axis) };
            axis.kind == AxisKind::Switch || value == wanted(record, place, axis)
        })
}

/// Whether this row was measured with the load generator whose figures are shown: pollux's own where
/// it took part, else the first of the others.
pub(super) fn is_by_the_generator(record: &Record, row: &ResultRow) -> bool {
    row.axes.get(GENERATOR).is_none_or(|name| name == generator(record))
}

/// Why a place has no row: left out of the plan, or not asked for.
pub(super) fn why_not(experiment: Experiment, place: &Place, record: &Record) -> String {
    let value = |axis: &Axis| (axis.name.to_owned(), wanted(record, place, axis).to_owned());
    let label = label(experiment, &experiment.axes().iter().map(value).collect());
    let covers = |left: &&LeftOut| {
        (left.point == "*" || is_label(&left.point, &label))
            && (left.arm == "*" || left.arm == place.arm)
            && may_be_of(record, &left.experiment, experiment)
    };
    let left = record.left_out.iter().find(covers);
    left.map_or("not part of this run".to_owned(), |left| left.reason.clone())
}

/// The name of a part of a job is free, so its experiment is told by the first axis, which no other
/// experiment has.
fn is_of(row: &ResultRow, experiment: Experiment) -> bool {
    row.axes.contains_key(experiment.axes()[0].name)
}

/// Whether no row says that a part of the job is of another experiment.
fn may_be_of(record: &Record, part: &str, experiment: Experiment) -> bool {
    record.results.iter().filter(|row| row.experiment == part).all(|row| is_of(row, experiment))
}

fn is_told(place: &Place, axis: &Axis) -> bool {
    place.axes.iter().any(|(name, _)| *name == axis.name)
}

/// What an axis has to be at a place.
fn wanted<'a>(record: &'a Record, place: &Place, axis: &Axis) -> &'a str {
    let told = place.axes.iter().find(|(name, _)| *name == axis.name);
    match told {
        Some((_, value)) => value,
        None if axis.name == GENERATOR => generator(record),
        None => axis.default[0],
    }
}

fn generator(record: &Record) -> &str {
    let own = Generator::Pollux.name();
    let mut names = record.results.iter().filter_map(|row| row.axes.get(GENERATOR));
    let first = names.clone().next();
    if names.any(|name| name == own) { own } else { first.map_or(own, String::as_str) }
}

/// Whether a label is this one, with the number of server processes that a plan appends or without.
fn is_label(label: &str, wanted: &str) -> bool {
    label.strip_prefix(wanted).is_some_and(|rest| {
        let count = rest.strip_prefix(", ").and_then(|rest| rest.strip_suffix(PROCESSES));
        rest.is_empty() || count.is_some_and(|count| count.trim_end().parse::<u64>().is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::row_for_tests;
    use crate::record::Verdict;

    const DEAD: Place = Place {
        name: "60000",
        arm: "epoll",
        axes: &[("connections", "100"), ("dead", "60000")],
        published: None,
    };

    fn row(axes: &[(&str, &str)]) -> ResultRow {
        let http = Experiment::Http.axes().iter().map(|axis| (axis.name, axis.default[0]));
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        ResultRow {
            axes: http.chain(axes.iter().copied()).map(own).collect(),
            ..row_for_tests("epoll", Verdict::Baseline)
        }
    }

    fn found(record: &Record, row: &ResultRow) -> bool {
        is_at(record, row, Experiment::Http, &DEAD)
    }

    #[test]
    fn a_row_of_another_load_does_not_stand_beside_the_document() {
        let empty = Record::empty();
        let here = [("connections", "100"), ("dead", "60000")];
        assert!(found(&empty, &row(&here)));
        let with = |more: (&str, &str)| row(&[here.as_slice(), &[more]].concat());
        assert!(found(&empty, &with((PROCESSES, "4"))), "as this machine has to run it");
        for other in [("reply", "split"), ("pipeline", "16"), ("reply_bytes", "4096")] {
            assert!(!found(&empty, &with(other)), "{other:?}");
        }
        let mut older = row(&here);
        older.axes.remove("reply");
        assert!(found(&empty, &older), "an axis that came later");
        older.axes.remove("dead");
        assert!(!found(&empty, &older), "an axis that the place tells");
    }

    #[test]
    fn of_several_load_generators_one_stands_beside_the_document() {
        let here = [("connections", "100"), ("dead", "60000")];
        let by = |name| row(&[here.as_slice(), &[("generator", name)]].concat());
        let mut record = Record::empty();
        record.results = vec![by("ab"), by("pollux")];
        assert!(!found(&record, &record.results[0]) && found(&record, &record.results[1]));
        record.results = vec![by("ab")];
        assert!(found(&record, &record.results[0]), "it was asked for, and is the only one");
    }

    #[test]
    fn a_row_of_another_experiment_has_no_place() {
        let mut pipes = row_for_tests("epoll", Verdict::Baseline);
        pipes.axes = [("pipes".to_owned(), "1000".to_owned())].into();
        assert!(!found(&Record::empty(), &pipes));
        for a in Experiment::ALL {
            let holds =
                |other: &Experiment| other.axes().iter().any(|x| x.name == a.axes()[0].name);
            assert_eq!(Experiment::ALL.iter().filter(|other| holds(other)).count(), 1, "{a}");
        }
    }

    #[test]
    fn the_reason_of_a_gap_is_found_when_the_server_took_several_processes() {
        let mut record = Record::empty();
        let left = |experiment: &str, point: &str, arm: &str, reason: &str| LeftOut {
            experiment: experiment.into(),
            point: point.into(),
            arm: arm.into(),
            reason: reason.into(),
        };
        let aio = Place { arm: "aio", ..DEAD };
        record.results.push(ResultRow {
            axes: [("pipes".to_owned(), "10".to_owned())].into(),
            ..row_for_tests("epoll", Verdict::Baseline)
        });
        let part_of_pipes = record.results[0].experiment.clone();
        record.left_out = vec![
            left(&part_of_pipes, "*", "aio", "of the pipes"),
            left("dead", "100 connections, 60000 dead, 4 processes", "nginx", "of nginx"),
            left("dead", "100 connections, 60000 dead, no keepalive", "aio", "of another point"),
            left("dead", "100 connections, 60000 dead, 4 processes", "aio", "too few slots"),
        ];
        assert_eq!(why_not(Experiment::Http, &aio, &record), "too few slots");
        assert_eq!(why_not(Experiment::Http, &DEAD, &record), "not part of this run");
    }
}
