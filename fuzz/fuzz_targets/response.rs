//! Feeds `checks/response.rs`; run it with `cargo +nightly fuzz run response`.
#![no_main]

#[path = "../checks/response.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
