//! Every run in the order in which it ran, each against the median of its own arm and point.
//!
//! Shows drift, disturbed stretches and runs that stand apart. Nothing is left out: a value outside
//! the paper stands at its edge, a failed run on a line of its own, both with their reason.

use std::collections::HashMap;

use pollux_report::chart::{Edges, Marker, Paper, Scale, WIDTH, figure};
use pollux_report::markup::{notes, scroll};
use pollux_report::{Cell, Table, Tone};

use crate::record::{Block, Outcome, Record, Run};
use crate::report::view::{Arms, grouped};
use crate::report::{number, words};
use crate::stats::{Outlier, median, tukey_flags};

const HEIGHT: f64 = 252.0;
/// Below the paper stand the failed runs, the numbers of the blocks, and what all are.
const EDGES: Edges = Edges { left: 52.0, right: 6.0, top: 22.0, foot: 60.0 };
const FAILED_LANE: f64 = 22.0;
/// The paper shows at least this much either side of the median, and at most the second.
const SPAN: (f64, f64) = (0.08, 0.6);
/// Remarks are cut after this many; the table has every run.
const NOTES_MAX: usize = 14;

/// A run with what is drawn of it.
struct Drawn<'a> {
    run: &'a Run,
    /// Value over the median of its arm and point; absent when it failed.
    relative: Option<f64>,
    is_outlier: bool,
    block: Option<&'a Block>,
}

/// The strip of one experiment with its table.
pub(crate) fn strip(record: &Record, experiment: &str, arms: &Arms<'_>, key: &str) -> String {
    let drawn = drawn(record, experiment);
    if drawn.is_empty() {
        return String::new();
    }
    let svg = draw(&drawn, &words::part(record, experiment), arms, key);
    figure("strip", &scroll("chart", &svg), &notes(&remarks(&drawn)), &table(&drawn))
}

fn drawn<'a>(record: &'a Record, experiment: &str) -> Vec<Drawn<'a>> {
    let runs: Vec<_> = record.runs.iter().filter(|run| run.experiment == experiment).collect();
    let mut cells: HashMap<(&str, &str), Vec<(usize, f64)>> = HashMap::new();
    for (index, run) in runs.iter().enumerate() {
        if let Some(m) = run.measured() {
            cells.entry((&run.point, &run.arm)).or_default().push((index, m.value));
        }
    }
    let mut judged = vec![(None, false); runs.len()];
    for cell in cells.values() {
        let values: Vec<f64> = cell.iter().map(|(_, value)| *value).collect();
        let middle = median(&values).expect("a cell has a value");
        for ((index, value), flag) in cell.iter().zip(tukey_flags(&values)) {
            let relative = Some(value / middle).filter(|relative| relative.is_finite());
            judged[*index] = (relative, flag != Outlier::None);
        }
    }
    let of_run = |(run, (relative, is_outlier)): (&'a Run, (Option<f64>, bool))| Drawn {
        run,
        relative,
        is_outlier,
        block: record.blocks.iter().find(|block| block.block == run.block),
    };
    runs.into_iter().zip(judged).map(of_run).collect()
}

fn draw(drawn: &[Drawn<'_>], part: &str, arms: &Arms<'_>, key: &str) -> String {
    let title = format!("{part}: every run in the order in which it ran");
    let about = format!("{} runs; value over the median of the same arm and point.", drawn.len());
    let mut paper = Paper::new(key, (&title, &about), (WIDTH, HEIGHT), EDGES);
    let relatives = || drawn.iter().filter_map(|d| d.relative);
    let span = relatives().map(|r| (r - 1.0).abs()).fold(SPAN.0, f64::max).min(SPAN.1) * 1.05;
    let y = Scale::linear((1.0 - span, 1.0 + span), paper.height());
    let x = Scale::linear((-0.5, drawn.len() as f64 - 0.5), paper.width());
    blocks(&mut paper, drawn, &x);
    paper.values(&y, &y.ticks(5), |tick| format!("{tick:.2}×"));
    let lane = paper.height().0 + FAILED_LANE - 6.0;
    if relatives().count() < drawn.len() {
        paper.svg.text((EDGES.left - 8.0, lane + 4.0), "dim end", "failed");
    }
    for (index, d) in drawn.iter().enumerate() {
        let at = (x.at(index as f64), d.relative.map_or(lane, |relative| y.at(relative)));
        let is_off_paper = d.relative.is_some_and(|relative| (relative - 1.0).abs() > span);
        paper.svg.open(&arms.class(&d.run.arm), Some(arms.index(&d.run.arm)));
        if d.is_outlier {
            paper.svg.mark(Marker::Ring, at, 6.0, "");
        }
        let marker = match (d.relative, is_off_paper) {
            (None, _) => Marker::Cross,
            (Some(relative), true) if relative > 1.0 => Marker::Up,
            (Some(_), true) => Marker::Down,
            (Some(_), false) => Marker::Disc,
        };
        let radius = if drawn.len() > 500 { 2.0 } else { 3.2 };
        paper.svg.mark(marker, at, radius, &tip(d));
        paper.svg.close();
    }
    paper.caption("runs in order, block by block; shaded blocks were disturbed");
    paper.finish()
}

/// Borders, numbers and shades of the blocks.
fn blocks(paper: &mut Paper, drawn: &[Drawn<'_>], x: &Scale) {
    let (top, bottom) = (EDGES.top, paper.height().0 + FAILED_LANE);
    let mut start = 0;
    for stretch in drawn.chunk_by(|a, b| a.run.block == b.run.block) {
        let (from, to) = (x.at(start as f64 - 0.5), x.at((start + stretch.len()) as f64 - 0.5));
        let disturbances =
            stretch[0].block.map(|block| block.disturbances.join("; ")).unwrap_or_default();
        if !disturbances.is_empty() {
            paper.svg.rect((from, top), (to - from, bottom - top), "disturbed", &disturbances);
        }
        paper.svg.line((from, top), (from, bottom), "grid");
        let (middle, block) = (f64::midpoint(from, to), stretch[0].run.block.to_string());
        paper.svg.text((middle, bottom + 16.0), "dim mid small", &block);
        start += stretch.len();
    }
}

fn tip(d: &Drawn<'_>) -> String {
    let what = match &d.run.outcome {
        Outcome::Measured(m) => {
            format!("{}, {}", number::si(m.value), words::steady(m.steadiness.kind))
        }
        Outcome::Failed { reason } => format!("failed: {reason}"),
    };
    format!("block {}, {}, {}: {what}", d.run.block, d.run.point, d.run.arm)
}

/// What is said of a run that stands apart; nothing of the others.
fn remark(d: &Drawn<'_>) -> Option<String> {
    let run = d.run;
    if let Some(reason) = run.failure() {
        return Some(format!("block {}, {}, {}: failed: {reason}", run.block, run.point, run.arm));
    }
    let relative = d.relative.filter(|_| d.is_outlier)?;
    let gates = gate_words(d);
    Some(format!(
        "block {}, {}, {}: {}× its median, kept; {gates}",
        run.block,
        run.point,
        run.arm,
        number::ratio(relative)
    ))
}

/// Failures by arm and reason, then what stands apart by block, so that one cause is one line.
fn remarks(drawn: &[Drawn<'_>]) -> Vec<String> {
    let failures = drawn.iter().filter_map(|d| Some(((&*d.run.arm, d.run.failure()?), ())));
    let failed = grouped(failures)
        .into_iter()
        .map(|((arm, reason), runs)| format!("{arm}: {} runs failed: {reason}", runs.len()));
    let apart = drawn.chunk_by(|a, b| a.run.block == b.run.block).filter_map(block_remark);
    let mut lines: Vec<_> = failed.chain(apart).collect();
    let more = lines.len().saturating_sub(NOTES_MAX);
    lines.truncate(NOTES_MAX);
    if more > 0 {
        lines.push(format!("and {more} more in the table"));
    }
    lines
}

/// How many runs of one block stand apart, how far, and what the gates say to it.
fn block_remark(block: &[Drawn<'_>]) -> Option<String> {
    let apart: Vec<_> = block.iter().filter(|d| d.is_outlier).collect();
    if apart.len() < 2 {
        return apart.first().and_then(|d| remark(d));
    }
    let relatives = apart.iter().filter_map(|d| d.relative);
    let (low, high) =
        relatives.fold((f64::MAX, f64::MIN), |(low, high), r| (r.min(low), r.max(high)));
    let (number, runs, gates) = (apart[0].run.block, apart.len(), gate_words(apart[0]));
    let (low, high) = (number::ratio(low), number::ratio(high));
    Some(format!(
        "block {number}: {runs} runs stand apart, {low}× to {high}× their medians, kept; {gates}"
    ))
}

fn gate_words(d: &Drawn<'_>) -> String {
    let words = d.block.map(|block| block.disturbances.join("; "));
    words.filter(|words| !words.is_empty()).unwrap_or_else(|| "no gate marked its block".to_owned())
}

fn table(drawn: &[Drawn<'_>]) -> String {
    let headings =
        ["#block", "#place", "point", "arm", "#value", "#of its median", "state", "remark"];
    let mut table = Table::new(headings);
    for d in drawn {
        let (run, measured) = (d.run, d.run.measured());
        let state = match measured.map(|m| &m.steadiness) {
            Some(steadiness) => {
                Cell::text(words::steady(steadiness.kind)).title(&steadiness.detail)
            }
            None => Cell::text("failed").tone(Tone::Bad),
        };
        let of_median = |relative| format!("{}×", number::ratio(relative));
        table.row([
            Cell::count(run.block),
            Cell::count(run.position),
            Cell::text(&run.point),
            Cell::text(&run.arm),
            Cell::number_or(measured.map(|m| m.value), number::si, "–", ""),
            Cell::number_or(d.relative, of_median, "–", ""),
            state,
            Cell::text(&remark(d).unwrap_or_default()).wide(),
        ]);
    }
    table.html()
}
