//! The forest plot: for each point and arm the ratio to the baseline with its interval.
//!
//! The first thing that a reader judges by, so verdict and figures stand in words beside each
//! mark; the band in which effects count as no difference is shaded behind them.

use super::{LETTERS, WIDTH, figure};
use crate::record::{Record, ResultRow, Verdict};
use crate::report::markup::{Cell, Table, escape};
use crate::report::view::{self, Comparison};
use crate::report::{number, words};
use pollux_draw::{Marker, Scale, Svg, fit, text_width};

const TOP: f64 = 30.0;
const ROW: f64 = 24.0;
const GROUP: f64 = 30.0;
const FOOT: f64 = 34.0;
/// Names longer than this are cut; the table has them whole.
const ARM_WIDTH_MAX: f64 = 190.0;
/// Between the words of a point and the chart.
const POINT_MARGIN: f64 = 30.0;
const VALUE_WIDTH: f64 = 132.0;
const VERDICT_WIDTH: f64 = 92.0;
const RATIO_WIDTH: f64 = 128.0;
const GAP: f64 = 18.0;
/// Ratios that span more than this are drawn on a logarithmic axis.
const LOG_FROM: f64 = 3.0;
const TICKS: usize = 7;

/// The plot of one comparison with its table.
pub(crate) fn forest(record: &Record, comparison: &Comparison<'_>, key: &str) -> String {
    let plot = Plot::new(comparison);
    let svg = plot.draw(record, comparison, key);
    let about = format!("<figcaption>{}</figcaption>", escape(&caption(comparison)));
    figure("forest", &svg, &about, &table(comparison))
}

/// How to read the marks, and how the intervals were computed.
fn caption(comparison: &Comparison<'_>) -> String {
    let compared = comparison.rows.iter().filter(|row| row.ratio.is_some());
    let methods = view::in_order(compared.map(|row| row.method.as_str())).join("; ");
    format!(
        "Marks are geometric means over blocks of arm over baseline, lines their 95 % intervals ({methods}); \
         inside the shaded band a difference is too small to count or no larger than the noise."
    )
}

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
        Cell::text(words::verdict(row.verdict, row.more_is_better))
            .class(words::verdict_class(row.verdict)),
        Cell::number(&row.blocks.to_string(), f64::from(row.blocks)),
        Cell::text(&words::row_notes(row)).class("wide"),
    ]
}

struct Plot {
    scale: Scale,
    left: f64,
    right: f64,
    height: f64,
    arm_width: f64,
}

impl Plot {
    fn new(comparison: &Comparison<'_>) -> Self {
        let widest =
            comparison.rows.iter().map(|row| text_width(&row.arm, LETTERS)).fold(0.0, f64::max);
        // Points are read by their last words, so they get the room as well.
        let beside = 12.0 + GAP + VALUE_WIDTH + GAP;
        let points = comparison.points().into_iter();
        let point = points.map(|point| text_width(point, LETTERS)).fold(0.0, f64::max);
        let arm_width = widest.max(point + POINT_MARGIN - beside).min(ARM_WIDTH_MAX);
        let left = beside + arm_width;
        let right = WIDTH - VERDICT_WIDTH - RATIO_WIDTH - GAP;
        let groups = comparison.points().len() as f64;
        let height = TOP + groups * GROUP + comparison.rows.len() as f64 * ROW + FOOT;
        Self { scale: ratio_scale(&comparison.rows, (left, right)), left, right, height, arm_width }
    }

    fn draw(&self, record: &Record, comparison: &Comparison<'_>, key: &str) -> String {
        let points = comparison.points();
        let title = comparison.heading();
        let about = format!(
            "Forest plot: {} ratios with 95 % intervals at {} points.",
            comparison.rows.len(),
            points.len()
        );
        let mut svg = Svg::new(key, (WIDTH, self.height), &title, &about);
        self.axis(&mut svg, comparison);
        let mut y = TOP;
        for point in points {
            svg.text(
                (0.0, y + GROUP - 9.0),
                "strong",
                &fit(point, LETTERS, self.left - POINT_MARGIN),
            );
            y += GROUP;
            for row in comparison.at(point) {
                self.band(&mut svg, row, y);
                self.row(&mut svg, row, y + ROW / 2.0, failure(record, row));
                y += ROW;
            }
        }
        let one = self.scale.at(1.0);
        svg.line((one, TOP - 6.0), (one, self.height - FOOT), "unity");
        svg.finish()
    }

    fn axis(&self, svg: &mut Svg, comparison: &Comparison<'_>) {
        let bottom = self.height - FOOT;
        for tick in self.scale.ticks(TICKS) {
            let x = self.scale.at(tick);
            svg.line((x, TOP), (x, bottom), "grid");
            svg.text((x, bottom + 18.0), "dim mid", &format!("{}×", number::tick(tick)));
        }
        let (less, more) = match comparison.more_is_better() {
            true => ("← slower", "faster →"),
            false => ("← less", "more →"),
        };
        let middle = fit(&format!("{} = 1", comparison.baseline()), LETTERS, 140.0);
        let half = text_width(&middle, LETTERS) / 2.0;
        let one = self.scale.at(1.0);
        let words_y = TOP - 14.0;
        svg.text((one, words_y), "dim mid", &middle);
        if self.left + text_width(less, LETTERS) + 8.0 < one - half {
            svg.text((self.left, words_y), "dim", less);
        }
        // The line above the verdicts is free, so the word may stand out of the plot.
        let more_from = (self.right - text_width(more, LETTERS)).max(one + half + 12.0);
        svg.text((more_from, words_y), "dim", more);
        svg.text(
            (12.0 + self.arm_width + GAP + VALUE_WIDTH, words_y),
            "dim end",
            &fit(comparison.unit(), LETTERS, VALUE_WIDTH),
        );
    }

    fn band(&self, svg: &mut Svg, row: &ResultRow, y: f64) {
        let delta = row.no_difference.max(0.0);
        let (from, to) = (self.scale.at(1.0 / (1.0 + delta)), self.scale.at(1.0 + delta));
        svg.rect((from, y), (to - from, ROW), "band", "");
    }

    fn row(&self, svg: &mut Svg, row: &ResultRow, y: f64, failure: Option<&str>) {
        let base = y + 4.0;
        svg.open(words::verdict_class(row.verdict), None);
        svg.text((12.0, base), "", &fit(&row.arm, LETTERS, self.arm_width));
        svg.text(
            (12.0 + self.arm_width + GAP + VALUE_WIDTH, base),
            "dim end fig",
            &words::value(row),
        );
        match (failure, view::is_drawn(row)) {
            (Some(reason), false) => {
                let room = self.right - self.left - 16.0;
                svg.text((self.left + 8.0, base), "dim", &fit(reason, LETTERS, room));
            }
            (_, true) => self.mark(svg, row, y),
            _ => {}
        }
        let verdict = words::verdict(row.verdict, row.more_is_better);
        svg.text((self.right + GAP, base), "verdict", verdict);
        svg.text((WIDTH, base), "dim end fig", &words::ratio_and_interval(row));
        svg.close();
    }

    fn mark(&self, svg: &mut Svg, row: &ResultRow, y: f64) {
        let (Some(ratio), Some(low), Some(high)) = (row.ratio, row.ci_low, row.ci_high) else {
            return;
        };
        svg.line((self.scale.at(low), y), (self.scale.at(high), y), "interval");
        let marker = match row.verdict {
            Verdict::Faster | Verdict::Slower => Marker::Disc,
            Verdict::Equivalent | Verdict::NoiseFloor => Marker::Square,
            _ => Marker::Ring,
        };
        let verdict = words::verdict(row.verdict, row.more_is_better);
        let tip =
            format!("{}, {}: {}, {verdict}", row.point, row.arm, words::ratio_and_interval(row));
        svg.mark(marker, (self.scale.at(ratio), y), 4.5, &tip);
    }
}

fn failure<'a>(record: &'a Record, row: &ResultRow) -> Option<&'a str> {
    let is_failed = row.verdict == Verdict::Failed;
    is_failed.then(|| view::failure_reason(record, &row.experiment, &row.point, &row.arm))?
}

/// An axis that holds every interval, one and the band.
fn ratio_scale(rows: &[&ResultRow], paper: (f64, f64)) -> Scale {
    let drawn = rows.iter().filter(|row| view::is_drawn(row));
    let bounds = drawn.flat_map(|row| [row.ci_low, row.ci_high]).flatten();
    let bands =
        rows.iter().flat_map(|row| [1.0 / (1.0 + row.no_difference), 1.0 + row.no_difference]);
    let (low, high) =
        bounds.chain(bands).fold((0.95, 1.05), |(low, high), b| (b.min(low), b.max(high)));
    if high / low > LOG_FROM {
        return Scale::log((low / 1.06, high * 1.06), paper);
    }
    let margin = (high - low) * 0.05;
    Scale::linear(((low - margin).max(0.0), high + margin), paper)
}
