//! Feeds `checks/expression.rs`; run it with `cargo +nightly fuzz run expression`.
#![no_main]

#[path = "../checks/expression.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
