//! One thread's part of a load that comes in turns.
//!
//! Between turns every connection stays open and idle, and nothing is under way: what a server has
//! used then belongs to the turns that were.

use std::time::Duration;

use super::finish::TIMEOUT_SLACK;
use super::{WAIT_MAX, Worker};
use crate::shared::{Stage, monotonic_ns};
use crate::supply::Budget;
use crate::{CrowdOutcome, LoadError, Turned};

impl Worker {
    /// Opens the crowd and the active connections. No request leaves but those of the crowd.
    pub(crate) fn set_up_for_turns(&mut self) -> Result<(), LoadError> {
        self.set_up_crowd()?;
        self.set_up_active()?;
        self.shared().stage = Stage::Running;
        self.shared().end_ns = 0;
        Ok(())
    }

    /// Requests begin for `length`, or until so many have begun; returns when all of them were
    /// answered, or failed.
    pub(crate) fn turn_for(
        &mut self,
        length: Duration,
        requests: Option<u64>,
    ) -> Result<Turned, LoadError> {
        let began_ns = monotonic_ns();
        let end_ns = began_ns + length.as_nanos() as u64;
        let give_up_ns = end_ns + (self.plan.request_timeout + TIMEOUT_SLACK).as_nanos() as u64;
        let before = self.counted();
        self.shared().end_ns = end_ns;
        self.shared().budget = requests.map_or_else(Budget::unlimited, Budget::own);
        while let Some(id) = self.shared().seats.pop() {
            self.woken.push(id);
        }
        for id in self.woken.drain(..) {
            self.event_loop.wake(id);
        }
        let mut now_ns = began_ns;
        while now_ns < give_up_ns {
            let is_open = now_ns < end_ns && !self.shared().is_spent();
            if is_open {
                self.open_again(now_ns);
            } else if self.shared().under_way == 0 && self.shared().connecting == 0 {
                break;
            }
            // Woken by answers; when the time is up nothing has to be done but to see it.
            let until_ns = if is_open { end_ns } else { give_up_ns };
            self.turn(Duration::from_nanos(until_ns - now_ns).min(WAIT_MAX))?;
            now_ns = monotonic_ns();
        }
        let after = self.counted();
        Ok(Turned {
            right: after.right - before.right,
            failed: after.failed - before.failed + self.shared().under_way,
            took: Duration::from_nanos(now_ns - began_ns),
        })
    }

    /// Takes in what has come meanwhile, until nothing comes.
    pub(crate) fn look_at_crowd(&mut self) -> Result<[CrowdOutcome; 3], LoadError> {
        loop {
            self.turn(Duration::ZERO)?;
            if !self.shared().has_worked {
                return Ok(self.shared().crowd.outcomes());
            }
        }
    }

    fn counted(&mut self) -> Counted {
        let tally = &self.shared().interval.measured;
        let failed = tally.errors.total() + tally.totals.redirected;
        Counted { right: tally.totals.right, failed }
    }
}

#[derive(Clone, Copy)]
struct Counted {
    right: u64,
    failed: u64,
}
