//! A mapped sample buffer, into which the kernel writes records.
//!
//! The layout is that of `struct perf_event_mmap_page`: one control page, then a power-of-two number of data
//! pages used as a circle. The kernel moves `head` forward, the reader moves `tail`; both only ever grow. Nothing
//! here knows what a record means.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Offset of `data_head` in the control page: bytes the kernel has ever written.
const HEAD_OFFSET_BYTES: usize = 1024;
/// Offset of `data_tail`: bytes we have ever taken.
const TAIL_OFFSET_BYTES: usize = 1032;

/// A mapped sample buffer; unmapped on drop.
///
/// `sampler.rs` maps one for each CPU and drains it. The layout is that of `struct perf_event_mmap_page`: one
/// control page, then a power-of-two number of data pages used as a circle. The kernel moves `head` forward, we
/// move `tail`; both only ever grow. Nothing here knows what a record means.
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
pub(super) fn page_bytes() -> usize {
    // SAFETY: sysconf only takes a number and returns one.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(answer).expect("every Linux has a page size")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::perf::attribute::{self, Attribute, ENABLE, KIND_SOFTWARE, flag};

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
        let Ok(event) = attribute::open(every_page_fault(), 0, -1) else {
            return; // perf is closed to this user; the counter tests check the reason
        };
        let data_bytes = page_bytes();
        let mut ring = Ring::map(event.as_fd(), data_bytes).expect("one page may be locked");
        attribute::request(event.as_fd(), ENABLE, 0).expect("enable");
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
