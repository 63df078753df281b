//! Values of flags that are not settings: names of the lab's own tables, offered by completions.
//!
//! A kind answers with what is wrong with a text; the flag and the text itself are put before it by
//! [`mistakes`](crate::mistakes).

use std::collections::BTreeSet;

use pollux_lab::experiments::{self, Experiment};
use pollux_lab::job;
use pollux_settings::{Kind, one_of, parsed};

/// What can be run: built-in jobs and experiments; any other text is a path.
pub(crate) fn jobs() -> Kind<String> {
    // Some jobs have the name of their experiment.
    let names: BTreeSet<_> =
        job::list().iter().map(|job| job.name).chain(experiments::names()).collect();
    parsed("JOB", "a job", |text| Ok::<_, String>(text.to_owned())).offering(names)
}

/// What stands for a job on a command line.
pub(crate) fn job_help() -> String {
    let experiments = experiments::names().join(", ");
    format!("A job file, a built-in job (see `pollux lab list`) or an experiment: {experiments}")
}

/// An experiment.
pub(crate) fn experiment() -> Kind<&'static dyn Experiment> {
    one_of("experiment", experiments::ALL.map(|each| (each.name, "", each)))
}

/// A published benchmark by its name or number, as the name of the job that repeats it.
pub(crate) fn published() -> Kind<&'static str> {
    let about =
        |name: &str| job::list().iter().find(|job| job.name == name).map_or("", |job| job.about);
    let names = job::PUBLISHED.map(|job| (job.trim_start_matches("published-"), about(job), job));
    let numbers = ["0", "1", "2", "3", "4"].into_iter().zip(job::PUBLISHED);
    one_of(
        "published benchmark",
        names.into_iter().chain(numbers.map(|(number, job)| (number, "", job))),
    )
}
