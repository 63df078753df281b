//! Lorenz curves: which part of the calls the least busy workers had together, arm over arm.
//!
//! The section on workers calls it with the mean of an arm's runs, rank by rank.

use pollux_report::chart::{Edges, HALF_WIDTH, Paper, Scale, Vertex, figure};
use pollux_report::markup::scroll;
use pollux_report::{Cell, Table};

use crate::report::number;
use crate::report::view::Arms;
use crate::stats;

const HEIGHT: f64 = 400.0;
const EDGES: Edges = Edges { left: 52.0, right: 24.0, top: 60.0, foot: 46.0 };
/// Parts of the workers at which a curve has a mark, and the table a column.
const MARKED: [f64; 5] = [0.25, 0.5, 0.75, 0.9, 0.99];

/// How the calls of one arm were shared.
pub(crate) struct Shared {
    /// The arm.
    pub(crate) arm: String,
    /// The share of each worker, from the least busy one.
    pub(crate) shares: Vec<f64>,
}

/// The curves of all arms at one point over the diagonal.
pub(crate) fn lorenz(shared: &[Shared], arms: &Arms<'_>, key: &str) -> String {
    let title = "Part of the calls over part of the workers";
    let about = format!("Lorenz curves of {} arms, from the least busy worker.", shared.len());
    let mut paper = Paper::new(key, (title, &about), (HALF_WIDTH, HEIGHT), EDGES);
    let x = Scale::linear((0.0, 1.0), paper.width());
    let y = Scale::linear((0.0, 1.0), paper.height());
    paper.svg.about((EDGES.left, EDGES.top), "part of the calls");
    paper.values(&y, &y.ticks(5), number::percent_tick);
    let parts = x.ticks(5).into_iter().map(|part| (part, number::percent_tick(part)));
    paper.below(&x, &parts.collect::<Vec<_>>());
    paper.caption("part of the workers, the least busy first");
    paper.svg.line((x.at(0.0), y.at(0.0)), (x.at(1.0), y.at(1.0)), "unity");
    let line = |one: &Shared| {
        let curve = stats::lorenz(&one.shares);
        let tip = |part, sum| {
            let (less, more) = (number::percent(part), number::percent(sum));
            format!("{}: the least busy {less} of the workers had {more}", one.arm)
        };
        let marked =
            MARKED.into_iter().filter_map(|part| Some((part, stats::lorenz_at(&curve, part)?)));
        let marked = marked.map(|(part, sum)| (part, sum, tip(part, sum)));
        let corners = curve.iter().map(|(part, sum)| (*part, *sum, String::new()));
        let mut points: Vec<_> = corners.chain(marked).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let vertex = |(part, sum, tip)| Vertex { at: (x.at(part), y.at(sum)), band: None, tip };
        arms.line(&one.arm, vec![points.into_iter().map(vertex).collect()])
    };
    paper.lines_with_legend(&shared.iter().map(line).collect::<Vec<_>>());
    figure("curve", &scroll("chart", &paper.finish()), "", &data(shared))
}

fn data(shared: &[Shared]) -> String {
    let columns = MARKED.map(|part| format!("#least busy {}", number::percent(part)));
    let mut table = Table::new(["arm".to_owned()].into_iter().chain(columns));
    for one in shared {
        let curve = stats::lorenz(&one.shares);
        let cell = |part| {
            Cell::number_or(
                stats::lorenz_at(&curve, part),
                number::percent,
                "–",
                "no call was answered",
            )
        };
        let cells = MARKED.into_iter().map(cell);
        table.row(std::iter::once(Cell::text(&one.arm)).chain(cells).collect::<Vec<_>>());
    }
    table.html()
}
