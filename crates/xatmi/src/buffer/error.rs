//! Why there is no such buffer, or it cannot be sent.
//!
//! Everything that makes or sends buffers returns it; the C interface takes its number.

use thiserror::Error;

use crate::ubf::UbfError;

/// What is wrong with a typed buffer or with what is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BufferError {
    /// There is no such type.
    #[error(
        "'{name}' is no type of a buffer: UBF (FML, FML32, UBF32), STRING, CARRAY, JSON, X_OCTET and TPINIT are"
    )]
    UnknownType {
        /// What was asked for.
        name: String,
    },
    /// The subtype is longer than the interface allows.
    #[error("the subtype has {bytes} bytes; at most 16 are allowed")]
    LongSubtype {
        /// What it has.
        bytes: usize,
    },
    /// A buffer of this size is not made.
    #[error("{bytes} bytes are too many for a buffer; at most {most} are possible")]
    TooLarge {
        /// What was asked for.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// The system has no memory for it.
    #[error("there is no memory for a buffer of {bytes} bytes")]
    NoMemory {
        /// What was asked for.
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
    NotSent {
        /// The type.
        name: &'static str,
    },
    /// A text has no NUL, or not at its end.
    #[error("a {name} buffer holds text that ends with a NUL")]
    NoNul {
        /// The type.
        name: &'static str,
    },
    /// The content must be fields and is not, or they do not fit.
    #[error("the fields of the buffer: {0}")]
    Fields(#[from] UbfError),
    /// The buffer is of another type.
    #[error("the buffer is {given} and not {wanted}")]
    OtherType {
        /// What the operation is for.
        wanted: &'static str,
        /// What the buffer is.
        given: &'static str,
    },
}

impl BufferError {
    /// The number that C programs see as `tperrno`: `TPENOENT` for a type that does not exist,
    /// `TPEOS` without memory, else `TPEINVAL`.
    #[must_use]
    pub const fn number(&self) -> i32 {
        match self {
            Self::UnknownType { .. } => 6,
            Self::NoMemory { .. } => 7,
            _ => 4,
        }
    }
}
