//! What a program's loop did over the time: a point for each interval, as many as a chart can show.

use std::time::Duration;

use pollux_loop_stats::Counter;
use serde::Serialize;

use crate::Summary;

/// Above this every second point goes, so that a long run has as many as a short one.
const POINTS_MAX: usize = 400;

/// The figures up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Mark {
    at_s: f64,
    waits: u64,
    events: u64,
    updates: u64,
    accepted: u64,
    wait_ns: u64,
    turn_ns: u64,
}

/// What happened between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    pub(crate) waits: u64,
    pub(crate) events: u64,
    /// ADD, MOD and DEL.
    pub(crate) updates: u64,
    pub(crate) accepted: u64,
    /// Share of the time of waits and turns; nothing where there was neither.
    pub(crate) in_waits: Option<f64>,
}

/// The figures at moments of a run.
#[derive(Clone, Debug, Default)]
pub struct Course {
    marks: Vec<Mark>,
}

impl Course {
    /// Notes the figures so far.
    pub fn note(&mut self, summary: &Summary) {
        if self.marks.len() >= POINTS_MAX {
            let mut place = 0;
            self.marks.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
        let get = |counter| summary.get(counter);
        self.marks.push(Mark {
            at_s: summary.lasted.as_secs_f64(),
            waits: get(Counter::Waits),
            events: get(Counter::Events),
            updates: get(Counter::Adds) + get(Counter::Mods) + get(Counter::Dels),
            accepted: get(Counter::Accepted),
            wait_ns: get(Counter::WaitNs),
            turn_ns: get(Counter::TurnNs),
        });
    }

    /// Between two notes, for as long as there are few.
    #[must_use]
    pub fn interval(lasted: Duration) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(250);
        SHORTEST.max(lasted / POINTS_MAX as u32)
    }

    /// What happened from note to note.
    pub(crate) fn intervals(&self) -> Vec<Interval> {
        let before = [Mark::default()].into_iter().chain(self.marks.iter().copied());
        let between = |(before, now): (Mark, &Mark)| {
            let waits_ns = now.wait_ns.saturating_sub(before.wait_ns);
            let all_ns = waits_ns + now.turn_ns.saturating_sub(before.turn_ns);
            Interval {
                from_s: before.at_s,
                to_s: now.at_s,
                waits: now.waits.saturating_sub(before.waits),
                events: now.events.saturating_sub(before.events),
                updates: now.updates.saturating_sub(before.updates),
                accepted: now.accepted.saturating_sub(before.accepted),
                in_waits: (all_ns > 0).then(|| waits_ns as f64 / all_ns as f64),
            }
        };
        before.zip(&self.marks).map(between).collect()
    }
}

impl Interval {
    pub(crate) fn seconds(&self) -> f64 {
        self.to_s - self.from_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_few_points_and_loses_no_count() {
        let mut course = Course::default();
        let mut summary = Summary::of(
            pollux_loop_stats::Region::begin(&crate::attach::memory()).expect("room"),
            Duration::ZERO,
            crate::Source::Library,
        );
        for second in 1..=5000 {
            summary.lasted = Duration::from_secs(second);
            course.note(&summary);
            course.marks.last_mut().expect("noted").waits = second * 10;
        }
        let intervals = course.intervals();
        assert!(intervals.len() <= POINTS_MAX, "{}", intervals.len());
        assert_eq!(intervals.iter().map(|interval| interval.waits).sum::<u64>(), 50_000);
        assert!(intervals.windows(2).all(|pair| pair[0].to_s == pair[1].from_s));
    }
}
