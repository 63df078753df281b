//! Feeds `checks/ubf.rs`; run it with `cargo +nightly fuzz run ubf`.
#![no_main]

#[path = "../checks/ubf.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
