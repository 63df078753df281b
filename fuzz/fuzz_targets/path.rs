//! Feeds `checks/path.rs`; run it with `cargo +nightly fuzz run path`.
#![no_main]

#[path = "../checks/path.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
