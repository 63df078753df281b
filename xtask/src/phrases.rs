//! Phrases that the texts of the project do without, in code, comments, messages and pages.
//!
//! `docs/glossary.md` has the words that take their place.

use std::path::Path;

use crate::install::{at, files};

/// Files that name the phrases: the glossary, and the places where this check does.
const QUOTING: [&str; 2] = ["docs/glossary.md", "xtask/src/phrases.rs"];

/// Folders and files that are read.
const PLACES: [&str; 11] = [
    "crates",
    "docs",
    "jobs",
    "xtask",
    "fuzz/checks",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "STYLE.md",
    "examples",
];

const ENDINGS: [&str; 7] = ["rs", "md", "toml", "c", "h", "html", "txt"];

/// Private words, for which the field has one.
const WORDS: [&str; 15] = [
    "desk",
    "desks",
    "seat",
    "seats",
    "crew",
    "crews",
    "strangers",
    "survivors",
    "farewell",
    "doorbell",
    "liaison",
    "outlet",
    "whoever",
    "hears",
    "heard",
];

/// What a line has of the phrases, each as it is written there in small letters.
fn phrases_in(line: &str) -> Vec<String> {
    let line = line.to_ascii_lowercase();
    let words: Vec<&str> =
        line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let at = |index: usize| words.get(index).copied().unwrap_or_default();
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let (next, before) = (at(index + 1), at(index.wrapping_sub(1)));
        let is_verb = ["is", "are", "was", "were", "be", "been", "being"].contains(word);
        let is_pair = match (*word, next) {
            (_, "no") if is_verb => {
                let what = at(index + 2);
                let is_fine =
                    ["", "more", "longer", "such", "less", "fewer", "one"].contains(&what);
                before != "there" && !is_fine
            }
            (_, "told") => is_verb,
            ("told", "of" | "by") | ("tell" | "tells", "of") => true,
            ("go" | "goes" | "going" | "went", "on") => true,
            ("has" | "have" | "had", "room") | ("right", "is") | ("noise", "floor") => true,
            _ => false,
        };
        if is_pair {
            found.push(format!("{word} {next}"));
        } else if WORDS.contains(word) {
            found.push((*word).to_owned());
        }
    }
    found
}

/// A phrase and where it stands.
struct Found {
    file: String,
    line: usize,
    phrase: String,
}

fn read(root: &Path, relative: &Path, found: &mut Vec<Found>) -> Result<(), String> {
    let file = relative.to_string_lossy().into_owned();
    let is_text =
        relative.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
    if !is_text || QUOTING.contains(&&*file) {
        return Ok(());
    }
    let path = root.join(relative);
    let text = std::fs::read_to_string(&path).map_err(at(&path))?;
    // An alias keeps an old spelling readable.
    let mut lines = text.lines().peekable();
    let mut number = 0;
    while let Some(line) = lines.next() {
        number += 1;
        if line.contains("alias = \"") {
            continue;
        }
        let mut phrases = phrases_in(line);
        phrases.extend(lines.peek().and_then(|next| broken_phrase(line, next)));
        let phrases = phrases.into_iter();
        found.extend(phrases.map(|phrase| Found { file: file.clone(), line: number, phrase }));
    }
    Ok(())
}

/// The phrase that the break between two lines of a text stands in.
fn broken_phrase(line: &str, next: &str) -> Option<String> {
    let is_text = |line: &str| !line.trim_end().ends_with([';', '{', '}', ',', '(', '.', ':']);
    let last = line.split_ascii_whitespace().next_back().filter(|_| is_text(line))?;
    let next = next.trim_start_matches([' ', '/', '!', '*', '#', '|']);
    let first: Vec<&str> = next.split_ascii_whitespace().take(2).collect();
    let joined = phrases_in(&format!("{last} {}", first.join(" ")));
    joined.into_iter().find(|phrase| phrase.contains(' ') && !phrases_in(next).contains(phrase))
}

/// What is wrong: every phrase, with its place.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn wrong(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for file in files(root)? {
        if PLACES.iter().any(|place| file.starts_with(place)) {
            read(root, &file, &mut found)?;
        }
    }
    let in_words = |Found { file, line, phrase }| {
        format!("{file}:{line}: \"{phrase}\" (docs/glossary.md has the word)")
    };
    Ok(found.into_iter().map(in_words).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_has_one_of_the_phrases() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        let wrong = wrong(root).expect("files are readable");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_planted_phrase_is_found() {
        for (line, phrase) in [
            ("/// Whoever waits.", "whoever"),
            ("fn a_loop_is_told_once() {", "is told"),
            ("a pipe is no socket", "is no"),
            ("the loop goes on.", "goes on"),
            ("the queue has room for it", "has room"),
            ("an edge tells of data", "tells of"),
            ("expected is wrong; right is 7", "right is"),
            ("let noise_floor = 0.1;", "noise floor"),
            ("the desk of a worker", "desk"),
            ("a poller hears it", "hears"),
        ] {
            assert_eq!(phrases_in(line), [phrase], "{line}");
        }
        let broken = broken_phrase("/// the other direction goes", "    /// on to its end");
        assert_eq!(broken.as_deref(), Some("goes on"));
        assert_eq!(broken_phrase("it is", "//! no longer open"), None);
        for line in [
            "there is no socket",
            "it is no longer open",
            "it is no more",
            "he told it",
            "room for it",
        ] {
            assert_eq!(phrases_in(line), [""; 0], "{line}");
        }
    }
}
