//! The forest plot: for each point and arm the ratio to the baseline with its interval.
//!
//! The band in which effects count as no difference is shaded behind the marks.

use pollux_report::chart::{Dot, Forest, figure};
use pollux_report::{Cell, Table, Tone};

use crate::record::{Record, ResultRow, Verdict};
use crate::report::view::{self, Comparison};
use crate::report::{number, words};

/// The plot of one comparison with its table.
pub(crate) fn forest(record: &Record, comparison: &Comparison<'_>) -> String {
    let in_turns = comparison.rows.iter().any(|row| row.turns.is_some());
    let caption = if in_turns { CAPTION_OF_TURNS } else { CAPTION };
    let about = format!("<figcaption>{caption}</figcaption>");
    figure("forest", &plot(record, comparison).html(), &about, &table(comparison).html())
}

/// How to read the marks.
const CAPTION: &str = "Marks are geometric means over blocks of arm over baseline, lines their 95 % intervals; inside \
                       the shaded band a difference is too small to count or no larger than the noise.";

/// The same where arms took turns.
const CAPTION_OF_TURNS: &str = "Marks are means over sets of fresh processes of arm over baseline, lines their 95 % \
                                intervals; the shaded band is the minimum effect.";

/// The comparisons in full, one row each.
fn table(comparison: &Comparison<'_>) -> Table {
    let value = format!("#{}", comparison.unit());
    let versus = format!("#vs {}", comparison.baseline());
    let [median, band] = ["#median", "#no difference"];
    let headings = ["arm", &value, &versus, median, band, "verdict", "#blocks", "notes"];
    let mut table = Table::new(headings);
    for point in comparison.points() {
        table.group(point);
        for row in comparison.at(point) {
            let [value, ratio, verdict] = words::cells(row);
            let band = format!("± {}", number::percent(row.no_difference));
            table.row([
                Cell::text(&row.arm),
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
    table
}

fn plot(record: &Record, comparison: &Comparison<'_>) -> Table {
    let drawn = comparison.rows.iter().filter(|row| view::is_drawn(row));
    let bounds = drawn.flat_map(|row| [row.ci_low, row.ci_high]).flatten();
    let ends = |row: &&ResultRow| [1.0 / (1.0 + row.no_difference), 1.0 + row.no_difference];
    let forest = Forest::over(bounds.chain(comparison.rows.iter().flat_map(ends)));
    let (versus, unit) =
        (format!("#vs {}", comparison.baseline()), format!("#{}", comparison.unit()));
    let mut table = Table::plot(&["arm", &unit, "ratio, 95 % interval", "verdict", &versus]);
    let (less, more) =
        if comparison.more_is_better() { ("slower", "faster") } else { ("less", "more") };
    let blank = || Cell::text("");
    table.row([blank(), blank(), forest.axis(less, more), blank(), blank()]);
    for point in comparison.points() {
        table.group(point);
        for row in comparison.at(point) {
            let plot = match (failure(record, row), view::is_drawn(row)) {
                (Some(reason), false) => Cell::text(reason).part("plot").tone(Tone::Dim),
                _ => stretch(&forest, row),
            };
            let value = Cell::number(&words::value(row), row.value.unwrap_or(f64::NAN));
            let [_, ratio, verdict] = words::cells(row);
            table.row([
                Cell::text(&row.arm),
                value.tone(Tone::Dim),
                plot,
                verdict.part("verdict"),
                ratio,
            ]);
        }
    }
    table
}

/// What a row draws: a disc where a difference was shown, a square where there is none, a ring where it
/// is open.
fn stretch(forest: &Forest, row: &ResultRow) -> Cell {
    let dot = match row.verdict {
        Verdict::Faster | Verdict::Slower => Dot::Disc,
        Verdict::Equivalent | Verdict::NoiseLevel => Dot::Square,
        _ => Dot::Ring,
    };
    let (ratio, verdict) = (words::ratio_and_interval(row), words::judgement(row));
    let tip = format!("{}, {}: {ratio}, {verdict}", row.point, row.arm);
    let bounds = row.ratio.zip(row.ci_low).zip(row.ci_high).filter(|_| view::is_drawn(row));
    let estimate = bounds.map(|((ratio, low), high)| ([ratio, low, high], dot, &*tip));
    forest.row(row.no_difference, words::tone(row.verdict), estimate)
}

fn failure<'a>(record: &'a Record, row: &ResultRow) -> Option<&'a str> {
    let is_failed = row.verdict == Verdict::Failed;
    is_failed.then(|| view::failure_reason(record, &row.experiment, &row.point, &row.arm))?
}
