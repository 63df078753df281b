//! The page of a search (`--find-capacity --html`): what was found, rate against latency, and every trial.
//!
//! A pure function of the trials; it needs neither network nor script.

use pollux_load::Outcome;
use pollux_load::render::{count, plural, time};
use pollux_report::chart::{Canvas, Edges, Line, Marker, Marks, Scale, Vertex, WIDTH};
use pollux_report::markup::{capital, card, escape, scroll, section};
use pollux_report::number::{self, NA};
use pollux_report::{Cell, Table};

use super::{Row, Sought, Trial, Verdict};

/// Left of the paper stand the values of the axis, right of it the names of the lines.
const EDGES: Edges = Edges { left: 64.0, right: 120.0, top: 36.0, foot: 44.0 };
const HEIGHT: f64 = 320.0;
const NAME_WIDTH: f64 = 90.0;
const TICKS: usize = 6;

/// The search as one HTML file. `closed` was the loop before the trials; `rows` are its rates, rising.
pub(super) fn html(
    closed: &Outcome,
    sought: &Sought,
    verdict: &Verdict,
    rows: &[Row<'_>],
    trials: &[Trial],
) -> String {
    let setting = &closed.setting;
    let target = setting.urls.join(" ");
    let reached = number::si(closed.answered_per_s());
    let subtitle = format!(
        "{}, {} on {}; a closed loop reaches {reached} requests/s · {}",
        plural(setting.connections.into(), "connection"),
        plural(setting.threads.into(), "thread"),
        setting.driver,
        number::date_of_unix(closed.began_unix_s)
    );
    let found = verdict.words(sought);
    let head = format!(
        "<header><div><p class=\"load\">Capacity of <code>{}</code></p><h1>{}</h1></div></header>\n\
         <p class=\"subtitle\">{}</p>\n",
        escape(&target),
        escape(&capital(found.trim_start_matches("!! "))),
        escape(&subtitle)
    );
    let chart = match draw(rows, sought) {
        Some(svg) => format!("<figure class=\"course\">{}</figure>\n", scroll("chart", &svg)),
        None => "<p>No trial was answered.</p>".to_owned(),
    };
    let body = [
        head,
        section("capacity", "Rate and latency", &card(&chart)),
        section("trials", "Trials", &card(&table(sought, trials).html())),
    ];
    pollux_report::page(&format!("Capacity of {target}"), &body.concat())
}

/// Rates and the median latency of their trials, with the limit; `None` without any.
fn draw(rows: &[Row<'_>], sought: &Sought) -> Option<String> {
    let first = rows.first()?;
    let last = rows.last()?;
    let limit_ns = sought.at_most.as_nanos() as f64;
    let times = || rows.iter().map(|row| row.latency_ns).chain([limit_ns]);
    let low = times().fold(f64::INFINITY, f64::min);
    let high = times().fold(1.0, f64::max);
    let about = format!(
        "Line over {}, with the limit of {}.",
        plural(rows.len() as u64, "rate"),
        time(limit_ns)
    );
    let title = format!("{} by requests per second", sought.name());
    let mut paper = Canvas::new("capacity", (&title, &about), (WIDTH, HEIGHT), EDGES);
    let rates = (first.rate_per_s / 1.1, last.rate_per_s * 1.1);
    let x = Scale::log(rates, paper.width());
    let y = Scale::log(((low / 1.2).max(1.0), high * 1.2), paper.height());
    paper.svg.text((0.0, 14.0), "strong", &title);
    paper.values(&y, &y.ticks(TICKS), number::time_tick);
    let ticks: Vec<_> = x.ticks(TICKS).into_iter().map(|tick| (tick, number::tick(tick))).collect();
    paper.below(&x, &ticks);
    paper.caption("requests per second that were asked for");
    let vertex = |row: &Row<'_>| {
        let verdict = match (row.did_hold, row.broken_by) {
            (true, _) => "holds".to_owned(),
            (false, Some(why)) => format!("fails: {why}"),
            (false, None) => "fails".to_owned(),
        };
        let rate = count(row.rate_per_s.round() as u64);
        Vertex {
            at: (x.at(row.rate_per_s), y.at(row.latency_ns)),
            band: None,
            tip: format!("{rate}/s: {}, {verdict}", time(row.latency_ns)),
        }
    };
    let right = paper.width().1;
    let at = y.at(limit_ns);
    paper.svg.line((paper.width().0, at), (right, at), "asked");
    let end = Vertex { at: (right, at), band: None, tip: String::new() };
    let line = |name: &str, class: &str, marks, points| Line {
        name: name.to_owned(),
        class: class.to_owned(),
        series: None,
        marks,
        pieces: vec![points],
    };
    let lines = [
        line("limit", "same", Marks::None, vec![end]),
        line(&sought.name(), "s0", Marks::Each(Marker::Disc), rows.iter().map(vertex).collect()),
    ];
    paper.lines(&lines, NAME_WIDTH);
    Some(paper.finish())
}

fn table(sought: &Sought, trials: &[Trial]) -> Table {
    let quantile = format!("#{}", sought.name());
    let mut table = Table::new(["#asked/s", "#answered/s", &*quantile, "#errors", "verdict"]);
    for trial in trials {
        let rate = |rate: f64| Cell::figure(&count(rate.round() as u64));
        let latency = trial.latency_ns.map(|ns| Cell::figure(&time(ns as f64)));
        let bound = if trial.is_generator_bound { " (generator bound)" } else { "" };
        let verdict = match &trial.broken_by {
            None => format!("holds{bound}"),
            Some(why) => format!("fails{bound}: {why}"),
        };
        table.row(vec![
            rate(trial.rate_per_s),
            rate(trial.answered_per_s),
            latency.unwrap_or_else(|| Cell::missing(NA, "no answers")),
            Cell::figure(&count(trial.errors)),
            Cell::text(&verdict),
        ]);
    }
    table
}
