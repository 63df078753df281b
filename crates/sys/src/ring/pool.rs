//! The pool of receive buffers that the kernel chooses from (`io_uring_register(2)`,
//! IORING_REGISTER_PBUF_RING), and the lease of one of them.
//!
//! The stream ring owns one pool. A buffer is the kernel's from the moment that the published tail passes its
//! entry until a completion names it, and the caller's, as a [`Received`], until that is given back. A buffer
//! that the kernel has is never read.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::{io, slice};

use super::memory::Memory;

/// The bytes of one receive: a lease of one of the ring's buffers. It can't be copied, because
/// the buffer must go back to the kernel exactly once; dropped instead of given back, it is
/// lost to the ring for good (and the ring's memory to the process).
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a buffer that is not given back is lost"]
pub struct Received {
    /// Where the pool's buffers start: distinguishes one ring's leases from another's.
    pool: NonNull<u8>,
    len_bytes: u32,
    id: u16,
}

impl Received {
    /// How many bytes were received.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes as usize
    }
}

/// `struct io_uring_buf` of the kernel's interface. The last field of the first entry is the
/// ring's tail; in all others it means nothing. Atomic, because the kernel reads it meanwhile.
#[repr(C)]
struct Entry {
    address: AtomicU64,
    len_bytes: AtomicU32,
    id: AtomicU16,
    tail: AtomicU16,
}

#[derive(Debug)]
pub(super) struct Pool {
    entries: Memory,
    buffers: Memory,
    count: u16,
    buffer_bytes: u32,
    /// Where the next buffer is offered; runs ahead of what the kernel sees.
    tail: u16,
    published: u16,
    in_use: usize,
}

impl Pool {
    /// `count` buffers, all offered and none published.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(count: u16, buffer_bytes: u32) -> io::Result<Self> {
        assert!(count.is_power_of_two(), "the number of buffers is a power of two");
        assert!(buffer_bytes > 0, "a buffer has at least one byte");
        let entries = Memory::zeroed(usize::from(count) * size_of::<Entry>())?;
        let bytes = usize::from(count).checked_mul(buffer_bytes as usize);
        let buffers = Memory::zeroed(bytes.unwrap_or(usize::MAX))?;
        let (tail, published, in_use) = (0, 0, 0);
        let mut pool = Self { entries, buffers, count, buffer_bytes, tail, published, in_use };
        for id in 0..count {
            pool.offer(id);
        }
        Ok(pool)
    }

    /// Address of the ring of entries, for its registration.
    pub(super) fn ring_address(&self) -> u64 {
        self.entries.start().as_ptr() as u64
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Hands every offered buffer to the kernel.
    pub(super) fn publish(&mut self) {
        if self.tail != self.published {
            self.published = self.tail;
            // Release: a reader that sees the tail sees the entries in front of it.
            self.entries()[0].tail.store(self.tail, Ordering::Release);
        }
    }

    /// Takes over buffer `id`, which a completion has named, with `len_bytes` in it.
    #[inline]
    pub(super) fn lend(&mut self, id: u16, len_bytes: u32) -> Received {
        assert!(id < self.count && len_bytes <= self.buffer_bytes, "a buffer of the pool");
        self.in_use += 1;
        Received { pool: self.buffers.start(), len_bytes, id }
    }

    #[inline]
    pub(super) fn bytes(&self, received: &Received) -> &[u8] {
        let start = self.start_of(received);
        // SAFETY: the lease is of this pool, which `start_of` asserts, and as it is borrowed it
        // was not given back: the buffer is in the caller's hands, and is not written while
        // both borrows last. The length was checked against the buffer's in `lend`, and the
        // bytes are initialised since `Memory::zeroed`.
        unsafe { slice::from_raw_parts(start, received.len_bytes()) }
    }

    /// Offers the buffer anew; the kernel has it with the next [`Pool::publish`].
    #[expect(clippy::needless_pass_by_value, reason = "the lease ends here")]
    #[inline]
    pub(super) fn give_back(&mut self, received: Received) {
        let _ = self.start_of(&received);
        self.in_use -= 1;
        self.offer(received.id);
    }

    pub(super) fn leak(&mut self) {
        self.entries.leak();
        self.buffers.leak();
    }

    fn start_of(&self, received: &Received) -> *const u8 {
        // A pool is not freed before its leases are gone, so no two pools share an address.
        assert_eq!(received.pool, self.buffers.start(), "a lease of another ring");
        self.address(received.id).as_ptr()
    }

    fn address(&self, id: u16) -> NonNull<u8> {
        self.buffers.at(usize::from(id) * self.buffer_bytes as usize)
    }

    #[inline]
    fn offer(&mut self, id: u16) {
        let address = self.address(id).as_ptr() as u64;
        let entry = &self.entries()[usize::from(self.tail & (self.count - 1))];
        entry.address.store(address, Ordering::Relaxed);
        entry.len_bytes.store(self.buffer_bytes, Ordering::Relaxed);
        entry.id.store(id, Ordering::Relaxed);
        self.tail = self.tail.wrapping_add(1);
    }

    fn entries(&self) -> &[Entry] {
        let start = self.entries.start().cast::<Entry>();
        // SAFETY: the block was made for `count` entries, aligned to a page and zeroed, and the
        // fields are atomic, so the kernel may read them while they are written.
        unsafe { slice::from_raw_parts(start.as_ptr(), usize::from(self.count)) }
    }
}

#[cfg(test)]
mod tests {
    use std::mem;

    use super::*;

    #[test]
    fn the_layout_is_that_of_the_kernel_header() {
        assert_eq!(size_of::<Entry>(), 16);
        assert_eq!(mem::offset_of!(Entry, len_bytes), 8);
        assert_eq!(mem::offset_of!(Entry, id), 12);
        assert_eq!(mem::offset_of!(Entry, tail), 14);
    }

    #[test]
    #[should_panic(expected = "a lease of another ring")]
    fn a_lease_is_good_for_its_own_pool_only() {
        let [mut one, other] = [(); 2].map(|()| Pool::new(4, 16).expect("memory"));
        let received = one.lend(2, 5);
        let _ = other.bytes(&received);
    }
}
