//! The charts: each a function from a part of the record to SVG or a figure with its table.
//!
//! The sections call them. Sizes are in CSS pixels at full width; the style sheet lets a chart
//! scroll in its box rather than shrink its letters when the window is narrow.

pub(super) mod bars;
pub(super) mod curve;
pub(super) mod forest;
pub(super) mod intervals;
pub(super) mod lorenz;
pub(super) mod strip;
pub(super) mod times;

use super::markup::details;

/// Width of a chart that has the page to itself.
const WIDTH: f64 = 1040.0;
/// Size of the letters in charts; `style.css` says the same.
const LETTERS: f64 = 12.0;

/// A chart, what is said under it, and its data as a table.
fn figure(class: &str, chart: &str, under: &str, table: &str) -> String {
    let data = details("Data of this chart", table);
    format!("<figure class=\"{class}\">{chart}{under}{data}</figure>\n")
}
