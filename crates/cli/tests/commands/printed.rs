//! What is printed to be read: manual pages, rendered by groff, beside `--help`; summaries through a pipe and
//! in the letters of the locale.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{pollux, text};

fn help(command: &str) -> String {
    let words: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
    text(pollux(&words).stdout)
}

/// The lines of a section of a help text, without their indentation.
fn section<'a>(help: &'a str, heading: &str) -> Vec<&'a str> {
    let after = help.split_once(&format!("{heading}:\n")).map_or("", |(_, after)| after);
    after.lines().take_while(|line| line.starts_with("  ")).map(str::trim).collect()
}

/// All pages in a folder.
fn pages() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let written = pollux(&["man", folder.path().to_str().expect("UTF-8")]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    folder
}

/// The commands that have a page, without `pollux` before them.
fn commands(folder: &Path) -> Vec<String> {
    let files =
        std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a page").path());
    let command = |page: String| {
        let line =
            page.lines().find_map(|line| line.strip_prefix(".SY \"pollux")).expect("a synopsis");
        line.trim_matches(['"', ' ']).replace("\\-", "-")
    };
    files.map(|file| command(std::fs::read_to_string(file).expect("text"))).collect()
}

/// The page of a command as text, and what groff warns of; none without groff.
fn rendered(folder: &Path, command: &str) -> Option<(String, String)> {
    let name = format!("pollux {command}").trim_end().replace(' ', "-");
    let page = folder.join(format!("{name}.1"));
    // Plain letters, without the escapes and overstrikes of bold and italic.
    let groff = ["-man", "-Tutf8", "-ww", "-P-cbou"];
    match Command::new("groff").args(groff).arg(&page).output() {
        Ok(Output { stdout, stderr, .. }) => Some((text(stdout), text(stderr))),
        Err(error) => {
            pollux_testing::skip(format_args!("groff: {error}"));
            None
        }
    }
}

#[test]
fn every_command_has_examples_and_they_stand_in_the_manual_as_they_can_be_copied() {
    let folder = pages();
    let commands = commands(folder.path());
    assert!(commands.len() > 30, "{commands:?}");
    for command in &commands {
        let Some((page, warnings)) = rendered(folder.path(), command) else { return };
        assert_eq!(warnings, "", "{command}");
        // Neither hyphens of broken words nor dashes and typographic quotes: all is ASCII to copy.
        let typographic =
            page.matches(['\u{2010}', '\u{2212}', '\u{2018}', '\u{2019}', '\u{02c6}']);
        assert_eq!(typographic.count(), 0, "{page}");
        let help = help(command);
        let examples = section(&help, "Examples");
        assert!(!examples.is_empty(), "{command} has no examples:\n{help}");
        let page: Vec<_> = page.lines().map(str::trim).collect();
        for line in examples {
            assert!(page.contains(&line), "{command}: no line {line:?} in\n{}", page.join("\n"));
        }
    }
}

#[test]
fn a_manual_page_has_the_usual_sections_in_the_usual_order() {
    let folder = pages();
    for (command, expected) in [
        ("load", "NAME SYNOPSIS DESCRIPTION OPTIONS SIGNALS EXIT STATUS EXAMPLES SEE ALSO"),
        ("serve", "NAME SYNOPSIS DESCRIPTION OPTIONS SIGNALS EXIT STATUS EXAMPLES SEE ALSO"),
        ("pool", "NAME SYNOPSIS DESCRIPTION OPTIONS COMMANDS EXIT STATUS ENVIRONMENT EXAMPLES"),
        ("lab", "NAME SYNOPSIS DESCRIPTION OPTIONS COMMANDS SIGNALS EXIT STATUS EXAMPLES"),
    ] {
        let page = std::fs::read_to_string(folder.path().join(format!("pollux-{command}.1")));
        let page = page.expect("a page");
        let headings = page.lines().filter_map(|line| line.strip_prefix(".SH "));
        let headings: Vec<_> = headings.map(|heading| heading.trim_matches('"')).collect();
        let mut place = headings.iter();
        let words = expected.replace("EXIT STATUS", "EXIT-STATUS").replace("SEE ALSO", "SEE-ALSO");
        for heading in words.split(' ').map(|word| word.replace('-', " ")) {
            assert!(place.any(|found| **found == heading), "{command}: {heading} in {headings:?}");
        }
        assert!(!headings.contains(&"EXTRA") && !headings.contains(&"VERSION"), "{headings:?}");
    }
}

#[test]
fn a_manual_page_names_values_version_and_its_neighbours() {
    let folder = pages();
    let Some((page, _)) = rendered(folder.path(), "lab run") else { return };
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["[--only NAME]", "[-q]", "[--profile[=HZ]]", "pollux-lab(1)", "pollux-lab-plan(1)"]
    {
        assert!(flat.contains(part), "no {part} in {flat}");
    }
    let version = String::from_utf8(pollux(&["-V"]).stdout).expect("UTF-8");
    assert!(flat.contains(version.trim()) && !flat.contains(" v0."), "{flat}");
}

fn report(locale: &str, words: &[&str]) -> (PathBuf, Output) {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/2026-11-21-quick");
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shown-{locale}.html"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "report"]).arg(run).args(words).arg("--html").arg(&page);
    (page, command.env("LC_ALL", locale).output().expect("pollux starts"))
}

fn summary(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text(output.stdout.clone())
}

#[test]
fn a_summary_through_a_pipe_is_whole() {
    let text = summary(&report("C.UTF-8", &[]).1);
    assert!(!text.contains('…'), "{text}");
    assert!(text.contains("to decide") || text.contains("would decide"), "the last column: {text}");
}

#[test]
fn a_locale_without_utf_8_gets_ascii_and_programs_get_the_same_bytes() {
    let plain = summary(&report("C", &[]).1);
    assert!(plain.is_ascii(), "{plain}");
    assert!(plain.contains("+-") && plain.contains("baseline"), "{plain}");
    assert!(summary(&report("C.UTF-8", &[]).1).contains('±'));
    assert_eq!(summary(&report("C", &["--json"]).1), summary(&report("en_GB.utf8", &["--json"]).1));
    let [here, there] = ["C", "C.UTF-8"].map(|locale| report(locale, &["--json"]).0);
    assert_eq!(std::fs::read(here).expect("a page"), std::fs::read(there).expect("a page"));
}
