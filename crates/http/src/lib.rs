//! HTTP/1.1 without I/O: bytes in, facts and bytes out.
//!
//! The sessions of servers and clients call it. It never sees a descriptor, a clock or a loop,
//! allocates nothing but what [`RequestHead::write`] adds to its caller's buffer, and never panics
//! on what the network sent. A verdict depends on the bytes alone, never on how
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
//!
//! | question of a client | answered by |
//! |---|---|
//! | how is it asked? | [`RequestHead`] |
//! | what does this head answer, and is it sound? | [`Response::parse`], cheaper through [`HeadCache`] |
//! | where does its body end, and was it cut? | [`BodyReader::of_response`], [`BodyReader::end`] |
#![forbid(unsafe_code)]

mod body;
mod chunk_extension;
mod conditions;
mod connection;
mod date;
mod encoding;
mod entity_tag;
mod field_lines;
mod fields;
mod framing;
mod head_writer;
mod host;
mod limits;
mod method;
mod path;
mod proxy_header;
mod range;
mod rejection;
mod request;
mod request_head;
mod request_line;
mod response_cache;
mod response_framing;
mod response_head;
mod scan;
mod status;
mod status_line;
mod target;

pub use body::{BodyReader, BodyStep};
pub use conditions::{Outcome, Representation, evaluate};
pub use date::{DateCache, parse_date};
pub use encoding::{Acceptable, ContentCoding};
pub use entity_tag::EntityTag;
pub use fields::{Field, Fields};
pub use framing::Framing;
pub use head_writer::{
    CHUNK_END, CHUNK_HEAD_BYTES_MAX, CONTINUE, HeadWriter, LAST_CHUNK, NoRoom, decimal,
    write_chunk_head,
};
pub use limits::Limits;
pub use method::Method;
pub use path::FilePath;
pub use proxy_header::{NoProxyHeader, ProxyHeader, ProxyVersion};
pub use range::{ByteRange, Unsatisfiable, parse_range};
pub use rejection::Rejection;
pub use request::{Parsed, Request};
pub use request_head::{RequestFault, RequestHead};
pub use response_cache::HeadCache;
pub use response_framing::{RequestKind, ResponseBody};
pub use response_head::{Response, ResponseFacts};
pub use status::Status;
pub use target::{Form, Target};
