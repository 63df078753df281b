//! What pages and comments must hold: files, headings and tests that they name exist, and phrases that the texts of
//! the project do without are in none, nor in code and messages.
//!
//! `docs/glossary.md` has the words that take the place of the phrases. For names, all pages are read, and the
//! comments of all code: links, and what stands between backticks: a path from the root of the tree, or a file whose
//! path ends so (`fd_table/entry.rs`); in the code of a crate, one of that crate. A page of docs/ is looked for wherever
//! it is named, in helps and messages too.

use std::path::Path;

use crate::install::{at, files};

/// Files that name the phrases: the glossary, and the places where this check does; and what commands say, whose flags
/// (`the flag is --no-keepalive`) read like one.
const QUOTING: [&str; 3] =
    ["docs/glossary.md", "xtask/src/texts.rs", "crates/cli/tests/commands/mistakes.txt"];

/// Folders and files that are read.
const PLACES: [&str; 12] = [
    "crates",
    "pool",
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
        let next = at(index + 1);
        let before = at(index.wrapping_sub(1));
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
    use std::collections::BTreeSet;
    use std::path::{Component, PathBuf};

    use super::*;

    #[test]
    fn no_text_has_one_of_the_phrases() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        let wrong = wrong(root).expect("files are readable");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Whether a line of code begins an example that rustdoc would compile, within a comment of documentation.
    fn is_example(line: &str) -> bool {
        let line = line.trim_start();
        let said = ["/// ```", "//! ```"].into_iter().find_map(|fence| line.strip_prefix(fence));
        let languages = ["", "rust", "no_run", "should_panic", "ignore", "compile_fail"];
        said.is_some_and(|language| languages.contains(&language.trim()))
    }

    #[test]
    fn crates_whose_documentation_is_not_tested_have_no_examples_in_it() {
        assert!(
            is_example("    /// ```no_run") && is_example("//! ```") && !is_example("/// ```text")
        );
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        let all = files(root).expect("a tree");
        for folder in crate::layers::crates(root).expect("folders") {
            let manifest = std::fs::read_to_string(root.join(&folder).join("Cargo.toml"));
            if !manifest.expect("a manifest").contains("doctest = false") {
                continue;
            }
            let sources = folder.join("src");
            for file in all.iter().filter(|file| file.starts_with(&sources)) {
                let text = std::fs::read_to_string(root.join(file)).expect("text");
                // Every second fence ends what the one before it began.
                let fences = text.lines().filter(|line| {
                    let line = line.trim_start();
                    line.starts_with("/// ```") || line.starts_with("//! ```")
                });
                let example = fences.step_by(2).find(|line| is_example(line));
                let file = file.display();
                assert!(example.is_none(), "{file} has an example that nothing runs: {example:?}");
            }
        }
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

    /// The first column of the glossary's table of words that this check finds.
    fn listed() -> Vec<String> {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/glossary.md");
        let page = std::fs::read_to_string(page).expect("a page");
        let (_, rest) = page.split_once("are in no text:").expect("the table");
        let rows = rest.lines().skip_while(|line| !line.starts_with("|--"));
        let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
        let cells = rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split(','));
        cells.map(|word| word.trim().to_owned()).collect()
    }

    #[test]
    fn the_glossary_has_the_words_that_are_found_and_no_others() {
        let listed = listed();
        for words in &listed {
            assert!(!phrases_in(words).is_empty(), "\"{words}\" is in the glossary and not found");
        }
        for word in WORDS {
            assert!(listed.iter().any(|known| known == word), "the glossary does not have {word}");
        }
    }

    /// Folders at the root, by which a path from there is recognised.
    const TOP: [&str; 9] =
        ["crates", "pool", "docs", "xtask", "fuzz", "jobs", "runs", "examples", ".ci"];
    /// Items of the failure catalogue; each has a row.
    const ITEMS: usize = 20;

    /// The files of a tree of sources.
    struct Tree {
        root: PathBuf,
        files: BTreeSet<PathBuf>,
    }

    impl Tree {
        fn read(root: &Path) -> Self {
            let files = files(root).expect("a readable tree");
            Self { root: root.to_owned(), files: files.into_iter().collect() }
        }

        fn text(&self, file: &Path) -> String {
            std::fs::read_to_string(self.root.join(file)).expect("text")
        }

        /// Pages, without those that only keep what a run printed.
        fn pages(&self) -> impl Iterator<Item = &PathBuf> {
            let is_page = |file: &&PathBuf| {
                file.extension().is_some_and(|ending| ending == "md")
                    && (!file.starts_with("runs") || file.ends_with("README.md"))
            };
            self.files.iter().filter(is_page)
        }

        fn has(&self, path: &Path) -> bool {
            self.files.contains(path) || self.root.join(path).is_dir()
        }

        /// Whether `name`, which stands between backticks in `file`, is not a path, or one that exists.
        fn is_sound(&self, file: &Path, name: &str) -> bool {
            let path = Path::new(name);
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
            let Some(Component::Normal(first)) = path.components().next() else { return true };
            if !name.chars().all(is_plain) {
                return true;
            }
            // A crate lies below `crates`, or below `pool/crates`.
            let at = file.iter().take(2).position(|folder| folder == "crates");
            let of_crate: Option<PathBuf> = at.map(|at| file.iter().take(at + 2).collect());
            let below = of_crate.clone().unwrap_or_default();
            if TOP.iter().any(|top| first == *top) && path.iter().nth(1).is_some() {
                return self.has(path) || of_crate.is_some_and(|below| self.has(&below.join(path)));
            }
            let is_file = path.extension().is_some_and(|ending| ending == "rs" || ending == "md");
            !is_file
                || self.files.iter().any(|file| file.starts_with(&below) && file.ends_with(path))
        }
    }

    /// What stands between backticks in a line.
    fn quoted(line: &str) -> impl Iterator<Item = &str> {
        line.split('`').skip(1).step_by(2)
    }

    /// The lines of a page outside of blocks of code, with their numbers.
    fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
        let mut is_code = false;
        page.lines().zip(1..).filter_map(move |(line, number)| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            (!is_code && !is_fence).then_some((number, line))
        })
    }

    /// Where the links of a line lead, those into the web left out.
    fn links(line: &str) -> impl Iterator<Item = &str> {
        let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        targets.filter(|target| !target.contains(':') && !target.contains(' '))
    }

    /// The anchors of a page's headings.
    fn anchors(page: &str) -> Vec<String> {
        let heading = |(_, line): (usize, &str)| {
            let text = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
            let letters = text.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            Some(letters.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect())
        };
        prose(page).filter_map(heading).collect()
    }

    /// A path without `..`.
    fn plain(path: &Path) -> PathBuf {
        let mut plain = PathBuf::new();
        for part in path.components() {
            match part {
                Component::ParentDir => drop(plain.pop()),
                Component::CurDir => {}
                part => plain.push(part),
            }
        }
        plain
    }

    /// The tree of pollux.
    fn tree() -> Tree {
        Tree::read(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace"))
    }

    #[test]
    fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
        let tree = tree();
        let mut wrong = Vec::new();
        for page in tree.pages() {
            let text = tree.text(page);
            for (number, target) in
                prose(&text).flat_map(|(n, line)| links(line).map(move |t| (n, t)))
            {
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = match path {
                    "" => page.clone(),
                    path => plain(&page.with_file_name("").join(path)),
                };
                let has_anchor = || anchors(&tree.text(&path)).iter().any(|known| known == anchor);
                if !tree.has(&path) || !(anchor.is_empty() || has_anchor()) {
                    wrong.push(format!("{}:{number}: {target}", page.display()));
                }
            }
        }
        assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
    }

    /// What a line of Rust or C has of a comment, the lines within `/* */` being those that begin with a star.
    fn comment(line: &str) -> Option<&str> {
        let within = line.trim_start();
        let within = within.strip_prefix("/*").or_else(|| within.strip_prefix("* "));
        within.or_else(|| line.split_once("//").map(|(_, comment)| comment))
    }

    #[test]
    fn every_file_that_a_page_or_a_comment_names_exists() {
        let tree = tree();
        let mut wrong = Vec::new();
        for file in &tree.files {
            let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            let is_page = tree.pages().any(|page| page == file);
            if !is_page && !["rs", "c", "h"].contains(&ending) {
                continue;
            }
            for (line, number) in tree.text(file).lines().zip(1..) {
                let Some(text) = (if is_page { Some(line) } else { comment(line) }) else {
                    continue;
                };
                let names = quoted(text).filter(|name| !tree.is_sound(file, name));
                wrong.extend(names.map(|name| format!("{}:{number}: {name}", file.display())));
            }
        }
        assert!(wrong.is_empty(), "files that do not exist: {wrong:#?}");
    }

    #[test]
    fn a_name_of_a_file_that_is_not_there_is_found() {
        let tree = tree();
        for (file, name, is_sound) in [
            ("docs/x.md", "crates/run/src/lib.rs", true),
            ("docs/x.md", "crates/run/src/none.rs", false),
            ("docs/x.md", "attach/mod.rs", true),
            ("docs/x.md", "none.rs", false),
            ("docs/x.md", "docs", true),
            ("docs/x.md", "epoll_wait", true),
            ("crates/run/src/lib.rs", "attach/mod.rs", true),
            ("crates/doctor/src/lib.rs", "attach/mod.rs", false),
        ] {
            assert_eq!(tree.is_sound(Path::new(file), name), is_sound, "{name} in {file}");
        }
        assert_eq!(comment(" * `x.rs` builds it"), Some("`x.rs` builds it"));
        assert_eq!(comment("int x; // of `texts.rs`"), Some(" of `texts.rs`"));
        assert_eq!(comment("x = 2 * y"), None);
        assert_eq!(anchors("# A `b`, c\n```\n# no\n```\n"), ["a-b-c"]);
        assert_eq!(links("[a](b.md#c) [d](https://e)").collect::<Vec<_>>(), ["b.md#c"]);
    }

    /// Modules that a file declares, those of tests left out, where its head has a table of them; and which of them that table
    /// lacks.
    fn missing_modules(text: &str) -> Vec<String> {
        let is_title = |line: &str| {
            ["part", "module", "file"]
                .iter()
                .any(|name| line == format!("//! | {name} | one job |"))
        };
        let Some((title, _)) = text.lines().enumerate().find(|(_, line)| is_title(line)) else {
            return Vec::new();
        };
        let rows = text.lines().skip(title + 1).take_while(|line| line.starts_with("//! |"));
        let cells: String = rows.filter_map(|row| row.split('|').nth(1)).collect();
        let mut is_of_tests = false;
        let mut missing = Vec::new();
        for line in text.lines() {
            if line.starts_with("#[") {
                is_of_tests |= line.starts_with("#[cfg(") && line.contains("test");
                continue;
            }
            let name = line.strip_suffix(';').and_then(|line| {
                let (before, name) = line.rsplit_once("mod ")?;
                (before.is_empty() || before.starts_with("pub")).then_some(name)
            });
            if let Some(name) = name
                && !is_of_tests
                && !["`", "`]"].iter().any(|end| cells.contains(&format!("`{name}{end}")))
            {
                missing.push(name.to_owned());
            }
            is_of_tests = false;
        }
        missing
    }

    #[test]
    fn a_table_of_modules_has_them_all() {
        let tree = tree();
        let mut wrong = Vec::new();
        let code = tree.files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs"));
        for file in code {
            let missing = missing_modules(&tree.text(file));
            wrong.extend(missing.iter().map(|name| format!("{}: {name}", file.display())));
        }
        assert!(wrong.is_empty(), "expected a row of the table at the head for each: {wrong:#?}");
        let head = "//! | part | one job |\n//! |---|---|\n//! | `a`, [`b`] | this |\n\n";
        let modules = "mod a;\npub(crate) mod b;\n#[cfg(test)]\nmod tests;\npub mod c;\n";
        assert_eq!(missing_modules(&format!("{head}{modules}")), ["c"]);
        assert!(missing_modules(modules).is_empty());
    }

    /// Whether a line of code matches where `if` would say the same.
    fn matches_for_if(line: &str) -> bool {
        let line = line.trim_start();
        let is_arm = |word: &str| {
            line.strip_prefix(word).is_some_and(|rest| rest.starts_with(' ')) && line.contains("=>")
        };
        is_arm("true") || is_arm("false") || line.ends_with("match () {")
    }

    #[test]
    fn two_cases_and_chains_of_conditions_are_if() {
        let tree = tree();
        let mut wrong = Vec::new();
        let code = tree.files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs"));
        for file in code {
            let text = tree.text(file);
            let lines = text.lines().zip(1..).filter(|(line, _)| matches_for_if(line));
            wrong.extend(
                lines.map(|(line, at)| format!("{}:{at}: {}", file.display(), line.trim())),
            );
        }
        assert!(wrong.is_empty(), "expected if: {wrong:#?}");
        for line in ["    true => 1,", "false if x => {", "let a = match () {"] {
            assert!(matches_for_if(line), "{line}");
        }
        for line in ["true", "(true, false) => 1,", "Some(true) => 2,", "match x {"] {
            assert!(!matches_for_if(line), "{line}");
        }
    }

    /// Whether a line binds several values that have nothing to do with each other by one `let`.
    fn binds_several(line: &str) -> bool {
        let names =
            line.trim_start().strip_prefix("let (").and_then(|rest| rest.split_once(") = ("));
        let is_names =
            |names: &str| names.chars().all(|c| c.is_ascii_alphanumeric() || "_ ,".contains(c));
        names.is_some_and(|(names, values)| is_names(names) && values.ends_with(");"))
    }

    #[test]
    fn a_let_binds_one_value_or_what_one_call_returns() {
        let tree = tree();
        let mut wrong = Vec::new();
        let code = tree.files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs"));
        for file in code {
            let text = tree.text(file);
            let lines = text.lines().zip(1..).filter(|(line, _)| binds_several(line));
            wrong.extend(
                lines.map(|(line, at)| format!("{}:{at}: {}", file.display(), line.trim())),
            );
        }
        assert!(wrong.is_empty(), "expected a let for each: {wrong:#?}");
        for line in ["let (a, b) = (1, f(2));", "    let (mut one, two) = (Vec::new(), 0);"] {
            assert!(binds_several(line), "{line}");
        }
        for line in ["let (a, b) = pair;", "let (Some(a), b) = (x, y) else {", "(a, b) = (b, a);"] {
            assert!(!binds_several(line), "{line}");
        }
    }

    /// The pages and files of docs/ that a line names, anywhere in it.
    fn pages_named(line: &str) -> impl Iterator<Item = &str> {
        line.match_indices("docs/").filter_map(|(at, _)| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
            let rest = line[at..].split(|c| !is_part(c)).next()?.trim_end_matches('.');
            [".md", ".json", ".png"].iter().any(|ending| rest.ends_with(ending)).then_some(rest)
        })
    }

    #[test]
    fn every_page_that_any_text_names_exists() {
        let tree = tree();
        let mut wrong = Vec::new();
        for file in &tree.files {
            let is_place = PLACES.iter().any(|place| file.starts_with(place));
            let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if !is_place
                || !ENDINGS.contains(&ending)
                || QUOTING.iter().any(|quoting| file == Path::new(quoting))
            {
                continue;
            }
            for (line, number) in tree.text(file).lines().zip(1..) {
                let missing = pages_named(line).filter(|page| !tree.has(Path::new(page)));
                wrong.extend(missing.map(|page| format!("{}:{number}: {page}", file.display())));
            }
        }
        assert!(wrong.is_empty(), "pages that do not exist: {wrong:#?}");
    }

    #[test]
    fn a_page_is_found_in_a_message_a_help_and_a_path() {
        let of = |line| pages_named(line).collect::<Vec<_>>();
        assert_eq!(of("error(\"no views: see docs/a-b.md\")"), ["docs/a-b.md"]);
        assert_eq!(
            of("(docs/reference/a.md). docs/b.json"),
            ["docs/reference/a.md", "docs/b.json"]
        );
        assert_eq!(of("include_str!(\"../../docs/c.md\")"), ["docs/c.md"]);
        assert_eq!(of("https://docs.rs/regex docs/"), [""; 0]);
    }

    /// What the last column of a row names, as `(file, test)`, and what is wrong with it.
    fn missing_of(root: &Path, row: &str) -> Vec<String> {
        let tests = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        let mut file = "";
        let mut text = String::new();
        let mut missing = Vec::new();
        for name in quoted(tests) {
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

    #[test]
    fn every_test_of_the_failure_catalogue_exists() {
        let tree = tree();
        let page = tree.text(Path::new("docs/io-uring.md"));
        let (_, page) = page.split_once("## What goes wrong with io_uring").expect("the catalogue");
        let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
        let rows: Vec<&str> = rows.collect();
        assert_eq!(rows.len(), ITEMS);
        let missing: Vec<String> =
            rows.iter().flat_map(|row| missing_of(&tree.root, row)).collect();
        assert!(missing.is_empty(), "{missing:#?}");
    }

    #[test]
    fn a_test_that_is_not_there_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let row =
            "| 1 | a | b | `src/texts.rs` `a_test_that_is_not_there_is_found` `is_test` `x` |";
        let missing = ["is_test", "x"].map(|name| format!("src/texts.rs has no test {name}"));
        assert_eq!(missing_of(root, row), missing);
        assert_eq!(missing_of(root, "| 1 | a | b | `src/none.rs` |"), ["no file src/none.rs"]);
    }
}
