//! What a document published, as data: the TOML files of this folder.
//!
//! They are read once, when something is first put beside a document. A file that is wrong is a mistake of this crate,
//! which a test finds.

use super::checks::Check;
use crate::experiments;
use crate::stats::agree::Trend;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Every document.
static DOCUMENTS: LazyLock<Vec<Document>> = LazyLock::new(|| {
    let read = |text| Document::read(text).expect("a test has read every document");
    FILES.into_iter().map(read).collect()
});

pub(super) const FILES: [&str; 5] = [
    include_str!("epoll-bench.toml"),
    include_str!("sys-epoll.toml"),
    include_str!("sehttpd.toml"),
    include_str!("haproxy.toml"),
    include_str!("epollexclusive.toml"),
];

pub(super) type Axes = BTreeMap<String, String>;

/// A document that published figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// Its name, as in `pollux lab reproduce sehttpd`.
    pub(crate) name: String,
    /// What it is, and from when.
    pub(crate) title: String,
    /// Jobs that repeat it, by name; also the names that such jobs had in records of older versions.
    pub(super) jobs: Vec<String>,
    /// The experiment of every series that names none.
    pub(super) experiment: String,
    /// Axes of every series of that experiment.
    pub(super) axes: Axes,
    /// Axes that results of older versions lack, with what those stood at.
    #[serde(default)]
    pub(super) older: Axes,
    /// What one should know before the figures are put beside each other.
    pub(crate) remarks: Vec<String>,
    /// How it was measured, line by line, and what stands for that here.
    #[serde(rename = "setting")]
    pub(super) settings: Vec<Setting>,
    /// What it published.
    pub(crate) series: Vec<Series>,
    /// What must hold, row by row.
    #[serde(default, rename = "check")]
    pub(crate) checks: Vec<Check>,
}

/// One line of how something was measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) theirs: String,
    pub(super) ours: Here,
}

/// What stands for a setting here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Here {
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
    pub(super) experiment: String,
    /// Which of our figures stands for theirs.
    pub(super) figure: Figure,
    /// What a figure of the runs is to be multiplied by to have the unit.
    pub(super) ours_times: Option<f64>,
    /// Where its pictures are lost: which way it goes by its words.
    pub(super) claim: Option<Trend>,
    /// The arm of every point, or one for each.
    pub(super) arm: Option<String>,
    #[serde(default)]
    pub(super) arms: Vec<String>,
    /// Axes of every point.
    #[serde(default)]
    pub(super) axes: Axes,
    /// The axis along which the points lie, and its values where those are not the names.
    pub(super) over: Option<String>,
    #[serde(default)]
    pub(super) at: Vec<String>,
    /// Short names of the points, in order.
    pub(super) names: Vec<String>,
    /// What was published at each; nothing where only a picture was.
    #[serde(default)]
    pub(super) published: Vec<f64>,
    /// What the published figures are to be multiplied by to have the unit.
    pub(super) published_times: Option<f64>,
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
    pub(super) arm: String,
    /// The axes that distinguish the point; the others have their defaults.
    pub(super) axes: Axes,
    /// What was published; none where only a picture was.
    pub(crate) published: Option<f64>,
}

/// Where a figure of ours stands.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Figure {
    /// The value of the comparison.
    Value,
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
    pub(super) fn all() -> &'static [Self] {
        &DOCUMENTS
    }

    /// The axis that tells the points of its experiment apart.
    pub(super) fn first_axis(&self) -> &'static str {
        let experiment = experiments::by_name(&self.experiment);
        experiment.map_or("", |experiment| experiment.axes[0].name)
    }

    /// Reads a file; the mistake is in words.
    pub(super) fn read(text: &str) -> Result<Self, String> {
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
                axes.insert(over.clone(), value.clone());
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
