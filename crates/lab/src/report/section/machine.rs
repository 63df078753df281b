//! The end of the page: what could not be read, what was left out, the machine, the job.
//!
//! Everything that a reader needs to repeat the run or to doubt it.

use pollux_report::markup::{card, details, escape, escape_json, notes, section};
use pollux_report::{Cell, Table, Tone};

use crate::host::Reading;
use crate::record::{Fact, Record, Source};
use crate::report::view::grouped;
use crate::report::words::figure_of;
use crate::report::{number, words};

/// The sources that do not work here, each with its reason and remedy.
pub(crate) fn sources(record: &Record) -> String {
    let (readable, missing): (Vec<_>, Vec<_>) =
        record.sources.iter().partition(|source| source.available);
    let mut body = match missing.is_empty() {
        true => "<p>Every source could be read.</p>".to_owned(),
        false => missing_table(&missing),
    };
    if !readable.is_empty() {
        let mut table = Table::new(["source", "gives"]);
        for source in &readable {
            table.row([Cell::text(&source.name), Cell::text(&source.gives)]);
        }
        body.push_str(&details(
            &format!("{} sources that could be read", readable.len()),
            &table.html(),
        ));
    }
    section("unread", "could not be read", &card(&body))
}

fn missing_table(missing: &[&Source]) -> String {
    let mut table = Table::new(["source", "would give", "why not", "enable with"]);
    for source in missing {
        let enable = source.enable.as_deref().map_or_else(
            || Cell::text("–").tone(Tone::Missing),
            |command| Cell::code(command).wide(),
        );
        table.row([
            Cell::text(&source.name),
            Cell::text(&source.gives),
            Cell::text(source.reason.as_deref().unwrap_or("no reason was recorded")).wide(),
            enable,
        ]);
    }
    table.html()
}

/// What was planned and not run, and how the plan was cut.
pub(crate) fn left_out(record: &Record) -> String {
    if record.left_out.is_empty() && record.cuts.is_empty() {
        return String::new();
    }
    let mut body = notes(&record.cuts);
    if !record.left_out.is_empty() {
        let mut table = Table::new(["experiment", "arm", "points", "why"]);
        let word = |text: &str| if text == "*" { "all".to_owned() } else { text.to_owned() };
        let left_out = record.left_out.iter();
        let left_out =
            left_out.map(|left| ((&left.experiment, &left.arm, &left.reason), word(&left.point)));
        for ((experiment, arm, reason), points) in grouped(left_out) {
            table.row([
                Cell::text(experiment),
                Cell::text(&word(arm)),
                Cell::text(&points.join(" · ")).wide(),
                Cell::text(reason).wide(),
            ]);
        }
        body.push_str(&table.html());
    }
    section("left-out", "left out and cut", &card(&body))
}

/// The machine, as it was found, and the blocks as the gates saw them.
pub(crate) fn environment(record: &Record) -> String {
    let mut table = Table::new(["fact", "value"]);
    for Fact { name, reading } in &record.environment {
        let value = match (reading.value(), reading) {
            (Some(value), _) => Cell::text(value).wide(),
            (None, Reading::Unavailable { enable: Some(command), .. }) => {
                let why = words::missing(reading.reason());
                Cell::text(&format!("{why}; enable with: {command}")).wide().tone(Tone::Missing)
            }
            (None, _) => Cell::text(&words::missing(reading.reason())).wide().tone(Tone::Missing),
        };
        table.row([Cell::text(name), value]);
    }
    let gates = details("What the gates read, block by block", &gates(record));
    section("environment", "environment", &card(&(table.html() + &gates)))
}

fn gates(record: &Record) -> String {
    let mut table = Table::new([
        "#block",
        "#repeats",
        "#from",
        "#for",
        "#stolen",
        "#other CPU",
        "#pressure",
        "disturbed by",
    ]);
    for block in &record.blocks {
        let share = |reading| figure_of(reading, number::percent);
        let time = |seconds| Cell::number(&number::duration(seconds), seconds);
        table.row([
            Cell::count(block.block),
            block.repeats.map_or_else(|| Cell::missing("", ""), Cell::count),
            time(block.start_s),
            time(block.duration_s),
            share(&block.steal),
            share(&block.foreign_cpu),
            share(&block.pressure),
            Cell::text(&block.disturbances.join("; ")).wide(),
        ]);
    }
    table.html()
}

/// The command, the job file and the record itself.
pub(crate) fn job(record: &Record) -> String {
    let job = &record.job;
    let rules = format!(
        "Seed {} · {} blocks planned, at most {}{} · smallest effect that counts {} · wanted half-width {} · {}",
        job.seed,
        job.blocks,
        job.blocks_max,
        job.budget_s.map_or_else(String::new, |s| format!(", within {}", number::duration(s))),
        number::percent(job.min_effect),
        number::percent(job.target_ci),
        record.tool,
    );
    let body = format!(
        "<h3>Repeat it</h3><pre class=\"command\">{}</pre>\
         <h3>Job <code>{}</code></h3><p class=\"dim\">{}</p><pre>{}</pre>\
         <p><a id=\"download\" class=\"js\" href=\"#record\" download=\"result.json\">Download result.json</a> \
         <span class=\"dim\">Every raw run stands in this page as JSON, in the script element with the id \
         <code>record</code>.</span></p>",
        escape(&shell_words::join(&record.command)),
        escape(&job.name),
        escape(&rules),
        escape(&job.toml),
    );
    section("job", "the job, and how to repeat it", &card(&body))
}

/// The record itself, for the download link and for other programs.
///
/// # Panics
/// If the record cannot be written as JSON, which its types rule out.
pub(crate) fn embedded(record: &Record) -> String {
    let json = serde_json::to_string(record).expect("a record has text keys only");
    format!("<script type=\"application/json\" id=\"record\">{}</script>\n", escape_json(&json))
}
