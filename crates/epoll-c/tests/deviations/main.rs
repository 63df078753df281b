//! Every mechanism beside the kernel's epoll: it differs where the table says, and nowhere else; and
//! `docs/reference/epoll-interface.md` has that table.

mod calls;
mod random;
mod scripts;

use std::fmt::Write;
use std::path::Path;

use pollux_conformance::rig::allowed_but_epoll;
use pollux_epoll_c::Mechanism;
use pollux_epoll_c::deviations::{self, DEVIATIONS, Deviation};

use scripts::{SCRIPTS, Subject};

/// One test, as no other thread may take the descriptor numbers that the scripts use.
#[test]
fn a_mechanism_differs_where_the_table_says_and_nowhere_else() {
    let mut wrong = Vec::new();
    for (name, script) in SCRIPTS {
        let expected = script(&Subject::new(Mechanism::Epoll));
        for mechanism in allowed_but_epoll() {
            let seen = script(&Subject::new(mechanism));
            let declared = deviations::of_linked(name, mechanism);
            wrong.extend(scripts::judge(name, mechanism, (&expected, &seen), declared));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Nothing but for a script, which starts this binary again.
#[test]
fn this_is_a_new_program() {
    scripts::be_a_new_program();
}

#[test]
fn every_row_has_its_script() {
    for row in DEVIATIONS {
        for script in row.scripts {
            assert!(SCRIPTS.iter().any(|(name, _)| name == script), "{script}");
        }
        let differs = !row.linked.is_empty() || !row.preloaded.is_empty();
        assert!(differs && !row.scripts.is_empty(), "{}", row.epoll);
    }
}

#[test]
fn the_page_is_the_tables() {
    check();
}

/// Makes the check rewrite the file instead of failing.
const BLESS: &str = "POLLUX_BLESS";

const HEAD: &str = include_str!("head.md");

/// Compares the file with the table.
fn check() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/epoll-interface.md");
    let mut text = HEAD.to_owned();
    text.push_str("| mechanism | by `pollux run` | epoll(7) | here | why, and what to do |\n");
    text.push_str("|---|---|---|---|---|\n");
    for row in DEVIATIONS {
        let preloaded =
            if row.preloaded == row.linked { SAME.to_owned() } else { names(row, row.preloaded) };
        let (linked, Deviation { epoll, here, reason, .. }) = (names(row, row.linked), row);
        writeln!(text, "| {linked} | {preloaded} | {epoll} | {here} | {reason} |")
            .expect("strings take everything");
    }
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, text).expect("written");
        return;
    }
    let found = std::fs::read_to_string(&path).expect("the page");
    assert!(
        found == text,
        "docs/reference/epoll-interface.md is not the table's: run cargo xtask bless"
    );
}

const SAME: &str = "the same";

fn names(row: &Deviation, mechanisms: &[Mechanism]) -> String {
    let name = |one: &Mechanism| {
        if row.at_times.contains(one) { format!("{one} (at times)") } else { one.to_string() }
    };
    let names: Vec<String> = mechanisms.iter().map(name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
