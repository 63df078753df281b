//! The documents that pollux grew from: what they published, and what a record has at the same
//! points.
//!
//! Each is a TOML file of this folder with its figures, which are facts about a machine of its time; `stats::agree`
//! says whether direction and shape come back. The files are read once, when something is first put beside a document;
//! one that is wrong is a mistake of this crate, which a test finds. The report shows it for the jobs that repeat a
//! document. Nothing here measures, and no figure here decides a verdict of the lab.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use pollux_host::Reading;
use pollux_stats::agree::{self, Agreement, Judgement, Trend};
use serde::Deserialize;

use crate::axis::{Axis, AxisKind, Value};
use crate::experiments::{self, Experiment, PROCESSES};
use crate::plan::label;
use crate::record::{Answer, LeftOut, Measurement, Record, ResultRow, Verdict};
use checks::{Check, Outcome};

pub(crate) mod checks;
#[cfg(test)]
mod tests;

/// A document beside a record.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) document: &'static Document,
    /// Its settings: name, theirs, ours.
    pub(crate) settings: Vec<(&'static str, &'static str, String)>,
    /// Its series, with ours.
    pub(crate) series: Vec<PublishedSeries>,
    /// What must hold, with what became of it.
    pub(crate) checks: Vec<(&'static Check, Outcome)>,
}

/// A series beside ours.
#[derive(Debug)]
pub(crate) struct PublishedSeries {
    pub(crate) series: &'static Series,
    /// Ours at the same points, or why there is none.
    pub(crate) ours: Vec<Result<f64, String>>,
    /// Whether they agree over the points that both have.
    pub(crate) judgement: Judgement,
}

/// The document that a record's job repeats, put beside it; none for other jobs, and where a run has
/// nothing of it.
pub(crate) fn beside(record: &Record) -> Option<Beside> {
    let document = Document::all().iter().find(|one| one.jobs.contains(&record.job.name))?;
    let matches = Matches { document, record };
    // Of a document with several jobs only what this one has something of.
    let is_there = |series: &&Series| {
        let has = |row| series.points.iter().any(|place| matches.is_at(row, series, place));
        record.results.iter().any(has)
    };
    let settings = document.settings.iter();
    let series = document.series.iter().filter(is_there);
    let series: Vec<_> = series.map(|series| put_beside(series, &matches)).collect();
    (!series.is_empty()).then(|| Beside {
        document,
        settings: settings.map(|line| (&*line.name, &*line.theirs, here(line, &matches))).collect(),
        series,
        checks: document.checks.iter().map(|one| (one, one.outcome(document, record))).collect(),
    })
}

impl Beside {
    /// How many series agree, agree in direction only, differ, and are unknown.
    pub(crate) fn tally(&self) -> [usize; 4] {
        use Agreement::{Agrees, Differs, SameDirection, Unknown};
        [Agrees, SameDirection, Differs, Unknown]
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
            ..Answer::default()
        }
    }
}

fn put_beside(series: &'static Series, matches: &Matches<'_>) -> PublishedSeries {
    let tolerance = agree::tolerance(noise(series, matches));
    let ours: Vec<_> = series.points.iter().map(|place| ours(series, place, matches)).collect();
    let both = series.points.iter().zip(&ours);
    let both = both.filter_map(|(place, ours)| Some((place.published, *ours.as_ref().ok()?)));
    let (theirs, here): (Vec<Option<f64>>, Vec<f64>) = both.unzip();
    let judgement = match (series.claim, theirs.into_iter().collect::<Option<Vec<f64>>>()) {
        (Some(claim), _) => agree::claim(claim, &here, tolerance),
        (None, Some(theirs)) => agree::series(&theirs, &here, tolerance),
        (None, None) => unreachable!("a series without a claim has figures"),
    };
    let judgement = checks::by_the_generator(series, matches, judgement);
    PublishedSeries { series, ours, judgement }
}

/// Our figure at a point.
fn ours(series: &Series, place: &SeriesPoint, matches: &Matches<'_>) -> Result<f64, String> {
    let record = matches.record;
    let at = |row: &&ResultRow| matches.is_at(row, series, place);
    let Some(row) = record.results.iter().find(at) else {
        return Err(matches.why_not(series, place));
    };
    let of_runs = |read: &dyn Fn(&Measurement) -> Option<f64>| {
        record.median_at(row.key(), read).ok_or_else(|| "no run has it".to_owned())
    };
    match &series.figure {
        Figure::Value if row.unit != series.unit => Err(format!("measured in {} here", row.unit)),
        Figure::Value => row.value.ok_or_else(|| "every run failed".to_owned()),
        Figure::Ratio => row.ratio.ok_or_else(|| "no ratio".to_owned()),
        Figure::OfRuns(name) => {
            let times = series.ours_times.unwrap_or(1.0);
            of_runs(&|run| run.figures.get(name).map(|value| value * times))
        }
        Figure::CpuUs => of_runs(&|run| Some(run.cpu_ns_per_event()? / 1e3)),
        Figure::PerEvent(names) => match record.counting_at(row.key()) {
            Some(run) => value_of(&run.per_event(names)),
            None => Err("not counted".to_owned()),
        },
        Figure::EventsPerWait => {
            let reading = record.why_at(row.key()).map(|why| why.events_per_wait.clone());
            value_of(&reading.unwrap_or_else(|| Reading::unavailable("not counted")))
        }
    }
}

fn value_of<T: Copy>(reading: &Reading<T>) -> Result<T, String> {
    let reason = reading.reason().unwrap_or_default().to_owned();
    reading.value().copied().ok_or(reason)
}

fn here(setting: &Setting, matches: &Matches<'_>) -> String {
    let record = matches.record;
    match &setting.ours {
        Here::Words(words) => words.clone(),
        Here::Fact(name) => record.fact(name).cloned().unwrap_or_else(|| "n/a".to_owned()),
        Here::Generator => {
            let mut names: Vec<&str> = Vec::new();
            let is_shown = |row: &&ResultRow| {
                let mut series = matches.document.series.iter();
                series
                    .any(|one| one.points.iter().any(|place| matches.is_at_point(row, one, place)))
            };
            let rows = record.results.iter().filter(is_shown);
            for run in rows.flat_map(|row| record.measured_at(row.key())) {
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
fn noise(series: &Series, matches: &Matches<'_>) -> Option<f64> {
    let at_its_points = |row: &&ResultRow| {
        row.verdict == Verdict::NoiseLevel
            && series.points.iter().any(|place| matches.is_at_point(row, series, place))
    };
    let half = |row: &ResultRow| Some((row.ci_high? / row.ci_low?).ln() / 2.0);
    matches.record.results.iter().filter(at_its_points).filter_map(half).reduce(f64::max)
}

/// Where the points of a document are looked for. A point names only the axes that tell it from its neighbours;
/// every other axis has to stand at its default, or a figure of another load would be put beside the document.
struct Matches<'a> {
    document: &'a Document,
    record: &'a Record,
}

impl Matches<'_> {
    /// Whether a row is the arm of a point, there.
    fn is_at(&self, row: &ResultRow, series: &Series, place: &SeriesPoint) -> bool {
        row.arm == place.arm && self.is_at_point(row, series, place)
    }

    /// Whether a row stands at the point of a point: the same experiment, and every axis as the
    /// point or its default has it.
    fn is_at_point(&self, row: &ResultRow, series: &Series, place: &SeriesPoint) -> bool {
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

    /// Why a point has no row: left out of the plan, or not asked for.
    fn why_not(&self, series: &Series, place: &SeriesPoint) -> String {
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

    /// What an axis has to be at a point. Of figures that were taken with several tools those of the lab
    /// are shown, which are at the default, or where it took no part the first.
    fn wanted<'p>(&'p self, of: &dyn Experiment, place: &'p SeriesPoint, axis: &Axis) -> &'p str {
        if let Some(value) = place.axes.get(axis.name) {
            return value;
        }
        let taken = || self.record.results.iter().filter_map(|row| row.axes.get(axis.name));
        let is_own_shown = of.tool != Some(axis.name) || taken().any(|tool| tool == axis.default);
        let first = taken().next().filter(|_| !is_own_shown);
        first.map_or(axis.default, String::as_str)
    }
}

fn experiment(series: &Series) -> &'static dyn Experiment {
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

static DOCUMENTS: LazyLock<Vec<Document>> = LazyLock::new(|| {
    let read = |text| Document::read(text).expect("a test has read every document");
    FILES.into_iter().map(read).collect()
});

const FILES: [&str; 7] = [
    include_str!("epoll-bench.toml"),
    include_str!("sys-epoll.toml"),
    include_str!("sehttpd.toml"),
    include_str!("haproxy.toml"),
    include_str!("epollexclusive.toml"),
    include_str!("echo-servers.toml"),
    include_str!("streaming.toml"),
];

type Axes = BTreeMap<String, String>;

/// A document that published figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// Its name, as in `pollux lab reproduce sehttpd`.
    pub(crate) name: String,
    /// What it is, and from when.
    pub(crate) title: String,
    /// Jobs that repeat it, by name; also the names that such jobs had in records of older versions.
    jobs: Vec<String>,
    /// The experiment of every series that names none.
    experiment: String,
    /// Axes of every series of that experiment.
    axes: Axes,
    /// Axes that results of older versions lack, with what those stood at.
    #[serde(default)]
    older: Axes,
    /// What one should know before the figures are put beside each other.
    pub(crate) remarks: Vec<String>,
    /// How it was measured, line by line, and what stands for that here.
    #[serde(rename = "setting")]
    settings: Vec<Setting>,
    /// What it published.
    pub(crate) series: Vec<Series>,
    /// What must hold, row by row.
    #[serde(default, rename = "check")]
    pub(crate) checks: Vec<Check>,
}

/// One line of how something was measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    pub(crate) name: String,
    theirs: String,
    ours: Here,
}

/// What stands for a setting here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Here {
    /// A fact of the environment, by name.
    Fact(String),
    /// The load generators of the record's runs.
    Generator,
    /// The same for every run of the job.
    Words(String),
}

/// Values over points: a curve, or two bars.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Series {
    /// What is shown, such as `requests/s over connections, kept, io_uring`.
    pub(crate) name: String,
    /// Unit of both.
    pub(crate) unit: String,
    /// The experiment that has the points.
    #[serde(default)]
    experiment: String,
    /// Which of our figures stands for theirs.
    figure: Figure,
    /// What a figure of the runs is to be multiplied by to have the unit.
    ours_times: Option<f64>,
    /// Where its pictures are lost: which way it goes by its words.
    claim: Option<Trend>,
    /// The arm of every point, or one for each.
    arm: Option<String>,
    #[serde(default)]
    arms: Vec<String>,
    /// Axes of every point.
    #[serde(default)]
    axes: Axes,
    /// The axis along which the points lie, and its values where those are not the names.
    over: Option<String>,
    #[serde(default)]
    at: Vec<String>,
    /// Another axis that has the same values there.
    and_over: Option<String>,
    /// Short names of the points, in order.
    names: Vec<String>,
    /// What was published at each; nothing where only a picture was.
    #[serde(default)]
    published: Vec<f64>,
    /// What the published figures are to be multiplied by to have the unit.
    published_times: Option<f64>,
    /// The points, made of the above.
    #[serde(skip)]
    pub(crate) points: Vec<SeriesPoint>,
}

/// One value of a [`Series`].
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesPoint {
    /// Short name.
    pub(crate) name: String,
    /// The arm that stands for it.
    arm: String,
    /// The axes that distinguish the point; the others have their defaults.
    axes: Axes,
    /// What was published; none where only a picture was.
    pub(crate) published: Option<f64>,
}

/// Where a figure of ours stands.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Figure {
    /// The value of the comparison.
    Value,
    /// Its ratio to the baseline.
    Ratio,
    /// A figure of the runs.
    OfRuns(String),
    /// CPU time for each event, in microseconds.
    CpuUs,
    /// Counts of the counting pass for each event, added up.
    PerEvent(Vec<String>),
    /// Events for each wait.
    EventsPerWait,
}

impl Document {
    fn all() -> &'static [Self] {
        &DOCUMENTS
    }

    /// The axis that tells the points of its experiment apart.
    fn first_axis(&self) -> &'static str {
        let experiment = experiments::by_name(&self.experiment);
        experiment.map_or("", |experiment| experiment.axes[0].name)
    }

    /// Reads a file; the mistake is in words.
    fn read(text: &str) -> Result<Self, String> {
        let mut document: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for series in &mut document.series {
            if series.experiment.is_empty() {
                series.experiment.clone_from(&document.experiment);
                let own = std::mem::take(&mut series.axes);
                series.axes = document.axes.clone();
                series.axes.extend(own);
            }
            series.points =
                series.points().ok_or_else(|| format!("{}: not one for each name", series.name))?;
        }
        Ok(document)
    }
}

impl Series {
    /// One point for each name; none where arms, values or figures are not as many.
    fn points(&self) -> Option<Vec<SeriesPoint>> {
        let place = |(at, name): (usize, &String)| {
            let mut axes = self.axes.clone();
            if let Some(over) = &self.over {
                let value = if self.at.is_empty() { name } else { self.at.get(at)? };
                for axis in [over].into_iter().chain(&self.and_over) {
                    axes.insert(axis.clone(), value.clone());
                }
            }
            let published = match self.published.get(at) {
                Some(figure) => Some(figure * self.published_times.unwrap_or(1.0)),
                None => {
                    self.claim?;
                    None
                }
            };
            let arm = self.arm.as_ref().or_else(|| self.arms.get(at))?.clone();
            Some(SeriesPoint { name: name.clone(), arm, axes, published })
        };
        self.names.iter().enumerate().map(place).collect()
    }
}
