//! A buffer of fields that owns its memory and grows, and that memory.
//!
//! Rust services and clients use [`Ubf`]; typed buffers own a [`Region`]. A `Ubf` never refuses for want of
//! space, until [`SIZE_MAX`].

use super::{Field, FieldId, HEADER_BYTES, Iter, SIZE_MAX, UbfError, UbfMut, UbfRef, Value};

/// A buffer of fields.
///
/// It reads through [`fields`](Self::fields); the commonest reads stand here too.
#[derive(Clone)]
pub struct Ubf {
    region: Region,
}

impl Ubf {
    /// Bytes of a buffer for which no size was given.
    pub const SIZE_DEFAULT: usize = 1024;

    /// A buffer without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::with_size(Self::SIZE_DEFAULT)
    }

    /// A buffer without fields that first grows when more than `size` bytes are used.
    ///
    /// Below [`HEADER_BYTES`] it is as many, above [`SIZE_MAX`] that.
    #[must_use]
    pub fn with_size(size: usize) -> Self {
        let mut region = Region::zeroed(size.clamp(HEADER_BYTES, SIZE_MAX));
        UbfMut::init(region.bytes_mut()).expect("a region of a sound size");
        Self { region }
    }

    /// The buffer in a region, as another process may have sent it; all of it is checked.
    ///
    /// # Errors
    /// [`UbfError::NotFielded`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, UbfError> {
        let used = UbfRef::check(bytes)?.used_bytes();
        let mut region = Region::zeroed(used.len());
        region.bytes_mut().copy_from_slice(used);
        UbfMut::adopt(region.bytes_mut())?;
        Ok(Self { region })
    }

    /// For reading.
    #[must_use]
    pub fn fields(&self) -> UbfRef<'_> {
        UbfRef::open(self.region.bytes()).expect("an owned buffer is sound")
    }

    /// The bytes that sending it sends: header and fields.
    #[must_use]
    pub fn used_bytes(&self) -> &[u8] {
        self.fields().used_bytes()
    }

    /// Its memory, for a buffer that owns it from now on.
    #[must_use]
    pub fn into_region(self) -> Region {
        self.region
    }

    /// The value of a field.
    ///
    /// # Errors
    /// As [`UbfRef::get`].
    pub fn get(&self, id: FieldId, occurrence: i32) -> Result<Value<'_>, UbfError> {
        self.fields().get(id, occurrence)
    }

    /// All fields in their order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        self.fields().iter()
    }

    /// Adds an occurrence behind those that the field has.
    ///
    /// # Errors
    /// As [`UbfMut::add`]; [`UbfError::NoSpace`] only beyond [`SIZE_MAX`], here and below.
    pub fn add<'v>(&mut self, id: FieldId, value: impl Into<Value<'v>>) -> Result<(), UbfError> {
        let value = value.into();
        self.growing(|fields| fields.add(id, value))
    }

    /// Adds a value of any type, converted to the field's.
    ///
    /// # Errors
    /// As [`UbfMut::add_as`].
    pub fn add_as<'v>(&mut self, id: FieldId, value: impl Into<Value<'v>>) -> Result<(), UbfError> {
        let value = value.into();
        self.growing(|fields| fields.add_as(id, value))
    }

    /// Gives an occurrence another value.
    ///
    /// # Errors
    /// As [`UbfMut::change`].
    pub fn change<'v>(
        &mut self,
        id: FieldId,
        occurrence: i32,
        value: impl Into<Value<'v>>,
    ) -> Result<(), UbfError> {
        let value = value.into();
        self.growing(|fields| fields.change(id, occurrence, value))
    }

    /// Gives an occurrence a value of any type, converted to the field's.
    ///
    /// # Errors
    /// As [`UbfMut::change_as`].
    pub fn change_as<'v>(
        &mut self,
        id: FieldId,
        occurrence: i32,
        value: impl Into<Value<'v>>,
    ) -> Result<(), UbfError> {
        let value = value.into();
        self.growing(|fields| fields.change_as(id, occurrence, value))
    }

    /// Removes an occurrence.
    ///
    /// # Errors
    /// As [`UbfMut::delete`].
    pub fn delete(&mut self, id: FieldId, occurrence: i32) -> Result<(), UbfError> {
        self.growing(|fields| fields.delete(id, occurrence))
    }

    /// Anything else that changes fields; it is done again with more memory when there is too
    /// little.
    ///
    /// ```
    /// # use pollux_xatmi::ubf::{FieldId, FieldType, Ubf};
    /// const NAME: FieldId = FieldId::new(FieldType::String, 7);
    /// let mut source = Ubf::new();
    /// source.add(NAME, "Ada")?;
    /// let mut fields = Ubf::with_size(0);
    /// fields.growing(|fields| fields.update(source.fields()))?;
    /// assert_eq!(fields.fields().bytes(NAME, 0)?, b"Ada");
    /// # Ok::<(), pollux_xatmi::ubf::UbfError>(())
    /// ```
    ///
    /// # Errors
    /// Those of `change`.
    pub fn growing<T>(
        &mut self,
        mut change: impl FnMut(&mut UbfMut<'_>) -> Result<T, UbfError>,
    ) -> Result<T, UbfError> {
        loop {
            let size = self.region.len();
            let mut fields = UbfMut::open(self.region.bytes_mut())?;
            match change(&mut fields) {
                Err(UbfError::NoSpace { needed, .. })
                    if (size + 1..=SIZE_MAX).contains(&needed) =>
                {
                    self.grow(needed.max(size * 2).min(SIZE_MAX));
                }
                done => return done,
            }
        }
    }

    fn grow(&mut self, size: usize) {
        self.region = self.region.resized(size);
        UbfMut::resized(self.region.bytes_mut()).expect("it was sound and is longer now");
    }
}

impl Default for Ubf {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Ubf {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}

impl std::fmt::Debug for Ubf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fields().fmt(f)
    }
}

impl<'a> IntoIterator for &'a Ubf {
    type Item = Field<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// A piece of memory whose first byte has an address divisible by [`Region::ALIGNMENT_BYTES`].
///
/// The C interface hands its address out, so moving a `Region` does not move its bytes.
#[derive(Debug)]
pub struct Region {
    /// Longer than asked for by what the alignment may take.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Region {
    /// The address of the first byte is a multiple of this.
    pub const ALIGNMENT_BYTES: usize = 8;

    /// `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::of(vec![0; len + Self::ALIGNMENT_BYTES - 1], len)
    }

    /// The same; none when the system has no memory for it, where [`zeroed`](Self::zeroed) ends
    /// the process.
    ///
    /// A very large one is reserved on trial and then allocated: it is zero because the system made it
    /// so, and costs nothing before it is used. Another thread may take the last memory in between.
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
        // Otherwise the compiler leaves out a reservation that is not used.
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
