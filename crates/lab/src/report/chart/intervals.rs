//! What the rate did inside the runs: small charts over time, one for each arm.
//!
//! Shows whether the mean of a run describes it. Runs in two regimes are drawn strongly, with the
//! place at which they change; the record's own words stand beside it.
//!
//! The forest plot: for each point and arm the ratio to the baseline with its interval.
//!
//! The band in which effects count as no difference is shaded behind the marks.
//!
//! Every run in the order in which it ran, each against the median of its own arm and point.
//!
//! Shows drift, disturbed stretches and runs that stand apart. Nothing is left out: a value outside
//! the paper stands at its edge, a failed run on a line of its own, both with their reason.

use std::collections::HashMap;

use pollux_report::chart::{
    Canvas, Dot, Edges, Forest, LETTERS, Marker, Scale, Svg, WIDTH, figure, fit, polyline,
};
use pollux_report::markup::{notes, scroll};
use pollux_report::{Cell, Table, Tone};
use pollux_stats::{Outlier, Steadiness, median, steadiness, tukey_flags};

use super::super::{
    Arms, Comparison, failure_reason, glossary, grouped, in_order, is_drawn, number, words,
};
use crate::record::{
    Block, Interval, Measurement, Outcome, Record, ResultRow, Run, SteadyKind, Verdict,
};

const PLOT_WIDTH: f64 = 250.0;
const LEFT: f64 = 44.0;
const TOP: f64 = 36.0;
const FOOT: f64 = 20.0;
const GAP: f64 = 22.0;
/// Room at the right for half of the last number.
const RIGHT: f64 = 18.0;

/// How to read the marks.
const CAPTION: &str = "Marks are geometric means over blocks of arm over baseline, lines their 95 % intervals; inside \
                       the shaded band a difference is too small to count or no larger than the noise.";

/// The same where arms took turns.
const CAPTION_OF_TURNS: &str = "Marks are means over sets of fresh processes of arm over baseline, lines their 95 % \
                                intervals; the shaded band is the minimum effect.";

const HEIGHT: f64 = 252.0;
/// Below the paper stand the failed runs, the numbers of the blocks, and what all are.
const EDGES: Edges = Edges { left: 52.0, right: 6.0, top: 22.0, foot: 60.0 };
const FAILED_LANE: f64 = 22.0;
/// The paper shows at least this much either side of the median, and at most the second.
const SPAN: (f64, f64) = (0.08, 0.6);
/// Remarks are cut after this many; the table has every run.
const NOTES_MAX: usize = 14;

/// One figure that an interval carries.
struct Strip {
    name: &'static str,
    height: f64,
    read: fn(&Interval) -> Option<f64>,
}

const STRIPS: [Strip; 3] = [
    Strip { name: "events/s", height: 84.0, read: |interval| Some(interval.events_per_s) },
    Strip { name: "events per wait", height: 42.0, read: |interval| interval.events_per_wait },
    Strip { name: "switches/s", height: 42.0, read: |interval| interval.process_switches_per_s },
];

/// The runs of one point, arm by arm; nothing when no run kept intervals.
pub(crate) fn intervals(
    record: &Record,
    experiment: &str,
    point: &str,
    arms: &Arms<'_>,
    key: &str,
) -> String {
    let is_here = |run: &&Run| run.experiment == experiment && run.point == point;
    let runs = record.runs.iter().filter(is_here);
    let measured: Vec<_> = runs.filter_map(|run| Some((run, run.measured()?))).collect();
    if measured.iter().all(|(_, m)| m.intervals.is_empty()) {
        return String::new();
    }
    let panel = Panel::new(&measured);
    let names = in_order(measured.iter().map(|(run, _)| run.arm.as_str()));
    let draw = |(index, arm): (usize, &&str)| panel.draw(arm, arms, &format!("{key}-{index}"));
    let charts: String = names.iter().enumerate().map(draw).collect();
    let grid = format!("<div class=\"multiples\">{charts}</div>");
    figure("intervals", &grid, &notes(&remarks(&measured)), &table(&measured))
}

/// One line for each arm and kind: in which blocks, and in the record's words how, for the first.
fn remarks(measured: &[(&Run, &Measurement)]) -> Vec<String> {
    let odd = measured.iter().filter(|(_, m)| m.steadiness.kind != SteadyKind::Steady);
    let odd = odd.map(|(run, m)| ((run.arm.as_str(), m.steadiness.kind), (run.block, m)));
    let line = |((arm, kind), runs): ((&str, SteadyKind), Vec<(u32, &&Measurement)>)| {
        let blocks: Vec<String> = runs.iter().map(|(block, _)| block.to_string()).collect();
        let state = words::steady(kind);
        let blocks = blocks.join(", ");
        let first = &runs[0].1.steadiness.detail;
        format!("{arm}: {state} in blocks {blocks}; in the first of them {first}")
    };
    grouped(odd).into_iter().map(line).collect()
}

fn table(measured: &[(&Run, &Measurement)]) -> String {
    let mut table = Table::new(["arm", "#block", "state", "events/s in each interval"]);
    for (run, m) in measured {
        let values = m.intervals.iter().map(|interval| number::si(interval.events_per_s));
        table.row([
            Cell::text(&run.arm),
            Cell::count(run.block),
            Cell::text(words::steady(m.steadiness.kind)).title(&m.steadiness.detail),
            Cell::text(&values.collect::<Vec<_>>().join(" · ")).wide(),
        ]);
    }
    table.html()
}

/// The charts of one point: same axes for every arm.
struct Panel<'a> {
    measured: &'a [(&'a Run, &'a Measurement)],
    time: Scale,
    strips: Vec<(&'static Strip, Scale, f64)>,
    height: f64,
}

impl<'a> Panel<'a> {
    fn new(measured: &'a [(&'a Run, &'a Measurement)]) -> Self {
        let all = || measured.iter().flat_map(|(_, m)| &m.intervals);
        let end = all().map(|interval| interval.end_s).fold(0.0, f64::max);
        let mut top = TOP;
        let mut strips = Vec::new();
        for strip in &STRIPS {
            let highest = all().filter_map(strip.read).fold(f64::NEG_INFINITY, f64::max);
            if highest.is_finite() {
                let paper = (top + strip.height, top);
                strips.push((strip, Scale::linear((0.0, highest.max(1e-9) * 1.08), paper), top));
                top += strip.height + GAP;
            }
        }
        Self {
            measured,
            time: Scale::linear((0.0, end), (LEFT, PLOT_WIDTH - RIGHT)),
            strips,
            height: top - GAP + FOOT,
        }
    }

    fn draw(&self, arm: &str, arms: &Arms<'_>, key: &str) -> String {
        let runs: Vec<_> = self.measured.iter().filter(|(run, _)| run.arm == arm).collect();
        let about = format!("{} runs of {arm} over time, one line each.", runs.len());
        let mut svg =
            Svg::new(key, (PLOT_WIDTH, self.height), &format!("{arm}, inside the runs"), &about);
        svg.open(&arms.class(arm), Some(arms.index(arm)));
        let two = runs.iter().filter(|(_, m)| m.steadiness.kind == SteadyKind::TwoRegime).count();
        let name_width = PLOT_WIDTH - LEFT - if two > 0 { 140.0 } else { 20.0 };
        svg.text((LEFT, 12.0), "strong", &fit(arm, LETTERS * 1.125, name_width));
        if two > 0 {
            let words = format!("{two} of {} in two regimes", runs.len());
            svg.text((PLOT_WIDTH - 2.0, 12.0), "end warn", &words);
        }
        for (strip, scale, top) in &self.strips {
            let ticks = scale.ticks(if strip.height > 60.0 { 3 } else { 2 });
            svg.grid(scale, &ticks, (LEFT, PLOT_WIDTH - RIGHT), "small", number::tick);
            svg.about((LEFT, *top), strip.name);
            for (_, m) in &runs {
                self.run(&mut svg, strip, scale, m);
            }
        }
        self.foot(&mut svg);
        if let Some((_, m)) = runs.iter().find(|(_, m)| m.steadiness.kind == SteadyKind::TwoRegime)
        {
            self.regimes(&mut svg, &m.intervals);
        }
        svg.close();
        svg.finish()
    }

    fn run(&self, svg: &mut Svg, strip: &Strip, scale: &Scale, m: &Measurement) {
        let place = |interval: &Interval| {
            Some((self.time.at(interval.end_s), scale.at((strip.read)(interval)?)))
        };
        let points: Vec<_> = m.intervals.iter().filter_map(place).collect();
        let is_odd = m.steadiness.kind == SteadyKind::TwoRegime;
        svg.path(&polyline(&points), if is_odd { "run odd" } else { "run" });
    }

    fn foot(&self, svg: &mut Svg) {
        let y = self.height - 6.0;
        for tick in self.time.ticks(4) {
            let words = format!("{} s", number::tick(tick));
            svg.text((self.time.at(tick), y), "dim mid small", &words);
        }
    }

    /// Where the first run in two regimes changes, and the two levels.
    fn regimes(&self, svg: &mut Svg, intervals: &[Interval]) {
        let Some((_, scale, top)) = self.strips.first() else { return };
        let rates: Vec<_> = intervals.iter().map(|interval| interval.events_per_s).collect();
        let Steadiness::TwoRegime { change_index, before, after } = steadiness(&rates) else {
            return;
        };
        let x = self.time.at(intervals[change_index - 1].end_s);
        svg.line((x, *top), (x, self.height - FOOT), "regime");
        svg.line((LEFT, scale.at(before)), (x, scale.at(before)), "regime");
        svg.line((x, scale.at(after)), (PLOT_WIDTH - RIGHT, scale.at(after)), "regime");
    }
}

/// The plot of one comparison with its table.
pub(in crate::report) fn forest(record: &Record, comparison: &Comparison<'_>) -> String {
    let in_turns = comparison.rows.iter().any(|row| row.turns.is_some());
    let caption = if in_turns { CAPTION_OF_TURNS } else { CAPTION };
    let about = format!("<figcaption>{caption}</figcaption>");
    figure("forest", &plot(record, comparison).html(), &about, &forest_table(comparison).html())
}

/// The comparisons in full, one row each.
fn forest_table(comparison: &Comparison<'_>) -> Table {
    let value = format!("#{}", comparison.unit());
    let versus = format!("#vs {}", comparison.baseline());
    let [median, band] = ["#median", "#no difference"];
    let in_turns = comparison.rows.iter().any(|row| row.turns.is_some());
    let count = if in_turns { "#sets" } else { "#blocks" };
    let headings = ["arm", &value, &versus, median, band, "verdict", count, "notes"];
    let mut forest_table = Table::new(headings).hinted(glossary::heading);
    for point in comparison.points() {
        forest_table.group(point);
        for row in comparison.at(point) {
            let [value, ratio, verdict] = words::cells(row);
            let band = format!("± {}", number::percent(row.no_difference));
            forest_table.row([
                Cell::text(&row.arm).part("arm").title(glossary::arm(&row.arm)),
                value,
                if row.ratio.is_some() { ratio.title(&row.method) } else { ratio },
                Cell::number_or(row.ratio_median, number::ratio, "–", ""),
                Cell::number(&band, row.no_difference),
                verdict,
                Cell::count(row.blocks),
                Cell::text(&words::row_notes(row)).wide(),
            ]);
        }
    }
    forest_table
}

fn plot(record: &Record, comparison: &Comparison<'_>) -> Table {
    let drawn = comparison.rows.iter().filter(|row| is_drawn(row));
    let bounds = drawn.flat_map(|row| [row.ci_low, row.ci_high]).flatten();
    let ends = |row: &&ResultRow| [1.0 / (1.0 + row.no_difference), 1.0 + row.no_difference];
    let forest = Forest::over(bounds.chain(comparison.rows.iter().flat_map(ends)));
    let versus = format!("#vs {}", comparison.baseline());
    let unit = format!("#{}", comparison.unit());
    let headings = ["arm", &unit, "ratio, 95 % interval", "verdict", &versus];
    let mut forest_table = Table::plot(&headings).hinted(glossary::heading);
    let (less, more) =
        if comparison.more_is_better() { ("slower", "faster") } else { ("less", "more") };
    let blank = || Cell::text("");
    forest_table.row([blank(), blank(), forest.axis(less, more), blank(), blank()]);
    for point in comparison.points() {
        forest_table.group(point);
        for row in comparison.at(point) {
            let plot = match (failure(record, row), is_drawn(row)) {
                (Some(reason), false) => Cell::text(reason).part("plot").tone(Tone::Dim),
                _ => stretch(&forest, row),
            };
            let value = Cell::number(&words::value(row), row.value.unwrap_or(f64::NAN));
            let [_, ratio, verdict] = words::cells(row);
            forest_table.row([
                Cell::text(&row.arm).part("arm").title(glossary::arm(&row.arm)),
                value.tone(Tone::Dim),
                plot,
                verdict.part("verdict"),
                ratio,
            ]);
        }
    }
    forest_table
}

/// What a row draws: a disc where a difference was shown, a square where there is none, a ring where it
/// is open.
fn stretch(forest: &Forest, row: &ResultRow) -> Cell {
    let dot = match row.verdict {
        Verdict::Faster | Verdict::Slower => Dot::Disc,
        Verdict::Equivalent | Verdict::NoiseLevel => Dot::Square,
        _ => Dot::Ring,
    };
    let ratio = words::ratio_and_interval(row);
    let verdict = words::judgement(row);
    let tip = format!("{}, {}: {ratio}, {verdict}", row.point, row.arm);
    let bounds = row.ratio.zip(row.ci_low).zip(row.ci_high).filter(|_| is_drawn(row));
    let estimate = bounds.map(|((ratio, low), high)| ([ratio, low, high], dot, &*tip));
    forest.row(row.no_difference, words::tone(row.verdict), estimate)
}

fn failure<'a>(record: &'a Record, row: &ResultRow) -> Option<&'a str> {
    let is_failed = row.verdict == Verdict::Failed;
    is_failed.then(|| failure_reason(record, &row.experiment, &row.point, &row.arm))?
}

/// A run with what is drawn of it.
struct Drawn<'a> {
    run: &'a Run,
    /// Value over the median of its arm and point; absent when it failed.
    relative: Option<f64>,
    is_outlier: bool,
    block: Option<&'a Block>,
}

/// The strip of one experiment with its table.
pub(in crate::report) fn strip(
    record: &Record,
    experiment: &str,
    arms: &Arms<'_>,
    key: &str,
) -> String {
    let drawn = drawn(record, experiment);
    if drawn.is_empty() {
        return String::new();
    }
    let svg = draw(&drawn, &words::part(record, experiment), arms, key);
    figure("strip", &scroll("chart", &svg), &notes(&strip_remarks(&drawn)), &strip_table(&drawn))
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
    let mut paper = Canvas::new(key, (&title, &about), (WIDTH, HEIGHT), EDGES);
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
fn blocks(paper: &mut Canvas, drawn: &[Drawn<'_>], x: &Scale) {
    let top = EDGES.top;
    let bottom = paper.height().0 + FAILED_LANE;
    let mut start = 0;
    for stretch in drawn.chunk_by(|a, b| a.run.block == b.run.block) {
        let from = x.at(start as f64 - 0.5);
        let to = x.at((start + stretch.len()) as f64 - 0.5);
        let disturbances =
            stretch[0].block.map(|block| block.disturbances.join("; ")).unwrap_or_default();
        if !disturbances.is_empty() {
            paper.svg.rect((from, top), (to - from, bottom - top), "disturbed", &disturbances);
        }
        paper.svg.line((from, top), (from, bottom), "grid");
        let middle = f64::midpoint(from, to);
        let block = stretch[0].run.block.to_string();
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
fn strip_remarks(drawn: &[Drawn<'_>]) -> Vec<String> {
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
    let number = apart[0].run.block;
    let runs = apart.len();
    let gates = gate_words(apart[0]);
    let low = number::ratio(low);
    let high = number::ratio(high);
    Some(format!(
        "block {number}: {runs} runs stand apart, {low}× to {high}× their medians, kept; {gates}"
    ))
}

fn gate_words(d: &Drawn<'_>) -> String {
    let words = d.block.map(|block| block.disturbances.join("; "));
    words.filter(|words| !words.is_empty()).unwrap_or_else(|| "no gate marked its block".to_owned())
}

fn strip_table(drawn: &[Drawn<'_>]) -> String {
    let headings =
        ["#block", "#place", "point", "arm", "#value", "#of its median", "state", "remark"];
    let mut strip_table = Table::new(headings);
    for d in drawn {
        let run = d.run;
        let measured = d.run.measured();
        let state = match measured.map(|m| &m.steadiness) {
            Some(steadiness) => {
                Cell::text(words::steady(steadiness.kind)).title(&steadiness.detail)
            }
            None => Cell::text("failed").tone(Tone::Bad),
        };
        let of_median = |relative| format!("{}×", number::ratio(relative));
        strip_table.row([
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
    strip_table.html()
}
