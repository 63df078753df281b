//! Whole simulated experiments: does each recipe as a whole keep its promises?
//!
//! Whole runs: each experiment goes through the same steps as the laboratory: a baseline, its A/A
//! copy and one arm per block, the default stopping rule on both comparisons, a noise level from the A/A
//! arm, the default least effect, and the default interval method (with fewer resamples, for speed).
//!
//! Turns: the costs of arm and baseline drift together from round to round, single rounds are
//! wild, and each set has a start of its own: two levels of variance, as they were found on machines
//! with neighbours. Every simulated row goes through [`set_ratio`], [`RatioEstimate::over_sets`] and
//! [`holm`], as measured ones do.

use std::time::Duration;

use super::confidence::Resampling;
use super::random::Rng;
use super::ratio::{RatioEstimate, SetRatio, set_ratio};
use super::sample_size::{Aim, Effort, StoppingRule, Trial, rounds_within};
use super::verdict::{Delta, Direction, Row, Verdict, decision_delta, holm, noise_level};

const EXPERIMENTS: usize = 1_000;
const MIN_EFFECT: f64 = 0.03;
/// Relative noise of one run; a ratio of two runs carries 2.8 %.
const NOISE: f64 = 0.02;
const RESAMPLING: Resampling = Resampling { resamples: 200, seed: 1 };

/// The verdict of one experiment whose arm is truly `true_ratio` times the baseline.
fn experiment(true_ratio: f64, rng: &mut Rng) -> Verdict {
    let rule = StoppingRule::default();
    let mut baseline = Vec::new();
    let mut copy = Vec::new();
    let mut arm = Vec::new();
    loop {
        let mut run = |ratio: f64| 1e6 * ratio * (NOISE * rng.normal()).exp();
        baseline.push(run(1.0));
        copy.push(run(1.0));
        arm.push(run(true_ratio));
        // The rule asks for both comparisons; when the first is too wide, the second need not be computed.
        let is_wide =
            |estimates: &[RatioEstimate]| rule.needs_more_blocks(baseline.len(), estimates);
        let estimate = |values: &[f64]| {
            RatioEstimate::from_pairs(values, &baseline, RESAMPLING).expect("good blocks")
        };
        if is_wide(&[]) {
            continue;
        }
        let same = estimate(&copy);
        if is_wide(&[same]) {
            continue;
        }
        let other = estimate(&arm);
        if !is_wide(&[other]) {
            let delta = decision_delta(MIN_EFFECT, noise_level(&same));
            return Verdict::of(&other, delta, Direction::HigherIsBetter);
        }
    }
}

/// How many of the experiments at this true ratio end in a verdict that `is_counted`.
fn verdicts(true_ratio: f64, is_counted: fn(Verdict) -> bool) -> usize {
    let mut rng = Rng::seeded(2_006);
    (0..EXPERIMENTS).filter(|_| is_counted(experiment(true_ratio, &mut rng))).count()
}

#[test]
fn identical_systems_are_hardly_ever_called_different() {
    let different = verdicts(1.0, Verdict::is_difference);
    assert!(different < EXPERIMENTS / 20, "{different} of {EXPERIMENTS}");
}

#[test]
fn an_effect_of_eight_percent_is_found() {
    let faster = verdicts(1.08, |verdict| verdict == Verdict::Faster);
    assert!(faster > EXPERIMENTS * 95 / 100, "{faster} of {EXPERIMENTS}");
}

#[test]
fn an_effect_of_five_percent_is_not_called_equivalent() {
    let equivalent = verdicts(1.05, |verdict| verdict == Verdict::Equivalent);
    assert!(equivalent < EXPERIMENTS / 100, "{equivalent} of {EXPERIMENTS}");
}

/// The least effect of a job, in turns.
const MIN_EFFECT_IN_TURNS: f64 = 0.02;
/// Deviations of a set's start and of a round's log ratio, wild rounds included.
const MACHINES: [(f64, f64); 3] = [(0.004, 0.06), (0.009, 0.06), (0.009, 0.20)];
/// One round in so many is wild, by this factor.
const WILD: (usize, f64) = (12, 5.0);
/// A round of three arms with turns of 5 ms and a set that starts in half a second.
const EFFORT: Effort = Effort { set: Duration::from_millis(500), round: Duration::from_millis(22) };
const BUDGET: Duration = Duration::from_secs(60);
/// Sets that are planned.
const SETS: u32 = 8;

/// One set of so many rounds in which the arm costs `ratio` times the baseline.
fn set(ratio: f64, (between, within): (f64, f64), rounds: u32, rng: &mut Rng) -> SetRatio {
    let of_the_start = ratio * (between * rng.normal()).exp();
    let mut drift = 0.0;
    let of_the_wild = 1.0 + (WILD.1.powi(2) - 1.0) / WILD.0 as f64;
    let each = within / (2.0 * of_the_wild).sqrt();
    let (arm, baseline): (Vec<f64>, Vec<f64>) = (0..rounds)
        .map(|_| {
            drift += 0.02 * rng.normal();
            let mut cost = |of_the_arm: f64| {
                let wild = if rng.below(WILD.0) == 0 { WILD.1 } else { 1.0 };
                of_the_arm * (drift + each * wild * rng.normal()).exp()
            };
            (cost(of_the_start), cost(1.0))
        })
        .unzip();
    set_ratio(&arm, &baseline).expect("rounds with figures")
}

fn row(sets: &[SetRatio]) -> Row {
    let estimate = RatioEstimate::over_sets(sets).expect("sets");
    Row::judged(estimate, Delta::in_turns(MIN_EFFECT_IN_TURNS), Direction::LowerIsBetter)
}

/// A row measured as a run with a budget does it: a first set, so many planned by it, then longer ones until
/// the row is as narrow as asked or the budget is over.
fn measured(ratio: f64, machine: (f64, f64), half_width: f64, rng: &mut Rng) -> Row {
    let first = set(ratio, machine, 12, rng);
    let trial = Trial { effort: EFFORT, rows: vec![first] };
    let planned = BUDGET.mul_f64(0.6);
    let rounds = rounds_within(&[&trial], SETS - 1, MIN_EFFECT_IN_TURNS, half_width, planned)[0];
    let longer = rounds.max(trial.optimal_rounds(0.0));
    let time_of = |rounds: u32| (EFFORT.set + EFFORT.round * rounds).as_secs_f64();
    let left = BUDGET.as_secs_f64() - time_of(12) - time_of(rounds) * f64::from(SETS - 1);
    let most = (SETS as usize) + (left / time_of(longer)).max(0.0) as usize;
    let mut firsts = std::iter::once(first)
        .chain((1..SETS).map(|_| set(ratio, machine, rounds, rng)).collect::<Vec<_>>());
    until(Aim::Narrow, most, half_width, || {
        firsts.next().unwrap_or_else(|| set(ratio, machine, longer, rng))
    })
}

/// Sets until `aim` is reached or there are `most` of them, asked after each as the runner does.
fn until(aim: Aim, most: usize, half_width: f64, mut another: impl FnMut() -> SetRatio) -> Row {
    let mut sets = Vec::new();
    loop {
        sets.push(another());
        let row = row(&sets);
        let width = row.estimate.ci95.map_or(f64::INFINITY, |ci| ci.half_width_log());
        let log = row.estimate.ratio.ln();
        let missing = aim.sets_missing(sets.len() as u32, log, width, half_width);
        if sets.len() >= most || missing.is_none() {
            return row;
        }
    }
}

#[test]
fn a_planted_slowdown_of_two_percent_is_found_within_a_minute() {
    const RUNS: usize = 40;
    let mut rng = Rng::seeded(13);
    for machine in MACHINES {
        let found = (0..RUNS)
            .filter(|_| measured(1.02, machine, 0.005, &mut rng).verdict == Verdict::Slower)
            .count();
        assert!(found * 100 >= RUNS * 95, "{found} of {RUNS} at {machine:?}");
    }
}

#[test]
fn the_same_program_twice_is_held_by_its_interval_and_hardly_ever_called_different() {
    const ROWS: usize = 4_800;
    /// Rows of one table, which are corrected together.
    const TABLE: usize = 40;
    // Starts that differ by more than rounds do, too: they weigh against sets that are long.
    let machines = MACHINES.into_iter().chain([(0.02, 0.06), (0.02, 0.20)]);
    let machines: Vec<(f64, f64)> = machines.collect();
    let mut rng = Rng::seeded(14);
    let mut rows: Vec<Row> = (0..ROWS)
        .map(|index| {
            let machine = machines[index % machines.len()];
            // Some tables have sets of one length, as the planned ones are, others some that are as long as
            // later sets can be.
            let long = if (index / TABLE).is_multiple_of(2) { 25 } else { 100 };
            let rounds = [25, 25, 25, 25, 25, 25, 25, long, long];
            let sets: Vec<SetRatio> =
                rounds.into_iter().map(|rounds| set(1.0, machine, rounds, &mut rng)).collect();
            row(&sets)
        })
        .collect();
    let holds = |row: &&Row| row.estimate.ci95.is_some_and(|ci| ci.lo <= 1.0 && 1.0 <= ci.hi);
    let held = rows.iter().filter(holds).count();
    assert!((ROWS * 93..=ROWS * 98).contains(&(held * 100)), "{held} of {ROWS}");
    rows.chunks_mut(TABLE).for_each(holm);
    let different = rows.iter().filter(|row| row.verdict.is_difference()).count();
    assert!(different * 100 <= ROWS, "{different} of {ROWS}");
}

#[test]
fn stopping_when_the_interval_is_narrow_keeps_what_the_interval_promises() {
    const ROWS: usize = 1_500;
    let mut rng = Rng::seeded(15);
    let mut held = 0;
    let mut narrow = 0;
    for _ in 0..ROWS {
        let row = measured(1.0, (0.009, 0.03), 0.006, &mut rng);
        let ci = row.estimate.ci95.expect("sets");
        held += usize::from(ci.lo <= 1.0 && 1.0 <= ci.hi);
        narrow += usize::from(ci.half_width_log() <= 0.006);
    }
    assert!((ROWS * 93..=ROWS * 98).contains(&(held * 100)), "{held} of {ROWS}");
    assert!(narrow * 100 >= ROWS * 95, "{narrow} of {ROWS} within the budget");
}

/// Sets continue by widths: where fresh starts differ much, asking after each set whether the row is
/// decided by now would call one row in three different that is not.
#[test]
fn measuring_until_there_is_no_doubt_finds_no_false_differences() {
    const ROWS: usize = 400;
    let mut rng = Rng::seeded(16);
    for between in [0.01, 0.03] {
        let differ = (0..ROWS)
            .filter(|_| {
                let another = || {
                    let log_ratio = between * rng.normal();
                    SetRatio { log_ratio, round_sd: Some(0.02), rounds: 12 }
                };
                until(Aim::Decide, 200, 0.01, another).verdict.is_difference()
            })
            .count();
        assert!(differ * 100 <= ROWS * 8, "{differ} of {ROWS} at {between}");
    }
}
