//! Times of requests inside a server: how they are spread, the arms over each other.
//!
//! The axis is logarithmic, and so are the server's buckets, the same for every arm; the height is
//! the share of requests in a bucket. The slowest thousandth would take half of the axis: it is not
//! drawn, and stands in the tables.

use super::{LETTERS, figure};
use crate::record::{RequestTimesRun, TimeBucket};
use crate::report::markup::{Cell, Table, scroll};
use crate::report::number;
use crate::report::view::Arms;
use pollux_report::{At, Scale, Svg, polyline, text_width};

const WIDTH: f64 = 510.0;
const HEIGHT: f64 = 260.0;
const TOP: f64 = 44.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = WIDTH - 12.0;
const BOTTOM: f64 = HEIGHT - 46.0;
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
    let x = Scale::log((from_ns, below_ns), (LEFT, RIGHT));
    let y = Scale::linear((0.0, highest * 1.08), (BOTTOM, TOP));
    let title = "Time of a request inside the server";
    let about = format!("Histograms of {} arms over a logarithmic time axis.", runs.len());
    let mut svg = Svg::new(key, (WIDTH, HEIGHT), title, &about);
    axes(&mut svg, &x, &y);
    let mut legend_x = LEFT;
    for run in &runs {
        let place = arms.index(&run.arm);
        svg.open(&format!("series {}", arms.class(&run.arm)), Some(place));
        let outline = outline(run, below_ns, &x, &y);
        svg.path(&(polyline(&outline) + "Z"), "area");
        svg.path(&polyline(&outline), "line");
        for (bucket, height) in shares(run, below_ns) {
            hover(&mut svg, run, bucket, (&x, &y), height);
        }
        svg.text((legend_x, 14.0), "name", &run.arm);
        legend_x += text_width(&run.arm, LETTERS) * 1.15 + 18.0;
        svg.close();
    }
    let table = data(&runs);
    Some(figure("curve", &scroll("chart", &svg.finish()), &quantiles(&runs), &table))
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

/// An unseen box over each bucket that tells its figures.
fn hover(
    svg: &mut Svg,
    run: &RequestTimesRun,
    bucket: &TimeBucket,
    (x, y): (&Scale, &Scale),
    height: f64,
) {
    let tip = format!(
        "{}: {} of requests from {} to {}",
        run.arm,
        number::percent(bucket.requests as f64 / run.times.requests as f64),
        time(bucket.from_ns),
        time(bucket.below_ns)
    );
    let (left, top) = (x.at(bucket.from_ns.max(1.0)), y.at(height));
    svg.rect((left, top), (x.at(bucket.below_ns) - left, y.at(0.0) - top), "unseen", &tip);
}

fn axes(svg: &mut Svg, x: &Scale, y: &Scale) {
    svg.text(
        (LEFT, 30.0),
        "dim small",
        "share of requests in each bucket of the server's histogram",
    );
    for tick in y.ticks(4) {
        let at = y.at(tick);
        svg.line((LEFT, at), (RIGHT, at), "grid");
        svg.text((LEFT - 8.0, at + 4.0), "dim end", &format!("{:.0} %", tick * 100.0));
    }
    for tick in x.ticks(TICKS) {
        let at = x.at(tick);
        svg.line((at, BOTTOM), (at, BOTTOM + 4.0), "tick");
        svg.text((at, BOTTOM + 18.0), "dim mid", &time(tick));
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    svg.text((middle, BOTTOM + 38.0), "dim mid", "time inside the server");
}

fn quantiles(runs: &[&RequestTimesRun]) -> String {
    let mut headings = vec!["arm", "#requests", "#mean"];
    headings.extend(QUANTILES.map(|(_, heading)| heading));
    let mut table = Table::new(&headings);
    for run in runs {
        let times = &run.times;
        let cell = |ns: Option<f64>| match ns {
            Some(ns) => Cell::number(&time(ns), ns),
            None => Cell::missing("–", "no request was timed"),
        };
        let mut cells = vec![
            Cell::text(&run.arm),
            Cell::number(&number::count(times.requests), times.requests as f64),
            cell(times.mean_ns()),
        ];
        cells.extend(QUANTILES.map(|(share, _)| cell(times.quantile_ns(share))));
        table.row(&cells);
    }
    table.finish()
}

fn data(runs: &[&RequestTimesRun]) -> String {
    let mut table = Table::new(&["arm", "#from", "#below", "#requests"]);
    for run in runs {
        for bucket in &run.times.buckets {
            table.row(&[
                Cell::text(&run.arm),
                Cell::number(&time(bucket.from_ns), bucket.from_ns),
                Cell::number(&time(bucket.below_ns), bucket.below_ns),
                Cell::number(&number::count(bucket.requests), bucket.requests as f64),
            ]);
        }
    }
    table.finish()
}

/// Nanoseconds with the unit that suits them.
fn time(ns: f64) -> String {
    match ns {
        1e9.. => format!("{} s", number::tick(ns / 1e9)),
        1e6.. => format!("{} ms", number::tick(ns / 1e6)),
        1e3.. => format!("{} µs", number::tick(ns / 1e3)),
        _ => format!("{} ns", number::tick(ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_carry_their_unit() {
        let shown = [750.0, 1280.0, 44e6, 2.5e9].map(time);
        assert_eq!(shown, ["750 ns", "1.28 µs", "44 ms", "2.5 s"]);
    }
}
