//! Free memory of the allocator, which it keeps for later.
//!
//! The loops of the engine call it when many connections have left: what they held lies scattered in the heap, where glibc
//! gives back only what is free at its end.

/// Gives free memory of the heap back to the kernel (`malloc_trim(3)`), wherever in the heap it lies; says whether there
/// was any. Takes a millisecond for each 10 MiB or so, in which other threads that allocate may wait. Does nothing with
/// another C library than glibc: musl gives such memory back as it is freed.
pub fn trim() -> bool {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call takes a number, and locks what it works on.
        let is_any = unsafe { libc::malloc_trim(0) };
        is_any != 0
    }
    #[cfg(not(target_env = "gnu"))]
    false
}
