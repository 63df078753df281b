//! Feeds `checks/proxy_header.rs`; run it with `cargo +nightly fuzz run proxy_header`.
#![no_main]

#[path = "../checks/proxy_header.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
