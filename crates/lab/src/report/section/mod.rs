//! The sections of the page, in reading order: answer, results, why, the seed, every run, the machine.
//!
//! `html.rs` puts them one after the other. Each is a function from the record to markup; a section
//! about which the record holds nothing is empty text.

pub(super) mod head;
pub(super) mod herd;
pub(super) mod herd_markdown;
pub(super) mod machine;
pub(super) mod results;
pub(super) mod runs;
pub(super) mod seed;
pub(super) mod server;
pub(super) mod times;
pub(super) mod why;
