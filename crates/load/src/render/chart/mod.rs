//! The charts of the page: each a function from an outcome to a drawing.
//!
//! The page calls them. They share their edges, so that a dip in one is found in the other.

mod course;
mod percentiles;

pub(super) use course::{errors, latency, rate};
pub(super) use percentiles::percentiles;

use pollux_report::chart::{Edges, Scale};

/// Left of the paper stand the values of the axis, right of it the names of the lines.
const EDGES: Edges = Edges { left: 64.0, right: 120.0, top: 36.0, foot: 44.0 };
/// Lines across the paper.
const TICKS: usize = 6;

/// A logarithmic axis for times, with some room at both ends.
fn time_scale(times: impl Iterator<Item = u64>, paper: (f64, f64)) -> Scale {
    let (low, high) = times.fold((u64::MAX, 1), |(low, high), ns| (low.min(ns), high.max(ns)));
    let low = (low.min(high) as f64).max(1.0);
    Scale::log((low / 1.2, high as f64 * 1.2), paper)
}
