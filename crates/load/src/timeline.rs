//! When requests were answered, and when some waited for an answer, on a clock of 20 ms.
//!
//! Each thread keeps one and hands it over at its end; together they say when the server stood
//! still. A step counts as waited for only when the thread was there to look at it: time in which
//! the generator itself did not run is never the server's silence, and is kept apart.

use serde::{Deserialize, Serialize};

/// The length of a step.
const STEP_NS: u64 = 20_000_000;
/// A turn that takes so much longer than it was to wait had no CPU, or far too much to do.
const STALL_NS: u64 = 100_000_000;
/// Steps without an answer that lie within a second of silence: it begins and ends within steps
/// that had answers.
const STANDSTILL_STEPS: u64 = 1_000_000_000 / STEP_NS - 1;

/// A time in which no request was answered, or a thread of the generator did not run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stall {
    /// When it began, in seconds from the start of the warm-up.
    pub from_s: f64,
    /// How long it lasted, in seconds, to a fiftieth.
    pub lasted_s: f64,
}

impl Stall {
    fn of_ns(from_ns: u64, lasted_ns: u64) -> Self {
        Self { from_s: from_ns as f64 / 1e9, lasted_s: lasted_ns as f64 / 1e9 }
    }
}

/// What one thread saw of the answers' course.
#[derive(Debug, Default)]
pub(crate) struct Course {
    origin_ns: u64,
    /// Steps in which something was answered.
    answered: Steps,
    /// Steps in which a request waited.
    waited: Steps,
    /// Steps in which one was out.
    out: Steps,
    stalls: Vec<Stall>,
    looked_ns: u64,
    answered_ns: u64,
    waited_for: Waits,
}

/// What requests of a thread wait for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Waits {
    /// None waits.
    #[default]
    Nothing,
    /// Some are to be sent, and none is out: there is no connection that could take one.
    ForConnections,
    /// Some are out.
    ForAnswers,
}

/// What is known of the standstills of a run.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Silence {
    /// In how much of their time requests were out, in seconds; for the rest there was no connection to send them on.
    pub out_s: f64,
    /// Whether nothing was answered after the last of them.
    pub is_until_end: bool,
}

impl Course {
    /// Requests begin at `origin_ns`; without that nothing is kept.
    pub(crate) fn begin(&mut self, origin_ns: u64) {
        (self.origin_ns, self.looked_ns) = (origin_ns, origin_ns);
    }

    /// A turn that was to wait `planned_ns` began its work at `now_ns`; the last answer came at
    /// `answered_ns`, and requests wait for what `waits` says.
    #[inline]
    pub(crate) fn look(&mut self, now_ns: u64, planned_ns: u64, answered_ns: u64, waits: Waits) {
        if self.origin_ns == 0 || now_ns < self.looked_ns {
            return;
        }
        let before = self.step(self.looked_ns);
        let now = self.step(now_ns);
        let passed_ns = now_ns - self.looked_ns;
        if passed_ns > planned_ns + STALL_NS {
            self.stalled(passed_ns);
        } else {
            (before..now).for_each(|step| self.note(step, self.waited_for));
        }
        self.note(now, waits);
        if answered_ns > self.answered_ns {
            self.answered.set(self.step(answered_ns.max(self.origin_ns)));
            self.answered_ns = answered_ns;
        }
        (self.looked_ns, self.waited_for) = (now_ns, waits);
    }

    #[inline]
    fn note(&mut self, step: u64, waits: Waits) {
        if waits != Waits::Nothing {
            self.waited.set(step);
        }
        if waits == Waits::ForAnswers {
            self.out.set(step);
        }
    }

    #[cold]
    fn stalled(&mut self, passed_ns: u64) {
        let from_ns = self.looked_ns - self.origin_ns;
        self.stalls.push(Stall::of_ns(from_ns, passed_ns));
    }

    fn step(&self, at_ns: u64) -> u64 {
        (at_ns - self.origin_ns) / STEP_NS
    }
}

/// Every time of a second or more in which no thread had an answer although requests were out,
/// earliest first. Time in which no request waited is not in its length.
pub(crate) fn standstills(courses: &[&Course]) -> Vec<Stall> {
    let steps = courses.iter().map(|course| course.waited.len()).max().unwrap_or(0);
    let mut found = Vec::new();
    let mut from = 0;
    let mut silent = 0;
    for step in 0..=steps {
        let is_over = step == steps || courses.iter().any(|course| course.answered.has(step));
        if !is_over && courses.iter().any(|course| course.waited.has(step)) {
            from = if silent == 0 { step } else { from };
            silent += 1;
        }
        if is_over {
            if silent >= STANDSTILL_STEPS {
                // It began within the step before and ended within this one: half of each.
                found.push(Stall::of_ns(from * STEP_NS, (silent + 1) * STEP_NS));
            }
            silent = 0;
        }
    }
    found
}

/// What is known of `standstills`, which these courses had; `None` without any.
pub(crate) fn silence(courses: &[&Course], standstills: &[Stall]) -> Option<Silence> {
    let last = standstills.last()?;
    let step_of = |at_s: f64| (at_s * 1e9 / STEP_NS as f64).round() as u64;
    let is_out = |step: &u64| courses.iter().any(|course| course.out.has(*step));
    let out_in = |still: &Stall| {
        let from = step_of(still.from_s);
        let out = (from..from + step_of(still.lasted_s)).filter(is_out).count();
        (out as u64 * STEP_NS) as f64 / 1e9
    };
    let answered_after = |course: &&Course| course.answered.any_from(step_of(last.from_s));
    Some(Silence {
        out_s: standstills.iter().map(out_in).sum(),
        is_until_end: !courses.iter().any(answered_after),
    })
}

/// The times in which a thread of the generator did not run and that no standstill can have in its
/// length, by thread.
pub(crate) fn stalls(courses: &[&Course]) -> Vec<Stall> {
    courses.iter().flat_map(|course| course.stalls.iter().copied()).collect()
}

/// A set of steps, a bit for each.
#[derive(Debug, Default)]
struct Steps(Vec<u64>);

impl Steps {
    #[inline]
    fn set(&mut self, step: u64) {
        let word = (step / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (step % 64);
    }

    fn has(&self, step: u64) -> bool {
        self.0.get((step / 64) as usize).is_some_and(|word| word >> (step % 64) & 1 == 1)
    }

    fn any_from(&self, step: u64) -> bool {
        (step..self.len()).any(|step| self.has(step))
    }

    /// Where the last word ends.
    fn len(&self) -> u64 {
        self.0.len() as u64 * 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const ORIGIN: u64 = 5_000_000_007;

    /// A thread that looks every 10 ms until `end_ms`, with an answer at each look that
    /// `is_answered`, a request out when `is_asking`, and no look when `is_gone`.
    fn course(
        end_ms: u64,
        is_answered: impl Fn(u64) -> bool,
        is_asking: impl Fn(u64) -> bool,
        is_gone: impl Fn(u64) -> bool,
    ) -> Course {
        let mut course = Course::default();
        course.begin(ORIGIN);
        let mut answered_ns = 0;
        for at_ms in (0..end_ms).step_by(10).filter(|at_ms| !is_gone(*at_ms)) {
            let now_ns = ORIGIN + at_ms * MS;
            answered_ns = if is_answered(at_ms) { now_ns } else { answered_ns };
            let waits = if is_asking(at_ms) { Waits::ForAnswers } else { Waits::Nothing };
            course.look(now_ns, 10 * MS, answered_ns, waits);
        }
        course
    }

    fn always(_: u64) -> bool {
        true
    }

    fn never(_: u64) -> bool {
        false
    }

    #[test]
    fn a_silence_is_found_wherever_it_begins_to_a_step() {
        for from_ms in (0..7_000).step_by(130) {
            let course =
                course(10_000, |at| !(from_ms..from_ms + 3_000).contains(&at), always, never);
            let found = standstills(&[&course]);
            let [Stall { from_s, lasted_s }] = found[..] else { panic!("{found:?}") };
            assert!((from_s - from_ms as f64 / 1e3).abs() <= 0.04, "{from_ms}: {found:?}");
            assert!((lasted_s - 3.0).abs() <= 0.04, "{from_ms}: {found:?}");
        }
    }

    #[test]
    fn less_than_a_second_is_none_and_a_second_is_one() {
        for (lasts_ms, times) in [(900, 0), (960, 0), (1_020, 1)] {
            let silent = |at| !(2_000..2_000 + lasts_ms).contains(&at);
            let found = standstills(&[&course(6_000, silent, always, never)]);
            assert_eq!(found.len(), times, "{lasts_ms}: {found:?}");
        }
    }

    #[test]
    fn a_silence_until_the_end_is_one() {
        let found = standstills(&[&course(5_000, |at| at < 2_500, always, never)]);
        assert!(found.len() == 1 && found[0].lasted_s >= 2.48, "{found:?}");
    }

    #[test]
    fn another_thread_that_is_answered_ends_it() {
        let silent = course(5_000, never, always, never);
        let lucky = course(5_000, |at| at % 900 == 0, always, never);
        assert_eq!(standstills(&[&silent, &lucky]), []);
        assert_eq!(standstills(&[&silent, &silent]).len(), 1);
    }

    #[test]
    fn without_requests_there_is_no_silence() {
        assert_eq!(standstills(&[&course(5_000, never, never, never)]), []);
        // Asked for 300 ms of each second, it takes three of them to a second of silence less.
        let seldom = course(9_000, |at| at % 3_000 == 0, |at| at % 1_000 < 300, never);
        assert_eq!(standstills(&[&seldom]), []);
    }

    #[test]
    fn time_that_a_standstill_lacks_is_a_stall() {
        let gone = |at| (2_000..2_300).contains(&at);
        let course = course(6_000, |at| !(1_000..4_000).contains(&at), always, gone);
        let [silence] = standstills(&[&course])[..] else { panic!("one") };
        let [lost] = stalls(&[&course])[..] else { panic!("one") };
        let all_s = silence.lasted_s + lost.lasted_s;
        assert!((all_s - 3.0).abs() <= 0.06, "{silence:?} {lost:?}");
    }

    #[test]
    fn time_in_which_the_generator_did_not_run_is_its_own() {
        let gone = |at| (1_000..4_000).contains(&at);
        let course = course(6_000, |at| !gone(at), always, gone);
        assert_eq!(standstills(&[&course]), []);
        let found = stalls(&[&course]);
        let [Stall { from_s, lasted_s }] = found[..] else { panic!("{found:?}") };
        assert!((from_s - 0.99).abs() < 1e-6 && (lasted_s - 3.01).abs() < 1e-6, "{found:?}");
    }
}
