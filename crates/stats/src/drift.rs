//! Whether a cost changed while it was measured: within sets, from their first rounds to their last, or over sets of one
//! process, from the first sets to the last.
//!
//! Called by the judge: a row whose arm still changes describes no state of it, whatever its interval says. The
//! interval itself can't show this where every set changes alike. Chance must hardly ever look like a change, for it
//! costs a row its verdict: the change has to be seen in the sets together, in the rounds, and be worth a word.

use super::summary::{mean, median, standard_deviation, student_t_quantile};

/// Quantile of Student's t that a change over sets has to leave behind: one of 200 rows would by chance, were it not
/// for the other conditions.
const QUANTILE: f64 = 0.9975;
/// With fewer sets Student's t says little: there every set has to change the same way, by more.
const SETS_FOR_T: usize = 5;
const FEW_SETS_FACTOR: f64 = 2.0;
/// Standard errors by the rounds of all sets; those of a single set, which no other one confirms.
const ERRORS_MIN: f64 = 4.0;
const ERRORS_OF_ONE_MIN: f64 = 6.0;
/// Deviation of a median over that of a mean.
const OF_MEDIAN: f64 = 1.2533;
/// Sets in the first and the last third of those of one process, at least.
const THIRD_MIN: usize = 2;

/// How a log cost, or a log ratio of costs, changed from the first to the last third of the rounds of a set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SetChange {
    pub change: f64,
    /// Its standard error by the rounds; 0 where they say nothing about it.
    pub error: f64,
}

/// The change within sets, where it is certain and at least `least`; negative where the cost falls.
#[must_use]
pub fn change_within_sets(sets: &[SetChange], least: f64) -> Option<f64> {
    let changes: Vec<f64> = sets.iter().map(|set| set.change).collect();
    let change = median(&changes)?;
    let squares: Vec<f64> = sets.iter().map(|set| set.error.powi(2)).collect();
    let root = (sets.len() as f64).sqrt();
    let by_rounds = OF_MEDIAN * mean(&squares)?.sqrt() / root;
    let is_seen_in_sets = match standard_deviation(&changes) {
        Some(deviation) if sets.len() >= SETS_FOR_T => {
            let t = student_t_quantile(QUANTILE, sets.len() as u32 - 1);
            change.abs() > t * OF_MEDIAN * deviation / root
        }
        _ => {
            change.abs() >= least * FEW_SETS_FACTOR
                && changes.iter().all(|other| other.signum() == change.signum())
        }
    };
    let errors = if sets.len() == 1 { ERRORS_OF_ONE_MIN } else { ERRORS_MIN };
    let is_certain = is_seen_in_sets && change.abs() > errors * by_rounds;
    (is_certain && change.abs() >= least).then_some(change)
}

/// The change of a log ratio from the first third of these sets to the last, where it is certain and at least `least`.
#[must_use]
pub fn change_over_sets(log_ratios: &[f64], least: f64) -> Option<f64> {
    let third = log_ratios.len() / 3;
    if third < THIRD_MIN {
        return None;
    }
    let first = &log_ratios[..third];
    let last = &log_ratios[log_ratios.len() - third..];
    let change = mean(last)? - mean(first)?;
    let variance = standard_deviation(first)?.powi(2) + standard_deviation(last)?.powi(2);
    let error = (variance / third as f64).sqrt();
    let t = student_t_quantile(QUANTILE, 2 * (third as u32 - 1));
    (change.abs() >= least && change.abs() > t * error).then_some(change)
}

#[cfg(test)]
mod tests {
    use super::super::random::Rng;
    use super::*;

    /// Sets whose rounds have this deviation, a tenth of them hit by something, and that change by so much.
    fn sets(random: &mut Rng, count: usize, deviation: f64, change: f64) -> Vec<SetChange> {
        let third = 8.0_f64;
        let error = deviation * (2.0 / third).sqrt();
        let set = |_| {
            let hit = if random.below(10) == 0 { 3.0 } else { 1.0 };
            SetChange { change: change + random.normal() * error * hit, error }
        };
        (0..count).map(set).collect()
    }

    #[test]
    fn chance_makes_a_change_in_less_than_one_of_a_hundred_rows() {
        let mut random = Rng::seeded(7);
        for count in [1, 2, 3, 5, 8, 20, 100] {
            for deviation in [0.02, 0.1, 0.4] {
                let rows = (0..400).map(|_| sets(&mut random, count, deviation, 0.0));
                let found = rows.filter(|row| change_within_sets(row, 0.04).is_some()).count();
                assert!(found < 4, "{found} of 400, {count} sets, {deviation}");
            }
        }
        for count in [6, 9, 30] {
            let row = |_| {
                let row = sets(&mut random, count, 0.05, 0.0);
                row.iter().map(|set| set.change).collect::<Vec<f64>>()
            };
            let rows: Vec<Vec<f64>> = (0..400).map(row).collect();
            let found = rows.iter().filter(|row| change_over_sets(row, 0.04).is_some()).count();
            assert!(found < 4, "{found} of 400 over {count} sets");
        }
    }

    #[test]
    fn what_falls_in_every_set_is_found_with_its_size() {
        let mut random = Rng::seeded(11);
        for count in [2, 5, 8] {
            let row = sets(&mut random, count, 0.1, -1.2);
            let found = change_within_sets(&row, 0.04).expect("it falls");
            assert!((found + 1.2).abs() < 0.2, "{found}");
        }
        let small = sets(&mut random, 30, 0.05, 0.08);
        assert!(change_within_sets(&small, 0.04).is_some_and(|change| change > 0.04));
        assert_eq!(change_within_sets(&sets(&mut random, 30, 0.01, 0.02), 0.04), None);
        assert_eq!(change_within_sets(&[], 0.04), None);
    }

    #[test]
    fn a_process_that_gets_cheaper_from_set_to_set_is_found() {
        let falling = [2.15, 1.9, 2.1, 1.4, 0.9, 0.8, 0.7, 0.72, 0.69];
        assert!(change_over_sets(&falling, 0.04).is_some_and(|change| change < -1.0));
        assert_eq!(change_over_sets(&falling[..5], 0.04), None, "too few");
        assert_eq!(change_over_sets(&[0.7, 0.71, 0.7, 0.7, 0.71, 0.72], 0.04), None);
    }
}
