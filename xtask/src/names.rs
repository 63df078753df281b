//! One thing for one word: no public type name stands in more than three crates.
//!
//! `Shared` or `State` says nothing where ten crates have one: say whose. A name that is the field's word for the same
//! kind of thing everywhere may stand in more, with the reason here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::install::{at, files};

/// Crates that may have a public type of the same name.
const CRATES_MAX: usize = 3;

/// Names that may stand in more, each with the reason.
const ALLOWED: [(&str, &str); 0] = [];

/// What begins the definition of a type.
const KINDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Sentences for every name that is in too many crates, and for those that are allowed and no longer are.
pub(crate) fn wrong(root: &Path) -> Result<Vec<String>, String> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in crate::layers::crates(root)? {
        let sources = root.join(&folder).join("src");
        for file in files(&sources)? {
            if file.extension().is_some_and(|ending| ending == "rs") && !is_of_tests(&file) {
                let path = sources.join(file);
                let text = std::fs::read_to_string(&path).map_err(at(&path))?;
                for name in public_types(&text) {
                    let crates = names.entry(name.to_owned()).or_default();
                    crates.insert(folder.file_name().unwrap_or_default().display().to_string());
                }
            }
        }
    }
    Ok(judged(&names, &ALLOWED))
}

fn judged(names: &BTreeMap<String, BTreeSet<String>>, allowed: &[(&str, &str)]) -> Vec<String> {
    let is_allowed = |name: &str| allowed.iter().any(|(known, _)| *known == name);
    let many = names.iter().filter(|(_, crates)| crates.len() > CRATES_MAX);
    let unsaid = many.filter(|(name, _)| !is_allowed(name)).map(|(name, crates)| {
        let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
        format!(
            "{name} is a public type of {} crates ({}): say whose each is, or give the reason in xtask/src/names.rs",
            crates.len(),
            crates.join(", ")
        )
    });
    let few = allowed
        .iter()
        .filter(|(name, _)| names.get(*name).is_none_or(|crates| crates.len() <= CRATES_MAX));
    let idle =
        few.map(|(name, _)| format!("{name} needs no reason in xtask/src/names.rs any more"));
    unsaid.chain(idle).collect()
}

/// The names of the types that a file defines with `pub`, tests left out.
fn public_types(text: &str) -> Vec<&str> {
    let code = text.lines().take_while(|line| *line != "mod tests {");
    let defined = code.filter_map(|line| {
        let (kind, rest) = line.trim_start().strip_prefix("pub ")?.split_once(' ')?;
        let is_name = |sign: char| sign.is_alphanumeric() || sign == '_';
        let name = rest.split(|sign| !is_name(sign)).next().filter(|name| !name.is_empty());
        name.filter(|_| KINDS.contains(&kind))
    });
    defined.collect()
}

/// Whether a file below `src` has nothing but tests.
fn is_of_tests(file: &Path) -> bool {
    file.with_extension("").iter().any(|part| {
        let part = part.to_string_lossy();
        part.starts_with("tests") || part.ends_with("_tests")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_public_type_name_stands_in_more_than_three_crates() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        assert_eq!(wrong(root), Ok(Vec::new()));
    }

    #[test]
    fn types_are_found_that_others_can_name() {
        let text = "pub struct One<'a> {\n    pub type_of: u8,\n}\npub(crate) enum Two {}\nstruct Three;\n\
                    \x20   pub trait Four: Five {}\npub type Six = u8;\npub fn struct_of() {}\n\
                    // pub struct Seven;\n#[cfg(test)]\nmod tests {\n    pub struct Eight;\n}\n";
        assert_eq!(public_types(text), ["One", "Four", "Six"]);
    }

    #[test]
    fn a_name_in_four_crates_needs_a_reason_and_no_other_has_one() {
        let crates = |count: usize| (0..count).map(|number| format!("c{number}")).collect();
        let names = [("State", 4), ("Error", 4), ("Entry", 3)];
        let names = names.map(|(name, count)| (name.to_owned(), crates(count))).into();
        let found = judged(&names, &[("Error", "one each"), ("Entry", "once in four")]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("State is a public type of 4 crates (c0, c1, c2, c3)"));
        assert!(found[1].starts_with("Entry needs no reason"));
    }
}
