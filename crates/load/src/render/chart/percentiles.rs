//! The latency over percentiles in nines: how long the slowest tenth, hundredth, thousandth of
//! the answers took.

use super::{LEFT, RIGHT, TOP, WIDTH, end_labels, time_scale, value_axis};
use crate::render::nines::{Point, curve, nines, told_ns};
use crate::{Distribution, Outcome};
use pollux_report::number;
use pollux_report::{At, Scale, Svg, polyline};

const HEIGHT: f64 = 360.0;
const BOTTOM: f64 = HEIGHT - super::FOOT;
/// Where the lower axis has its lines.
const TICKS: [(f64, &str); 8] = [
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
    let x = Scale::linear((0.0, last), (LEFT, RIGHT));
    let times = whole.iter().chain(&first).map(|point| point.ns).chain([max]);
    let y = time_scale(times, (BOTTOM, TOP));
    let about = format!(
        "Curve over {} answers, from {} at 0 % to {} for the slowest.",
        number::count(outcome.latency.count()),
        number::time(whole[0].ns as f64),
        number::time(max as f64)
    );
    let mut svg = Svg::new("percentiles", (WIDTH, HEIGHT), "Latency by percentile", &about);
    svg.text((0.0, 14.0), "strong", "Latency by percentile");
    axes(&mut svg, &x, &y, last);
    let place = |point: &Point| (x.at(point.nines()), y.at(point.ns as f64));
    let lines = [("first byte", "s1", first), ("latency", "s0", whole)];
    let mut ends = Vec::new();
    let mut classes = Vec::new();
    for (name, class, points) in lines.iter().filter(|(.., points)| !points.is_empty()) {
        let places: Vec<At> = points.iter().map(place).collect();
        svg.path(&polyline(&places), &format!("line {class}"));
        ends.push((*name, places[places.len() - 1]));
        classes.push(*class);
    }
    marks(&mut svg, &outcome.latency, &x, &y);
    end_labels(&mut svg, &ends, &classes, BOTTOM);
    Some(svg.finish())
}

fn axes(svg: &mut Svg, x: &Scale, y: &Scale, last: f64) {
    value_axis(svg, y, number::time_tick);
    for (quantile, name) in TICKS.iter().filter(|(quantile, _)| nines(*quantile) <= last) {
        let at = x.at(nines(*quantile));
        svg.line((at, TOP), (at, BOTTOM), "grid");
        svg.text((at, BOTTOM + 18.0), "dim mid", name);
    }
    let middle = (LEFT + RIGHT) / 2.0;
    svg.text((middle, HEIGHT - 6.0), "dim mid", "part of the answers that were not slower");
}

/// The named quantiles with their figures.
fn marks(svg: &mut Svg, latency: &Distribution, x: &Scale, y: &Scale) {
    for (quantile, name) in TICKS[1..].iter() {
        let Some(ns) = told_ns(latency, *quantile) else { continue };
        let at = (x.at(nines(*quantile)), y.at(ns as f64));
        let shown = number::time(ns as f64);
        svg.dot(at, 4.0, "mark s0", &format!("{name} of the answers within {shown}"));
        svg.text((at.0 - 7.0, at.1 - 8.0), "small end halo", &shown);
    }
}
