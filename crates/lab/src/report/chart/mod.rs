//! The charts: each a function from a part of the record to a figure with its table.
//!
//! The sections call them; they draw on the papers of `pollux-report`. Curves show the value of each arm over a numeric
//! axis, with its interval as a band: one panel for each setting of the other axes, all on the same vertical axis so
//! that they can be compared by eye. Each line is named at its end; a point that was not measured is a gap, and the
//! reason stands under the chart. Bars show how many events each wait returned, and which symbols the samples fell in:
//! counts, without intervals. Lorenz curves show which part of the calls the least busy workers had together, arm over
//! arm, from the mean of an arm's runs, rank by rank.
//!
//! Times of requests inside a server are on a logarithmic axis, and so are the server's buckets, the same for every
//! arm; the height is the share of requests in a bucket. The slowest thousandth would take half of the axis: it is not
//! drawn, and stands in the tables.
use pollux_report::chart::bars::{Bar, Head, ranked, small};
use pollux_report::chart::{
    At, Canvas, Edges, HALF_WIDTH, LETTERS, Scale, Vertex, WIDTH, figure, fit, polyline,
};
use pollux_report::markup::{notes, scroll};
use pollux_report::{Cell, Table};
use pollux_stats as stats;

use super::{Arms, Comparison, Panel, grouped, number, panel_gap, words};
use crate::record::{
    CountingRun, Profile, Record, RequestTimesRun, ResultRow, SymbolShare, TimeBucket,
};

pub(super) mod intervals;

const HEIGHT_MIN: f64 = 330.0;
const TOP: f64 = 34.0;
const LEFT: f64 = 52.0;
const FOOT: f64 = 48.0;
const LABEL_WIDTH_MAX: f64 = 150.0;
/// An axis whose ends are further apart than this ratio is logarithmic.
const LOG_FROM: f64 = 20.0;
const TICKS: usize = 6;
/// The tail of a profile is long and says little; the table has it whole.
const SYMBOLS_MAX: usize = 12;
const HEIGHT: f64 = 400.0;
const EDGES: Edges = Edges { left: 52.0, right: 24.0, top: 60.0, foot: 46.0 };
/// Parts of the workers at which a curve has a mark, and the table a column.
const MARKED: [f64; 5] = [0.25, 0.5, 0.75, 0.9, 0.99];
const TIMES_HEIGHT: f64 = 260.0;
const TIMES_EDGES: Edges = Edges { left: 52.0, right: 12.0, top: 44.0, foot: 46.0 };
const TIMES_TICKS: usize = 6;
/// Shares of the quantile table; the document's plot cut off the slowest hundredth.
const QUANTILES: [(f64, &str); 3] = [(0.5, "#p50"), (0.99, "#p99"), (DRAWN, "#p99.9")];
/// What is drawn of the requests.
const DRAWN: f64 = 0.999;

/// An interval is drawn to so many times its value at most, either way.
const INTERVAL_MAX: f64 = 100.0;

/// The curves of one comparison.
pub(super) fn curves(
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
        let reason = panel_gap(record, comparison, panel, arm, value);
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
                    let reason = panel_gap(record, comparison, panel, arm, written);
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
    let (low, high) = match (row.turns, row.ratio, row.ci_low, row.ci_high) {
        // Of all but the baseline the ratio is what is known, and the value is made of it.
        (Some(_), Some(ratio), Some(low), Some(high)) => {
            (value * low / ratio, value * high / ratio)
        }
        _ => (value - half, value + half),
    };
    // An interval wider than its value would reach below nothing, and one of two sets beyond any paper.
    Some((value, low.max(value / INTERVAL_MAX), high.min(value * INTERVAL_MAX)))
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
    let lines = names.len();
    let values = panel.values.len();
    let about = format!("Line chart: {lines} arms at {values} values of {}.", panel.axis);
    let right = Canvas::room_for(names.iter().copied(), LABEL_WIDTH_MAX);
    let height = HEIGHT_MIN.max(TOP + FOOT + Canvas::height_for(lines));
    let edges = Edges { left: LEFT, right, top: TOP, foot: FOOT };
    let mut paper = Canvas::new(key, (title.trim_end(), &about), (width, height), edges);
    let first = panel.values.first().map_or(0.0, |(_, number)| *number);
    let last = panel.values.last().map_or(0.0, |(_, number)| *number);
    let x = if first > 0.0 && last / first > LOG_FROM {
        Scale::log((first, last), paper.width())
    } else {
        Scale::linear((first, last), paper.width())
    };
    let y = if low > 0.0 && high / low > LOG_FROM {
        Scale::log((low / 1.15, high * 1.15), paper.height())
    } else {
        Scale::linear((0.0, high * 1.05), paper.height())
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
        let shown = words::value(row);
        let ratio = words::ratio_and_interval(row);
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

/// Waits by the number of events that they returned, one small chart for each arm.
///
/// `None` when no arm has a poller that counts.
pub(super) fn events_per_wait(runs: &[&CountingRun], arms: &Arms<'_>, key: &str) -> Option<String> {
    let with_waits: Vec<_> = runs.iter().filter(|run| waits(run) > 0).collect();
    let bins = with_waits.iter().map(|run| run.events_per_wait_histogram.len()).max()?;
    let draw = |(index, run): (usize, &&&CountingRun)| {
        let waits = waits(run);
        let title = format!("{}, events per wait", run.arm);
        let beside = number::si(waits as f64);
        let about = format!("{} waits in {bins} classes of events per wait.", number::count(waits));
        let head = Head {
            name: &run.arm,
            beside: &format!("{beside} waits"),
            class: &arms.class(&run.arm),
            series: Some(arms.index(&run.arm)),
        };
        let bar = |bin: usize| {
            let count = run.events_per_wait_histogram.get(bin).copied().unwrap_or(0);
            let share = count as f64 / waits as f64;
            let of = number::percent(share);
            let count = number::count(count);
            let tip = format!("{}: {of} of waits ({count})", bin_name(bin));
            Bar { name: bin_start(bin).to_string(), share, tip }
        };
        let bars: Vec<Bar> = (0..bins).map(bar).collect();
        small(&format!("{key}-{index}"), (&title, &about), head, &bars)
    };
    let charts: String = with_waits.iter().enumerate().map(draw).collect();
    let grid = format!("<div class=\"multiples\">{charts}</div>");
    let names = (0..bins).map(|bin| format!("#{}", bin_name(bin)));
    let mut table = Table::new(std::iter::once("arm".to_owned()).chain(names));
    for run in with_waits {
        let count = |bin| run.events_per_wait_histogram.get(bin).copied().unwrap_or(0);
        let cells = (0..bins).map(|bin| Cell::count(count(bin)));
        table.row(std::iter::once(Cell::text(&run.arm)).chain(cells).collect::<Vec<_>>());
    }
    Some(figure("histogram", &grid, "", &table.html()))
}

fn waits(run: &CountingRun) -> u64 {
    run.events_per_wait_histogram.iter().fold(0, |sum, waits| sum.saturating_add(*waits))
}

/// First number of events in a class: 0, 1, 2, 4, 8, …
fn bin_start(bin: usize) -> u64 {
    match bin {
        0 => 0,
        bin => 1u64.checked_shl(bin as u32 - 1).unwrap_or(u64::MAX),
    }
}

fn bin_name(bin: usize) -> String {
    match bin {
        0 | 1 => format!("{bin}"),
        bin => format!("{}–{}", bin_start(bin), bin_start(bin + 1).saturating_sub(1)),
    }
}

/// The symbols of one profile, or the reason why there are none.
pub(super) fn profile(profile: &Profile, arms: &Arms<'_>, key: &str) -> String {
    let title = format!("{}, {}: where the time went", profile.point, profile.arm);
    let Some(samples) = profile.samples.value() else {
        let why = words::missing(profile.samples.reason());
        return notes(&[format!("{title}: {why}")]);
    };
    let shown = &profile.symbols[..profile.symbols.len().min(SYMBOLS_MAX)];
    let all = profile.symbols.len();
    let samples = number::count(*samples);
    let about =
        format!("The first {} of {all} symbols by share of {samples} samples.", shown.len());
    let head = Head {
        name: &format!("{} · {}", profile.arm, profile.point),
        beside: &format!("{samples} samples"),
        class: &arms.class(&profile.arm),
        series: None,
    };
    let bar = |symbol: &SymbolShare| Bar {
        name: symbol.symbol.clone(),
        share: symbol.share,
        tip: format!("{}: {} samples", symbol.symbol, symbol.samples),
    };
    let bars: Vec<Bar> = shown.iter().map(bar).collect();
    let chart = ranked(key, (&title, &about), head, &bars);
    let mut table = Table::new(["symbol", "#samples", "#share"]);
    for SymbolShare { symbol, samples, share } in &profile.symbols {
        let share = Cell::number(&number::percent(*share), *share);
        table.row([Cell::code(symbol), Cell::count(*samples), share]);
    }
    figure("profile", &scroll("chart", &chart), "", &table.html())
}

/// How the calls of one arm were shared.
pub(super) struct Shared {
    pub(crate) arm: String,
    /// The share of each worker, from the least busy one.
    pub(crate) shares: Vec<f64>,
}

/// The curves of all arms at one point over the diagonal.
pub(super) fn lorenz(shared: &[Shared], arms: &Arms<'_>, key: &str) -> String {
    let title = "Part of the calls over part of the workers";
    let about = format!("Lorenz curves of {} arms, from the least busy worker.", shared.len());
    let mut paper = Canvas::new(key, (title, &about), (HALF_WIDTH, HEIGHT), EDGES);
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
            let less = number::percent(part);
            let more = number::percent(sum);
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

/// The distributions at one point over each other, with their quantiles under them; nothing where
/// nothing was timed.
pub(super) fn times(runs: &[&RequestTimesRun], arms: &Arms<'_>, key: &str) -> Option<String> {
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
    let mut paper = Canvas::new(key, (title, &about), (HALF_WIDTH, TIMES_HEIGHT), TIMES_EDGES);
    let x = Scale::log((from_ns, below_ns), paper.width());
    let y = Scale::linear((0.0, highest * 1.08), paper.height());
    let over = "share of requests in each bucket of the server's histogram";
    paper.svg.about((TIMES_EDGES.left, TIMES_EDGES.top - 8.0), over);
    paper.values(&y, &y.ticks(4), number::percent_tick);
    let ticks = x.ticks(TIMES_TICKS).into_iter().map(|tick| (tick, number::time_tick(tick)));
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
            // An unseen box over each bucket shows its figures.
            let from = x.at(bucket.from_ns.max(1.0));
            let below = x.at(bucket.below_ns);
            let top = y.at(share);
            let share = number::percent(share);
            let [from_ns, below_ns] = [bucket.from_ns, bucket.below_ns].map(number::time_tick);
            let tip = format!("{}: {share} of requests from {from_ns} to {below_ns}", run.arm);
            paper.svg.rect((from, top), (below - from, y.at(0.0) - top), "unseen", &tip);
        }
        paper.svg.text(name, "name", &run.arm);
        paper.svg.close();
    }
    let under = quantiles(&runs).html();
    let table = times_data(&runs).html();
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
        let from = x.at(bucket.from_ns.max(1.0));
        let below = x.at(bucket.below_ns);
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
pub(super) fn quantiles(runs: &[&RequestTimesRun]) -> Table {
    let headings = ["arm", "#requests", "#mean"].into_iter();
    let mut table = Table::new(headings.chain(QUANTILES.map(|(_, heading)| heading)));
    add(&mut table, runs);
    table
}

/// Adds the rows of some runs to the table of [`quantiles`].
pub(super) fn add(table: &mut Table, runs: &[&RequestTimesRun]) {
    for run in runs {
        let cell = |ns| Cell::number_or(ns, number::time_tick, "–", "no request was timed");
        let times = &run.times;
        let [p50, p99, p999] = QUANTILES.map(|(share, _)| cell(times.quantile_ns(share)));
        let arm = Cell::text(&run.arm);
        let requests = Cell::count(times.requests);
        table.row([arm, requests, cell(times.mean_ns()), p50, p99, p999]);
    }
}

fn times_data(runs: &[&RequestTimesRun]) -> Table {
    let mut table = Table::new(["arm", "#from", "#below", "#requests"]);
    let time = |ns: f64| Cell::number(&number::time_tick(ns), ns);
    for (run, bucket) in runs.iter().flat_map(|run| run.times.buckets.iter().map(move |b| (run, b)))
    {
        let from = time(bucket.from_ns);
        let below = time(bucket.below_ns);
        table.row([Cell::text(&run.arm), from, below, Cell::count(bucket.requests)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{row_for_tests, row_in_turns};
    use crate::record::Verdict;

    #[test]
    fn a_curve_of_turns_has_the_interval_of_its_ratio() {
        let row = row_in_turns("poll", Verdict::Slower).with_interval([2.0, 1.9, 2.2]);
        let row = ResultRow { value: Some(10.0), ..row };
        assert_eq!(value_interval(&row), Some((10.0, 9.5, 11.0)));
        // Of two sets, whose interval is as good as none.
        let row = row.with_interval([2.0, 0.001, 9000.0]);
        assert_eq!(value_interval(&row), Some((10.0, 0.1, 1000.0)));
        let whole = row_for_tests("poll", Verdict::Slower).with_interval([2.0, 1.9, 2.2]);
        let whole = ResultRow { value: Some(10.0), value_half_width: Some(0.1), ..whole };
        assert_eq!(value_interval(&whole), Some((10.0, 9.0, 11.0)));
    }

    #[test]
    fn classes_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4].map(bin_name), ["0", "1", "2–3", "4–7", "8–15"]);
        assert!(bin_name(70).contains('–'), "a class beyond the largest number has a name too");
    }
}
