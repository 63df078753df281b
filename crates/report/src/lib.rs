//! Pages, charts and figures of everything that pollux reports: the lab's runs and those of `load`.
//!
//! One page, one style sheet, one way to write a figure. Charts are drawn by hand from axes and the small
//! part of SVG that they use. Nothing here knows what is shown, and nothing but the style sheet names a
//! colour: looks are classes.

#![forbid(unsafe_code)]

pub mod change;
pub mod chart;
mod file;
pub mod markdown;
pub mod markup;
pub mod number;
mod page;
mod table;
pub mod terminal;

pub use file::Place;
pub use page::{page, page_with_script};
pub use table::{Cell, Table, Tone};
