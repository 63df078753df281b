//! The documents that pollux grew from: what they published, and what a record has at the same
//! places.
//!
//! Each has a file with its figures, which are facts about a machine of its time; `agree` says
//! whether direction and shape come back. The report shows it for the jobs that repeat a document.
//! Nothing here measures, and no figure here decides a verdict of the lab.

use crate::experiment::Experiment;
use crate::host::Reading;
use crate::record::{CountingRun, Measurement, Outcome, Record, ResultRow, Verdict};
use crate::stats::median;

pub mod agree;
mod bound;
mod four;
mod one;
mod place;
#[cfg(test)]
mod published;
mod two;
mod zero;

use agree::{Agreement, Judgement, Trend};
use place::{is_at, is_at_point, is_by_the_generator, why_not};

/// Every document.
const SEEDS: [&Seed; 4] = [&zero::SEED, &one::SEED, &two::SEED, &four::SEED];

/// A document that published figures.
#[derive(Debug)]
pub struct Seed {
    /// Its number, as in `pollux lab seed 2`.
    pub number: u8,
    /// What it is, and from when.
    pub title: &'static str,
    /// Jobs that repeat it, by name.
    pub jobs: &'static [&'static str],
    /// How it was measured, line by line, and what stands for that here.
    pub settings: &'static [Setting],
    /// What one should know before the figures are put beside each other.
    pub remarks: &'static [&'static str],
    /// What it published.
    pub series: &'static [Series],
}

/// One line of how something was measured.
#[derive(Debug)]
pub struct Setting {
    /// What it is.
    pub name: &'static str,
    /// There.
    pub theirs: &'static str,
    /// Here.
    pub ours: Here,
}

/// What stands for a setting here.
#[derive(Debug)]
pub enum Here {
    /// A fact of the environment, by name.
    Fact(&'static str),
    /// The load generators of the record's runs.
    Generator,
    /// The same for every run of the job.
    Words(&'static str),
}

/// Values over places: a curve, or two bars.
#[derive(Debug)]
pub struct Series {
    /// What is shown, such as `requests/s over connections, kept, io_uring`.
    pub name: &'static str,
    /// Unit of both.
    pub unit: &'static str,
    /// The experiment that has the places.
    pub experiment: Experiment,
    /// Which of our figures stands for theirs.
    pub figure: Figure,
    /// Where its pictures are lost: which way it goes by its words.
    pub claim: Option<Trend>,
    /// The places in order.
    pub places: &'static [Place],
}

/// One value of a [`Series`].
#[derive(Debug)]
pub struct Place {
    /// Short name.
    pub name: &'static str,
    /// The arm that stands for it.
    pub arm: &'static str,
    /// The axes that tell the point; the others have their defaults.
    pub axes: &'static [(&'static str, &'static str)],
    /// What was published; none where only a picture was.
    pub published: Option<f64>,
}

/// Where a figure of ours stands.
#[derive(Clone, Copy, Debug)]
pub enum Figure {
    /// The value of the comparison.
    Value,
    /// A figure of the load generator, times a factor.
    OfRuns(&'static str, f64),
    /// CPU time for each event, in microseconds.
    CpuUs,
    /// Counts of the counting pass for each event, added up.
    PerEvent(&'static [&'static str]),
    /// Events for each wait.
    EventsPerWait,
}

/// A document beside a record.
#[derive(Debug)]
pub struct Beside {
    /// The document.
    pub seed: &'static Seed,
    /// Its settings: name, theirs, ours.
    pub settings: Vec<(&'static str, &'static str, String)>,
    /// Its series, with ours.
    pub series: Vec<BesideSeries>,
}

/// A series beside ours.
#[derive(Debug)]
pub struct BesideSeries {
    /// Theirs.
    pub series: &'static Series,
    /// Ours at the same places, or why there is none.
    pub ours: Vec<Result<f64, String>>,
    /// Whether they agree over the places that both have.
    pub judgement: Judgement,
}

/// The document that a record's job repeats, put beside it; none for other jobs.
#[must_use]
pub fn beside(record: &Record) -> Option<Beside> {
    let repeats = |seed: &&&Seed| seed.jobs.contains(&record.job.name.as_str());
    let seed = *SEEDS.iter().find(repeats)?;
    // Of a document with several jobs only what this one has something of.
    let is_there = |series: &&Series| {
        let has = |row| series.places.iter().any(|at| is_at(record, row, series.experiment, at));
        record.results.iter().any(has)
    };
    Some(Beside {
        seed,
        settings: seed
            .settings
            .iter()
            .map(|line| (line.name, line.theirs, here(line, record)))
            .collect(),
        series: seed
            .series
            .iter()
            .filter(is_there)
            .map(|series| put_beside(series, record))
            .collect(),
    })
}

impl Beside {
    /// How many series agree, agree in direction only, differ, and can't be told.
    #[must_use]
    pub fn tally(&self) -> [usize; 4] {
        use Agreement::{Agrees, Differs, InDirection, Unknown};
        [Agrees, InDirection, Differs, Unknown]
            .map(|kind| self.series.iter().filter(|one| one.judgement.agreement == kind).count())
    }
}

fn put_beside(series: &'static Series, record: &Record) -> BesideSeries {
    let tolerance = agree::tolerance(noise(series, record));
    let ours: Vec<_> = series.places.iter().map(|place| ours(series, place, record)).collect();
    let both = series.places.iter().zip(&ours);
    let both = both.filter_map(|(place, ours)| Some((place.published, *ours.as_ref().ok()?)));
    let (theirs, here): (Vec<Option<f64>>, Vec<f64>) = both.unzip();
    let judgement = match (series.claim, theirs.into_iter().collect::<Option<Vec<f64>>>()) {
        (Some(claim), _) => agree::claim(claim, &here, tolerance),
        (None, Some(theirs)) => agree::series(&theirs, &here, tolerance),
        (None, None) => unreachable!("a series without a claim has figures"),
    };
    let judgement = bound::by_the_generator(series, record, judgement);
    BesideSeries { series, ours, judgement }
}

/// Our figure at a place.
fn ours(series: &Series, place: &Place, record: &Record) -> Result<f64, String> {
    let at = |row: &&ResultRow| is_at(record, row, series.experiment, place);
    let Some(row) = record.results.iter().find(at) else {
        return Err(why_not(series.experiment, place, record));
    };
    let of_runs = |read: &dyn Fn(&Measurement) -> Option<f64>| {
        median(&runs_of(record, row).filter_map(read).collect::<Vec<f64>>())
            .ok_or_else(|| "no run has it".to_owned())
    };
    match series.figure {
        Figure::Value => row.value.ok_or_else(|| "every run failed".to_owned()),
        Figure::OfRuns(name, factor) => {
            of_runs(&|run| run.figures.get(name).map(|value| value * factor))
        }
        Figure::CpuUs => {
            of_runs(&|run| Some(*run.cpu_ns.value()? as f64 / 1e3 / run.events? as f64))
        }
        Figure::PerEvent(names) => per_event(record, row, names),
        Figure::EventsPerWait => {
            let why = record.why.iter().find(|why| {
                (&why.experiment, &why.point, &why.arm) == (&row.experiment, &row.point, &row.arm)
            });
            let reading = why.map(|why| why.events_per_wait.clone());
            value_of(&reading.unwrap_or_else(|| Reading::unavailable("not counted")))
        }
    }
}

fn runs_of<'a>(record: &'a Record, row: &'a ResultRow) -> impl Iterator<Item = &'a Measurement> {
    let same = |run: &&crate::record::Run| {
        (&run.experiment, &run.point, &run.arm) == (&row.experiment, &row.point, &row.arm)
    };
    record.runs.iter().filter(same).filter_map(|run| match &run.outcome {
        Outcome::Measured(measured) => Some(measured),
        Outcome::Failed { .. } => None,
    })
}

fn per_event(record: &Record, row: &ResultRow, names: &[&str]) -> Result<f64, String> {
    let is_it = |run: &&CountingRun| {
        (&run.experiment, &run.point, &run.arm) == (&row.experiment, &row.point, &row.arm)
    };
    let run = record.counting.iter().find(is_it).filter(|run| run.events > 0);
    let run = run.ok_or_else(|| "not counted".to_owned())?;
    let mut sum = 0.0;
    for name in names {
        let count = run.kernel.get(*name).cloned();
        sum += value_of(&count.unwrap_or_else(|| Reading::unavailable("not counted")))? as f64;
    }
    Ok(sum / run.events as f64)
}

fn value_of<T: Copy>(reading: &Reading<T>) -> Result<T, String> {
    let reason = reading.reason().unwrap_or_default().to_owned();
    reading.value().copied().ok_or(reason)
}

fn here(setting: &Setting, record: &Record) -> String {
    match setting.ours {
        Here::Words(words) => words.to_owned(),
        Here::Fact(name) => {
            let fact = record.environment.iter().find(|fact| fact.name == name);
            let value = fact.and_then(|fact| fact.reading.value().cloned());
            value.unwrap_or_else(|| "n/a".to_owned())
        }
        Here::Generator => {
            let mut names: Vec<&str> = Vec::new();
            let rows = record.results.iter().filter(|row| is_by_the_generator(record, row));
            for run in rows.flat_map(|row| runs_of(record, row)) {
                if let Some(name) = &run.generator
                    && !names.contains(&name.as_str())
                {
                    names.push(name);
                }
            }
            format!("{}, on another CPU of the same machine", names.join(" and "))
        }
    }
}

/// Half the width of the widest A/A interval at the points of a series, relative.
fn noise(series: &Series, record: &Record) -> Option<f64> {
    let at_its_points = |row: &&ResultRow| {
        row.verdict == Verdict::NoiseFloor
            && series.places.iter().any(|at| is_at_point(record, row, series.experiment, at))
    };
    let half = |row: &ResultRow| Some((row.ci_high? / row.ci_low?).ln() / 2.0);
    record.results.iter().filter(at_its_points).filter_map(half).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::row_for_tests;
    use crate::record::{LeftOut, Verdict};

    #[test]
    fn every_place_is_one_that_its_experiment_can_have() {
        for series in SEEDS.iter().flat_map(|seed| seed.series) {
            assert!(series.places.len() >= 2, "{}", series.name);
            for place in series.places {
                assert!(place.published.is_some() || series.claim.is_some(), "{}", series.name);
                for (name, value) in place.axes {
                    let axis = series.experiment.axes().iter().find(|axis| axis.name == *name);
                    let axis = axis.unwrap_or_else(|| panic!("{}: {name}", series.name));
                    assert_eq!(axis.check(value).as_deref(), Ok(*value), "{}", series.name);
                }
            }
        }
    }

    #[test]
    fn every_job_of_a_document_is_built_in_and_no_other_job_has_one() {
        for name in SEEDS.iter().flat_map(|seed| seed.jobs) {
            assert!(crate::job::builtin(name).is_some(), "{name}");
        }
        assert!(beside(&Record::empty()).is_none());
    }

    #[test]
    fn ours_stands_beside_theirs_and_a_gap_has_its_reason() {
        let mut record = Record::empty();
        record.job.name = "seed1".into();
        let mut row = |pipes: &str, arm: &str, value| {
            record.results.push(ResultRow {
                axes: [("pipes", pipes), ("rule", "hopping")]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
                value: Some(value),
                ..row_for_tests(arm, Verdict::Baseline)
            });
        };
        row("8000", "epoll-et", 199_000.0);
        row("8000", "poll", 9_000.0);
        row("16000", "epoll-et", 198_000.0);
        record.left_out.push(LeftOut {
            experiment: "pipes".into(),
            point: "16000 pipes, hopping".into(),
            arm: "aio".into(),
            reason: "needs 40000 slots".into(),
        });
        let beside = beside(&record).expect("a job of the document");
        let reasons: Vec<_> = beside
            .series
            .iter()
            .flat_map(|one| &one.ours)
            .filter_map(|o| o.clone().err())
            .collect();
        assert!(reasons.contains(&"not part of this run".to_owned()));
        assert!(reasons.contains(&"needs 40000 slots".to_owned()), "{reasons:?}");
        let pair = beside.series.iter().find(|one| {
            one.series.name.contains("8,000 pipes") && one.series.places[0].name == "poll"
        });
        assert!(pair.is_some_and(|pair| pair.judgement.agreement == Agreement::Agrees));
        assert_eq!(beside.tally().iter().sum::<usize>(), beside.series.len());
    }
}
