//! A buffer of fields that owns its memory and grows.
//!
//! Rust services and clients use it. What it refuses is a matter of the fields, never of space,
//! until [`SIZE_MAX`].

use super::{
    Field, FieldId, HEADER_BYTES, Iter, Region, SIZE_MAX, UbfError, UbfMut, UbfRef, Value,
};

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

    /// What sending it sends.
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
    /// What `change` returns.
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
