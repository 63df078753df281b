//! The two clocks that calls need: one that deadlines are kept by, and one for the kernel.
//!
//! Clients and workers read them. Deadlines travel between processes as nanoseconds of the
//! monotonic clock, which all processes of one machine share; `mq_timedreceive(3)` alone asks for
//! the realtime clock, so a deadline is converted to it just before the wait, and checked by the monotonic one.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now, in nanoseconds of CLOCK_MONOTONIC; never 0.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = since(clock_gettime(ClockId::Monotonic));
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// The moment of the realtime clock at which the monotonic one will show `deadline_ns`.
///
/// A step of the realtime clock in between moves it: a waiter by it judges by
/// [`monotonic_ns`] afterwards.
#[must_use]
pub fn realtime_of(deadline_ns: u64) -> Duration {
    let left = Duration::from_nanos(deadline_ns.saturating_sub(monotonic_ns()));
    since(clock_gettime(ClockId::Realtime)) + left
}

fn since(moment: Timespec) -> Duration {
    let seconds = u64::try_from(moment.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(moment.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_as_far_away_on_both_clocks() {
        let until = realtime_of(monotonic_ns() + 5_000_000_000);
        let left = until - std::time::UNIX_EPOCH.elapsed().expect("after 1970");
        assert!(left <= Duration::from_secs(5) && left > Duration::from_secs(4), "{left:?}");
    }
}
