//! Interleaved turns: the ratio of one set, the interval over sets, and what the next sets would give.
//!
//! A *set* is one fresh start of all arms of a point; within it the arms take turns, every arm once in
//! each *round*. Called by the controller for each set ([`set_ratio`]), by the runner for how to go on
//! ([`next_step`]) and by `verdict` for its forecasts. It must never see a verdict, and never take
//! rounds for samples of their own: what a start decides (addresses, placement) is the same in all
//! rounds of a set, so the interval is one over sets.
//!
//! How effort is best split between the two levels follows Kalibera & Jones, "Rigorous benchmarking
//! in reasonable time" (ISMM 2013).

use std::time::Duration;

use super::student::student_t_quantile;
use super::summary::{mean, standard_deviation};

/// Share of a set's rounds that is trimmed at each end: a round that an interrupt or a neighbour hit
/// is one of them in most cases.
const TRIMMED_SHARE: f64 = 0.1;
/// Whoever stops as soon as an interval is narrow stops more often where the spread is underestimated;
/// from fewer sets than this such an interval would hold the truth in less than 93 % of cases.
pub const SETS_MIN: u32 = 8;
/// No forecast goes beyond this.
pub const SETS_MAX: u32 = 200;
/// Below this many rounds trimming takes one round at each end or none.
pub const ROUNDS_MIN: u32 = 20;
/// More rounds tell nothing that a fresh start would not tell better.
pub const ROUNDS_MAX: u32 = 400;
/// An effect this many half-widths away from none need not be measured more closely.
const CERTAIN_HALF_WIDTHS: f64 = 4.0;

/// What one set says of an arm: the figures of `record::Turns`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SetRatio {
    /// Trimmed mean over the rounds of ln(arm / baseline), formed within each round.
    pub log_ratio: f64,
    /// Deviation of a round: over the root of the rounds it is the standard error of `log_ratio`
    /// within this set. None below three rounds.
    pub round_sd: Option<f64>,
    /// Rounds in which both had a figure.
    pub rounds: u32,
}

/// The ratio of one set from the costs of arm and baseline, round by round.
///
/// A round without a figure is one whose value is not a finite number above 0, or that only one of the
/// slices has; it is left out. None without any round. The deviation is the winsorised one over the
/// share that is kept (Tukey & McLaughlin 1963; Yuen 1974), which a few wild rounds leave alone.
#[must_use]
pub fn set_ratio(arm: &[f64], baseline: &[f64]) -> Option<SetRatio> {
    let has_figure = |value: f64| value.is_finite() && value > 0.0;
    let mut logs: Vec<f64> = arm
        .iter()
        .zip(baseline)
        .filter(|(above, below)| has_figure(**above) && has_figure(**below))
        .map(|(above, below)| above.ln() - below.ln())
        .collect();
    logs.sort_unstable_by(f64::total_cmp);
    let rounds = logs.len();
    let cut = (rounds as f64 * TRIMMED_SHARE) as usize;
    let kept = &logs[cut..rounds - cut];
    let log_ratio = mean(kept)?;
    let (first, last) = (kept[0], kept[kept.len() - 1]);
    let winsorised: Vec<f64> = logs.iter().map(|log| log.clamp(first, last)).collect();
    let share_kept = kept.len() as f64 / rounds as f64;
    let round_sd = standard_deviation(&winsorised).filter(|_| rounds > 2).map(|sd| sd / share_kept);
    Some(SetRatio { log_ratio, round_sd, rounds: rounds as u32 })
}

/// The two levels of variance behind the ratios of sets, as standard deviations of log ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// What a fresh start changes; 0 where the rounds alone explain that the sets differ.
    pub between_sets: f64,
    /// What differs from round to round; over the root of a set's rounds it is what they add to the
    /// deviation of the set.
    pub within_set: f64,
}

impl Levels {
    /// The levels of two sets or more whose rounds have a deviation.
    #[must_use]
    pub fn of(sets: &[SetRatio]) -> Option<Self> {
        let logs: Vec<f64> = sets.iter().map(|set| set.log_ratio).collect();
        let all = standard_deviation(&logs)?.powi(2);
        let rounds: Vec<(f64, f64)> = sets
            .iter()
            .filter_map(|set| Some((set.round_sd?.powi(2), f64::from(set.rounds))))
            .collect();
        let within = mean(&rounds.iter().map(|(square, _)| *square).collect::<Vec<_>>())?;
        let explained =
            mean(&rounds.iter().map(|(square, rounds)| square / rounds).collect::<Vec<_>>())?;
        let between_sets = (all - explained).max(0.0).sqrt();
        Some(Self { between_sets, within_set: within.sqrt() })
    }
}

/// What sets and rounds cost in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Starting and ending the arms of a set.
    pub set: Duration,
    /// One round: a turn of each arm with its lead-in.
    pub round: Duration,
}

/// Further sets of so many rounds each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Sets, at least 1 and at most [`SETS_MAX`].
    pub sets: u32,
    /// Rounds in each, [`ROUNDS_MIN`] to [`ROUNDS_MAX`].
    pub rounds: u32,
}

impl Step {
    /// How long it takes.
    #[must_use]
    pub fn time(self, effort: Effort) -> Duration {
        (effort.set + effort.round * self.rounds) * self.sets
    }
}

/// The rounds for each set that give the narrowest interval for the time, whatever that time is.
///
/// The optimum of Kalibera & Jones: the root of what a set costs in rounds, times what a round varies
/// in sets; within [`ROUNDS_MIN`] and [`ROUNDS_MAX`].
#[must_use]
pub fn best_rounds(levels: Levels, effort: Effort) -> u32 {
    let cost = effort.set.as_secs_f64() / effort.round.as_secs_f64();
    let best = cost.sqrt() * levels.within_set / levels.between_sets;
    // Not a number where a round costs nothing or nothing varies: the fewest rounds do.
    let best = if best.is_nan() { f64::from(ROUNDS_MIN) } else { best };
    best.ceil().clamp(f64::from(ROUNDS_MIN), f64::from(ROUNDS_MAX)) as u32
}

/// What to measure next for one row so that its 95 % interval gets a half-width of `half_width`
/// (0.01 for ±1 %), in the least time; none where it has that, or where the row is certain: farther
/// from no effect than four half-widths.
///
/// Looks at widths only, so that stopping by it favours no outcome. The forecast of few sets is a
/// rough one: measure a few of the sets it asks for, then ask again. Below [`SETS_MIN`] sets it asks
/// for these first; where [`SETS_MAX`] further sets do not suffice, it asks for as many.
#[must_use]
pub fn next_step(done: &[SetRatio], half_width: f64, effort: Effort) -> Option<Step> {
    let sets_done = u32::try_from(done.len()).unwrap_or(u32::MAX);
    let levels = Levels::of(done);
    let rounds = levels.map_or(ROUNDS_MIN, |levels| best_rounds(levels, effort));
    if sets_done < SETS_MIN {
        return Some(Step { sets: SETS_MIN - sets_done, rounds });
    }
    let logs: Vec<f64> = done.iter().map(|set| set.log_ratio).collect();
    let set_sd = standard_deviation(&logs)?;
    let centre = mean(&logs)?.abs();
    let wanted = half_width.max(centre / CERTAIN_HALF_WIDTHS);
    if reach(set_sd.powi(2) / f64::from(sets_done), sets_done) <= wanted {
        return None;
    }
    let levels = levels.unwrap_or(Levels { between_sets: set_sd, within_set: 0.0 });
    let mut cheapest: Option<Step> = None;
    for sets in 1..=SETS_MAX {
        let is_dearer =
            |best: Step| Step { sets, rounds: ROUNDS_MIN }.time(effort) > best.time(effort);
        if cheapest.is_some_and(is_dearer) {
            break;
        }
        let all = sets_done + sets;
        let variance_wanted = (wanted / reach(1.0, all)).powi(2);
        // The mean of all sets has the sum of their variances over the square of their number.
        let sum_left =
            variance_wanted * f64::from(all).powi(2) - f64::from(sets_done) * set_sd.powi(2);
        let for_rounds = sum_left / f64::from(sets) - levels.between_sets.powi(2);
        let rounds = (levels.within_set.powi(2) / for_rounds).ceil().max(f64::from(ROUNDS_MIN));
        if for_rounds > 0.0 && rounds <= f64::from(ROUNDS_MAX) {
            let step = Step { sets, rounds: rounds as u32 };
            cheapest =
                [cheapest, Some(step)].into_iter().flatten().min_by_key(|it| it.time(effort));
        }
    }
    Some(cheapest.unwrap_or(Step { sets: SETS_MAX, rounds }))
}

/// About how many more sets like the `done` ones make an interval at `level` (0.05 for 95 %) as narrow
/// as `half_width`, given the deviation of a set; at least 1, at most [`SETS_MAX`].
pub(super) fn more_sets(done: usize, set_sd: f64, half_width: f64, level: f64) -> u32 {
    let is_enough = |more: u32| {
        let sets = done as u32 + more;
        let t = student_t_quantile(1.0 - level / 2.0, (sets - 1).max(1));
        t * set_sd / f64::from(sets).sqrt() <= half_width
    };
    let counts: Vec<u32> = (1..=SETS_MAX).collect();
    let short = counts.partition_point(|more| !is_enough(*more));
    counts.get(short).copied().unwrap_or(SETS_MAX)
}

/// Half-width of the 95 % interval of a mean of so many sets that has this variance.
fn reach(variance: f64, sets: u32) -> f64 {
    student_t_quantile(0.975, (sets - 1).max(1)) * variance.sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::*;

    const EFFORT: Effort =
        Effort { set: Duration::from_millis(500), round: Duration::from_millis(20) };

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn the_ratio_of_a_set_is_the_trimmed_mean_of_its_rounds() {
        // Ten rounds: the least and the greatest log are cut, those between are 0.01 to 0.08.
        let logs = [-9.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 5.0];
        let baseline = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0];
        let arm: Vec<f64> =
            logs.iter().zip(baseline).map(|(log, cost): (&f64, f64)| cost * log.exp()).collect();
        let set = set_ratio(&arm, &baseline).expect("ten rounds");
        close(set.log_ratio, 0.045);
        assert_eq!(set.rounds, 10);
        // Winsorised: 0.01, 0.01 .. 0.08, 0.08; squares about 0.045 sum to 0.00665; over 9, root,
        // over the share of eight in ten.
        close(set.round_sd.expect("a deviation"), (0.00665_f64 / 9.0).sqrt() / 0.8);
    }

    #[test]
    fn rounds_that_one_of_both_missed_are_left_out() {
        let arm = [2.0, f64::NAN, 2.0, 0.0, 2.0, f64::INFINITY, 2.0, 7.0];
        let baseline = [1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0];
        let set = set_ratio(&arm, &baseline).expect("three rounds");
        assert_eq!((set.rounds, set.round_sd), (3, Some(0.0)));
        close(set.log_ratio, 2.0_f64.ln());
        assert_eq!(set_ratio(&[f64::NAN], &[1.0]), None);
        assert_eq!(set_ratio(&[], &[1.0]), None);
        assert_eq!(set_ratio(&[1.0, 1.0], &[1.0, 1.0]).expect("two").round_sd, None);
    }

    #[test]
    fn the_deviation_of_a_round_tells_the_error_of_the_set() {
        let mut rng = Rng::seeded(11);
        let sets: Vec<SetRatio> = (0..400)
            .map(|_| {
                // One round in ten is three times as wild.
                let mut cost = || {
                    let wild = if rng.below(10) == 0 { 3.0 } else { 1.0 };
                    (0.1 * wild * rng.normal()).exp()
                };
                let (arm, baseline): (Vec<f64>, Vec<f64>) =
                    (0..50).map(|_| (cost(), cost())).unzip();
                set_ratio(&arm, &baseline).expect("fifty rounds")
            })
            .collect();
        let logs: Vec<f64> = sets.iter().map(|set| set.log_ratio).collect();
        let error = standard_deviation(&logs).expect("many sets");
        let told: Vec<f64> = sets.iter().filter_map(|set| set.round_sd).collect();
        let told = mean(&told).expect("many sets") / 50.0_f64.sqrt();
        assert!((0.9..1.1).contains(&(told / error)), "{told} is told of {error}");
    }

    /// Sets whose logs lie `spread` above and below `centre` in turn.
    fn sets(count: usize, centre: f64, spread: f64, round_sd: f64, rounds: u32) -> Vec<SetRatio> {
        let log = |i: usize| centre + spread * (i % 2 * 2) as f64 - spread;
        (0..count)
            .map(|i| SetRatio { log_ratio: log(i), round_sd: Some(round_sd), rounds })
            .collect()
    }

    #[test]
    fn the_variance_is_split_between_and_within_sets() {
        let levels = Levels::of(&sets(10, 0.0, 0.01, 0.05, 100)).expect("ten sets");
        close(levels.within_set, 0.05);
        close(
            levels.between_sets,
            (0.01_f64.powi(2) * 10.0 / 9.0 - 0.05_f64.powi(2) / 100.0).sqrt(),
        );
        let alike = Levels::of(&sets(10, 0.0, 0.001, 0.05, 100)).expect("ten sets");
        assert_eq!(alike.between_sets, 0.0);
        assert_eq!(Levels::of(&sets(1, 0.0, 0.01, 0.05, 100)), None);
    }

    #[test]
    fn the_best_rounds_weigh_both_costs_and_both_variances() {
        let levels = Levels { between_sets: 0.01, within_set: 0.1 };
        // A set costs 25 rounds and varies a tenth of one: 5 times 10.
        assert_eq!(best_rounds(levels, EFFORT), 50);
        assert_eq!(best_rounds(Levels { between_sets: 0.0, ..levels }, EFFORT), ROUNDS_MAX);
        assert_eq!(best_rounds(Levels { within_set: 0.0, ..levels }, EFFORT), ROUNDS_MIN);
        let nothing = Levels { between_sets: 0.0, within_set: 0.0 };
        assert_eq!(best_rounds(nothing, EFFORT), ROUNDS_MIN);
        assert_eq!(best_rounds(levels, Effort { round: Duration::ZERO, ..EFFORT }), ROUNDS_MAX);
    }

    #[test]
    fn the_first_sets_are_asked_for_before_anything_else() {
        let first = next_step(&[], 0.01, EFFORT);
        assert_eq!(first, Some(Step { sets: SETS_MIN, rounds: ROUNDS_MIN }));
        let second =
            next_step(&sets(2, 0.0, 0.01, 0.1, 40), 0.5, EFFORT).expect("some are missing");
        assert_eq!(second.sets, SETS_MIN - 2);
        assert!((ROUNDS_MIN..=ROUNDS_MAX).contains(&second.rounds), "{second:?}");
    }

    #[test]
    fn a_row_that_is_narrow_or_certain_needs_no_more() {
        assert_eq!(next_step(&sets(8, 0.0, 0.005, 0.05, 50), 0.01, EFFORT), None);
        let wide = sets(8, 0.0, 0.02, 0.05, 50);
        assert!(next_step(&wide, 0.01, EFFORT).is_some());
        // Half-width 1.8 %, an effect of 30 %.
        assert_eq!(next_step(&sets(8, 0.3, 0.02, 0.05, 50), 0.01, EFFORT), None);
        let without_spread = sets(8, 0.1, 0.0, 0.0, 50);
        assert_eq!(next_step(&without_spread, 0.01, EFFORT), None);
    }

    #[test]
    fn the_step_reaches_the_width_and_no_cheaper_one_does() {
        let done = sets(8, 0.0, 0.015, 0.08, 40);
        let step = next_step(&done, 0.01, EFFORT).expect("half-width is 1.3 %");
        let levels = Levels::of(&done).expect("eight sets");
        let old = 8.0 * 0.015_f64.powi(2) * 8.0 / 7.0;
        let width = |step: Step| {
            let (new, all) = (f64::from(step.sets), 8 + step.sets);
            let set =
                levels.between_sets.powi(2) + levels.within_set.powi(2) / f64::from(step.rounds);
            let sum = old + new * set;
            reach(sum / f64::from(all).powi(2), all)
        };
        assert!(width(step) <= 0.01, "{step:?}");
        for sets in 1..60 {
            for rounds in ROUNDS_MIN..=ROUNDS_MAX {
                let other = Step { sets, rounds };
                let is_cheaper = other.time(EFFORT) < step.time(EFFORT);
                assert!(!is_cheaper || width(other) > 0.01, "{other:?} beats {step:?}");
            }
        }
    }

    #[test]
    fn a_hopeless_row_asks_for_no_more_than_the_limit() {
        let hopeless = next_step(&sets(8, 0.0, 0.8, 0.1, 40), 0.001, EFFORT).expect("very wide");
        assert_eq!(hopeless.sets, SETS_MAX);
        assert_eq!(more_sets(6, 0.8, 0.0, 0.05), SETS_MAX);
    }

    #[test]
    fn further_sets_narrow_the_interval_and_its_factor() {
        // t(0.975, 2) = 4.30 over the root of 3 is 2.48; t(0.975, 5) = 2.57 over that of 6 is 1.05.
        assert_eq!(more_sets(3, 1.0, 1.06, 0.05), 3);
        assert_eq!(more_sets(3, 1.0, 9.0, 0.05), 1);
        assert!(more_sets(3, 1.0, 1.06, 0.001) > 3);
    }
}
