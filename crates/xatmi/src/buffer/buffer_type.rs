//! The types of buffers and the names that programs and messages have for them.
//!
//! Buffers and the C interface use it; it knows no content.

use super::BufferError;

/// Longest name of a type in the XATMI interface.
pub const TYPE_BYTES_MAX: usize = 8;

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
    /// What `tpinit` is given; it stays in its process.
    Init,
}

impl BufferType {
    /// All types that messages carry.
    pub const ALL: [Self; 5] = [Self::Ubf, Self::String, Self::Carray, Self::Json, Self::XOctet];

    /// The type that programs call so.
    ///
    /// # Errors
    /// [`BufferError::UnknownType`].
    pub fn from_name(name: &str) -> Result<Self, BufferError> {
        match name {
            "FML" | "FML32" | "UBF32" => Ok(Self::Ubf),
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
            Self::Init => "TPINIT",
        }
    }

    /// Whether a NUL ends what is sent.
    pub(super) const fn is_text(self) -> bool {
        matches!(self, Self::String | Self::Json)
    }
}
