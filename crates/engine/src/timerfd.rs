//! Timers of the kernel (`timerfd_create(2)`): those of a program, which a loop watches as sources, and the one that
//! ends a loop's waits. The deadlines of connections are in `timers.rs`; none of them has a descriptor.

use std::io;
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

/// A timer as a source: readable once its time has come (`timerfd_create(2)`, CLOCK_MONOTONIC).
///
/// [`EventLoop::after`](crate::EventLoop::after) and [`EventLoop::every`](crate::EventLoop::every)
/// watch one for you.
///
/// ```
/// use pollux_engine::Timer;
/// use std::time::Duration;
///
/// let timer = Timer::after(Duration::from_secs(3600))?;
/// assert_eq!(timer.take(), 0, "not yet");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that fires once, `time` from now. A time of zero counts as a nanosecond.
    ///
    /// # Errors
    /// No descriptor is left (EMFILE, ENFILE).
    pub fn after(time: Duration) -> io::Result<Self> {
        Self::new(time, Duration::ZERO)
    }

    /// A timer that fires each `period`, for the first time one period from now.
    ///
    /// # Errors
    /// As [`Timer::after`].
    ///
    /// # Panics
    /// When `period` is zero.
    pub fn every(period: Duration) -> io::Result<Self> {
        assert!(!period.is_zero(), "a period is longer than nothing");
        Self::new(period, period)
    }

    /// How often the timer fired since the last call; it is readable again when it fires next.
    #[must_use]
    pub fn take(&self) -> u64 {
        let mut fired = [0; 8];
        // EAGAIN: it has not fired.
        rustix::io::read(&self.0, &mut fired).map_or(0, |_| u64::from_ne_bytes(fired))
    }

    fn new(first: Duration, period: Duration) -> io::Result<Self> {
        let timer = create_timer()?;
        set_timer(&timer, TimerfdTimerFlags::empty(), first, period)?;
        Ok(Self(timer))
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The timer of a loop, which ends its waits; watched like a socket.
///
/// A wait with a timeout arms a timer of the kernel and takes it down again, each time; with deadlines that nearly
/// never come that was a twentieth of what a request costs.
/// This timer is set only when the next deadline is earlier than what it is set for, which happens some times
/// a second however many requests there are: deadlines that move later leave it alone, and one that rings too
/// early is set anew. What is due soon is left to the wait's own timeout.
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
        Ok(Self { timer: create_timer()?, set_for: Moment::NEVER })
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
        let since_start = Duration::from_nanos(at.as_nanos());
        let set =
            || set_timer(&self.timer, TimerfdTimerFlags::ABSTIME, since_start, Duration::ZERO);
        if at - now < SOON || set().is_err() {
            return Some(at - now);
        }
        self.set_for = at;
        None
    }

    /// The timer rang: it is not set any more.
    pub(crate) fn rang(&mut self) {
        // EAGAIN: it was set anew since, or was read before.
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
        self.set_for = Moment::NEVER;
    }
}

fn create_timer() -> Result<OwnedFd, Errno> {
    timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
}

fn set_timer(
    timer: &OwnedFd,
    flags: TimerfdTimerFlags,
    first: Duration,
    period: Duration,
) -> Result<(), Errno> {
    // Zero would switch it off.
    let it_value = timespec(first.max(Duration::from_nanos(1)));
    let setting = Itimerspec { it_interval: timespec(period), it_value };
    timerfd_settime(timer, flags, &setting).map(drop)
}

/// A time that the kernel's clock cannot count never comes.
fn timespec(time: Duration) -> Timespec {
    let tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    #[test]
    fn a_timer_far_beyond_what_the_clock_counts_does_not_fire() {
        let timer = Timer::after(Duration::MAX).expect("a descriptor is left");
        assert_eq!(timer.take(), 0);
    }

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
    fn a_deadline_that_is_soon_is_a_timeout() {
        let mut alarm = Alarm::new().expect("a descriptor is left");
        let now = now();
        let soon = Duration::from_millis(1);
        assert_eq!(alarm.end_wait_at(now + soon, now), Some(soon));
        assert_eq!(alarm.end_wait_at(Moment::NEVER, now), None);
        assert_eq!(alarm.end_wait_at(Moment::default(), now), Some(Duration::ZERO));
    }
}
