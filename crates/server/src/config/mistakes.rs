//! What is wrong with settings is answered as `mistakes.txt` says: sentences stand there, and in no test.
//!
//! A case is the lines of a file behind `|`, a word that its answer has to have behind `?`, and the answer, which
//! `cargo xtask bless` writes.

use std::path::Path;

use crate::config::serve_or_proxy::settings_of;

const CASES: &str = "src/config/mistakes.txt";

#[test]
fn every_mistake_is_answered_as_the_blessed_file_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CASES);
    let old = std::fs::read_to_string(&path).expect("a file of cases");
    let mut new = Vec::new();
    for case in old.split("\n\n") {
        let lines =
            |sign: &'static str| case.lines().filter_map(move |line| line.strip_prefix(sign));
        let text: Vec<&str> = lines("| ").collect();
        let word = lines("? ").next().expect("a word of the answer");
        let answer = settings_of(&text.join("\n")).expect_err(case);
        assert!(answer.contains(word), "{case}\n{answer}");
        let shown: Vec<String> = text.iter().map(|line| format!("| {line}\n")).collect();
        new.push(format!("{}? {word}\n{answer}\n", shown.concat()));
    }
    assert!(new.len() > 60, "only {} cases in {CASES}", new.len());
    let new = new.join("\n");
    if std::env::var_os("POLLUX_BLESS").is_some() {
        std::fs::write(&path, new).expect("written");
    } else {
        assert!(new == old, "{CASES} says otherwise, `cargo xtask bless` writes:\n{new}");
    }
}
