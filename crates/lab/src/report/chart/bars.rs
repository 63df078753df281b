//! Bars: how many events each wait returned, and which symbols the samples fell in.
//!
//! Both are counts; they carry no intervals.

use pollux_report::chart::bars::{Bar, Head, ranked, small};
use pollux_report::chart::figure;
use pollux_report::markup::{notes, scroll};
use pollux_report::{Cell, Table};

use crate::record::{CountingRun, Profile, SymbolShare};
use crate::report::view::Arms;
use crate::report::{number, words};

/// The tail of a profile is long and says little; the table has it whole.
const SYMBOLS_MAX: usize = 12;

/// Waits by the number of events that they returned, one small chart for each arm.
///
/// `None` when no arm has a poller that counts.
pub(crate) fn events_per_wait(runs: &[&CountingRun], arms: &Arms<'_>, key: &str) -> Option<String> {
    let with_waits: Vec<_> = runs.iter().filter(|run| waits(run) > 0).collect();
    let bins = with_waits.iter().map(|run| run.events_per_wait_histogram.len()).max()?;
    let draw = |(index, run): (usize, &&&CountingRun)| {
        let waits = waits(run);
        let (title, beside) = (format!("{}, events per wait", run.arm), number::si(waits as f64));
        let about = format!("{} waits in {bins} classes of events per wait.", number::count(waits));
        let head = Head {
            name: &run.arm,
            beside: &format!("{beside} waits"),
            class: &arms.class(&run.arm),
            series: Some(arms.index(&run.arm)),
        };
        let bar = |bin: usize| {
            let count = run.events_per_wait_histogram.get(bin).copied().unwrap_or(0);
            let share = count as f64 / waits as f64;
            let (of, count) = (number::percent(share), number::count(count));
            let tip = format!("{}: {of} of waits ({count})", bin_name(bin));
            Bar { name: bin_start(bin).to_string(), share, tip }
        };
        let bars: Vec<Bar> = (0..bins).map(bar).collect();
        small(&format!("{key}-{index}"), (&title, &about), head, &bars)
    };
    let charts: String = with_waits.iter().enumerate().map(draw).collect();
    let grid = format!("<div class=\"multiples\">{charts}</div>");
    let names = (0..bins).map(|bin| format!("#{}", bin_name(bin)));
    let mut table = Table::new(std::iter::once("arm".to_owned()).chain(names));
    for run in with_waits {
        let count = |bin| run.events_per_wait_histogram.get(bin).copied().unwrap_or(0);
        let cells = (0..bins).map(|bin| Cell::count(count(bin)));
        table.row(std::iter::once(Cell::text(&run.arm)).chain(cells).collect::<Vec<_>>());
    }
    Some(figure("histogram", &grid, "", &table.html()))
}

fn waits(run: &CountingRun) -> u64 {
    run.events_per_wait_histogram.iter().fold(0, |sum, waits| sum.saturating_add(*waits))
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
    let (all, samples) = (profile.symbols.len(), number::count(*samples));
    let about =
        format!("The first {} of {all} symbols by share of {samples} samples.", shown.len());
    let head = Head {
        name: &format!("{} · {}", profile.arm, profile.point),
        beside: &format!("{samples} samples"),
        class: &arms.class(&profile.arm),
        series: None,
    };
    let bar = |symbol: &SymbolShare| Bar {
        name: symbol.symbol.clone(),
        share: symbol.share,
        tip: format!("{}: {} samples", symbol.symbol, symbol.samples),
    };
    let bars: Vec<Bar> = shown.iter().map(bar).collect();
    let chart = ranked(key, (&title, &about), head, &bars);
    let mut table = Table::new(["symbol", "#samples", "#share"]);
    for SymbolShare { symbol, samples, share } in &profile.symbols {
        let share = Cell::number(&number::percent(*share), *share);
        table.row([Cell::code(symbol), Cell::count(*samples), share]);
    }
    figure("profile", &scroll("chart", &chart), "", &table.html())
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
