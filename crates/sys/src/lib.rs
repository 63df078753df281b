//! s
pub mod perf;
