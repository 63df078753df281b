//! What the kernel books for a process.
//!
//! Called by the lab around turns. Nothing here is for a hot path.

use std::io;
use std::time::Duration;

/// CPU time of a process: of all its threads, those that have ended included, exact at the moment
/// of the call also while they run (`clock_getcpuclockid(3)`).
///
/// The figures of `/proc/PID/schedstat` are up to a tick behind while a thread runs.
///
/// # Errors
/// `ESRCH` when there is no such process, `EPERM` when it may not be looked at.
pub fn process_cpu_time(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a valid place for one clock id, and the call keeps no pointer to it.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for one timespec, and the call keeps no pointer to it.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_what_its_threads_have() {
        let before = process_cpu_time(std::process::id()).expect("our own clock");
        let spun = std::thread::spawn(|| (0..3_000_000u64).fold(1, |a, b| a ^ b.rotate_left(3)));
        assert_ne!(spun.join().expect("arithmetic"), 0);
        let after = process_cpu_time(std::process::id()).expect("our own clock");
        assert!(after > before, "{before:?} to {after:?}");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let error = process_cpu_time(u32::MAX).expect_err("no such process");
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
