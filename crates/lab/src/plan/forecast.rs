//! How long a plan takes, and what is cut when that is too long.
//!
//! Cut in this order, each with a line that says so: blocks, then windows, then points in the middle of long axes. Arms
//! are never cut: the comparison is what the job is for.

use super::{Method, Plan, PlannedPoint, minutes};
use crate::record::LeftOut;
use crate::stats::SETS_MIN;
use std::time::Duration;

/// Fewer whole runs than this have no useful interval.
const RUNS_MIN: u32 = 3;
/// The fewest and shortest turns of a set.
const TURNS_MIN: Duration = Duration::from_millis(60);
/// Intervals of a cut window: fewer say nothing about steadiness.
const INTERVALS_KEPT: u32 = 10;
/// The ramp is not made shorter than this.
const RAMP_MIN: Duration = Duration::from_millis(50);
/// What a turn costs with its lead-in, falling asleep and the words about it, over its length.
const TURN_COST: f64 = 1.35;
/// What a point costs on top of its runs: nothing is planned to the last second.
const MARGIN: f64 = 1.05;

/// How long a plan will take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// One block.
    pub block: Duration,
    /// All planned blocks and the counting, request-time and profile passes.
    pub total: Duration,
}

impl Plan {
    /// How long this will take on a quiet machine; commands count as their point's window.
    #[must_use]
    pub fn forecast(&self) -> Forecast {
        let whole = self.time(&|point| point.runtime);
        // Sets have as many turns as fit.
        let total = self.job.budget.map_or(whole.total, |budget| whole.total.min(budget));
        Forecast { total: total.max(self.shortest().total), ..whole }
    }

    /// How long it takes with as few turns in each set as say something.
    fn shortest(&self) -> Forecast {
        self.time(&|point| match point.method {
            Method::Turns => runtime_min(point).min(point.runtime),
            Method::Runs => point.runtime,
        })
    }

    /// How long the passes behind the last block take, which a budget has to leave room for.
    pub(crate) fn side_passes(&self) -> Duration {
        if self.job.times_requests { self.forecast().block } else { Duration::ZERO }
    }

    fn time(&self, window: &dyn Fn(&PlannedPoint) -> Duration) -> Forecast {
        let cost = |point| point_cost(point, window(point));
        let block: Duration = self.points.iter().map(cost).sum();
        let block = block.mul_f64(MARGIN);
        let job = &self.job;
        // What takes turns is counted and profiled within its first set.
        let has_runs = self.points.iter().any(|point| point.method == Method::Runs);
        let passes = u32::from(has_runs) * (1 + u32::from(job.profile_hz.is_some()));
        let passes = passes + u32::from(job.times_requests);
        Forecast { block, total: block * (job.blocks + passes) }
    }

    /// Why this plan must not be run, if so: with everything cut that can be it would still take
    /// longer than its budget, and with less it decides nothing.
    #[must_use]
    pub fn budget_fault(&self) -> Option<String> {
        let (budget, least) = (self.job.budget?, self.least?);
        let parts: Vec<&str> = self.job.parts.iter().map(|part| part.name.as_str()).collect();
        let fewer = match parts.as_slice() {
            [_] => String::new(),
            _ => format!(", or fewer parts with --only ({})", parts.join(", ")),
        };
        let whole_s = least.as_secs_f64().ceil();
        Some(format!(
            "a budget of {} decides nothing: with the fewest blocks, windows and points this job takes \
             about {}; give --budget {whole_s:.0}s{fewer}",
            minutes(budget),
            minutes(least),
        ))
    }

    /// Cuts until the forecast fits the budget or nothing is left to cut.
    pub(super) fn fit_budget(&mut self) {
        let Some(budget) = self.job.budget else { return };
        let blocks = self.job.blocks;
        let windows = self.windows();
        while self.shortest().total > budget {
            if !(self.cut_block() || self.cut_windows() || self.cut_point()) {
                self.least = Some(self.shortest().total);
                break;
            }
        }
        if self.job.blocks != blocks {
            self.cuts.push(format!("{} blocks instead of {blocks}", self.job.blocks));
        }
        if self.windows() != windows {
            let (now, then) = (self.windows(), windows);
            self.cuts.push(format!("longest window {now:?} instead of {then:?}"));
        }
        // Sets are added one by one as long as there is time for another.
        if self.points.iter().all(|point| point.method == Method::Runs) {
            self.job.blocks_max = self.job.blocks_max.min(self.job.blocks);
        }
    }

    fn windows(&self) -> Duration {
        self.points.iter().map(|point| point.runtime).max().unwrap_or_default()
    }

    fn cut_block(&mut self) -> bool {
        let takes_turns = self.points.iter().any(|point| point.method == Method::Turns);
        let can = self.job.blocks > if takes_turns { SETS_MIN } else { RUNS_MIN };
        self.job.blocks -= u32::from(can);
        can
    }

    fn cut_windows(&mut self) -> bool {
        let mut has_cut = false;
        for point in &mut self.points {
            let (ramp_time, runtime) = (point.ramp_time, point.runtime);
            point.ramp_time = (ramp_time / 2).max(RAMP_MIN).min(ramp_time);
            point.runtime = (runtime / 2).max(runtime_min(point)).min(runtime);
            point.interval = point.interval.min(point.runtime / INTERVALS_KEPT);
            has_cut |= (point.ramp_time, point.runtime) != (ramp_time, runtime);
        }
        has_cut
    }

    /// Drops a point whose neighbours in its part both stay, the costliest first.
    fn cut_point(&mut self) -> bool {
        let inner = (1..self.points.len().saturating_sub(1)).filter(|&index| {
            let part = self.points[index].part;
            self.points[index - 1].part == part && self.points[index + 1].part == part
        });
        let Some(costliest) = inner.max_by_key(|&index| {
            let point = &self.points[index];
            point_cost(point, point.runtime)
        }) else {
            return false;
        };
        let cut = self.points.remove(costliest);
        self.left_out.push(LeftOut {
            experiment: self.part_name(&cut).to_owned(),
            point: cut.point.label,
            arm: "*".to_owned(),
            reason: "cut to fit the budget".to_owned(),
        });
        true
    }
}

fn point_cost(point: &PlannedPoint, window: Duration) -> Duration {
    let window = match point.method {
        Method::Turns => window.mul_f64(TURN_COST),
        Method::Runs => window,
    };
    let run = point.ramp_time + window + point.experiment.needs(&point.point.axes).start;
    run * point.arms.len() as u32
}

fn runtime_min(point: &PlannedPoint) -> Duration {
    let least = point.experiment.needs(&point.point.axes).runtime_min;
    match point.method {
        Method::Turns if !point.experiment.cost.is_shared => least.min(TURNS_MIN),
        _ => least,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job;
    use crate::plan::PLAIN_MACHINE;

    fn quick(budget_s: u64) -> Plan {
        let mut job = job::find("quick").expect("the default job");
        job.budget = Some(Duration::from_secs(budget_s));
        Plan::make(job, &PLAIN_MACHINE)
    }

    #[test]
    fn a_budget_is_kept_or_refused_with_the_least_that_decides() {
        let fault = quick(10).budget_fault().expect("ten seconds decide nothing");
        let least = quick(10).least.expect("a least").as_secs_f64().ceil() as u64;
        assert!(fault.starts_with("a budget of 10 s decides nothing"), "{fault}");
        assert!(fault.contains(&format!("give --budget {least}s, or fewer parts")), "{fault}");
        for enough in [least, 10 * least] {
            let plan = quick(enough);
            assert_eq!(plan.budget_fault(), None, "{enough} s");
            assert!(plan.forecast().total <= Duration::from_secs(enough), "{enough} s");
        }
    }
}
