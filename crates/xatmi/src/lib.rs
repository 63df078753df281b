//! x
#![forbid(unsafe_code)]
pub mod link;
pub mod slots;
