//! What every event has: the kernel's description of it, the call that opens it, the requests to an open one, and
//! the buffer into which the kernel writes its records.
//!
//! Counters, samplers and traces fill an [`Attribute`] and pass it to [`open`]; the latter two map a [`Ring`] for each
//! CPU and drain it. Only the first published version of the structure (64 bytes) is used: every later field asks for
//! something that pollux does not need, and every kernel since 2.6.31 takes this one.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Offset of `data_head` in the control page: bytes the kernel has ever written.
const HEAD_OFFSET_BYTES: usize = 1024;
/// Offset of `data_tail`: bytes we have ever taken.
const TAIL_OFFSET_BYTES: usize = 1032;

/// A mapped sample buffer; unmapped on drop.
///
/// The layout is that of `struct perf_event_mmap_page`: one control page, then a power-of-two number of data pages
/// used as a circle. The kernel moves `head` forward, we move `tail`; both only ever grow. Nothing here knows what
/// a record means.
#[derive(Debug)]
pub(super) struct Ring {
    mapping: Mapping,
    page_bytes: usize,
    data_bytes: usize,
}

impl Ring {
    /// Maps the buffer of `event` with `data_bytes` of data, which is a power of two and at least
    /// one page.
    ///
    /// # Errors
    ///
    /// `EPERM` when the user's locked memory (`kernel.perf_event_mlock_kb` for each CPU, then
    /// `RLIMIT_MEMLOCK`) is used up; `EINVAL` for an inherited event that is not bound to a CPU.
    pub(super) fn map(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        let page_bytes = page_bytes();
        assert!(data_bytes.is_power_of_two() && data_bytes >= page_bytes);
        let mapping = Mapping::new(event, page_bytes + data_bytes)?;
        Ok(Self { mapping, page_bytes, data_bytes })
    }

    /// Appends all bytes written since the last call to `out` and hands their room back.
    pub(super) fn drain_into(&mut self, out: &mut Vec<u8>) {
        // Acquire pairs with the kernel's store of `data_head` after the record's bytes.
        let head = self.control(HEAD_OFFSET_BYTES).load(Ordering::Acquire);
        let tail = self.control(TAIL_OFFSET_BYTES).load(Ordering::Relaxed);
        let filled = usize::try_from(head - tail).expect("at most the ring's length");
        assert!(filled <= self.data_bytes, "the kernel never overtakes us");
        let start = (tail as usize) & (self.data_bytes - 1);
        let first = filled.min(self.data_bytes - start);
        self.copy(start, first, out);
        self.copy(0, filled - first, out);
        // Release: the bytes above are copied before the kernel may overwrite them.
        self.control(TAIL_OFFSET_BYTES).store(head, Ordering::Release);
    }

    fn control(&self, offset_bytes: usize) -> &AtomicU64 {
        let word = self.mapping.at(offset_bytes).cast::<AtomicU64>();
        // SAFETY: the control page is mapped readable and writable for as long as `self` lives,
        // both offsets are multiples of 8, and the kernel shares these words by single loads and
        // stores of 64 bits.
        unsafe { word.as_ref() }
    }

    fn copy(&self, start: usize, len_bytes: usize, out: &mut Vec<u8>) {
        let old = out.len();
        out.resize(old + len_bytes, 0);
        let from = self.mapping.at(self.page_bytes + start);
        // SAFETY: `start + len_bytes <= data_bytes`, which is mapped; the kernel does not write
        // between tail and head; `out` was grown by exactly `len_bytes` and does not overlap.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), out[old..].as_mut_ptr(), len_bytes) };
    }
}

/// A shared mapping of an event's descriptor.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `Ring` is its only user.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(event: BorrowedFd<'_>, len_bytes: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = event.as_raw_fd();
        // SAFETY: a null address lets the kernel choose a free place, so nothing mapped is lost.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), len_bytes, protection, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel never maps page 0 unasked");
        Ok(Self { base, len_bytes })
    }

    fn at(&self, offset_bytes: usize) -> NonNull<u8> {
        assert!(offset_bytes < self.len_bytes);
        // SAFETY: the offset lies inside the one mapping that `base` starts.
        unsafe { self.base.add(offset_bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len_bytes` are those of a successful mmap, and no reference into the
        // mapping outlives `self`.
        let answer = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len_bytes) };
        assert_eq!(answer, 0, "munmap of our own mapping");
    }
}

/// Length of a memory page.
fn page_bytes() -> usize {
    // SAFETY: sysconf only takes a number and returns one.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(answer).expect("every Linux has a page size")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

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

    /// Bytes of a sample record that holds an address and nothing else.
    const RECORD_BYTES: usize = 16;
    /// Pages touched at most; far more than the records waited for.
    const TOUCHES_MAX: usize = 100_000;

    /// One record for each page fault of this thread in user mode.
    fn every_page_fault() -> Attribute {
        Attribute {
            kind: KIND_SOFTWARE,
            config: 2,
            sample_frequency_hz: 1, // without the frequency flag: a period of one fault
            sample_type: 1,
            flags: flag::DISABLED | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HYPERVISOR,
            ..Attribute::default()
        }
    }

    #[test]
    fn records_stay_whole_when_the_ring_wraps() {
        let Ok(event) = open(every_page_fault(), 0, -1) else {
            return; // perf is closed to this user; the counter tests check the reason
        };
        let data_bytes = page_bytes();
        let mut ring = Ring::map(event.as_fd(), data_bytes).expect("one page may be locked");
        request(event.as_fd(), ENABLE, 0).expect("enable");
        let mut fresh = Vec::new();
        let mut drained = Vec::new();
        while drained.len() < 3 * data_bytes {
            assert!(fresh.len() < TOUCHES_MAX, "{} bytes of records", drained.len());
            let mut page = vec![0_u8; page_bytes()];
            page.fill(1);
            fresh.push(page);
            ring.drain_into(&mut drained);
        }
        let (records, rest) = drained.as_chunks::<RECORD_BYTES>();
        assert!(rest.is_empty());
        for record in records {
            assert_eq!(record[0], 9, "a sample: {record:?}");
            assert_eq!(usize::from(record[6]), RECORD_BYTES, "its length: {record:?}");
        }
    }
}
