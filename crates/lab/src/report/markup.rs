//! What sections and charts write with: the markup of `pollux-report`, and cells of what may be missing.

pub(super) use pollux_report::markup::{
    Cell, Table, card, details, escape, escape_json, notes, scroll, strip,
};

use super::words;
use crate::host::Reading;

/// A figure that may be missing, with its reason.
pub(super) fn figure_of(reading: &Reading<f64>, show: fn(f64) -> String) -> Cell {
    match (reading.value(), reading.reason()) {
        (Some(value), _) => Cell::number(&show(*value), *value),
        (None, reason) => Cell::missing("n/a", reason.unwrap_or_default()),
    }
}

/// A section of the page with its heading.
pub(super) fn section(id: &str, heading: &str, body: &str) -> String {
    pollux_report::markup::section(id, &words::capital(heading), body)
}
