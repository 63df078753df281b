//! `docs/epoll-interface.md`: its text, and the table of deviations.

use std::fmt::Write;
use std::path::Path;

use pollux_epoll_c::Mechanism;
use pollux_epoll_c::deviations::{DEVIATIONS, Deviation};

/// Makes the check rewrite the file instead of failing.
const BLESS: &str = "POLLUX_BLESS";

const HEAD: &str = include_str!("head.md");

/// Compares the file with the table.
pub(crate) fn check() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/epoll-interface.md");
    let mut text = HEAD.to_owned();
    text.push_str("| mechanism | by `pollux run` | epoll(7) | here | why, and what to do |\n");
    text.push_str("|---|---|---|---|---|\n");
    for row in DEVIATIONS {
        let preloaded =
            if row.preloaded == row.linked { SAME.to_owned() } else { names(row.preloaded) };
        let (linked, Deviation { epoll, here, reason, .. }) = (names(row.linked), row);
        writeln!(text, "| {linked} | {preloaded} | {epoll} | {here} | {reason} |")
            .expect("strings take everything");
    }
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, text).expect("written");
        return;
    }
    let found = std::fs::read_to_string(&path).expect("the page");
    assert!(found == text, "docs/epoll-interface.md is not the table's: run cargo xtask bless");
}

const SAME: &str = "the same";

fn names(mechanisms: &[Mechanism]) -> String {
    let names: Vec<&str> = mechanisms.iter().map(|one| one.name()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
