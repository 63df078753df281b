//! The pages of lab and load as a browser lays them out, on a computer, on a phone and on paper.
//!
//! Chromium measures, on the screen; what it prints is read with pdftotext. Where one of them is
//! missing, a test says so and is skipped, unless `POLLUX_FORBID_SKIP` is set.

mod browser;
mod server;

use pollux_testing::has;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use browser::Laid;
use pollux_lab::record::{Record, Verdict};
use pollux_lab::{report, store};

/// Kept runs with every kind of chart: forests, curves, histograms, strips, times, Lorenz curves.
const RUNS: [&str; 6] = [
    "2026-11-21-pipes-curve",
    "2026-11-21-seed2",
    "2026-11-21-streams-original-unix",
    "2026-11-22-herd",
    "2026-11-22-quick",
    "2026-11-22-seed4",
];

fn kept(run: &str) -> Record {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs");
    store::load(&runs.join(run)).unwrap_or_else(|error| panic!("{error}"))
}

/// The page of a short run against a server of ours.
fn load_page(folder: &Path) -> String {
    let page = folder.join("load.html");
    let server = server::Server::start();
    let ran = Command::new(env!("CARGO_BIN_EXE_pollux"))
        .args(["load", "-c", "4", "-d", "1s", "--quiet", "--html"])
        .arg(&page)
        .arg(server.url())
        .stdout(Stdio::null())
        .status()
        .expect("pollux starts");
    // A busy machine may make findings, which are an exit code of their own; the page is there.
    std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{ran}: {error}"))
}

#[test]
fn no_text_of_a_report_touches_another_or_leaves_its_chart() {
    let Some(browser) = browser::find() else { return };
    let mut faults = Vec::new();
    for run in RUNS {
        let Laid { found, texts, verdicts } = browser.lay_out(&report::html(&kept(run)));
        faults.extend(found.into_iter().map(|fault| format!("{run}: {fault}")));
        assert!(texts > 100 && verdicts > 10, "{run}: {texts} texts, {verdicts} verdicts");
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn no_text_of_the_page_of_a_load_run_touches_another_or_leaves_its_chart() {
    let Some(browser) = browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let Laid { found, texts, .. } = browser.lay_out(&load_page(folder.path()));
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(texts > 20, "{texts} texts");
}

/// How often each text occurs.
fn counts<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    texts.for_each(|text| *counts.entry(text).or_default() += 1);
    counts
}

#[test]
fn a_printed_report_has_every_verdict_and_ratio() {
    let (Some(browser), true) = (browser::find(), has("pdftotext")) else { return };
    for run in ["2026-11-22-quick", "2026-11-21-seed2"] {
        let record = kept(run);
        let pages = browser.print(&report::html(&record));
        let printed: Vec<&str> = pages.split_whitespace().collect();
        let ratio = |row: &pollux_lab::record::ResultRow| {
            Some(format!("[{:.2},", row.ci_low.filter(|low| *low >= 0.1)?))
        };
        let compared = || record.results.iter().filter(|row| row.verdict != Verdict::Baseline);
        let ratios: Vec<String> = compared().filter_map(ratio).collect();
        let printed = counts(printed.into_iter());
        for (low, wanted) in counts(ratios.iter().map(String::as_str)) {
            let there = printed.get(low).copied().unwrap_or_default();
            assert!(there >= wanted, "{run}: {low} is printed {there} times, not {wanted} times");
        }
        // Of those that are open the ones whose interval leaves 1 out have their direction beside it.
        let holds_1 = |row: &pollux_lab::record::ResultRow| {
            row.ci_low.is_none_or(|low| low <= 1.0) && row.ci_high.is_none_or(|high| high >= 1.0)
        };
        let word = |row: &pollux_lab::record::ResultRow| match row.verdict {
            Verdict::Inconclusive if holds_1(row) => "undecided",
            Verdict::Inconclusive => "unconfirmed",
            Verdict::Equivalent => "equivalent",
            _ => "",
        };
        let words = compared().map(word).filter(|word| !word.is_empty());
        for (word, wanted) in counts(words) {
            let there = printed.get(word).copied().unwrap_or_default();
            assert!(there >= wanted, "{run}: {word} is printed {there} times, not {wanted} times");
        }
    }
}

#[test]
fn a_printed_page_of_a_load_run_has_every_figure_of_its_boxes() {
    let (Some(browser), true) = (browser::find(), has("pdftotext")) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = load_page(folder.path());
    let printed = browser.print(&page);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let printed = words(&printed);
    let figures: Vec<&str> =
        page.split("<dd>").skip(1).filter_map(|rest| rest.split("</dd>").next()).collect();
    assert!(figures.len() > 10, "{figures:?}");
    for figure in figures.iter().take(7) {
        assert!(printed.contains(&words(figure)), "{figure} is not in print: {printed}");
    }
}
