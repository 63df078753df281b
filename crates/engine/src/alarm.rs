//! The timer of a loop: a timerfd that is watched like a socket.
//!
//! A wait with a timeout arms a timer of the kernel and takes it down again, each time; with
//! deadlines that nearly never come that was a twentieth of what a request costs. This timer is
//! set only when the next deadline is earlier than what it is set for, which happens some times
//! a second however many requests there are: deadlines that move later leave it alone, and one
//! that rings too early is set anew. What is due soon is left to the wait's own timeout.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::Moment;

/// What is due within this is waited for with a timeout.
const SOON: Duration = Duration::from_millis(5);

/// A timerfd, and what it is set for.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OwnedFd,
    set_for: Moment,
}

impl Alarm {
    /// A timer that is not set.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { timer, set_for: Moment::NEVER })
    }

    /// What becomes readable when the timer rings.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Makes sure that a wait from `now` on ends at `at`: by the timer, or by the timeout that
    /// is given back.
    pub(crate) fn end_wait_at(&mut self, at: Moment, now: Moment) -> Option<Duration> {
        if !at.is_finite() || self.set_for <= at {
            // It may ring too early; the turn that follows comes here again.
            return None;
        }
        if at - now < SOON || self.set(at).is_err() {
            return Some(at - now);
        }
        self.set_for = at;
        None
    }

    /// The timer rang: it is not set any more.
    pub(crate) fn rang(&mut self) {
        // EAGAIN: it was set anew since, or somebody was here before.
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
        self.set_for = Moment::NEVER;
    }

    fn set(&self, at: Moment) -> Result<(), Errno> {
        let at = Duration::from_nanos(at.as_nanos());
        // Zero would switch it off.
        let at = at.max(Duration::from_nanos(1));
        let it_value =
            Timespec { tv_sec: at.as_secs() as i64, tv_nsec: i64::from(at.subsec_nanos()) };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::{ClockId, clock_gettime};

    fn now() -> Moment {
        let read = clock_gettime(ClockId::Monotonic);
        Moment::from_nanos(read.tv_sec as u64 * 1_000_000_000 + read.tv_nsec as u64)
    }

    fn rings_within(alarm: &Alarm, time: Duration) -> bool {
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 };
        let mut watched = [PollFd::new(&alarm.timer, PollFlags::IN)];
        poll(&mut watched, Some(&timeout)).expect("polled") == 1
    }

    #[test]
    fn a_far_deadline_sets_the_timer_once_and_a_later_one_leaves_it_alone() {
        let mut alarm = Alarm::new().expect("a descriptor is left");
        let now = now();
        let at = now + Duration::from_millis(20);
        assert_eq!(alarm.end_wait_at(at, now), None);
        assert_eq!(alarm.set_for, at);
        assert_eq!(alarm.end_wait_at(at + SOON, now), None);
        assert_eq!(alarm.set_for, at);
        assert!(rings_within(&alarm, Duration::from_secs(20)));
        alarm.rang();
        assert!(!rings_within(&alarm, Duration::ZERO));
    }

    #[test]
    fn what_is_due_soon_is_a_timeout() {
        let mut alarm = Alarm::new().expect("a descriptor is left");
        let now = now();
        let soon = Duration::from_millis(1);
        assert_eq!(alarm.end_wait_at(now + soon, now), Some(soon));
        assert_eq!(alarm.end_wait_at(Moment::NEVER, now), None);
        assert_eq!(alarm.end_wait_at(Moment::default(), now), Some(Duration::ZERO));
    }
}
