//! One typed buffer: memory, type, subtype, and how much of it is sent.
//!
//! See the module. Its memory stays where it is until [`Buffer::resize`].

use super::BufferError;
use crate::ubf::{HEADER_BYTES, Region, SIZE_MAX, Ubf, UbfMut, UbfRef};

/// Longest name of a type in the XATMI interface.
pub const TYPE_BYTES_MAX: usize = 8;

/// Longest name of a subtype in the XATMI interface.
pub const SUBTYPE_BYTES_MAX: usize = 16;

/// Bytes of a buffer without fields for which no size was given.
const SIZE_DEFAULT: usize = 512;

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferType {
    /// Fields; `FML`, `FML32` and `UBF32` are other names of it.
    Ubf,
    /// Text up to a NUL.
    String,
    /// Bytes, with a length that the sender gives.
    Carray,
    /// Text in JSON up to a NUL; what is in it is not looked at.
    Json,
    /// The name that XATMI has for `CARRAY`.
    XOctet,
}

/// A typed buffer.
///
/// The address of its memory is a multiple of 8, and does not change when the `Buffer` is moved.
#[derive(Clone, Debug)]
pub struct Buffer {
    buffer_type: BufferType,
    subtype: String,
    region: Region,
}

impl BufferType {
    /// All types.
    pub const ALL: [Self; 5] = [Self::Ubf, Self::String, Self::Carray, Self::Json, Self::XOctet];

    /// The type that programs call so.
    ///
    /// # Errors
    /// [`BufferError::UnknownType`].
    pub fn from_name(name: &str) -> Result<Self, BufferError> {
        match name {
            "FML" | "FML32" | "UBF32" => Ok(Self::Ubf),
            _ => Self::ALL
                .into_iter()
                .find(|buffer_type| buffer_type.name() == name)
                .ok_or_else(|| BufferError::UnknownType { name: name.to_owned() }),
        }
    }

    /// Its name; of several the one that messages carry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ubf => "UBF",
            Self::String => "STRING",
            Self::Carray => "CARRAY",
            Self::Json => "JSON",
            Self::XOctet => "X_OCTET",
        }
    }

    /// Whether a NUL ends what is sent.
    const fn is_text(self) -> bool {
        matches!(self, Self::String | Self::Json)
    }
}

impl Buffer {
    /// An empty buffer. Size 0 is the type's own: 1024 bytes for fields, 512 for others. Fields
    /// have at least the bytes of their header.
    ///
    /// # Errors
    /// [`BufferError::LongSubtype`], [`BufferError::TooLarge`].
    pub fn new(buffer_type: BufferType, subtype: &str, size: usize) -> Result<Self, BufferError> {
        if subtype.len() > SUBTYPE_BYTES_MAX {
            return Err(BufferError::LongSubtype { bytes: subtype.len() });
        }
        let mut region = Region::zeroed(sound_size(buffer_type, size)?);
        if buffer_type == BufferType::Ubf {
            UbfMut::init(region.bytes_mut())?;
        }
        Ok(Self { buffer_type, subtype: subtype.to_owned(), region })
    }

    /// An empty buffer of the type that programs call `name`: `tpalloc`.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`BufferError::UnknownType`].
    pub fn alloc(name: &str, subtype: &str, size: usize) -> Result<Self, BufferError> {
        Self::new(BufferType::from_name(name)?, subtype, size)
    }

    /// The buffer that a message brought: `bytes` are what was sent, `size` what it stood in.
    ///
    /// Everything is checked, as a stranger may have sent it.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), [`BufferError::NoNul`], and [`BufferError::Fields`] when the
    /// content is not of its type.
    pub fn from_wire(
        name: &str,
        subtype: &str,
        size: usize,
        bytes: &[u8],
    ) -> Result<Self, BufferError> {
        let buffer_type = BufferType::from_name(name)?;
        let mut buffer = Self::new(buffer_type, subtype, size.max(bytes.len()))?;
        buffer.as_bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        buffer.received(bytes.len())?;
        Ok(buffer)
    }

    /// Makes sure that the first `len` bytes, which somebody else wrote there, are of the type.
    ///
    /// # Errors
    /// As [`from_wire`](Self::from_wire), and [`BufferError::BeyondEnd`].
    pub fn received(&mut self, len: usize) -> Result<(), BufferError> {
        let (buffer_type, size) = (self.buffer_type, self.size());
        let bytes = self.as_bytes_mut();
        let sent = bytes.get(..len).ok_or(BufferError::BeyondEnd { given: len, size })?;
        if buffer_type.is_text() && sent.iter().position(|&b| b == 0) != len.checked_sub(1) {
            return Err(BufferError::NoNul { name: buffer_type.name() });
        }
        if buffer_type == BufferType::Ubf {
            UbfRef::check(sent)?;
            UbfMut::resized(bytes)?;
        }
        Ok(())
    }

    /// A text.
    ///
    /// # Errors
    /// [`BufferError::NoNul`] when a NUL is in it, [`BufferError::TooLarge`].
    pub fn string(text: &str) -> Result<Self, BufferError> {
        let bytes = [text.as_bytes(), &[0]].concat();
        Self::from_wire(BufferType::String.name(), "", bytes.len(), &bytes)
    }

    /// Bytes, all of which [`as_bytes`](Self::as_bytes) gives.
    ///
    /// # Errors
    /// [`BufferError::TooLarge`].
    pub fn carray(bytes: &[u8]) -> Result<Self, BufferError> {
        Self::from_wire(BufferType::Carray.name(), "", bytes.len(), bytes)
    }

    /// What it holds.
    #[must_use]
    pub fn buffer_type(&self) -> BufferType {
        self.buffer_type
    }

    /// Its subtype; empty without one.
    #[must_use]
    pub fn subtype(&self) -> &str {
        &self.subtype
    }

    /// Bytes of its memory.
    #[must_use]
    pub fn size(&self) -> usize {
        self.region.len()
    }

    /// All of its memory.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.region.bytes()
    }

    /// All of its memory, to be written.
    #[must_use]
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        self.region.bytes_mut()
    }

    /// Bytes that sending it sends: text with its NUL, the used part of fields, `given` bytes of
    /// others. `given` counts for others only.
    ///
    /// # Errors
    /// [`BufferError::NoNul`], [`BufferError::Fields`] when a program has overwritten them,
    /// [`BufferError::BeyondEnd`].
    pub fn used_len(&self, given: usize) -> Result<usize, BufferError> {
        let (bytes, name) = (self.as_bytes(), self.buffer_type.name());
        match self.buffer_type {
            BufferType::Ubf => Ok(UbfRef::open(bytes)?.used()),
            BufferType::String | BufferType::Json => {
                let end = bytes.iter().position(|&b| b == 0);
                end.map(|end| end + 1).ok_or(BufferError::NoNul { name })
            }
            BufferType::Carray | BufferType::XOctet if given <= bytes.len() => Ok(given),
            BufferType::Carray | BufferType::XOctet => {
                Err(BufferError::BeyondEnd { given, size: bytes.len() })
            }
        }
    }

    /// Gives it other memory of `size` bytes with the same content, `tprealloc`; 0 is the type's
    /// own size. A text that is cut short ends with a NUL.
    ///
    /// # Errors
    /// [`BufferError::TooLarge`], and [`BufferError::Fields`] when its fields do not fit; it is
    /// what it was then.
    pub fn resize(&mut self, size: usize) -> Result<(), BufferError> {
        let mut region = self.region.resized(sound_size(self.buffer_type, size)?);
        if self.buffer_type == BufferType::Ubf {
            UbfMut::resized(region.bytes_mut())?;
        }
        if let Some(last) = region.bytes_mut().last_mut()
            && self.buffer_type.is_text()
        {
            *last = 0;
        }
        self.region = region;
        Ok(())
    }

    /// Its fields.
    ///
    /// # Errors
    /// [`BufferError::OtherType`] when it is no UBF, [`BufferError::Fields`] when a program has
    /// overwritten them.
    pub fn fields(&self) -> Result<UbfRef<'_>, BufferError> {
        self.must_hold_fields()?;
        Ok(UbfRef::open(self.as_bytes())?)
    }

    /// Its fields, to be changed.
    ///
    /// # Errors
    /// As [`fields`](Self::fields).
    pub fn fields_mut(&mut self) -> Result<UbfMut<'_>, BufferError> {
        self.must_hold_fields()?;
        Ok(UbfMut::open(self.as_bytes_mut())?)
    }

    fn must_hold_fields(&self) -> Result<(), BufferError> {
        let (wanted, given) = (BufferType::Ubf.name(), self.buffer_type.name());
        let is_ubf = self.buffer_type == BufferType::Ubf;
        if is_ubf { Ok(()) } else { Err(BufferError::OtherType { wanted, given }) }
    }
}

/// Fields take their memory along.
impl From<Ubf> for Buffer {
    fn from(fields: Ubf) -> Self {
        let region = fields.into_region();
        Self { buffer_type: BufferType::Ubf, subtype: String::new(), region }
    }
}

fn sound_size(buffer_type: BufferType, size: usize) -> Result<usize, BufferError> {
    match (size, buffer_type) {
        (0, BufferType::Ubf) => Ok(Ubf::SIZE_DEFAULT),
        (0, _) => Ok(SIZE_DEFAULT),
        _ if size > SIZE_MAX => Err(BufferError::TooLarge { bytes: size, most: SIZE_MAX }),
        (_, BufferType::Ubf) => Ok(size.max(HEADER_BYTES)),
        _ => Ok(size),
    }
}
