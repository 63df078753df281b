//! Curves: the value of each arm over a numeric axis, with its interval as a band.
//!
//! One panel for each setting of the other axes, all on the same vertical axis so that they can be
//! compared by eye. Each line is named at its end; a point that was not measured is a gap, and the
//! reason stands under the chart.

use super::{LETTERS, WIDTH, figure};
use crate::record::{Record, ResultRow};
use crate::report::markup::{Cell, Table, notes, scroll};
use crate::report::view::{self, Arms, Comparison, Panel};
use crate::report::{number, words};
use pollux_report::{At, Marker, Scale, Svg, fit, heavy_width, polyline, spread, text_width};

/// Two panels beside each other are each this wide.
const HALF_WIDTH: f64 = 510.0;
const HEIGHT_MIN: f64 = 330.0;
const TOP: f64 = 34.0;
const LEFT: f64 = 52.0;
const FOOT: f64 = 48.0;
/// Lines of labels are this far apart.
const PITCH: f64 = 15.0;
/// From the end of the longest line to its label.
const LEAD: f64 = 22.0;
const LABEL_WIDTH_MAX: f64 = 150.0;
/// An axis whose ends are further apart than this ratio is logarithmic.
const LOG_FROM: f64 = 20.0;
const TICKS: usize = 6;

/// The curves of one comparison.
pub(crate) fn curves(
    record: &Record,
    comparison: &Comparison<'_>,
    arms: &Arms<'_>,
    key: &str,
) -> String {
    let panels = comparison.panels();
    let span = value_span(&panels);
    let mut page = String::new();
    for (index, panel) in panels.iter().enumerate() {
        let width = if panels.len() == 1 { WIDTH } else { HALF_WIDTH };
        let chart = Chart::new(panel, width, span);
        let svg = chart.draw(comparison, arms, &format!("{key}-{index}"));
        let under = notes(&gaps(record, comparison, panel));
        page.push_str(&figure(
            "curve",
            &scroll("chart", &svg),
            &under,
            &table(record, comparison, panel),
        ));
    }
    let columns = if panels.len() == 1 { "panels one" } else { "panels" };
    format!("<div class=\"{columns}\">{page}</div>")
}

/// One line for each arm and reason: where it was not measured, and why.
fn gaps(record: &Record, comparison: &Comparison<'_>, panel: &Panel<'_>) -> Vec<String> {
    let mut found: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for arm in panel.arms() {
        for (value, _) in &panel.values {
            if panel.row(arm, value).is_some_and(|row| row.value.is_some()) {
                continue;
            }
            let point = panel.point(value).unwrap_or_default();
            let reason = view::gap_reason(record, comparison.experiment, point, arm)
                .unwrap_or("no reason was recorded");
            let shown = number::axis_value(value);
            match found.iter_mut().find(|(a, r, _)| (*a, *r) == (arm, reason)) {
                Some((_, _, values)) => values.push(shown),
                None => found.push((arm, reason, vec![shown])),
            }
        }
    }
    let line = |(arm, reason, values): (&str, &str, Vec<String>)| {
        format!("{arm}: not measured at {}: {reason}", values.join(" · "))
    };
    found.into_iter().map(line).collect()
}

fn table(record: &Record, comparison: &Comparison<'_>, panel: &Panel<'_>) -> String {
    let value = format!("#{}", comparison.unit());
    let axis = format!("#{}", panel.axis);
    let mut table = Table::new(&["arm", &axis, &value, "#ratio", "verdict"]);
    for arm in panel.arms() {
        for (written, number) in &panel.values {
            let cells = match panel.row(arm, written) {
                Some(row) => row_cells(row),
                None => {
                    let point = panel.point(written).unwrap_or_default();
                    let reason = view::gap_reason(record, comparison.experiment, point, arm)
                        .unwrap_or_default();
                    [
                        Cell::missing("–", reason),
                        Cell::missing("–", reason),
                        Cell::text("not measured"),
                    ]
                }
            };
            let [value, ratio, verdict] = cells;
            table.row(&[
                Cell::text(arm),
                Cell::number(&number::axis_value(written), *number),
                value,
                ratio,
                verdict,
            ]);
        }
    }
    table.finish()
}

fn row_cells(row: &ResultRow) -> [Cell; 3] {
    let verdict = Cell::text(&words::judgement(row)).class(words::verdict_class(row.verdict));
    let ratio = Cell::number(&words::ratio_and_interval(row), row.ratio.unwrap_or(1.0));
    match row.value {
        Some(value) => [Cell::number(&words::value(row), value), ratio, verdict],
        None => [Cell::missing("–", ""), ratio, verdict],
    }
}

/// Lowest and highest end of all value intervals.
fn value_span(panels: &[Panel<'_>]) -> (f64, f64) {
    let rows = panels.iter().flat_map(|panel| &panel.rows);
    let ends = rows.filter_map(|row| value_interval(row)).flat_map(|(_, low, high)| [low, high]);
    let span =
        ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), end| (end.min(l), end.max(h)));
    if span.0.is_finite() { span } else { (0.0, 1.0) }
}

/// The value with the ends of its interval.
fn value_interval(row: &ResultRow) -> Option<(f64, f64, f64)> {
    let value = row.value.filter(|value| value.is_finite())?;
    let half = row.value_half_width.filter(|half| half.is_finite()).unwrap_or(0.0) * value;
    // An interval wider than its value would reach below nothing.
    Some((value, (value - half).max(value * 0.01), value + half))
}

/// The line of one arm, cut where there are gaps.
struct Line<'a> {
    arm: &'a str,
    pieces: Vec<Vec<Vertex<'a>>>,
}

struct Vertex<'a> {
    at: At,
    low: f64,
    high: f64,
    row: &'a ResultRow,
}

struct Chart<'a> {
    panel: &'a Panel<'a>,
    size: At,
    right: f64,
    bottom: f64,
    x: Scale,
    y: Scale,
}

impl<'a> Chart<'a> {
    fn new(panel: &'a Panel<'a>, width: f64, span: (f64, f64)) -> Self {
        let arms = panel.arms();
        let widest = arms.iter().map(|arm| heavy_width(arm, LETTERS)).fold(0.0, f64::max);
        let right = width - widest.min(LABEL_WIDTH_MAX) - LEAD;
        let height = HEIGHT_MIN.max(TOP + FOOT + arms.len() as f64 * PITCH);
        let bottom = height - FOOT;
        let numbers = panel.values.iter().map(|(_, number)| *number);
        let (first, last) =
            numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), n| (n.min(l), n.max(h)));
        let x = axis_scale((first, last), (LEFT, right));
        let (low, high) = span;
        let y = match low > 0.0 && high / low > LOG_FROM {
            true => Scale::log((low / 1.15, high * 1.15), (bottom, TOP)),
            false => Scale::linear((0.0, high * 1.05), (bottom, TOP)),
        };
        Self { panel, size: (width, height), right, bottom, x, y }
    }

    fn draw(&self, comparison: &Comparison<'_>, arms: &Arms<'_>, key: &str) -> String {
        let held = words::held(self.panel.held.iter().copied());
        let title = format!("{} over {} {held}", comparison.metric, self.panel.axis);
        let about = format!(
            "Line chart: {} arms at {} values of {}.",
            self.panel.arms().len(),
            self.panel.values.len(),
            self.panel.axis
        );
        let mut svg = Svg::new(key, self.size, title.trim_end(), &about);
        svg.text((0.0, 14.0), "strong", &fit(&held, LETTERS, self.size.0 - 160.0));
        self.axes(&mut svg, comparison);
        let lines: Vec<_> = self.panel.arms().into_iter().map(|arm| self.line(arm)).collect();
        let ends = lines.iter().filter_map(|line| Some((line, line.pieces.last()?.last()?.at)));
        let ends: Vec<_> = ends.collect();
        let wanted: Vec<_> = ends.iter().map(|(_, at)| at.1).collect();
        let places = spread(&wanted, PITCH, (TOP + 2.0, self.bottom));
        for ((line, end), label_y) in ends.iter().zip(places) {
            svg.open(&format!("series {}", arms.class(line.arm)), Some(arms.index(line.arm)));
            self.band_and_line(&mut svg, line);
            self.marks(&mut svg, line, Marker::of(arms.index(line.arm)));
            let stop = (self.right + LEAD - 5.0, label_y);
            svg.path(
                &polyline(&[
                    (end.0 + 6.0, end.1),
                    (self.right + 8.0, end.1 + (label_y - end.1) * 0.5),
                    stop,
                ]),
                "lead",
            );
            let name = fit(line.arm, LETTERS, LABEL_WIDTH_MAX);
            svg.text((self.right + LEAD, label_y + 4.0), "end-label", &name);
            svg.close();
        }
        svg.finish()
    }

    fn line(&self, arm: &'a str) -> Line<'a> {
        let mut pieces = vec![Vec::new()];
        for (written, number) in &self.panel.values {
            let found =
                self.panel.row(arm, written).and_then(|row| Some((row, value_interval(row)?)));
            match (found, pieces.last_mut()) {
                (Some((row, (value, low, high))), Some(piece)) => piece.push(Vertex {
                    at: (self.x.at(*number), self.y.at(value)),
                    low: self.y.at(low),
                    high: self.y.at(high),
                    row,
                }),
                _ => pieces.push(Vec::new()),
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        Line { arm, pieces }
    }

    fn axes(&self, svg: &mut Svg, comparison: &Comparison<'_>) {
        svg.text((self.right, 14.0), "dim end", comparison.unit());
        for tick in self.y.ticks(TICKS) {
            let y = self.y.at(tick);
            svg.line((LEFT, y), (self.right, y), "grid");
            svg.text((LEFT - 8.0, y + 4.0), "dim end", &number::tick(tick));
        }
        let mut free_from = f64::NEG_INFINITY;
        let last = self.panel.values.last().map_or(0.0, |(_, number)| self.x.at(*number));
        for (index, (written, number)) in self.panel.values.iter().enumerate() {
            let x = self.x.at(*number);
            let shown = number::axis_value(written);
            let half = text_width(&shown, LETTERS) / 2.0 + 3.0;
            let is_last = index + 1 == self.panel.values.len();
            svg.line((x, self.bottom), (x, self.bottom + 4.0), "tick");
            // The last value is always named; others where they leave it room.
            if is_last || (x - half >= free_from && x + half <= last - half) {
                svg.text((x, self.bottom + 18.0), "dim mid", &shown);
                free_from = x + half;
            }
        }
        let middle = (LEFT + self.right) / 2.0;
        svg.text(
            (middle, self.bottom + 38.0),
            "dim mid",
            &fit(self.panel.axis, LETTERS, self.right - LEFT),
        );
    }

    fn band_and_line(&self, svg: &mut Svg, line: &Line<'_>) {
        for piece in &line.pieces {
            let upper = piece.iter().map(|vertex| (vertex.at.0, vertex.high));
            let lower = piece.iter().rev().map(|vertex| (vertex.at.0, vertex.low));
            let outline: Vec<_> = upper.chain(lower).collect();
            svg.path(&(polyline(&outline) + "Z"), "area");
            let points: Vec<_> = piece.iter().map(|vertex| vertex.at).collect();
            svg.path(&polyline(&points), "line");
        }
    }

    fn marks(&self, svg: &mut Svg, line: &Line<'_>, marker: Marker) {
        for vertex in line.pieces.iter().flatten() {
            let row = vertex.row;
            let verdict = words::judgement(row);
            let tip = format!(
                "{}, {}: {} {}; {} {verdict}",
                row.point,
                row.arm,
                words::value(row),
                row.unit,
                words::ratio_and_interval(row)
            );
            svg.mark(marker, vertex.at, 3.5, &tip);
        }
    }
}

fn axis_scale(domain: (f64, f64), paper: (f64, f64)) -> Scale {
    match domain.0 > 0.0 && domain.1 / domain.0 > LOG_FROM {
        true => Scale::log(domain, paper),
        false => Scale::linear(domain, paper),
    }
}
