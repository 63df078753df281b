//! Keeps pages and comments true: files, headings and tests that they name exist.
//!
//! Read are all pages, and the comments of all code, for links and for names between backticks: a path
//! from the root of the tree, or a file whose path ends so (`fd_table/entry.rs`); in the code of a crate,
//! one of that crate.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Folders at the root, by which a path from there is recognised.
const TOP: [&str; 8] = ["crates", "docs", "xtask", "fuzz", "jobs", "runs", "examples", ".ci"];
/// Items of the failure catalogue; each has a row.
const ITEMS: usize = 18;

/// The files of a tree of sources.
struct Tree {
    root: PathBuf,
    files: BTreeSet<PathBuf>,
}

impl Tree {
    fn read(root: &Path) -> Self {
        let files = crate::install::files(root).expect("a readable tree");
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
        let of_crate: Option<PathBuf> =
            file.starts_with("crates").then(|| file.iter().take(2).collect());
        let below = of_crate.clone().unwrap_or_default();
        if TOP.iter().any(|top| first == *top) && path.iter().nth(1).is_some() {
            return self.has(path) || of_crate.is_some_and(|below| self.has(&below.join(path)));
        }
        let is_file = path.extension().is_some_and(|ending| ending == "rs" || ending == "md");
        !is_file || self.files.iter().any(|file| file.starts_with(&below) && file.ends_with(path))
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
    let (tree, mut wrong) = (tree(), Vec::new());
    for page in tree.pages() {
        let text = tree.text(page);
        for (number, target) in prose(&text).flat_map(|(n, line)| links(line).map(move |t| (n, t)))
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

#[test]
fn every_file_that_a_page_or_a_comment_names_exists() {
    let (tree, mut wrong) = (tree(), Vec::new());
    for file in &tree.files {
        let is_code = file.extension().is_some_and(|ending| ending == "rs");
        if !is_code && !tree.pages().any(|page| page == file) {
            continue;
        }
        for (line, number) in tree.text(file).lines().zip(1..) {
            let Some(text) =
                (if is_code { line.split_once("//").map(|(_, c)| c) } else { Some(line) })
            else {
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
    assert_eq!(anchors("# A `b`, c\n```\n# no\n```\n"), ["a-b-c"]);
    assert_eq!(links("[a](b.md#c) [d](https://e)").collect::<Vec<_>>(), ["b.md#c"]);
}

/// What the last column of a row names, as `(file, test)`, and what is wrong with it.
fn missing_of(root: &Path, row: &str) -> Vec<String> {
    let tests = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
    let (mut file, mut text, mut missing) = ("", String::new(), Vec::new());
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
    let page = tree.text(Path::new("docs/failure-catalogue.md"));
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    let rows: Vec<&str> = rows.collect();
    assert_eq!(rows.len(), ITEMS);
    let missing: Vec<String> = rows.iter().flat_map(|row| missing_of(&tree.root, row)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let row =
        "| 1 | a | b | `src/documentation.rs` `a_test_that_is_not_there_is_found` `is_test` `x` |";
    let missing = ["is_test", "x"].map(|name| format!("src/documentation.rs has no test {name}"));
    assert_eq!(missing_of(root, row), missing);
    assert_eq!(missing_of(root, "| 1 | a | b | `src/none.rs` |"), ["no file src/none.rs"]);
}
