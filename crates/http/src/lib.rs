//! HTTP/1.1 without I/O: bytes in, facts and bytes out.
//!
//! The server's sessions call it. It never sees a descriptor, a clock or a loop, never allocates,
//! and never panics on what the network sent. A verdict depends on the bytes alone, never on how
//! they were split on their way.
//!
//! | question | answered by |
//! |---|---|
//! | what does this head ask for, and is it sound? | [`Request::parse`] |
//! | where does its body end? | [`BodyReader`] |
//! | which file does the path name? | [`FilePath::decode`] |
//! | whole, part, 304, 412 or 416? | [`evaluate`] |
//! | which precompressed variant? | [`Acceptable`] |
//! | what does the answer look like? | [`HeadWriter`], [`DateCache`], [`write_chunk_head`] |
#![forbid(unsafe_code)]

mod body;
mod conditions;
mod connection;
mod date;
mod encoding;
mod entity_tag;
mod field_lines;
mod fields;
mod framing;
mod host;
mod limits;
mod method;
mod path;
mod range;
mod rejection;
mod request;
mod request_line;
mod response;
mod scan;
mod status;
mod target;

pub use body::{BodyReader, BodyStep};
pub use conditions::{Outcome, Representation, evaluate};
pub use date::{DateCache, parse_date};
pub use encoding::{Acceptable, ContentCoding};
pub use entity_tag::EntityTag;
pub use fields::{Field, Fields};
pub use framing::Framing;
pub use limits::Limits;
pub use method::Method;
pub use path::FilePath;
pub use range::{ByteRange, Unsatisfiable, parse_range};
pub use rejection::Rejection;
pub use request::{Parsed, Request};
pub use response::{
    CHUNK_END, CHUNK_HEAD_BYTES_MAX, CONTINUE, HeadWriter, LAST_CHUNK, NoRoom, write_chunk_head,
};
pub use status::Status;
pub use target::{Form, Target};
