//! s
pub mod ring;
