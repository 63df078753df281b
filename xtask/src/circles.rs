//! Import circles: the top-level modules of the lab lean on each other in one direction.
//!
//! Read from the paths that begin with `crate::`, tests left out. What a file uses of its own module
//! is that module's matter.

use std::collections::BTreeMap;
use std::path::Path;

use crate::install::{at, files};

/// The crate whose modules are looked at.
const LAB: &str = "crates/lab/src";

/// Which module uses which, with the file in which it does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// The modules of the lab that use each other in a circle, as a sentence; none where there is none.
pub(super) fn circle(root: &Path) -> Result<Option<String>, String> {
    let source = root.join(LAB);
    let mut uses = Uses::new();
    for file in files(&source)? {
        let is_code = file.extension().is_some_and(|extension| extension == "rs");
        let is_tests =
            file.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"));
        if is_tests || !is_code || file == Path::new("lib.rs") {
            continue;
        }
        let first = file.components().next().expect("a file has a name");
        let module = Path::new(&first).file_stem().unwrap_or_default().to_string_lossy();
        let path = source.join(&file);
        let text = std::fs::read_to_string(&path).map_err(at(&path))?;
        for other in used(&text).into_iter().filter(|other| *other != module) {
            let of_module = uses.entry(module.clone().into_owned()).or_default();
            of_module.entry(other).or_insert_with(|| file.display().to_string());
        }
    }
    Ok(circle_in(&uses))
}

/// The modules that a file names behind `crate::`, before its tests.
fn used(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = code.flat_map(|line| line.split("crate::").skip(1));
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    paths.map(|path| path.chars().take_while(|c| is_of_name(*c)).collect()).collect()
}

/// The first circle, from a module back to itself.
fn circle_in(uses: &Uses) -> Option<String> {
    uses.keys().find_map(|start| {
        let way = way_back(uses, start, start, &mut Vec::new())?;
        let steps = way.iter().map(|(from, to, file)| format!("{from} uses {to} ({file})"));
        Some(steps.collect::<Vec<_>>().join(", "))
    })
}

type Step<'a> = (&'a str, &'a str, &'a str);

/// The steps from `from` to `to`, not through what was `seen`.
fn way_back<'a>(
    uses: &'a Uses,
    from: &'a str,
    to: &str,
    seen: &mut Vec<&'a str>,
) -> Option<Vec<Step<'a>>> {
    for (next, file) in uses.get(from)? {
        if next == to {
            return Some(vec![(from, next, file)]);
        }
        if !seen.contains(&next.as_str()) {
            seen.push(next);
            if let Some(mut way) = way_back(uses, next, to, seen) {
                way.insert(0, (from, next, file));
                return Some(way);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_modules_of_the_lab_use_each_other_in_a_circle() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(circle(&root), Ok(None));
    }

    #[test]
    fn a_circle_is_named_with_its_files() {
        let uses = |pairs: &[(&str, &str)]| {
            let mut uses = Uses::new();
            for (from, to) in pairs {
                let file = format!("{from}/mod.rs");
                uses.entry((*from).to_owned()).or_default().insert((*to).to_owned(), file);
            }
            circle_in(&uses)
        };
        assert_eq!(uses(&[("a", "b"), ("b", "c"), ("a", "c")]), None);
        let found = uses(&[("a", "b"), ("b", "c"), ("c", "b")]).expect("a circle");
        assert_eq!(found, "b uses c (b/mod.rs), c uses b (c/mod.rs)");
    }

    #[test]
    fn only_code_before_the_tests_counts() {
        let text = "//! crate::a\nuse crate::b::C;\nfn f() { crate::d::e() }\n#[cfg(test)]\nmod tests {\n    use crate::g;\n";
        assert_eq!(used(text), ["b", "d"]);
    }
}
