//! From raw runs to judged rows: what is faster, by how much, and whether to believe it.
//!
//! A pure function of the plan and of the runs, blocks and counts in a record. The runner calls
//! it after every block or set, so that a run that is stopped has its results. The statistics are in
//! `stats`; here they are applied arm by arm.
//!
//! Whether to believe a record: whole runs stand and fall with a quiet machine, so gates and noise make their badge.
//! Where arms took turns, a disturbance hits both sides of a ratio alike; what speaks for such rows is that the same
//! program twice shows no difference.

use pollux_host::{LOAD_AVERAGE, Reading};
use pollux_report::number::percent;
use pollux_stats::{
    Delta, Direction, Interval, RatioEstimate, Row, SETS_MAX, SETS_MIN, bounds_of_few_sets,
    decision_delta, holm, median, noise_level,
};

use crate::arm::{Arm, ArmKind};
use crate::plan::{Method, Plan, PlannedPoint, SAME_AGAIN};
use crate::record::{
    Badge, Record, ResultRow, RowTurns, Run, SteadyKind, Trust, TurnsQuality, Verdict,
};
use estimates::{Estimated, PointRuns};

pub(crate) use estimates::{more_sets, undecided_rows};
pub(crate) use why::difference;

mod answer;
mod bursts;
mod estimates;
mod forms;
mod settled;
mod starts;
#[cfg(test)]
mod tests;
mod why;

/// More disturbed blocks than this share make the whole record disturbed.
const DISTURBED_SHARE_MAX: f64 = 0.1;
/// An A/A arm that is this far from itself, whole interval, makes the record invalid.
const SELF_DIFFERENCE_MAX: f64 = 0.05;
/// An A/A interval that reaches farther from 1 than this takes the badge away: effects of a tenth,
/// which most people ask for, are then distinguished from noise at no such point.
const NOISE_MAX: f64 = 0.1;
/// The note of rows at a point where the same program twice differs.
const DIFFERS_FROM_ITSELF: &str = "the same program twice differs at this point";

/// The comparisons of a record by the place of their row: those that answer a question, and those of
/// A/A arms that took turns, which are controls. Each kind is corrected for its own number.
#[derive(Default)]
struct Compared {
    questions: Vec<(usize, Row)>,
    controls: Vec<(usize, Row)>,
}

impl Compared {
    /// The bounds of the rows that have few sets, by their place.
    fn bounds_of_few_sets(&self, results: &[ResultRow]) -> Vec<(usize, Interval)> {
        let all = || self.questions.iter().chain(&self.controls);
        let point = |place: usize| {
            let [experiment, point, _] = results[place].key();
            let is_there = |row: &ResultRow| row.key()[..2] == [experiment, point];
            results.iter().position(is_there).unwrap_or(place)
        };
        let estimates: Vec<(usize, &RatioEstimate)> =
            all().map(|(place, row)| (point(*place), &row.estimate)).collect();
        let bounds = bounds_of_few_sets(&estimates).into_iter();
        all().zip(bounds).filter_map(|((place, _), bounds)| Some((*place, bounds?))).collect()
    }
}

/// Fills `results`, `why`, `trust` and `answers` of the record from its runs.
pub fn judge(plan: &Plan, record: &mut Record) {
    record.why = why::rows(plan, record);
    let mut results = Vec::new();
    let mut compared = Compared::default();
    for point in &plan.points {
        judge_point(plan, point, record, &mut results, &mut compared);
    }
    let few = compared.bounds_of_few_sets(&results);
    correct_for_many(&mut results, compared.questions);
    decide_by_bounds(&mut results, few);
    let controls = Control::all(&results);
    starts::allow(plan, record, &mut results);
    let controls_differ = differing_controls(&mut results, compared.controls);
    bound_by_controls(&mut results, &controls);
    settled::withhold(plan, record, &mut results);
    bursts::consider(plan, record, &mut results);
    why::explain(plan, &mut results, &record.why);
    record.results = results;
    record.trust = trust_of(record, controls_differ);
    record.answers = answer::of(plan, record);
}

/// The comparisons whose width decides whether more blocks are needed: at each part's first
/// point every arm against the baseline, the A/A arm among them.
pub(crate) fn headline(plan: &Plan, record: &Record) -> Vec<RatioEstimate> {
    let mut seen_parts = Vec::new();
    let mut estimates = Vec::new();
    for point in &plan.points {
        if point.method == Method::Turns || seen_parts.contains(&point.part) {
            continue;
        }
        seen_parts.push(point.part);
        let runs = PointRuns::of(plan, point, record);
        let others = point.arms.iter().enumerate().filter(|(index, _)| *index != point.baseline);
        estimates.extend(others.filter_map(|(_, arm)| Some(runs.estimate(arm)?.estimate)));
    }
    estimates
}

fn judge_point(
    plan: &Plan,
    point: &PlannedPoint,
    record: &Record,
    results: &mut Vec<ResultRow>,
    compared: &mut Compared,
) {
    let runs = PointRuns::of(plan, point, record);
    let min_effect = plan.job.min_effect;
    let same_again = point.arms.iter().find(|arm| arm.name == SAME_AGAIN);
    let same_again = same_again.and_then(|arm| runs.estimate(arm));
    // Turns have a control in place of a noise level.
    let noise = same_again.filter(|aa| aa.turns.is_none()).and_then(|aa| noise_level(&aa.estimate));
    // What a unit cost in the moments of one set says nothing of the next one: what is shown of all arms of a point
    // rests on one value of the baseline, so that it stands in the order of the ratios.
    let of_baseline = median(&runs.values(&point.arms[point.baseline]));
    for (index, arm) in point.arms.iter().enumerate() {
        let delta = match runs.turns(arm) {
            Some(_) => Delta::in_turns(min_effect),
            None => decision_delta(min_effect, noise),
        };
        let mut row = unjudged(&runs, arm, delta.difference.max(delta.equivalence));
        let is_whole = row.turns.is_none();
        if index == point.baseline {
            if row.value.is_some() {
                (row.verdict, row.ratio, row.ratio_median) =
                    (Verdict::Baseline, Some(1.0), Some(1.0));
            }
        } else if let Some(found) = runs.estimate(arm) {
            let judged = Row::judged(found.estimate, delta, point.metric().direction);
            estimated(&mut row, &found, of_baseline);
            let is_control = arm.name == SAME_AGAIN;
            match (is_control, is_whole) {
                (false, _) => compared.questions.push((results.len(), judged)),
                (true, false) => compared.controls.push((results.len(), judged)),
                (true, true) => {}
            }
            if is_control {
                row.verdict = Verdict::NoiseLevel;
            }
        }
        let has_noise_level = noise.is_some() || point.method == Method::Turns;
        if !has_noise_level && row.verdict != Verdict::Failed && index != point.baseline {
            row.notes.push("no noise level: the A/A arm has no interval".to_owned());
        }
        results.push(row);
    }
}

/// What the comparison with the baseline gave, but for the verdict.
fn estimated(row: &mut ResultRow, found: &Estimated, of_baseline: Option<f64>) {
    let estimate = &found.estimate;
    row.value = of_baseline.map(|value| value * estimate.ratio).or(row.value);
    if found.turns.is_some() {
        // That of the ratio says more.
        row.value_half_width = None;
    }
    row.ratio = Some(estimate.ratio);
    row.ratio_median = Some(estimate.median_ratio);
    row.ci_low = estimate.ci95.map(|ci| ci.lo);
    row.ci_high = estimate.ci95.map(|ci| ci.hi);
    row.blocks = estimate.n as u32;
    row.method = method(found);
    row.outliers = found.outliers;
    if found.has_left_out {
        row.notes.push("disturbed blocks left out".to_owned());
    }
}

/// A row with everything but the comparison.
fn unjudged(runs: &PointRuns<'_>, arm: &Arm, no_difference: f64) -> ResultRow {
    let metric = runs.point.metric();
    let values = runs.values(arm);
    let failures = runs.failures(arm);
    let mut notes = Vec::new();
    if values.is_empty() && failures.is_empty() {
        notes.push("not run".to_owned());
    }
    if let Some(reason) = failures.last() {
        let tried = failures.len() + values.len();
        notes.push(match tried {
            1 => format!("its only run failed: {reason}"),
            _ => format!("{} of {tried} runs failed: {reason}", failures.len()),
        });
    }
    notes.extend(runs.findings(arm));
    notes.extend(runs.other_answer(arm));
    notes.extend(runs.warm_up(arm));
    notes.extend(runs.starts(arm));
    ResultRow {
        experiment: runs.part.to_owned(),
        point: runs.point.point.label.clone(),
        axes: runs.point.point.axes.texts(),
        arm: arm.name.clone(),
        metric: metric.name.to_owned(),
        more_is_better: metric.direction == Direction::HigherIsBetter,
        value: median(&values),
        value_half_width: pollux_stats::mean_half_width_rel(&values),
        unit: metric.unit.to_owned(),
        baseline: runs.point.arms[runs.point.baseline].name.clone(),
        verdict: if values.is_empty() && !failures.is_empty() {
            Verdict::Failed
        } else {
            Verdict::Inconclusive
        },
        blocks: values.len() as u32,
        turns: runs.turns(arm),
        no_difference,
        method: "none".to_owned(),
        notes,
        ..ResultRow::default()
    }
}

/// Holm's correction over all rows of the record, then the verdicts into their rows.
fn correct_for_many(results: &mut [ResultRow], compared: Vec<(usize, Row)>) {
    let (indices, mut rows): (Vec<usize>, Vec<Row>) = compared.into_iter().unzip();
    holm(&mut rows);
    for (index, row) in indices.into_iter().zip(rows) {
        let result = &mut results[index];
        (result.verdict, result.more_blocks) = match row.verdict {
            pollux_stats::Verdict::Faster => (Verdict::Faster, None),
            pollux_stats::Verdict::Slower => (Verdict::Slower, None),
            pollux_stats::Verdict::Equivalent => (Verdict::Equivalent, None),
            pollux_stats::Verdict::Inconclusive { more_blocks } => {
                (Verdict::Inconclusive, Some(more_blocks))
            }
        };
    }
}

/// A large difference needs no five sets.
fn decide_by_bounds(results: &mut [ResultRow], few: Vec<(usize, Interval)>) {
    for (place, bounds) in few {
        let row = &mut results[place];
        row.bounds = Some([bounds.lo, bounds.hi]);
        if bounds.at_least().is_some() && row.verdict == Verdict::Inconclusive {
            let is_better = (bounds.lo > 1.0) == row.more_is_better;
            row.verdict = if is_better { Verdict::Faster } else { Verdict::Slower };
            row.more_blocks = None;
        }
    }
}

/// Marks the points at which an A/A arm that took turns differs from the baseline after the correction
/// for all such arms; gives their number.
fn differing_controls(results: &mut [ResultRow], controls: Vec<(usize, Row)>) -> u32 {
    let (indices, mut rows): (Vec<usize>, Vec<Row>) = controls.into_iter().unzip();
    holm(&mut rows);
    let mut differing = 0;
    for (index, _) in indices.into_iter().zip(rows).filter(|(_, row)| row.is_significant()) {
        // Two starts that live through all sets may.
        if results[index].holds_one() {
            continue;
        }
        differing += 1;
        let experiment = results[index].experiment.clone();
        let point = results[index].point.clone();
        for row in
            results.iter_mut().filter(|row| row.experiment == experiment && row.point == point)
        {
            row.notes.push(DIFFERS_FROM_ITSELF.to_owned());
        }
    }
    differing
}

/// What the same program twice leaves open at a point, in logarithms.
struct Control {
    experiment: String,
    point: String,
    /// How far it is from itself.
    centre: f64,
    /// How far its interval reaches from 1, whichever way.
    reach: f64,
    sets: u32,
}

impl Control {
    /// All of them, by what their sets show: other starts are allowed for in the rows themselves.
    fn all(results: &[ResultRow]) -> Vec<Self> {
        let of_row = |row: &ResultRow| {
            let [low, high] = row.ends()?;
            Some(Self {
                experiment: row.experiment.clone(),
                point: row.point.clone(),
                centre: row.ratio?.ln().abs(),
                reach: low.ln().abs().max(high.ln().abs()),
                sets: row.blocks,
            })
        };
        let is_control =
            |row: &&ResultRow| row.verdict == Verdict::NoiseLevel && row.turns.is_some();
        results.iter().filter(is_control).filter_map(of_row).collect()
    }

    /// How many more sets bring `width`, which narrows with their root, below what an effect is beyond the centre, which
    /// does not narrow; none where nothing is.
    fn more_sets(&self, width: f64, effect: f64) -> Option<u32> {
        let room = effect - self.centre;
        let times = (width / room).powi(2) - 1.0;
        let sets = (f64::from(self.sets) * times).ceil().clamp(1.0, SETS_MAX.into());
        (room > 0.0).then_some(sets as u32)
    }
}

/// Takes the verdicts back whose interval does not lie beyond what the same program twice leaves open at that point. A
/// difference within the minimum effect is then none, where the control is as narrow as that.
fn bound_by_controls(results: &mut [ResultRow], controls: &[Control]) {
    for row in results.iter_mut().filter(|row| row.turns.is_some()) {
        let is_here =
            |control: &&Control| control.experiment == row.experiment && control.point == row.point;
        let Some(control) = controls.iter().find(is_here) else { continue };
        let least = row.no_difference.ln_1p();
        let effect = row.ratio.map_or(0.0, |ratio| ratio.ln().abs());
        // The end that is nearer to 1; of a verdict both lie on one side.
        let nearest = row.ends().map_or(0.0, |[low, high]| low.ln().abs().min(high.ln().abs()));
        let own_width = (control.reach - control.centre).max(0.0);
        row.more_blocks = match row.verdict {
            Verdict::Faster | Verdict::Slower if nearest <= control.reach => {
                if row.is_within_minimum() && control.reach <= least {
                    row.verdict = Verdict::Equivalent;
                    continue;
                }
                control.more_sets(own_width + (effect - nearest).max(0.0), effect)
            }
            Verdict::Equivalent if control.reach > least => control.more_sets(own_width, least),
            _ => continue,
        };
        row.verdict = Verdict::Inconclusive;
        row.notes.push(format!(
            "the same program twice is known to ± {} here: nothing smaller is a verdict",
            percent(control.reach.exp_m1())
        ));
    }
}

fn method(found: &Estimated) -> String {
    if let Some(RowTurns { rounds, turn_us, .. }) = found.turns {
        let sets = found.estimate.n;
        let turn_ms = (turn_us as f64 / 1e2).round() / 10.0;
        let over = match found.estimate.left_out / 2 {
            0 => "Student t over sets".to_owned(),
            1 => "trimmed mean over sets without the outermost one at each end".to_owned(),
            many => format!("trimmed mean over sets without the outermost {many} at each end"),
        };
        return format!("{sets} sets × {rounds} rounds of {turn_ms} ms, {over}");
    }
    match found.estimate.method {
        pollux_stats::Method::Bootstrap => "studentised bootstrap over blocks",
        pollux_stats::Method::StudentT | pollux_stats::Method::Sets => "Student t over blocks",
        pollux_stats::Method::MovingBlockBootstrap => {
            "moving-block bootstrap: successive blocks resemble each other"
        }
    }
    .to_owned()
}

/// Whether an arm is pollux on a mechanism, or a way of it, with the workload as it is by default.
fn is_plain_driver(arm: &Arm) -> bool {
    let is_ours = matches!(arm.kind, ArmKind::Driver(_) | ArmKind::Build(_) | ArmKind::Way(_));
    is_ours && arm.name != SAME_AGAIN
}

/// Whether to believe some rows of a judged record, by their own A/A arms and runs: what is noisy in one table says
/// nothing of another.
pub(crate) fn trust_in(record: &Record, rows: &[&ResultRow]) -> Trust {
    let is_of = |run: &&Run| rows.iter().any(|row| row.key() == run.key());
    let part = Record {
        results: rows.iter().map(|row| (*row).clone()).collect(),
        runs: record.runs.iter().filter(is_of).cloned().collect(),
        blocks: record.blocks.clone(),
        sources: record.sources.clone(),
        environment: record.environment.clone(),
        ..Record::default()
    };
    let is_differing = |row: &&ResultRow| {
        row.verdict == Verdict::NoiseLevel
            && row.turns.is_some()
            && row.notes.iter().any(|note| note == DIFFERS_FROM_ITSELF)
    };
    let differing = part.results.iter().filter(is_differing).count() as u32;
    trust_of(&part, differing)
}

/// Summarises what the gates and the A/A arms say; so many of those that took turns differ from
/// themselves after the correction.
fn trust_of(record: &Record, controls_differ: u32) -> Trust {
    let blocks = record.blocks.len() as u32;
    let blocks_disturbed =
        record.blocks.iter().filter(|block| !block.disturbances.is_empty()).count() as u32;
    let kinds = || record.runs.iter().filter_map(|run| Some(run.measured()?.steadiness.kind));
    let runs_two_regime = kinds().filter(|kind| *kind == SteadyKind::TwoRegime).count() as u32;
    let runs_drifting = kinds().filter(|kind| *kind == SteadyKind::Drift).count() as u32;
    let runs_too_short = kinds().filter(|kind| *kind == SteadyKind::TooShort).count() as u32;
    let is_observed = record
        .blocks
        .iter()
        .any(|block| block.steal.value().is_some() || block.foreign_cpu.value().is_some());
    let noise = widest_noise(&record.results);
    let is_invalid = kinds().next().is_none() || record.results.iter().any(differs_from_itself);
    let is_disturbed = f64::from(blocks_disturbed) > DISTURBED_SHARE_MAX * f64::from(blocks);
    let turns = turns(record, controls_differ);
    let is_all_turns = turns.as_ref().is_some_and(|turns| turns.rows_of_whole_runs == 0);
    let control = turns.as_ref().and_then(|turns| turns.control_half_width_max);
    let badge = if is_invalid {
        Badge::Invalid
    } else if controls_differ > 0 {
        Badge::Biased
    } else if is_all_turns && control.is_some_and(|control| control > NOISE_MAX) {
        Badge::Noisy
    } else if is_all_turns && control.is_some() {
        Badge::Controlled
    } else if is_all_turns {
        Badge::Unwatched
    } else if is_disturbed {
        Badge::Disturbed
    } else if is_noisy(noise) {
        Badge::Noisy
    } else if !is_observed {
        Badge::Unwatched
    } else {
        Badge::Quiet
    };
    Trust {
        badge,
        noise,
        blocks_disturbed,
        blocks,
        steal: mean_steal(record),
        runs_unsteady: runs_two_regime + runs_drifting,
        runs_too_short,
        runs_two_regime,
        runs_failed: (record.runs.len() - kinds().count()) as u32,
        runs: record.runs.len() as u32,
        hardware_counters: hardware(record),
        turns,
    }
}

/// What speaks for the rows in turns; none where there are none.
fn turns(record: &Record, controls_differ: u32) -> Option<TurnsQuality> {
    let has_ratio = |row: &&ResultRow| row.ratio.is_some() && row.verdict != Verdict::Baseline;
    let (in_turns, whole): (Vec<&ResultRow>, Vec<&ResultRow>) =
        record.results.iter().filter(has_ratio).partition(|row| row.turns.is_some());
    let is_control = |row: &&ResultRow| row.verdict == Verdict::NoiseLevel;
    let interval = |row: &&ResultRow| row.ci_low.zip(row.ci_high);
    let half_width = |(low, high): (f64, f64)| ((high / low).ln() / 2.0).exp_m1();
    // The interval of fewer sets is wide on any machine.
    let has_sets = |row: &&ResultRow| row.blocks >= SETS_MIN;
    let controls = in_turns.iter().copied().filter(is_control).filter(has_sets);
    let controls: Vec<(f64, f64)> = controls.filter_map(|row| interval(&row)).collect();
    let rows: Vec<&ResultRow> = in_turns.iter().copied().filter(|row| !is_control(row)).collect();
    let range = |values: &dyn Fn(&ResultRow) -> u32| {
        let values = in_turns.iter().map(|row| values(row));
        Some([values.clone().min()?, values.max()?])
    };
    Some(TurnsQuality {
        sets: range(&|row| row.blocks)?,
        rounds: range(&|row| row.turns.map_or(0, |turns| turns.rounds))?,
        rows: rows.len() as u32,
        rows_of_whole_runs: whole.iter().filter(|row| !is_control(row)).count() as u32,
        half_width_max: rows.iter().filter_map(interval).map(half_width).reduce(f64::max),
        controls: controls.len() as u32,
        control_half_width_max: controls.iter().copied().map(half_width).reduce(f64::max),
        controls_hold: controls.iter().filter(|(low, high)| *low <= 1.0 && 1.0 <= *high).count()
            as u32,
        controls_differ,
        load_average: record.fact(LOAD_AVERAGE).cloned(),
    })
}

/// The A/A row of whole runs whose interval reaches farthest from 1.
fn widest_noise(results: &[ResultRow]) -> Option<[f64; 3]> {
    let of_row = |row: &ResultRow| Some([row.ratio?, row.ci_low?, row.ci_high?]);
    let is_noise_level =
        |row: &&ResultRow| row.verdict == Verdict::NoiseLevel && row.turns.is_none();
    let noise = results.iter().filter(is_noise_level).filter_map(of_row);
    noise.max_by(|a, b| reach(a).total_cmp(&reach(b)))
}

/// Whether the widest A/A interval takes the badge of a quiet machine away; also asked of records that
/// an earlier version judged.
pub(crate) fn is_noisy(noise: Option<[f64; 3]>) -> bool {
    noise.is_some_and(|noise| reach(&noise) > 1.0 + NOISE_MAX)
}

/// The ratio that an interval reaches, whichever way.
fn reach(noise: &[f64; 3]) -> f64 {
    noise[2].max(1.0 / noise[1])
}

fn differs_from_itself(row: &ResultRow) -> bool {
    row.verdict == Verdict::NoiseLevel
        && (row.turns.is_none() || row.blocks >= SETS_MIN)
        && row.ci_low.zip(row.ci_high).is_some_and(|(low, high)| {
            low > 1.0 + SELF_DIFFERENCE_MAX || high < 1.0 / (1.0 + SELF_DIFFERENCE_MAX)
        })
}

fn mean_steal(record: &Record) -> Reading<f64> {
    let readings: Vec<f64> =
        record.blocks.iter().filter_map(|block| block.steal.value().copied()).collect();
    match (readings.is_empty(), record.blocks.first()) {
        (false, _) => Reading::Value(readings.iter().sum::<f64>() / readings.len() as f64),
        (true, Some(block)) => block.steal.clone(),
        (true, None) => Reading::unavailable("no block was finished"),
    }
}

fn hardware(record: &Record) -> Reading<String> {
    let source = record.sources.iter().find(|source| source.name == "hardware counters");
    match source {
        Some(source) if source.available => Reading::Value("available".to_owned()),
        Some(source) => Reading::Unavailable {
            reason: source.reason.clone().unwrap_or_else(|| "no reason given".to_owned()),
            enable: source.enable.clone(),
        },
        None => Reading::unavailable("not probed"),
    }
}

/// A row that the tests of this crate fill in.
#[cfg(test)]
pub(crate) fn row_for_tests(arm: &str, verdict: Verdict) -> ResultRow {
    ResultRow {
        experiment: "streams".into(),
        point: "pipe".into(),
        arm: arm.into(),
        metric: "events per second".into(),
        more_is_better: true,
        value: Some(1.0),
        unit: "events/s".into(),
        baseline: "epoll".into(),
        verdict,
        blocks: 12,
        no_difference: 0.03,
        ..ResultRow::default()
    }
}

/// The same for an arm that took turns, and so has a cost.
#[cfg(test)]
pub(crate) fn row_in_turns(arm: &str, verdict: Verdict) -> ResultRow {
    let turns =
        RowTurns { rounds: 80, turn_us: 5000, between_sets: Some(0.005), within_set: Some(0.08) };
    let row = row_for_tests(arm, verdict).of_cost("CPU per event");
    ResultRow { turns: Some(turns), no_difference: 0.02, ..row }
}

#[cfg(test)]
impl ResultRow {
    /// With this ratio and its interval.
    pub(crate) fn with_interval(self, [ratio, low, high]: [f64; 3]) -> Self {
        Self { ratio: Some(ratio), ci_low: Some(low), ci_high: Some(high), ..self }
    }

    /// The same with the ratio in the middle.
    pub(crate) fn within(self, [low, high]: [f64; 2]) -> Self {
        self.with_interval([f64::midpoint(low, high), low, high])
    }

    /// As a cost.
    pub(crate) fn of_cost(self, metric: &str) -> Self {
        Self { metric: metric.to_owned(), more_is_better: false, ..self }
    }
}
