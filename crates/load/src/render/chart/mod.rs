//! The charts of the page: each a function from an outcome to a figure.
//!
//! The page calls them. Sizes are in CSS pixels at full width; the style sheet lets a chart
//! scroll in its box rather than shrink its letters when the window is narrow.

mod course;
mod percentiles;

pub(super) use course::{errors, latency, rate};
pub(super) use percentiles::percentiles;

use pollux_report::{At, Scale, Svg};

/// Width of a chart.
const WIDTH: f64 = 1040.0;
/// Left of the paper stand the values of the axis, right of it the names of the lines.
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 112.0;
const TOP: f64 = 36.0;
/// Under the paper stands the lower axis.
const FOOT: f64 = 44.0;
/// Lines of labels are this far apart.
const PITCH: f64 = 15.0;

/// Grid lines with their values.
fn value_axis(svg: &mut Svg, y: &Scale, show: fn(f64) -> String) {
    for tick in y.ticks(6) {
        svg.line((LEFT, y.at(tick)), (RIGHT, y.at(tick)), "grid");
        svg.text((LEFT - 8.0, y.at(tick) + 4.0), "dim end", &show(tick));
    }
}

/// Names beside the ends of lines, none on another.
fn end_labels(svg: &mut Svg, ends: &[(&str, At)], classes: &[&str], lowest: f64) {
    let wanted: Vec<_> = ends.iter().map(|(_, (_, y))| *y).collect();
    let places = spread(&wanted, PITCH, lowest);
    for (((name, (x, y)), place), class) in ends.iter().zip(places).zip(classes) {
        svg.line((x + 4.0, *y), (RIGHT + 8.0, place), &format!("lead {class}"));
        svg.text((RIGHT + 12.0, place + 4.0), &format!("name {class}"), name);
    }
}

/// A logarithmic axis for times, with some room at both ends.
fn time_scale(times: impl Iterator<Item = u64>, paper: (f64, f64)) -> Scale {
    let (low, high) = times.fold((u64::MAX, 1), |(low, high), ns| (low.min(ns), high.max(ns)));
    let low = (low.min(high) as f64).max(1.0);
    Scale::log((low / 1.2, high as f64 * 1.2), paper)
}

/// Heights for labels that would like to stand at `wanted`, at least `pitch` apart and at most
/// at `lowest`; the answer has the order of the input.
fn spread(wanted: &[f64], pitch: f64, lowest: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut placed = wanted.to_vec();
    for pair in order.windows(2) {
        placed[pair[1]] = placed[pair[1]].max(placed[pair[0]] + pitch);
    }
    // What was pushed off the paper comes back and pushes the others up.
    let mut floor = lowest;
    for index in order.into_iter().rev() {
        placed[index] = placed[index].min(floor);
        floor = placed[index] - pitch;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_apart_and_on_the_paper() {
        assert_eq!(spread(&[80.0, 10.0, 40.0], 15.0, 100.0), [80.0, 10.0, 40.0]);
        assert_eq!(spread(&[50.0, 50.0, 52.0], 15.0, 100.0), [50.0, 65.0, 80.0]);
        assert_eq!(spread(&[95.0, 99.0], 15.0, 100.0), [85.0, 100.0]);
    }
}
