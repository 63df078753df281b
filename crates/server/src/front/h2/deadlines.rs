//! When a stream has had too little of something for too long: of its body, of its window, or of what its exchange waits for;
//! and the time of bodies, which stands while output waits.

use std::time::Duration;

use pollux_engine::Moment;
use pollux_http::h2::ErrorCode;

use crate::body_clock::BodyTime;
use crate::counters::ServerCounter;
use crate::front::h2::answers::{KEPT_BYTES_MAX, Reading};
use crate::front::h2::{Call, Http2Session, Part, Task};
use crate::front::state::LoopState;
use crate::handlers::answer;
use crate::record::Cut;
use crate::refusal::Refusal;

/// A stream whose turn to send does not come is looked at again after this time: by then its window may have closed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Http2Session {
    /// A stream had too little of something for too long.
    pub(super) fn too_late(&mut self, call: &mut Call<'_, '_>, stream: u32) {
        let Some(task) = self.connection.data_mut(stream) else { return };
        if matches!(task.part, Part::Later(_)) {
            return self.later_too_late(call, stream);
        }
        if let Part::Answered { .. } = task.part {
            self.senders -= 1;
            task.part = Part::New;
            return self.end_stream(call, stream);
        }
        if matches!(task.part, Part::Checking(_)) {
            return self.end_check(call, stream);
        }
        // While an echo waits for a window the time of its body stands.
        if !task.is_reading() || task.has_more() {
            call.count(ServerCounter::Http2WindowTimeouts);
            return self.reset(call, stream, ErrorCode::CANCEL, Cut::ClientTimeout);
        }
        Refusal::LateBody.count(&call.state.counters);
        if task.status.is_some() || !call.takes_answer() || self.kept_bytes >= KEPT_BYTES_MAX {
            return self.reset(call, stream, ErrorCode::CANCEL, Cut::ClientTimeout);
        }
        let task = std::mem::take(task);
        self.left(&task);
        let front = self.front;
        let epoch = task.kept.restore(&call.state.current_id);
        call.under(epoch, |call| {
            self.answer_by(call, stream, &task.head, |state, upper| {
                answer::late(upper, state.common_of(front), Refusal::LateBody)
            });
        });
    }

    /// When streams are looked at next.
    pub(super) fn next_look(&self) -> Moment {
        let of_readers = match self.stands {
            None if self.readers > 0 => self.look_at_readers + self.stood,
            _ => Moment::NEVER,
        };
        if self.senders > 0 { self.look_at.min(of_readers) } else { of_readers }
    }

    /// Looks which streams had too little of something for too long, and when that may be so next.
    pub(super) fn look(&mut self, call: &mut Call<'_, '_>) {
        let now = call.state.now.at;
        let state = &*call.state;
        let body_now = self.body_time(now);
        let stood = self.stood_known();
        let mut late = Vec::new();
        let mut next = Moment::NEVER;
        let mut next_of_readers = Moment::NEVER;
        for (stream, task) in self.connection.streams() {
            let of_body = task.reading().map_or(Moment::NEVER, Reading::deadline);
            let of_window = self.window_deadline(state, stream, task);
            let of_exchange = match &task.part {
                Part::Later(later) => later.deadline(state, stood),
                Part::Answered { end, .. } => *end,
                Part::Checking(checking) => checking.deadline(state),
                _ => Moment::NEVER,
            };
            let of_body_is_over = of_body <= body_now && self.stands.is_none();
            if of_window <= now || of_exchange <= now || of_body_is_over {
                late.push(stream);
                continue;
            }
            next = next.min(of_exchange);
            next_of_readers = next_of_readers.min(of_body);
            let timeout = state.limits.write_timeout;
            next = next.min(match of_window {
                Moment::NEVER if task.has_more() => {
                    (task.pace.last_byte() + timeout).max(now + LOOK_AGAIN)
                }
                Moment::NEVER if task.is_sending() => now + timeout,
                of_window => of_window,
            });
        }
        (self.look_at, self.look_at_readers) = (next, next_of_readers);
        for stream in late {
            self.too_late(call, stream);
        }
    }

    /// By when a stream has to have been able to send something.
    pub(super) fn window_deadline(&self, state: &LoopState, stream: u32, task: &Task) -> Moment {
        let limits = &state.limits;
        if !task.has_more() || self.connection.data_room(stream) > 0 {
            return Moment::NEVER;
        }
        // Its own window its client opens for it alone; that of the connection is for all that wait.
        let share =
            if self.connection.is_window_closed(stream) { 1 } else { self.senders.max(1) as u64 };
        let rate_min_bytes = limits.read_rate_min_bytes.div_ceil(share);
        // An echo comes as slowly as its body, which has a rate of its own.
        if rate_min_bytes == 0 || matches!(task.part, Part::Echo(_)) {
            return task.pace.last_byte() + limits.write_timeout;
        }
        let time = BodyTime { timeout: limits.write_timeout, rate_min_bytes };
        task.pace.deadline(task.body_bytes.saturating_sub(task.left_bytes()), time)
    }

    /// The time of bodies, which stands while output waits: what comes beside output may come slowly for that.
    pub(super) fn body_time(&self, now: Moment) -> Moment {
        let now = self.stands.unwrap_or(now);
        Moment::from_nanos(now.as_nanos().saturating_sub(self.stood.as_nanos() as u64))
    }

    /// How long it stood; none while it stands.
    pub(super) fn stood_known(&self) -> Option<Duration> {
        self.stands.is_none().then_some(self.stood)
    }

    /// How long it stood by now.
    pub(super) fn stood_until(&self, now: Moment) -> Duration {
        self.stood + self.stands.map_or(Duration::ZERO, |since| now - since)
    }

    /// The time of bodies continues, once all output has left.
    pub(super) fn continue_bodies(&mut self, now: Moment) {
        if let Some(since) = self.stands.take() {
            self.stood += now - since;
            if self.ready.is_some() {
                // Bodies of exchanges have a deadline again.
                self.look_at = self.look_at.min(now + LOOK_AGAIN);
            }
        }
    }
}
