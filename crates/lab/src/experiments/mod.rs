//! The experiments: one folder each, and the one list of them.
//!
//! `contract` says what an experiment has to answer. Adding one is a folder with its answers and a
//! line in [`ALL`].

mod chain;
mod contract;
pub mod herd;
pub(crate) mod http;
mod pipes;
mod streams;

pub(crate) use chain::missing as missing_library;
pub use contract::{Cost, Curve, Experiment, Metric, Needs};
pub use http::Generator;
pub(crate) use http::{PLACES, missing_generator, running_fault};

/// Every experiment, in the order of lists.
pub const ALL: [&dyn Experiment; 5] =
    [&streams::Streams, &pipes::Pipes, &chain::Chain, &http::Http, &herd::Herd];

/// What the plan adds to the axes of a point whose server takes several processes: their number.
pub const PROCESSES: &str = "processes";

/// The experiment called `name`.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Experiment> {
    ALL.into_iter().find(|experiment| experiment.name() == name)
}

/// Their names.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|experiment| experiment.name()).collect()
}

/// The experiment called `name`, which there is.
#[cfg(test)]
pub(crate) fn known(name: &str) -> &'static dyn Experiment {
    by_name(name).expect(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_experiment_and_every_default_is_accepted_by_its_own_axis() {
        for experiment in ALL {
            assert_eq!(by_name(experiment.name()), Some(experiment));
            for axis in experiment.axes() {
                assert!(axis.defaults().iter().all(|value| axis.holds(value)), "{}", axis.name);
            }
        }
    }
}
