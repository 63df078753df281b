//! Memory that starts at a multiple of 8 and stays where it is until it is resized.
//!
//! Owned buffers stand in it. The C interface hands its address out, so moving a `Region` must not
//! move its bytes, and does not.

/// A piece of memory whose first byte has an address divisible by [`Region::ALIGNMENT_BYTES`].
#[derive(Debug)]
pub struct Region {
    /// Longer than asked for by what the alignment may take.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Region {
    /// What the address of the first byte is a multiple of.
    pub const ALIGNMENT_BYTES: usize = 8;

    /// `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::of(vec![0; len + Self::ALIGNMENT_BYTES - 1], len)
    }

    /// The same; none when the system has no memory for it, where [`zeroed`](Self::zeroed) ends
    /// the process.
    ///
    /// What is very large is asked for first and taken then: it is zero because the system made it
    /// so, and costs nothing before it is used. Another thread may take the last of it in between.
    #[must_use]
    pub fn try_zeroed(len: usize) -> Option<Self> {
        /// From here on the allocator has each piece of memory from the system anew.
        const VERY_LARGE_BYTES: usize = 32 << 20;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len + Self::ALIGNMENT_BYTES - 1).ok()?;
        if len <= VERY_LARGE_BYTES {
            bytes.resize(len + Self::ALIGNMENT_BYTES - 1, 0);
            return Some(Self::of(bytes, len));
        }
        // Or else the compiler takes it that there is always memory that nobody uses.
        drop(std::hint::black_box(bytes));
        Some(Self::zeroed(len))
    }

    fn of(bytes: Vec<u8>, len: usize) -> Self {
        let start = bytes.as_ptr().align_offset(Self::ALIGNMENT_BYTES);
        // The documentation lets this fail where code runs at compile time, and nowhere else.
        assert!(start < Self::ALIGNMENT_BYTES, "an address of bytes can always be aligned");
        Self { bytes, start, len }
    }

    /// Takes over the content of other memory, as far as it fits; what is behind it stays.
    pub fn copy_from(&mut self, other: &Self) {
        let kept = self.len.min(other.len);
        self.bytes_mut()[..kept].copy_from_slice(&other.bytes()[..kept]);
    }

    /// Other memory of `len` bytes with the same content, as far as it fits; the rest is zero.
    #[must_use]
    pub fn resized(&self, len: usize) -> Self {
        let mut other = Self::zeroed(len);
        other.copy_from(self);
        other
    }

    /// Bytes, as asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes, to be written.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl Clone for Region {
    fn clone(&self) -> Self {
        self.resized(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_at_a_multiple_of_eight_and_stays_there_when_it_moves() {
        for len in 0..40 {
            let mut region = Region::zeroed(len);
            region.bytes_mut().fill(7);
            let address = region.bytes().as_ptr();
            assert_eq!(address.align_offset(Region::ALIGNMENT_BYTES), 0);
            let moved = Box::new(region);
            assert_eq!((moved.bytes().as_ptr(), moved.len()), (address, len));
        }
    }

    #[test]
    fn resizing_keeps_what_fits() {
        let mut region = Region::zeroed(3);
        region.bytes_mut().copy_from_slice(&[1, 2, 3]);
        assert_eq!(region.resized(5).bytes(), [1, 2, 3, 0, 0]);
        assert_eq!(region.resized(2).bytes(), [1, 2]);
        assert!(region.resized(0).is_empty());
    }
}
