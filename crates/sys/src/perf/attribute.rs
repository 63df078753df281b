//! The kernel's description of an event, the call that opens one, and the requests to an open one.
//!
//! Counters, samplers and traces fill an [`Attribute`] and pass it to [`open`]. Only the first published version
//! of the structure (64 bytes) is used: every later field asks for something that pollux does not need, and
//! every kernel since 2.6.31 takes this one. Nothing here keeps state.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `PERF_ATTR_SIZE_VER0`.
const ATTRIBUTE_BYTES: usize = 64;

/// `PERF_FLAG_FD_CLOEXEC`: a measured child must not inherit our descriptors.
const FLAG_CLOEXEC: libc::c_ulong = 8;

/// `struct perf_event_attr`, version 0.
///
/// All zero is a valid value; the caller sets what differs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attribute {
    /// `PERF_TYPE_*`.
    pub(super) kind: u32,
    /// Length of this structure, by which the kernel knows its version. Set by [`open`].
    pub(super) size_bytes: u32,
    /// Which event of that kind.
    pub(super) config: u64,
    /// Period, or frequency in Hz when [`flag::FREQUENCY`] is set.
    pub(super) sample_frequency_hz: u64,
    /// `PERF_SAMPLE_*` bits.
    pub(super) sample_type: u64,
    /// `PERF_FORMAT_*` bits.
    pub(super) read_format: u64,
    /// Bits of [`flag`].
    pub(super) flags: u64,
    /// Unused here: buffers are drained by time, not by a wakeup.
    pub(super) wakeup_events: u32,
    /// Unused here.
    pub(super) breakpoint_type: u32,
    /// Unused here.
    pub(super) config1: u64,
}

const _: () = assert!(size_of::<Attribute>() == ATTRIBUTE_BYTES);
const _: () = assert!(std::mem::offset_of!(Attribute, config) == 8);
const _: () = assert!(std::mem::offset_of!(Attribute, read_format) == 32);
const _: () = assert!(std::mem::offset_of!(Attribute, flags) == 40);
// The kernel declares the flags as C bit-fields, whose order follows the byte order.
const _: () = assert!(cfg!(target_endian = "little"));

/// Bits of [`Attribute::flags`].
pub(super) mod flag {
    pub(crate) const DISABLED: u64 = 1 << 0;
    pub(crate) const INHERIT: u64 = 1 << 1;
    pub(crate) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(crate) const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    pub(crate) const FREQUENCY: u64 = 1 << 10;
    pub(crate) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(crate) const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
    pub(crate) const CONTEXT_SWITCH: u64 = 1 << 26;
}

/// `PERF_TYPE_HARDWARE`.
pub(super) const KIND_HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub(super) const KIND_SOFTWARE: u32 = 1;
/// `PERF_TYPE_TRACEPOINT`.
pub(super) const KIND_TRACEPOINT: u32 = 2;

/// `PERF_EVENT_IOC_ENABLE`.
pub(super) const ENABLE: libc::Ioctl = libc::_IO(b'$' as u32, 0);
/// `PERF_EVENT_IOC_DISABLE`.
pub(super) const DISABLE: libc::Ioctl = libc::_IO(b'$' as u32, 1);
/// `PERF_EVENT_IOC_RESET`.
pub(super) const RESET: libc::Ioctl = libc::_IO(b'$' as u32, 3);
/// `PERF_EVENT_IOC_SET_OUTPUT`.
pub(super) const SET_OUTPUT: libc::Ioctl = libc::_IO(b'$' as u32, 5);

/// `PERF_EVENT_IOC_SET_FILTER`. The kernel's header declares it with a pointer-sized argument.
const SET_FILTER: libc::Ioctl = libc::_IOW::<*mut libc::c_char>(b'$' as u32, 6);
/// `PERF_EVENT_IOC_ID`, likewise.
const ID: libc::Ioctl = libc::_IOR::<*mut u64>(b'$' as u32, 7);

/// Opens one event on thread `tid` (0 is the caller, -1 is every thread) and `cpu` (-1 is all).
///
/// # Errors
///
/// The kernel's, unchanged: `EACCES`/`EPERM` without the right to look at the kernel or at another
/// task, `ENOENT` where the event does not exist (no hardware counters), `ESRCH` for a thread that
/// is gone, `EMFILE` at the descriptor limit, `EINVAL` for an unknown tracepoint number.
pub(super) fn open(mut attribute: Attribute, tid: i32, cpu: i32) -> io::Result<OwnedFd> {
    attribute.size_bytes = ATTRIBUTE_BYTES as u32;
    let no_group: libc::c_int = -1;
    // SAFETY: the pointer is to a live, initialised structure whose length is in its own
    // `size_bytes`; the kernel only reads it.
    let raw = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attribute,
            tid,
            cpu,
            no_group,
            FLAG_CLOEXEC,
        )
    };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `raw` is a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw as i32) })
}

/// Sends a request whose argument is a plain number (or nothing: 0).
pub(super) fn request(
    event: BorrowedFd<'_>,
    request: libc::Ioctl,
    argument: libc::c_ulong,
) -> io::Result<()> {
    // SAFETY: each request used with this function (enable, disable, reset, set-output) takes its
    // argument by value, so the kernel follows no pointer of ours.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets an event of a tracepoint happen only where its fields meet a condition.
///
/// # Errors
///
/// `EINVAL` when the event is not a tracepoint or the filter does not parse.
pub(super) fn filter(event: BorrowedFd<'_>, expression: &str) -> io::Result<()> {
    let text = CString::new(expression)?;
    // SAFETY: the kernel reads a C string at the given address and `text` outlives the call.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), SET_FILTER, text.as_ptr()) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The kernel's number of an event, which its samples carry; those of inherited events too.
///
/// # Errors
///
/// Those of `ioctl(2)`.
pub(super) fn id(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0_u64;
    // SAFETY: the kernel writes eight bytes to a live local.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), ID, &raw mut id) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_event_kind_is_refused_with_the_kernels_reason() {
        let attribute = Attribute {
            kind: u32::MAX,
            flags: flag::EXCLUDE_KERNEL | flag::EXCLUDE_HYPERVISOR,
            ..Attribute::default()
        };
        let refusal = open(attribute, 0, -1).expect_err("no such kind of event");
        let errno = refusal.raw_os_error().expect("a kernel error");
        assert!(
            [libc::ENOENT, libc::EACCES, libc::EPERM, libc::ENOSYS].contains(&errno),
            "{refusal}"
        );
    }

    #[test]
    fn requests_have_the_numbers_of_the_man_page() {
        assert_eq!((ENABLE & 0xffff) as u32, 0x2400);
        assert_eq!((SET_OUTPUT & 0xffff) as u32, 0x2405);
    }
}
