//! Feeds `checks/field_table.rs`; run it with `cargo +nightly fuzz run field_table`.
#![no_main]

#[path = "../checks/field_table.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::holds(data));
