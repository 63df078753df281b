//! Whether to believe a record: noise, disturbed blocks, steadiness, failures.

use crate::host::Reading;
use crate::record::{Badge, Outcome, Record, ResultRow, SteadyKind, Trust, Verdict};

/// More disturbed blocks than this share make the whole record disturbed.
const DISTURBED_SHARE_MAX: f64 = 0.1;
/// An A/A arm that is this far from itself, whole interval, makes the record invalid.
const SELF_DIFFERENCE_MAX: f64 = 0.05;

/// An A/A interval that reaches farther from 1 than this takes the badge away: effects of a tenth,
/// which most people ask for, are then told from noise at no such point.
const NOISE_MAX: f64 = 0.1;

/// Summarises what the gates and the A/A arms say.
pub(super) fn of(record: &Record) -> Trust {
    let blocks = record.blocks.len() as u32;
    let blocks_disturbed =
        record.blocks.iter().filter(|block| !block.disturbances.is_empty()).count() as u32;
    let kinds = || {
        record.runs.iter().filter_map(|run| match &run.outcome {
            Outcome::Measured(measured) => Some(measured.steadiness.kind),
            Outcome::Failed { .. } => None,
        })
    };
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
    let badge = match () {
        () if is_invalid => Badge::Invalid,
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
    }
}

/// The A/A row whose interval reaches farthest from 1.
fn widest_noise(results: &[ResultRow]) -> Option<[f64; 3]> {
    let of_row = |row: &ResultRow| Some([row.ratio?, row.ci_low?, row.ci_high?]);
    let noise = results.iter().filter(|row| row.verdict == Verdict::NoiseFloor).filter_map(of_row);
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
    row.verdict == Verdict::NoiseFloor
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
