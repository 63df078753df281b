//! The forest plot: for each point and arm the ratio to the baseline with its interval.
//!
//! The first thing that a reader judges by, so it is a table: verdict and figures are words that a
//! narrow page can break and a printer keeps, and each row draws its own stretch of the plot. Its
//! places are shares of the width, whatever that is. The band in which effects count as no
//! difference is shaded behind the marks.

use std::fmt::Write as _;

use super::{LETTERS, figure};
use crate::record::{Record, ResultRow, Verdict};
use crate::report::markup::{Cell, Table, escape};
use crate::report::view::{self, Comparison};
use crate::report::{number, words};
use pollux_report::{Scale, text_width};

/// Height of a row in pixels; rows touch, so that the lines of the axis run through them.
const ROW: u32 = 24;
const AXIS: u32 = 36;
/// The part of the width, in percent, that values are drawn in: at its sides half of a tick's words
/// has to have room.
const PAPER: (f64, f64) = (8.0, 92.0);
/// The narrowest that a plot gets, on a telephone: words of the axis may not touch there either.
const NARROWEST: f64 = 210.0;
/// Ratios that span more than this are drawn on a logarithmic axis.
const LOG_FROM: f64 = 3.0;
const TICKS: usize = 7;

/// The plot of one comparison with its table.
pub(crate) fn forest(record: &Record, comparison: &Comparison<'_>) -> String {
    let plot = Plot::new(comparison);
    let in_turns = comparison.rows.iter().any(|row| row.turns.is_some());
    let caption = if in_turns { CAPTION_OF_TURNS } else { CAPTION };
    let about = format!("<figcaption>{caption}</figcaption>");
    figure("forest", &plot.rows(record, comparison), &about, &table(comparison))
}

/// How to read the marks.
const CAPTION: &str = "Marks are geometric means over blocks of arm over baseline, lines their 95 % intervals; inside \
                       the shaded band a difference is too small to count or no larger than the noise.";

/// The same where arms took turns.
const CAPTION_OF_TURNS: &str = "Marks are means over sets of fresh processes of arm over baseline, lines their 95 % \
                                intervals; the shaded band is the minimum effect.";

/// The comparisons in full, one row each.
fn table(comparison: &Comparison<'_>) -> String {
    let value = format!("#{}", comparison.unit());
    let versus = format!("#vs {}", comparison.baseline());
    let headings = [
        "arm",
        value.as_str(),
        &versus,
        "#median",
        "#no difference",
        "verdict",
        "#blocks",
        "notes",
    ];
    let mut table = Table::new(&headings);
    for point in comparison.points() {
        table.group(point);
        for row in comparison.at(point) {
            table.row(&cells(row));
        }
    }
    table.finish()
}

fn cells(row: &ResultRow) -> [Cell; 8] {
    let number_or_dash = |value: Option<f64>, shown: String| match value {
        Some(value) => Cell::number(&shown, value),
        None => Cell::missing("–", ""),
    };
    let ratio = number_or_dash(row.ratio, words::ratio_and_interval(row));
    let ratio = if row.ratio.is_some() { ratio.title(&row.method) } else { ratio };
    [
        Cell::text(&row.arm),
        number_or_dash(row.value, words::value(row)),
        ratio,
        number_or_dash(row.ratio_median, row.ratio_median.map(number::ratio).unwrap_or_default()),
        Cell::number(&format!("± {}", number::percent(row.no_difference)), row.no_difference),
        Cell::text(&words::judgement(row)).class(words::verdict_class(row.verdict)),
        Cell::number(&row.blocks.to_string(), f64::from(row.blocks)),
        Cell::text(&words::row_notes(row)).class("wide"),
    ]
}

/// The axis that all rows of a comparison share.
struct Plot {
    scale: Scale,
    ticks: Vec<f64>,
}

impl Plot {
    fn new(comparison: &Comparison<'_>) -> Self {
        let scale = ratio_scale(&comparison.rows);
        let ticks = ticks(&scale);
        Self { scale, ticks }
    }

    fn rows(&self, record: &Record, comparison: &Comparison<'_>) -> String {
        let versus = format!("#vs {}", comparison.baseline());
        let unit = format!("#{}", comparison.unit());
        let mut table = Table::plot(&["arm", &unit, "ratio, 95 % interval", "verdict", &versus]);
        let blank = || Cell::text("");
        table.row(&[blank(), blank(), self.axis(comparison), blank(), blank()]);
        for point in comparison.points() {
            table.group(point);
            for row in comparison.at(point) {
                let plot = match (failure(record, row), view::is_drawn(row)) {
                    (Some(reason), false) => Cell::text(reason).class("plot dim"),
                    _ => Cell::drawn(&self.row(row), row.ratio),
                };
                table.row(&[
                    Cell::text(&row.arm),
                    Cell::number(&words::value(row), row.value.unwrap_or(f64::NAN))
                        .class("num dim"),
                    plot,
                    Cell::text(&words::judgement(row)).class(verdict_class(row)),
                    Cell::number(&words::ratio_and_interval(row), row.ratio.unwrap_or(f64::NAN)),
                ]);
            }
        }
        table.finish()
    }

    /// Which way is better, and the numbers of the axis.
    fn axis(&self, comparison: &Comparison<'_>) -> Cell {
        let (less, more) = match comparison.more_is_better() {
            true => ("← slower", "faster →"),
            false => ("← less", "more →"),
        };
        let mut drawing = format!(
            "<text x=\"0\" y=\"13\" class=\"dim\">{less}</text>\
             <text x=\"100%\" y=\"13\" class=\"dim end\">{more}</text>"
        );
        for tick in &self.ticks {
            let (x, words) = (self.scale.at(*tick), tick_words(*tick));
            let _ =
                write!(drawing, "<text x=\"{x:.2}%\" y=\"31\" class=\"dim mid\">{words}</text>");
        }
        Cell::drawn(&drawing_of(AXIS, &drawing), None)
    }

    fn row(&self, row: &ResultRow) -> String {
        let delta = row.no_difference.max(0.0);
        let (from, to) = (self.scale.at(1.0 / (1.0 + delta)), self.scale.at(1.0 + delta));
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
        if let Some((ratio, low, high)) = estimate(row) {
            line(self.scale.at(low), self.scale.at(high), (ROW / 2, ROW / 2), "interval");
            drawing.push_str(&mark(row, self.scale.at(ratio)));
        }
        drawing_of(
            ROW,
            &format!("<g class=\"{}\">{drawing}</g>", words::verdict_class(row.verdict)),
        )
    }
}

/// What a row draws, as wide as its cell. The words beside it say the same, so that it is hidden
/// from those who listen.
fn drawing_of(height: u32, drawing: &str) -> String {
    format!("<svg width=\"100%\" height=\"{height}\" aria-hidden=\"true\">{drawing}</svg>")
}

fn estimate(row: &ResultRow) -> Option<(f64, f64, f64)> {
    Some((row.ratio?, row.ci_low?, row.ci_high?)).filter(|_| view::is_drawn(row))
}

/// The mark at a place in percent: a disc where a difference was shown, a square where there is
/// none, a ring where it is open.
fn mark(row: &ResultRow, x: f64) -> String {
    let verdict = words::judgement(row);
    let tip = format!("{}, {}: {}, {verdict}", row.point, row.arm, words::ratio_and_interval(row));
    let tip = format!("<title>{}</title>", escape(&tip));
    let y = ROW / 2;
    let disc = |class| {
        format!("<circle cx=\"{x:.2}%\" cy=\"{y}\" r=\"4.5\" class=\"{class}\">{tip}</circle>")
    };
    match row.verdict {
        Verdict::Faster | Verdict::Slower => disc("mark"),
        Verdict::Equivalent | Verdict::NoiseFloor => format!(
            "<rect x=\"{x:.2}%\" y=\"{y}\" width=\"8\" height=\"8\" transform=\"translate(-4 -4)\" \
             class=\"mark\">{tip}</rect>"
        ),
        _ => disc("mark ring"),
    }
}

fn verdict_class(row: &ResultRow) -> &'static str {
    match words::verdict_class(row.verdict) {
        "good" => "verdict good",
        "bad" => "verdict bad",
        "open" => "verdict open",
        _ => "verdict same",
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

fn failure<'a>(record: &'a Record, row: &ResultRow) -> Option<&'a str> {
    let is_failed = row.verdict == Verdict::Failed;
    is_failed.then(|| view::failure_reason(record, &row.experiment, &row.point, &row.arm))?
}

/// An axis that holds every interval, one and the band.
fn ratio_scale(rows: &[&ResultRow]) -> Scale {
    let drawn = rows.iter().filter(|row| view::is_drawn(row));
    let bounds = drawn.flat_map(|row| [row.ci_low, row.ci_high]).flatten();
    let bands =
        rows.iter().flat_map(|row| [1.0 / (1.0 + row.no_difference), 1.0 + row.no_difference]);
    let (low, high) =
        bounds.chain(bands).fold((0.95, 1.05), |(low, high), b| (b.min(low), b.max(high)));
    if high / low > LOG_FROM {
        return Scale::log((low / 1.06, high * 1.06), PAPER);
    }
    let margin = (high - low) * 0.05;
    Scale::linear(((low - margin).max(0.0), high + margin), PAPER)
}
