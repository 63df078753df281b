//! The runs of one point, and the estimate of each of its arms.
//!
//! Where arm and baseline took turns, each set of fresh processes has its ratio already, and a set
//! that a gate calls disturbed counts as any other: both were disturbed alike within each round. Whole
//! runs are paired block by block, without disturbed blocks where enough are left.

use std::collections::BTreeMap;

use crate::arm::Arm;
use crate::plan::{Plan, PlannedPoint};
use crate::record::{Measurement, Record, RowTurns, Run};
use crate::stats::{
    Levels, Outlier, RatioEstimate, Resampling, SetRatio, log_ratios, median, tukey_flags,
};

/// With fewer undisturbed blocks than this the disturbed ones are used as well.
const UNDISTURBED_MIN: usize = 3;
/// Outcomes of runs by block, for one arm at one point.
type Series = Vec<(u32, f64)>;

/// Arm against baseline.
pub(super) struct Estimated {
    pub(super) estimate: RatioEstimate,
    /// Blocks or sets outside Tukey's fences.
    pub(super) outliers: u32,
    /// Whether disturbed blocks were left out.
    pub(super) has_left_out: bool,
    /// Where they took turns.
    pub(super) turns: Option<RowTurns>,
}

/// The usable runs of one point.
pub(super) struct PointRuns<'a> {
    pub(super) point: &'a PlannedPoint,
    pub(super) part: &'a str,
    runs: Vec<&'a Run>,
    disturbed: Vec<u32>,
}

impl<'a> PointRuns<'a> {
    pub(super) fn of(plan: &'a Plan, point: &'a PlannedPoint, record: &'a Record) -> Self {
        let part = plan.part_name(point);
        let of_point = |run: &&Run| run.experiment == part && run.point == point.point.label;
        let disturbed = record.blocks.iter().filter(|block| !block.disturbances.is_empty());
        Self {
            point,
            part,
            runs: record.runs.iter().filter(of_point).collect(),
            disturbed: disturbed.map(|block| block.block).collect(),
        }
    }

    /// What the runs of an arm gave that went to their end.
    fn measured(&self, arm: &Arm) -> impl Iterator<Item = &'a Measurement> {
        let name = arm.name.clone();
        let of_arm = self.runs.iter().filter(move |run| run.arm == name);
        of_arm.filter_map(|run| run.measured())
    }

    /// The values of an arm, of each run or set.
    pub(super) fn values(&self, arm: &Arm) -> Vec<f64> {
        self.measured(arm).map(|measured| measured.value).collect()
    }

    /// Reasons of the runs of an arm that failed.
    pub(super) fn failures(&self, arm: &Arm) -> Vec<&str> {
        let of_arm = self.runs.iter().filter(|run| run.arm == arm.name);
        of_arm.filter_map(|run| run.failure()).collect()
    }

    /// What was found about the runs of an arm, but for what is about the load's generator, once for each kind.
    pub(super) fn findings(&self, arm: &Arm) -> Vec<String> {
        let measured: Vec<_> = self.measured(arm).map(|measured| &measured.findings).collect();
        let mut found: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for (kind, text) in measured.iter().copied().flatten() {
            let (count, last) = found.entry(kind).or_default();
            (*count, *last) = (*count + 1, text);
        }
        let of_generator = self.point.experiment.of_generator.map_or(&[][..], |of| of.findings);
        let told = found.into_iter().filter(|(kind, _)| !of_generator.contains(kind));
        let all = measured.len();
        told.map(|(_, (count, text))| format!("in {count} of {all} runs: {text}")).collect()
    }

    /// That an arm answers requests with another length than the baseline, if so.
    pub(super) fn other_answer(&self, arm: &Arm) -> Option<String> {
        let bytes = |arm: &Arm| {
            self.measured(arm).find_map(|measured| measured.figures.get("answer_bytes").copied())
        };
        let baseline = &self.point.arms[self.point.baseline];
        let (own, others) = (bytes(arm)?, bytes(baseline)?);
        (own != others).then(|| {
            format!("it answers {own} bytes, {} answers {others}: not the same work", baseline.name)
        })
    }

    /// How an arm was measured where it took turns.
    pub(super) fn turns(&self, arm: &Arm) -> Option<RowTurns> {
        let turns: Vec<_> = self.measured(arm).filter_map(|measured| measured.turns).collect();
        let middle = |of: &dyn Fn(&crate::record::Turns) -> f64| {
            median(&turns.iter().map(of).collect::<Vec<_>>())
        };
        let levels = Levels::of(&self.sets(arm));
        Some(RowTurns {
            rounds: middle(&|turns| f64::from(turns.rounds))? as u32,
            turn_us: middle(&|turns| turns.turn_us as f64)? as u64,
            between_sets: levels.map(|levels| levels.between_sets),
            within_set: levels.map(|levels| levels.within_set),
        })
    }

    /// The ratio of each set in which the arm took turns with the baseline.
    fn sets(&self, arm: &Arm) -> Vec<SetRatio> {
        let turns = self.measured(arm).filter_map(|measured| measured.turns);
        let ratio = |turns: crate::record::Turns| {
            let log_ratio = turns.log_ratio?;
            Some(SetRatio { log_ratio, round_sd: turns.round_sd, rounds: turns.rounds })
        };
        turns.filter_map(ratio).collect()
    }

    /// Arm against baseline: over sets where they took turns, else over blocks.
    pub(super) fn estimate(&self, arm: &Arm) -> Option<Estimated> {
        let sets = self.sets(arm);
        if let Some(estimate) = RatioEstimate::over_sets(&sets) {
            let logs: Vec<f64> = sets.iter().map(|set| set.log_ratio).collect();
            let (outliers, turns) = (outliers(&logs), self.turns(arm));
            return Some(Estimated { estimate, outliers, has_left_out: false, turns });
        }
        let (values, baseline, has_left_out) = self.pairs(arm);
        let estimate = RatioEstimate::from_pairs(&values, &baseline, Resampling::default()).ok()?;
        let outliers = outliers(&log_ratios(&values, &baseline).ok()?);
        Some(Estimated { estimate, outliers, has_left_out, turns: None })
    }

    /// The values of an arm by block, of runs that stand for themselves: a turn is no such run.
    fn whole(&self, arm: &Arm) -> Series {
        let of_arm = self.runs.iter().filter(|run| run.arm == arm.name);
        let whole = of_arm.filter_map(|run| Some((run.block, run.measured()?)));
        whole
            .filter(|(_, run)| run.turns.is_none())
            .map(|(block, run)| (block, run.value))
            .collect()
    }

    /// Arm and baseline in the blocks that have both; without disturbed blocks when enough are
    /// left. The flag says whether disturbed blocks were left out.
    fn pairs(&self, arm: &Arm) -> (Vec<f64>, Vec<f64>, bool) {
        let baseline = self.whole(&self.point.arms[self.point.baseline]);
        let both: Vec<(u32, f64, f64)> = self
            .whole(arm)
            .into_iter()
            .filter_map(|(block, value)| {
                let of_baseline = baseline.iter().find(|(other, _)| *other == block)?;
                Some((block, value, of_baseline.1))
            })
            .collect();
        let quiet: Vec<_> =
            both.iter().copied().filter(|(block, ..)| !self.disturbed.contains(block)).collect();
        let has_left_out = quiet.len() >= UNDISTURBED_MIN && quiet.len() < both.len();
        let used = if has_left_out { quiet } else { both };
        let arm_values = used.iter().map(|(_, value, _)| *value).collect();
        (arm_values, used.iter().map(|(_, _, baseline)| *baseline).collect(), has_left_out)
    }
}

fn outliers(logs: &[f64]) -> u32 {
    tukey_flags(logs).iter().filter(|flag| **flag != Outlier::None).count() as u32
}
