//! What a reader sees of a run: each form a pure function of the [`Outcome`].
//!
//! `pollux load` and the lab call the functions here and write what they return. Nothing in this
//! folder measures, judges, reads a file or asks the host for anything: the same outcome gives
//! the same text.
//!
//! - [`table`]: the summary for a terminal; [`html`]: one file for a browser, without network
//!   and without script;
//! - [`ab`], [`wrk`], [`httperf`]: the summary in the terms of these tools. A field stands for
//!   what the tool means by it, or is `n/a`;
//! - [`prometheus`]: how far a run is, for a scraper;
//! - [`json`], [`csv_seconds`], [`csv_percentiles`], [`hlog`]: for programs.
//!
//! URLs and sentences of an outcome are foreign text: each form escapes them in its way.
//!
//! Several forms show series: the seconds of a run with the times at which they began, fewer of them for long runs, and
//! the latency over "nines", where a step is the same ratio of answers that are slower.

mod ab;
mod export;
mod facts;
mod html;
mod httperf;
mod steps;
mod table;
mod wrk;

use crate::{Distribution, Outcome, Second};

pub use ab::ab;
pub use export::{
    JSON_SCHEMA, JSON_VERSION, StoredError, csv_percentiles, csv_seconds, hlog, json, prometheus,
};
pub use html::html;
pub use httperf::httperf;
pub use pollux_report::number::{count, plural, time};
pub use table::table;
pub use wrk::wrk;

/// Points for each nine: from 90 to 99 %, from 99 to 99.9 % and so on.
const POINTS_PER_NINE: u32 = 20;

/// A stretch of a run: a second, or several that were taken together.
#[derive(Clone, Debug)]
struct Stretch {
    /// Seconds from the start of the warm-up.
    start_s: f64,
    end_s: f64,
    is_warm_up: bool,
    answered: u64,
    errors: u64,
    bytes_in: u64,
    open: u32,
    latency: Distribution,
    /// Requests that the schedule asked for in it.
    asked: Option<f64>,
}

impl Stretch {
    fn of(start_s: f64, second: &Second) -> Self {
        Self {
            start_s,
            end_s: second.end_s,
            is_warm_up: second.is_warm_up,
            answered: second.answered,
            errors: second.errors,
            bytes_in: second.bytes_in,
            open: second.open,
            latency: second.latency.clone(),
            asked: second.asked_per_s.map(|rate| rate * (second.end_s - start_s)),
        }
    }

    fn extend(&mut self, second: &Second) {
        let more = second.asked_per_s.map(|rate| rate * (second.end_s - self.end_s));
        self.asked = self.asked.zip(more).map(|(asked, more)| asked + more);
        self.end_s = second.end_s;
        self.answered += second.answered;
        self.errors += second.errors;
        self.bytes_in += second.bytes_in;
        self.open = second.open;
        self.latency.add(&second.latency);
    }

    fn length_s(&self) -> f64 {
        self.end_s - self.start_s
    }

    /// Requests per second that were asked for; `None` of a closed loop.
    fn asked_per_s(&self) -> Option<f64> {
        self.asked.filter(|_| self.length_s() > 0.0).map(|asked| asked / self.length_s())
    }

    /// Answers per second; `None` of a stretch without length.
    fn answered_per_s(&self) -> Option<f64> {
        (self.length_s() > 0.0).then(|| self.answered as f64 / self.length_s())
    }
}

/// Each second with its start, in seconds from the start of the warm-up.
fn with_starts(outcome: &Outcome) -> impl Iterator<Item = (f64, &Second)> {
    let starts = std::iter::once(0.0).chain(outcome.seconds.iter().map(|second| second.end_s));
    starts.zip(&outcome.seconds)
}

/// Where the measured part begins, in seconds from the start of the warm-up.
fn measured_from_s(outcome: &Outcome) -> f64 {
    let warm_up = outcome.seconds.iter().rev().find(|second| second.is_warm_up);
    warm_up.map_or(0.0, |second| second.end_s)
}

/// When the first second began, in seconds since 1970.
fn base_unix_s(outcome: &Outcome) -> f64 {
    outcome.began_unix_s - measured_from_s(outcome)
}

/// The run in at most about `most` stretches; none holds warm-up and measured time at once.
fn stretches(outcome: &Outcome, most: usize) -> Vec<Stretch> {
    let fold = outcome.seconds.len().div_ceil(most.max(1)).max(1);
    let mut found: Vec<Stretch> = Vec::new();
    let mut taken = 0;
    for (start_s, second) in with_starts(outcome) {
        match found.last_mut() {
            Some(last) if taken < fold && last.is_warm_up == second.is_warm_up => {
                last.extend(second);
                taken += 1;
            }
            _ => {
                found.push(Stretch::of(start_s, second));
                taken = 1;
            }
        }
    }
    found
}

/// One point of the curve.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Point {
    /// Part of the values that do not exceed the time, below 1.
    quantile: f64,
    ns: u64,
}

impl Point {
    /// Position on the axis: 0 at 0 %, 1 at 90 %, 2 at 99 %.
    fn nines(&self) -> f64 {
        nines(self.quantile)
    }
}

/// The position of a quantile on the axis of nines.
fn nines(quantile: f64) -> f64 {
    (1.0 / (1.0 - quantile)).log10()
}

/// The curve from the shortest value to the quantile that only one value exceeds; empty without
/// values.
fn curve(times: &Distribution) -> Vec<Point> {
    let last = (times.count() as f64).log10();
    let steps = (last * f64::from(POINTS_PER_NINE)).floor() as u32;
    let point = |step: u32| {
        let quantile = 1.0 - 10f64.powf(-f64::from(step) / f64::from(POINTS_PER_NINE));
        Some(Point { quantile, ns: times.quantile_ns(quantile)? })
    };
    (0..=steps).filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_long_run_is_folded_and_loses_nothing() {
        let outcome = sample::outcome();
        let answered: u64 = outcome.seconds.iter().map(|second| second.answered).sum();
        for most in [1, 3, 5, 100] {
            let folded = stretches(&outcome, most);
            assert!(folded.len() <= most + 1, "{most}: {}", folded.len());
            assert_eq!(folded.iter().map(|stretch| stretch.answered).sum::<u64>(), answered);
            assert!(folded.windows(2).all(|pair| pair[0].end_s == pair[1].start_s));
        }
        assert!(stretches(&sample::empty(), 10).is_empty());
    }

    #[test]
    fn the_measured_part_begins_where_the_warm_up_ends() {
        let outcome = sample::outcome();
        assert_eq!(measured_from_s(&outcome), 2.0);
        assert_eq!(base_unix_s(&outcome), outcome.began_unix_s - 2.0);
    }

    #[test]
    fn the_curve_ends_where_one_value_is_left() {
        let curve = curve(&sample::times(1000, |index| (index + 1) * 1000));
        let first = curve[0];
        let last = curve[curve.len() - 1];
        assert_eq!((curve.len(), first.quantile, last.ns / 1000), (61, 0.0, 999));
        assert!((last.nines() - 3.0).abs() < 1e-9, "{last:?}");
        assert!(super::curve(&Distribution::new()).is_empty());
    }

    #[test]
    fn a_quantile_without_values_beyond_it_is_not_shown() {
        let times = sample::times(1000, |index| index + 1);
        assert_eq!(
            (times.known_quantile_ns(0.999), times.known_quantile_ns(0.9999)),
            (Some(999), None)
        );
    }
}
