//! The forest plot: a ratio with its interval in each row of a table.
//!
//! The first thing that a reader judges by, so it is a table: words and figures are text that a narrow
//! page can break and a printer keeps, and each row draws its own stretch of the plot. Its places are
//! shares of the width, whatever that is. What is drawn the words beside it say as well, so that it is
//! hidden from screen readers.

use std::fmt::Write as _;

use super::svg::text_width;
use super::{LETTERS, Scale};
use crate::markup::escape;
use crate::number;
use crate::table::{Cell, Tone};

/// Height of a row in pixels; rows touch, so that the lines of the axis run through them.
const ROW: u32 = 24;
const AXIS: u32 = 36;
/// The part of the width, in percent, that values are drawn in: at its sides half of a tick's words
/// has to fit.
const PAPER: (f64, f64) = (8.0, 92.0);
/// The narrowest that a plot gets, on a telephone: words of the axis may not touch there either.
const NARROWEST: f64 = 210.0;
/// Ratios that span more than this are drawn on a logarithmic axis.
const LOG_FROM: f64 = 3.0;
const TICKS: usize = 7;

/// The form of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dot {
    /// A difference was shown.
    Disc,
    /// There is none.
    Square,
    /// It is open.
    Ring,
}

/// The axis that all rows of a plot share.
#[derive(Debug)]
pub struct Forest {
    scale: Scale,
    ticks: Vec<f64>,
}

impl Forest {
    /// An axis that holds every one of `bounds`, ratios above zero, and one.
    #[must_use]
    pub fn over(bounds: impl Iterator<Item = f64>) -> Self {
        let (low, high) = bounds.fold((0.95, 1.05), |(low, high), b| (b.min(low), b.max(high)));
        let margin = (high - low) * 0.05;
        let scale = if high / low > LOG_FROM {
            Scale::log((low / 1.06, high * 1.06), PAPER)
        } else {
            Scale::linear(((low - margin).max(0.0), high + margin), PAPER)
        };
        Self { ticks: ticks(&scale), scale }
    }

    /// Which way is which, and the numbers of the axis.
    #[must_use]
    pub fn axis(&self, less: &str, more: &str) -> Cell {
        let mut drawing = format!(
            "<text x=\"0\" y=\"13\" class=\"dim\">← {}</text>\
             <text x=\"100%\" y=\"13\" class=\"dim end\">{} →</text>",
            escape(less),
            escape(more)
        );
        for tick in &self.ticks {
            let x = self.scale.at(*tick);
            let words = tick_words(*tick);
            let _ =
                write!(drawing, "<text x=\"{x:.2}%\" y=\"31\" class=\"dim mid\">{words}</text>");
        }
        Cell::drawn(&drawing_of(AXIS, &drawing), None)
    }

    /// A row: the band within which ratios count as no difference, 0.02 for 1/1.02 to 1.02, and the
    /// ratio with the ends of its interval, where there is one.
    #[must_use]
    pub fn row(&self, band: f64, tone: Tone, estimate: Option<([f64; 3], Dot, &str)>) -> Cell {
        let band = band.max(0.0);
        let from = self.scale.at(1.0 / (1.0 + band));
        let to = self.scale.at(1.0 + band);
        let mut drawing = format!(
            "<rect x=\"{from:.2}%\" y=\"0\" width=\"{:.2}%\" height=\"{ROW}\" class=\"band\"/>",
            to - from
        );
        let mut line = |from: f64, to: f64, y: (u32, u32), class| {
            let (y1, y2) = y;
            let _ = write!(
                drawing,
                "<line x1=\"{from:.2}%\" y1=\"{y1}\" x2=\"{to:.2}%\" y2=\"{y2}\" class=\"{class}\"/>"
            );
        };
        for tick in &self.ticks {
            let x = self.scale.at(*tick);
            line(x, x, (0, ROW), if *tick == 1.0 { "unity" } else { "grid" });
        }
        if let Some(([ratio, low, high], dot, tip)) = estimate {
            line(self.scale.at(low), self.scale.at(high), (ROW / 2, ROW / 2), "interval");
            drawing.push_str(&mark(dot, self.scale.at(ratio), tip));
        }
        let class = tone.class().unwrap_or_default();
        let drawing = drawing_of(ROW, &format!("<g class=\"{class}\">{drawing}</g>"));
        Cell::drawn(&drawing, estimate.map(|([ratio, ..], ..)| ratio))
    }
}

/// What a row draws, as wide as its cell.
fn drawing_of(height: u32, drawing: &str) -> String {
    format!("<svg width=\"100%\" height=\"{height}\" aria-hidden=\"true\">{drawing}</svg>")
}

/// The mark at a place in percent.
fn mark(dot: Dot, x: f64, tip: &str) -> String {
    let tip = format!("<title>{}</title>", escape(tip));
    let y = ROW / 2;
    let disc = |class| {
        format!("<circle cx=\"{x:.2}%\" cy=\"{y}\" r=\"4.5\" class=\"{class}\">{tip}</circle>")
    };
    match dot {
        Dot::Disc => disc("mark"),
        Dot::Square => format!(
            "<rect x=\"{x:.2}%\" y=\"{y}\" width=\"8\" height=\"8\" transform=\"translate(-4 -4)\" \
             class=\"mark\">{tip}</rect>"
        ),
        Dot::Ring => disc("mark ring"),
    }
}

/// One, which everything is compared with, and round ratios as far as their words leave each other
/// room on the narrowest page.
fn ticks(scale: &Scale) -> Vec<f64> {
    let half = |tick: f64| 50.0 * (text_width(&tick_words(tick), LETTERS) + 6.0) / NARROWEST;
    let mut kept = vec![1.0];
    for tick in scale.ticks(TICKS) {
        let is_free =
            |other: &f64| (scale.at(*other) - scale.at(tick)).abs() >= half(*other) + half(tick);
        if kept.iter().all(is_free) {
            kept.push(tick);
        }
    }
    kept
}

fn tick_words(tick: f64) -> String {
    format!("{}×", number::tick(tick))
}
