//! Charts: drawn by hand from scales and the small part of SVG that they use.
//!
//! [`Canvas`] is a chart with two axes and [`Line`]s on it; [`Forest`] draws ratios row by row of a
//! table, [`bars`] shares. Sizes are in CSS pixels at full width; the style sheet lets a chart scroll
//! in its box rather than shrink its letters when the window is narrow.

pub mod bars;
mod forest;
mod paper;
mod svg;

pub use forest::{Dot, Forest};
pub use paper::{Canvas, Edges, Line, Marks, Scale, Vertex};
pub use svg::{At, Marker, Svg, bold_text_width, fit, polyline, text_width};

use crate::markup::details;

/// Width of a chart that has the page to itself.
pub const WIDTH: f64 = 1040.0;
/// Width of one of two beside each other.
pub const HALF_WIDTH: f64 = 510.0;
/// Size of the letters in charts; `style.css` says the same.
pub const LETTERS: f64 = 12.0;
/// Small letters; `style.css` says the same of `.small`.
pub const SMALL: f64 = 10.5;

/// A chart, what is said under it, and its data as a table. `class` is for the style sheet.
#[must_use]
pub fn figure(class: &str, chart: &str, under: &str, table: &str) -> String {
    let data = details("Data of this chart", table);
    format!("<figure class=\"{class}\">{chart}{under}{data}</figure>\n")
}
