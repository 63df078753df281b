//! The course of a run: rate, latency and errors over its seconds, the warm-up shaded.
//!
//! The charts share their time axis, so that a dip above is found below. A run of many seconds
//! is drawn in stretches of several.

use super::{EDGES, TICKS, time_scale};
use crate::Outcome;
use crate::render::nines::told_ns;
use crate::render::seconds::{Stretch, measured_from_s};
use pollux_report::chart::{Line, Marker, Marks, Paper, Scale, Vertex, WIDTH};
use pollux_report::number;

const HEIGHT: f64 = 240.0;
const LOW_HEIGHT: f64 = 150.0;
/// Room for the name of a line.
const NAME_WIDTH: f64 = 90.0;
/// The rate of a shorter tail says nothing.
const SHORTEST_S: f64 = 0.2;
/// Up to here every value has a dot.
const DOTS_MAX: usize = 80;

/// Answers per second, with the asked rate where there is one.
pub(crate) fn rate(outcome: &Outcome, course: &[Stretch]) -> Option<String> {
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
pub(crate) fn latency(course: &[Stretch]) -> Option<String> {
    let series: [Series; 3] = [
        ("max", "s1", |stretch| stretch.latency.max_ns()),
        ("p99", "s2", |stretch| told_ns(&stretch.latency, 0.99)),
        ("p50", "s0", |stretch| told_ns(&stretch.latency, 0.5)),
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
pub(crate) fn errors(course: &[Stretch]) -> Option<String> {
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

/// A line with words at its places.
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
