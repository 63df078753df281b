//! p
#![forbid(unsafe_code)]
