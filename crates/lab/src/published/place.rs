//! Where in a record the place of a document stands: its rows, or why there is none.
//!
//! Called for every place of a series. A place names only the axes that tell it from its
//! neighbours; every other axis has to stand at its default, or a figure of another load would be
//! put beside the document.

use super::{Document, Place, Series};
use crate::axis::{Axis, AxisKind, Value};
use crate::experiments::{self, Experiment, PROCESSES};
use crate::plan::label;
use crate::record::{LeftOut, Record, ResultRow};

/// Where the places of a document are looked for.
pub(super) struct Places<'a> {
    pub(super) document: &'a Document,
    pub(super) record: &'a Record,
}

impl Places<'_> {
    /// Whether a row is the arm of a place, there.
    pub(super) fn is_at(&self, row: &ResultRow, series: &Series, place: &Place) -> bool {
        row.arm == place.arm && self.is_at_point(row, series, place)
    }

    /// Whether a row stands at the point of a place: the same experiment, and every axis as the
    /// place or its default has it.
    pub(super) fn is_at_point(&self, row: &ResultRow, series: &Series, place: &Place) -> bool {
        let experiment = experiment(series);
        is_of(row, experiment.axes)
            && experiment.axes.iter().all(|axis| {
                let wanted = self.wanted(experiment, place, axis);
                // A switch adds arms; the others are what they are without it. Results of versions
                // that did not know an axis stand where it has its default, or where they say.
                match row.axes.get(axis.name).or_else(|| self.document.older.get(axis.name)) {
                    Some(value) => axis.kind == AxisKind::Switch || value == wanted,
                    None => !place.axes.contains_key(axis.name),
                }
            })
    }

    /// Why a place has no row: left out of the plan, or not asked for.
    pub(super) fn why_not(&self, series: &Series, place: &Place) -> String {
        let experiment = experiment(series);
        let axes = experiment.axes;
        let value = |axis: &Axis| (axis.name, Value::of(self.wanted(experiment, place, axis)));
        let label = label(experiment, &axes.iter().map(value).collect());
        let covers = |left: &&LeftOut| {
            (left.point == "*" || is_label(&left.point, &label))
                && (left.arm == "*" || left.arm == place.arm)
                && self.may_be_of(&left.experiment, axes)
        };
        let left = self.record.left_out.iter().find(covers);
        left.map_or("not part of this run".to_owned(), |left| left.reason.clone())
    }

    /// Whether no row says that a part of the job is of another experiment.
    fn may_be_of(&self, part: &str, axes: &[Axis]) -> bool {
        let mut rows = self.record.results.iter().filter(|row| row.experiment == part);
        rows.all(|row| is_of(row, axes))
    }

    /// What an axis has to be at a place. Of figures that were taken with several tools those of the lab
    /// are shown, which are at the default, or where it took no part the first.
    fn wanted<'p>(&'p self, of: &dyn Experiment, place: &'p Place, axis: &Axis) -> &'p str {
        if let Some(value) = place.axes.get(axis.name) {
            return value;
        }
        let taken = || self.record.results.iter().filter_map(|row| row.axes.get(axis.name));
        let is_own_shown = of.tool != Some(axis.name) || taken().any(|tool| tool == axis.default);
        let first = taken().next().filter(|_| !is_own_shown);
        first.map_or(axis.default, String::as_str)
    }
}

pub(super) fn experiment(series: &Series) -> &'static dyn Experiment {
    experiments::by_name(&series.experiment).expect("a test has looked every one up")
}

/// The name of a part of a job is free, so its experiment is recognised by the first axis, and by having no
/// axis that the experiment lacks.
fn is_of(row: &ResultRow, axes: &[Axis]) -> bool {
    let is_known = |name: &String| name == PROCESSES || axes.iter().any(|axis| axis.name == name);
    row.axes.contains_key(axes[0].name) && row.axes.keys().all(is_known)
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
    use crate::experiments::known;
    use crate::judge::row_for_tests;
    use crate::record::Verdict;

    /// The place of 60,000 dead connections on sys_epoll, with its series.
    fn dead() -> (&'static Document, &'static Series, Place) {
        let document =
            Document::all().iter().find(|one| one.name == "sys-epoll").expect("the page");
        let series = document.series.iter().find(|one| one.name.starts_with("server CPU over"));
        let series = series.expect("its curve");
        let place = series.places.last().expect("its end").clone();
        (document, series, Place { arm: "epoll".to_owned(), ..place })
    }

    fn row(axes: &[(&str, &str)]) -> ResultRow {
        let http = known("http").axes.iter().map(|axis| (axis.name, axis.default));
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        ResultRow {
            axes: http.chain(axes.iter().copied()).map(own).collect(),
            ..row_for_tests("epoll", Verdict::Baseline)
        }
    }

    fn found(record: &Record, row: &ResultRow) -> bool {
        let (document, series, place) = dead();
        Places { document, record }.is_at(row, series, &place)
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
    fn results_of_before_there_was_an_axis_stand_where_the_document_says() {
        let (document, record) = (&Document::all()[0], &Record::empty());
        let series = &document.series[0];
        let place = &series.places[0];
        let axes = [("transport", "pipe"), ("nfds", "2000"), ("cpus", "free")];
        let mut row = row_for_tests("epoll-et", Verdict::Baseline);
        row.axes = axes.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let places = Places { document, record };
        assert!(places.is_at(&row, series, place));
        row.axes.insert("ready".to_owned(), "free".to_owned());
        assert!(places.is_at(&row, series, place));
        row.axes.insert("ready".to_owned(), "16".to_owned());
        assert!(!places.is_at(&row, series, place));
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
        for a in experiments::ALL {
            let axes = crate::axis::Axes::defaults(a.axes).texts();
            let row = ResultRow { axes, ..row_for_tests("epoll", Verdict::Baseline) };
            let holds = |other: &&&dyn Experiment| is_of(&row, other.axes);
            assert_eq!(experiments::ALL.iter().filter(holds).count(), 1, "{a}");
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
        let (document, series, place) = dead();
        let aio = Place { arm: "aio".to_owned(), ..place.clone() };
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
        let places = Places { document, record: &record };
        assert_eq!(places.why_not(series, &aio), "too few slots");
        assert_eq!(places.why_not(series, &place), "not part of this run");
    }
}
