//! Whether our figure is the server's at all: a rate that the load generator could not raise says
//! nothing of the server.
//!
//! Called by `published` for each judged series. On few CPUs a generator is busy all the time while the
//! server waits; then all mechanisms show its rate, and a flat curve is the generator's.

use super::place::{Places, experiment};
use super::{Figure, Series};
use crate::experiments::OfGenerator;
use crate::record::{Measurement, Record, ResultRow};
use crate::stats::agree::{Agreement, Judgement, Trend};

/// A generator that is busy for so much of the time can't follow the server's best moments.
const BUSY_SHARE_MAX: f64 = 0.95;

/// The judgement, or why there is none: at half of the runs or more the generator was the bound.
pub(super) fn by_the_generator(
    series: &Series,
    places: &Places<'_>,
    judgement: Judgement,
) -> Judgement {
    let Some(generator) = experiment(series).of_generator else { return judgement };
    let is_rate = matches!(&series.figure, Figure::OfRuns(name) if name == generator.rate);
    let is_open = judgement.agreement == Agreement::Unknown;
    if !is_rate || is_open {
        return judgement;
    }
    let bound: Vec<bool> = series
        .places
        .iter()
        .map(|place| {
            let mut rows = places.record.results.iter();
            let row = rows.find(|row| places.is_at(row, series, place));
            row.is_some_and(|row| is_bound_at(places.record, row, generator))
        })
        .collect();
    // The true rate is not below the one that is seen: a rise up to such a place is a rise.
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

fn is_bound_at(record: &Record, row: &ResultRow, generator: &OfGenerator) -> bool {
    let runs = record.measured_at(row.place());
    let bound: Vec<bool> = runs.map(|run| is_bound(run, generator)).collect();
    !bound.is_empty() && bound.iter().filter(|is_bound| **is_bound).count() * 2 >= bound.len()
}

fn is_bound(run: &Measurement, generator: &OfGenerator) -> bool {
    let busy = run.figures.get(generator.busy);
    run.findings.contains_key(generator.bound) || busy.is_some_and(|share| *share >= BUSY_SHARE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::row_for_tests;
    use crate::published::beside;
    use crate::record::{Outcome, Run, Verdict};

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
                outcome: Outcome::Measured(serde_json::from_value(measured).expect("a run")),
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
}
