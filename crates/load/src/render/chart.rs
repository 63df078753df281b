//! The charts of the page: each a function from an outcome to a drawing.
//!
//! The page calls them. They share their edges, so that a dip in one is found in the other.
//!
//! The course of a run: rate, latency and errors over its seconds, the warm-up shaded. A run of many seconds is drawn in
//! stretches of several.
//!
//! The latency over percentiles in nines: how long the slowest tenth, hundredth, thousandth took.

use pollux_report::chart::{Edges, Line, Marker, Marks, Paper, Scale, Vertex, WIDTH};
use pollux_report::number;

use super::series::{Point, curve, nines};
use super::series::{Stretch, measured_from_s};
use crate::{Distribution, Outcome};

/// Left of the paper stand the values of the axis, right of it the names of the lines.
const EDGES: Edges = Edges { left: 64.0, right: 120.0, top: 36.0, foot: 44.0 };
/// Lines across the paper.
const TICKS: usize = 6;

/// A logarithmic axis for times, with some room at both ends.
fn time_scale(times: impl Iterator<Item = u64>, paper: (f64, f64)) -> Scale {
    let (low, high) = times.fold((u64::MAX, 1), |(low, high), ns| (low.min(ns), high.max(ns)));
    let low = (low.min(high) as f64).max(1.0);
    Scale::log((low / 1.2, high as f64 * 1.2), paper)
}

const HEIGHT: f64 = 240.0;
const LOW_HEIGHT: f64 = 150.0;
/// Room for the name of a line.
const NAME_WIDTH: f64 = 90.0;
/// The rate of a shorter tail says nothing.
const SHORTEST_S: f64 = 0.2;
/// Up to here every value has a dot.
const DOTS_MAX: usize = 80;

/// Answers per second, with the asked rate where there is one.
pub(super) fn rate(outcome: &Outcome, course: &[Stretch]) -> Option<String> {
    let asked = outcome.setting.asked_per_s;
    let lasting = course.iter().filter(|stretch| stretch.length_s() >= SHORTEST_S);
    let rates: Vec<_> = lasting.filter_map(|s| Some((s, s.answered_per_s()?))).collect();
    let highest = rates.iter().map(|(_, rate)| *rate).chain(asked).fold(0.0, f64::max);
    if highest <= 0.0 {
        return None;
    }
    let about = format!("Line over {} stretches of the run.", course.len());
    let (mut paper, x) = begin(course, "rate", HEIGHT, "Answers per second", &about);
    let y = Scale::linear((0.0, highest * 1.08), paper.height());
    paper.values(&y, &y.ticks(TICKS), number::tick);
    let vertex = |(stretch, rate): &(&Stretch, f64)| Vertex {
        at: (middle(stretch, &x), y.at(*rate)),
        band: None,
        tip: format!("{}: {} answers per second", span(stretch), number::si(*rate)),
    };
    let answered = line("answered", "s0", rates.iter().map(vertex).collect());
    let asked = asked.map(|asked| {
        // The schedule's mean is that of the measured part.
        let (from, right, at) = (x.at(measured_from_s(outcome)), paper.width().1, y.at(asked));
        paper.svg.line((from, at), (right, at), "asked");
        let end = Vertex { at: (right, at), band: None, tip: String::new() };
        Line { marks: Marks::None, ..line("asked (mean)", "same", vec![end]) }
    });
    let lines: Vec<Line> = asked.into_iter().chain([answered]).collect();
    paper.lines(&lines, NAME_WIDTH);
    Some(paper.finish())
}

/// Name, class, and the time of a stretch in nanoseconds.
type Series = (&'static str, &'static str, fn(&Stretch) -> Option<u64>);

/// Median, 99th percentile and longest time of the answers.
pub(super) fn latency(course: &[Stretch]) -> Option<String> {
    let series: [Series; 3] = [
        ("max", "s1", |stretch| stretch.latency.max_ns()),
        ("p99", "s2", |stretch| stretch.latency.known_quantile_ns(0.99)),
        ("p50", "s0", |stretch| stretch.latency.known_quantile_ns(0.5)),
    ];
    let all = course.iter().flat_map(|s| series.iter().filter_map(move |(.., of)| of(s)));
    let times: Vec<u64> = all.collect();
    if times.is_empty() {
        return None;
    }
    let about = "Three lines over the run: median, 99th percentile and longest latency.";
    let (mut paper, x) = begin(course, "latency", HEIGHT, "Latency", about);
    let y = time_scale(times.into_iter(), paper.height());
    paper.values(&y, &y.ticks(TICKS), number::time_tick);
    let lines = series.map(|(name, class, of)| {
        let vertex = |stretch: &Stretch| {
            let ns = of(stretch)? as f64;
            let at = (middle(stretch, &x), y.at(ns));
            let tip = format!("{}: {name} {}", span(stretch), number::time(ns));
            Some(Vertex { at, band: None, tip })
        };
        line(name, class, course.iter().filter_map(vertex).collect())
    });
    paper.lines(&lines, NAME_WIDTH);
    Some(paper.finish())
}

/// Errors in each stretch; `None` when there were none.
pub(super) fn errors(course: &[Stretch]) -> Option<String> {
    let most = course.iter().map(|stretch| stretch.errors).max().filter(|most| *most > 0)?;
    let stretches = course.iter().filter(|stretch| stretch.errors > 0).count();
    let about = format!("Bars in {stretches} of {} stretches of the run.", course.len());
    let (mut paper, x) = begin(course, "errors", LOW_HEIGHT, "Errors", &about);
    let (bottom, _) = paper.height();
    let y = Scale::linear((0.0, most as f64 * 1.08), paper.height());
    // Half an error would be a strange line on an axis.
    let whole: Vec<f64> = y.ticks(4).into_iter().filter(|tick| tick.fract() == 0.0).collect();
    paper.values(&y, &whole, |tick| second(tick).to_string());
    for stretch in course.iter().filter(|stretch| stretch.errors > 0) {
        let (from, to) = (x.at(stretch.start_s), x.at(stretch.end_s));
        let inset = ((to - from) * 0.1).min(3.0);
        let top = y.at(stretch.errors as f64);
        let tip = format!("{}: {} errors", span(stretch), number::count(stretch.errors));
        paper.svg.rect(
            (from + inset, top),
            (to - from - 2.0 * inset, bottom - top),
            "bar bad",
            &tip,
        );
    }
    Some(paper.finish())
}

/// The paper with its time axis, on which the warm-up is shaded.
fn begin(course: &[Stretch], key: &str, height: f64, title: &str, about: &str) -> (Paper, Scale) {
    let mut paper = Paper::new(key, (title, about), (WIDTH, height), EDGES);
    let ((left, _), (bottom, top)) = (paper.width(), paper.height());
    let x = Scale::linear((0.0, course.last().map_or(1.0, |last| last.end_s)), paper.width());
    paper.svg.text((0.0, 14.0), "strong", title);
    if let Some(last) = course.iter().take_while(|stretch| stretch.is_warm_up).last() {
        let width = x.at(last.end_s) - left;
        let tip = format!("warm-up of {}, not counted", number::duration(last.end_s));
        paper.svg.rect((left, top), (width, bottom - top), "band", &tip);
        if width > 60.0 {
            paper.svg.about((left, top), "warm-up");
        }
    }
    let ticks: Vec<_> = x.ticks(10).into_iter().map(|tick| (tick, number::tick(tick))).collect();
    paper.below(&x, &ticks);
    paper.caption("seconds since the start");
    (paper, x)
}

/// Where a stretch has its values.
fn middle(stretch: &Stretch, x: &Scale) -> f64 {
    x.at(f64::midpoint(stretch.start_s, stretch.end_s))
}

/// A line with a tip at its points.
fn line(name: &str, class: &str, points: Vec<Vertex>) -> Line {
    // Many dots hide the line; they are then there for the pointer only.
    let marks = if points.len() > DOTS_MAX { Marks::Pointer } else { Marks::Each(Marker::Disc) };
    let (name, class) = (name.to_owned(), class.to_owned());
    Line { name, class, series: None, marks, pieces: vec![points] }
}

fn span(stretch: &Stretch) -> String {
    format!("{} to {} s", second(stretch.start_s), second(stretch.end_s))
}

/// A time on the axis to a hundredth, without zeros at its end.
fn second(second: f64) -> f64 {
    (second * 100.0).round() / 100.0
}

const PERCENTILES_HEIGHT: f64 = 360.0;
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
pub(super) fn percentiles(outcome: &Outcome) -> Option<String> {
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
    let mut paper = Paper::new("percentiles", (title, &about), (WIDTH, PERCENTILES_HEIGHT), EDGES);
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
        let Some(ns) = latency.known_quantile_ns(*quantile) else { continue };
        let at = (x.at(nines(*quantile)), y.at(ns as f64));
        let shown = number::time(ns as f64);
        paper.svg.dot(at, 4.0, "mark s0", &format!("{name} of the answers within {shown}"));
        paper.svg.text((at.0 - 7.0, at.1 - 8.0), "small end halo", &shown);
    }
}
