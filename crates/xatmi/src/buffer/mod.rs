//! Typed buffers: what a call carries, with the name of its type.
//!
//! Clients, workers and the C interface hold them; the C interface gives the address of
//! [`Buffer::as_bytes_mut`] out as the `char *` of `tpalloc`. Nothing here sends or receives.

mod buffer_type;
mod error;
mod typed;

pub use buffer_type::{BufferType, TYPE_BYTES_MAX};
pub use error::BufferError;
pub use typed::{Buffer, SUBTYPE_BYTES_MAX};
