//! The plain view: one line for each second that has passed, without a single escape code.

use pollux_load::render::{count, time};
use pollux_load::{Phase, Plan, Progress, Second};

use crate::output;

/// Members of the crowd between two lines while they are set up.
const CROWD_STEP: u32 = 1_000;

/// What was already said.
pub(crate) struct Lines {
    crowd: u32,
    crowd_told: u32,
    told_s: f64,
}

impl Lines {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { crowd: plan.crowd.len(), crowd_told: 0, told_s: 0.0 }
    }

    /// Prints what is new.
    pub(crate) fn show(&mut self, progress: &Progress) {
        let connected = progress.crowd_connected;
        let is_step = connected >= self.crowd_told + CROWD_STEP;
        if progress.phase == Phase::SettingUp && is_step {
            self.crowd_told = connected;
            output::remark(&format!("{connected} of {} connections beside", self.crowd));
        }
        if let Some(second) = progress.last.as_ref().filter(|last| last.end_s > self.told_s) {
            self.told_s = second.end_s;
            output::remark(&line(second));
        }
    }
}

fn line(second: &Second) -> String {
    let warm_up = if second.is_warm_up { "  warm-up" } else { "" };
    let errors = match second.errors {
        0 => String::new(),
        errors => format!("  {} errors", count(errors)),
    };
    format!(
        "{:5.0} s  {:>10}/s  {}{errors}{warm_up}",
        second.end_s,
        count(second.answered),
        latency(second)
    )
}

/// Median, 99th percentile and longest latency of a second.
pub(crate) fn latency(second: &Second) -> String {
    let told = |ns: Option<u64>| ns.map_or_else(|| "n/a".to_owned(), |ns| time(ns as f64));
    let at = |quantile| told(second.latency.quantile_ns(quantile));
    let max = told(second.latency.max_ns());
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
        };
        let text = line(&second);
        assert!(text.contains("    3 s") && text.contains("1,000/s"), "{text}");
        assert!(text.contains("p99 64.1 µs") && text.ends_with("2 errors  warm-up"), "{text}");
        (second.latency, second.answered) = (Distribution::new(), 0);
        assert!(line(&second).contains("p50 n/a"), "{}", line(&second));
    }
}
