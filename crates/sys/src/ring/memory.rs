//! One block of memory that requests may reference: page-aligned, zeroed, at a fixed address.
//!
//! The stream ring's buffers and arena live in such blocks. They are reached by raw address
//! only, so no reference ever covers bytes that the kernel may be writing.

use std::alloc::{self, Layout};
use std::io;
use std::ptr::NonNull;

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
