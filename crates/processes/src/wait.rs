//! Waiting for a descriptor, and for the end of a process, in slices, so that an interruption from outside is noticed.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Error;

/// How long an interruption from outside may go unnoticed.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Waits until there is something to read, or the end; for at most `time`, a fraction of a second.
pub(crate) fn is_ready(fd: &impl AsFd, time: Duration) -> Result<bool, Error> {
    let time = Timespec::try_from(time).expect("a fraction of a second");
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(Error::io("poll")(errno)),
    }
}

/// The same for any time, until it is interrupted from outside.
pub(crate) fn is_ready_within(
    fd: &impl AsFd,
    time: Duration,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<bool, Error> {
    let start = Instant::now();
    loop {
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        let left = time.saturating_sub(start.elapsed());
        if is_ready(fd, left.min(SLICE))? {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

/// Whether a process ends within `time`, which this waits for, whichever process started it; one that is not there
/// has ended.
///
/// # Errors
/// The kernel refuses to show it.
pub fn ends_within(pid: u32, time: Duration) -> Result<bool, Error> {
    let Some(pid) = Pid::from_raw(pid.cast_signed()) else { return Ok(true) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => is_ready_within(&handle, time, &|| false),
        Err(Errno::SRCH) => Ok(true),
        Err(errno) => Err(Error::io("pidfd_open")(errno)),
    }
}
