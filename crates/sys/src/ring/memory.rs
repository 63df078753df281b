//! Memory that requests may reference: blocks at a fixed address, and the arena of one turn, from which bytes that
//! were written in place are sent. The pool of receive buffers stands in `pool.rs`.
//!
//! A block is page-aligned, zeroed and reached by raw address only, so no reference ever covers bytes that the
//! kernel may be writing. The stream ring owns one arena and one pool. The arena is filled from the front; what a
//! send references lies in front of `used` and is only read from then on, the rest is spare. The owner must not
//! reset it while a request that references it waits in the queue.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::{io, slice};

/// A heap block that is freed with its owner, unless it is leaked.
#[derive(Debug)]
pub(super) struct Memory {
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
