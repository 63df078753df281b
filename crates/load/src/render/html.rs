//! The page: one file for a browser, light and dark, without network and without script.
//!
//! The answer stands first, then what makes it doubtful, then curves, then all numbers.

use std::fmt::Write as _;

use super::chart;
use super::facts::{self, grid};
use super::series::curve;
use super::series::{Stretch, stretches};
use crate::Outcome;
use pollux_report::Table;
use pollux_report::markup::{card, details, escape, scroll, section, strip};
use pollux_report::number::{self, or_na};

/// More stretches than this are narrower than the marks that stand for them.
const STRETCHES_MAX: usize = 300;
/// Rows of the percentile table: each so many points of the curve.
const CURVE_STRIDE: usize = 5;

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
        some("targets", "Targets", facts::targets(outcome).as_ref().map(Table::html)),
        some(
            "crowd",
            "Connections beside the active ones",
            facts::crowd(outcome).as_ref().map(Table::html),
        ),
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
        ("answers per second", or_na(facts::answered_per_s(outcome), number::si)),
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
    let Some(svg) = chart::percentiles(outcome) else {
        return section("latency", "Latency", &card("<p>There was no answer to time.</p>"));
    };
    let since = match facts::is_closed_loop(outcome) {
        true => "Counted from when a request was sent.",
        false => {
            "Counted from when a request was due, whether or not it could be sent then: requests \
             that had to wait are included."
        }
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
    let charts = [chart::rate(outcome, course), chart::latency(course), chart::errors(course)];
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
    let rows = facts::errors_by_kind(&outcome.errors).into_iter().map(row);
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
    fn a_run_of_one_answer_is_drawn() {
        let mut outcome = sample::outcome();
        outcome.latency = sample::times(1, |_| 1_000_000);
        outcome.first_byte = sample::times(1, |_| 1_000_000);
        outcome.seconds.truncate(3);
        assert_well_formed(&html(&outcome));
    }
}
