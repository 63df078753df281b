//! Keeps `docs/failure-catalogue.md` true: every test that it names stands in the file it names.

use std::path::Path;

/// Items of the catalogue; each has a row.
const ITEMS: usize = 18;

/// What the last column of a row names, as `(file, test)`, and what is wrong with it.
fn missing_of(root: &Path, row: &str) -> Vec<String> {
    let tests = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
    let (mut file, mut text, mut missing) = ("", String::new(), Vec::new());
    // Every other piece stands between backticks.
    for name in tests.split('`').skip(1).step_by(2) {
        if name.contains('/') {
            (file, text) = (name, std::fs::read_to_string(root.join(name)).unwrap_or_default());
            if text.is_empty() {
                missing.push(format!("no file {file}"));
            }
        } else if !is_test(&text, name) {
            missing.push(format!("{file} has no test {name}"));
        }
    }
    missing
}

/// Whether `text` has the function `name` with `#[test]` among its attributes.
fn is_test(text: &str, name: &str) -> bool {
    let Some(at) = text.find(&format!("fn {name}()")) else { return false };
    let attributes = text[..at].lines().rev().take_while(|line| !line.ends_with(['}', ';']));
    attributes.into_iter().any(|line| line.trim() == "#[test]")
}

fn rows(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"))
}

#[test]
fn every_test_of_the_failure_catalogue_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let page = std::fs::read_to_string(root.join("docs/failure-catalogue.md")).expect("the page");
    assert_eq!(rows(&page).count(), ITEMS);
    let missing: Vec<String> = rows(&page).flat_map(|row| missing_of(root, row)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let row =
        "| 1 | a | b | `src/catalogue.rs` `a_test_that_is_not_there_is_found` `is_test` `x` |";
    let missing = ["is_test", "x"].map(|name| format!("src/catalogue.rs has no test {name}"));
    assert_eq!(missing_of(root, row), missing);
    assert_eq!(missing_of(root, "| 1 | a | b | `src/none.rs` |"), ["no file src/none.rs"]);
}
