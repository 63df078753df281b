//! How much to measure: rounds of a set, further sets, further blocks.
//!
//! Called by the runner after the first set ([`rounds_within`]), after each set ([`Aim`]) and after each block of
//! whole runs ([`StoppingRule`]), and by `verdict` for its forecasts. It must never look at a verdict, a p-value or
//! on which side of 1 an estimate lies: only at how many sets or blocks there are and how wide the intervals are.
//!
//! How effort is best split between sets and rounds follows Kalibera & Jones, "Rigorous benchmarking
//! in reasonable time" (ISMM 2013).

use std::time::Duration;

use super::ratio::{BETWEEN_SETS, RatioEstimate, SetRatio};
use super::summary::{mean, median, student_t_quantile};

/// No forecast goes beyond so many sets.
pub const SETS_MAX: u32 = 200;
/// With fewer sets a row has no verdict.
pub const SETS_MIN: u32 = 5;
/// Sets of every point before points are finished one after the other: two have a spread.
const SETS_OF_ALL: u32 = 2;
/// With fewer sets no interval counts as narrow: stopping as soon as it is would stop more often where
/// the spread is underestimated, which few sets do most.
pub const SETS_NARROW: u32 = 8;
/// Fewer rounds have no spread that could be estimated.
pub const ROUNDS_MIN: u32 = 8;
/// More rounds tell nothing that a fresh start would not tell better.
pub const ROUNDS_MAX: u32 = 200;
/// An effect of half again or more need not be measured more closely than to this part of it.
const LARGE: f64 = 1.5;
const PART_OF_LARGE: f64 = 1.0 / 8.0;
/// An interval of this part of an effect leaves no doubt about it.
const PART_THAT_DECIDES: f64 = 1.0 / 3.0;
/// Steps in which what is needed is cut to what fits.
const PARTS: u32 = 100;

/// What sets and rounds cost in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Starting and ending the arms of a set.
    pub set: Duration,
    /// One round: a turn of each arm with its lead-in.
    pub round: Duration,
}

impl Effort {
    /// The rounds that take as long as starting and ending their set: with fewer, most of the time goes
    /// into what measures nothing.
    fn rounds_worth_a_start(self) -> u32 {
        let rounds = self.set.as_secs_f64() / self.round.as_secs_f64().max(f64::MIN_POSITIVE);
        (rounds as u32).clamp(ROUNDS_MIN, ROUNDS_MAX)
    }
}

/// What further sets are for. Only widths count, never a verdict: stopping as soon as an
/// interval excludes 1 finds differences that are none. An effect matters by its size alone, which must
/// be three half-widths at least before it allows to stop, and that chance hardly ever makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// The half-width asked for, or a third of the effect, which is beyond doubt then.
    Decide,
    /// The half-width asked for; of an effect of half again or more, an eighth of it.
    Narrow,
}

impl Aim {
    /// The half-width to reach where `half_width` is asked for, both of a log ratio.
    #[must_use]
    pub fn half_width(self, log_ratio: f64, half_width: f64) -> f64 {
        let effect = log_ratio.abs();
        match self {
            Self::Decide => half_width.max(effect * PART_THAT_DECIDES),
            Self::Narrow if effect > LARGE.ln() => half_width.max(effect * PART_OF_LARGE),
            Self::Narrow => half_width,
        }
    }

    /// About how many more sets an interval of `found` needs, as it narrows with the root of their
    /// number; none where it is narrow enough and rests on [`SETS_NARROW`] at least.
    #[must_use]
    pub fn sets_missing(
        self,
        sets: u32,
        log_ratio: f64,
        found: f64,
        half_width: f64,
    ) -> Option<u32> {
        let times = (found / self.half_width(log_ratio, half_width)).powi(2);
        let by_width = (f64::from(sets) * (times - 1.0)).ceil().max(0.0) as u32;
        let missing = by_width.max(SETS_NARROW.saturating_sub(sets));
        (missing > 0).then_some(missing)
    }
}

/// What the first set at a point says of the sets that follow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trial {
    /// What they will cost.
    pub effort: Effort,
    /// The ratio of each arm beside the baseline.
    pub rows: Vec<SetRatio>,
}

impl Trial {
    /// The rounds of a set with which time buys most, where there is no end to sets: the more, the longer a
    /// start takes beside a round and the further rounds lie apart beside starts (Kalibera & Jones,
    /// section 5). `between_starts` is how far starts lie apart at least, as a deviation of log ratios.
    #[must_use]
    pub fn optimal_rounds(&self, between_starts: f64) -> u32 {
        let deviations: Vec<f64> = self.rows.iter().filter_map(|row| row.round_sd).collect();
        let within = median(&deviations).unwrap_or(0.0);
        let start =
            self.effort.set.as_secs_f64() / self.effort.round.as_secs_f64().max(f64::MIN_POSITIVE);
        let rounds = start.sqrt() * within / between_starts.max(BETWEEN_SETS);
        (rounds as u32).clamp(ROUNDS_MIN, ROUNDS_MAX)
    }

    /// The rounds that each of `sets` sets needs so that the 95 % interval of a row gets the
    /// half-width that `wanted` says for its effect (0.01 for ±1 %); none where a set can't have so
    /// many.
    fn rounds_needed(
        &self,
        sets: u32,
        wanted: &dyn Fn(f64) -> f64,
    ) -> impl Iterator<Item = Option<u32>> {
        self.rows.iter().filter_map(move |row| {
            let of_a_set = (wanted(row.log_ratio) / reach(1.0 / f64::from(sets), sets)).powi(2);
            let for_rounds = (of_a_set - BETWEEN_SETS.powi(2)).max(f64::MIN_POSITIVE);
            let needed = (row.round_sd?.powi(2) / for_rounds).ceil();
            Some((needed <= f64::from(ROUNDS_MAX)).then_some((needed as u32).max(ROUNDS_MIN)))
        })
    }
}

/// Rounds for each of `sets` further sets of every point, within [`ROUNDS_MIN`] and [`ROUNDS_MAX`].
///
/// They take at least as long as it takes to start and end a set, where that fits `time`. First what
/// decides a usual row: an interval of `small`, the effect that is called small, or of a part of the
/// effect found; where that does not fit `time`, the same part of it everywhere. What is left of `time`
/// makes as many rows as it can as narrow as `half_width`, those that cost least first.
#[must_use]
pub fn rounds_within(
    points: &[&Trial],
    sets: u32,
    small: f64,
    half_width: f64,
    time: Duration,
) -> Vec<u32> {
    let sets = sets.max(2);
    let time_of = |rounds: &[u32]| {
        let each = points.iter().zip(rounds);
        let set: Duration =
            each.map(|(point, rounds)| point.effort.set + point.effort.round * *rounds).sum();
        set * sets
    };
    let decides = |effect: f64| Aim::Decide.half_width(effect, small);
    let needed: Vec<f64> = points
        .iter()
        .map(|point| {
            let rows = point.rounds_needed(sets, &decides);
            let rows: Vec<f64> = rows.map(|rounds| rounds.unwrap_or(ROUNDS_MAX).into()).collect();
            mean(&rows).unwrap_or(0.0)
        })
        .collect();
    let part = |part: f64| -> Vec<u32> {
        let rounds = |(needed, point): (&f64, &&Trial)| {
            ((needed * part) as u32).clamp(point.effort.rounds_worth_a_start(), ROUNDS_MAX)
        };
        needed.iter().zip(points).map(rounds).collect()
    };
    let fits = |rounds: &Vec<u32>| time_of(rounds) <= time;
    let parts = (1..=PARTS).rev().map(|parts| part(f64::from(parts) / f64::from(PARTS)));
    let parts = parts.chain([part(0.0)]);
    let Some(mut rounds) = parts.into_iter().find(fits) else {
        return vec![ROUNDS_MIN; points.len()];
    };

    let narrow = |effect: f64| Aim::Narrow.half_width(effect, half_width);
    let rows: Vec<Vec<u32>> =
        points.iter().map(|point| point.rounds_needed(sets, &narrow).flatten().collect()).collect();
    loop {
        let left = time.saturating_sub(time_of(&rounds));
        let steps = (0..points.len()).flat_map(|point| {
            let now = rounds[point];
            let wide: Vec<u32> = rows[point].iter().copied().filter(|row| *row > now).collect();
            wide.clone().into_iter().map(move |to| {
                let narrowed = wide.iter().filter(|row| **row <= to).count() as u32;
                (points[point].effort.round * (to - now) * sets, narrowed, point, to)
            })
        });
        let next = steps.filter(|(cost, ..)| *cost <= left).min_by_key(|step| step.0 / step.1);
        let Some((_, _, point, to)) = next else { return rounds };
        rounds[point] = to;
    }
}

/// What a point has had, and what another set of it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoFar {
    /// How long its last set took.
    pub set: Duration,
    /// Sets that it has had.
    pub sets: u32,
}

/// Whether the point at `own` has its next set now, where so much time is `left` for all `points`.
///
/// Without [`SETS_MIN`] sets a row has no verdict, and a machine that is busy may be too slow for so many at every point:
/// after the first two points get there one after the other, those whose sets take least time first. One
/// for which the time does not suffice waits, but for the first of them, and one that has them does not take the time of
/// those for which it does.
#[must_use]
pub fn comes_now(points: &[SoFar], own: usize, left: Duration) -> bool {
    let point = points[own];
    if point.sets < SETS_OF_ALL {
        return true;
    }
    let missing = |point: &SoFar| point.set * SETS_MIN.saturating_sub(point.sets);
    let mut lacking: Vec<usize> = (0..points.len()).collect();
    lacking.retain(|place| points[*place].sets < SETS_MIN);
    lacking.sort_by_key(|place| missing(&points[*place]));
    let mut reserved = Duration::ZERO;
    for (nth, &place) in lacking.iter().enumerate() {
        if reserved + missing(&points[place]) > left {
            // The time is there: where nobody gets so far with it, the next one gets what it can.
            if nth == 0 && place == own {
                return true;
            }
            break;
        }
        reserved += missing(&points[place]);
        if place == own {
            return true;
        }
    }
    point.sets >= SETS_MIN && reserved + point.set <= left
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

/// How many blocks to run, and how narrow the intervals shall become.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoppingRule {
    /// Blocks that are always run.
    pub blocks_min: usize,
    /// Blocks after which the experiment ends, however wide the intervals.
    pub blocks_max: usize,
    /// Half-width of the 95 % interval to reach, 0.015 for ±1.5 %.
    pub target_half_width: f64,
}

impl Default for StoppingRule {
    /// The laboratory's defaults: 12 blocks, up to 30 while an interval is wider than ±1.5 %.
    fn default() -> Self {
        Self { blocks_min: 12, blocks_max: 30, target_half_width: 0.015 }
    }
}

impl StoppingRule {
    /// Whether another block is needed after `blocks` of them, given the estimates that matter.
    ///
    /// Pass the headline comparison *and* the A/A arm: a narrow comparison judged against a wide noise
    /// level would be decided by the noise of its yardstick. An estimate without an interval counts as
    /// too wide. The time budget is the caller's: it may always stop earlier.
    #[must_use]
    pub fn needs_more_blocks(&self, blocks: usize, estimates: &[RatioEstimate]) -> bool {
        if blocks < self.blocks_min {
            return true;
        }
        blocks < self.blocks_max && estimates.iter().any(|estimate| self.is_too_wide(estimate))
    }

    fn is_too_wide(&self, estimate: &RatioEstimate) -> bool {
        estimate.ci95.is_none_or(|ci95| ci95.half_width_log() > self.target_half_width)
    }
}

#[cfg(test)]
mod tests {
    use super::super::confidence::Resampling;
    use super::*;

    const EFFORT: Effort =
        Effort { set: Duration::from_millis(500), round: Duration::from_millis(20) };

    #[test]
    fn rounds_pay_where_a_start_is_dear_and_rounds_are_wild() {
        let trial = |set_ms, round_sd| {
            let effort =
                Effort { set: Duration::from_millis(set_ms), round: Duration::from_millis(20) };
            Trial {
                effort,
                rows: vec![SetRatio { log_ratio: 0.0, round_sd: Some(round_sd), rounds: 8 }],
            }
        };
        assert_eq!(trial(1280, 0.03).optimal_rounds(0.0), 80);
        assert_eq!(trial(20, 0.03).optimal_rounds(0.0), 10);
        assert_eq!(trial(1280, 0.001).optimal_rounds(0.0), ROUNDS_MIN);
        assert_eq!(trial(100_000, 0.3).optimal_rounds(0.0), ROUNDS_MAX);
        // Starts that lie twice as far apart are worth half the rounds.
        assert_eq!(trial(1280, 0.03).optimal_rounds(0.006), 40);
    }

    fn trial(log_ratio: f64, round_sd: f64) -> Trial {
        let row = SetRatio { log_ratio, round_sd: Some(round_sd), rounds: 12 };
        Trial { effort: EFFORT, rows: vec![row; 3] }
    }

    /// Rounds that take as long as starting a set of [`EFFORT`].
    const LEAST: u32 = 25;

    /// Rounds of eight sets where nothing limits them.
    fn rounds(trial: &Trial, small: f64, half_width: f64) -> u32 {
        rounds_within(&[trial], 8, small, half_width, Duration::from_secs(6000))[0]
    }

    #[test]
    fn rounds_are_what_the_rows_need_and_certain_ones_need_few() {
        // t(0.975, 7) = 2.365: each of eight sets may vary by 0.01196, of which a start takes 0.003.
        let of_a_set = (0.01_f64 * 8.0_f64.sqrt() / 2.365).powi(2) - 0.003_f64.powi(2);
        let expected = (0.1_f64.powi(2) / of_a_set) as u32;
        let found = rounds(&trial(0.0, 0.1), 0.02, 0.01);
        assert!(found.abs_diff(expected) <= 1, "{found}, {expected} expected");
        assert_eq!(rounds(&trial(0.3, 0.1), 0.02, 0.01), found);
        assert_eq!(rounds(&trial(0.5, 0.1), 0.02, 0.01), LEAST, "an eighth of 0.5 is 0.06");
        assert_eq!(rounds(&trial(2.0, 0.1), 0.02, 0.01), LEAST);
        assert_eq!(rounds(&trial(0.0, 9.0), 0.02, 0.01), ROUNDS_MAX);
        assert_eq!(rounds(&Trial::default(), 0.02, 0.01), ROUNDS_MIN);
        let decided = rounds(&trial(0.0, 0.1), 0.02, 0.02);
        assert!((LEAST..found / 2).contains(&decided), "{decided} of {found}");
    }

    fn time_of(points: &[&Trial], rounds: &[u32]) -> Duration {
        let each = points.iter().zip(rounds);
        each.map(|(point, rounds)| (point.effort.set + point.effort.round * *rounds) * 8).sum()
    }

    #[test]
    fn what_decides_is_cut_alike_where_it_does_not_fit() {
        let wide = trial(0.0, 0.2);
        let narrow = trial(0.0, 0.16);
        let points = [&wide, &narrow];
        let whole = rounds_within(&points, 8, 0.02, 0.02, Duration::from_secs(600));
        let time = time_of(&points, &whole) * 3 / 4;
        let cut = rounds_within(&points, 8, 0.02, 0.01, time);
        let took = time_of(&points, &cut);
        assert!(took <= time && took > time * 9 / 10, "{cut:?} of {whole:?}");
        let parts = |index: usize| f64::from(cut[index]) / f64::from(whole[index]);
        assert!((parts(0) - parts(1)).abs() < 0.05, "{cut:?} of {whole:?}");
        assert_eq!(rounds_within(&points, 8, 0.02, 0.01, Duration::ZERO), [ROUNDS_MIN; 2]);
    }

    #[test]
    fn what_is_left_goes_where_a_row_costs_least() {
        let cheap = trial(0.0, 0.1);
        let mut dear = trial(0.0, 0.1);
        dear.effort.round = EFFORT.round * 10;
        let points = [&cheap, &dear];
        let decided = rounds_within(&points, 8, 0.02, 0.02, Duration::from_secs(600));
        let narrow = rounds(&cheap, 0.02, 0.01);
        // Enough for the cheap point, and not for the other one.
        let time = time_of(&points, &[narrow, decided[1]]) + dear.effort.round * 8;
        assert_eq!(rounds_within(&points, 8, 0.02, 0.01, time), [narrow, decided[1]]);
        assert_eq!(rounds_within(&points, 8, 0.02, 0.01, time * 10), [narrow; 2]);
    }

    #[test]
    fn a_slow_machine_finishes_the_points_that_it_can_one_after_the_other() {
        let points =
            |sets: u32| [10, 2, 4].map(|seconds| SoFar { set: Duration::from_secs(seconds), sets });
        let now = |points: &[SoFar], left| {
            [0, 1, 2].map(|own| comes_now(points, own, Duration::from_secs(left)))
        };
        assert_eq!(now(&points(1), 0), [true; 3], "two sets of every point");
        // Three more of all take 48 s.
        assert_eq!(now(&points(2), 48), [true; 3]);
        assert_eq!(now(&points(2), 47), [false, true, true]);
        assert_eq!(now(&points(2), 17), [false, true, false]);
        assert_eq!(now(&points(2), 5), [false, true, false], "no time is left unused");
        // The cheapest is done: it does not take the time that the others need.
        let mut some = points(3);
        some[1].sets = 5;
        assert_eq!(now(&some, 30), [true, true, true]);
        assert_eq!(now(&some, 28), [true, false, true]);
        assert_eq!(now(&some, 12), [false, true, true]);
        assert_eq!(now(&points(5), 4), [false, true, true]);
    }

    #[test]
    fn a_hopeless_row_asks_for_no_more_than_the_limit() {
        assert_eq!(more_sets(6, 0.8, 0.0, 0.05), SETS_MAX);
    }

    #[test]
    fn further_sets_narrow_the_interval_and_its_factor() {
        // t(0.975, 2) = 4.30 over the root of 3 is 2.48; t(0.975, 5) = 2.57 over that of 6 is 1.05.
        assert_eq!(more_sets(3, 1.0, 1.06, 0.05), 3);
        assert_eq!(more_sets(3, 1.0, 9.0, 0.05), 1);
        assert!(more_sets(3, 1.0, 1.06, 0.001) > 3);
    }

    /// An estimate from blocks that lie `spread` above and below 1 in turn.
    fn spread_by(spread: f64) -> RatioEstimate {
        let arm: Vec<f64> = (0..12).map(|i| 1.0 + spread * f64::from(i % 2 * 2 - 1)).collect();
        RatioEstimate::from_pairs(&arm, &[1.0; 12], Resampling::default()).expect("good blocks")
    }

    #[test]
    fn the_least_blocks_are_always_run_and_the_most_never_exceeded() {
        let rule = StoppingRule::default();
        assert!(rule.needs_more_blocks(11, &[spread_by(0.0)]));
        assert!(!rule.needs_more_blocks(12, &[spread_by(0.0)]));
        assert!(rule.needs_more_blocks(29, &[spread_by(0.5)]));
        assert!(!rule.needs_more_blocks(30, &[spread_by(0.5)]));
    }

    #[test]
    fn one_wide_interval_is_enough_to_proceed() {
        let rule = StoppingRule::default();
        let narrow = spread_by(0.005);
        let wide = spread_by(0.1);
        assert!(!rule.needs_more_blocks(12, &[narrow, narrow]));
        assert!(rule.needs_more_blocks(12, &[narrow, wide]));
        let missing = RatioEstimate { ci95: None, ..narrow };
        assert!(rule.needs_more_blocks(12, &[narrow, missing]));
    }
}
