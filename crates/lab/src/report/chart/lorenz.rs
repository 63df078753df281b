//! Lorenz curves: which part of the calls the least busy workers had together, arm over arm.
//!
//! The section on workers calls it with the mean of an arm's runs, rank by rank.

use super::{LETTERS, figure};
use crate::report::markup::{Cell, Table, scroll};
use crate::report::number;
use crate::report::view::Arms;
use crate::stats;
use pollux_report::{At, Marker, Scale, Svg, polyline, text_width};

const WIDTH: f64 = 510.0;
const HEIGHT: f64 = 400.0;
const TOP: f64 = 60.0;
const LEFT: f64 = 52.0;
/// Room for half of the last tick's label.
const RIGHT: f64 = WIDTH - 24.0;
const BOTTOM: f64 = HEIGHT - 46.0;
/// Lines of the legend.
const LEGEND_LINES: [f64; 2] = [14.0, 30.0];
/// Parts of the workers at which a curve has a mark, and the table a column.
const MARKED: [f64; 5] = [0.25, 0.5, 0.75, 0.9, 0.99];

/// How the calls of one arm were shared.
pub(crate) struct Shared {
    /// The arm.
    pub(crate) arm: String,
    /// The share of each worker, from the least busy one.
    pub(crate) shares: Vec<f64>,
}

/// The mean of several runs, worker by worker in the order of their shares. Runs with another number
/// of workers than the first are left out; there are none at one point.
pub(crate) fn mean_shares<'a>(runs: impl Iterator<Item = &'a [u64]>) -> Vec<f64> {
    let mut sums: Vec<f64> = Vec::new();
    for counts in runs {
        let all: u64 = counts.iter().sum();
        let mut sorted = counts.to_vec();
        sorted.sort_unstable();
        sums.resize(if sums.is_empty() { sorted.len() } else { sums.len() }, 0.0);
        if sums.len() == sorted.len() && all > 0 {
            let shares = sorted.iter().map(|own| *own as f64 / all as f64);
            sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
        }
    }
    let all: f64 = sums.iter().sum();
    sums.iter().map(|sum| if all > 0.0 { sum / all } else { 0.0 }).collect()
}

/// The curves of all arms at one point over the diagonal.
pub(crate) fn lorenz(shared: &[Shared], arms: &Arms<'_>, key: &str) -> String {
    let x = Scale::linear((0.0, 1.0), (LEFT, RIGHT));
    let y = Scale::linear((0.0, 1.0), (BOTTOM, TOP));
    let title = "Part of the calls over part of the workers";
    let about = format!("Lorenz curves of {} arms, from the least busy worker.", shared.len());
    let mut svg = Svg::new(key, (WIDTH, HEIGHT), title, &about);
    axes(&mut svg, &x, &y);
    let mut legend = (LEFT, 0);
    for one in shared {
        let place = arms.index(&one.arm);
        let curve = stats::lorenz(&one.shares);
        svg.open(&format!("series {}", arms.class(&one.arm)), Some(place));
        let points: Vec<At> = curve.iter().map(|(part, sum)| (x.at(*part), y.at(*sum))).collect();
        svg.path(&polyline(&points), "line");
        for part in MARKED {
            let Some(sum) = at(&curve, part) else { continue };
            let (less, more) = (number::percent(part), number::percent(sum));
            let tip = format!("{}: the least busy {less} of the workers had {more}", one.arm);
            svg.mark(Marker::of(place), (x.at(part), y.at(sum)), 3.5, &tip);
        }
        name(&mut svg, &one.arm, &mut legend);
        svg.close();
    }
    figure("curve", &scroll("chart", &svg.finish()), "", &data(shared))
}

/// The name of an arm behind those before it, in the next line where there is no room.
fn name(svg: &mut Svg, arm: &str, (left, line): &mut (f64, usize)) {
    let width = text_width(arm, LETTERS) * 1.15 + 18.0;
    if *left + width > RIGHT && *line + 1 < LEGEND_LINES.len() {
        (*left, *line) = (LEFT, *line + 1);
    }
    svg.text((*left, LEGEND_LINES[*line]), "name", arm);
    *left += width;
}

/// What the least busy `part` of the workers had, between the corners of the curve.
fn at(curve: &[(f64, f64)], part: f64) -> Option<f64> {
    let pair = curve.windows(2).find(|pair| pair[1].0 >= part)?;
    let ((from, below), (to, above)) = (pair[0], pair[1]);
    Some(below + (part - from) / (to - from) * (above - below))
}

fn axes(svg: &mut Svg, x: &Scale, y: &Scale) {
    svg.text((LEFT, TOP - 12.0), "dim small", "part of the calls");
    for tick in y.ticks(5) {
        let at = y.at(tick);
        svg.line((LEFT, at), (RIGHT, at), "grid");
        svg.text((LEFT - 8.0, at + 4.0), "dim end", &format!("{:.0} %", tick * 100.0));
    }
    for tick in x.ticks(5) {
        let at = x.at(tick);
        svg.line((at, BOTTOM), (at, BOTTOM + 4.0), "tick");
        svg.text((at, BOTTOM + 18.0), "dim mid", &format!("{:.0} %", tick * 100.0));
    }
    svg.line((x.at(0.0), y.at(0.0)), (x.at(1.0), y.at(1.0)), "unity");
    let middle = f64::midpoint(LEFT, RIGHT);
    svg.text((middle, BOTTOM + 38.0), "dim mid", "part of the workers, the least busy first");
}

fn data(shared: &[Shared]) -> String {
    let columns = MARKED.map(|part| format!("#least busy {}", number::percent(part)));
    let headings: Vec<&str> =
        std::iter::once("arm").chain(columns.iter().map(String::as_str)).collect();
    let mut table = Table::new(&headings);
    for one in shared {
        let curve = stats::lorenz(&one.shares);
        let cell = |part: f64| match at(&curve, part) {
            Some(sum) => Cell::number(&number::percent(sum), sum),
            None => Cell::missing("–", "no call was answered"),
        };
        let cells: Vec<Cell> =
            std::iter::once(Cell::text(&one.arm)).chain(MARKED.map(cell)).collect();
        table.row(&cells);
    }
    table.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_averaged_rank_by_rank() {
        let runs: [&[u64]; 2] = [&[30, 10], &[0, 8]];
        assert_eq!(mean_shares(runs.into_iter()), [0.125, 0.875]);
        assert!(mean_shares(std::iter::empty()).is_empty());
        assert_eq!(mean_shares([[0u64, 0].as_slice()].into_iter()), [0.0, 0.0]);
    }

    #[test]
    fn a_curve_is_read_between_its_corners() {
        let curve = stats::lorenz(&[1.0, 3.0]);
        assert_eq!((at(&curve, 0.25), at(&curve, 0.75)), (Some(0.125), Some(0.625)));
        assert_eq!(at(&[], 0.5), None);
    }
}
