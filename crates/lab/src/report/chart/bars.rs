//! Bars: how many events each wait returned, and which symbols the samples fell in.
//!
//! Both are counts; they carry no intervals.

use super::figure;
use crate::record::{CountingRun, Profile};
use crate::report::markup::{Cell, Table, notes, scroll};
use crate::report::view::Arms;
use crate::report::{number, words};
use pollux_report::{Scale, Svg, fit, text_width};

const WIDTH: f64 = 250.0;
const LEFT: f64 = 44.0;
const TOP: f64 = 24.0;
const PLOT: f64 = 56.0;
const BAR_WIDTH_MAX: f64 = 30.0;
/// Letters of the names of classes; `style.css` says the same of `.small`.
const SMALL: f64 = 10.5;
const FOOT: f64 = 20.0;

const PROFILE_WIDTH: f64 = 510.0;
const SYMBOL_WIDTH: f64 = 250.0;
const PROFILE_ROW: f64 = 20.0;
/// The tail of a profile is long and says little; the table has it whole.
const SYMBOLS_MAX: usize = 12;

/// Waits by the number of events that they returned, one small chart for each arm.
///
/// `None` when no arm has a poller that counts.
pub(crate) fn events_per_wait(runs: &[&CountingRun], arms: &Arms<'_>, key: &str) -> Option<String> {
    let with_waits: Vec<_> = runs.iter().filter(|run| waits(run) > 0).collect();
    let bins = with_waits.iter().map(|run| run.events_per_wait_histogram.len()).max()?;
    let draw = |(index, run): (usize, &&&CountingRun)| {
        histogram(run, bins, arms, &format!("{key}-{index}"))
    };
    let charts: String = with_waits.iter().enumerate().map(draw).collect();
    let grid = format!("<div class=\"multiples\">{charts}</div>");
    Some(figure("histogram", &grid, "", &histogram_table(&with_waits, bins)))
}

fn waits(run: &CountingRun) -> u64 {
    run.events_per_wait_histogram.iter().fold(0, |sum, waits| sum.saturating_add(*waits))
}

fn histogram(run: &CountingRun, bins: usize, arms: &Arms<'_>, key: &str) -> String {
    let size = (WIDTH, TOP + PLOT + FOOT);
    let about =
        format!("{} waits in {bins} classes of events per wait.", number::count(waits(run)));
    let mut svg = Svg::new(key, size, &format!("{}, events per wait", run.arm), &about);
    svg.open(&arms.class(&run.arm), Some(arms.index(&run.arm)));
    svg.text((LEFT, 12.0), "strong", &fit(&run.arm, 13.5, WIDTH - LEFT - 80.0));
    svg.text(
        (WIDTH - 8.0, 12.0),
        "dim end small",
        &format!("{} waits", number::si(waits(run) as f64)),
    );
    let share = Scale::linear((0.0, 1.0), (TOP + PLOT, TOP));
    for tick in [0.0, 0.5, 1.0] {
        svg.line((LEFT, share.at(tick)), (WIDTH - 8.0, share.at(tick)), "grid");
        svg.text(
            (LEFT - 6.0, share.at(tick) + 4.0),
            "dim end small",
            &format!("{:.0} %", tick * 100.0),
        );
    }
    let step = ((WIDTH - 8.0 - LEFT) / bins.max(1) as f64).min(BAR_WIDTH_MAX);
    let mut free_from = 0.0;
    for (bin, count) in run.events_per_wait_histogram.iter().enumerate() {
        let part = *count as f64 / waits(run) as f64;
        let x = LEFT + bin as f64 * step;
        let tip = format!(
            "{}: {} of waits ({})",
            bin_name(bin),
            number::percent(part),
            number::count(*count)
        );
        let top = share.at(part);
        svg.rect((x + 1.0, top), (step - 2.0, share.at(0.0) - top), "bar", &tip);
        // As many names as have room: they are powers of two and easily filled in.
        let (name, middle) = (bin_start(bin).to_string(), x + step / 2.0);
        let half = text_width(&name, SMALL) / 2.0;
        if middle - half >= free_from && middle + half <= WIDTH {
            svg.text((middle, TOP + PLOT + 14.0), "dim mid small", &name);
            free_from = middle + half + 3.0;
        }
    }
    svg.close();
    svg.finish()
}

fn histogram_table(runs: &[&&CountingRun], bins: usize) -> String {
    let names: Vec<_> = (0..bins).map(|bin| format!("#{}", bin_name(bin))).collect();
    let headings: Vec<_> = std::iter::once("arm").chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new(&headings);
    for run in runs {
        let counts =
            (0..bins).map(|bin| run.events_per_wait_histogram.get(bin).copied().unwrap_or(0));
        let cells = counts.map(|count| Cell::number(&number::count(count), count as f64));
        let row: Vec<_> = std::iter::once(Cell::text(&run.arm)).chain(cells).collect();
        table.row(&row);
    }
    table.finish()
}

/// First number of events in a class: 0, 1, 2, 4, 8, …
fn bin_start(bin: usize) -> u64 {
    match bin {
        0 => 0,
        bin => 1u64.checked_shl(bin as u32 - 1).unwrap_or(u64::MAX),
    }
}

fn bin_name(bin: usize) -> String {
    match bin {
        0 | 1 => format!("{bin}"),
        bin => format!("{}–{}", bin_start(bin), bin_start(bin + 1).saturating_sub(1)),
    }
}

/// The symbols of one profile, or the reason why there are none.
pub(crate) fn profile(profile: &Profile, arms: &Arms<'_>, key: &str) -> String {
    let title = format!("{}, {}: where the time went", profile.point, profile.arm);
    let Some(samples) = profile.samples.value() else {
        let why = words::missing(profile.samples.reason());
        return notes(&[format!("{title}: {why}")]);
    };
    let shown = &profile.symbols[..profile.symbols.len().min(SYMBOLS_MAX)];
    let height = TOP + shown.len() as f64 * PROFILE_ROW + 6.0;
    let about = format!(
        "The first {} of {} symbols by share of {samples} samples.",
        shown.len(),
        profile.symbols.len()
    );
    let mut svg = Svg::new(key, (PROFILE_WIDTH, height), &title, &about);
    let heading = format!("{} · {}", profile.arm, profile.point);
    svg.text((0.0, 12.0), "strong", &fit(&heading, 12.0, PROFILE_WIDTH - 130.0));
    svg.text((PROFILE_WIDTH, 12.0), "dim end", &format!("{} samples", number::count(*samples)));
    let highest = shown.iter().map(|symbol| symbol.share).fold(0.01, f64::max);
    let bar = Scale::linear((0.0, highest), (0.0, PROFILE_WIDTH - SYMBOL_WIDTH - 70.0));
    svg.open(&arms.class(&profile.arm), None);
    for (index, symbol) in shown.iter().enumerate() {
        let y = TOP + index as f64 * PROFILE_ROW;
        let length = bar.at(symbol.share);
        svg.text(
            (SYMBOL_WIDTH - 8.0, y + 14.0),
            "end code",
            &fit(&symbol.symbol, 12.0, SYMBOL_WIDTH - 12.0),
        );
        let tip = format!("{}: {} samples", symbol.symbol, symbol.samples);
        svg.rect((SYMBOL_WIDTH, y + 3.0), (length, PROFILE_ROW - 6.0), "bar", &tip);
        svg.text(
            (SYMBOL_WIDTH + length + 6.0, y + 14.0),
            "dim fig",
            &number::percent(symbol.share),
        );
    }
    svg.close();
    let mut table = Table::new(&["symbol", "#samples", "#share"]);
    for symbol in &profile.symbols {
        let samples = Cell::number(&number::count(symbol.samples), symbol.samples as f64);
        table.row(&[
            Cell::code(&symbol.symbol),
            samples,
            Cell::number(&number::percent(symbol.share), symbol.share),
        ]);
    }
    figure("profile", &scroll("chart", &svg.finish()), "", &table.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4].map(bin_name), ["0", "1", "2–3", "4–7", "8–15"]);
        assert!(bin_name(70).contains('–'), "a class beyond the largest number has a name too");
    }
}
