//! How a worker ends: what is out is waited for, cut off and booked, and all is handed over.

use std::time::Duration;

use pollux_engine::CloseCause;

use super::{SECOND_NS, WAIT_MAX, WAIT_READY, Worker};
use crate::LoadError;
use crate::gather::ThreadOutcome;
use crate::own_use::OwnUse;
use crate::shared::{Stage, monotonic_ns};

/// What a request may outlive its time limit: deadlines fire a tick late.
pub(super) const TIMEOUT_SLACK: Duration = Duration::from_millis(20);
/// How long what is under way is waited for after a stop, at most.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// A server that has said nothing since the end is waited for until its silence is so long: then
/// it is known to stand still, and not only to be slow.
const SILENCE: Duration = Duration::from_millis(1_040);
/// From such a time on a run that nobody ever answered has nothing more to wait for.
const HOPELESS: Duration = Duration::from_secs(1);
/// A last interval that is shorter belongs to the one before.
const INTERVAL_MIN_NS: u64 = SECOND_NS / 10;

impl Worker {
    /// Waits for what is under way, then for the other threads, and ends.
    pub(super) fn finish(mut self, set_up: Duration) -> Result<ThreadOutcome, LoadError> {
        self.control.finishing();
        let ended_ns = monotonic_ns();
        self.count_unsent();
        let mut give_up_ns = ended_ns.saturating_add(self.patience_ns(ended_ns));
        let mut was_stopped = false;
        while self.shared().under_way > 0
            && monotonic_ns() < self.at_least_silence(ended_ns, give_up_ns)
        {
            let now_ns = monotonic_ns();
            // A stop may also come while this waits.
            if self.control.is_stopped() && !std::mem::replace(&mut was_stopped, true) {
                give_up_ns = give_up_ns.min(now_ns + STOP_GRACE.as_nanos() as u64);
            }
            if now_ns >= self.boundary_ns {
                self.hand_over(now_ns);
            }
            let left = Duration::from_nanos(
                self.at_least_silence(ended_ns, give_up_ns).saturating_sub(now_ns),
            );
            self.turn_and_look(left.min(WAIT_MAX))?;
        }
        let now_ns = monotonic_ns();
        let (before, measured_ns) = match self.before {
            Some((before, since_ns)) => (before, now_ns - since_ns),
            None => (OwnUse::read(), 0),
        };
        let used = OwnUse::read().since(&before);
        self.control.finished();
        while !self.control.are_all_finished() {
            self.turn(WAIT_READY)?;
        }
        // What is out now is booked as that, before the last is handed over.
        let open = self.shared().open;
        self.event_loop.close_all(CloseCause::LoopEnded);
        self.send_last(now_ns, open);
        Ok(self.outcome(used, measured_ns, (ended_ns, now_ns), set_up))
    }

    /// How long what is under way is waited for from `ended_ns` on.
    fn patience_ns(&mut self, ended_ns: u64) -> u64 {
        let run_ns =
            self.control.origin_ns().map_or(0, |origin_ns| ended_ns.saturating_sub(origin_ns));
        let hopeless_ns = HOPELESS.as_nanos() as u64;
        if !self.control.was_answered() && run_ns >= hopeless_ns && !self.shared().is_spent() {
            return 0;
        }
        // A run that ends by number is to have all of them, but not longer than it may take.
        let grace_ns = self.plan.grace.as_nanos() as u64;
        if self.shared().is_spent() {
            let whole_ns = (self.plan.request_timeout + TIMEOUT_SLACK).as_nanos() as u64;
            let left_ns = self.shared().end_ns.saturating_sub(ended_ns);
            return whole_ns.min(left_ns.saturating_add(grace_ns));
        }
        grace_ns
    }

    /// `give_up_ns`, or later while the server has said nothing since the end.
    fn at_least_silence(&mut self, ended_ns: u64, give_up_ns: u64) -> u64 {
        let last_ns = self.shared().last_answer_ns;
        let is_asking = self.shared().is_asking();
        if last_ns == 0 || last_ns >= ended_ns || !is_asking || self.control.is_stopped() {
            return give_up_ns;
        }
        give_up_ns
            .max((last_ns + SILENCE.as_nanos() as u64).min(ended_ns + STOP_GRACE.as_nanos() as u64))
    }

    /// The open loop's requests that were due and found no connection.
    fn count_unsent(&mut self) {
        let shared = self.event_loop.shared();
        let end_ns = shared.end_ns.min(monotonic_ns());
        shared.count_unsent(end_ns);
        shared.stage = Stage::Ending;
    }

    /// Hands over what was counted last; a moment's worth goes to the interval before.
    fn send_last(&mut self, now_ns: u64, open: u32) {
        let began_ns = self.boundary_ns.saturating_sub(SECOND_NS);
        let is_short = now_ns.saturating_sub(began_ns) < INTERVAL_MIN_NS;
        // What counts does not go into a second of the warm-up.
        let is_first = self.control.measure_from_ns().is_none_or(|from_ns| began_ns <= from_ns);
        let is_short = is_short && !is_first && self.interval > 0;
        self.send(self.interval - u32::from(is_short), now_ns, open);
    }

    fn outcome(
        mut self,
        used: OwnUse,
        measured_ns: u64,
        (ended_ns, waited_until_ns): (u64, u64),
        set_up: Duration,
    ) -> ThreadOutcome {
        let shared = self.event_loop.shared();
        let mut crowd = shared.crowd.outcomes();
        crowd.iter_mut().for_each(|kind| kind.set_up_s = set_up.as_secs_f64());
        ThreadOutcome {
            used,
            spun: Duration::from_nanos(self.spun_ns),
            measured: Duration::from_nanos(measured_ns),
            ended_ns,
            waited_until_ns,
            last_outcome_ns: shared.last_outcome_ns,
            last_answer_ns: shared.last_answer_ns,
            course: self.course,
            crowd,
        }
    }
}
