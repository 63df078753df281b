//! Feeds `checks/message.rs`; run it with `cargo +nightly fuzz run message`.
#![no_main]

#[path = "../checks/message.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
