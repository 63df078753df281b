//! Values of flags: names and counts, with one way to say what was expected.
//!
//! A parser answers with what is wrong with a text; the flag and the text itself are put before it
//! by [`mistakes`](crate::mistakes). Names are offered by the completions of shells.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use pollux_lab::experiments::{self, Experiment};
use pollux_lab::job::{self, did_you_mean};
use pollux_load::render::count;

/// One of some names, each with its value.
#[derive(Clone)]
pub(crate) struct Choice<T> {
    /// What the names are of, such as "poller".
    what: &'static str,
    values: Vec<(PossibleValue, T)>,
}

impl<T: Clone> Choice<T> {
    /// A choice among `names`; each may have a line about it.
    pub(crate) fn new<'a>(
        what: &'static str,
        names: impl IntoIterator<Item = (String, &'a str, T)>,
    ) -> Self {
        let value = |(name, about, value): (String, &str, T)| {
            let name = PossibleValue::new(name);
            (if about.is_empty() { name } else { name.help(about.to_owned()) }, value)
        };
        Self { what, values: names.into_iter().map(value).collect() }
    }

    fn read(&self, text: &str) -> Result<T, String> {
        let found = self.values.iter().find(|(name, _)| name.matches(text, false));
        let names = || self.values.iter().map(|(name, _)| name.get_name());
        found.map(|(_, value)| value.clone()).ok_or_else(|| {
            let known = names().collect::<Vec<_>>().join(", ");
            let suggestion = did_you_mean(text, names());
            format!("no such {}; expected {known}{suggestion}", self.what)
        })
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Choice<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let choice = self.clone();
        (move |text: &str| choice.read(text)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.values.iter().map(|(name, _)| name.clone())))
    }
}

/// Any text, with names that completions offer: the lab reads these values itself, as it reads
/// those of a job file.
#[derive(Clone)]
pub(crate) struct Offered(Vec<PossibleValue>);

impl Offered {
    /// Offers `names`.
    pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(names.into_iter().map(|name| PossibleValue::new(name.to_owned())).collect())
    }
}

impl TypedValueParser for Offered {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        clap::builder::StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().cloned()))
    }
}

/// Arms of the lab; any other text is one of the user's.
pub(crate) fn arms() -> Offered {
    Offered::names(job::arm_names())
}

/// What can be run: built-in jobs and experiments; any other text is a path.
pub(crate) fn jobs() -> Offered {
    let jobs = job::list().iter().map(|job| job.name);
    let experiments = experiments::names().into_iter();
    let mut names: Vec<_> = jobs.chain(experiments).collect();
    // Some jobs have the name of their experiment.
    names.sort_unstable();
    names.dedup();
    Offered::names(names)
}

/// Parts of the built-in jobs, and experiments.
pub(crate) fn parts() -> Offered {
    let jobs: Vec<_> = job::list().iter().filter_map(|job| job::find(job.name).ok()).collect();
    let parts = jobs.iter().flat_map(|job| &job.parts).map(|part| &*part.name);
    let mut names: Vec<_> = parts.chain(experiments::names()).collect();
    names.sort_unstable();
    names.dedup();
    Offered::names(names)
}

/// An experiment.
pub(crate) fn experiment() -> Choice<&'static dyn Experiment> {
    Choice::new("experiment", experiments::ALL.map(|each| (each.name().to_owned(), "", each)))
}

/// The number of a seed, as the name of the job that repeats it.
pub(crate) fn seed() -> Choice<&'static str> {
    let seeds = job::list().iter().filter_map(|job| Some((job, job.name.strip_prefix("seed")?)));
    Choice::new("seed", seeds.map(|(job, number)| (number.to_owned(), job.about, job.name)))
}

/// A whole number within these bounds.
pub(crate) fn whole_in<N>(low: u64, high: u64) -> impl TypedValueParser<Value = N>
where
    N: TryFrom<u64> + Clone + Send + Sync + 'static,
{
    move |text: &str| {
        let number = text.parse::<u64>().ok().filter(|number| (low..=high).contains(number));
        let number = number.and_then(|number| N::try_from(number).ok());
        let (low, high) = (count(low), count(high));
        number.ok_or_else(|| format!("expected a whole number from {low} to {high}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_says_what_was_expected_and_what_is_near() {
        let error = experiment().read("htp").expect_err("unknown");
        assert!(error.starts_with("no such experiment; expected streams, "), "{error}");
        assert!(error.ends_with("; did you mean \"http\"?"), "{error}");
        assert_eq!(experiment().read("http").map(Experiment::name), Ok("http"));
        let error = seed().read("3").expect_err("nothing repeats it");
        assert_eq!(error, "no such seed; expected 0, 1, 2, 4");
        assert_eq!(seed().read("4"), Ok("seed4"));
    }

    #[test]
    fn every_part_of_a_job_is_offered_once() {
        let Offered(parts) = parts();
        let count = |name| parts.iter().filter(|part| part.get_name() == name).count();
        assert_eq!((count("dead"), count("streams")), (1, 1));
    }
}
