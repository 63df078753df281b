//! Progress of a run: a bar on a terminal, a line for each set or block elsewhere, and every interval
//! where the job asks for it.
//!
//! It draws only between runs and when an interval ends, never from a thread of its own: on two
//! CPUs a redraw would be a disturbance.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pollux_lab::measure::Pass;
use pollux_lab::plan::Plan;
use pollux_lab::record::{Interval, Record};
use pollux_lab::run::{Observer, RunLabel};
use pollux_lab::{report, store};
use pollux_load::render::count;

/// Shows what the runner does and saves the record after each block, as that of a run that continues.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    is_quiet: bool,
    shows_intervals: bool,
    folder: PathBuf,
    /// What is counted: sets or blocks.
    unit: &'static str,
    blocks: u32,
    blocks_max: u32,
    /// When it will be over: by the forecast first, then by how long the last block took.
    ends: Instant,
    /// When the budget is over.
    budget_ends: Option<Instant>,
}

impl Progress {
    /// Of a run that began then, and whose budget counts from there.
    pub(crate) fn new(plan: &Plan, folder: PathBuf, is_quiet: bool, began: Instant) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let runs = plan.runs_per_block() as u64 * u64::from(plan.job.blocks + 1);
        let bar = (is_terminal && !is_quiet).then(|| {
            let bar = ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:24} {elapsed_precise} {wide_msg}");
            bar.set_style(style.expect("a constant template"));
            bar
        });
        Self {
            bar,
            is_quiet,
            shows_intervals: plan.job.shows_intervals,
            folder,
            unit: plan.unit(),
            blocks: plan.job.blocks,
            blocks_max: plan.job.blocks_max,
            ends: Instant::now() + plan.forecast().total,
            budget_ends: plan.job.budget.map(|budget| began + budget),
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Prints a line without tearing the bar.
    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| crate::output::remark(text)),
            None if !self.is_quiet => crate::output::remark(text),
            None => {}
        }
    }

    /// The set or block of this number: of the planned ones, then of the most, then one that repeats another.
    fn counted(&self, number: u32) -> String {
        let Self { unit, blocks, blocks_max, .. } = self;
        match number {
            _ if number <= *blocks => format!("{unit} {number}/{blocks}"),
            _ if number <= *blocks_max => format!("{unit} {number} of at most {blocks_max}"),
            _ => format!("{unit} {number}"),
        }
    }

    fn place(&self, run: &RunLabel) -> String {
        let pass = match (run.pass, run.block) {
            (Pass::Timing, Some(block)) => self.counted(block + 1),
            (Pass::Counting, _) => "counting pass".to_owned(),
            (Pass::Profile { .. }, _) => "profile pass".to_owned(),
            (Pass::Look, _) => "first look".to_owned(),
            (Pass::RequestTimes, _) => "request times".to_owned(),
            (Pass::Timing, None) => "run".to_owned(),
        };
        format!("{pass}  {} {}  {}", run.experiment, run.point, run.arm)
    }
}

impl Observer for Progress {
    fn run_started(&mut self, run: &RunLabel) {
        let place = self.place(run);
        if self.shows_intervals {
            self.line(&place);
        }
        if let Some(bar) = &self.bar {
            let left = left_in_words(self.ends.saturating_duration_since(Instant::now()));
            bar.set_message(format!("{place}{left}"));
        }
    }

    fn interval(&mut self, run: &RunLabel, interval: &Interval) {
        if !self.shows_intervals {
            return;
        }
        let mut text = format!("  {:>12} {}", grouped(interval.events_per_s), run.unit);
        if let Some(switches) = interval.process_switches_per_s {
            text += &format!("  {:>9} switches/s (process)", grouped(switches));
        }
        if let Some(switches) = interval.machine_switches_per_s {
            text += &format!("  {:>9} switches/s (machine)", grouped(switches));
        }
        if let Some(events) = interval.events_per_wait {
            text += &format!("  {events:>8.2} events/wait");
        }
        self.line(&text);
    }

    fn run_ended(&mut self, run: &RunLabel, value: Result<f64, &str>) {
        match value {
            Ok(value) if self.shows_intervals => {
                self.line(&format!("  mean: {} {}", grouped(value), run.unit));
            }
            Ok(_) => {}
            Err(reason) => self.line(&format!("failed: {}: {reason}", self.place(run))),
        }
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    fn block_ended(&mut self, record: &Record) {
        if let Err(error) = store::save_interim(&self.folder, record) {
            self.line(&format!("could not save: {error}"));
        }
        let Some(block) = record.blocks.last() else { return };
        let number = block.block + 1;
        let state = match block.disturbances.as_slice() {
            [] => "quiet".to_owned(),
            reasons => format!("disturbed: {}", reasons.join("; ")),
        };
        let blocks_left = self.blocks.saturating_sub(number);
        let now = Instant::now();
        let budget = self.budget_ends.map(|ends| ends.saturating_duration_since(now));
        let left = time_left(Duration::from_secs_f64(block.duration_s), blocks_left, budget);
        self.ends = now + left;
        if self.bar.is_none() || !block.disturbances.is_empty() {
            let took = block.duration_s;
            let left = left_in_words(left);
            let counted = self.counted(number);
            self.line(&format!("{counted}  {took:.1} s  {state}{left}"));
        }
    }
}

/// As long as the planned blocks take that are left, each as long as the last one, and no longer than the budget.
fn time_left(last: Duration, blocks_left: u32, budget: Option<Duration>) -> Duration {
    let all = last * blocks_left;
    budget.map_or(all, |budget| all.min(budget))
}

/// Nothing once the planned sets are over: how many follow depends on the intervals and the budget.
fn left_in_words(time: Duration) -> String {
    match time.as_secs() {
        0 => String::new(),
        seconds => format!("  about {}:{:02} left", seconds / 60, seconds % 60),
    }
}

/// A rate to the next whole number, with a comma between thousands.
fn grouped(value: f64) -> String {
    count(value.round() as u64)
}

/// The final table for a terminal.
pub(crate) fn table(record: &Record) -> String {
    report::table(record, crate::output::width_chars(), crate::output::is_colourful())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_time_is_left_than_the_budget_has() {
        // The first of six sets took 14.3 s of 29.
        let budget = Some(Duration::from_secs(14));
        let left = time_left(Duration::from_millis(14_300), 5, budget);
        assert_eq!(left_in_words(left), "  about 0:14 left");
        assert_eq!(time_left(Duration::from_secs(2), 5, budget), Duration::from_secs(10));
        assert_eq!(time_left(Duration::from_secs(2), 5, None), Duration::from_secs(10));
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(1_081_999.6), "1,082,000");
        assert_eq!(grouped(999.0), "999");
    }
}
