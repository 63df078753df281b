//! What a document's subject must do, row by row: bounds on figures of a record, or where it is held;
//! and whether a figure of ours is the server's at all.
//!
//! On few CPUs a generator is busy all the time while the server waits; then all mechanisms show its
//! rate, and a flat curve is the generator's.

use std::collections::BTreeMap;

use pollux_stats::agree::{Agreement, Judgement, Trend};
use serde::Deserialize;

use super::{Document, Figure, Matches, Series, experiment};
use crate::experiments::GeneratorDescription;
use crate::record::{Measurement, Record, ResultRow};

/// A generator that is busy for so much of the time can't follow the server's best moments.
const BUSY_SHARE_MAX: f64 = 0.95;

/// A row of what must hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check {
    /// Names of the rows in the list of behaviours.
    pub(crate) row: String,
    /// What is to be seen, with its unit.
    pub(crate) behaviour: String,
    /// The value of the experiment's first axis.
    at: Option<String>,
    /// The arm; the usual one is `epoll`.
    arm: Option<String>,
    /// A figure of the runs instead of the value.
    figure: Option<String>,
    /// A figure that it is divided by.
    per: Option<String>,
    /// An arm by whose same figure it is divided.
    than: Option<String>,
    at_most: Option<f64>,
    at_least: Option<f64>,
    /// Where it is held, when no run shows it.
    held_by: Option<String>,
}

/// What became of a check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The figure is within its bound.
    Met(f64),
    /// It is not.
    Missed(f64),
    /// There is no figure, and why.
    Unknown(String),
    /// Nothing measures it; what holds it.
    Held(String),
}

impl Check {
    /// The bound in words; empty where nothing is measured.
    pub(crate) fn bound(&self) -> String {
        let words = |word: &str, bound: Option<f64>| bound.map(|bound| format!("{word} {bound}"));
        let bound = words("at most", self.at_most).or_else(|| words("at least", self.at_least));
        bound.unwrap_or_default()
    }

    /// What a record says of it.
    pub(crate) fn outcome(&self, document: &Document, record: &Record) -> Outcome {
        if let Some(held_by) = &self.held_by {
            return Outcome::Held(held_by.clone());
        }
        let figure = || {
            let arm = self.arm.as_deref().unwrap_or("epoll");
            let figure = self.figure_of(arm, document, record)?;
            match &self.than {
                Some(than) => Ok(figure / self.figure_of(than, document, record)?),
                None => Ok(figure),
            }
        };
        match figure() {
            Err(reason) => Outcome::Unknown(reason),
            Ok(figure) if self.holds(figure) => Outcome::Met(figure),
            Ok(figure) => Outcome::Missed(figure),
        }
    }

    fn holds(&self, figure: f64) -> bool {
        self.at_most.is_none_or(|most| figure <= most)
            && self.at_least.is_none_or(|least| figure >= least)
    }

    fn figure_of(&self, arm: &str, document: &Document, record: &Record) -> Result<f64, String> {
        let axis = document.first_axis();
        let at = self.at.as_deref().unwrap_or_default();
        let is_it =
            |row: &&ResultRow| row.arm == arm && row.axes.get(axis).is_some_and(|is| is == at);
        let row = record.results.iter().find(is_it);
        let row = row.ok_or_else(|| format!("{arm} at {at} is not part of this run"))?;
        let figure = |name: &str, figures: &BTreeMap<String, f64>| figures.get(name).copied();
        let read = |run: &Measurement| {
            let value = match &self.figure {
                Some(name) => figure(name, &run.figures)?,
                None => run.value,
            };
            match &self.per {
                Some(per) => Some(value / figure(per, &run.figures)?),
                None => Some(value),
            }
        };
        let why =
            || row.notes.first().cloned().unwrap_or_else(|| "no run has the figure".to_owned());
        record.median_at(row.key(), read).ok_or_else(|| format!("{arm}: {}", why()))
    }
}

/// The judgement, or why there is none: at half of the runs or more the generator was the bound.
pub(super) fn by_the_generator(
    series: &Series,
    matches: &Matches<'_>,
    judgement: Judgement,
) -> Judgement {
    let Some(generator) = experiment(series).of_generator else { return judgement };
    let is_rate = matches!(&series.figure, Figure::OfRuns(name) if name == generator.rate);
    let is_open = judgement.agreement == Agreement::Unknown;
    if !is_rate || is_open {
        return judgement;
    }
    let bound: Vec<bool> = series
        .points
        .iter()
        .map(|place| {
            let mut rows = matches.record.results.iter();
            let row = rows.find(|row| matches.is_at(row, series, place));
            row.is_some_and(|row| is_bound_at(matches.record, row, generator))
        })
        .collect();
    // The true rate is not below the one that is seen: a rise up to such a point is a rise.
    let rises_to_it =
        series.claim == Some(Trend::Rises) && judgement.agreement == Agreement::Agrees && !bound[0];
    let count = bound.iter().filter(|is_bound| **is_bound).count();
    if count == 0 || rises_to_it {
        return judgement;
    }
    let words = format!(
        "{}; but at {count} of {} places the load generator was the bound, so the rate is not the \
         server's",
        judgement.words,
        bound.len()
    );
    Judgement { agreement: Agreement::Unknown, words }
}

fn is_bound_at(record: &Record, row: &ResultRow, generator: &GeneratorDescription) -> bool {
    let runs = record.measured_at(row.key());
    let bound: Vec<bool> = runs.map(|run| is_bound(run, generator)).collect();
    !bound.is_empty() && bound.iter().filter(|is_bound| **is_bound).count() * 2 >= bound.len()
}

fn is_bound(run: &Measurement, generator: &GeneratorDescription) -> bool {
    let busy = run.figures.get(generator.busy);
    run.findings.contains_key(generator.bound) || busy.is_some_and(|share| *share >= BUSY_SHARE_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::SeriesPoint;
    use super::super::is_of;
    use super::*;
    use crate::experiments::{self, Experiment, PROCESSES, known};
    use crate::judge::row_for_tests;
    use crate::published::beside;
    use crate::record::{LeftOut, Outcome as RunOutcome, Run, Verdict};

    #[test]
    fn a_bound_is_met_up_to_itself_and_a_check_has_a_bound_or_what_holds_it() {
        for document in Document::all() {
            for check in &document.checks {
                let is_held = check.held_by.is_some();
                assert_ne!(is_held, check.at.is_some(), "{}", check.row);
                assert_ne!(is_held, check.at_most.is_some() || check.at_least.is_some());
                assert!(matches!(
                    (check.outcome(document, &Record::empty()), is_held),
                    (Outcome::Unknown(_), false) | (Outcome::Held(_), true)
                ));
                if let Some(most) = check.at_most {
                    assert!(check.holds(most) && !check.holds(most * 1.01), "{}", check.row);
                }
                if let Some(least) = check.at_least {
                    assert!(check.holds(least) && !check.holds(least * 0.99), "{}", check.row);
                }
            }
        }
    }

    /// The dead connections of the page, with a rate and a share of time that the generator worked
    /// for each arm and number.
    fn record(rates: &[(&str, &str, f64, f64)]) -> Record {
        let mut record = Record::empty();
        record.job.name = "published-sys-epoll".into();
        for (arm, dead, rate, busy) in rates {
            let row = ResultRow {
                experiment: "dead".into(),
                point: format!("100 connections, {dead} dead"),
                axes: [("connections", "100"), ("dead", *dead)]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
                ..row_for_tests(arm, Verdict::Baseline)
            };
            let measured = serde_json::json!({
                "value": 1.0, "window_s": 1.0, "intervals": [], "events": 1000,
                "steadiness": { "kind": "steady", "detail": "" },
                "figures": { "requests_per_s": rate, "generator_busy": busy },
                "cpu_ns": { "value": (1e9 / rate * 1000.0) as u64 },
                "process_cpu_ns": { "value": 1 },
            });
            record.runs.push(Run {
                block: 0,
                position: 0,
                experiment: row.experiment.clone(),
                point: row.point.clone(),
                arm: row.arm.clone(),
                outcome: RunOutcome::Measured(serde_json::from_value(measured).expect("a run")),
            });
            record.results.push(row);
        }
        record
    }

    fn agreement(record: &Record, name: &str) -> (Agreement, String) {
        let beside = beside(record).expect("a document");
        let found = beside.series.into_iter().find(|one| one.series.name == name);
        let found = found.unwrap_or_else(|| panic!("{name} is not beside"));
        (found.judgement.agreement, found.judgement.words)
    }

    #[test]
    fn a_level_rate_that_is_the_generators_is_not_the_servers() {
        let name = "replies/s over dead connections, sys_epoll";
        let bound = [("epoll-et", "0", 1e5, 0.99), ("epoll-et", "18000", 1e5, 0.96)];
        let (judged, words) = agreement(&record(&bound), name);
        assert_eq!(judged, Agreement::Unknown);
        assert!(words.contains("at 2 of 5 places the load generator was the bound"), "{words}");
        let free = [("epoll-et", "0", 1e5, 0.6), ("epoll-et", "18000", 1e5, 0.6)];
        assert_eq!(agreement(&record(&free), name).0, Agreement::Agrees);
        // What the server used is judged either way.
        let cost = "server CPU over dead connections, sys_epoll";
        assert_eq!(agreement(&record(&bound), cost).0, Agreement::Agrees);
    }

    #[test]
    fn a_rate_that_rises_to_where_the_generator_is_the_bound_has_risen() {
        let name = "replies/s beside 18,000 dead connections";
        let won = [("poll", "18000", 1e3, 0.1), ("epoll-et", "18000", 1e5, 0.99)];
        assert_eq!(agreement(&record(&won), name).0, Agreement::Agrees);
        let both = [("poll", "18000", 8e4, 0.97), ("epoll-et", "18000", 1e5, 0.99)];
        assert_eq!(agreement(&record(&both), name).0, Agreement::Unknown);
        let cost = "server CPU beside 18,000 dead connections";
        assert_eq!(agreement(&record(&won), cost).0, Agreement::Agrees);
    }

    /// The point of 60,000 dead connections on sys_epoll, with its series.
    fn dead() -> (&'static Document, &'static Series, SeriesPoint) {
        let document =
            Document::all().iter().find(|one| one.name == "sys-epoll").expect("the page");
        let series = document.series.iter().find(|one| one.name.starts_with("server CPU over"));
        let series = series.expect("its curve");
        let place = series.points.last().expect("its end").clone();
        (document, series, SeriesPoint { arm: "epoll".to_owned(), ..place })
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
        Matches { document, record }.is_at(row, series, &place)
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
        let document = &Document::all()[0];
        let record = &Record::empty();
        let series = &document.series[0];
        let place = &series.points[0];
        let axes = [("transport", "pipe"), ("nfds", "2000"), ("cpus", "free")];
        let mut row = row_for_tests("epoll-et", Verdict::Baseline);
        row.axes = axes.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let matches = Matches { document, record };
        assert!(matches.is_at(&row, series, place));
        row.axes.insert("ready".to_owned(), "free".to_owned());
        assert!(matches.is_at(&row, series, place));
        row.axes.insert("ready".to_owned(), "16".to_owned());
        assert!(!matches.is_at(&row, series, place));
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
        let aio = SeriesPoint { arm: "aio".to_owned(), ..place.clone() };
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
        let matches = Matches { document, record: &record };
        assert_eq!(matches.why_not(series, &aio), "too few slots");
        assert_eq!(matches.why_not(series, &place), "not part of this run");
    }
}
