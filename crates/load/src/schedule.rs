//! When requests begin: the words of `--rate`, the schedule of an open loop, and which request of a thread may begin
//! now.
//!
//! The schedule says how many requests are due up to a time; the k-th one begins where that
//! number reaches k. So stages may rise, fall or stand still, a thread takes every n-th request,
//! and nothing is queued while a server stands still: the cursor waits where it was.
//!
//! The words of `--rate`: `1000`, `1000@10s,2000@20s` for steps, `100..5000@60s` for a ramp.
//!
//! Which request may begin now, as sessions and the worker of one thread ask it: any until the end of the plan in a
//! closed loop, those of the schedule in an open one. A number of requests that threads share is taken in portions, so
//! that the shared counter is seldom touched.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pollux_settings::quantity::{self, NotADuration};

use crate::{Arrival, Stage};

const NANOS_PER_S: f64 = 1e9;

/// Stages of one schedule at most: more belong into a program that makes the load.
const STAGES_MAX: usize = 1_000;
/// Requests per second at most; a nanosecond between two of them is as near as they get.
const RATE_MAX: f64 = 1e9;
/// Requests dropped at the end of the warm-up that are looked at one by one, in a millisecond or two. Of more only the
/// number is worked out.
const DROPPED_LOOKED_AT: u32 = 20_000;
/// Requests taken from the shared number at once; fewer when there are few.
const PORTION_MAX: u64 = 64;

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
        let rate = self.from_per_s;
        let slope = self.slope();
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
        let mut begin_s = 0.0;
        let mut due_before = 0.0;
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
                    let from_per_s = to_per_s;
                    let lasts_s = f64::INFINITY;
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

/// What is wrong with a rate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateError {
    part: String,
    why: &'static str,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\": {}; expected 1000 for a rate, 1000@10s,2000@10s for steps, 100..5000@60s for \
             a ramp (requests per second)",
            self.part, self.why
        )
    }
}

impl std::error::Error for RateError {}

/// Reads the stages of an open loop.
///
/// # Errors
/// [`RateError`] names the part that is wrong.
pub fn parse_rate(text: &str) -> Result<Vec<Stage>, RateError> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > STAGES_MAX {
        return Err(RateError { part: parts[STAGES_MAX].to_owned(), why: "too many stages" });
    }
    let last = parts.len() - 1;
    let stage = |(number, part): (usize, &&str)| {
        parse_stage(part, number == last).map_err(|why| RateError { part: (*part).to_owned(), why })
    };
    let stages: Vec<Stage> = parts.iter().enumerate().map(stage).collect::<Result<_, _>>()?;
    if stages.iter().all(|stage| stage.from_per_s == 0.0 && stage.to_per_s == 0.0) {
        return Err(RateError { part: text.to_owned(), why: "no request would ever begin" });
    }
    Ok(stages)
}

fn parse_stage(part: &str, is_last: bool) -> Result<Stage, &'static str> {
    let (rates, lasts) = match part.split_once('@') {
        Some((rates, lasts)) => (rates, Some(parse_duration(lasts)?)),
        None => (part, None),
    };
    let (from_per_s, to_per_s) = match rates.split_once("..") {
        Some((from, to)) => (parse_number(from)?, parse_number(to)?),
        None => (parse_number(rates)?, parse_number(rates)?),
    };
    if lasts.is_none() && !is_last {
        return Err("only the last stage may do without a duration");
    }
    if lasts.is_none() && from_per_s != to_per_s {
        return Err("a ramp needs a duration");
    }
    Ok(Stage { from_per_s, to_per_s, lasts })
}

fn parse_number(text: &str) -> Result<f64, &'static str> {
    match quantity::number(text).ok_or("not a number")? {
        rate if rate > RATE_MAX => Err("more than a request in a nanosecond"),
        rate => Ok(rate),
    }
}

/// As every other duration that is given: `500ms`, `10s`, `1m30s`.
fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    match quantity::duration(text) {
        Ok(Duration::ZERO) => Err("a duration of zero"),
        Ok(duration) => Ok(duration),
        Err(NotADuration::WithoutUnit) => {
            Err("a duration without its unit, such as 500ms, 10s or 1m30s")
        }
        Err(NotADuration::Other) => Err("not a duration, such as 500ms, 10s or 1m30s"),
    }
}

/// The stages in the words of `--rate`.
pub(crate) fn rate_in_words(stages: &[Stage]) -> String {
    let words = |stage: &Stage| {
        let Stage { from_per_s, to_per_s, lasts } = stage;
        let ramp = if from_per_s == to_per_s { String::new() } else { format!("..{to_per_s}") };
        let lasts = lasts.map_or(String::new(), |lasts| format!("@{}s", lasts.as_secs_f64()));
        format!("{from_per_s}{ramp}{lasts}")
    };
    stages.iter().map(words).collect::<Vec<_>>().join(",")
}

/// How many requests are left, those of the warm-up apart.
#[derive(Debug)]
pub(crate) struct Budget {
    /// This thread's.
    left: u64,
    /// What all threads may still take.
    pool: Option<Arc<AtomicU64>>,
    portion: u64,
    /// Taken for connections that are opened for one request each, and not yet begun.
    reserved: u64,
    /// Whether connections take their first one when they are opened.
    reserves: bool,
}

impl Budget {
    /// As many as there is time for.
    pub(crate) fn unlimited() -> Self {
        Self::own(u64::MAX)
    }

    /// So many for this thread alone.
    pub(crate) fn own(requests: u64) -> Self {
        Self { left: requests, pool: None, portion: 0, reserved: 0, reserves: false }
    }

    /// So many for one turn of this thread, a connection's first taken when it is opened: none is opened that
    /// would have nothing to carry.
    pub(crate) fn of_turn(requests: u64) -> Self {
        Self { reserves: true, ..Self::own(requests) }
    }

    /// A part of what `pool` holds, with so many takers.
    pub(crate) fn shared(pool: Arc<AtomicU64>, takers: u64) -> Self {
        let portion = (pool.load(Relaxed) / (takers * 8).max(1)).clamp(1, PORTION_MAX);
        Self { left: 0, pool: Some(pool), portion, reserved: 0, reserves: true }
    }

    /// Takes one; false when none is left.
    #[inline]
    pub(crate) fn take(&mut self) -> bool {
        if self.left == 0 && !self.refill() {
            return false;
        }
        self.left -= 1;
        true
    }

    /// Takes one for a connection that is about to be opened, where a number is shared or a turn's: whether one was
    /// taken; `None` when none is left, and the connection would have nothing to carry.
    pub(crate) fn reserve(&mut self) -> Option<bool> {
        if !self.reserves {
            return Some(false);
        }
        self.take().then(|| {
            self.reserved += 1;
            true
        })
    }

    /// The request of a connection begins that one was reserved for.
    pub(crate) fn begin_reserved(&mut self) {
        // One may have been reserved in an earlier turn.
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Takes so many, or those that are left; says how many. Only for one that is not shared.
    pub(crate) fn take_up_to(&mut self, requests: u64) -> u64 {
        let taken = requests.min(self.left);
        self.left -= taken;
        taken
    }

    /// Whether a connection may be opened: not one that would have nothing to carry, of which a turn keeps hold.
    pub(crate) fn allows_opening(&self) -> bool {
        self.left > 0 || !self.reserves || self.pool.is_some()
    }

    /// Whether none is left.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
            && self.reserved == 0
            && self.pool.as_ref().is_none_or(|pool| pool.load(Relaxed) == 0)
    }

    fn refill(&mut self) -> bool {
        let Some(pool) = &self.pool else { return false };
        let portion = self.portion;
        let before = pool.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(portion)));
        self.left = before.map_or(0, |left| left.min(portion));
        self.left > 0
    }
}

/// A request that may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    /// From when its latency counts.
    pub(crate) at_ns: u64,
    /// A connection was free at that time, so it should have left then.
    pub(crate) had_connection: bool,
}

/// Where requests come from.
#[derive(Debug)]
pub(crate) enum Supply {
    /// One for each that was answered.
    Closed,
    /// The schedule's.
    Open(Box<OpenLoop>),
}

/// An open loop's requests on one thread.
#[derive(Debug)]
pub(crate) struct OpenLoop {
    arrivals: Arrivals,
    /// When the schedule began.
    pub(crate) origin_ns: u64,
    /// No request that is due from here on is sent.
    pub(crate) end_ns: u64,
    /// Due, and an idle connection was woken for each.
    given_out: VecDeque<u64>,
}

impl OpenLoop {
    /// The requests of `arrivals`; nothing is due before `origin_ns` is set.
    pub(crate) fn new(arrivals: Arrivals) -> Self {
        Self { arrivals, origin_ns: u64::MAX, end_ns: u64::MAX, given_out: VecDeque::new() }
    }

    /// When the next request is due that no connection was woken for.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let due = self.origin_ns.saturating_add(self.arrivals.peek()?);
        (due < self.end_ns).then_some(due)
    }

    /// Whether a request is due by `now_ns` that has not begun.
    pub(crate) fn is_behind(&self, now_ns: u64) -> bool {
        !self.given_out.is_empty() || self.next_ns().is_some_and(|due| due <= now_ns)
    }

    /// How many wait for a connection that was woken for them and is gone.
    pub(crate) fn given_out(&self) -> usize {
        self.given_out.len()
    }

    /// Sets the next request aside for an idle connection, if it is due.
    pub(crate) fn give_out(&mut self, now_ns: u64) -> bool {
        let due = self.take(now_ns);
        self.given_out.extend(due);
        due.is_some()
    }

    /// The next request that is due.
    #[inline]
    pub(crate) fn start(&mut self, now_ns: u64) -> Option<Start> {
        if let Some(at_ns) = self.given_out.pop_front() {
            return Some(Start { at_ns, had_connection: true });
        }
        self.take(now_ns).map(|at_ns| Start { at_ns, had_connection: false })
    }

    /// Passes all that were due before `until_ns` and have not begun; says how many, and when the first was due.
    pub(crate) fn drop_before(&mut self, until_ns: u64) -> Option<(u64, u64)> {
        let first_ns = self.given_out.front().copied().or_else(|| self.next_ns());
        let first_ns = first_ns.filter(|first_ns| *first_ns < until_ns)?;
        let mut dropped = 0;
        while self.given_out.front().is_some_and(|due_ns| *due_ns < until_ns) {
            self.given_out.pop_front();
            dropped += 1;
        }
        for _ in 0..DROPPED_LOOKED_AT {
            if self.take(until_ns - 1).is_none() {
                return Some((dropped, first_ns));
            }
            dropped += 1;
        }
        Some((dropped + self.skip(until_ns), first_ns))
    }

    /// Passes all that are due before `until_ns`; says how many.
    pub(crate) fn skip(&mut self, until_ns: u64) -> u64 {
        self.arrivals.skip(until_ns.min(self.end_ns).saturating_sub(self.origin_ns))
    }

    #[inline]
    fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.next_ns().filter(|due| *due <= now_ns)?;
        let _taken = self.arrivals.take(due - self.origin_ns);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, Stage};

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

    #[test]
    fn rates_read_back_as_they_are_shown() {
        for text in ["1000", "0.5", "1000@10s,2000@20s", "100..5000@60s", "0..10@0.5s,10"] {
            assert_eq!(rate_in_words(&parse_rate(text).expect(text)), text);
        }
        let per_s = |text: &str| parse_rate(text).expect(text)[0].from_per_s;
        assert_eq!(["1e9", "2.5k", "3M"].map(per_s), [1e9, 2_500.0, 3e6]);
        assert_eq!(parse_rate("5@1m30s").expect("a rate")[0].lasts, Some(Duration::from_secs(90)));
        let stages = parse_rate("2k@1m").expect("a rate");
        assert_eq!(
            (stages[0].from_per_s, stages[0].lasts),
            (2_000.0, Some(Duration::from_secs(60)))
        );
    }

    #[test]
    fn wrong_rates_say_which_part_and_why() {
        for (text, part, why) in [
            ("", "", "not a number"),
            ("fast", "fast", "not a number"),
            ("-5", "-5", "not a number"),
            ("1e99", "1e99", "nanosecond"),
            ("+3", "+3", "not a number"),
            ("99999999999", "99999999999", "nanosecond"),
            ("1000,2000@5s", "1000", "only the last"),
            ("1..2", "1..2", "ramp needs"),
            ("5@10", "5@10", "unit"),
            ("5@0s", "5@0s", "zero"),
            ("5@1e3s", "5@1e3s", "not a duration"),
            ("0", "0", "ever begin"),
        ] {
            let error = parse_rate(text).expect_err(text);
            assert_eq!(error.part, part);
            assert!(error.why.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn takers_share_exactly_the_number_there_is() {
        for requests in [0, 1, 7, 1_000, 10_001] {
            let pool = Arc::new(AtomicU64::new(requests));
            let mut takers: Vec<Budget> =
                (0..3).map(|_| Budget::shared(Arc::clone(&pool), 3)).collect();
            let mut taken = 0;
            while takers.iter().any(|taker| !taker.is_spent()) {
                taken += takers.iter_mut().map(|taker| u64::from(taker.take())).sum::<u64>();
            }
            assert_eq!(taken, requests);
        }
    }

    #[test]
    fn what_is_due_is_given_once_and_never_early_nor_after_the_end() {
        let stage = Stage { from_per_s: 1_000.0, to_per_s: 1_000.0, lasts: None };
        let mut due = OpenLoop::new(Arrivals::new(&[stage], Arrival::Constant, 0, 1, 0));
        assert_eq!(due.start(u64::MAX - 1), None, "no origin yet");
        (due.origin_ns, due.end_ns) = (50_000_000, 53_000_000);
        assert_eq!(due.start(49_999_999), None);
        assert!(due.give_out(51_000_000));
        assert_eq!((due.given_out(), due.next_ns()), (1, Some(51_000_000)));
        let start = |at_ns, had_connection| Some(Start { at_ns, had_connection });
        assert_eq!(due.start(51_000_000), start(50_000_000, true));
        assert_eq!(due.start(51_000_000), start(51_000_000, false));
        assert_eq!(due.start(51_999_000), None);
        assert_eq!(due.start(60_000_000), start(52_000_000, false));
        assert_eq!((due.start(60_000_000), due.next_ns()), (None, None));
    }
}
