//! The sections of the page, in reading order: answer, results, why, the published result, every run, the machine.
//!
//! `html` of the module above puts them one after the other. Each is a function from the record to markup; a section
//! about which the record holds nothing is empty text. On the first screen stand the question, the answers, and whether
//! to believe them; then for each comparison its curves or its forest plot, and the table.
//!
//! Sections that experiments bring have columns of their own. All their figures are medians over the timing runs; page
//! and CI summary have the same tables. Under them stand the counts of the kernel as `perf stat` prints them, divided
//! by requests, where the section asks for them; what could not be counted says why.

pub(super) mod behind;

use pollux_host::Reading;
use pollux_report::markup::{card, card_of, details, escape, notes, section, strip_with};
use pollux_report::number::NA;
use pollux_report::{Cell, Table, Tone};
use pollux_stats as stats;

use super::chart::{self, Shared, intervals};
use super::words::{self, figure_of};
use super::{
    Arms, Comparison, NOISE_ARM, Panel, advice, glossary, grouped, in_order, number, panel_gap,
};
use crate::experiments::{self, Section, Topic};
use crate::record::{Answer, CountingRun, Key, Measurement, Record, ResultRow, Verdict};

/// Points of an experiment that are shown at once; of more, the first and the last.
const POINTS_OPEN_MAX: usize = 3;
/// Facts of the environment that stand under the title, by name.
const SUBTITLE_FACTS: [&str; 3] = ["kernel", "cpu", "memory"];
const PERF: &str = "Task clock is the cost of the results where arms took turns, else a median of the timing runs, as CPUs \
                    utilized is; the rest is from the counting pass.";

/// What `draw` makes of the points that are shown at once, then of the others, folded away; it is
/// handed a part of the keys of its charts as well. Empty where it makes nothing.
fn folded(points: &[&str], mut draw: impl FnMut(&[&str], &str) -> String) -> String {
    match points {
        [] => String::new(),
        [first, between @ .., last] if points.len() > POINTS_OPEN_MAX => {
            let open = draw(&[first, last], "");
            let rest = draw(between, "-more");
            if rest.is_empty() {
                open
            } else {
                open + &details(&format!("The other {} points", between.len()), &rest)
            }
        }
        all => draw(all, ""),
    }
}

/// Charts side by side, each under its point; `draw` is handed the place of each.
fn panels(points: &[&str], mut draw: impl FnMut(usize, &str) -> Option<String>) -> String {
    let one = |(place, point): (usize, &&str)| {
        Some(format!("<div><h4>{}</h4>{}</div>", escape(point), draw(place, point)?))
    };
    let charts: String = points.iter().enumerate().filter_map(one).collect();
    format!("<div class=\"panels\">{charts}</div>")
}

/// Title, subtitle, the badge of all tables, and a warning when the run did not go to its end.
pub(super) fn title(record: &Record, comparisons: &[Comparison<'_>]) -> String {
    let (badge, class) = words::badge_of_all(record, comparisons);
    let ending = words::ending(record)
        .map_or_else(String::new, |words| format!("<p class=\"warning\">{}</p>\n", escape(&words)));
    format!(
        "<header><div><h1>{}</h1><p class=\"subtitle\">{}</p></div>\
         <p class=\"corner\"><span class=\"badge {class}\">{}</span>\
         <button type=\"button\" id=\"theme\" class=\"js\" title=\"light or dark\" aria-label=\"light or dark\">◐</button></p>\
         </header>\n{ending}",
        escape(&record.job.question),
        subtitle(record),
        escape(&badge),
    )
}

fn subtitle(record: &Record) -> String {
    let mut parts =
        vec!["pollux lab".to_owned(), format!("job <code>{}</code>", escape(&record.job.name))];
    for name in SUBTITLE_FACTS {
        parts.extend(record.fact(name).map(|value| escape(value)));
    }
    let blocks = record.trust.blocks;
    let duration = number::duration(record.duration_s);
    parts.push(format!("{blocks} {}s, {duration}", words::unit(record)));
    parts.push(escape(&number::date(&record.started)));
    parts.join(" · ")
}

/// A card for each kind of load: the choice, its own figure and saving, what to do, and why.
pub(super) fn answers(record: &Record) -> String {
    // A figure stays with its unit where a line ends.
    let shown = |text: &str| escape(text).replace(" %", "\u{a0}%").replace(" µs", "\u{a0}µs");
    let card = |answer: &Answer| {
        let advice = advice::of(record, answer);
        let is_open = advice.as_ref().is_some_and(|advice| !advice.is_decided);
        let class = if is_open { "choice open" } else { "choice" };
        let advice = advice.map_or_else(String::new, |advice| {
            let figures = shown(&advice.figures);
            let action = shown(&advice.action);
            format!(
                "<p class=\"figures\">{figures}</p><p class=\"action\">To do: <b>{action}</b></p>"
            )
        });
        let load = shown(&words::load(record, answer));
        let choice = shown(&answer.choice);
        let reason = shown(&answer.reason);
        format!(
            "<div class=\"answer\"><p class=\"load\">{load}</p><p class=\"{class}\">{choice}</p>{advice}\
             <p class=\"reason\">{reason}</p></div>",
        )
    };
    match record.answers.as_slice() {
        [] => "<p class=\"warning\">No answer: nothing was decided in this run.</p>\n".to_owned(),
        answers => format!(
            "<div class=\"answers\">{}</div>\n",
            answers.iter().map(card).collect::<String>()
        ),
    }
}

/// Whether to believe it, in one strip.
pub(super) fn trust(record: &Record) -> String {
    strip_with(words::trust(&record.trust), glossary::heading)
}

/// A section for each comparison, with a badge of its own.
pub(super) fn results(record: &Record, comparisons: &[Comparison<'_>], arms: &Arms<'_>) -> String {
    let mut page = String::new();
    for (index, comparison) in comparisons.iter().enumerate() {
        let panels = comparison.panels();
        let plot = intervals::forest(record, comparison);
        let body = if panels.is_empty() {
            card(&(plot + &left_out(record, comparison)))
        } else {
            let curves = chart::curves(record, comparison, arms, &format!("curve-{index}"));
            let summary = format!("All {} comparisons with their intervals", comparison.rows.len());
            let corner = format!("ratio to {}, {}:", comparison.baseline(), panels[0].axis);
            let matrix = matrix(record, comparison, &panels, &corner).html();
            card(&curves) + &card(&(matrix + &details(&summary, &plot)))
        };
        let (badge, class) = words::badge_of(record, &comparison.rows);
        let badge = format!(
            "<p class=\"judged\"><span class=\"badge {class}\">{}</span></p>\n",
            escape(&badge)
        );
        let heading = heading(comparison, &panels);
        page.push_str(&section(&format!("result-{index}"), &heading, &(badge + &body)));
    }
    page
}

fn heading(comparison: &Comparison<'_>, panels: &[Panel<'_>]) -> String {
    match panels.first() {
        Some(panel) => {
            format!("{}: {} over {}", comparison.title, comparison.metric, panel.axis)
        }
        None => comparison.heading(),
    }
}

/// What was planned for this experiment and has no row.
fn left_out(record: &Record, comparison: &Comparison<'_>) -> String {
    let ours = record.left_out.iter().filter(|left| left.experiment == comparison.experiment);
    let lines: Vec<_> = ours
        .map(|left| {
            let what = match (left.point.as_str(), left.arm.as_str()) {
                ("*", "*") => "everything".to_owned(),
                ("*", arm) => arm.to_owned(),
                (point, "*") => point.to_owned(),
                (point, arm) => format!("{point}, {arm}"),
            };
            format!("{what}: not measured: {}", left.reason)
        })
        .collect();
    notes(&lines)
}

/// Ratios at a glance: arms down, axis across, coloured by verdict; each panel is a group where there
/// are several. `corner` stands over the arms.
pub(super) fn matrix(
    record: &Record,
    comparison: &Comparison<'_>,
    panels: &[Panel<'_>],
    corner: &str,
) -> Table {
    let mut values: Vec<_> = panels.iter().flat_map(|panel| panel.values.iter().copied()).collect();
    values.sort_by(|a, b| a.1.total_cmp(&b.1));
    values.dedup_by(|a, b| a.0 == b.0);
    let names = values.iter().map(|(written, _)| format!("#{}", number::axis_value(written)));
    let mut table = Table::new(std::iter::once(corner.to_owned()).chain(names));
    for panel in panels {
        if panels.len() > 1 {
            table.group(&words::held(panel.held.iter().copied()));
        }
        for arm in panel.arms() {
            let cell = |(written, _): &(&str, f64)| cell(record, comparison, panel, arm, written);
            let cells = values.iter().map(cell);
            table.row(std::iter::once(Cell::text(arm)).chain(cells).collect::<Vec<_>>());
        }
    }
    table
}

fn cell(
    record: &Record,
    comparison: &Comparison<'_>,
    panel: &Panel<'_>,
    arm: &str,
    written: &str,
) -> Cell {
    let reason = || panel_gap(record, comparison, panel, arm, written).unwrap_or("not measured");
    let Some(row) = panel.row(arm, written) else { return Cell::missing("not run", reason()) };
    match (row.verdict, row.value, row.ratio) {
        (Verdict::Failed, ..) => Cell::missing("failed", reason()),
        (Verdict::Baseline, Some(value), _) => {
            Cell::number(&words::amount(value, &row.unit), value)
                .title(&format!("{} {}", words::value(row), row.unit))
                .tone(Tone::Dim)
        }
        (verdict, _, Some(ratio)) => {
            let word = words::judgement(row);
            let cell = words::cell(row).unwrap_or_default();
            let title = format!("{word}: {}", words::ratio_and_interval(row));
            Cell::number(&cell, ratio).title(&title).tone(words::tone(verdict))
        }
        _ => Cell::missing("not run", reason()),
    }
}

/// Those of which a record has something.
pub(super) fn there(record: &Record) -> Vec<&'static Section> {
    let mut sections = experiments::sections();
    sections.retain(|section| timed(record, section.is_of).next().is_some());
    sections
}

/// All of them, in the order of the experiments.
pub(super) fn html(record: &Record, arms: &Arms<'_>) -> String {
    let sections = there(record).into_iter();
    sections.map(|each| section(each.id, each.title, &body(each, record, arms))).collect()
}

fn body(section: &Section, record: &Record, arms: &Arms<'_>) -> String {
    let mut body = String::new();
    for (index, (part, runs)) in by_experiment(timed(record, section.is_of)).iter().enumerate() {
        let mut remarks = notes(&(section.remarks)(record, part));
        for topic in section.topics {
            let key = format!("{}-{index}", section.id);
            let shown = if topic.is_drawn {
                drawn(topic, runs, arms, &key)
            } else {
                tabled(topic, runs, &points(runs), arms)
            };
            let shown = shown + &std::mem::take(&mut remarks);
            if !shown.is_empty() {
                body += &card_of(&own_heading(record, part, topic), topic.about, &shown);
            }
        }
        if let Some(unit) = section.counts_for_each {
            let own_heading =
                format!("{}: as perf stat prints it, for each {unit}", words::part(record, part));
            body += &card_of(&own_heading, PERF, &perf_table(record, part));
        }
    }
    body
}

/// Every table of the summary with its heading and how it is to be read.
pub(super) fn tables(record: &Record, arms: &Arms<'_>) -> Vec<(String, &'static str, Table)> {
    let mut tables = Vec::new();
    for section in there(record).into_iter().filter(|section| section.is_in_summary) {
        for (part, runs) in by_experiment(timed(record, section.is_of)) {
            for topic in section.topics {
                let table = table(topic, &runs, &points(&runs), arms);
                tables.extend(
                    table.map(|table| (own_heading(record, part, topic), topic.about, table)),
                );
            }
        }
    }
    tables
}

fn own_heading(record: &Record, part: &str, topic: &Topic) -> String {
    format!("{}: {}", words::part(record, part), topic.heading)
}

fn tabled(topic: &Topic, runs: &[Timed<'_>], at: &[&str], arms: &Arms<'_>) -> String {
    table(topic, runs, at, arms).map_or_else(String::new, |table| table.html())
}

/// The curves of shares of the points with several workers, above the table.
fn drawn(topic: &Topic, runs: &[Timed<'_>], arms: &Arms<'_>, key: &str) -> String {
    let several = runs.iter().filter(|(_, run)| run.worker_calls.len() > 1);
    let several: Vec<Timed<'_>> = several.copied().collect();
    folded(&points(&several), |points, more| {
        let charts = panels(points, |place, point| {
            let here = || several.iter().filter(|(place, _)| place[1] == point);
            let names = here().map(|(place, _)| place[2]).filter(|arm| *arm != NOISE_ARM);
            let of_arm = |arm: &str| {
                let runs = here().filter(|(place, _)| place[2] == arm);
                let counts = runs.map(|(_, run)| run.worker_calls.as_slice());
                Shared { arm: arm.to_owned(), shares: stats::mean_shares(counts) }
            };
            let shared: Vec<Shared> = arms.sorted(names).into_iter().map(of_arm).collect();
            Some(chart::lorenz(&shared, arms, &format!("{key}{more}-{place}")))
        });
        charts + &tabled(topic, &several, points, arms)
    })
}

/// A timing run that went to its end, with where it was.
type Timed<'a> = (Key<'a>, &'a Measurement);

/// Those of a record that are of a kind.
fn timed(record: &Record, is_of: fn(&Measurement) -> bool) -> impl Iterator<Item = Timed<'_>> {
    let measured = record.runs.iter().filter_map(|run| Some((run.key(), run.measured()?)));
    measured.filter(move |(_, run)| is_of(run))
}

/// Their experiments, each with its runs.
fn by_experiment<'a>(runs: impl Iterator<Item = Timed<'a>>) -> Vec<(&'a str, Vec<Timed<'a>>)> {
    grouped(runs.map(|(place, run)| (place[0], (place, run))))
}

fn points<'a>(runs: &[Timed<'a>]) -> Vec<&'a str> {
    in_order(runs.iter().map(|(place, _)| place[1]))
}

/// The table of some points; an arm without any of its figures is not in it, and there is none
/// without arms.
fn table(topic: &Topic, runs: &[Timed<'_>], points: &[&str], arms: &Arms<'_>) -> Option<Table> {
    let headings = topic.columns.iter().map(|column| format!("#{}", column.heading));
    let mut table = Table::new(std::iter::once("arm".to_owned()).chain(headings));
    for point in points {
        let here = || runs.iter().filter(|(place, _)| place[1] == *point);
        // Runs stand in random order; tables show arms in that of the plan.
        let rows = arms.sorted(here().map(|(place, _)| place[2])).into_iter().map(|arm| {
            let runs = here().filter(|(place, _)| place[2] == arm);
            let runs: Vec<&Measurement> = runs.map(|(_, run)| *run).collect();
            (arm, topic.columns.iter().map(|column| column.median(&runs)).collect())
        });
        let has_one = |(_, values): &(&str, Vec<Option<f64>>)| values.iter().any(Option::is_some);
        let mut rows = rows.filter(has_one).peekable();
        if rows.peek().is_some() {
            table.group(point);
        }
        for (arm, values) in rows {
            let cells = topic
                .columns
                .iter()
                .zip(values)
                .map(|(column, value)| Cell::number_or(value, column.show, NA, column.lacking));
            table.row(std::iter::once(Cell::text(arm)).chain(cells).collect::<Vec<_>>());
        }
    }
    (!table.is_empty()).then_some(table)
}

const HEADINGS: [&str; 13] = [
    "arm",
    "#task clock µs",
    "#CPUs utilized",
    "#context switches",
    "#CPU migrations",
    "#page faults",
    "#system calls",
    "#cycles",
    "#instructions",
    "#instructions per cycle",
    "#branches",
    "#branch misses",
    "#miss rate",
];

/// The table of one experiment; under it why a count is missing, each reason once.
fn perf_table(record: &Record, experiment: &str) -> String {
    let mut table = Table::new(HEADINGS);
    let runs: Vec<_> = record.counting.iter().filter(|run| run.experiment == experiment).collect();
    for point in in_order(runs.iter().map(|run| run.point.as_str())) {
        table.group(point);
        for run in runs.iter().filter(|run| run.point == point) {
            let each = |names: &[&str]| run.per_event(names);
            let show = |reading: Reading<f64>| figure_of(&reading, number::si);
            let cycles = each(&["cycles"]);
            let instructions = each(&["instructions"]);
            let branches = each(&["branches"]);
            let misses = each(&["branch_misses"]);
            let share = misses.clone().and_then(|m| branches.clone().map(|b| m / b));
            let per_cycle = instructions.clone().and_then(|i| cycles.clone().map(|c| i / c));
            table.row([
                Cell::text(&run.arm),
                task_clock(record, run),
                counted(record, run, |m| m.figures.get("server_busy").copied()),
                show(each(&["switches_voluntary", "switches_involuntary"])),
                show(each(&["migrations"])),
                show(each(&["page_faults"])),
                show(each(&["system_calls"])),
                show(cycles),
                show(instructions),
                show(per_cycle),
                show(branches),
                show(misses),
                figure_of(&share, number::percent),
            ]);
        }
    }
    table.html() + &notes(&missing(&runs))
}

/// Where arms took turns there is one cost of an arm at a point, that of its row.
fn task_clock(record: &Record, like: &CountingRun) -> Cell {
    let in_turns = |row: &&ResultRow| row.key() == like.key() && row.turns.is_some();
    let row = record.results.iter().find(in_turns).filter(|row| row.unit.starts_with("µs"));
    match row.and_then(|row| row.value) {
        Some(value) => Cell::number(&number::si(value), value),
        None => counted(record, like, |m| Some(m.cpu_ns_per_event()? / 1e3)),
    }
}

/// The median of a figure over the timing runs of the same arm at the same point.
fn counted(record: &Record, like: &CountingRun, read: fn(&Measurement) -> Option<f64>) -> Cell {
    Cell::number_or(record.median_at(like.key(), read), number::si, NA, "no timing run has it")
}

/// One line for each reason, with the counts that it took away.
fn missing(runs: &[&CountingRun]) -> Vec<String> {
    let readings = runs.iter().flat_map(|run| &run.kernel);
    let missing = readings.filter_map(|(name, reading)| {
        let reason = reading.reason()?;
        // A reason may begin with the name of what it took away.
        Some((reason.split_once(": ").map_or(reason, |(_, reason)| reason), name.as_str()))
    });
    let line = |(reason, names): (&str, Vec<&str>)| {
        let names = in_order(names.into_iter()).join(", ").replace('_', " ");
        format!("n/a: {names}: {reason}")
    };
    grouped(missing).into_iter().map(line).collect()
}
