//! The course of a run: rate, latency and errors over its seconds, the warm-up shaded.
//!
//! The charts share their time axis, so that a dip above is found below. A run of many seconds
//! is drawn in stretches of several.

use super::{FOOT, LEFT, RIGHT, TOP, WIDTH, end_labels, time_scale, value_axis};
use crate::Outcome;
use crate::render::nines::told_ns;
use crate::render::seconds::{Stretch, measured_from_s};
use pollux_report::number;
use pollux_report::{At, Scale, Svg, polyline};

const HEIGHT: f64 = 240.0;
const LOW_HEIGHT: f64 = 150.0;
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
    let chart = Chart::new(course, HEIGHT);
    let mut svg = chart.begin("rate", "Answers per second", &about);
    let y = Scale::linear((0.0, highest * 1.08), (chart.bottom, TOP));
    value_axis(&mut svg, &y, number::tick);
    let tip = |stretch: &Stretch, rate: f64| {
        format!("{}: {} answers per second", span(stretch), number::si(rate))
    };
    let line: Vec<_> =
        rates.iter().map(|(s, rate)| (chart.middle(s), y.at(*rate), tip(s, *rate))).collect();
    let mut ends = Vec::new();
    if let Some(asked) = asked {
        // The schedule's mean is that of the measured part.
        let from = chart.x.at(measured_from_s(outcome));
        svg.line((from, y.at(asked)), (RIGHT, y.at(asked)), "asked");
        ends.push(("asked (mean)", (RIGHT, y.at(asked))));
    }
    ends.extend(chart.draw(&mut svg, &line, "s0").map(|end| ("answered", end)));
    let classes = if asked.is_some() { &["same", "s0"][..] } else { &["s0"] };
    end_labels(&mut svg, &ends, classes, chart.bottom);
    Some(svg.finish())
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
    let chart = Chart::new(course, HEIGHT);
    let about = "Three lines over the run: median, 99th percentile and longest latency.";
    let mut svg = chart.begin("latency", "Latency", about);
    let y = time_scale(times.into_iter(), (chart.bottom, TOP));
    value_axis(&mut svg, &y, number::time_tick);
    let (mut ends, mut classes) = (Vec::new(), Vec::new());
    for (name, class, of) in series {
        let tip = |s: &Stretch, ns: u64| format!("{}: {name} {}", span(s), number::time(ns as f64));
        let point = |s: &Stretch| of(s).map(|ns| (chart.middle(s), y.at(ns as f64), tip(s, ns)));
        let line: Vec<_> = course.iter().filter_map(point).collect();
        if let Some(end) = chart.draw(&mut svg, &line, class) {
            ends.push((name, end));
            classes.push(class);
        }
    }
    end_labels(&mut svg, &ends, &classes, chart.bottom);
    Some(svg.finish())
}

/// Errors in each stretch; `None` when there were none.
pub(crate) fn errors(course: &[Stretch]) -> Option<String> {
    let most = course.iter().map(|stretch| stretch.errors).max().filter(|most| *most > 0)?;
    let chart = Chart::new(course, LOW_HEIGHT);
    let stretches = course.iter().filter(|stretch| stretch.errors > 0).count();
    let about = format!("Bars in {stretches} of {} stretches of the run.", course.len());
    let mut svg = chart.begin("errors", "Errors", &about);
    let y = Scale::linear((0.0, most as f64 * 1.08), (chart.bottom, TOP));
    // Half an error would be a strange line on an axis.
    for tick in y.ticks(4).into_iter().filter(|tick| tick.fract() == 0.0) {
        svg.line((LEFT, y.at(tick)), (RIGHT, y.at(tick)), "grid");
        svg.text((LEFT - 8.0, y.at(tick) + 4.0), "dim end", &second(tick).to_string());
    }
    for stretch in course.iter().filter(|stretch| stretch.errors > 0) {
        let (from, to) = (chart.x.at(stretch.start_s), chart.x.at(stretch.end_s));
        let inset = ((to - from) * 0.1).min(3.0);
        let top = y.at(stretch.errors as f64);
        let tip = format!("{}: {} errors", span(stretch), number::count(stretch.errors));
        let size = (to - from - 2.0 * inset, chart.bottom - top);
        svg.rect((from + inset, top), size, "bar bad", &tip);
    }
    Some(svg.finish())
}

/// The paper with its time axis.
struct Chart<'a> {
    course: &'a [Stretch],
    height: f64,
    bottom: f64,
    x: Scale,
}

impl<'a> Chart<'a> {
    fn new(course: &'a [Stretch], height: f64) -> Self {
        let end_s = course.last().map_or(1.0, |stretch| stretch.end_s);
        let x = Scale::linear((0.0, end_s), (LEFT, RIGHT));
        Self { course, height, bottom: height - FOOT, x }
    }

    fn begin(&self, key: &str, title: &str, about: &str) -> Svg {
        let mut svg = Svg::new(key, (WIDTH, self.height), title, about);
        svg.text((0.0, 14.0), "strong", title);
        let warm_up = self.course.iter().take_while(|stretch| stretch.is_warm_up).last();
        if let Some(last) = warm_up {
            let width = self.x.at(last.end_s) - LEFT;
            let tip = format!("warm-up of {}, not counted", number::duration(last.end_s));
            svg.rect((LEFT, TOP), (width, self.bottom - TOP), "band", &tip);
            if width > 60.0 {
                svg.text((LEFT, TOP - 5.0), "dim small", "warm-up");
            }
        }
        for tick in self.x.ticks(10) {
            svg.text((self.x.at(tick), self.bottom + 18.0), "dim mid", &number::tick(tick));
        }
        let middle = (LEFT + RIGHT) / 2.0;
        svg.text((middle, self.height - 6.0), "dim mid", "seconds since the start");
        svg
    }

    /// Where a stretch has its values.
    fn middle(&self, stretch: &Stretch) -> f64 {
        self.x.at(f64::midpoint(stretch.start_s, stretch.end_s))
    }

    /// A line with words at its places; the answer is its end.
    fn draw(&self, svg: &mut Svg, line: &[(f64, f64, String)], class: &str) -> Option<At> {
        let places: Vec<At> = line.iter().map(|(x, y, _)| (*x, *y)).collect();
        svg.path(&polyline(&places), &format!("line {class}"));
        // Many dots hide the line; they are then there for the pointer only.
        let look = if line.len() > DOTS_MAX { "hit" } else { "mark" };
        for (x, y, tip) in line {
            svg.dot((*x, *y), 3.0, &format!("{look} {class}"), tip);
        }
        places.last().copied()
    }
}

fn span(stretch: &Stretch) -> String {
    format!("{} to {} s", second(stretch.start_s), second(stretch.end_s))
}

/// A time on the axis to a hundredth, without zeros at its end.
fn second(second: f64) -> f64 {
    (second * 100.0).round() / 100.0
}
