//! The latency over percentiles in nines: how long the slowest tenth, hundredth, thousandth of
//! the answers took.

use super::{EDGES, TICKS, time_scale};
use crate::render::nines::{Point, curve, nines, told_ns};
use crate::{Distribution, Outcome};
use pollux_report::chart::{Line, Marks, Paper, Scale, Vertex, WIDTH};
use pollux_report::number;

const HEIGHT: f64 = 360.0;
/// Room for the name of a line.
const NAME_WIDTH: f64 = 90.0;
/// Where the lower axis has its lines.
const PARTS: [(f64, &str); 8] = [
    (0.0, "0 %"),
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.99999, "99.999 %"),
    (0.999_999, "99.9999 %"),
];

/// The curves of whole answers and of first bytes; `None` without answers.
pub(crate) fn percentiles(outcome: &Outcome) -> Option<String> {
    let whole = curve(&outcome.latency);
    // Answers that came in one piece have the same curve twice.
    let first =
        Some(curve(&outcome.first_byte)).filter(|first| *first != whole).unwrap_or_default();
    let max = outcome.latency.max_ns()?;
    let last = whole.last()?.nines().max(1.0);
    let about = format!(
        "Curve over {} answers, from {} at 0 % to {} for the slowest.",
        number::count(outcome.latency.count()),
        number::time(whole[0].ns as f64),
        number::time(max as f64)
    );
    let title = "Latency by percentile";
    let mut paper = Paper::new("percentiles", (title, &about), (WIDTH, HEIGHT), EDGES);
    let x = Scale::linear((0.0, last), paper.width());
    let times = whole.iter().chain(&first).map(|point| point.ns).chain([max]);
    let y = time_scale(times, paper.height());
    paper.svg.text((0.0, 14.0), "strong", title);
    paper.values(&y, &y.ticks(TICKS), number::time_tick);
    let parts = PARTS.iter().map(|(quantile, name)| (nines(*quantile), (*name).to_owned()));
    let parts: Vec<_> = parts.filter(|(nines, _)| *nines <= last).collect();
    let (bottom, top) = paper.height();
    parts
        .iter()
        .for_each(|(nines, _)| paper.svg.line((x.at(*nines), top), (x.at(*nines), bottom), "grid"));
    paper.below(&x, &parts);
    paper.caption("part of the answers that were not slower");
    let vertex = |point: &Point| Vertex {
        at: (x.at(point.nines()), y.at(point.ns as f64)),
        band: None,
        tip: String::new(),
    };
    let line = |(name, class, points): (&str, &str, Vec<Point>)| Line {
        name: name.to_owned(),
        class: class.to_owned(),
        series: None,
        marks: Marks::None,
        pieces: vec![points.iter().map(vertex).collect()],
    };
    let lines = [("first byte", "s1", first), ("latency", "s0", whole)].map(line);
    paper.lines(&lines, NAME_WIDTH);
    marks(&mut paper, &outcome.latency, &x, &y);
    Some(paper.finish())
}

/// The named quantiles with their figures.
fn marks(paper: &mut Paper, latency: &Distribution, x: &Scale, y: &Scale) {
    for (quantile, name) in &PARTS[1..] {
        let Some(ns) = told_ns(latency, *quantile) else { continue };
        let at = (x.at(nines(*quantile)), y.at(ns as f64));
        let shown = number::time(ns as f64);
        paper.svg.dot(at, 4.0, "mark s0", &format!("{name} of the answers within {shown}"));
        paper.svg.text((at.0 - 7.0, at.1 - 8.0), "small end halo", &shown);
    }
}
