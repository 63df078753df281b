//! Interleaved turns: the ratio of one set, the interval over sets, and what the next sets would give.
//!
//! A *set* is one fresh start of all arms of a point; within it the arms take turns, every arm once in
//! each *round*. Called by the runner for each set ([`set_ratio`]) and after the first one for how to go
//! on ([`rounds_within`]), and by `verdict` for its forecasts. It must never see a verdict, and never take
//! rounds for samples of their own: what a start decides (addresses, placement) is the same in all
//! rounds of a set, so the interval is one over sets.
//!
//! How effort is best split between the two levels follows Kalibera & Jones, "Rigorous benchmarking
//! in reasonable time" (ISMM 2013).

use std::time::Duration;

use super::summary::student_t_quantile;
use super::summary::{mean, median, standard_deviation};

/// Share of a set's rounds that is trimmed at each end: rounds that an interrupt or a neighbour hit.
/// On shared machines they are many: with a tenth instead, the same interval takes half as many rounds
/// again.
const TRIMMED_SHARE: f64 = 0.25;
/// No forecast goes beyond so many sets.
pub const SETS_MAX: u32 = 200;
/// With fewer sets a row has no verdict.
pub const SETS_MIN: u32 = 5;
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
/// How far fresh processes of one program lie apart at least, as a deviation of log ratios: so much is
/// taken for granted where one set can't tell.
const BETWEEN_SETS: f64 = 0.003;
/// Steps in which what is needed is cut to what fits.
const PARTS: u32 = 100;

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

impl SetRatio {
    /// The mean of the ratios of one arm to two copies of the baseline. The arm's own part of the
    /// deviation is in both, those of the copies are not: of twice a variance one and a half are left.
    #[must_use]
    pub fn mean(self, other: Self) -> Self {
        let sd = self.round_sd.zip(other.round_sd);
        Self {
            log_ratio: f64::midpoint(self.log_ratio, other.log_ratio),
            round_sd: sd.map(|(one, two)| f64::midpoint(one, two) * 0.75_f64.sqrt()),
            rounds: self.rounds.min(other.rounds),
        }
    }
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

/// How much each set counts in a mean over sets, 1 on average: a set of more rounds is known more closely,
/// unless fresh starts differ by more than rounds do.
pub(super) fn weights(sets: &[SetRatio]) -> Vec<f64> {
    let levels = Levels::of(sets).unwrap_or(Levels { between_sets: 0.0, within_set: 0.0 });
    let start = levels.between_sets.max(BETWEEN_SETS).powi(2);
    let each =
        |set: &SetRatio| (start + levels.within_set.powi(2) / f64::from(set.rounds.max(1))).recip();
    let weights: Vec<f64> = sets.iter().map(each).collect();
    let average = mean(&weights).unwrap_or(1.0);
    weights.into_iter().map(|weight| weight / average).collect()
}

/// Sets alike but for their ratios.
#[cfg(test)]
pub(super) fn alike(log_ratios: &[f64]) -> Vec<SetRatio> {
    let set =
        |log_ratio: &f64| SetRatio { log_ratio: *log_ratio, round_sd: Some(0.02), rounds: 12 };
    log_ratios.iter().map(set).collect()
}

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
    /// section 5).
    #[must_use]
    pub fn rounds_that_pay(&self) -> u32 {
        let deviations: Vec<f64> = self.rows.iter().filter_map(|row| row.round_sd).collect();
        let within = median(&deviations).unwrap_or(0.0);
        let start =
            self.effort.set.as_secs_f64() / self.effort.round.as_secs_f64().max(f64::MIN_POSITIVE);
        let rounds = start.sqrt() * within / BETWEEN_SETS;
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
        // Ten rounds: two are cut at each end, those between are 0.02 to 0.07.
        let logs = [-9.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 5.0];
        let baseline = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0];
        let arm: Vec<f64> =
            logs.iter().zip(baseline).map(|(log, cost): (&f64, f64)| cost * log.exp()).collect();
        let set = set_ratio(&arm, &baseline).expect("ten rounds");
        close(set.log_ratio, 0.045);
        assert_eq!(set.rounds, 10);
        // Winsorised: three times 0.02, 0.03 .. 0.06, three times 0.07; squares about 0.045 sum to
        // 0.00425; over 9, root, over the share of six in ten.
        close(set.round_sd.expect("a deviation"), (0.00425_f64 / 9.0).sqrt() / 0.6);
    }

    #[test]
    fn two_copies_of_the_baseline_narrow_a_ratio_and_shift_none() {
        let mut rng = Rng::seeded(12);
        // Skewed, as costs are: now and then a turn takes half as long again.
        let mut costs = || -> Vec<f64> {
            let mut cost = || if rng.below(3) == 0 { 1.0 + 0.5 * rng.normal().abs() } else { 1.0 };
            (0..40).map(|_| cost()).collect()
        };
        let sets: Vec<[f64; 2]> = (0..2_000)
            .map(|_| {
                let (arm, one, two) = (costs(), costs(), costs());
                let ratio = |baseline: &[f64]| set_ratio(&arm, baseline).expect("forty rounds");
                [ratio(&one).log_ratio, ratio(&one).mean(ratio(&two)).log_ratio]
            })
            .collect();
        let of = |index: usize| -> Vec<f64> { sets.iter().map(|set| set[index]).collect() };
        let [one, both] = [0, 1].map(|index| standard_deviation(&of(index)).expect("many sets"));
        assert!(both < one * 0.95, "{both} is not below {one}");
        let shift = mean(&of(1)).expect("many sets");
        assert!(shift.abs() < 4.0 * both / 2_000.0_f64.sqrt(), "{shift} with {both}");
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
        assert!((0.9..1.1).contains(&(told / error)), "{told} is estimated for {error}");
    }

    /// Sets whose logs lie `spread` above and below `centre` in turn.
    fn sets(count: usize, centre: f64, spread: f64, round_sd: f64, rounds: u32) -> Vec<SetRatio> {
        let log = |i: usize| centre + spread * (i % 2 * 2) as f64 - spread;
        (0..count)
            .map(|i| SetRatio { log_ratio: log(i), round_sd: Some(round_sd), rounds })
            .collect()
    }

    #[test]
    fn sets_weigh_by_their_rounds_unless_starts_differ_by_more() {
        let set = |log_ratio, rounds| SetRatio { log_ratio, round_sd: Some(0.04), rounds };
        let share = |far: f64| {
            let logs = [far, -far, far, -far];
            let sets: Vec<SetRatio> = logs
                .into_iter()
                .zip([10, 10, 40, 40])
                .map(|(log, rounds)| set(log, rounds))
                .collect();
            let weights = weights(&sets);
            close(weights.iter().sum(), 4.0);
            weights[2] / weights[0]
        };
        assert!((3.4..4.0).contains(&share(0.0)), "{}", share(0.0));
        assert!((1.0..1.1).contains(&share(0.1)), "{}", share(0.1));
        close(weights(&[set(0.01, 8)])[0], 1.0);
    }

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
        assert_eq!(trial(1280, 0.03).rounds_that_pay(), 80);
        assert_eq!(trial(20, 0.03).rounds_that_pay(), 10);
        assert_eq!(trial(1280, 0.001).rounds_that_pay(), ROUNDS_MIN);
        assert_eq!(trial(100_000, 0.3).rounds_that_pay(), ROUNDS_MAX);
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
        let (wide, narrow) = (trial(0.0, 0.2), trial(0.0, 0.16));
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
        let (cheap, mut dear) = (trial(0.0, 0.1), trial(0.0, 0.1));
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
}
