//! Every function of the headers has its errors in docs/xatmi-errors.md, and each of them is produced by a
//! C program of the tests: those of this folder, and those of the pool's command, which run on a pool.
//!
//! A C program produces an error where it names the function and the error in one statement, or the error
//! in the next one; what a macro of the program checks counts for the statement that uses it. Where a
//! variable `error` stands for them, a comment with `errors:` and their names comes before it, in the same
//! function.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::headers::{HEADERS, function};

/// Functions that programs provide, and those that only macros of the headers call.
const NOT_CALLED: [&str; 10] = [
    "tpsvrinit",
    "tpsvrdone",
    "tpsvrthrinit",
    "tpsvrthrdone",
    "pollux_server_main",
    "pollux_server_thread_functions",
    "pollux_tperrno_address",
    "pollux_tpurcode_address",
    "pollux_berror_address",
    "pollux_userlog",
];

/// Other names of headers for a function.
const MACROS: [(&str, &str); 1] = [("tpadvertise", "tpadvertise_full")];

type Names = BTreeSet<String>;

fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The functions that the headers declare.
fn declared() -> Names {
    let texts = HEADERS.iter().map(|name| read(&own("include").join(name)));
    texts.flat_map(|text| text.lines().filter_map(function).collect::<Vec<_>>()).collect()
}

/// What the page says: functions with their errors.
fn documented() -> BTreeMap<String, Names> {
    let page = read(&own("../../docs/xatmi-errors.md"));
    let (tables, without) = page.split_once("## Without an error").expect("the last heading");
    let mut all = BTreeMap::new();
    for row in tables.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.trim_matches('|').splitn(2, '|');
        let (functions, errors) = (cells.next().expect("a cell"), cells.next().expect("another"));
        let errors: Names = quoted(errors).filter(|name| is_error(name)).collect();
        all.extend(quoted(functions).map(|function| (function, errors.clone())));
    }
    let without = without.split("\n\n").next().expect("a paragraph");
    all.extend(quoted(without).map(|function| (function, Names::new())));
    all
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

fn is_error(word: &str) -> bool {
    let is_upper = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let of_fields = word.len() > 5 && word.starts_with('B') && !word.contains('_');
    let of_calls = word == "TPGOTSIG" || ["TPE", "TX_"].iter().any(|start| word.starts_with(start));
    is_upper(word) && (of_fields || (of_calls && !word.starts_with("TPEV")))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn errors_of(text: &str) -> Names {
    words(text).filter(|word| is_error(word)).map(str::to_owned).collect()
}

/// Names with a parenthesis behind them.
fn calls_of(statement: &str) -> Names {
    let before = statement.match_indices('(').map(|(at, _)| &statement[..at]);
    let names = before.filter_map(|text| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = &text[text.trim_end_matches(is_part).len()..];
        (!name.is_empty()).then(|| {
            let known = MACROS.iter().find(|(other, _)| *other == name);
            known.map_or(name, |(_, function)| function).to_owned()
        })
    });
    names.collect()
}

/// The bodies of the macros with arguments that a program defines.
fn macros(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for definition in text.split("\n#define ").skip(1) {
        let Some((name, rest)) = definition.split_once('(') else { continue };
        let mut body = String::new();
        for line in rest.lines() {
            body.push_str(line);
            if !line.ends_with('\\') {
                break;
            }
        }
        all.insert(name.to_owned(), body);
    }
    all
}

/// A statement: the functions that it calls and the errors that it names.
type Statement = (Names, Names);

/// The text without what stands within quotes.
fn without_quoted(text: &str) -> String {
    let (mut kept, mut quote, mut is_escaped) = (String::new(), None, false);
    for sign in text.chars() {
        match quote {
            None => {
                // An apostrophe between letters is one of a comment.
                let is_word = kept.ends_with(|c: char| c.is_ascii_alphabetic());
                quote = (sign == '"' || (sign == '\'' && !is_word)).then_some(sign);
                kept.push(sign);
            }
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if sign == '\\' => is_escaped = true,
            Some(end) if sign == end || sign == '\n' => {
                quote = None;
                kept.push(sign);
            }
            Some(_) => {}
        }
    }
    kept
}

fn statements(text: &str) -> Vec<Statement> {
    let text = &without_quoted(&format!("\n{text}"));
    let macros = macros(text);
    let (mut all, mut meant) = (Vec::new(), Names::new());
    for part in text.split_inclusive([';', '{', '}']) {
        if let Some((_, named)) = part.split_once("errors:") {
            meant = errors_of(named.split("*/").next().unwrap_or_default());
        }
        let calls = calls_of(part);
        let mut errors = errors_of(part.rsplit("*/").next().unwrap_or_default());
        for called in &calls {
            errors.extend(macros.get(called).into_iter().flat_map(|body| errors_of(body)));
        }
        if words(part).any(|word| word == "error") {
            errors.extend(meant.iter().cloned());
        }
        if part.ends_with("\n}") {
            // The end of a function.
            meant.clear();
        }
        if words(part).next().is_some() {
            all.push((calls, errors));
        }
    }
    all
}

/// What the C programs of the tests call, with the errors that they look for.
fn tested() -> BTreeMap<String, Names> {
    let mut all = BTreeMap::<String, Names>::new();
    for folder in ["tests/interface", "../pool/tests/c_programs"] {
        let entries = std::fs::read_dir(own(folder)).expect("a folder");
        let paths = entries.map(|entry| entry.expect("readable").path());
        for path in paths.filter(|path| path.extension().is_some_and(|end| end == "c")) {
            let statements = statements(&read(&path));
            for (at, (calls, errors)) in statements.iter().enumerate() {
                let next = statements.get(at + 1).filter(|_| errors.is_empty());
                let errors = next.map_or(errors, |(_, errors)| errors);
                for function in calls {
                    all.entry(function.clone()).or_default().extend(errors.iter().cloned());
                }
            }
        }
    }
    all
}

#[test]
fn every_function_of_the_headers_has_a_test_in_c_for_each_of_its_errors() {
    let (declared, documented, tested) = (declared(), documented(), tested());
    let is_shown = |name: &&String| !NOT_CALLED.contains(&name.as_str());
    let mut missing = Vec::new();
    for name in declared.iter().filter(is_shown) {
        if !documented.contains_key(name) {
            missing.push(format!("{name} is not in docs/xatmi-errors.md"));
        }
        if !tested.contains_key(name) {
            missing.push(format!("no C program calls {name}"));
        }
    }
    for (name, errors) in &documented {
        if !declared.contains(name) {
            missing.push(format!("{name} is in docs/xatmi-errors.md and in no header"));
        }
        let seen = tested.get(name);
        let unseen = errors.iter().filter(|error| seen.is_none_or(|seen| !seen.contains(*error)));
        missing.extend(unseen.map(|error| format!("no C program produces {error} of {name}")));
    }
    assert!(documented.len() > 140, "{} functions: the page was not read", documented.len());
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn an_error_belongs_to_the_calls_of_its_statement_or_of_the_one_before() {
    let text = "#define NONE(call) CHECK((call) == -1 && \\\n  Berror == BNOTPRES)\n\
                static void f(void) {\n  CHECK(one() == -1 && tperrno == TPEINVAL);\n  two();\n  \
                CHECK(tperrno == TPELIMIT);\n  NONE(three());\n  /* errors: TPEOS, TPETIME */\n  \
                CHECK(four() == error);\n}\nstatic void g(void) {\n  CHECK(five() == error);\n}\n";
    let found: Vec<(Names, Names)> = statements(text);
    let errors = |name: &str| {
        let (_, errors) = found.iter().find(|(calls, _)| calls.contains(name)).expect("called");
        errors.iter().map(String::as_str).collect::<Vec<_>>()
    };
    assert_eq!(errors("one"), ["TPEINVAL"]);
    assert_eq!(errors("two"), [""; 0]);
    assert_eq!(errors("three"), ["BNOTPRES"]);
    assert_eq!(errors("four"), ["TPEOS", "TPETIME"]);
    assert_eq!(errors("five"), [""; 0]);
}
