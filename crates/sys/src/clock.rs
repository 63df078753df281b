//! The clocks that programs are timed by, each read in one way.
//!
//! What is measured from outside is the CPU time of another process: [`crate::process::process_cpu_time`].

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine started, without the time that it slept (CLOCK_MONOTONIC).
#[inline]
#[must_use]
pub fn monotonic() -> Duration {
    read(ClockId::Monotonic)
}

/// The same in nanoseconds, which last for 584 years.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    let since_start = monotonic();
    since_start.as_secs() * 1_000_000_000 + u64::from(since_start.subsec_nanos())
}

/// CPU time of the calling thread, exact.
#[inline]
#[must_use]
pub fn thread_cpu() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// CPU time of this process, with its threads that have ended; exact.
#[inline]
#[must_use]
pub fn process_cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

#[inline]
fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // Neither is ever negative on these clocks.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time_of_the_thread_which_is_that_of_the_process() {
        let before = (monotonic(), thread_cpu(), process_cpu());
        while thread_cpu() < before.1 + Duration::from_millis(2) {}
        // Each clock runs at a pace of its own, as the kernel corrects one of them: they differ by parts of a thousand.
        assert!(monotonic() > before.0 + Duration::from_millis(1));
        assert!(process_cpu() > before.2 + Duration::from_millis(1));
    }
}
