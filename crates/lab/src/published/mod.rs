//! The documents that pollux grew from: what they published, and what a record has at the same
//! places.
//!
//! Each is a TOML file with its figures, which are facts about a machine of its time; `stats::agree`
//! says whether direction and shape come back. The report shows it for the jobs that repeat a document.
//! Nothing here measures, and no figure here decides a verdict of the lab.

use crate::host::Reading;
use crate::record::{Answer, Measurement, Record, ResultRow, Verdict};
use crate::stats::agree::{self, Agreement, Judgement};

pub(crate) mod checks;
mod document;
mod place;
#[cfg(test)]
mod tests;

use checks::{Check, Outcome};
pub(crate) use document::{Document, Series};
use document::{Figure, Here, Place, Setting};
use place::Places;

/// A document beside a record.
#[derive(Debug)]
pub(crate) struct Beside {
    /// The document.
    pub(crate) document: &'static Document,
    /// Its settings: name, theirs, ours.
    pub(crate) settings: Vec<(&'static str, &'static str, String)>,
    /// Its series, with ours.
    pub(crate) series: Vec<BesideSeries>,
    /// What must hold, with what became of it.
    pub(crate) checks: Vec<(&'static Check, Outcome)>,
}

/// A series beside ours.
#[derive(Debug)]
pub(crate) struct BesideSeries {
    /// Theirs.
    pub(crate) series: &'static Series,
    /// Ours at the same places, or why there is none.
    pub(crate) ours: Vec<Result<f64, String>>,
    /// Whether they agree over the places that both have.
    pub(crate) judgement: Judgement,
}

/// The document that a record's job repeats, put beside it; none for other jobs, and where a run has
/// nothing of it.
pub(crate) fn beside(record: &Record) -> Option<Beside> {
    let document = Document::all().iter().find(|one| one.jobs.contains(&record.job.name))?;
    let places = Places { document, record };
    // Of a document with several jobs only what this one has something of.
    let is_there = |series: &&Series| {
        let has = |row| series.places.iter().any(|place| places.is_at(row, series, place));
        record.results.iter().any(has)
    };
    let settings = document.settings.iter();
    let series = document.series.iter().filter(is_there);
    let series: Vec<_> = series.map(|series| put_beside(series, &places)).collect();
    (!series.is_empty()).then(|| Beside {
        document,
        settings: settings.map(|line| (&*line.name, &*line.theirs, here(line, &places))).collect(),
        series,
        checks: document.checks.iter().map(|one| (one, one.outcome(document, record))).collect(),
    })
}

impl Beside {
    /// How many series agree, agree in direction only, differ, and are unknown.
    pub(crate) fn tally(&self) -> [usize; 4] {
        use Agreement::{Agrees, Differs, InDirection, Unknown};
        [Agrees, InDirection, Differs, Unknown]
            .map(|kind| self.series.iter().filter(|one| one.judgement.agreement == kind).count())
    }

    /// Whether the document's curves come back here, as the answer to its question.
    pub(crate) fn answer(&self) -> Answer {
        let all = self.series.len();
        let [agree, in_direction, differ, unknown] = self.tally();
        let counted = [
            (agree, "direction and shape agree in"),
            (in_direction, "direction only in"),
            (differ, "ours differ in"),
            (unknown, "unknown here in"),
        ];
        let words = counted.iter().filter(|(count, _)| *count > 0);
        let words: Vec<_> = words.map(|(count, what)| format!("{what} {count}")).collect();
        let verb = if agree == 1 { "comes" } else { "come" };
        let mut reason = words.join(", ");
        let hold = |is: fn(&Outcome) -> bool| self.checks.iter().filter(|(_, one)| is(one)).count();
        let met = hold(|one| matches!(one, Outcome::Met(_)));
        let measured = met + hold(|one| matches!(one, Outcome::Missed(_)));
        if measured > 0 {
            reason += &format!("; {met} of {measured} behaviours hold that were measured");
        }
        Answer {
            load: format!("Beside {}", self.document.title),
            choice: format!("{agree} of {all} published series {verb} back"),
            reason,
        }
    }
}

fn put_beside(series: &'static Series, places: &Places<'_>) -> BesideSeries {
    let tolerance = agree::tolerance(noise(series, places));
    let ours: Vec<_> = series.places.iter().map(|place| ours(series, place, places)).collect();
    let both = series.places.iter().zip(&ours);
    let both = both.filter_map(|(place, ours)| Some((place.published, *ours.as_ref().ok()?)));
    let (theirs, here): (Vec<Option<f64>>, Vec<f64>) = both.unzip();
    let judgement = match (series.claim, theirs.into_iter().collect::<Option<Vec<f64>>>()) {
        (Some(claim), _) => agree::claim(claim, &here, tolerance),
        (None, Some(theirs)) => agree::series(&theirs, &here, tolerance),
        (None, None) => unreachable!("a series without a claim has figures"),
    };
    let judgement = checks::by_the_generator(series, places, judgement);
    BesideSeries { series, ours, judgement }
}

/// Our figure at a place.
fn ours(series: &Series, place: &Place, places: &Places<'_>) -> Result<f64, String> {
    let record = places.record;
    let at = |row: &&ResultRow| places.is_at(row, series, place);
    let Some(row) = record.results.iter().find(at) else {
        return Err(places.why_not(series, place));
    };
    let of_runs = |read: &dyn Fn(&Measurement) -> Option<f64>| {
        record.median_at(row.place(), read).ok_or_else(|| "no run has it".to_owned())
    };
    match &series.figure {
        Figure::Value if row.unit != series.unit => Err(format!("measured in {} here", row.unit)),
        Figure::Value => row.value.ok_or_else(|| "every run failed".to_owned()),
        Figure::OfRuns(name) => {
            let times = series.ours_times.unwrap_or(1.0);
            of_runs(&|run| run.figures.get(name).map(|value| value * times))
        }
        Figure::CpuUs => of_runs(&|run| Some(run.cpu_ns_per_event()? / 1e3)),
        Figure::PerEvent(names) => match record.counting_at(row.place()) {
            Some(run) => value_of(&run.per_event(names)),
            None => Err("not counted".to_owned()),
        },
        Figure::EventsPerWait => {
            let reading = record.why_at(row.place()).map(|why| why.events_per_wait.clone());
            value_of(&reading.unwrap_or_else(|| Reading::unavailable("not counted")))
        }
    }
}

fn value_of<T: Copy>(reading: &Reading<T>) -> Result<T, String> {
    let reason = reading.reason().unwrap_or_default().to_owned();
    reading.value().copied().ok_or(reason)
}

fn here(setting: &Setting, places: &Places<'_>) -> String {
    let record = places.record;
    match &setting.ours {
        Here::Words(words) => words.clone(),
        Here::Fact(name) => record.fact(name).cloned().unwrap_or_else(|| "n/a".to_owned()),
        Here::Generator => {
            let mut names: Vec<&str> = Vec::new();
            let is_shown = |row: &&ResultRow| {
                let mut series = places.document.series.iter();
                series.any(|one| one.places.iter().any(|place| places.is_at_point(row, one, place)))
            };
            let rows = record.results.iter().filter(is_shown);
            for run in rows.flat_map(|row| record.measured_at(row.place())) {
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
fn noise(series: &Series, places: &Places<'_>) -> Option<f64> {
    let at_its_points = |row: &&ResultRow| {
        row.verdict == Verdict::NoiseLevel
            && series.places.iter().any(|place| places.is_at_point(row, series, place))
    };
    let half = |row: &ResultRow| Some((row.ci_high? / row.ci_low?).ln() / 2.0);
    places.record.results.iter().filter(at_its_points).filter_map(half).reduce(f64::max)
}
