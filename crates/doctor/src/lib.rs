//! What this machine is, what fits it, and the command that fixes what would limit a run.
//!
//! Careful authors of benchmarks look at limits, sysctls, governors and neighbours by hand before
//! they measure. `pollux doctor` calls [`Readings::take`] once and hands what it read to
//! [`Diagnosis::of`], which is pure: tests give it machines that do not exist. What is asked of the
//! machine comes with [`Demands`], as nothing here knows a job. Plans ask [`Resources`] what fits, runs ask
//! [`pollux_host`] what disturbed them. Nothing here may change the machine; commands are printed for the
//! user to run.
#![forbid(unsafe_code)]

mod agents;
mod calls;
mod check;
mod counters;
mod limits;
mod network;
mod processors;
mod readings;
mod show;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use calls::Calls;
pub use check::Remedy;
pub use check::{Check, CheckValue, Concern, Verdict};
pub use limits::{CONNECTION_BYTES, FDS_SPARE, MEMORY_PARTS, Resources, SERVER_FDS_SPARE};
pub use readings::{Files, Quota, Readings, Sandbox};
pub use show::TextOptions;

/// Version of the JSON form; a field is never renamed or removed within one.
pub const SCHEMA: u32 = 2;

/// Every check of one machine.
///
/// ```no_run
/// use pollux_doctor::{Demands, Diagnosis, Readings, TextOptions};
///
/// let demands = Demands {
///     default_job: "quick",
///     descriptors: 4096,
///     lost: &|limit| if limit < 4096 { vec![format!("`quick` past {limit}")] } else { vec![] },
///     loses_an_experiment: &|limit| limit < 1024,
///     queue_bytes: 8192,
/// };
/// // Takes a little over a second.
/// let diagnosis = Diagnosis::of(&Readings::take(), &demands, None);
/// print!("{}", diagnosis.text(TextOptions { is_colourful: false, width_chars: 100 }));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The checks, grouped by what they concern first, problems first in each group.
    pub checks: Vec<Check>,
    /// What was asked for; `None` for everything.
    pub asked: Option<Options>,
    /// The job that runs where none is named.
    pub default_job: &'static str,
}

/// How many checks came to which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Something cannot run at all.
    pub blocks: usize,
    /// Something is smaller, noisier or less explained than it could be.
    pub limits: usize,
    /// Could not be judged.
    pub not_available: usize,
    /// Nothing to do.
    pub ok: usize,
}

impl Diagnosis {
    /// Judges what was read by what is demanded of the machine. With `asked`, only what concerns it.
    #[must_use]
    pub fn of(readings: &Readings, demands: &Demands<'_>, asked: Option<Options>) -> Self {
        let all = [
            limits::descriptor_checks(readings, demands),
            network::checks(readings),
            agents::checks(readings),
            processors::checks(readings),
            processors::clock_checks(readings),
            limits::memory_checks(readings),
            limits::ring_checks(readings),
            limits::checks(readings),
            calls::checks(readings),
            limits::queue_checks(readings, demands),
            counters::generator_checks(readings),
            counters::checks(readings),
        ];
        let mut checks: Vec<Check> = all.into_iter().flatten().collect();
        if let Some(asked) = &asked {
            checks.retain(|check| asked.concerns.iter().any(|concern| check.concerns(*concern)));
        }
        // Stable: within a verdict the order of the files above stays.
        checks.sort_by_key(|check| (check.concerns[0], check.verdict));
        check::agree(&mut checks);
        Self { checks, asked, default_job: demands.default_job }
    }

    /// How many checks came to which verdict.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |verdict| self.checks.iter().filter(|check| check.verdict == verdict).count();
        Counts {
            blocks: of(Verdict::Blocks),
            limits: of(Verdict::Limits),
            not_available: of(Verdict::NotAvailable),
            ok: of(Verdict::Ok),
        }
    }

    /// Something keeps what was asked for from running: the default job, or the one that was asked for.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.checks.iter().any(|check| match &self.asked {
            None => check.blocks_default_job,
            Some(_) => check.verdict == Verdict::Blocks,
        })
    }

    /// The stable JSON form, described in `docs/doctor.md`.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "schema": SCHEMA,
            "default_job": self.default_job,
            "for": self.asked.as_ref().map(|asked| asked.name.as_str()),
            "is_blocked": self.is_blocked(),
            "counts": self.counts(),
            "checks": self.checks,
        })
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// As it was asked for.
    pub name: String,
    /// What it concerns: at least one.
    pub concerns: Vec<Concern>,
}

impl From<Concern> for Options {
    fn from(concern: Concern) -> Self {
        Self { name: concern.name().to_owned(), concerns: vec![concern] }
    }
}

/// What the jobs of the laboratory need.
pub struct Demands<'a> {
    /// The job that runs where none is named.
    pub default_job: &'static str,
    /// Descriptors of one process with which no job leaves anything out.
    pub descriptors: u64,
    /// What the jobs leave out where a process may have so many descriptors: a clause for each job.
    pub lost: &'a dyn Fn(u64) -> Vec<String>,
    /// Whether the default job loses one of its experiments then.
    pub loses_an_experiment: &'a dyn Fn(u64) -> bool,
    /// Bytes of message queues with which no job leaves anything out.
    pub queue_bytes: u64,
}
