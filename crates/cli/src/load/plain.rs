//! The plain view of a running load, without a single escape code.

use crate::output;
use pollux_load::render::{count, time};
use pollux_load::{Phase, Plan, Progress, Second};

/// Members of the crowd between two lines while they are set up.
const CROWD_STEP: u32 = 1_000;

/// What was already said.
pub(super) struct Lines {
    crowd: u32,
    crowd_shown: u32,
    shown_s: f64,
}

impl Lines {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { crowd: plan.crowd.len(), crowd_shown: 0, shown_s: 0.0 }
    }

    /// Prints what is new.
    pub(crate) fn show(&mut self, progress: &Progress) {
        let connected = progress.crowd_connected;
        let is_step = connected >= self.crowd_shown + CROWD_STEP;
        if progress.phase == Phase::SettingUp && is_step {
            self.crowd_shown = connected;
            output::remark(&format!("{connected} of {} connections beside", self.crowd));
        }
        if let Some(second) = progress.last.as_ref().filter(|last| last.end_s > self.shown_s) {
            output::remark(&output::shown(&line(second, rate_per_s(second, self.shown_s))));
            self.shown_s = second.end_s;
        }
    }
}

fn line(second: &Second, rate_per_s: u64) -> String {
    let warm_up = if second.is_warm_up { "  warm-up" } else { "" };
    let errors = match second.errors {
        0 => String::new(),
        errors => format!("  {} errors", count(errors)),
    };
    let line = format!(
        "{:7.1} s  {:>10}/s  {}{errors}{warm_up}",
        second.end_s,
        count(rate_per_s),
        latency(second)
    );
    // The last column is as wide as any.
    line.trim_end().to_owned()
}

/// Answers per second since `before_s`, for the last second may be cut short.
pub(super) fn rate_per_s(second: &Second, before_s: f64) -> u64 {
    let lasted_s = second.end_s - before_s;
    if lasted_s > 0.0 { (second.answered as f64 / lasted_s).round() as u64 } else { 0 }
}

/// Median, 99th percentile and longest latency of a second.
pub(super) fn latency(second: &Second) -> String {
    let shown = |ns: Option<u64>| ns.map_or_else(|| "n/a".to_owned(), |ns| time(ns as f64));
    let at = |quantile| shown(second.latency.quantile_ns(quantile));
    let max = shown(second.latency.max_ns());
    format!("p50 {:<8}  p99 {:<8}  max {max:<8}", at(0.5), at(0.99))
}

#[cfg(test)]
mod tests {
    use pollux_load::Distribution;

    use super::*;

    #[test]
    fn a_second_is_one_line() {
        let mut latency = Distribution::new();
        (0..1_000).for_each(|_| latency.record(64_100));
        let mut second = Second {
            end_s: 3.0,
            is_warm_up: true,
            sent: 1_000,
            answered: 1_000,
            errors: 2,
            bytes_in: 0,
            open: 64,
            latency,
            ..Second::default()
        };
        assert_eq!((rate_per_s(&second, 2.0), rate_per_s(&second, 2.75)), (1_000, 4_000));
        let text = line(&second, 1_000);
        assert!(text.contains("    3.0 s") && text.contains("1,000/s"), "{text}");
        assert!(text.contains("p99 64.1 µs") && text.ends_with("2 errors  warm-up"), "{text}");
        second = Second { end_s: 4.0, ..Second::default() };
        let text = line(&second, 0);
        assert!(text.contains("p50 n/a") && text.ends_with("max n/a"), "{text}");
    }
}
