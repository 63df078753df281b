//! Timeouts of calls: of the process, of the thread, of its next call.
//!
//! A context applies them before each call. The one closest to the call counts: `tpsblktime` with
//! TPBLK_NEXT, with TPBLK_ALL, `tptoutset`, NDRX_TOUT, the pool.

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use pollux_xatmi::client::Client;
use pollux_xatmi::environment::{DEFAULT_TIMEOUT, Environment, TIMEOUT_MAX};
use pollux_xatmi::queue::monotonic_ns;

use crate::context::pools_time;
use crate::fault::{self, Fault};
use crate::transactions::{self};

const TPBLK_NEXT: c_long = 1;
const TPBLK_ALL: c_long = 2;

/// `tptoutset`: of the process, as the interface says. 0 when it was not called.
static OF_PROCESS: AtomicI32 = AtomicI32::new(0);

thread_local! {
    static OF_THREAD: Cell<c_int> = const { Cell::new(0) };
    static OF_NEXT: Cell<c_int> = const { Cell::new(0) };
}

/// Tells the client what holds for the call at hand; `of_pool` without any of the above.
pub(crate) fn apply(client: &mut Client, of_pool: Duration) {
    let next = OF_NEXT.take();
    if next != 0 {
        client.set_next_timeout(Some(transactions::limited(duration(next))));
    }
    client.set_timeout(transactions::limited(of_thread_or(of_pool)));
}

fn of_thread_or(of_pool: Duration) -> Duration {
    match (OF_THREAD.get(), OF_PROCESS.load(Ordering::Relaxed)) {
        (0, 0) => of_pool,
        (0, of_process) => duration(of_process),
        (of_thread, _) => duration(of_thread),
    }
}

/// How long something of this thread may take that is not a call.
pub(crate) fn standing() -> Duration {
    let of_environment = || Environment::of_process().ok().and_then(|known| known.timeout);
    let of_pool = pools_time().or_else(of_environment).unwrap_or(DEFAULT_TIMEOUT);
    of_thread_or(of_pool)
}

/// The same for the next one, which TPBLK_NEXT may have been for.
pub(crate) fn take() -> Duration {
    match OF_NEXT.take() {
        0 => standing(),
        next => duration(next),
    }
}

/// When something that may take so long has to be over, on the monotonic clock.
pub(crate) fn deadline_ns(time: Duration) -> u64 {
    let ns = u64::try_from(time.min(TIMEOUT_MAX).as_nanos()).unwrap_or(u64::MAX);
    monotonic_ns().saturating_add(ns)
}

fn duration(seconds: c_int) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn not_negative(seconds: c_int) -> Result<c_int, Fault> {
    if seconds < 0 {
        return Err(Fault::invalid(format!("a time of {seconds} seconds is below 0")));
    }
    Ok(seconds)
}

/// Sets the time of all threads; 0 gives it back to the environment and the pool.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tptoutset(seconds: c_int) -> c_int {
    fault::atmi(-1, || {
        OF_PROCESS.store(not_negative(seconds)?, Ordering::Relaxed);
        Ok(0)
    })
}

/// The time that `tptoutset` set, or what holds without it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tptoutget() -> c_int {
    fault::atmi(-1, || match OF_PROCESS.load(Ordering::Relaxed) {
        0 => {
            let holds = match pools_time() {
                Some(pools) => pools,
                None => Environment::of_process()?.timeout.unwrap_or(DEFAULT_TIMEOUT),
            };
            Ok(c_int::try_from(holds.as_secs()).unwrap_or(c_int::MAX))
        }
        set => Ok(set),
    })
}

/// Sets the time of this thread's next call or of all; 0 takes it back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpsblktime(seconds: c_int, flags: c_long) -> c_int {
    fault::atmi(-1, || {
        let seconds = not_negative(seconds)?;
        match flags {
            TPBLK_NEXT => OF_NEXT.set(seconds),
            TPBLK_ALL => OF_THREAD.set(seconds),
            _ => return Err(wrong_flags(flags)),
        }
        Ok(0)
    })
}

/// What `tpsblktime` set: for TPBLK_NEXT, for TPBLK_ALL, or with 0 what counts of both.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpgblktime(flags: c_long) -> c_int {
    fault::atmi(-1, || match (flags, OF_NEXT.get(), OF_THREAD.get()) {
        (TPBLK_NEXT, next, _) => Ok(next),
        (TPBLK_ALL, _, of_thread) => Ok(of_thread),
        (0, 0, of_thread) => Ok(of_thread),
        (0, next, _) => Ok(next),
        _ => Err(wrong_flags(flags)),
    })
}

fn wrong_flags(flags: c_long) -> Fault {
    Fault::invalid(format!("flags {flags:#x}: give TPBLK_NEXT or TPBLK_ALL"))
}
