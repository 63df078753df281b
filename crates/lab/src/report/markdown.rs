//! The summary for the page of a CI step, as GitHub-flavoured Markdown.
//!
//! Called through `report::markdown` and written to the file that the CI system names. The record's
//! text is escaped, so a label cannot end a table or become a link.

use std::fmt::Write as _;

use pollux_report::markdown::escape;
use pollux_report::markup::capital;
use pollux_report::{Cell, Table};

use super::section::{behind, beside, own, results::matrix};
use super::view::{self, Arms, Comparison};
use super::words;
use crate::published;
use crate::record::{Record, Verdict};

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
        let _ = writeln!(out, "### {}\n", escape(&capital(&comparison.heading())));
        out += &match comparison.panels() {
            panels if panels.is_empty() => points(&comparison).markdown(),
            panels => matrix(record, &comparison, &panels, panels[0].axis).markdown(),
        };
    }
    for (heading, about, table) in own::tables(record, &Arms::of(record)) {
        let _ = writeln!(out, "### {}\n\n{}\n", escape(&heading), escape(about));
        out += &table.markdown();
    }
    beside_published(&mut out, record);
    if let Some((heading, about, table)) = behind::summary(record) {
        let _ = writeln!(out, "### {heading}\n\n{about}\n\n{}", table.markdown());
    }
    remarks(&mut out, record);
    let _ = writeln!(
        out,
        "Repeat it: `` {} ``",
        shell_words::join(&record.command).replace(['`', '\n', '\r'], " ")
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

/// A row for each arm, point by point.
fn points(comparison: &Comparison<'_>) -> Table {
    let value = format!("#{} (95 % CI)", comparison.unit());
    let versus = format!("#vs {}", comparison.baseline());
    let mut table = Table::new(["arm", &value, &versus, "verdict", "notes"]);
    for point in comparison.points() {
        table.group(point);
        for row in comparison.at(point) {
            let [value, ratio, verdict] = words::cells(row);
            let notes = Cell::text(&words::row_notes(row));
            table.row([Cell::text(&row.arm), value, ratio, verdict, notes]);
        }
    }
    table
}

/// What the document that the job repeats has published, beside ours: ends, verdict, remarks.
fn beside_published(out: &mut String, record: &Record) {
    let Some(beside) = published::beside(record) else { return };
    let (name, title) = (&beside.document.name, escape(&beside.document.title));
    let _ =
        writeln!(out, "### Beside the published {name}: {title}\n\n{}\n", beside::summary(&beside));
    *out += &beside::overview(&beside).markdown();
    if !beside.checks.is_empty() {
        *out += &beside::checks(&beside).markdown();
    }
    *out += &beside::settings(&beside).markdown();
    for remark in beside::gaps(&beside).iter().chain(&beside.document.remarks) {
        let _ = writeln!(out, "- {}", escape(remark));
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
