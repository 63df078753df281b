//! The summaries: for a terminal, in the shape that readers of benchstat know, and for the page of a CI step.
//!
//! `pollux lab run` shows it at the end, `pollux lab report` on request. One block for each point,
//! a matrix for each curve. No line is wider than asked for, what is read through a pipe is never
//! cut, and no control character of the record reaches the terminal.
//!
//! The summary for the page of a CI step, as GitHub-flavoured Markdown, written to the file that the CI system names.
//! The record's text is escaped, so a label cannot end a table or become a link.

use std::fmt::Write as _;

use pollux_report::markup::{capital, escape_markdown};
use pollux_report::terminal::{GAP, Page};
use pollux_report::{Cell, Table, Tone};

use super::advice::{self, Advice};
use super::section::{self, behind, matrix};
use super::{
    Arms, Comparison, Panel, failure_reason, gap_reason, glossary, in_order, number, panel_gap,
    words,
};
use crate::published;
use crate::record::{Record, ResultRow, Verdict};

/// The words without which the table says nothing.
const WORDS: &str = "A/A: the baseline a second time; [low, high]: 95 % interval; set: fresh processes of all arms; \
                     sys/ev: system calls for each event; ev/wait: events for each wait; \
                     compl/enter: completions for each enter of a ring";

/// The record as text of at most `width_chars` columns (at least 40), with colours for a terminal
/// or without. A pipe or a file has no width: `usize::MAX` keeps every line whole.
#[must_use]
pub fn table(record: &Record, width_chars: usize, colour: bool) -> String {
    let mut page = Page::new(width_chars, colour);
    head(&mut page, record);
    for comparison in Comparison::all(record) {
        let panels = comparison.panels();
        if panels.is_empty() {
            points(&mut page, record, &comparison);
        } else {
            panels.iter().for_each(|panel| curve(&mut page, record, &comparison, panel));
        }
    }
    foot(&mut page, record);
    page.finish()
}

fn head(page: &mut Page, record: &Record) {
    page.paragraph(&record.job.question, Tone::Bold, 0);
    if let Some(ending) = words::ending(record) {
        page.paragraph(&ending, Tone::Open, 0);
    }
    for answer in &record.answers {
        page.paragraph(
            &format!("{}: {} ({})", words::load(record, answer), answer.choice, answer.reason),
            Tone::Plain,
            2,
        );
        if let Some(Advice { action, figures, .. }) = advice::of(record, answer) {
            page.paragraph(&format!("→ {action}: {figures}"), Tone::Dim, 2);
        }
    }
}

/// One block for each point: arm, value, ratio, verdict, why.
fn points(page: &mut Page, record: &Record, comparison: &Comparison<'_>) {
    for point in comparison.points() {
        page.gap();
        page.words(&format!("{} · {point}", comparison.experiment), Tone::Bold);
        let value = format!("?{}", comparison.value_heading("95% CI"));
        let versus = format!("vs {}", comparison.baseline());
        // Arm, ratio and verdict stay in the row; what does not fit beside them stands below.
        let mut table = Table::new(["arm", &value, &versus, "verdict", "?why"]);
        for row in comparison.at(point) {
            let words = [words::value(row), words::ratio_and_interval(row), words::judgement(row)];
            let [value, ratio, verdict] = words.map(|words| Cell::text(&words));
            table.row([
                Cell::text(&row.arm),
                value,
                ratio,
                verdict.tone(words::tone(row.verdict)),
                Cell::text(&why(record, row)).tone(Tone::Dim),
            ]);
        }
        page.table(&table);
        for row in comparison.at(point).filter(|row| row.verdict == Verdict::Failed) {
            let reason = gap_reason(record, &row.experiment, point, &row.arm);
            let reason = reason.unwrap_or("no reason was recorded");
            page.paragraph(&format!("{} failed: {reason}", row.arm), Tone::Dim, 2);
        }
    }
}

/// The counts in a few letters, and the notes.
fn why(record: &Record, row: &ResultRow) -> String {
    let counts = record.why_at(row.key()).map(|why| {
        let counts = [
            (&why.system_calls_per_event, "sys/ev"),
            (&why.events_per_wait, "ev/wait"),
            (&why.completions_per_enter, "compl/enter"),
        ];
        counts.map(|(reading, unit)| Some(format!("{} {unit}", number::si(*reading.value()?))))
    });
    // Of a failed arm the line below the table says why.
    let has_line = row.verdict == Verdict::Failed;
    let notes = Some(words::row_notes(row)).filter(|notes| !notes.is_empty() && !has_line);
    let said = counts.into_iter().flatten().flatten().chain(notes);
    said.collect::<Vec<_>>().join(GAP)
}

/// Arms down, axis across; as many columns at a time as there is room for.
fn curve(page: &mut Page, record: &Record, comparison: &Comparison<'_>, panel: &Panel<'_>) {
    let held = words::held(panel.held.iter().copied());
    page.gap();
    let heading = format!("{} · {held}", comparison.experiment);
    page.words(heading.trim_end_matches(" · "), Tone::Bold);
    let unit = comparison.unit();
    let baseline = comparison.baseline();
    let about = format!("{unit} of {baseline}; others as ratio to it: {}", words::SIGNS);
    page.paragraph(&about, Tone::Dim, 0);
    page.table(&matrix(record, comparison, std::slice::from_ref(panel), panel.axis));
    // Why there are gaps: one line for each arm and reason.
    for arm in panel.arms() {
        let values = panel.values.iter().map(|(value, _)| *value);
        let missing =
            values.filter(|value| panel.row(arm, value).is_none_or(|row| row.value.is_none()));
        let reasons = missing.filter_map(|value| panel_gap(record, comparison, panel, arm, value));
        for reason in in_order(reasons) {
            page.paragraph(&format!("{arm}: {reason}"), Tone::Dim, 2);
        }
    }
}

fn foot(page: &mut Page, record: &Record) {
    page.gap();
    let comparisons = Comparison::all(record);
    let (badge, _) = words::badge_of_all(record, &comparisons);
    let items =
        words::trust(&record.trust).into_iter().map(|(name, value)| format!("{name} {value}"));
    let line = std::iter::once(badge).chain(items).collect::<Vec<_>>().join(" · ");
    page.paragraph(&line, Tone::Plain, 2);
    for (comparison, badge) in doubtful(record, &comparisons) {
        let heading = format!("{} ({})", comparison.title, comparison.metric);
        page.paragraph(&format!("{heading}: {badge}"), Tone::Open, 2);
    }
    let missing: Vec<_> = record
        .sources
        .iter()
        .filter(|source| !source.available)
        .map(|source| source.name.as_str())
        .collect();
    if !missing.is_empty() {
        let line = format!(
            "Could not be read: {} (the report says why and how to enable them)",
            missing.join(", ")
        );
        page.paragraph(&line, Tone::Dim, 2);
    }
    page.paragraph(WORDS, Tone::Dim, 2);
    let failures = record.left_out.iter().map(|left| left.reason.as_str());
    for reason in in_order(failures.chain(record.cuts.iter().map(String::as_str))) {
        page.paragraph(&format!("Left out or cut: {reason}"), Tone::Dim, 2);
    }
}

/// The tables whose badge is not good, where others are.
fn doubtful<'c, 'a>(
    record: &Record,
    comparisons: &'c [Comparison<'a>],
) -> Vec<(&'c Comparison<'a>, String)> {
    let badges = comparisons.iter().map(|each| (each, words::badge_of(record, &each.rows)));
    let (good, bad): (Vec<_>, Vec<_>) = badges.partition(|(_, (_, class))| *class == "good");
    let bad = bad.into_iter().map(|(each, (words, _))| (each, words));
    if good.is_empty() { Vec::new() } else { bad.collect() }
}

/// The record as Markdown: answers, trust, one table for each point or curve, the command.
#[must_use]
pub fn markdown(record: &Record) -> String {
    let mut out = format!("## {}\n\n", escape_markdown(&record.job.question));
    if let Some(ending) = words::ending(record) {
        let _ = writeln!(out, "> {}\n", escape_markdown(&ending));
    }
    for answer in &record.answers {
        let load = escape_markdown(&words::load(record, answer));
        let choice = escape_markdown(&answer.choice);
        let reason = escape_markdown(&answer.reason);
        let _ = writeln!(out, "- {load}: **{choice}** – {reason}");
        if let Some(Advice { action, figures, .. }) = advice::of(record, answer) {
            let action = escape_markdown(&action);
            let figures = escape_markdown(&figures);
            let _ = writeln!(out, "  To do: {action} – {figures}");
        }
    }
    let _ = writeln!(out, "\n{}\n", trust_line(record));
    for comparison in Comparison::all(record) {
        let _ = writeln!(out, "### {}\n", escape_markdown(&capital(&comparison.heading())));
        let (badge, _) = words::badge_of(record, &comparison.rows);
        let _ = writeln!(out, "**{}**\n", escape_markdown(&badge));
        out += &match comparison.panels() {
            panels if panels.is_empty() => point_rows(&comparison).markdown(),
            panels => matrix(record, &comparison, &panels, panels[0].axis).markdown(),
        };
    }
    for (heading, about, table) in section::tables(record, &Arms::of(record)) {
        let _ = writeln!(out, "### {}\n\n{}\n", escape_markdown(&heading), escape_markdown(about));
        out += &table.markdown();
    }
    beside_published(&mut out, record);
    if let Some((heading, about, table)) = behind::summary(record) {
        let _ = writeln!(out, "### {heading}\n\n{about}\n\n{}", table.markdown());
    }
    remarks(&mut out, record);
    let words = glossary::words(record).into_iter().map(|(word, meaning)| {
        format!("- **{}**: {}\n", escape_markdown(word), escape_markdown(meaning))
    });
    let words: String = words.collect();
    let _ = writeln!(
        out,
        "<details><summary>The words of this page</summary>\n\n{words}\n</details>\n"
    );
    let _ = writeln!(
        out,
        "Repeat it: `` {} ``",
        shell_words::join(&record.command).replace(['`', '\n', '\r'], " ")
    );
    out
}

fn trust_line(record: &Record) -> String {
    let (badge, _) = words::badge_of_all(record, &Comparison::all(record));
    let items = words::trust(&record.trust)
        .into_iter()
        .map(|(name, value)| format!("{name} {}", escape_markdown(&value)));
    format!("**{badge}** · {}", items.collect::<Vec<_>>().join(" · "))
}

/// A row for each arm, point by point.
fn point_rows(comparison: &Comparison<'_>) -> Table {
    let value = format!("#{}", comparison.value_heading("95 % CI"));
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
    let name = &beside.document.name;
    let title = escape_markdown(&beside.document.title);
    let _ = writeln!(
        out,
        "### Beside the published {name}: {title}\n\n{}\n",
        behind::beside_summary(&beside)
    );
    *out += &behind::overview(&beside).markdown();
    if !beside.checks.is_empty() {
        *out += &behind::checks(&beside).markdown();
    }
    *out += &behind::settings(&beside).markdown();
    for remark in behind::gaps(&beside).iter().chain(&beside.document.remarks) {
        let _ = writeln!(out, "- {}", escape_markdown(remark));
    }
    out.push('\n');
}

/// Failures, gaps and sources that do not work here.
fn remarks(out: &mut String, record: &Record) {
    let failed = record.results.iter().filter(|row| row.verdict == Verdict::Failed);
    let failures =
        failed.filter_map(|row| failure_reason(record, &row.experiment, &row.point, &row.arm));
    for reason in in_order(failures) {
        let _ = writeln!(out, "- failed: {}", escape_markdown(reason));
    }
    for reason in in_order(record.left_out.iter().map(|left| left.reason.as_str())) {
        let _ = writeln!(out, "- left out: {}", escape_markdown(reason));
    }
    for cut in &record.cuts {
        let _ = writeln!(out, "- cut: {}", escape_markdown(cut));
    }
    for source in record.sources.iter().filter(|source| !source.available) {
        let reason = source.reason.as_deref().unwrap_or("no reason was recorded");
        let _ = writeln!(
            out,
            "- could not be read: {}: {}",
            escape_markdown(&source.name),
            escape_markdown(reason)
        );
    }
    out.push('\n');
}
