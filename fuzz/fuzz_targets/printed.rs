//! Feeds `checks/printed.rs`; run it with `cargo +nightly fuzz run printed`.
#![no_main]

#[path = "../checks/printed.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
