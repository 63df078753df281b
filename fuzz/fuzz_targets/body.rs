//! Feeds `checks/body.rs`; run it with `cargo +nightly fuzz run body`.
#![no_main]

#[path = "../checks/body.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
