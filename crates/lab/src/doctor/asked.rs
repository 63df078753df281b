//! What a diagnosis was asked for: one concern, or a built-in job with all that it concerns.
//!
//! `pollux doctor --for` knows every name of [`Asked::names`]. What a job concerns is read from its
//! file, so a job that is added or changed needs no line here.

use super::check::Concern;
use crate::experiments::Experiment;
use crate::job::{self, Job, Part};

/// From so many values on, connections are an axis along which a rate is looked at.
const SWEEP_VALUES_MIN: usize = 3;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// As it was asked for.
    pub name: String,
    /// What it concerns: at least one.
    pub concerns: Vec<Concern>,
}

impl Asked {
    /// The concern or the built-in job called `name`; a concern where both are called so.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let concerns = match Concern::by_name(name) {
            Some(concern) => vec![concern],
            None if job::builtin(name).is_some() => of_job(&job::find(name).ok()?),
            None => return None,
        };
        Some(Self { name: name.to_owned(), concerns })
    }

    /// Every name with its meaning in a few words: concerns under each of their names, then the
    /// jobs that are no concern.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        let concerns = Concern::ALL.into_iter().flat_map(|concern| {
            let names = std::iter::once(concern.name()).chain(concern.aliases().iter().copied());
            names.map(move |name| (name, concern.title()))
        });
        let jobs = job::list().iter().filter(|job| Concern::by_name(job.name).is_none());
        concerns.chain(jobs.map(|job| (job.name, job.about)))
    }
}

impl From<Concern> for Asked {
    fn from(concern: Concern) -> Self {
        Self { name: concern.name().to_owned(), concerns: vec![concern] }
    }
}

fn of_job(job: &Job) -> Vec<Concern> {
    let mut concerns: Vec<Concern> = job.parts.iter().flat_map(of_part).collect();
    concerns.sort_unstable();
    concerns.dedup();
    concerns
}

fn of_part(part: &Part) -> Vec<Concern> {
    let values = |axis| part.axes.get(axis).map_or(&[][..], Vec::as_slice);
    let concern = Concern::by_name(part.experiment.name()).unwrap_or(Concern::Everything);
    let is_server = part.experiment == Experiment::Http;
    let more = [
        (Concern::Dead, values("dead").iter().any(|dead| dead != "0")),
        (Concern::Churn, values("keepalive").iter().any(|kept| kept == "false")),
        (Concern::Sweep, values("connections").len() >= SWEEP_VALUES_MIN),
    ];
    let more = more.into_iter().filter(|(_, is_asked)| is_server && *is_asked);
    std::iter::once(concern).chain(more.map(|(concern, _)| concern)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concerns(name: &str) -> Vec<Concern> {
        Asked::by_name(name).unwrap_or_else(|| panic!("{name}")).concerns
    }

    #[test]
    fn every_job_can_be_asked_for() {
        for job in job::list() {
            assert!(!concerns(job.name).is_empty(), "{}", job.name);
        }
        assert!(Asked::names().all(|(name, _)| Asked::by_name(name).is_some()));
        assert_eq!(Asked::by_name("none-such"), None);
    }

    #[test]
    fn a_job_concerns_what_its_parts_do() {
        use Concern::{Churn, Dead, Herd, Http, Streams, Sweep};
        assert_eq!(concerns("version"), [Streams, Http, Dead]);
        assert_eq!(concerns("quick"), [Streams, Http, Dead, Churn, Herd]);
        assert_eq!(concerns("seed0"), [Streams]);
        assert_eq!(concerns("seed1"), [Streams, Http, Dead]);
        assert_eq!(concerns("seed2"), [Http, Churn, Sweep]);
        assert_eq!(concerns("idle"), [Dead]);
    }
}
