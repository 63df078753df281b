//! Where a program asks for a filter of system calls: prctl(2), and seccomp(2) by its number.

use std::ffi::{c_int, c_long, c_ulong};

use pollux_sys::loop_stats::Counter;

use crate::names::{taken, unknown};
use crate::thread::{Thread, errno, set_errno};
use crate::{attach, filters};

taken! { Both: prctl / 5 (option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong; _caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    // SAFETY: the caller's own arguments; an option with fewer ignores what stands there.
    let kernel = || unsafe { real(option, a, b, c, d) };
    if is_prctl(option) { setting(kernel) } else { kernel() }
} }

/// Whether prctl(2) is asked for a filter.
pub(crate) fn is_prctl(option: c_int) -> bool {
    option == libc::PR_SET_SECCOMP
}

/// Whether seccomp(2) is asked for one.
pub(crate) fn is_seccomp(operation: c_int) -> bool {
    matches!(
        operation.unsigned_abs(),
        libc::SECCOMP_SET_MODE_STRICT | libc::SECCOMP_SET_MODE_FILTER
    )
}

/// Sets a filter by `kernel`: noted before, as behind it other threads may be filtered too.
pub(crate) fn setting<T: Copy + Into<c_long>>(kernel: impl FnOnce() -> T) -> T {
    let thread = Thread::here();
    if filters::is_set() || !thread.is_own() {
        return kernel();
    }
    let before = errno();
    thread.inside(|| thread.counting("prctl", attach::describe_once));
    filters::setting();
    set_errno(before);
    let result = kernel();
    match result.into() {
        -1 => filters::refused(),
        // A thread that has no figures yet is counted when it has.
        _ => thread.counting("prctl", || {
            thread.tally().inspect(|tally| tally.count(Counter::Filtered));
        }),
    }
    result
}
