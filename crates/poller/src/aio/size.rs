//! How many polls an AIO context is made for, and what happens at the system's limit.
//!
//! Only the AIO backend calls this. `fs.aio-max-nr` (65536 by default) bounds the slots of all
//! contexts of all processes together, so a poller begins small and doubles on demand.

use std::io;

use pollux_sys::aio::AioContext;
use rustix::io::Errno;

use crate::{Backend, Error};

/// Slots of a new poller: a sixty-fourth of what the whole system has by default.
pub(super) const SLOTS_AT_OPEN: u32 = 1024;

/// The smallest context worth opening with when the system is nearly at its limit.
const SLOTS_MIN: u32 = 64;

/// A context of `slots`, or of half as many and so on where the system gives no more.
///
/// # Errors
/// [`Error::Unavailable`] where there is no AIO, or not even the smallest context.
pub(super) fn open(slots: u32) -> Result<AioContext, Error> {
    let mut wanted = slots;
    loop {
        match AioContext::new(wanted) {
            Ok(mut context) => {
                context.check_calls().map_err(forbidden)?;
                return Ok(context);
            }
            Err(cause) if is_system_limit(&cause) && wanted / 2 >= SLOTS_MIN => wanted /= 2,
            Err(cause) => return Err(unavailable(cause)),
        }
    }
}

/// A context of twice the size of `context`, which still stands meanwhile.
///
/// # Errors
/// [`Error::Limit`] at `fs.aio-max-nr`; [`Error::System`] otherwise.
pub(super) fn larger(context: &AioContext) -> Result<AioContext, Error> {
    let value = context.capacity();
    let at_limit = || Error::Limit { name: "AIO polls (raise fs.aio-max-nr)", value };
    let slots = u32::try_from(value * 2).map_err(|_| at_limit())?;
    AioContext::new(slots).map_err(|cause| {
        if is_system_limit(&cause) { at_limit() } else { Error::System { call: "io_setup", cause } }
    })
}

/// How many descriptors doubling can reach while the smaller context still stands, if all of
/// `fs.aio-max-nr` were ours. One slot is the waker's.
pub(super) fn fds_max(context: &AioContext) -> Option<usize> {
    let limit = std::fs::read_to_string("/proc/sys/fs/aio-max-nr").ok()?;
    Some(doubled_within(context.capacity(), limit.trim().parse().ok()?) - 1)
}

/// The largest size to which `slots` doubles while old and new fit into `limit` together.
fn doubled_within(mut slots: usize, limit: usize) -> usize {
    while slots.saturating_mul(3) <= limit {
        slots *= 2;
    }
    slots
}

/// What the capabilities say of `context`.
pub(super) fn notes(context: &AioContext) -> Vec<String> {
    let ring = if context.has_user_ring() { "read in user space" } else { "read by system call" };
    vec![format!("{} slots; completion ring {ring}", context.capacity())]
}

/// EAGAIN: `fs.aio-max-nr`, or no request left in the context. ENOMEM is treated alike.
pub(super) fn is_system_limit(cause: &io::Error) -> bool {
    matches!(Errno::from_io_error(cause), Some(Errno::AGAIN | Errno::NOMEM))
}

fn unavailable(cause: io::Error) -> Error {
    let reason = match Errno::from_io_error(&cause) {
        Some(Errno::NOSYS) => "the kernel was built without AIO (CONFIG_AIO)",
        Some(Errno::AGAIN) => "fs.aio-max-nr is used up: raise it",
        _ => "io_setup failed",
    };
    Error::Unavailable { backend: Backend::Aio, reason: reason.to_owned(), cause }
}

fn forbidden(cause: io::Error) -> Error {
    let reason = "a seccomp filter forbids io_submit, io_getevents or io_cancel: allow them in \
                  its profile";
    Error::Unavailable { backend: Backend::Aio, reason: reason.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubling_stops_where_old_and_new_no_longer_fit_together() {
        assert_eq!(doubled_within(1024, 65_536), 32_768);
        assert_eq!(doubled_within(1024, 3071), 1024);
        assert_eq!(doubled_within(1024, 3072), 2048);
    }

    #[test]
    fn a_size_that_the_kernel_can_not_count_is_unavailable_with_its_words() {
        let error = open(1 << 30).expect_err("io_setup: EINVAL");
        assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        assert!(error.to_string().contains("io_setup"), "{error}");
    }
}
