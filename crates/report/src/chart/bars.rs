//! Bars: shares of classes side by side, and shares of names below each other.

use super::svg::{Svg, fit, text_width};
use super::{HALF_WIDTH, LETTERS, SMALL, Scale};
use crate::number;

const WIDTH: f64 = 250.0;
const LEFT: f64 = 44.0;
const TOP: f64 = 24.0;
const PLOT: f64 = 56.0;
const BAR_WIDTH_MAX: f64 = 30.0;
const FOOT: f64 = 20.0;
/// Room for the names that stand below each other.
const NAME_WIDTH: f64 = 250.0;
const ROW: f64 = 20.0;

/// A share of something, with its name and words for the pointer.
#[derive(Clone, Debug)]
pub struct Bar {
    pub name: String,
    /// From 0 to 1.
    pub share: f64,
    /// Words for the pointer.
    pub tip: String,
}

/// Whose bars they are: the name, what stands at the right of it, and class and number of its colour.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Over the bars.
    pub name: &'a str,
    /// At the right of it.
    pub beside: &'a str,
    /// The class that gives the colour.
    pub class: &'a str,
    /// The number by which it is switched, where it can be.
    pub series: Option<usize>,
}

/// A small chart with a bar for each class; `title` and `about` are for screen readers.
#[must_use]
pub fn small(key: &str, (title, about): (&str, &str), head: Head<'_>, bars: &[Bar]) -> String {
    let mut svg = Svg::new(key, (WIDTH, TOP + PLOT + FOOT), title, about);
    let right = WIDTH - 8.0;
    svg.open(head.class, head.series);
    svg.text((LEFT, 12.0), "strong", &fit(head.name, LETTERS * 1.125, WIDTH - LEFT - 80.0));
    svg.text((right, 12.0), "dim end small", head.beside);
    let y = Scale::linear((0.0, 1.0), (TOP + PLOT, TOP));
    svg.grid(&y, &[0.0, 0.5, 1.0], (LEFT, right), "small", number::percent_tick);
    let step = ((right - LEFT) / bars.len().max(1) as f64).min(BAR_WIDTH_MAX);
    let mut free_from = 0.0;
    for (place, bar) in bars.iter().enumerate() {
        let x = LEFT + place as f64 * step;
        let top = y.at(bar.share);
        svg.rect((x + 1.0, top), (step - 2.0, y.at(0.0) - top), "bar", &bar.tip);
        // As many names as fit: what is between them is easily filled in.
        let middle = x + step / 2.0;
        let half = text_width(&bar.name, SMALL) / 2.0;
        if middle - half >= free_from && middle + half <= WIDTH {
            svg.text((middle, TOP + PLOT + 14.0), "dim mid small", &bar.name);
            free_from = middle + half + 3.0;
        }
    }
    svg.close();
    svg.finish()
}

/// A bar for each name, below each other; `title` and `about` are for screen readers.
#[must_use]
pub fn ranked(key: &str, (title, about): (&str, &str), head: Head<'_>, bars: &[Bar]) -> String {
    let height = TOP + bars.len() as f64 * ROW + 6.0;
    let mut svg = Svg::new(key, (HALF_WIDTH, height), title, about);
    svg.text((0.0, 12.0), "strong", &fit(head.name, LETTERS, HALF_WIDTH - 130.0));
    svg.text((HALF_WIDTH, 12.0), "dim end", head.beside);
    let highest = bars.iter().map(|bar| bar.share).fold(0.01, f64::max);
    let length = Scale::linear((0.0, highest), (0.0, HALF_WIDTH - NAME_WIDTH - 70.0));
    svg.open(head.class, head.series);
    for (place, bar) in bars.iter().enumerate() {
        let y = TOP + place as f64 * ROW;
        let length = length.at(bar.share);
        let name = fit(&bar.name, LETTERS, NAME_WIDTH - 12.0);
        svg.text((NAME_WIDTH - 8.0, y + 14.0), "end code", &name);
        svg.rect((NAME_WIDTH, y + 3.0), (length, ROW - 6.0), "bar", &bar.tip);
        let share = number::percent(bar.share);
        svg.text((NAME_WIDTH + length + 6.0, y + 14.0), "dim fig", &share);
    }
    svg.close();
    svg.finish()
}
