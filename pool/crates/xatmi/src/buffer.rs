//! Typed buffers: what a call carries, with the name of its type.
//!
//! Clients, workers and the C interface hold them; the C interface gives the address of
//! [`Buffer::as_bytes_mut`] out as the `char *` of `tpalloc`. Nothing here sends or receives.

use std::ffi::CStr;

use thiserror::Error;

use crate::ubf::{HEADER_BYTES, Region, SIZE_MAX, Ubf, UbfError, UbfMut, UbfRef};
use crate::view::{self, View, ViewError};

/// Longest name of a type in the XATMI interface.
pub const TYPE_BYTES_MAX: usize = 8;

/// The type of a buffer.
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
    /// A struct of C, whose view is the subtype; `VIEW32` is another name of it.
    View,
    /// The same by another name of XATMI.
    XCType,
    /// The same by a third name.
    XCommon,
    /// The argument of `tpinit`; it stays in its process.
    Init,
}

impl BufferType {
    /// All types that messages carry.
    pub const ALL: [Self; 8] = [
        Self::Ubf,
        Self::String,
        Self::Carray,
        Self::Json,
        Self::XOctet,
        Self::View,
        Self::XCType,
        Self::XCommon,
    ];

    /// The type that programs call so.
    ///
    /// # Errors
    /// [`BufferError::UnknownType`].
    pub fn from_name(name: &str) -> Result<Self, BufferError> {
        match name {
            "FML" | "FML32" | "UBF32" => Ok(Self::Ubf),
            "VIEW32" => Ok(Self::View),
            "TPINIT" => Ok(Self::Init),
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
            Self::View => "VIEW",
            Self::XCType => "X_C_TYPE",
            Self::XCommon => "X_COMMON",
            Self::Init => "TPINIT",
        }
    }

    /// Whether it holds a struct that a view describes.
    #[must_use]
    pub const fn is_view(self) -> bool {
        matches!(self, Self::View | Self::XCType | Self::XCommon)
    }

    /// Whether a NUL ends what is sent.
    const fn is_text(self) -> bool {
        matches!(self, Self::String | Self::Json)
    }

    /// Whether the sender says how much is sent.
    const fn is_bytes(self) -> bool {
        matches!(self, Self::Carray | Self::XOctet)
    }
}

/// Longest name of a subtype in the XATMI interface.
pub const SUBTYPE_BYTES_MAX: usize = 16;

/// Behind the struct of a view: which view it is, and which layout of it, as messages carry them.
const SEAL_BYTES: usize = SUBTYPE_BYTES_MAX + size_of::<u64>();

/// Bytes that a struct has at least, as programs of this interface expect.
const VIEW_SIZE_MIN: usize = 1024;

/// Bytes of a buffer without fields for which no size was given.
const SIZE_DEFAULT: usize = 512;

/// A typed buffer: memory, type, subtype, and how much of it is sent.
///
/// The address of its memory is a multiple of 8, and does not change when the `Buffer` is moved.
#[derive(Clone, Debug)]
pub struct Buffer {
    buffer_type: BufferType,
    subtype: String,
    region: Region,
}

impl Buffer {
    /// An empty buffer. Size 0 is the type's own: 1024 bytes for fields, 512 for others. Fields
    /// have at least the bytes of their header.
    ///
    /// # Errors
    /// [`BufferError::LongSubtype`], [`BufferError::TooLarge`], [`BufferError::NoMemory`].
    pub fn new(buffer_type: BufferType, subtype: &str, size: usize) -> Result<Self, BufferError> {
        if subtype.len() > SUBTYPE_BYTES_MAX {
            return Err(BufferError::LongSubtype { bytes: subtype.len() });
        }
        let mut region = zeroed(sound_size(buffer_type, size)?)?;
        if buffer_type == BufferType::Ubf {
            UbfMut::init(region.bytes_mut())?;
        }
        Ok(Self { buffer_type, subtype: subtype.to_owned(), region })
    }

    /// An empty buffer of the type that programs call `name`: `tpalloc`. A text or bytes have at least the
    /// type's own size.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`BufferError::UnknownType`].
    pub fn alloc(name: &str, subtype: &str, size: usize) -> Result<Self, BufferError> {
        let buffer_type = BufferType::from_name(name)?;
        if !buffer_type.is_view() {
            // Programs count on the type's own size: some send a text that fills what they asked for, without its NUL.
            let is_counted_on = buffer_type.is_text() || buffer_type.is_bytes();
            let least = if is_counted_on { SIZE_DEFAULT } else { 0 };
            return Self::new(buffer_type, subtype, size.max(least));
        }
        if subtype.len() > SUBTYPE_BYTES_MAX {
            return Err(BufferError::LongSubtype { bytes: subtype.len() });
        }
        let view = view::of_process(subtype)?;
        let mut buffer = Self::new(buffer_type, subtype, sealed_size(view, size)?)?;
        view.init(buffer.region.bytes_mut())?;
        buffer.seal(view);
        Ok(buffer)
    }

    /// Says behind a struct which view it is.
    fn seal(&mut self, view: &View) {
        let seal = seal_of(view);
        if let Some(last) = self.region.bytes_mut().last_chunk_mut() {
            *last = seal;
        }
    }

    /// The view of the struct that was received, all of whose bytes are `len`.
    fn unseal(&mut self, len: usize) -> Result<(), BufferError> {
        let bytes = self.region.bytes_mut();
        let seal: [u8; SEAL_BYTES] = *bytes[..len].last_chunk().ok_or(BufferError::NoView)?;
        let name = seal[..SUBTYPE_BYTES_MAX].split(|byte| *byte == 0).next().unwrap_or_default();
        let name = str::from_utf8(name).map_err(|_| BufferError::NoView)?;
        let view = view::of_process(name)?;
        if seal != seal_of(view) {
            return Err(BufferError::OtherView { name: name.to_owned() });
        }
        if view.size + SEAL_BYTES > len {
            return Err(BufferError::NoView);
        }
        bytes[len - SEAL_BYTES..].fill(0);
        self.subtype = name.to_owned();
        self.seal(view);
        Ok(())
    }

    /// The buffer that a message brought: `bytes` are what was sent, `size` what it stood in.
    ///
    /// Everything is checked, as any process may have sent it.
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

    /// Checks that the first `len` bytes, which were received into it, are of the type.
    ///
    /// # Errors
    /// As [`from_wire`](Self::from_wire), and [`BufferError::BeyondEnd`].
    pub fn received(&mut self, len: usize) -> Result<(), BufferError> {
        let buffer_type = self.buffer_type;
        let size = self.size();
        let bytes = self.as_bytes_mut();
        let sent = bytes.get(..len).ok_or(BufferError::BeyondEnd { given: len, size })?;
        // Other types may be long, and any byte is allowed there.
        let end_of = |sent| CStr::from_bytes_until_nul(sent).map(CStr::count_bytes);
        if buffer_type.is_text() && end_of(sent).map(|end| end + 1) != Ok(len) {
            return Err(BufferError::NoNul { name: buffer_type.name() });
        }
        if buffer_type == BufferType::Ubf {
            UbfRef::check(sent)?;
            UbfMut::resized(bytes)?;
        }
        if buffer_type.is_view() { self.unseal(len) } else { Ok(()) }
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

    /// Bytes of it that are a program's: behind a struct stands which view it is.
    #[must_use]
    pub fn program_size(&self) -> usize {
        if self.buffer_type.is_view() { self.size() - SEAL_BYTES } else { self.size() }
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
        let bytes = self.as_bytes();
        let name = self.buffer_type.name();
        match self.buffer_type {
            BufferType::Ubf => Ok(UbfRef::open(bytes)?.used()),
            BufferType::String | BufferType::Json => {
                let end = bytes.iter().position(|&b| b == 0);
                end.map(|end| end + 1).ok_or(BufferError::NoNul { name })
            }
            BufferType::Carray | BufferType::XOctet if given <= bytes.len() => Ok(given),
            BufferType::Init => Err(BufferError::NotSent { name }),
            BufferType::View | BufferType::XCType | BufferType::XCommon => {
                // All of it, as the struct says itself how much of it is in use.
                let seal = seal_of(view::of_process(&self.subtype)?);
                let is_whole = bytes.last_chunk() == Some(&seal);
                if is_whole { Ok(bytes.len()) } else { Err(BufferError::NoView) }
            }
            BufferType::Carray | BufferType::XOctet => {
                Err(BufferError::BeyondEnd { given, size: bytes.len() })
            }
        }
    }

    /// Another buffer of `size` bytes with the same content; 0 is the type's own size. A text that
    /// is cut short ends with a NUL: `tprealloc`.
    ///
    /// # Errors
    /// [`BufferError::TooLarge`], [`BufferError::NoMemory`], and [`BufferError::Fields`] when its
    /// fields do not fit.
    pub fn resized(&self, size: usize) -> Result<Self, BufferError> {
        if self.buffer_type.is_view() {
            let view = view::of_process(&self.subtype)?;
            let mut made = Self::new(self.buffer_type, &self.subtype, sealed_size(view, size)?)?;
            made.region.copy_from(&self.region);
            let len = made.size().min(self.size()) - SEAL_BYTES;
            made.region.bytes_mut()[len..].fill(0);
            made.seal(view);
            return Ok(made);
        }
        let mut region = zeroed(sound_size(self.buffer_type, size)?)?;
        region.copy_from(&self.region);
        if self.buffer_type == BufferType::Ubf {
            UbfMut::resized(region.bytes_mut())?;
        }
        if let Some(last) = region.bytes_mut().last_mut()
            && self.buffer_type.is_text()
        {
            *last = 0;
        }
        Ok(Self { buffer_type: self.buffer_type, subtype: self.subtype.clone(), region })
    }

    /// Its fields.
    ///
    /// # Errors
    /// [`BufferError::OtherType`] when it is not a UBF, [`BufferError::Fields`] when a program has
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
        let wanted = BufferType::Ubf.name();
        let given = self.buffer_type.name();
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

/// A mistake in a typed buffer or in a request for one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BufferError {
    /// There is no such type.
    #[error(
        "'{name}' is not a type of a buffer: expected UBF (FML, FML32, UBF32), STRING, CARRAY, JSON, X_OCTET, VIEW \
         (VIEW32), X_C_TYPE, X_COMMON or TPINIT"
    )]
    UnknownType {
        /// The given value.
        name: String,
    },
    /// There is no such view.
    #[error("the subtype is a view: {0}")]
    View(#[from] ViewError),
    /// A struct was written beyond its end, or comes from another kind of sender.
    #[error("the buffer holds no whole struct of a view: a program wrote behind its end")]
    NoView,
    /// Sender and receiver know different views of one name.
    #[error(
        "the view {name} of the sender has other members: compile both programs with one file of views"
    )]
    OtherView { name: String },
    /// The subtype is longer than the interface allows.
    #[error("the subtype has {bytes} bytes; at most 16 are allowed")]
    LongSubtype { bytes: usize },
    /// A buffer of this size is not made.
    #[error("{bytes} bytes are too many for a buffer; at most {most} are possible")]
    TooLarge {
        /// The given value.
        bytes: usize,
        most: usize,
    },
    /// The system has no memory for it.
    #[error("there is no memory for a buffer of {bytes} bytes")]
    NoMemory {
        /// The given value.
        bytes: usize,
    },
    /// More is to be sent than the buffer holds.
    #[error("{given} bytes are to be sent and the buffer has {size}")]
    BeyondEnd {
        /// The length that the caller gave.
        given: usize,
        /// Bytes of the buffer.
        size: usize,
    },
    /// Buffers of this type are not sent.
    #[error("a {name} buffer is for tpinit and is not sent")]
    NotSent { name: &'static str },
    /// A text has no NUL, or not at its end.
    #[error("a {name} buffer holds text that ends with a NUL")]
    NoNul { name: &'static str },
    /// The content must be fields and is not, or they do not fit.
    #[error("the fields of the buffer: {0}")]
    Fields(#[from] UbfError),
    /// The buffer is of another type.
    #[error("the buffer is {given} and not {wanted}")]
    OtherType {
        /// The type that the operation is for.
        wanted: &'static str,
        /// The type of the buffer.
        given: &'static str,
    },
}

impl BufferError {
    /// The number that C programs see as `tperrno`: `TPENOENT` for a type that does not exist,
    /// `TPEOS` without memory, else `TPEINVAL`.
    #[must_use]
    pub const fn number(&self) -> i32 {
        match self {
            Self::UnknownType { .. } | Self::View(_) => 6,
            Self::NoMemory { .. } => 7,
            _ => 4,
        }
    }
}

fn zeroed(bytes: usize) -> Result<Region, BufferError> {
    Region::try_zeroed(bytes).ok_or(BufferError::NoMemory { bytes })
}

/// Bytes of a buffer for a struct: at least those of the struct, and what stands behind it.
fn sealed_size(view: &View, size: usize) -> Result<usize, BufferError> {
    let size = size.max(view.size).max(VIEW_SIZE_MIN);
    let too_large = BufferError::TooLarge { bytes: size, most: SIZE_MAX - SEAL_BYTES };
    // The seal stands at the end whatever the size, and the size is one of C.
    size.checked_add(SEAL_BYTES).filter(|sum| *sum <= SIZE_MAX).ok_or(too_large)
}

fn seal_of(view: &View) -> [u8; SEAL_BYTES] {
    let mut seal = [0; SEAL_BYTES];
    let (name, sum) = seal.split_at_mut(SUBTYPE_BYTES_MAX);
    // A longer name has no buffers: subtypes have so many bytes.
    let len = view.name.len().min(SUBTYPE_BYTES_MAX);
    name[..len].copy_from_slice(&view.name.as_bytes()[..len]);
    sum.copy_from_slice(&view.layout_sum().to_le_bytes());
    seal
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ubf::{FieldId, FieldType, UbfError, Value};

    const ACCNUM: FieldId = FieldId::new(FieldType::String, 1001);

    fn alloc(name: &str, size: usize) -> Buffer {
        Buffer::alloc(name, "", size).expect(name)
    }

    #[test]
    fn every_name_of_a_type_gives_a_buffer_of_its_size() {
        for (name, real, size_default) in [
            ("UBF", "UBF", 1024),
            ("FML", "UBF", 1024),
            ("FML32", "UBF", 1024),
            ("UBF32", "UBF", 1024),
            ("STRING", "STRING", 512),
            ("CARRAY", "CARRAY", 512),
            ("JSON", "JSON", 512),
            ("X_OCTET", "X_OCTET", 512),
        ] {
            let buffer = Buffer::alloc(name, "sub", 0).expect(name);
            assert_eq!((buffer.buffer_type().name(), buffer.size()), (real, size_default));
            assert_eq!(buffer.subtype(), "sub");
            assert_eq!(alloc(name, 4321).size(), 4321);
            assert_eq!(buffer.as_bytes().as_ptr().align_offset(8), 0);
            let address = buffer.as_bytes().as_ptr();
            assert_eq!([buffer][0].as_bytes().as_ptr(), address, "it was moved");
        }
        assert_eq!(alloc("UBF", 1).size(), HEADER_BYTES);
        // A text of ten letters in ten bytes ends all the same.
        for name in ["STRING", "CARRAY", "JSON", "X_OCTET"] {
            assert_eq!(alloc(name, 10).size(), 512, "{name}");
        }
    }

    #[test]
    fn unknown_types_and_wrong_sizes_are_refused_with_the_reason() {
        for name in ["", "ubf", "VIEWS", "FML64", "NOTHING"] {
            let refused = Buffer::alloc(name, "", 10).expect_err(name);
            assert_eq!((refused.number(), refused.to_string().contains(name)), (6, true));
        }
        let refused = Buffer::alloc("UBF", &"s".repeat(SUBTYPE_BYTES_MAX + 1), 0);
        assert_eq!(refused.expect_err("too long").number(), 4);
        let refused = Buffer::alloc("CARRAY", "", SIZE_MAX + 1).expect_err("too large");
        assert_eq!(refused, BufferError::TooLarge { bytes: SIZE_MAX + 1, most: SIZE_MAX });
        assert!(matches!(alloc("JSON", 0).fields(), Err(BufferError::OtherType { .. })));
    }

    #[test]
    fn the_type_of_a_buffer_decides_how_much_is_sent() {
        let new = |buffer_type| Buffer::new(buffer_type, "", 8).expect("sound");
        let mut text = new(BufferType::String);
        text.as_bytes_mut().copy_from_slice(b"abc\0defg");
        assert_eq!(text.used_len(99), Ok(4));
        text.as_bytes_mut()[3] = b'x';
        assert_eq!(text.used_len(0), Err(BufferError::NoNul { name: "STRING" }));
        for buffer_type in [BufferType::Carray, BufferType::XOctet] {
            let bytes = new(buffer_type);
            assert_eq!((bytes.used_len(8), bytes.used_len(0)), (Ok(8), Ok(0)));
            assert_eq!(bytes.used_len(9), Err(BufferError::BeyondEnd { given: 9, size: 8 }));
        }
        let mut fields = alloc("UBF", 0);
        assert_eq!(fields.used_len(0), Ok(HEADER_BYTES));
        fields.fields_mut().expect("fields").add(ACCNUM, "x").expect("room");
        assert_eq!(fields.used_len(0), Ok(HEADER_BYTES + 16));
        fields.as_bytes_mut().fill(0);
        assert_eq!(fields.used_len(0).expect_err("overwritten").number(), 4);
    }

    #[test]
    fn a_message_arrives_as_it_was_sent_in_as_much_room() {
        let mut sent = alloc("UBF", 2048);
        sent.fields_mut().expect("fields").add(ACCNUM, "x").expect("room");
        let used = sent.used_len(0).expect("sound");
        let mut came =
            Buffer::from_wire("FML32", "", sent.size(), &sent.as_bytes()[..used]).expect("sound");
        assert_eq!((came.size(), came.fields()), (2048, sent.fields()));
        assert_eq!(came.fields().expect("fields").size(), 2048);
        let text = "y".repeat(1500);
        came.fields_mut().expect("fields").add(ACCNUM, text.as_str()).expect("all the room");

        let came = Buffer::from_wire("UBF", "", 0, &sent.as_bytes()[..used]).expect("sound");
        assert_eq!(came.size(), used, "a size that is too small is made enough");
        let text = Buffer::from_wire("STRING", "", 0, b"abc\0").expect("sound");
        assert_eq!(text.used_len(0), Ok(4));
        let bytes = Buffer::from_wire("CARRAY", "", 2, b"a\0b").expect("sound");
        assert_eq!(bytes.as_bytes(), b"a\0b");
    }

    #[test]
    fn a_message_that_is_not_of_its_type_is_refused() {
        for (name, bytes) in [
            ("STRING", &b""[..]),
            ("STRING", b"abc"),
            ("STRING", b"a\0b\0"),
            ("JSON", b"{}"),
            ("UBF", b""),
            ("UBF", b"abcdefghijklmnopqrstuvwxyz"),
            ("NOTHING", b""),
        ] {
            assert!(Buffer::from_wire(name, "", 0, bytes).is_err(), "{name} {bytes:?}");
        }
        let mut fields = Ubf::new();
        fields.add(ACCNUM, "x").expect("added");
        let mut bytes = fields.used_bytes().to_vec();
        bytes[HEADER_BYTES + 3] ^= 0x80;
        assert!(Buffer::from_wire("UBF", "", 0, &bytes).is_err(), "its fields are looked at");
    }

    #[test]
    fn resizing_keeps_the_content_or_everything() {
        let mut fields = alloc("UBF", 0);
        fields.fields_mut().expect("fields").add(ACCNUM, "x").expect("room");
        let fields = fields.resized(4096).expect("longer");
        assert_eq!(fields.fields().expect("fields").size(), 4096);
        let refused = fields.resized(HEADER_BYTES).expect_err("too short");
        assert!(matches!(refused, BufferError::Fields(UbfError::NoSpace { .. })));
        assert_eq!(fields.size(), 4096);
        let fields = fields.resized(0).expect("its own size");
        assert_eq!(fields.size(), 1024);
        assert_eq!(fields.fields().expect("fields").get(ACCNUM, 0), Ok(Value::from("x")));

        let text = Buffer::string("abcdef").expect("no NUL").resized(4).expect("shorter");
        assert_eq!(text.as_bytes(), b"abc\0");
        let bytes = Buffer::carray(b"abcdef").expect("short").resized(4).expect("shorter");
        assert_eq!(bytes.as_bytes(), b"abcd");
        assert!(Buffer::string("a\0b").is_err());
    }

    #[test]
    fn fields_take_their_memory_along() {
        let mut fields = Ubf::new();
        fields.add(ACCNUM, "x").expect("added");
        let address = fields.used_bytes().as_ptr();
        let buffer = Buffer::from(fields);
        assert_eq!((buffer.as_bytes().as_ptr(), buffer.size()), (address, Ubf::SIZE_DEFAULT));
        assert_eq!(buffer.fields().expect("fields").get(ACCNUM, 0), Ok(Value::from("x")));
    }
}
