//! Memory that requests may reference: blocks at a fixed address, the arena of one turn, from which bytes that were
//! written in place are sent, and the pool of receive buffers that the kernel chooses from
//! (`io_uring_register(2)`, IORING_REGISTER_PBUF_RING).
//!
//! A block is page-aligned, zeroed and reached by raw address only, so no reference ever covers bytes that the
//! kernel may be writing. The stream ring owns one arena and one pool. The arena is filled from the front; what a
//! send references lies in front of `used` and is only read from then on, the rest is spare. The owner must not
//! reset it while a request that references it waits in the queue.
//!
//! A buffer of the pool is the kernel's from the moment that the published tail passes its entry until a completion
//! names it, and the caller's, as a [`Received`], until that is given back. A buffer that the kernel has is never
//! read.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::{io, slice};

/// A heap block that is freed with its owner, unless it is leaked.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    is_leaked: bool,
}

/// The alignment that the kernel asks of a ring of provided buffers; 64 KiB is the largest page
/// of any Linux.
const ALIGN: usize = 64 << 10;

impl Memory {
    /// A zeroed block of `len_bytes`.
    ///
    /// # Errors
    /// ENOMEM.
    ///
    /// # Panics
    /// When `len_bytes` is 0.
    pub(super) fn zeroed(len_bytes: usize) -> io::Result<Self> {
        assert!(len_bytes > 0, "a block has at least one byte");
        let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
        let layout = Layout::from_size_align(len_bytes, ALIGN).map_err(|_| no_memory())?;
        // SAFETY: the layout's size is not 0, which is asserted above.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(no_memory)?;
        Ok(Self { start, layout, is_leaked: false })
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.layout.size()
    }

    /// Address of the byte at `offset`.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len_bytes(), "an offset beyond the block");
        // SAFETY: the assert keeps the result inside the block or one past its end.
        unsafe { self.start.add(offset) }
    }

    /// Keeps the block for as long as the process lives: a request may still reference it.
    pub(super) fn leak(&mut self) {
        self.is_leaked = true;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.is_leaked {
            return;
        }
        // SAFETY: `start` came from the same allocator with the same layout, once.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// What one send took out of the arena. Good until the arena is reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    start: usize,
    len_bytes: usize,
    generation: u32,
}

impl Sent {
    /// How many bytes the request was to send.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

#[derive(Debug)]
pub(super) struct Arena {
    memory: Memory,
    used: usize,
    generation: u32,
}

impl Arena {
    pub(super) fn new(len_bytes: usize) -> io::Result<Self> {
        Ok(Self { memory: Memory::zeroed(len_bytes)?, used: 0, generation: 0 })
    }

    #[inline]
    pub(super) fn spare(&mut self) -> &mut [u8] {
        let start = self.memory.at(self.used).as_ptr();
        let len = self.memory.len_bytes() - self.used;
        // SAFETY: the range ends with the block, is initialised since `Memory::zeroed`, and no
        // request references it: `take` moves `used` past what one will. The borrow of `self`
        // keeps every other access out.
        unsafe { slice::from_raw_parts_mut(start, len) }
    }

    /// The address of the first spare byte, if `len_bytes` are spare from there.
    ///
    /// # Panics
    /// When fewer are.
    #[inline]
    pub(super) fn front(&self, len_bytes: usize) -> *const u8 {
        assert!(
            len_bytes > 0 && len_bytes <= self.memory.len_bytes() - self.used,
            "a send takes between 1 byte and what is spare"
        );
        self.memory.at(self.used).as_ptr()
    }

    /// Takes the first `len_bytes` spare bytes, which must be as many as [`Arena::front`] was
    /// asked for: they are only read from now on.
    #[inline]
    pub(super) fn take(&mut self, len_bytes: usize) -> Sent {
        let start = self.used;
        self.used += len_bytes;
        Sent { start, len_bytes, generation: self.generation }
    }

    pub(super) fn bytes(&self, sent: Sent) -> Option<&[u8]> {
        let Sent { start, len_bytes, generation } = sent;
        // The second condition holds for a `Sent` of this arena; one of another ring may pass.
        let known = generation == self.generation && start + len_bytes <= self.used;
        // SAFETY: the range lies in front of `used`: initialised and, by the kernel as by us,
        // only read until `reset`, which needs the arena exclusively and ends this borrow.
        known.then(|| unsafe { slice::from_raw_parts(self.memory.at(start).as_ptr(), len_bytes) })
    }

    /// Makes everything spare again. No queued or running request may reference the arena.
    pub(super) fn reset(&mut self) {
        self.used = 0;
        self.generation = self.generation.wrapping_add(1);
    }

    pub(super) fn leak(&mut self) {
        self.memory.leak();
    }
}

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
