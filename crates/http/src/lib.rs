//! HTTP/1.1 and HTTP/2 ([`h2`]) without I/O: bytes in, facts and bytes out.
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
//! | what does a page of metrics look like? | [`MetricsPage`] |
//!
//! | question of a client | answered by |
//! |---|---|
//! | how is it asked? | [`RequestHead`] |
//! | what does this head answer, and is it sound? | [`Response::parse`], cheaper through [`HeadCache`] |
//! | where does its body end, and was it cut? | [`BodyReader::of_response`], [`BodyReader::end`] |
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod body;
mod conditions;
mod encoding;
mod fields;
mod framing;
pub mod h2;
mod head_writer;
mod metrics_page;
mod proxy_header;
mod request;
mod response;
mod status;
mod target;

pub use body::{BodyReader, BodyStep};
pub use conditions::{ByteRange, EntityTag, Outcome, Representation, evaluate};
pub use encoding::{Acceptable, ContentCoding};
pub use fields::{Field, Fields};
pub use framing::{Framing, RequestKind, ResponseBody};
pub use head_writer::{
    BufferFull, CHUNK_END, CHUNK_HEAD_BYTES_MAX, CONTINUE, DateCache, HeadWriter, LAST_CHUNK,
    RequestFault, RequestHead, decimal, parse_date, write_chunk_head,
};
pub use metrics_page::MetricsPage;
pub use proxy_header::{NoProxyHeader, ProxyHeader, ProxyVersion};
pub use request::{Method, Parsed, Request};
pub use response::{HeadCache, Response, ResponseFacts};
pub use status::{LimitName, Limits, Rejection, Status};
pub use target::{FilePath, Form, Target, is_host_and_port};
