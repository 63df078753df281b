//! Import circles: the modules of a crate use each other in one direction, but for small knots.
//!
//! Read from the paths that begin with `crate`, `self`, `super` or a module of the same folder; a name that a
//! module only passes on counts as that of the file that it comes from. Tests are left out, and so are calls of
//! methods of a type whose `impl` blocks lie in several files: those files are one subject. A module and its
//! parent are one subject: what counts is which of its neighbours a module uses, with all that lies below both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::install::{at, files};

/// Modules of a crate that may use each other in a circle.
const MODULES_MAX: usize = 3;

/// No two modules of the lab itself use each other: data goes through it one way.
const ONE_WAY: &str = "crates/lab/src";

/// A path of names, as they stand in the code; that of a module begins below the root of its crate.
type Names = Vec<String>;

/// The code of a module, tests left out, with the paths that it uses and the names that it brings in.
#[derive(Default)]
struct Module {
    used: Vec<Names>,
    brought: Vec<(String, Names)>,
}

/// Which module uses which, with the one below it in which it does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// Every circle that is larger than it may be, as a sentence.
fn circles(root: &Path) -> Result<Vec<String>, String> {
    let sources = crate::layers::crates(root)?.into_iter();
    let sources = sources.map(|folder| format!("{}/src", folder.display()));
    let mut found = Vec::new();
    for source in sources.chain(["xtask/src".to_owned()]) {
        let modules = modules(&root.join(&source))?;
        for circle in circles_in(&uses(&modules)) {
            let is_of_lab = source == ONE_WAY && circle.iter().any(|module| !module.contains('/'));
            if circle.len() > MODULES_MAX || is_of_lab {
                found.push(format!("{source}: {}", sentence(&uses(&modules), &circle)));
            }
        }
    }
    Ok(found)
}

/// The modules of the crate whose code lies in `source`, by their paths.
fn modules(source: &Path) -> Result<BTreeMap<Names, Module>, String> {
    let mut modules = BTreeMap::new();
    let mut tests = Vec::new();
    for file in files(source)? {
        if file.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let path = source.join(&file);
        let text = std::fs::read_to_string(&path).map_err(at(&path))?;
        let name = file.with_extension("");
        let mut name: Names = name.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if name == ["lib"] || name == ["main"] || name.last().is_some_and(|last| last == "mod") {
            name.pop();
        }
        let (code, of_tests) = without_tests(&words(&text));
        tests.extend(of_tests.into_iter().map(|test| [name.as_slice(), &[test]].concat()));
        let module: &mut Module = modules.entry(name).or_default();
        let read = read(&code);
        module.used.extend(read.used);
        module.brought.extend(read.brought);
    }
    let is_test = |name: &Names| {
        tests.iter().any(|test| name.starts_with(test))
            || name.iter().any(|part| part.starts_with("tests") || part.ends_with("_tests"))
    };
    modules.retain(|name, _| !is_test(name));
    Ok(modules)
}

/// The names and signs of a text, without comments, blanks, strings and characters.
fn words(text: &str) -> Names {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Names::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let raw = rest.trim_start_matches(['b', 'c']).strip_prefix('r');
        let hashes = raw.map_or("", |raw| &raw[..raw.len() - raw.trim_start_matches('#').len()]);
        let mut len = first.len_utf8();
        if rest.starts_with("//") {
            len = rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            len = rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else if let Some(raw) = raw.filter(|raw| raw[hashes.len()..].starts_with('"')) {
            let end = format!("\"{hashes}");
            let inner = &raw[hashes.len() + 1..];
            let behind = inner.find(&end).map_or("", |at| &inner[at + end.len()..]);
            len = rest.len() - behind.len();
        } else if first == '"' {
            len = quoted(rest);
        } else if first == '\'' {
            let mut next = rest.chars().skip(1);
            let is_escape = next.next() == Some('\\');
            let is_character = is_escape || next.next() == Some('\'');
            let start = if is_escape { 3 } else { 1 };
            let end = rest.get(start..).and_then(|inner| inner.find('\'')).unwrap_or(0);
            len = if is_character { start + end + 1 } else { 1 };
        } else if is_of_name(first) {
            len = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
            words.push(rest[..len].to_owned());
        } else if rest.starts_with("::") {
            len = 2;
            words.push("::".to_owned());
        } else if !first.is_whitespace() {
            words.push(first.to_string());
        }
        rest = &rest[len..];
    }
    words
}

/// The bytes of the string at the front.
fn quoted(text: &str) -> usize {
    let mut bytes = text.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return at + 1,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    text.len()
}

/// The code without its attributes and what is only built for tests, and the modules among that which lie in
/// files of their own.
fn without_tests(words: &[String]) -> (Names, Names) {
    let mut code = Names::new();
    let mut modules = Names::new();
    let mut at = 0;
    while at < words.len() {
        if words[at] != "#" || words.get(at + 1).is_none_or(|next| next != "[") {
            code.push(words[at].clone());
            at += 1;
            continue;
        }
        let end = behind(words, at + 1);
        let is_for_tests = words[at + 2..end].starts_with(&["cfg".to_owned(), "(".to_owned()])
            && words[at + 4..end].iter().any(|word| word == "test")
            && !words[at + 4..end].iter().any(|word| word == "any" || word == "not");
        at = end;
        if is_for_tests {
            while words.get(at).is_some_and(|word| word == "#") {
                at = behind(words, at + 1);
            }
            let start = at;
            while !matches!(words.get(at).map(String::as_str), None | Some(";" | "," | "}" | "{")) {
                at = if ["(", "["].contains(&words[at].as_str()) {
                    behind(words, at)
                } else {
                    at + 1
                };
            }
            match words.get(at).map(String::as_str) {
                Some(";") if words[start..at].iter().any(|word| word == "mod") => {
                    modules.push(words[at - 1].clone());
                    at += 1;
                }
                Some("{") => at = behind(words, at),
                Some("}") | None => {}
                Some(_) => at += 1,
            }
        }
    }
    (code, modules)
}

/// Where the bracket that opens at `at` has closed.
fn behind(words: &[String], at: usize) -> usize {
    let mut depth = 0_usize;
    for (more, word) in words[at..].iter().enumerate() {
        match word.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + more + 1;
        }
    }
    words.len()
}

/// The paths of the code, and what `use` brings in.
fn read(code: &[String]) -> Module {
    let mut module = Module::default();
    let mut at = 0;
    while at < code.len() {
        let before = at.checked_sub(1).map_or("", |before| code[before].as_str());
        if code[at] == "use" {
            at += 1;
            let first = module.brought.len();
            bring(code, &mut at, &Names::new(), &mut module.brought);
            module.used.extend(module.brought[first..].iter().map(|(_, path)| path.clone()));
        } else if before != "::" && code.get(at + 1).is_some_and(|next| next == "::") {
            let mut path = vec![code[at].clone()];
            at += 1;
            while code.get(at).is_some_and(|word| word == "::") {
                path.extend(code.get(at + 1).cloned());
                at += 2;
            }
            module.used.push(path);
        } else {
            at += 1;
        }
    }
    module
}

/// The tree of a `use` from `at` on, behind `path`: each leaf with the name under which it is known.
fn bring(code: &[String], at: &mut usize, path: &[String], brought: &mut Vec<(String, Names)>) {
    let mut path = path.to_vec();
    let word = |at: usize| code.get(at).map_or(";", String::as_str);
    while !matches!(word(*at), ";" | "," | "}") {
        match word(*at) {
            "{" => {
                *at += 1;
                while !matches!(word(*at), "}" | ";") {
                    bring(code, at, &path, brought);
                    *at += usize::from(word(*at) == ",");
                }
                *at += 1;
                return;
            }
            "::" => *at += 1,
            "as" => {
                brought.push((word(*at + 1).to_owned(), path));
                *at += 2;
                return;
            }
            "self" if !path.is_empty() => *at += 1,
            name => {
                path.push(name.to_owned());
                *at += 1;
            }
        }
    }
    brought.extend(path.last().cloned().map(|name| (name, path)));
}

/// Which module uses which of its neighbours.
fn uses(modules: &BTreeMap<Names, Module>) -> Uses {
    let mut uses = Uses::new();
    for (name, module) in modules {
        for path in &module.used {
            let Some(other) = module_of(modules, name, path, 0) else { continue };
            let shared = name.iter().zip(&other).take_while(|(one, other)| one == other).count();
            if shared < name.len() && shared < other.len() {
                let of_module = uses.entry(name[..=shared].join("/")).or_default();
                of_module.entry(other[..=shared].join("/")).or_insert_with(|| name.join("/"));
            }
        }
    }
    uses
}

/// How often a name may be passed on before it is given up.
const PASSED_MAX: usize = 8;

/// The module that `path` leads to, seen from `from`; none where it leads out of the crate.
fn module_of(
    modules: &BTreeMap<Names, Module>,
    from: &Names,
    path: &[String],
    passed: usize,
) -> Option<Names> {
    let mut module = from.clone();
    let mut path = path;
    match path.first()?.as_str() {
        "crate" => {
            module.clear();
            path = &path[1..];
        }
        "self" => path = &path[1..],
        "super" => {
            while let Some(("super", rest)) =
                path.split_first().map(|(name, rest)| (name.as_str(), rest))
            {
                module.pop();
                path = rest;
            }
        }
        _ => {
            module.push(path[0].clone());
            path = &path[1..];
            if !modules.contains_key(&module) {
                return None;
            }
        }
    }
    while let Some((name, rest)) = path.split_first() {
        let below = [module.as_slice(), std::slice::from_ref(name)].concat();
        if modules.contains_key(&below) {
            (module, path) = (below, rest);
            continue;
        }
        let brought = &modules.get(&module)?.brought;
        let found = brought.iter().filter(|(known, _)| known == name && passed < PASSED_MAX);
        let mut found = found
            .filter_map(|(_, to)| module_of(modules, &module, &[to, rest].concat(), passed + 1));
        return found.next().or(Some(module));
    }
    Some(module)
}

/// The modules that reach each other, in groups of two and more.
fn circles_in(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<_, _> = uses.keys().map(|from| (from, reached(uses, from))).collect();
    let circle_of = |module: &String| -> BTreeSet<String> {
        let others = reached[module].iter();
        let back = others.filter(|other| reached.get(other).is_some_and(|of| of.contains(module)));
        back.cloned().collect()
    };
    let circles: BTreeSet<_> = uses.keys().map(circle_of).collect();
    circles.into_iter().filter(|circle| circle.len() > 1).collect()
}

/// All modules that `from` uses, and those use.
fn reached(uses: &Uses, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for other in uses.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(other.clone()) {
                next.push(other);
            }
        }
    }
    reached
}

/// Which module of a circle uses which, with the one below it in which it does.
fn sentence(uses: &Uses, circle: &BTreeSet<String>) -> String {
    let steps = circle.iter().flat_map(|from| {
        let of_circle = uses[from].iter().filter(|(to, _)| circle.contains(*to));
        of_circle.map(move |(to, file)| format!("{from} uses {to} ({file})"))
    });
    steps.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_circle_of_modules_is_larger_than_a_knot() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(circles(&root), Ok(Vec::new()));
    }

    /// What the modules of a crate with these files use.
    fn uses_of(texts: &[(&str, &str)]) -> Uses {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in texts {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        uses(&modules(folder.path()).expect("read"))
    }

    #[test]
    fn a_circle_is_named_with_its_files() {
        let found = uses_of(&[
            ("a.rs", "use crate::b;"),
            ("b.rs", "use super::c::{self, d::E};"),
            ("c/mod.rs", "mod d;"),
            ("c/d.rs", "fn f() { crate::b::g() }"),
        ]);
        let circles = circles_in(&found);
        let [circle] = circles.as_slice() else { panic!("{circles:?}") };
        assert_eq!(sentence(&found, circle), "b uses c (b), c uses b (c/d)");
    }

    #[test]
    fn a_name_that_is_passed_on_counts_as_that_of_its_file() {
        let found = uses_of(&[
            ("lib.rs", "mod a; mod b; mod c; pub use a::{One as Two, c::Deep}; pub use c::f;"),
            ("a/mod.rs", "pub use self::c::Deep; pub struct One;"),
            ("a/c.rs", "pub struct Deep;"),
            ("b.rs", "use crate::{Two, std::fmt};"),
            ("c.rs", "fn f() { let _ = crate::Deep; }"),
            ("d.rs", "fn g() { crate::f() }"),
        ]);
        let of = |module: &str| found[module].keys().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((of("b"), of("c"), of("d")), (vec!["a"], vec!["a"], vec!["c"]));
    }

    #[test]
    fn a_module_and_its_parent_are_one_subject() {
        let found = uses_of(&[
            ("a/mod.rs", "mod b; use b::C; pub struct D;"),
            ("a/b.rs", "use super::D; use crate::a::E;"),
        ]);
        assert_eq!(found, Uses::new());
    }

    #[test]
    fn tests_comments_and_strings_do_not_count() {
        let found = uses_of(&[
            (
                "a.rs",
                "//! crate::b\n/* crate::b */ const A: [&str; 3] = [\"crate::b \\\"\", r#\"\" crate::b\"#, \"\"];",
            ),
            (
                "b.rs",
                "const C: char = '\"'; #[cfg(test)] use crate::a; fn f<'a>() { c::<'\\''>() }",
            ),
            (
                "c.rs",
                "#[cfg(test)]\nmod checks;\n#[cfg(all(test, unix))]\n#[path = \"x\"]\nmod tests { use crate::a; }\nuse crate::d;",
            ),
            ("c/checks.rs", "use crate::a;"),
            (
                "d.rs",
                "#[cfg(not(test))] use crate::b; struct S { #[cfg(test)] a: crate::c::T, e: u8 }",
            ),
        ]);
        let pairs =
            found.iter().flat_map(|(a, of)| of.keys().map(move |b| (a.as_str(), b.as_str())));
        assert_eq!(pairs.collect::<Vec<_>>(), [("c", "d"), ("d", "b")]);
    }
}
