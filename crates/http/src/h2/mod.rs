//! HTTP/2 (RFC 9113) without I/O, for both ends: bytes in, events out; commands in, bytes out.
//!
//! It sees no descriptor and no clock, and in steady state it allocates nothing. Requests and answers come out as the types
//! that HTTP/1.1's are, so that what reads heads is there once.
//!
//! | part | one job |
//! |---|---|
//! | `connection` | the order of frames, states of streams, commands; what stays of one that rests |
//! | `event` | what a connection says to its user |
//! | `frame` | heads of frames, their checks |
//! | `streams` | what is open |
//! | `schedule`, `priority` | whose turn it is to send; what a client says of that |
//! | `settings` | what both ends allow |
//! | `window` | arithmetic of flow windows |
//! | `hpack` | field blocks, both ways |
//! | `fields` | the rules of RFC 9113 8; a block becomes the lines of a head |
//! | `abuse` | what a peer may cost |
//! | `output`, `error` | room for what is sent; codes and faults |
//!
//! ```
//! use pollux_http::Limits;
//! use pollux_http::h2::{Connection, Event, Output, Role, Scratch, Settings};
//!
//! let mut server = Connection::<()>::new(Role::Server, Settings::DEFAULT);
//! let (mut room, mut scratch) = ([0; 1024], Scratch::default());
//! let mut out = Output::new(&mut room);
//! server.start(&mut out);
//! // The preface, SETTINGS without an entry, and GET / in a block of four bytes and an authority.
//! let mut input = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
//! input.extend_from_slice(b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a");
//! let mut at = 0;
//! loop {
//!     let step = server.read(&input[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0).unwrap();
//!     at += step.used;
//!     match step.event {
//!         Some(Event::Request { stream, request, .. }) => {
//!             assert_eq!(request.target.path(), Some("/"));
//!             server.send_head(&mut out, stream, b"HTTP/1.1 204 No Content\r\n\r\n", true);
//!             assert!(server.take_done(stream).is_some());
//!         }
//!         Some(_) => {}
//!         None => break,
//!     }
//! }
//! assert!(out.bytes().ends_with(b"\0\0\x01\x01\x05\0\0\0\x01\x89"));
//! ```

mod abuse;
mod connection;
mod error;
mod event;
mod fields;
mod frame;
mod hpack;
mod output;
mod priority;
mod schedule;
mod settings;
mod streams;
mod window;

pub use connection::{
    Ask, AskHead, BlockBytes, CONTROL_ROOM_BYTES, Connection, DATA_BYTES_MAX, KnownBlock,
    RestingBytes, RestingConnection,
};
pub use error::{ErrorCode, Fault};
pub use event::{Event, Step};
pub use fields::{NeverIndexed, Scratch};
pub use frame::{PREFACE, is_data, is_empty_end};
pub use hpack::path_block;
pub use output::Output;
pub use schedule::Sending;
pub use settings::{Role, Settings};
