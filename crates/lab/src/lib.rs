//! p
#![forbid(unsafe_code)]
pub mod host;
