//! The results: for each comparison its curves or its forest plot, and the table.

use pollux_report::markup::{card, details, notes, section};
use pollux_report::{Cell, Table, Tone};

use crate::record::{Record, Verdict};
use crate::report::chart::{curve, forest};
use crate::report::view::{self, Arms, Comparison, Panel};
use crate::report::{number, words};

/// A section for each comparison.
pub(crate) fn results(record: &Record, comparisons: &[Comparison<'_>], arms: &Arms<'_>) -> String {
    let mut page = String::new();
    for (index, comparison) in comparisons.iter().enumerate() {
        let panels = comparison.panels();
        let plot = forest::forest(record, comparison);
        let body = if panels.is_empty() {
            card(&(plot + &left_out(record, comparison)))
        } else {
            let curves = curve::curves(record, comparison, arms, &format!("curve-{index}"));
            let summary = format!("All {} comparisons with their intervals", comparison.rows.len());
            let corner = format!("ratio to {}, {}:", comparison.baseline(), panels[0].axis);
            let matrix = matrix(record, comparison, &panels, &corner).html();
            card(&curves) + &card(&(matrix + &details(&summary, &plot)))
        };
        page.push_str(&section(&format!("result-{index}"), &heading(comparison, &panels), &body));
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
pub(crate) fn matrix(
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
    let reason =
        || view::panel_gap(record, comparison, panel, arm, written).unwrap_or("not measured");
    let Some(row) = panel.row(arm, written) else { return Cell::missing("not run", reason()) };
    match (row.verdict, row.value, row.ratio) {
        (Verdict::Failed, ..) => Cell::missing("failed", reason()),
        (Verdict::Baseline, Some(value), _) => Cell::number(&number::si(value), value)
            .title(&format!("{} {}", words::value(row), row.unit))
            .tone(Tone::Dim),
        (verdict, _, Some(ratio)) => {
            let word = words::judgement(row);
            let cell = words::cell(row).unwrap_or_default();
            let title = format!("{word}: {}", words::ratio_and_interval(row));
            Cell::number(&cell, ratio).title(&title).tone(words::tone(verdict))
        }
        _ => Cell::missing("not run", reason()),
    }
}
