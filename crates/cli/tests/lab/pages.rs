//! The pages of lab and load as a browser lays them out, on a computer, on a phone and on paper.
//!
//! Chromium measures, on the screen; what it prints is read with pdftotext. Where one of them is
//! missing, a test says so and is skipped, unless `POLLUX_FORBID_SKIP` is set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_lab::record::{Record, Verdict};
use pollux_lab::{report, store};
use pollux_testing::{Process, addresses, has};
use serde::Deserialize;
use tempfile::TempDir;

/// Kept runs with every kind of chart: forests, curves, histograms, strips, times, Lorenz curves.
const RUNS: [&str; 7] = [
    "2026-11-21-pipes-curve",
    "2026-11-21-seed2",
    "2026-11-21-streams-original-unix",
    "2026-11-22-herd",
    "2026-11-21-quick",
    "2026-11-22-seed4",
    "2026-11-22-quick-turns",
];

const MEASURE: &str = include_str!("measure.js");
/// A computer, a narrow window, two phones.
const WIDTHS_PX: [u32; 4] = [1280, 500, 400, 360];

fn kept(run: &str) -> Record {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs");
    store::load(&runs.join(run)).unwrap_or_else(|error| panic!("{error}"))
}

/// The page of a short run against a server of ours.
fn load_page(folder: &Path) -> String {
    let page = folder.join("load.html");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_pollux"));
    serve.args(["serve", "--reply", "128", "--listen", "127.0.0.1:0"]);
    let mut server = Process::start(&mut serve);
    let address = addresses(&server.wait_for_stderr_line("http://"))[0];
    let ran = Command::new(env!("CARGO_BIN_EXE_pollux"))
        .args(["load", "-c", "4", "-d", "1s", "--quiet", "--html"])
        .arg(&page)
        .arg(format!("http://{address}/"))
        .stdout(Stdio::null())
        .status()
        .expect("pollux starts");
    // A busy machine may make findings, which are an exit code of their own; the page is there.
    std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{ran}: {error}"))
}

#[test]
fn no_text_of_a_report_touches_another_or_leaves_its_chart() {
    let Some(browser) = browser() else { return };
    let mut faults = Vec::new();
    // In one browser, which takes a while to start.
    let pages = RUNS.map(|run| report::html(&kept(run)));
    let laid = browser.lay_out(&pages);
    assert_eq!(laid.len(), RUNS.len(), "each was laid out");
    for (run, laid) in RUNS.into_iter().zip(laid) {
        let Laid { found, texts, verdicts, parts } = laid;
        faults.extend(found.into_iter().map(|fault| format!("{run}: {fault}")));
        assert!(texts > 100 && verdicts > 10, "{run}: {texts} texts, {verdicts} verdicts");
        assert!(parts > 1000, "{run}: {parts} parts");
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn no_text_of_the_page_of_a_load_run_touches_another_or_leaves_its_chart() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let laid = browser.lay_out(&[load_page(folder.path())]);
    let [Laid { found, texts, .. }] = &laid[..] else { panic!("one page") };
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(*texts > 20, "{texts} texts");
}

/// How often each text occurs.
fn counts<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    texts.for_each(|text| *counts.entry(text).or_default() += 1);
    counts
}

#[test]
fn a_printed_report_has_every_verdict_and_ratio() {
    let (Some(browser), true) = (browser(), has("pdftotext")) else { return };
    for run in ["2026-11-21-quick", "2026-11-21-seed2"] {
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
    let (Some(browser), true) = (browser(), has("pdftotext")) else { return };
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

/// A browser with a profile of its own.
struct Browser {
    program: PathBuf,
    folder: TempDir,
}

/// What was found of a page.
struct Laid {
    /// One line for each fault.
    found: Vec<String>,
    /// Texts in charts that were measured, at all widths.
    texts: usize,
    /// Verdicts that were measured, at all widths.
    verdicts: usize,
    /// Texts beside each other, at all widths.
    parts: usize,
}

#[derive(Deserialize)]
struct Measured {
    found: Vec<String>,
    counted: Counted,
}

#[derive(Deserialize)]
struct Counted {
    texts: usize,
    verdicts: usize,
    parts: usize,
}

/// The browser, where there is one.
fn browser() -> Option<Browser> {
    let program = has("chromium").then(|| pollux_host::find_program("chromium"))??;
    Some(Browser { program, folder: tempfile::tempdir().expect("a folder") })
}

impl Browser {
    /// Lays pages out at each width and measures them.
    fn lay_out(&self, pages: &[String]) -> Vec<Laid> {
        // A page's own policy would hold for the frames too, and forbids nothing that is asked.
        let pages: Vec<String> = pages.iter().map(|page| json(page)).collect();
        let pages = pages.join(",").replace("</", "<\\/").replace("<!--", "<\\u0021--");
        let script = MEASURE.replace("(PAGES, WIDTHS)", &format!("([{pages}], {WIDTHS_PX:?})"));
        let outer = format!(
            "<!DOCTYPE html><meta charset=\"utf-8\"><body><pre id=\"found\"></pre><script>{script}</script>"
        );
        let file = self.folder.path().join("outer.html");
        std::fs::write(&file, outer).expect("a file");
        let document = self.run(&["--dump-dom", &format!("file://{}", file.display())]);
        let start =
            document.find("<pre id=\"found\">").expect("the list") + "<pre id=\"found\">".len();
        let end = start + document[start..].find("</pre>").expect("its end");
        let list = document[start..end].replace("&lt;", "<").replace("&gt;", ">");
        let list = list.replace("&nbsp;", "\u{a0}").replace("&amp;", "&");
        let measured: Vec<Measured> =
            serde_json::from_str(&list).unwrap_or_else(|error| panic!("{error}: {list}"));
        let laid = |Measured { found, counted: Counted { texts, verdicts, parts } }| Laid {
            found,
            texts,
            verdicts,
            parts,
        };
        measured.into_iter().map(laid).collect()
    }

    /// The text of `page` as it is printed.
    fn print(&self, page: &str) -> String {
        let file = self.folder.path().join("page.html");
        let pdf = self.folder.path().join("page.pdf");
        std::fs::write(&file, page).expect("a file");
        self.run(&[
            &format!("--print-to-pdf={}", pdf.display()),
            "--no-pdf-header-footer",
            &format!("file://{}", file.display()),
        ]);
        let text = Command::new("pdftotext").arg("-layout").arg(&pdf).arg("-").output();
        let text = text.expect("pdftotext starts");
        assert!(text.status.success(), "{}", String::from_utf8_lossy(&text.stderr));
        String::from_utf8(text.stdout).expect("text")
    }

    fn run(&self, words: &[&str]) -> String {
        let output = Command::new(&self.program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .arg(format!("--user-data-dir={}", self.folder.path().join("profile").display()))
            .args(words)
            .output()
            .expect("the browser starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }
}

fn json(text: &str) -> String {
    serde_json::to_string(text).expect("text")
}
