//! Which arm at which point: what rows and runs of a record are found by.

use super::{CountingRun, Measurement, Outcome, Record, ResultRow, Run, WhyRow};

/// An experiment, the label of a point, and the name of an arm.
pub type Place<'a> = [&'a str; 3];

macro_rules! placed {
    ($($kind:ty),*) => {$(
        impl $kind {
            /// Which arm at which point it is of.
            #[must_use]
            pub fn place(&self) -> Place<'_> {
                [&self.experiment, &self.point, &self.arm]
            }
        }
    )*};
}

placed!(Run, CountingRun, ResultRow, WhyRow);

impl Run {
    /// What it gave, if it went to its end.
    #[must_use]
    pub const fn measured(&self) -> Option<&Measurement> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Failed { .. } => None,
        }
    }

    /// Why it failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Measured(_) => None,
            Outcome::Failed { reason } => Some(reason),
        }
    }
}

impl Record {
    /// The timing runs at a place.
    pub fn runs_at<'a>(&'a self, place: Place<'a>) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.place() == place)
    }

    /// What those of them gave that went to their end.
    pub fn measured_at<'a>(&'a self, place: Place<'a>) -> impl Iterator<Item = &'a Measurement> {
        self.runs_at(place).filter_map(Run::measured)
    }

    /// The run of the counting pass at a place.
    #[must_use]
    pub fn counting_at(&self, place: Place<'_>) -> Option<&CountingRun> {
        self.counting.iter().find(|run| run.place() == place)
    }

    /// The counts behind an arm at a place.
    #[must_use]
    pub fn why_at(&self, place: Place<'_>) -> Option<&WhyRow> {
        self.why.iter().find(|row| row.place() == place)
    }
}
