//! The summary for the page of a CI step, as GitHub-flavoured Markdown.
//!
//! Called through `report::markdown` and written to the file that the CI system names. The record's
//! text is escaped, so a label cannot end a table or become a link.

use std::fmt::Write as _;

use super::section::{herd_markdown, seed};
use super::view::{self, Comparison, Panel};
use super::{number, words};
use crate::published;
use crate::record::{Record, ResultRow, Verdict};

/// The record as Markdown: answers, trust, one table for each point or curve, the command.
#[must_use]
pub fn markdown(record: &Record) -> String {
    let mut out = format!("## {}\n\n", escape(&record.job.question));
    if let Some(ending) = words::ending(record) {
        let _ = writeln!(out, "> {}\n", escape(&ending));
    }
    for answer in &record.answers {
        let (load, choice, reason) =
            (escape(&answer.load), escape(&answer.choice), escape(&answer.reason));
        let _ = writeln!(out, "- {load}: **{choice}** – {reason}");
    }
    let _ = writeln!(out, "\n{}\n", trust(record));
    for comparison in Comparison::all(record) {
        let _ = writeln!(out, "### {}\n", escape(&words::capital(&comparison.heading())));
        let panels = comparison.panels();
        panels.iter().for_each(|panel| matrix(&mut out, panel));
        if panels.is_empty() {
            comparison.points().iter().for_each(|point| table(&mut out, &comparison, point));
        }
    }
    herd_markdown::herd(&mut out, record, escape);
    beside_the_seed(&mut out, record);
    inside_the_server(&mut out, record);
    remarks(&mut out, record);
    let _ = writeln!(
        out,
        "Repeat it: `` {} ``",
        words::command_line(&record.command).replace(['`', '\n', '\r'], " ")
    );
    out
}

fn trust(record: &Record) -> String {
    let (badge, _) = words::badge(&record.trust);
    let items = words::trust(&record.trust)
        .into_iter()
        .map(|(name, value)| format!("{name} {}", escape(&value)));
    format!("**{badge}** · {}", items.collect::<Vec<_>>().join(" · "))
}

fn table(out: &mut String, comparison: &Comparison<'_>, point: &str) {
    let (unit, baseline) = (escape(comparison.unit()), escape(comparison.baseline()));
    let _ = writeln!(
        out,
        "**{}**\n\n| arm | {unit} (95 % CI) | vs {baseline} | verdict | notes |",
        escape(point)
    );
    out.push_str("|:--|--:|--:|:--|:--|\n");
    for row in comparison.at(point) {
        let verdict = words::judgement(row);
        let (value, ratio) = (words::value(row), words::ratio_and_interval(row));
        let notes = escape(&words::row_notes(row));
        let _ = writeln!(out, "| {} | {value} | {ratio} | {verdict} | {notes} |", escape(&row.arm));
    }
    out.push('\n');
}

fn matrix(out: &mut String, panel: &Panel<'_>) {
    let held = words::held(panel.held.iter().copied());
    if !held.is_empty() {
        let _ = writeln!(out, "**{}**\n", escape(&held));
    }
    let values = panel.values.iter().map(|(written, _)| escape(&number::axis_value(written)));
    let heading: Vec<_> = std::iter::once(escape(panel.axis)).chain(values).collect();
    let _ =
        writeln!(out, "| {} |\n|:--|{}", heading.join(" | "), "--:|".repeat(panel.values.len()));
    for arm in panel.arms() {
        let cells = panel.values.iter().map(|(written, _)| matrix_cell(panel.row(arm, written)));
        let row: Vec<_> = std::iter::once(escape(arm)).chain(cells).collect();
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out.push('\n');
}

fn matrix_cell(row: Option<&ResultRow>) -> String {
    let Some(row) = row else { return "–".to_owned() };
    match (row.verdict, row.value) {
        (Verdict::Baseline, Some(value)) => number::si(value),
        _ => words::cell(row).unwrap_or_else(|| words::verdict(row).to_owned()),
    }
}

/// What the document that the job repeats has published, beside ours: ends, verdict, remarks.
fn beside_the_seed(out: &mut String, record: &Record) {
    let Some(beside) = published::beside(record) else { return };
    let (number, title) = (beside.document.number, escape(&beside.document.title));
    let _ = writeln!(out, "### Beside seed {number}: {title}\n\n{}\n", seed::summary(&beside));
    out.push_str("| series | there | here | |\n|:--|--:|--:|:--|\n");
    for one in &beside.series {
        let (theirs, ours) = seed::figures(one);
        let name = escape(&seed::name(one));
        let _ = writeln!(out, "| {name} | {theirs} | {ours} | {} |", escape(&seed::verdict(one)));
    }
    out.push('\n');
    for (name, theirs, ours) in &beside.settings {
        let (theirs, ours) = (escape(theirs), escape(ours));
        let _ = writeln!(out, "- {name}: there {theirs}; here {ours}");
    }
    for gap in seed::gaps(&beside) {
        let _ = writeln!(out, "- {}", escape(&gap));
    }
    for remark in &beside.document.remarks {
        let _ = writeln!(out, "- {}", escape(remark));
    }
    out.push('\n');
}

/// How long requests took by the server's own clock, where they were timed.
fn inside_the_server(out: &mut String, record: &Record) {
    let timed: Vec<_> = record.request_times.iter().filter(|run| run.times.requests > 0).collect();
    if timed.is_empty() {
        return;
    }
    out.push_str(
        "### Inside the server: the time of a request\n\nIn µs by the server's own clock, without \
         the system calls around it; known to a fifth.\n\n\
         | experiment, point | arm | requests | p50 | p99 | p99.9 |\n|:--|:--|--:|--:|--:|--:|\n",
    );
    for run in timed {
        let place = escape(&format!("{}, {}", run.experiment, run.point));
        let at = |share| {
            let time_ns = run.times.quantile_ns(share);
            time_ns.map_or_else(|| "–".to_owned(), |ns| number::si(ns / 1e3))
        };
        let (arm, requests) = (escape(&run.arm), number::count(run.times.requests));
        let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
        let _ = writeln!(out, "| {place} | {arm} | {requests} | {p50} | {p99} | {p999} |");
    }
    out.push('\n');
}

/// Failures, gaps and sources that do not work here.
fn remarks(out: &mut String, record: &Record) {
    let failed = record.results.iter().filter(|row| row.verdict == Verdict::Failed);
    let failures = failed
        .filter_map(|row| view::failure_reason(record, &row.experiment, &row.point, &row.arm));
    for reason in view::in_order(failures) {
        let _ = writeln!(out, "- failed: {}", escape(reason));
    }
    for reason in view::in_order(record.left_out.iter().map(|left| left.reason.as_str())) {
        let _ = writeln!(out, "- left out: {}", escape(reason));
    }
    for cut in &record.cuts {
        let _ = writeln!(out, "- cut: {}", escape(cut));
    }
    for source in record.sources.iter().filter(|source| !source.available) {
        let reason = source.reason.as_deref().unwrap_or("no reason was recorded");
        let _ = writeln!(out, "- could not be read: {}: {}", escape(&source.name), escape(reason));
    }
    out.push('\n');
}

/// Text that stays text, on one line.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '!' | '#' | '~' => {
                out.extend(['\\', character]);
            }
            _ if character.is_control() => out.push(' '),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn labels_cannot_end_a_table_or_become_a_link() {
        assert_eq!(escape("a|b\n[x](y)<i>"), "a\\|b \\[x\\](y)&lt;i&gt;");
    }
}
