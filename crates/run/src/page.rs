//! The figures as one HTML file (advice first, then curves, then all numbers), and as JSON for programs.

use pollux_report::chart::bars::{Bar, Head, small};
use pollux_report::chart::{Canvas, Edges, Line, Marks, Scale, Vertex, WIDTH};
use pollux_report::markup::{card, details, escape, scroll, section, strip};
use pollux_report::number::{self, or_na};
use pollux_report::{Cell, Table};
use pollux_sys::loop_stats::{Counter, Figures, Histogram, events_of, time_of};
use serde_json::{Map, Value, json as value};

use crate::show::{self, LongTurn, sentence};
use crate::summary::{self, Interval};
use crate::{Advice, Course, Findings, Source, Summary, verdict};

const EDGES: Edges = Edges { left: 64.0, right: 120.0, top: 36.0, foot: 44.0 };
const HEIGHT: f64 = 240.0;
/// Room for the name of a line.
const NAME_WIDTH: f64 = 90.0;
/// Lines across the paper.
const TICKS: usize = 6;
/// What is shorter has no rate.
const SHORTEST_S: f64 = 0.05;

/// What the `schema` field says: programs check name and version.
const SCHEMA: &str = "pollux-run";
/// What the `version` field says; it grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// A line: its name, its class, the value of an interval.
type Series = (&'static str, &'static str, fn(&Interval) -> Option<f64>);

/// The page of a run; `command` is what was run.
pub(crate) fn page(findings: &Findings, course: &Course, command: &str) -> String {
    let summary = &findings.summary;
    let lasted = number::duration(summary.lasted.as_secs_f64());
    let answer = match &summary.total {
        Some(total) => show::answer(summary, total, &lasted),
        None => format!("No process called epoll in {lasted}"),
    };
    let head = format!(
        "<header><div><p class=\"load\">The event loop of <code>{}</code></p><h1>{}</h1></div></header>\n",
        escape(command),
        escape(&answer),
    );
    let sentence = format!("<p><strong>{}</strong></p>\n", escape(&verdict(findings)));
    let advice = findings.advice.iter().map(finding);
    let advice: String = std::iter::once(sentence).chain(advice).collect();
    let rest = summary.total.as_ref().map(|total| {
        [
            advice,
            boxes(total),
            over_time(&course.intervals()),
            section(
                "processes",
                "Processes",
                &card(&(show::processes(summary).html() + &facts(summary, total))),
            ),
            section("histograms", "Histograms", &card(&histograms(total))),
            turns(&findings.turns),
        ]
        .concat()
    });
    pollux_report::page(
        &format!("The event loop of {command}"),
        &(head + &rest.unwrap_or_default()),
    )
}

fn finding(advice: &Advice) -> String {
    let place = advice.place.as_ref().map(|place| format!(" In <code>{}</code>.", escape(place)));
    format!(
        "<div class=\"finding\"><strong>{}</strong>{} {}</div>\n",
        escape(&sentence(&advice.measured)),
        place.unwrap_or_default(),
        escape(&sentence(advice.remedy)),
    )
}

fn boxes(total: &Figures) -> String {
    let get = |counter| total.get(counter);
    let updates = get(Counter::Adds) + get(Counter::Mods) + get(Counter::Dels);
    let per =
        |of: u64, by: u64| or_na((by > 0).then(|| of as f64 / by as f64), number::significant);
    let longest = total.turns.first().map(|turn| turn.lasted_ns as f64);
    strip([
        ("waits", number::count(get(Counter::Waits))),
        ("events per wait", per(get(Counter::Events), get(Counter::Waits))),
        ("updates per event", per(updates, get(Counter::Events))),
        ("accepted", number::count(get(Counter::Accepted))),
        (
            "in waits",
            number::part(get(Counter::WaitNs), get(Counter::WaitNs) + get(Counter::TurnNs)),
        ),
        ("longest turn", or_na(longest, number::time)),
    ])
}

fn over_time(intervals: &[Interval]) -> String {
    let long: Vec<&Interval> = intervals.iter().filter(|one| one.seconds() >= SHORTEST_S).collect();
    if long.len() < 2 {
        return String::new();
    }
    let rate = |of: u64, interval: &Interval| Some(of as f64 / interval.seconds());
    let rates: [Series; 3] = [
        ("events", "s0", |one| Some(one.events as f64 / one.seconds())),
        ("waits", "s1", |one| Some(one.waits as f64 / one.seconds())),
        ("updates", "s2", |one| Some(one.updates as f64 / one.seconds())),
    ];
    let per_wait: [Series; 1] =
        [("per wait", "s0", |one| (one.waits > 0).then(|| one.events as f64 / one.waits as f64))];
    let shares: [Series; 1] = [("in waits", "s0", |one| one.in_waits)];
    let charts = [
        chart("rates", "Events, waits and updates per second", &long, &rates, number::tick),
        chart("per-wait", "Events per wait", &long, &per_wait, number::tick),
        chart("in-waits", "Share of the time in waits", &long, &shares, number::percent_tick),
    ];
    let mut table =
        Table::new(["time", "#waits/s", "#events/s", "#updates/s", "#accepted/s", "#in waits"]);
    for one in long {
        let shown = |of: u64| Cell::figure(&or_na(rate(of, one), number::si));
        table.row([
            Cell::text(&format!("{:.2} to {:.2} s", one.from_s, one.to_s)),
            shown(one.waits),
            shown(one.events),
            shown(one.updates),
            shown(one.accepted),
            Cell::figure(&or_na(one.in_waits, number::percent)),
        ]);
    }
    let numbers = details("The curves in numbers", &table.html());
    let figures: String = charts
        .iter()
        .map(|svg| format!("<figure class=\"course\">{}</figure>\n", scroll("chart", svg)))
        .collect();
    section(
        "course",
        "Over the run",
        &card(&format!("{figures}<div class=\"data\">{numbers}</div>\n")),
    )
}

fn chart(
    key: &str,
    title: &str,
    intervals: &[&Interval],
    series: &[Series],
    tick: fn(f64) -> String,
) -> String {
    let about = format!("Lines over {} intervals of the run.", intervals.len());
    let mut paper = Canvas::new(key, (title, &about), (WIDTH, HEIGHT), EDGES);
    paper.svg.text((0.0, 14.0), "strong", title);
    let end = intervals.last().map_or(1.0, |last| last.to_s);
    let x = Scale::linear((0.0, end), paper.width());
    let values = series.iter().flat_map(|(.., of)| intervals.iter().filter_map(move |one| of(one)));
    let highest = values.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let y = Scale::linear((0.0, highest * 1.08), paper.height());
    paper.values(&y, &y.ticks(TICKS), tick);
    let ticks: Vec<_> = x.ticks(10).into_iter().map(|tick| (tick, number::tick(tick))).collect();
    paper.below(&x, &ticks);
    paper.caption("seconds since the start");
    let lines: Vec<Line> = series
        .iter()
        .map(|(name, class, of)| {
            let vertex = |one: &&Interval| {
                let value = of(one)?;
                let at = (x.at(f64::midpoint(one.from_s, one.to_s)), y.at(value));
                let tip = format!("{:.2} to {:.2} s: {name} {}", one.from_s, one.to_s, tick(value));
                Some(Vertex { at, band: None, tip })
            };
            let pieces = vec![intervals.iter().filter_map(vertex).collect()];
            let name = (*name).to_owned();
            let class = (*class).to_owned();
            Line { name, class, series: None, marks: Marks::Pointer, pieces }
        })
        .collect();
    paper.lines(&lines, NAME_WIDTH);
    paper.finish()
}

fn facts(summary: &Summary, total: &Figures) -> String {
    let facts = show::facts(summary, total);
    let rows = facts.iter().map(|(name, text)| format!("<dt>{name}</dt><dd>{}</dd>", escape(text)));
    format!("<dl class=\"facts\">{}</dl>", rows.collect::<String>())
}

fn histograms(total: &Figures) -> String {
    let chart = |(place, (heading, more, histogram)): (usize, &(&str, &str, _))| {
        let buckets = show::buckets(total, *histogram);
        let sum: u64 = buckets.iter().map(|(_, count)| count).sum();
        let bar = |(words, count): (String, u64)| Bar {
            tip: format!("{words}: {} ({})", number::count(count), number::part(count, sum)),
            share: count as f64 / sum.max(1) as f64,
            name: words,
        };
        let bars: Vec<Bar> = buckets.into_iter().map(bar).collect();
        let beside = number::count(sum);
        let head = Head { name: heading, beside: &beside, class: "s0", series: None };
        let about = format!("A bar for each of {} classes{more}.", bars.len());
        small(&format!("histogram-{place}"), (heading, &about), head, &bars)
    };
    let charts: String = show::HISTOGRAMS.iter().enumerate().map(chart).collect();
    format!("<div class=\"multiples\">{charts}</div>")
}

fn turns(turns: &[LongTurn]) -> String {
    if turns.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["call", "#times", "#together", "#after the wait", "called by"]);
    for turn in turns {
        table.group(&show::turn_text(turn));
        for call in &turn.calls {
            let fd = call.fd.map_or_else(String::new, |fd| format!("({fd})"));
            table.row([
                Cell::code(&format!("{}{fd}", call.call)),
                Cell::count(call.times),
                Cell::figure(&number::time(call.lasted_ns as f64)),
                Cell::figure(&number::time(call.after_ns as f64)),
                Cell::code(&call.place),
            ]);
        }
    }
    section("turns", "Longest turns", &card(&table.html()))
}

/// The ends of a bucket; the last one is open.
type BucketOf = fn(usize) -> (u64, Option<u64>);

/// One indented object. Times are nanoseconds where the name ends in `_ns`.
pub(crate) fn json(findings: &Findings, course: &Course) -> String {
    let summary = &findings.summary;
    let process = |process: &crate::Process| {
        let mut fields = figures(&process.figures, summary.source);
        fields.insert("pid".to_owned(), process.figures.pid.into());
        fields.insert("program".to_owned(), process.program().into());
        fields.insert("name".to_owned(), process.name().into());
        fields.insert("threads".to_owned(), process.threads.into());
        Value::Object(fields)
    };
    let advice = |advice: &Advice| {
        value!({
            "kind": advice.kind,
            "change": advice.change,
            "measured": advice.measured,
            "remedy": advice.remedy,
            "place": advice.place,
        })
    };
    let document = value!({
        "schema": SCHEMA,
        "version": VERSION,
        "verdict": verdict(findings),
        "lasted_ns": u64::try_from(summary.lasted.as_nanos()).unwrap_or(u64::MAX),
        "threads_lost": summary.threads_lost,
        "programs_uncounted": summary.programs_uncounted,
        "source": summary.source.name(),
        "records_lost": summary.source.records_lost(),
        "unknown": summary.total.as_ref().map_or_else(Map::new, |of| unknown(summary.source, of)),
        "total": summary.total.as_ref().map(|total| figures(total, summary.source)),
        "processes": summary.processes.iter().map(process).collect::<Vec<_>>(),
        "intervals": course.intervals(),
        "longest_turns": findings.turns,
        "advice": findings.advice.iter().map(advice).collect::<Vec<_>>(),
    });
    let mut text = serde_json::to_string_pretty(&document).expect("plain data becomes JSON");
    text.push('\n');
    text
}

/// Why counters are null, by their names.
fn unknown(source: Source, of: &Figures) -> Map<String, Value> {
    let unknown = |counter: &Counter| {
        Some((counter.name().to_owned(), summary::unknown(source, of, *counter)?.into()))
    };
    Counter::ALL.iter().filter_map(unknown).collect()
}

fn figures(of: &Figures, source: Source) -> Map<String, Value> {
    let mut fields = Map::new();
    let ratios = show::ratios(of).map(|(name, value)| (name.to_owned(), value.into()));
    fields.insert("ratios".to_owned(), Value::Object(ratios.into_iter().collect()));
    let longest = of.turns.first().map(|turn| turn.lasted_ns);
    fields.insert("longest_turn_ns".to_owned(), longest.into());
    for counter in Counter::ALL {
        let value = summary::unknown(source, of, *counter).is_none().then(|| of.get(*counter));
        fields.insert(counter.name().to_owned(), value.into());
    }
    for histogram in Histogram::ALL {
        let (bucket_of, unit): (BucketOf, _) = match histogram {
            Histogram::EventsPerWait => (events_of, ""),
            Histogram::TurnLength | Histogram::WaitLength => (time_of, "_ns"),
        };
        let bucket = |(index, count): (usize, &u64)| {
            let (from, to) = bucket_of(index);
            let mut fields = Map::new();
            fields.insert(format!("from{unit}"), from.into());
            fields.insert(format!("to{unit}"), to.into());
            fields.insert("count".to_owned(), (*count).into());
            Value::Object(fields)
        };
        let buckets: Vec<Value> = of.histogram(*histogram).iter().enumerate().map(bucket).collect();
        fields.insert(histogram.name().to_owned(), buckets.into());
    }
    fields
}
