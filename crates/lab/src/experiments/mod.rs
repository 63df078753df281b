//! The experiments: one folder each, and the one list of them.
//!
//! `contract` says what an experiment has to answer. Adding one is a folder with its answers, its module
//! and its line in the one list. No macro makes one of both: rustfmt finds no module in a macro.

mod chain;
mod contract;
pub mod herd;
pub(crate) mod http;
mod pipes;
mod poller;
mod preload;
mod proxy;
mod streams;

pub use contract::Generator;
pub use contract::{Cost, Curve, Experiment, Facts, Metric, Needs, OfGenerator};
pub use contract::{Section, Topic};
pub(crate) use http::{missing_generator, running_fault};

use crate::arm::Peer;
use crate::axis::Axis;

/// The one list, in the order in which experiments are shown.
const LIST: &[&dyn Experiment] = &[
    &streams::Streams,
    &pipes::Pipes,
    &chain::Chain,
    &http::Http,
    &proxy::Proxy,
    &poller::Poller,
    &preload::Preload,
    &herd::Herd,
];

/// Every experiment.
pub const ALL: [&dyn Experiment; LIST.len()] = *LIST.first_chunk().expect("as many as it has");

/// What the plan adds to the axes of a point whose server takes several processes: their number.
pub const PROCESSES: &str = "processes";

/// The experiment called `name`.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Experiment> {
    ALL.into_iter().find(|experiment| experiment.name == name)
}

/// Every axis once, with the experiments that have it.
pub(crate) fn axes() -> Vec<(&'static Axis, Vec<&'static dyn Experiment>)> {
    let mut axes: Vec<(&Axis, Vec<&dyn Experiment>)> = Vec::new();
    for experiment in ALL {
        for axis in experiment.axes {
            match axes.iter_mut().find(|(known, _)| known == &axis) {
                Some((_, owners)) => owners.push(experiment),
                None => axes.push((axis, vec![experiment])),
            }
        }
    }
    axes
}

/// Every baseline server and other system that an experiment can compare with, each once.
#[must_use]
pub fn peers() -> Vec<Peer> {
    let mut peers: Vec<Peer> = Vec::new();
    for peer in ALL.iter().flat_map(|experiment| experiment.peers) {
        if !peers.contains(peer) {
            peers.push(*peer);
        }
    }
    peers
}

/// The sections of reports that experiments bring, each once.
pub(crate) fn sections() -> Vec<&'static Section> {
    let mut sections: Vec<&Section> = Vec::new();
    for section in ALL.iter().filter_map(|experiment| experiment.section) {
        if sections.iter().all(|known| known.id != section.id) {
            sections.push(section);
        }
    }
    sections
}

/// Their names.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|experiment| experiment.name).collect()
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
    fn no_system_is_called_like_a_driver_or_a_way_of_an_experiment() {
        for peer in peers() {
            assert!(peer.name.parse::<pollux_engine::Driver>().is_err(), "{peer:?}");
            assert!(ALL.iter().all(|experiment| !experiment.ways.contains(&peer)), "{peer:?}");
        }
    }

    #[test]
    fn every_name_finds_its_experiment_and_every_default_is_accepted_by_its_own_axis() {
        for experiment in ALL {
            assert_eq!(by_name(experiment.name), Some(experiment));
            for axis in experiment.axes {
                assert!(axis.defaults().iter().all(|value| axis.holds(value)), "{}", axis.name);
            }
        }
    }
}
