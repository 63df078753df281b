//! Feeds `checks/conditions.rs`; run it with `cargo +nightly fuzz run conditions`.
#![no_main]

#[path = "../checks/conditions.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
