//! Pages, charts and figures of everything that pollux reports: the lab's runs and those of `load`.
//!
//! One page, one style sheet, one way to write a figure. Charts are drawn by hand from axes and the small
//! part of SVG that they use. Nothing here knows what is shown, and nothing but the style sheet names a
//! colour: looks are classes.

#![forbid(unsafe_code)]

pub mod chart;
pub mod markup;
pub mod number;
mod output_file;
mod table;
pub mod terminal;

pub use markup::{page, page_with_script};
pub use output_file::OutputFile;
pub use table::{Cell, Table, Tone};
