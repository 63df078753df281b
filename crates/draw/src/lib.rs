//! What every report that is drawn by hand needs: axes, the small part of SVG that charts use,
//! safe markup, and figures as people read them.
//!
//! The lab's report and that of a load run are made of it. Nothing here knows what is shown, and
//! nothing names a colour: looks are classes, which the page's style sheet colours.

#![forbid(unsafe_code)]

mod figure;
mod markup;
mod scale;
mod svg;

pub use figure::{count, significant, tick, with_prefix};
pub use markup::{escape, scroll};
pub use scale::Scale;
pub use svg::{At, Marker, Svg, fit, heavy_width, polyline, text_width};
