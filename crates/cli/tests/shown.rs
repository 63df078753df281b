//! What a summary looks like where it is read: through a pipe, and in the letters of the locale.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn report(locale: &str, words: &[&str]) -> (PathBuf, Output) {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/2026-11-22-quick");
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shown-{locale}.html"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "report"]).arg(run).args(words).arg("--html").arg(&page);
    (page, command.env("LC_ALL", locale).output().expect("pollux starts"))
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn a_summary_through_a_pipe_is_whole() {
    let text = text(&report("C.UTF-8", &[]).1);
    assert!(!text.contains('…'), "{text}");
    assert!(text.contains("to decide") || text.contains("would decide"), "the last column: {text}");
}

#[test]
fn a_locale_without_utf_8_gets_ascii_and_programs_get_the_same_bytes() {
    let plain = text(&report("C", &[]).1);
    assert!(plain.is_ascii(), "{plain}");
    assert!(plain.contains("+-") && plain.contains("baseline"), "{plain}");
    assert!(text(&report("C.UTF-8", &[]).1).contains('±'));
    assert_eq!(text(&report("C", &["--json"]).1), text(&report("en_GB.utf8", &["--json"]).1));
    let [here, there] = ["C", "C.UTF-8"].map(|locale| report(locale, &["--json"]).0);
    assert_eq!(std::fs::read(here).expect("a page"), std::fs::read(there).expect("a page"));
}
