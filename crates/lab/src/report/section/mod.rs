//! The sections of the page, in reading order: answer, results, why, the published result, every run, the machine.
//!
//! `html.rs` puts them one after the other. Each is a function from the record to markup; a section
//! about which the record holds nothing is empty text.

pub(super) mod behind;
pub(super) mod beside;
pub(super) mod head;
pub(super) mod machine;
pub(super) mod own;
pub(super) mod results;

use pollux_report::markup::{details, escape};

/// Points of an experiment that are shown at once; of more, the first and the last.
const POINTS_OPEN_MAX: usize = 3;

/// What `draw` makes of the points that are shown at once, then of the others, folded away; it is
/// handed a part of the keys of its charts as well. Empty where it makes nothing.
fn folded(points: &[&str], mut draw: impl FnMut(&[&str], &str) -> String) -> String {
    match points {
        [] => String::new(),
        [first, between @ .., last] if points.len() > POINTS_OPEN_MAX => {
            let (open, rest) = (draw(&[first, last], ""), draw(between, "-more"));
            match rest.is_empty() {
                true => open,
                false => open + &details(&format!("The other {} points", between.len()), &rest),
            }
        }
        all => draw(all, ""),
    }
}

/// Charts side by side, each under its point; `draw` is handed the place of each.
fn panels(points: &[&str], mut draw: impl FnMut(usize, &str) -> Option<String>) -> String {
    let one = |(place, point): (usize, &&str)| {
        Some(format!("<div><h4>{}</h4>{}</div>", escape(point), draw(place, point)?))
    };
    let charts: String = points.iter().enumerate().filter_map(one).collect();
    format!("<div class=\"panels\">{charts}</div>")
}
