//! The charts: each a function from a part of the record to a figure with its table.
//!
//! The sections call them; they draw on the papers of `pollux-report`.

pub(super) mod bars;
pub(super) mod curve;
pub(super) mod forest;
pub(super) mod intervals;
pub(super) mod lorenz;
pub(super) mod strip;
pub(super) mod times;
