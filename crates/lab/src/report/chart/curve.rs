//! Curves: the value of each arm over a numeric axis, with its interval as a band.
//!
//! One panel for each setting of the other axes, all on the same vertical axis so that they can be
//! compared by eye. Each line is named at its end; a point that was not measured is a gap, and the
//! reason stands under the chart.

use pollux_report::chart::{Edges, HALF_WIDTH, LETTERS, Paper, Scale, Vertex, WIDTH, figure, fit};
use pollux_report::markup::{notes, scroll};
use pollux_report::{Cell, Table};

use crate::record::{Record, ResultRow};
use crate::report::view::{self, Arms, Comparison, Panel, grouped};
use crate::report::{number, words};

const HEIGHT_MIN: f64 = 330.0;
const TOP: f64 = 34.0;
const LEFT: f64 = 52.0;
const FOOT: f64 = 48.0;
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
    let (columns, width) =
        if panels.len() == 1 { ("panels one", WIDTH) } else { ("panels", HALF_WIDTH) };
    let draw = |(index, panel): (usize, &Panel<'_>)| {
        let svg = draw(panel, comparison, arms, (width, span), &format!("{key}-{index}"));
        let under = notes(&gaps(record, comparison, panel));
        figure("curve", &scroll("chart", &svg), &under, &table(record, comparison, panel))
    };
    let page: String = panels.iter().enumerate().map(draw).collect();
    format!("<div class=\"{columns}\">{page}</div>")
}

/// One line for each arm and reason: where it was not measured, and why.
fn gaps(record: &Record, comparison: &Comparison<'_>, panel: &Panel<'_>) -> Vec<String> {
    let arms = panel.arms();
    let places =
        arms.iter().flat_map(|arm| panel.values.iter().map(move |(value, _)| (*arm, *value)));
    let missing =
        places.filter(|(arm, value)| panel.row(arm, value).is_none_or(|row| row.value.is_none()));
    let reasons = missing.map(|(arm, value)| {
        let reason = view::panel_gap(record, comparison, panel, arm, value);
        ((arm, reason.unwrap_or("no reason was recorded")), number::axis_value(value))
    });
    let line = |((arm, reason), values): ((&str, &str), Vec<String>)| {
        format!("{arm}: not measured at {}: {reason}", values.join(" · "))
    };
    grouped(reasons).into_iter().map(line).collect()
}

fn table(record: &Record, comparison: &Comparison<'_>, panel: &Panel<'_>) -> String {
    let value = format!("#{}", comparison.unit());
    let axis = format!("#{}", panel.axis);
    let mut table = Table::new(["arm", &axis, &value, "#ratio", "verdict"]);
    for arm in panel.arms() {
        for (written, number) in &panel.values {
            let [value, ratio, verdict] = match panel.row(arm, written) {
                Some(row) => words::cells(row),
                None => {
                    let reason = view::panel_gap(record, comparison, panel, arm, written);
                    let missing = || Cell::missing("–", reason.unwrap_or_default());
                    [missing(), missing(), Cell::text("not measured")]
                }
            };
            let at = Cell::number(&number::axis_value(written), *number);
            table.row([Cell::text(arm), at, value, ratio, verdict]);
        }
    }
    table.html()
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

/// A panel as wide as asked for, whose values span what all panels do.
fn draw(
    panel: &Panel<'_>,
    comparison: &Comparison<'_>,
    arms: &Arms<'_>,
    (width, (low, high)): (f64, (f64, f64)),
    key: &str,
) -> String {
    let names = panel.arms();
    let held = words::held(panel.held.iter().copied());
    let title = format!("{} over {} {held}", comparison.metric, panel.axis);
    let (lines, values) = (names.len(), panel.values.len());
    let about = format!("Line chart: {lines} arms at {values} values of {}.", panel.axis);
    let right = Paper::room_for(names.iter().copied(), LABEL_WIDTH_MAX);
    let height = HEIGHT_MIN.max(TOP + FOOT + Paper::height_for(lines));
    let edges = Edges { left: LEFT, right, top: TOP, foot: FOOT };
    let mut paper = Paper::new(key, (title.trim_end(), &about), (width, height), edges);
    let first = panel.values.first().map_or(0.0, |(_, number)| *number);
    let last = panel.values.last().map_or(0.0, |(_, number)| *number);
    let x = match first > 0.0 && last / first > LOG_FROM {
        true => Scale::log((first, last), paper.width()),
        false => Scale::linear((first, last), paper.width()),
    };
    let y = match low > 0.0 && high / low > LOG_FROM {
        true => Scale::log((low / 1.15, high * 1.15), paper.height()),
        false => Scale::linear((0.0, high * 1.05), paper.height()),
    };
    paper.svg.text((0.0, 14.0), "strong", &fit(&held, LETTERS, width - 160.0));
    paper.svg.text((paper.width().1, 14.0), "dim end", comparison.unit());
    paper.values(&y, &y.ticks(TICKS), number::tick);
    let ticks = panel.values.iter().map(|(written, number)| (*number, number::axis_value(written)));
    paper.below(&x, &ticks.collect::<Vec<_>>());
    paper.caption(panel.axis);
    let vertex = |arm: &str, (written, number): &(&str, f64)| {
        let row = panel.row(arm, written)?;
        let (value, low, high) = value_interval(row)?;
        let (shown, ratio) = (words::value(row), words::ratio_and_interval(row));
        let (ResultRow { point, unit, .. }, verdict) = (row, words::judgement(row));
        Some(Vertex {
            at: (x.at(*number), y.at(value)),
            band: Some((y.at(low), y.at(high))),
            tip: format!("{point}, {arm}: {shown} {unit}; {ratio} {verdict}"),
        })
    };
    let line = |arm: &str| {
        let vertices: Vec<_> = panel.values.iter().map(|value| vertex(arm, value)).collect();
        let pieces = vertices.split(Option::is_none).filter(|piece| !piece.is_empty());
        arms.line(arm, pieces.map(|piece| piece.iter().flatten().cloned().collect()).collect())
    };
    paper.lines(&names.into_iter().map(line).collect::<Vec<_>>(), LABEL_WIDTH_MAX);
    paper.finish()
}
