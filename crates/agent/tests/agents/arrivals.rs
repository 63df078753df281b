//! When requests of all agents together reach the server: evenly spaced where arrivals are constant, at exponential
//! distances where they are those of a Poisson process.
//!
//! Seeds are fixed, so that the schedules are the same each time. What the machine does in between is not: a pause bunches
//! requests, so a load is judged again where it was disturbed.

use std::time::Instant;

use pollux_load::{Arrival, Plan};

use crate::broker::Broker;
use crate::driven::{agents, lasting, run};
use crate::server::Counting;
use crate::sums::at;

/// Requests per second of all agents: far enough apart that the moments of a scheduler do not count.
const PER_S: f64 = 150.0;
/// Loads that are judged at most.
const TRIES: usize = 4;
/// A distance is even within this part of the mean.
const EVEN: f64 = 1.0 / 3.0;
/// So many of them are, of an even process on a busy machine. A quarter of those of a Poisson process are, which no chance makes
/// so many, and none where all agents send at the same moments.
const EVEN_SHARE: f64 = 0.6;

/// Distances in parts of their mean.
fn distances(came: &[Instant]) -> Vec<f64> {
    let distances = came.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
    let distances: Vec<f64> = distances.collect();
    let mean = distances.iter().sum::<f64>() / distances.len() as f64;
    distances.into_iter().map(|distance| distance / mean).collect()
}

fn even_share(distances: &[f64]) -> f64 {
    let even = distances.iter().filter(|distance| (*distance - 1.0).abs() <= EVEN).count();
    even as f64 / distances.len() as f64
}

/// The statistic of Kolmogorov and Smirnov against exponential distances of the mean 1, in parts of the value that one of a
/// hundred such processes exceeds.
fn beyond_exponential(distances: &[f64]) -> f64 {
    let mut sorted = distances.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let farthest = sorted.iter().enumerate().fold(0.0_f64, |farthest, (number, distance)| {
        let expected = 1.0 - (-distance).exp();
        let below = (expected - number as f64 / count).abs();
        farthest.max(below).max((expected - (number + 1) as f64 / count).abs())
    });
    farthest * count.sqrt() / 1.63
}

fn of_load(arrival: Arrival, holds: impl Fn(&[f64]) -> Result<(), String>) {
    let broker = Broker::start(&[]);
    let _agents = agents(&broker, 3);
    let server = Counting::start();
    let plan = Plan { seed: 7, ..at(arrival, PER_S, PER_S, lasting(&server.url(), 2)) };
    let mut said = Vec::new();
    for _ in 0..TRIES {
        let before = server.requests();
        run(&broker, &plan, 3).expect("a result");
        match holds(&distances(&server.came_after(before))) {
            Ok(()) => return,
            Err(why) => said.push(why),
        }
    }
    panic!("{said:?}");
}

pub(crate) fn constant_ones_of_all_agents_are_even() {
    of_load(Arrival::Constant, |distances| {
        let share = even_share(distances);
        let why = || format!("{share} of {} distances are even", distances.len());
        (share >= EVEN_SHARE).then_some(()).ok_or_else(why)
    });
}

pub(crate) fn random_ones_of_all_agents_are_a_poisson_process() {
    of_load(Arrival::Poisson, |distances| {
        let beyond = beyond_exponential(distances);
        let why = || format!("{beyond} of what {} exponential ones have", distances.len());
        (beyond <= 1.0).then_some(()).ok_or_else(why)
    });
}

/// Neither test passes what the other is for, nor three agents that send at the same moments.
pub(crate) fn the_tests_tell_arrivals_apart() {
    let mut random = fastrand::Rng::with_seed(7);
    let poisson: Vec<f64> = (0..300).map(|_| -(1.0 - random.f64()).ln()).collect();
    let even = [1.0; 300];
    let bunched: Vec<f64> = (0..300).map(|at| if at % 3 == 0 { 3.0 } else { 0.0 }).collect();
    assert!(beyond_exponential(&poisson) <= 1.0 && even_share(&poisson) < 0.4);
    assert!(beyond_exponential(&even) > 5.0 && even_share(&even) >= EVEN_SHARE);
    assert!(beyond_exponential(&bunched) > 5.0 && even_share(&bunched) < 0.1);
}
