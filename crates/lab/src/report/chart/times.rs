//! Times of requests inside a server: how they are spread, the arms over each other.
//!
//! The axis is logarithmic, and so are the server's buckets, the same for every arm; the height is
//! the share of requests in a bucket. The slowest thousandth would take half of the axis: it is not
//! drawn, and stands in the tables.

use pollux_report::chart::{At, Edges, HALF_WIDTH, Paper, Scale, figure, polyline};
use pollux_report::markup::scroll;
use pollux_report::{Cell, Table};

use crate::record::{RequestTimesRun, TimeBucket};
use crate::report::number;
use crate::report::view::Arms;

const HEIGHT: f64 = 260.0;
const EDGES: Edges = Edges { left: 52.0, right: 12.0, top: 44.0, foot: 46.0 };
const TICKS: usize = 6;
/// Shares of the quantile table; the document's plot cut off the slowest hundredth.
const QUANTILES: [(f64, &str); 3] = [(0.5, "#p50"), (0.99, "#p99"), (DRAWN, "#p99.9")];
/// What is drawn of the requests.
const DRAWN: f64 = 0.999;

/// The distributions at one point over each other, with their quantiles under them; nothing where
/// nothing was timed.
pub(crate) fn times(runs: &[&RequestTimesRun], arms: &Arms<'_>, key: &str) -> Option<String> {
    let runs: Vec<_> = runs.iter().copied().filter(|run| run.times.requests > 0).collect();
    let buckets = || runs.iter().flat_map(|run| &run.times.buckets);
    let from_ns = buckets().map(|bucket| bucket.from_ns.max(1.0)).reduce(f64::min)?;
    let slowest_ns = runs.iter().filter_map(|run| run.times.quantile_ns(DRAWN)).fold(0.0, f64::max);
    let is_drawn = |bucket: &&TimeBucket| bucket.from_ns < slowest_ns;
    let below_ns = buckets().filter(is_drawn).map(|bucket| bucket.below_ns).reduce(f64::max)?;
    let highest = runs.iter().flat_map(|run| shares(run, f64::INFINITY)).map(|(_, share)| share);
    let highest = highest.fold(0.0, f64::max);
    let title = "Time of a request inside the server";
    let about = format!("Histograms of {} arms over a logarithmic time axis.", runs.len());
    let mut paper = Paper::new(key, (title, &about), (HALF_WIDTH, HEIGHT), EDGES);
    let x = Scale::log((from_ns, below_ns), paper.width());
    let y = Scale::linear((0.0, highest * 1.08), paper.height());
    let over = "share of requests in each bucket of the server's histogram";
    paper.svg.about((EDGES.left, EDGES.top - 8.0), over);
    paper.values(&y, &y.ticks(4), number::percent_tick);
    let ticks = x.ticks(TICKS).into_iter().map(|tick| (tick, number::time_tick(tick)));
    paper.below(&x, &ticks.collect::<Vec<_>>());
    paper.caption("time inside the server");
    let names = paper.legend(runs.iter().map(|run| run.arm.as_str()));
    for (run, name) in runs.iter().zip(names) {
        let place = arms.index(&run.arm);
        paper.svg.open(&format!("series {}", arms.class(&run.arm)), Some(place));
        let outline = outline(run, below_ns, &x, &y);
        paper.svg.path(&(polyline(&outline) + "Z"), "area");
        paper.svg.path(&polyline(&outline), "line");
        for (bucket, share) in shares(run, below_ns) {
            // An unseen box over each bucket tells its figures.
            let (from, below) = (x.at(bucket.from_ns.max(1.0)), x.at(bucket.below_ns));
            let (share, top) = (number::percent(share), y.at(share));
            let [from_ns, below_ns] = [bucket.from_ns, bucket.below_ns].map(number::time_tick);
            let tip = format!("{}: {share} of requests from {from_ns} to {below_ns}", run.arm);
            paper.svg.rect((from, top), (below - from, y.at(0.0) - top), "unseen", &tip);
        }
        paper.svg.text(name, "name", &run.arm);
        paper.svg.close();
    }
    let (under, table) = (quantiles(&runs).html(), data(&runs).html());
    Some(figure("curve", &scroll("chart", &paper.finish()), &under, &table))
}

/// Each bucket up to a time with its share of all requests.
fn shares(run: &RequestTimesRun, below_ns: f64) -> impl Iterator<Item = (&TimeBucket, f64)> {
    let all = run.times.requests as f64;
    let drawn = run.times.buckets.iter().filter(move |bucket| bucket.below_ns <= below_ns);
    drawn.map(move |bucket| (bucket, bucket.requests as f64 / all))
}

/// Steps along the buckets, down to nothing where there is a gap between them.
fn outline(run: &RequestTimesRun, below_ns: f64, x: &Scale, y: &Scale) -> Vec<At> {
    let ground = y.at(0.0);
    let mut points: Vec<At> = Vec::new();
    let mut end_ns = f64::NAN;
    for (bucket, height) in shares(run, below_ns) {
        let (from, below) = (x.at(bucket.from_ns.max(1.0)), x.at(bucket.below_ns));
        if bucket.from_ns != end_ns {
            points.extend(points.last().map(|last| (last.0, ground)));
            points.push((from, ground));
        }
        points.extend([(from, y.at(height)), (below, y.at(height))]);
        end_ns = bucket.below_ns;
    }
    points.extend(points.last().map(|last| (last.0, ground)));
    points
}

/// What half, all but a hundredth and all but a thousandth of the requests took, arm by arm.
pub(crate) fn quantiles(runs: &[&RequestTimesRun]) -> Table {
    let headings = ["arm", "#requests", "#mean"].into_iter();
    let mut table = Table::new(headings.chain(QUANTILES.map(|(_, heading)| heading)));
    add(&mut table, runs);
    table
}

/// Adds the rows of some runs to the table of [`quantiles`].
pub(crate) fn add(table: &mut Table, runs: &[&RequestTimesRun]) {
    for run in runs {
        let cell = |ns| Cell::number_or(ns, number::time_tick, "–", "no request was timed");
        let times = &run.times;
        let [p50, p99, p999] = QUANTILES.map(|(share, _)| cell(times.quantile_ns(share)));
        let (arm, requests) = (Cell::text(&run.arm), Cell::count(times.requests));
        table.row([arm, requests, cell(times.mean_ns()), p50, p99, p999]);
    }
}

fn data(runs: &[&RequestTimesRun]) -> Table {
    let mut table = Table::new(["arm", "#from", "#below", "#requests"]);
    let time = |ns: f64| Cell::number(&number::time_tick(ns), ns);
    for (run, bucket) in runs.iter().flat_map(|run| run.times.buckets.iter().map(move |b| (run, b)))
    {
        let (from, below) = (time(bucket.from_ns), time(bucket.below_ns));
        table.row([Cell::text(&run.arm), from, below, Cell::count(bucket.requests)]);
    }
    table
}
