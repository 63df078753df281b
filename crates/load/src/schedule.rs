//! When the requests of an open loop are to begin.
//!
//! The schedule says how many requests are due up to a time; the k-th one begins where that
//! number reaches k. So stages may rise, fall or stand still, a thread takes every n-th request,
//! and nothing is queued while a server stands still: the cursor waits where it was.

use std::time::Duration;

use crate::{Arrival, Stage};

const NANOS_PER_S: f64 = 1e9;

/// A stage with what is due before it.
#[derive(Clone, Copy, Debug)]
struct Segment {
    begin_s: f64,
    due_before: f64,
    from_per_s: f64,
    to_per_s: f64,
    /// Infinite for one without an end.
    lasts_s: f64,
}

impl Segment {
    /// Requests due from its begin to `elapsed_s` after it.
    fn due(&self, elapsed_s: f64) -> f64 {
        self.from_per_s * elapsed_s + self.slope() / 2.0 * elapsed_s * elapsed_s
    }

    /// Change of the rate per second.
    fn slope(&self) -> f64 {
        if self.lasts_s.is_finite() {
            (self.to_per_s - self.from_per_s) / self.lasts_s
        } else {
            0.0
        }
    }

    /// When `due` requests are due, in seconds after its begin; `None` when that is never.
    fn when(&self, due: f64) -> Option<f64> {
        let (rate, slope) = (self.from_per_s, self.slope());
        // The root of the parabola that is right for rising, falling and level rates.
        let root = (rate * rate + 2.0 * slope * due).sqrt();
        let at = if due == 0.0 { 0.0 } else { 2.0 * due / (rate + root) };
        (at.is_finite() && at <= self.lasts_s).then_some(at)
    }
}

/// How many requests are due at which time.
#[derive(Clone, Debug)]
pub struct Schedule(Vec<Segment>);

impl Schedule {
    /// The schedule of `stages`, one after the other; the rate of the last one holds on.
    #[must_use]
    pub fn new(stages: &[Stage]) -> Self {
        let (mut begin_s, mut due_before) = (0.0, 0.0);
        let mut segments = Vec::with_capacity(stages.len() + 1);
        for (number, stage) in stages.iter().enumerate() {
            let is_last = number + 1 == stages.len();
            let lasts_s = stage.lasts.map_or(f64::INFINITY, |lasts| lasts.as_secs_f64());
            let Stage { from_per_s, to_per_s, .. } = *stage;
            let segment = Segment { begin_s, due_before, from_per_s, to_per_s, lasts_s };
            segments.push(segment);
            if lasts_s.is_finite() {
                begin_s += lasts_s;
                due_before += segment.due(lasts_s);
                if is_last {
                    let (from_per_s, lasts_s) = (to_per_s, f64::INFINITY);
                    segments.push(Segment { begin_s, due_before, from_per_s, to_per_s, lasts_s });
                }
            }
        }
        Self(segments)
    }

    /// Requests due before `elapsed`, as a real number.
    #[must_use]
    pub fn due(&self, elapsed: Duration) -> f64 {
        let elapsed_s = elapsed.as_secs_f64();
        let Some(segment) = self.0.iter().rfind(|segment| segment.begin_s <= elapsed_s) else {
            return 0.0;
        };
        segment.due_before + segment.due(elapsed_s - segment.begin_s)
    }

    /// When `due` requests are due, looking from segment `hint` on; with the segment's number.
    fn when(&self, due: f64, hint: usize) -> Option<(f64, usize)> {
        for (number, segment) in self.0.iter().enumerate().skip(hint) {
            if let Some(at) = segment.when((due - segment.due_before).max(0.0)) {
                return Some((segment.begin_s + at, number));
            }
        }
        None
    }
}

/// One thread's cursor through a schedule.
#[derive(Clone, Debug)]
pub struct Arrivals {
    schedule: Schedule,
    segment: usize,
    arrival: Arrival,
    /// The request that is next, counted over all threads.
    next_due: f64,
    threads: f64,
    random: fastrand::Rng,
    next_ns: Option<u64>,
}

impl Arrivals {
    /// The cursor of `thread` (from 0) of `threads`.
    ///
    /// # Panics
    /// When there is no such thread.
    #[must_use]
    pub fn new(stages: &[Stage], arrival: Arrival, thread: u32, threads: u32, seed: u64) -> Self {
        assert!(thread < threads, "a thread beyond the last");
        let mut arrivals = Self {
            schedule: Schedule::new(stages),
            segment: 0,
            arrival,
            next_due: f64::from(thread),
            threads: f64::from(threads),
            random: fastrand::Rng::with_seed(seed ^ u64::from(thread).rotate_left(32)),
            next_ns: None,
        };
        if arrival == Arrival::Poisson {
            arrivals.next_due = arrivals.exponential();
        }
        arrivals.find();
        arrivals
    }

    /// When the next request is to begin, in nanoseconds from the start of the schedule; `None`
    /// when none will.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        self.next_ns
    }

    /// Takes the next request if it is to begin by `elapsed_ns`; says when it was to begin.
    #[inline]
    pub fn take(&mut self, elapsed_ns: u64) -> Option<u64> {
        let begin = self.next_ns.filter(|&begin| begin <= elapsed_ns)?;
        self.next_due += match self.arrival {
            Arrival::Constant => self.threads,
            Arrival::Poisson => self.exponential(),
        };
        self.find();
        Some(begin)
    }

    /// Passes all that begin before `elapsed_ns`, without looking at each; says how many. Of
    /// random arrivals it passes as many as are to be expected.
    pub(crate) fn skip(&mut self, elapsed_ns: u64) -> u64 {
        let due = self.schedule.due(Duration::from_nanos(elapsed_ns));
        let passed = ((due - self.next_due) / self.threads).ceil().max(0.0);
        self.next_due += passed * self.threads;
        self.find();
        passed as u64
    }

    /// Distance to the next of this thread's requests, in requests over all threads.
    fn exponential(&mut self) -> f64 {
        -(1.0 - self.random.f64()).ln() * self.threads
    }

    fn find(&mut self) {
        let found = self.schedule.when(self.next_due, self.segment);
        self.next_ns = found.map(|(at_s, segment)| {
            self.segment = segment;
            (at_s * NANOS_PER_S) as u64
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(from_per_s: f64, to_per_s: f64, lasts_s: Option<u64>) -> Stage {
        Stage { from_per_s, to_per_s, lasts: lasts_s.map(Duration::from_secs) }
    }

    fn all(stages: &[Stage], arrival: Arrival, threads: u32, until_s: f64) -> Vec<u64> {
        let end = (until_s * NANOS_PER_S) as u64;
        let mut times = Vec::new();
        for thread in 0..threads {
            let mut arrivals = Arrivals::new(stages, arrival, thread, threads, 7);
            times.extend(std::iter::from_fn(|| arrivals.take(end)));
        }
        times.sort_unstable();
        times
    }

    #[test]
    fn a_constant_rate_is_a_comb_that_threads_share() {
        for threads in [1, 3] {
            let times = all(&[stage(1_000.0, 1_000.0, None)], Arrival::Constant, threads, 0.9995);
            assert_eq!(times.len(), 1_000, "{threads} threads");
            for (number, time) in times.iter().enumerate() {
                assert!(time.abs_diff(number as u64 * 1_000_000) <= 1, "{number}: {time}");
            }
        }
    }

    #[test]
    fn a_ramp_has_the_mean_of_its_ends_and_then_holds() {
        let stages = [stage(0.0, 2_000.0, Some(2))];
        assert_eq!(all(&stages, Arrival::Constant, 2, 1.9999).len(), 2_000);
        assert_eq!(all(&stages, Arrival::Constant, 1, 2.9999).len(), 4_000);
        // A quarter of the ramp's requests comes in its first half.
        assert_eq!(all(&stages, Arrival::Constant, 1, 0.9999).len(), 500);
        assert_eq!(Schedule::new(&stages).due(Duration::from_secs(3)), 4_000.0);
    }

    #[test]
    fn falling_rates_and_stages_without_requests_are_passed() {
        let stages =
            [stage(100.0, 0.0, Some(1)), stage(0.0, 0.0, Some(5)), stage(10.0, 10.0, None)];
        let times = all(&stages, Arrival::Constant, 1, 6.95);
        assert_eq!(times.len(), 60);
        assert!(times[49] < 1_000_000_000 && times[51] >= 6_000_000_000, "{:?}", &times[48..]);
    }

    #[test]
    fn a_rate_of_zero_until_the_end_has_no_next_request() {
        let stages = [stage(10.0, 10.0, Some(1)), stage(0.0, 0.0, None)];
        let mut arrivals = Arrivals::new(&stages, Arrival::Constant, 0, 1, 1);
        while arrivals.take(u64::MAX).is_some() {}
        assert_eq!(arrivals.peek(), None);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_scatter() {
        let times = all(&[stage(10_000.0, 10_000.0, None)], Arrival::Poisson, 2, 10.0);
        let count = times.len() as f64;
        assert!((count - 100_000.0).abs() < 5.0 * 100_000_f64.sqrt(), "{count}");
        // Exponential distances: their standard deviation is their mean.
        let distances: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        let squares: f64 = distances.iter().map(|each| (each - mean).powi(2)).sum();
        let deviation = (squares / distances.len() as f64).sqrt();
        assert!((deviation / mean - 1.0).abs() < 0.03, "{deviation} and {mean}");
    }

    #[test]
    fn what_is_passed_is_what_would_have_been_taken() {
        let stages = [stage(0.0, 3_000.0, Some(2)), stage(700.0, 700.0, None)];
        for (thread, until_ns) in [(0, 1_000_500_000), (1, 2_600_500_000), (2, 0)] {
            let mut taken = Arrivals::new(&stages, Arrival::Constant, thread, 3, 1);
            let mut passed = taken.clone();
            let begun: Vec<u64> = std::iter::from_fn(|| taken.take(until_ns)).collect();
            // The first of all begins at the very start.
            let is_first = u64::from(thread == 0 && until_ns == 0);
            assert_eq!(passed.skip(until_ns) + is_first, begun.len() as u64);
            assert_eq!((passed.skip(until_ns), passed.peek()), (0, taken.peek()));
        }
        let random = &[stage(1e6, 1e6, None)];
        let mut random = Arrivals::new(random, Arrival::Poisson, 0, 2, 1);
        assert!(random.skip(10_000_000_000).abs_diff(5_000_000) < 50);
    }

    #[test]
    fn nothing_begins_before_its_time() {
        let mut arrivals = Arrivals::new(&[stage(10.0, 10.0, None)], Arrival::Constant, 0, 1, 1);
        assert_eq!(arrivals.take(0), Some(0));
        assert_eq!((arrivals.take(99_999_999), arrivals.peek()), (None, Some(100_000_000)));
    }
}
