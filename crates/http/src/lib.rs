//! HTTP/1.1 without I/O: bytes in, facts and bytes out.
//!
//! The server's sessions call it. It never sees a descriptor, a clock or a loop.
#![forbid(unsafe_code)]
