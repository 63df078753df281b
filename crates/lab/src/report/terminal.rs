//! The summary for a terminal, in the shape that readers of benchstat know.
//!
//! `pollux lab run` shows it at the end, `pollux lab report` on request. One block for each point,
//! a matrix for each curve. No line is wider than asked for, what is read through a pipe is never
//! cut, and no control character of the record reaches the terminal.

use pollux_report::terminal::{GAP, NAME_MAX, Page, Piece, Style};

use super::view::{self, Comparison, Panel};
use super::{number, words};
use crate::record::{Record, ResultRow, Verdict};

/// Columns of a point's rows that give way on a narrow terminal.
const VALUE: usize = 1;
const WHY: usize = 4;

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
            panels.iter().for_each(|panel| matrix(&mut page, record, &comparison, panel));
        }
    }
    foot(&mut page, record);
    page.finish()
}

fn style_of(verdict: Verdict) -> Style {
    match words::verdict_class(verdict) {
        "good" => Style::Good,
        "bad" => Style::Bad,
        "open" => Style::Open,
        _ => Style::Plain,
    }
}

fn head(page: &mut Page, record: &Record) {
    page.paragraph(&record.job.question, Style::Bold, 0);
    if let Some(ending) = words::ending(record) {
        page.paragraph(&ending, Style::Open, 0);
    }
    for answer in &record.answers {
        page.paragraph(
            &format!("{}: {} ({})", answer.load, answer.choice, answer.reason),
            Style::Plain,
            2,
        );
    }
}

/// One block for each point: arm, value, ratio, verdict, why.
fn points(page: &mut Page, record: &Record, comparison: &Comparison<'_>) {
    for point in comparison.points() {
        page.gap();
        page.words(&format!("{} · {point}", comparison.experiment), Style::Bold);
        let value = format!("{} (95% CI)", comparison.unit());
        let versus = format!("vs {}", comparison.baseline());
        let heading = ["arm", &value, &versus, "verdict", "why"];
        let mut rows: Vec<Vec<Piece>> =
            vec![heading.map(|text| Piece::new(&page.name(text), Style::Dim)).into()];
        for row in comparison.at(point) {
            rows.push(vec![
                Piece::new(&page.name(&row.arm), Style::Plain),
                Piece::new(&words::value(row), Style::Plain),
                Piece::new(&words::ratio_and_interval(row), Style::Plain),
                Piece::new(&words::judgement(row), style_of(row.verdict)),
                Piece::new(&why(record, row), Style::Dim),
            ]);
        }
        // Arm, ratio and verdict stay in the row; what has no room beside them stands below.
        let mut below = vec![Vec::new(); rows.len()];
        for column in [WHY, VALUE] {
            page.take_column(column, &mut rows, &mut below);
        }
        page.grid(rows);
        for (row, words) in comparison.at(point).zip(below.into_iter().skip(1)) {
            let words: Vec<_> = words.into_iter().rev().filter(|words| !words.is_empty()).collect();
            if !words.is_empty() {
                page.paragraph(&format!("{}: {}", row.arm, words.join("; ")), Style::Dim, 4);
            }
        }
        for row in comparison.at(point).filter(|row| row.verdict == Verdict::Failed) {
            let reason = view::gap_reason(record, &row.experiment, point, &row.arm);
            let reason = reason.unwrap_or("no reason was recorded");
            page.paragraph(&format!("{} failed: {reason}", row.arm), Style::Dim, 2);
        }
    }
}

/// The counts in a few letters, and the notes.
fn why(record: &Record, row: &ResultRow) -> String {
    let counts = record.why_at(row.place()).map(|why| {
        let shown = [
            why.system_calls_per_event
                .value()
                .map(|value| format!("{} sys/ev", number::si(*value))),
            why.events_per_wait.value().map(|value| format!("{} ev/wait", number::si(*value))),
            why.cpu_ns_per_event
                .value()
                .map(|value| format!("{} ns/ev", number::nanoseconds(*value))),
        ];
        shown.into_iter().flatten().collect::<Vec<_>>().join(GAP)
    });
    let notes = Some(words::row_notes(row)).filter(|notes| !notes.is_empty());
    counts
        .into_iter()
        .filter(|counts| !counts.is_empty())
        .chain(notes)
        .collect::<Vec<_>>()
        .join(GAP)
}

/// Arms down, axis across; as many columns at a time as there is room for.
fn matrix(page: &mut Page, record: &Record, comparison: &Comparison<'_>, panel: &Panel<'_>) {
    let held = words::held(panel.held.iter().copied());
    let arms = panel.arms();
    let name_width = arms
        .iter()
        .map(|arm| arm.chars().count())
        .max()
        .unwrap_or(0)
        .clamp(panel.axis.len(), NAME_MAX);
    let columns = (page.width().saturating_sub(name_width + GAP.len()) / 10).max(1);
    page.gap();
    let heading = format!("{} · {held}", comparison.experiment);
    page.words(heading.trim_end_matches(" · "), Style::Bold);
    let baseline = comparison.baseline();
    let about =
        format!("{} of {baseline}; others as ratio to it: {}", comparison.unit(), words::SIGNS);
    page.paragraph(&about, Style::Dim, 0);
    for values in panel.values.chunks(columns) {
        let mut rows = vec![vec![Piece::new(&page.name(panel.axis), Style::Dim)]];
        rows[0].extend(
            values
                .iter()
                .map(|(written, _)| Piece::figure(&number::axis_value(written), Style::Dim)),
        );
        for arm in &arms {
            let mut row = vec![Piece::new(&page.name(arm), Style::Plain)];
            row.extend(values.iter().map(|(written, _)| matrix_piece(panel.row(arm, written))));
            rows.push(row);
        }
        page.grid(rows);
    }
    gaps(page, record, comparison, panel);
}

fn matrix_piece(row: Option<&ResultRow>) -> Piece {
    let Some(row) = row else { return Piece::figure("–", Style::Dim) };
    match (row.verdict, row.value) {
        (Verdict::Baseline, Some(value)) => Piece::figure(&number::si(value), Style::Plain),
        (verdict, _) => {
            let cell = words::cell(row).unwrap_or_else(|| words::verdict_sign(verdict).to_string());
            Piece::figure(&cell, style_of(verdict))
        }
    }
}

/// Why there are gaps: one line for each arm and reason.
fn gaps(page: &mut Page, record: &Record, comparison: &Comparison<'_>, panel: &Panel<'_>) {
    for arm in panel.arms() {
        let missing = panel
            .values
            .iter()
            .filter(|(value, _)| panel.row(arm, value).is_none_or(|row| row.value.is_none()));
        let reasons = missing.filter_map(|(value, _)| {
            view::gap_reason(record, comparison.experiment, panel.point(value)?, arm)
        });
        for reason in view::in_order(reasons) {
            page.paragraph(&format!("{arm}: {reason}"), Style::Dim, 2);
        }
    }
}

fn foot(page: &mut Page, record: &Record) {
    page.gap();
    let (badge, _) = words::badge(&record.trust);
    let items =
        words::trust(&record.trust).into_iter().map(|(name, value)| format!("{name} {value}"));
    let line = std::iter::once(badge).chain(items).collect::<Vec<_>>().join(" · ");
    page.paragraph(&line, Style::Plain, 2);
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
        page.paragraph(&line, Style::Dim, 2);
    }
    let failures = record.left_out.iter().map(|left| left.reason.as_str());
    for reason in view::in_order(failures.chain(record.cuts.iter().map(String::as_str))) {
        page.paragraph(&format!("Left out or cut: {reason}"), Style::Dim, 2);
    }
}
