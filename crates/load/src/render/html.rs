//! The page: one file for a browser, light and dark, without network and without script.
//!
//! The answer stands first, then what makes it doubtful, then curves, then all numbers. The charts of its course
//! share their edges, so that a dip in one is found in the other; a run of many seconds is drawn in stretches of
//! several. The latency over percentiles in nines shows how long the slowest tenth, hundredth, thousandth took.

use std::fmt::Write as _;

use pollux_report::Table;
use pollux_report::chart::{Canvas, Edges, Line, Marker, Marks, Scale, Vertex, WIDTH};
use pollux_report::markup::{card, details, escape, scroll, section, strip};
use pollux_report::number::{self, or_na};

use super::facts::{self, grid};
use super::{Point, Stretch, curve, measured_from_s, nines, steps, stretches};
use crate::findings::ANSWERS_BEYOND_MIN;
use crate::{Distribution, Outcome};

/// More stretches than this are narrower than the marks that stand for them.
const STRETCHES_MAX: usize = 300;
/// Rows of the percentile table: each so many points of the curve.
const CURVE_STRIDE: usize = 5;

/// Left of the paper stand the values of the axis, right of it the names of the lines.
const EDGES: Edges = Edges { left: 64.0, right: 120.0, top: 36.0, foot: 44.0 };
/// Lines across the paper.
const TICKS: usize = 6;
const HEIGHT: f64 = 240.0;
const LOW_HEIGHT: f64 = 150.0;
/// Room for the name of a line.
const NAME_WIDTH: f64 = 90.0;
/// The rate of a shorter tail says nothing.
const SHORTEST_S: f64 = 0.2;
/// Up to here every value has a dot.
const DOTS_MAX: usize = 80;
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

/// The outcome as one HTML file, in UTF-8.
///
/// The same outcome gives the same bytes; all of its text is escaped.
#[must_use]
pub fn html(outcome: &Outcome) -> String {
    let course = stretches(outcome, STRETCHES_MAX);
    let some = |id, title, body: Option<String>| {
        body.map_or_else(String::new, |body| section(id, title, &card(&body)))
    };
    let body = [
        head(outcome),
        boxes(outcome),
        findings(outcome),
        latency(outcome),
        over_time(outcome, &course),
        some("steps", "Steps of the schedule", steps::steps(outcome).as_ref().map(Table::html)),
        some("agents", "Agents", facts::agents(outcome).as_ref().map(Table::html)),
        some("targets", "Targets", facts::targets(outcome).as_ref().map(Table::html)),
        some(
            "crowd",
            "Connections beside the active ones",
            facts::crowd(outcome).as_ref().map(Table::html),
        ),
        some("statuses", "Statuses", facts::statuses_grid(outcome).as_ref().map(Table::html)),
        some("errors", "Errors", errors(outcome)),
        some("setting", "Setting and totals", Some(summary(outcome))),
    ];
    let title = format!("Load on {}", outcome.setting.urls.join(" "));
    pollux_report::page(&title, &body.concat())
}

fn head(outcome: &Outcome) -> String {
    let (badge, class) = match outcome.findings.len() {
        0 => ("no findings".to_owned(), "good"),
        some => (number::plural(some as u64, "finding"), "bad"),
    };
    let target = match outcome.setting.urls.as_slice() {
        [one] => one.clone(),
        urls => number::plural(urls.len() as u64, "target"),
    };
    let subtitle =
        format!("{} · {}", facts::setting(outcome), number::date_of_unix(outcome.began_unix_s));
    format!(
        "<header><div><p class=\"load\">Load on <code>{}</code></p><h1>{}</h1></div>\
         <p class=\"corner\"><span class=\"badge {class}\">{badge}</span></p></header>\n<p class=\"subtitle\">{}</p>\n",
        escape(&target),
        escape(&facts::answer(outcome)),
        escape(&subtitle),
    )
}

/// The figures that most readers come for.
fn boxes(outcome: &Outcome) -> String {
    let time = |ns: Option<u64>| or_na(ns, |ns| number::time(ns as f64));
    let latency = &outcome.latency;
    let failed = number::part(outcome.errors.total(), facts::requests(outcome));
    let items = [
        (
            "answers per second",
            or_na(
                facts::answered_per_s(outcome).filter(|_| !facts::is_too_short(outcome)),
                number::si,
            ),
        ),
        ("median", time(latency.known_quantile_ns(0.5))),
        ("99 % within", time(latency.known_quantile_ns(0.99))),
        ("99.9 % within", time(latency.known_quantile_ns(0.999))),
        ("slowest", time(latency.max_ns())),
        ("failed", failed),
        (
            "generator's CPU per answer",
            or_na(outcome.generator.cpu_us_per_answer, |us| number::time(us * 1000.0)),
        ),
    ];
    strip(items)
}

fn findings(outcome: &Outcome) -> String {
    let item = |finding: &crate::Finding| {
        format!(
            "<div class=\"finding\"><strong>{}</strong> {}</div>\n",
            escape(&facts::sentence(&finding.text)),
            escape(&facts::sentence(&finding.advice))
        )
    };
    outcome.findings.iter().map(item).collect()
}

fn figure(svg: &str) -> String {
    format!("<figure class=\"course\">{}</figure>\n", scroll("chart", svg))
}

/// What is behind a chart, folded, and not for paper.
fn data(folded: &str) -> String {
    format!("<div class=\"data\">{folded}</div>\n")
}

fn latency(outcome: &Outcome) -> String {
    let Some(svg) = draw_percentiles(outcome) else {
        return section("latency", "Latency", &card("<p>There was no answer to time.</p>"));
    };
    let since = if facts::is_closed_loop(outcome) {
        "Counted from when a request was sent."
    } else {
        "Counted from when a request was due, whether or not it could be sent then: requests \
             that had to wait are included."
    };
    let points = details("The curve in numbers", &curve_grid(outcome).html());
    let times = facts::times(outcome).html();
    let note = format!("<p class=\"dim\">{since}</p>");
    section("latency", "Latency", &card(&(figure(&svg) + &note + &times + &data(&points))))
}

fn curve_grid(outcome: &Outcome) -> Table {
    let points = curve(&outcome.latency);
    let row = |(quantile, ns): (f64, u64)| {
        let beyond = (outcome.latency.count() as f64 * (1.0 - quantile)).round() as u64;
        vec![format!("{:.4} %", quantile * 100.0), number::time(ns as f64), number::count(beyond)]
    };
    let inner = points.iter().step_by(CURVE_STRIDE).map(|point| (point.quantile, point.ns));
    let rows = inner.chain(outcome.latency.max_ns().map(|max| (1.0, max))).map(row);
    grid(&["#percentile", "#latency", "#slower answers"], rows)
}

fn over_time(outcome: &Outcome, course: &[Stretch]) -> String {
    let charts = [draw_rate(outcome, course), draw_latency(course), draw_errors(course)];
    let figures: String = charts.iter().flatten().map(|svg| figure(svg)).collect();
    if figures.is_empty() {
        return String::new();
    }
    let numbers = details("The course in numbers", &course_grid(course).html());
    section("course", "Over the run", &card(&(figures + &data(&numbers))))
}

fn course_grid(course: &[Stretch]) -> Table {
    let row = |stretch: &Stretch| {
        let time = |ns: Option<u64>| or_na(ns, |ns| number::time(ns as f64));
        let latency = &stretch.latency;
        vec![
            format!("{:.2} to {:.2} s", stretch.start_s, stretch.end_s),
            if stretch.is_warm_up { "warm-up" } else { "measured" }.to_owned(),
            or_na(stretch.answered_per_s(), number::si),
            number::count(stretch.answered),
            number::count(stretch.errors),
            number::bytes(stretch.bytes_in as f64),
            number::count(stretch.open.into()),
            time(latency.known_quantile_ns(0.5)),
            time(latency.known_quantile_ns(0.99)),
            time(latency.max_ns()),
        ]
    };
    let headings = [
        "time",
        "part",
        "#answers/s",
        "#answers",
        "#errors",
        "#received",
        "#open",
        "#p50",
        "#p99",
        "#max",
    ];
    grid(&headings, course.iter().map(row))
}

fn errors(outcome: &Outcome) -> Option<String> {
    let requests = facts::requests(outcome);
    let row = |(name, count): (&'static str, u64)| {
        vec![name.to_owned(), number::count(count), number::part(count, requests)]
    };
    let rows = outcome.errors.named().into_iter().map(row);
    let table = grid(&["kind", "#requests", "#of all requests"], rows);
    (!table.is_empty()).then(|| table.html())
}

fn summary(outcome: &Outcome) -> String {
    let mut out = "<dl class=\"facts\">".to_owned();
    for (name, value) in facts::summary(outcome) {
        let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    out + "</dl>"
}

/// A logarithmic axis for times, with some room at both ends.
fn time_scale(times: impl Iterator<Item = u64>, paper: (f64, f64)) -> Scale {
    let (low, high) = times.fold((u64::MAX, 1), |(low, high), ns| (low.min(ns), high.max(ns)));
    let low = (low.min(high) as f64).max(1.0);
    Scale::log((low / 1.2, high as f64 * 1.2), paper)
}

/// Answers per second, with the asked rate where there is one.
fn draw_rate(outcome: &Outcome, course: &[Stretch]) -> Option<String> {
    let mean = outcome.setting.asked_per_s;
    let lasting = || course.iter().filter(|stretch| stretch.length_s() >= SHORTEST_S);
    let rates: Vec<_> = lasting().filter_map(|s| Some((s, s.answered_per_s()?))).collect();
    let schedule: Vec<_> = lasting().filter_map(|s| Some((s, s.asked_per_s()?))).collect();
    let all = rates.iter().chain(&schedule).map(|(_, rate)| *rate);
    let highest = all.chain(mean).fold(0.0, f64::max);
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
    let at = |(stretch, rate): &(&Stretch, f64)| (middle(stretch, &x), y.at(*rate));
    let named = |name: &str, at| {
        let end = Vertex { at, band: None, tip: String::new() };
        Line { marks: Marks::None, ..line(name, "same", vec![end]) }
    };
    let asked = match (schedule.last(), mean) {
        (Some(last), _) => {
            for pair in schedule.windows(2) {
                paper.svg.line(at(&pair[0]), at(&pair[1]), "asked");
            }
            Some(named("asked", at(last)))
        }
        // Results of an older pollux have the mean of the measured part only.
        (None, Some(mean)) => {
            let from = x.at(measured_from_s(outcome));
            let right = paper.width().1;
            let at = y.at(mean);
            paper.svg.line((from, at), (right, at), "asked");
            Some(named("asked (mean)", (right, at)))
        }
        (None, None) => None,
    };
    let lines: Vec<Line> = asked.into_iter().chain([answered]).collect();
    paper.lines(&lines, NAME_WIDTH);
    Some(paper.finish())
}

/// Name, class, and the time of a stretch in nanoseconds.
type Series = (&'static str, &'static str, fn(&Stretch) -> Option<u64>);

/// Median, 99th percentile and longest time of the answers.
fn draw_latency(course: &[Stretch]) -> Option<String> {
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
fn draw_errors(course: &[Stretch]) -> Option<String> {
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
        let from = x.at(stretch.start_s);
        let to = x.at(stretch.end_s);
        let inset = ((to - from) * 0.1).min(3.0);
        let top = y.at(stretch.errors as f64);
        let tip = format!("{}: {}", span(stretch), number::plural(stretch.errors, "error"));
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
fn begin(course: &[Stretch], key: &str, height: f64, title: &str, about: &str) -> (Canvas, Scale) {
    let mut paper = Canvas::new(key, (title, about), (WIDTH, height), EDGES);
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
    let name = name.to_owned();
    let class = class.to_owned();
    Line { name, class, series: None, marks, pieces: vec![points] }
}

fn span(stretch: &Stretch) -> String {
    format!("{} to {} s", second(stretch.start_s), second(stretch.end_s))
}

/// A time on the axis to a hundredth, without zeros at its end.
fn second(second: f64) -> f64 {
    (second * 100.0).round() / 100.0
}

/// The curves of whole answers and of first bytes; `None` without answers.
fn draw_percentiles(outcome: &Outcome) -> Option<String> {
    let whole = curve(&outcome.latency);
    // Answers that came in one piece have the same curve twice.
    let first =
        Some(curve(&outcome.first_byte)).filter(|first| *first != whole).unwrap_or_default();
    let max = outcome.latency.max_ns()?;
    let last = whole.last()?.nines().max(1.0);
    let about = format!(
        "Curve over {}, from {} at 0 % to {} for the slowest.",
        number::plural(outcome.latency.count(), "answer"),
        number::time(whole[0].ns as f64),
        number::time(max as f64)
    );
    let title = "Latency by percentile";
    let mut paper = Canvas::new("percentiles", (title, &about), (WIDTH, PERCENTILES_HEIGHT), EDGES);
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
fn marks(paper: &mut Canvas, latency: &Distribution, x: &Scale, y: &Scale) {
    for (quantile, name) in &PARTS[1..] {
        // Fewer answers beyond it are single ones, which the curve shows without a name.
        if (latency.count() as f64 * (1.0 - quantile)) < ANSWERS_BEYOND_MIN {
            continue;
        }
        let Some(ns) = latency.known_quantile_ns(*quantile) else { continue };
        let at = (x.at(nines(*quantile)), y.at(ns as f64));
        let shown = number::time(ns as f64);
        paper.svg.dot(at, 4.0, "mark s0", &format!("{name} of the answers within {shown}"));
        paper.svg.text((at.0 - 7.0, at.1 - 8.0), "small end halo", &shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// Checks that every element that is opened is closed in order, and that no `&` or `<` stands
    /// alone.
    fn assert_well_formed(page: &str) {
        let body = page.strip_prefix("<!DOCTYPE html>\n").expect("the document type");
        let mut open = Vec::new();
        for piece in body.split('<').skip(1) {
            let (tag, text) = piece.split_once('>').expect("a tag has an end");
            let is_style = open.last() == Some(&"style");
            let entity = |rest: &str| {
                ["amp;", "lt;", "gt;", "quot;", "#"].iter().any(|name| rest.starts_with(name))
            };
            assert!(is_style || piece.split('&').skip(1).all(entity), "{piece}");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "{tag} {text}"),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split([' ', '\n']).next().expect("a name")),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn the_page_is_well_formed_and_needs_nothing_else() {
        let mut outcome = sample::outcome();
        outcome.targets.push(outcome.targets[0].clone());
        outcome.setting.asked_per_s = Some(1800.0);
        let page = html(&outcome);
        assert_well_formed(&page);
        for foreign in ["<script", "<link", "<img", "url(", "src="] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        for part in
            ["Over the run", "id=\"errors-t\"", "warm-up of 2.00 s", "99.9 % of the answers"]
        {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn what_an_outcome_says_cannot_become_markup() {
        let mut outcome = sample::outcome();
        let bad = "http://h/?a=\"><script>alert('x')</script>&b";
        outcome.setting.urls = vec![bad.to_owned(), bad.to_owned()];
        outcome.targets[0].url = bad.to_owned();
        outcome.targets.push(outcome.targets[0].clone());
        let page = html(&outcome);
        assert_well_formed(&page);
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;alert"));
    }

    #[test]
    fn an_empty_run_is_a_page_without_charts() {
        let page = html(&sample::empty());
        assert_well_formed(&page);
        assert!(page.contains("No request was answered.") && !page.contains("<svg"));
        assert!(!page.contains("NaN") && !page.contains("inf "), "{page}");
    }

    #[test]
    fn a_percentile_that_one_answer_is_beyond_has_no_name() {
        let mut outcome = sample::outcome();
        outcome.latency = sample::times(154_622, |index| 1_000_000 + index);
        let page = html(&outcome);
        assert!(page.contains("99.99 % of the answers within"));
        assert!(!page.contains("99.999 % of the answers within"));
    }

    #[test]
    fn a_run_of_one_answer_is_drawn() {
        let mut outcome = sample::outcome();
        outcome.latency = sample::times(1, |_| 1_000_000);
        outcome.first_byte = sample::times(1, |_| 1_000_000);
        outcome.seconds.truncate(3);
        assert_well_formed(&html(&outcome));
    }
}
