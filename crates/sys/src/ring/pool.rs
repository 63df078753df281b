//! The pool of receive buffers that the kernel chooses from (`io_uring_register(2)`, IORING_REGISTER_PBUF_RING), in
//! two forms.
//!
//! | form | a receive takes | the kernel is done with a buffer |
//! |---|---|---|
//! | whole | a buffer, however little it puts there | with the completion that names it |
//! | incremental (IOU_PBUF_RING_INC, Linux 6.12) | what it needs: pieces of one buffer follow each other | with the completion that has bytes and lacks IORING_CQE_F_BUF_MORE |
//!
//! The bytes of one receive are a [`Received`], the caller's until it is given back. A buffer is offered anew when the
//! kernel is done with it and all its pieces were given back; one that is held keeps the whole buffer back, never more.
//! The kernel fills buffers in the order in which they were offered and says where a piece stands only by the order of
//! completions: each begins where the one before ended. What the kernel may write is never read: a piece that was named
//! lies in front of everything that is still to be filled.
//!
//! A completion without bytes takes nothing of an incremental buffer, also where it names one and lacks the flag: up to
//! Linux 7.0 the end of a stream reads so, and the kernel continues with the buffer.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::{io, slice};

use super::memory::Memory;

/// The receive buffers of a ring, which all connections share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveBuffers {
    /// How many: a power of two up to 32,768.
    pub count: u16,
    /// Bytes of each, and the most that one receive brings.
    pub bytes: u32,
    /// A receive takes what it needs of a buffer, not all of it.
    pub is_incremental: bool,
}

impl ReceiveBuffers {
    /// Buffers of which a receive takes one, on every kernel.
    #[must_use]
    pub const fn whole(count: u16, bytes: u32) -> Self {
        Self { count, bytes, is_incremental: false }
    }

    /// Buffers that are filled piece by piece (Linux 6.12).
    #[must_use]
    pub const fn incremental(count: u16, bytes: u32) -> Self {
        Self { count, bytes, is_incremental: true }
    }
}

impl fmt::Display for ReceiveBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, bytes, is_incremental } = self;
        let used = if *is_incremental { "filled piece by piece" } else { "one for each receive" };
        write!(f, "{count} receive buffers of {bytes} bytes, {used}")
    }
}

/// The bytes of one receive: a lease of a part of the ring's buffers. It can't be copied, because
/// it must go back exactly once; dropped instead of given back, its buffer is lost to the ring
/// for good (and the ring's memory to the process).
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a buffer that is not given back is lost"]
pub struct Received {
    /// Where the pool's buffers start: distinguishes one ring's leases from another's.
    pool: NonNull<u8>,
    /// Where the bytes start in their buffer.
    start: u32,
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
/// ring's tail; in all others it means nothing. Atomic, because the kernel reads it meanwhile, and
/// writes the address and the length of an incremental buffer that it is filling.
#[repr(C)]
struct Entry {
    address: AtomicU64,
    len_bytes: AtomicU32,
    id: AtomicU16,
    tail: AtomicU16,
}

/// What is known of one buffer.
#[derive(Clone, Copy, Default, Debug)]
struct Use {
    /// Bytes that completions have named: the next piece begins here.
    named_bytes: u32,
    /// Pieces in the caller's hands.
    lent: u32,
    /// The kernel puts nothing more there.
    is_done: bool,
}

#[derive(Debug)]
pub(super) struct Pool {
    entries: Memory,
    buffers: Memory,
    sizes: ReceiveBuffers,
    uses: Vec<Use>,
    /// Where the next buffer is offered; runs ahead of what the kernel sees.
    tail: u16,
    published: u16,
    in_use: usize,
}

impl Pool {
    /// All buffers, offered and not published.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(sizes: ReceiveBuffers) -> io::Result<Self> {
        let ReceiveBuffers { count, bytes, .. } = sizes;
        assert!(count.is_power_of_two(), "the number of buffers is a power of two");
        assert!(bytes > 0, "a buffer has at least one byte");
        let entries = Memory::zeroed(usize::from(count) * size_of::<Entry>())?;
        let buffer_bytes = usize::from(count).checked_mul(bytes as usize);
        let buffers = Memory::zeroed(buffer_bytes.unwrap_or(usize::MAX))?;
        let uses = vec![Use::default(); usize::from(count)];
        let tail = 0;
        let published = 0;
        let in_use = 0;
        let mut pool = Self { entries, buffers, sizes, uses, tail, published, in_use };
        for id in 0..count {
            pool.offer(id);
        }
        Ok(pool)
    }

    /// Address of the ring of entries, for its registration.
    pub(super) fn ring_address(&self) -> u64 {
        self.entries.start().as_ptr() as u64
    }

    pub(super) fn sizes(&self) -> ReceiveBuffers {
        self.sizes
    }

    /// Pieces in the caller's hands.
    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Hands every offered buffer to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.tail != self.published {
            self.published = self.tail;
            // Release: a reader that sees the tail sees the entries in front of it.
            self.entries()[0].tail.store(self.tail, Ordering::Release);
        }
    }

    /// Takes over what a completion has named: `len_bytes` in buffer `id`, of which the kernel may have said that it
    /// is not done with it. Completions are read in the order in which they came.
    #[inline]
    pub(super) fn lend(&mut self, id: u16, len_bytes: u32, has_buffer_more: bool) -> Received {
        let ReceiveBuffers { bytes, is_incremental, .. } = self.sizes;
        let buffer = &mut self.uses[usize::from(id)];
        let start = buffer.named_bytes;
        assert!(!buffer.is_done && len_bytes <= bytes - start, "a part of a buffer of the pool");
        buffer.named_bytes += len_bytes;
        buffer.lent += 1;
        buffer.is_done = !is_incremental || len_bytes > 0 && !has_buffer_more;
        self.in_use += 1;
        Received { pool: self.buffers.start(), start, len_bytes, id }
    }

    #[inline]
    pub(super) fn bytes(&self, received: &Received) -> &[u8] {
        let start = self.start_of(received);
        // SAFETY: the lease is of this pool, which `start_of` asserts, and as it is borrowed it
        // was not given back: its part of the buffer, which `lend` checked to lie inside, is in the
        // caller's hands and is not written while both borrows last; the kernel fills what lies
        // behind. The bytes are initialised since `Memory::zeroed`.
        unsafe { slice::from_raw_parts(start, received.len_bytes()) }
    }

    /// Ends a lease. The buffer is offered anew with its last one; the kernel has it with the next
    /// [`Pool::publish`].
    #[expect(clippy::needless_pass_by_value, reason = "the lease ends here")]
    #[inline]
    pub(super) fn give_back(&mut self, received: Received) {
        let _ = self.start_of(&received);
        self.in_use -= 1;
        let buffer = &mut self.uses[usize::from(received.id)];
        buffer.lent -= 1;
        if buffer.is_done && buffer.lent == 0 {
            *buffer = Use::default();
            self.offer(received.id);
        }
    }

    pub(super) fn leak(&mut self) {
        self.entries.leak();
        self.buffers.leak();
    }

    fn start_of(&self, received: &Received) -> *const u8 {
        // A pool is not freed before its leases are gone, so no two pools share an address.
        assert_eq!(received.pool, self.buffers.start(), "a lease of another ring");
        self.address(received.id, received.start).as_ptr()
    }

    fn address(&self, id: u16, start: u32) -> NonNull<u8> {
        self.buffers.at(usize::from(id) * self.sizes.bytes as usize + start as usize)
    }

    #[inline]
    fn offer(&mut self, id: u16) {
        let address = self.address(id, 0).as_ptr() as u64;
        let entry = &self.entries()[usize::from(self.tail & (self.sizes.count - 1))];
        entry.address.store(address, Ordering::Relaxed);
        entry.len_bytes.store(self.sizes.bytes, Ordering::Relaxed);
        entry.id.store(id, Ordering::Relaxed);
        self.tail = self.tail.wrapping_add(1);
    }

    fn entries(&self) -> &[Entry] {
        let start = self.entries.start().cast::<Entry>();
        // SAFETY: the block was made for `count` entries, aligned to a page and zeroed, and the
        // fields are atomic, so the kernel may read and write them meanwhile.
        unsafe { slice::from_raw_parts(start.as_ptr(), usize::from(self.sizes.count)) }
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
        let sizes = ReceiveBuffers::whole(4, 16);
        let [mut one, other] = [(); 2].map(|()| Pool::new(sizes).expect("memory"));
        let received = one.lend(2, 5, false);
        let _ = other.bytes(&received);
    }

    /// Which buffers were offered since the ring of entries was full.
    fn offered(pool: &Pool) -> Vec<u16> {
        let count = pool.sizes.count;
        let entry =
            |at: u16| pool.entries()[usize::from(at & (count - 1))].id.load(Ordering::Relaxed);
        (count..pool.tail).map(entry).collect()
    }

    #[test]
    fn a_whole_buffer_is_offered_anew_when_it_is_given_back() {
        let mut pool = Pool::new(ReceiveBuffers::whole(2, 16)).expect("memory");
        let one = pool.lend(0, 5, false);
        let two = pool.lend(1, 0, false);
        pool.give_back(two);
        assert_eq!((offered(&pool), pool.in_use()), (vec![1], 1));
        pool.give_back(one);
        assert_eq!((offered(&pool), pool.in_use()), (vec![1, 0], 0));
    }

    #[test]
    fn a_buffer_goes_back_with_its_last_piece_and_not_before_the_kernel_is_done_with_it() {
        let mut pool = Pool::new(ReceiveBuffers::incremental(2, 16)).expect("memory");
        let one = pool.lend(0, 5, true);
        let two = pool.lend(0, 6, true);
        assert_eq!((one.start, two.start), (0, 5));
        pool.give_back(one);
        pool.give_back(two);
        assert_eq!((offered(&pool), pool.in_use()), (vec![], 0));
        let slow = pool.lend(0, 2, true);
        let last = pool.lend(0, 3, false);
        assert_eq!((slow.start, last.start), (11, 13));
        pool.give_back(last);
        assert!(offered(&pool).is_empty(), "a piece of it is held");
        // The next buffer comes and goes meanwhile.
        let other = pool.lend(1, 16, false);
        pool.give_back(other);
        assert_eq!(offered(&pool), [1]);
        pool.give_back(slow);
        assert_eq!(offered(&pool), [1, 0]);
        let again = pool.lend(0, 16, false);
        assert_eq!(again.start, 0);
        pool.give_back(again);
    }

    /// As kernels up to 7.0 report it: with a buffer, without IORING_CQE_F_BUF_MORE.
    #[test]
    fn the_end_of_a_stream_takes_nothing_of_an_incremental_buffer() {
        let mut pool = Pool::new(ReceiveBuffers::incremental(1, 16)).expect("memory");
        let piece = pool.lend(0, 5, true);
        let end = pool.lend(0, 0, false);
        pool.give_back(end);
        pool.give_back(piece);
        assert!(offered(&pool).is_empty(), "the kernel continues with it");
        let next = pool.lend(0, 11, false);
        assert_eq!(next.start, 5);
        pool.give_back(next);
        assert_eq!(offered(&pool), [0]);
    }

    /// A receive that was left to a thread of the kernel takes all that is left, however little comes.
    #[test]
    fn a_buffer_that_the_kernel_gave_up_early_goes_back_too() {
        let mut pool = Pool::new(ReceiveBuffers::incremental(1, 16)).expect("memory");
        let piece = pool.lend(0, 5, false);
        pool.give_back(piece);
        assert_eq!(offered(&pool), [0]);
    }
}
