//! Which arm at which point: what rows and runs of a record are found by.

use super::{CountingRun, Fact, Measurement, Outcome, Record, ResultRow, Run, WhyRow};
use crate::host::Reading;
use crate::stats::median;

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

    /// The median of what `read` finds in those; none where it finds nothing.
    pub fn median_at(
        &self,
        place: Place<'_>,
        read: impl Fn(&Measurement) -> Option<f64>,
    ) -> Option<f64> {
        median(&self.measured_at(place).filter_map(read).collect::<Vec<f64>>())
    }

    /// A fact of the environment, where it could be read.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&String> {
        let is_it = |fact: &&Fact| fact.name.eq_ignore_ascii_case(name);
        self.environment.iter().find(is_it)?.reading.value()
    }

    /// The run of the counting pass at a place.
    pub(crate) fn counting_at(&self, place: Place<'_>) -> Option<&CountingRun> {
        self.counting.iter().find(|run| run.place() == place)
    }

    /// The counts behind an arm at a place.
    pub(crate) fn why_at(&self, place: Place<'_>) -> Option<&WhyRow> {
        self.why.iter().find(|row| row.place() == place)
    }
}

impl CountingRun {
    /// Counts of the kernel for each event, added up.
    pub(crate) fn per_event(&self, names: &[impl AsRef<str>]) -> Reading<f64> {
        if self.events == 0 {
            return Reading::unavailable("no event in the counted window");
        }
        let sum = names.iter().map(AsRef::as_ref).fold(Reading::Value(0), |sum, name| {
            let count = self.kernel.get(name).cloned();
            let count =
                count.unwrap_or_else(|| Reading::unavailable(format!("{name} not counted")));
            sum.and_then(|sum| count.map(|count| sum + count))
        });
        sum.map(|sum: u64| sum as f64 / self.events as f64)
    }
}

impl Measurement {
    /// CPU time for each event, where both are known.
    pub(crate) fn cpu_ns_per_event(&self) -> Option<f64> {
        Some(*self.cpu_ns.value()? as f64 / self.events.filter(|events| *events > 0)? as f64)
    }
}
