//! The plan in words and as data: what will run, what will not, and how long it takes.

use pollux_report::number::minutes;
use serde::Serialize;
use std::fmt;

use super::{Arm, Plan};
use crate::record::LeftOut;

/// The plan for scripts.
#[derive(Clone, Debug, Serialize)]
pub struct PlanSummary {
    /// Name of the job.
    pub job: String,
    /// Blocks.
    pub blocks: u32,
    /// Most blocks, when intervals stay wide.
    pub blocks_max: u32,
    /// Runs in one block.
    pub runs_per_block: usize,
    /// Expected time in all.
    pub forecast_s: f64,
    /// The points.
    pub points: Vec<PointSummary>,
    /// What is not run.
    pub left_out: Vec<LeftOut>,
    /// What was cut.
    pub cuts: Vec<String>,
}

/// One point of a plan for scripts.
#[derive(Clone, Debug, Serialize)]
pub struct PointSummary {
    /// The part of the job.
    pub experiment: String,
    /// Its label.
    pub point: String,
    /// Names of the arms.
    pub arms: Vec<String>,
    /// The arm that the others are compared with.
    pub baseline: String,
    /// Time before the window.
    pub ramp_time_s: f64,
    /// Length of the window.
    pub runtime_s: f64,
}

impl Plan {
    /// The plan as data.
    #[must_use]
    pub fn summary(&self) -> PlanSummary {
        let points = self.points.iter().map(|point| PointSummary {
            experiment: self.part_name(point).to_owned(),
            point: point.point.label.clone(),
            arms: point.arms.iter().map(|arm| arm.name.clone()).collect(),
            baseline: point.arms[point.baseline].name.clone(),
            ramp_time_s: point.ramp_time.as_secs_f64(),
            runtime_s: point.runtime.as_secs_f64(),
        });
        PlanSummary {
            job: self.job.name.clone(),
            blocks: self.job.blocks,
            blocks_max: self.job.blocks_max,
            runs_per_block: self.runs_per_block(),
            forecast_s: self.forecast().total.as_secs_f64(),
            points: points.collect(),
            left_out: self.left_out.clone(),
            cuts: self.cuts.clone(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forecast = self.forecast();
        let most = match self.job.blocks_max > self.job.blocks {
            true => format!(", up to {} while intervals are wide", self.job.blocks_max),
            false => String::new(),
        };
        writeln!(
            f,
            "job {}: {} runs in each of {} blocks{most}; about {}",
            self.job.name,
            self.runs_per_block(),
            self.job.blocks,
            minutes(forecast.total)
        )?;
        let widest = self.points.iter().map(|point| point.point.label.chars().count()).max();
        let widest = widest.unwrap_or_default();
        for point in &self.points {
            let names: Vec<&str> = point.arms.iter().map(|arm| arm.name.as_str()).collect();
            let (name, label) = (self.part_name(point), &point.point.label);
            let (ramp, runtime) = (point.ramp_time, point.runtime);
            let times = format!("ramp {ramp:?}, window {runtime:?}");
            writeln!(f, "  {name:<10} {label:<widest$}  {times:<26}  {}", names.join(", "))?;
        }
        let is_command = |arm: &&Arm| arm.kind.is_program();
        let mut printed = Vec::new();
        for point in &self.points {
            for arm in point.arms.iter().filter(is_command) {
                let line = format!("arm {} has to print {}", arm.name, point.metric());
                if !printed.contains(&line) {
                    writeln!(f, "{line}")?;
                    printed.push(line);
                }
            }
        }
        for left in &self.left_out {
            let LeftOut { experiment, point, arm, reason } = left;
            writeln!(f, "left out: {experiment}, point {point}, arm {arm}: {reason}")?;
        }
        for cut in &self.cuts {
            writeln!(f, "changed: {cut}")?;
        }
        Ok(())
    }
}
