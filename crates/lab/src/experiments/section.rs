//! What an experiment shows of its runs in a report, beside results and reasons: tables of figures, as
//! data. Page and CI summary are made of the same.

use crate::record::{Measurement, Record};
use crate::stats::median;

/// A section of reports.
#[derive(Debug)]
pub struct Section {
    /// Its anchor in the page.
    pub(crate) id: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// Whether a run has something of it.
    pub(crate) is_of: fn(&Measurement) -> bool,
    /// Its tables.
    pub(crate) topics: &'static [Topic],
    /// What is to be said of the runs of a part of a job, below its first table.
    pub(crate) remarks: fn(&Record, &str) -> Vec<String>,
    /// The unit of work for which counts of the kernel are shown as `perf stat` prints them; none
    /// where they are not.
    pub(crate) counts_for_each: Option<&'static str>,
    /// Whether the summary of a CI step has the tables too.
    pub(crate) is_in_summary: bool,
}

/// A table of columns.
#[derive(Debug)]
pub struct Topic {
    /// What it is about.
    pub(crate) heading: &'static str,
    /// How it is to be read.
    pub(crate) about: &'static str,
    /// Its figures.
    pub(crate) columns: &'static [Column],
    /// Whether the calls of workers are drawn above it, for each arm as a curve of their shares.
    pub(crate) is_drawn: bool,
}

/// A column of figures.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    /// What is read of a run.
    read: Read,
    pub(crate) show: fn(f64) -> String,
    /// Why a run may be without.
    pub(crate) lacking: &'static str,
}

/// What a column reads of a run.
#[derive(Debug)]
enum Read {
    /// The figure of this name.
    Figure(&'static str),
    /// What this makes of it.
    Of(fn(&Measurement) -> Option<f64>),
}

const UNREAD: &str = "could not be read in these runs";

impl Column {
    /// The figure called `name`.
    pub(crate) const fn figure(
        heading: &'static str,
        name: &'static str,
        show: fn(f64) -> String,
    ) -> Self {
        Self { heading, read: Read::Figure(name), show, lacking: UNREAD }
    }

    /// What `read` makes of a run.
    pub(crate) const fn of(
        heading: &'static str,
        read: fn(&Measurement) -> Option<f64>,
        show: fn(f64) -> String,
    ) -> Self {
        Self { heading, read: Read::Of(read), show, lacking: UNREAD }
    }

    /// The same with why a run may be without.
    pub(crate) const fn lacking(self, lacking: &'static str) -> Self {
        Self { lacking, ..self }
    }

    /// Over these runs; none where no run has it.
    pub(crate) fn median(&self, runs: &[&Measurement]) -> Option<f64> {
        let of_run = |run: &&Measurement| match self.read {
            Read::Figure(name) => run.figures.get(name).copied(),
            Read::Of(read) => read(run),
        };
        median(&runs.iter().filter_map(of_run).collect::<Vec<f64>>())
    }
}
