//! Feeds `checks/request.rs`; run it with `cargo +nightly fuzz run request`.
#![no_main]

#[path = "../checks/request.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
