//! Whether to believe a record: noise, disturbed blocks, steadiness, failures, controls.
//!
//! Whole runs stand and fall with a quiet machine, so gates and noise make their badge. Where arms took turns, a
//! disturbance hits both sides of a ratio alike; what speaks for such rows is that the same program twice shows no
//! difference.

use crate::host::{LOAD_AVERAGE, Reading};
use crate::record::{Badge, Record, ResultRow, SteadyKind, Trust, TurnsTrust, Verdict};
use crate::stats::SETS_MIN;

/// More disturbed blocks than this share make the whole record disturbed.
const DISTURBED_SHARE_MAX: f64 = 0.1;
/// An A/A arm that is this far from itself, whole interval, makes the record invalid.
const SELF_DIFFERENCE_MAX: f64 = 0.05;

/// An A/A interval that reaches farther from 1 than this takes the badge away: effects of a tenth,
/// which most people ask for, are then distinguished from noise at no such point.
const NOISE_MAX: f64 = 0.1;

/// Summarises what the gates and the A/A arms say; so many of those that took turns differ from
/// themselves after the correction.
pub(super) fn of(record: &Record, controls_differ: u32) -> Trust {
    let blocks = record.blocks.len() as u32;
    let blocks_disturbed =
        record.blocks.iter().filter(|block| !block.disturbances.is_empty()).count() as u32;
    let kinds = || record.runs.iter().filter_map(|run| Some(run.measured()?.steadiness.kind));
    let runs_two_regime = kinds().filter(|kind| *kind == SteadyKind::TwoRegime).count() as u32;
    let runs_drifting = kinds().filter(|kind| *kind == SteadyKind::Drift).count() as u32;
    let runs_too_short = kinds().filter(|kind| *kind == SteadyKind::TooShort).count() as u32;
    let is_watched = record
        .blocks
        .iter()
        .any(|block| block.steal.value().is_some() || block.foreign_cpu.value().is_some());
    let noise = widest_noise(&record.results);
    let is_invalid = kinds().next().is_none() || record.results.iter().any(differs_from_itself);
    let is_disturbed = f64::from(blocks_disturbed) > DISTURBED_SHARE_MAX * f64::from(blocks);
    let turns = turns(record, controls_differ);
    let is_all_turns = turns.as_ref().is_some_and(|turns| turns.rows_of_whole_runs == 0);
    let control = turns.as_ref().and_then(|turns| turns.control_half_width_max);
    let badge = match () {
        () if is_invalid => Badge::Invalid,
        () if controls_differ > 0 => Badge::Biased,
        () if is_all_turns && control.is_some_and(|control| control > NOISE_MAX) => Badge::Noisy,
        () if is_all_turns && control.is_some() => Badge::Controlled,
        () if is_all_turns => Badge::Unwatched,
        () if is_disturbed => Badge::Disturbed,
        () if is_noisy(noise) => Badge::Noisy,
        () if !is_watched => Badge::Unwatched,
        () => Badge::Quiet,
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
fn turns(record: &Record, controls_differ: u32) -> Option<TurnsTrust> {
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
    Some(TurnsTrust {
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
    let is_floor = |row: &&ResultRow| row.verdict == Verdict::NoiseLevel && row.turns.is_none();
    let noise = results.iter().filter(is_floor).filter_map(of_row);
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
