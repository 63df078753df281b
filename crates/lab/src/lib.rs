//! p
#![forbid(unsafe_code)]

pub mod stats;
