//! `docs/epoll-interface.md`: its text, and the table of deviations.

use std::fmt::Write;
use std::path::Path;

use pollux_epoll_c::deviations::DEVIATIONS;

/// Makes the check rewrite the file instead of failing.
const BLESS: &str = "POLLUX_BLESS";

const HEAD: &str = include_str!("head.md");

/// Compares the file with the table.
pub(crate) fn check() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/epoll-interface.md");
    let mut text = HEAD.to_owned();
    text.push_str("| mechanism | epoll(7) | here | why, and what to do |\n|---|---|---|---|\n");
    for row in DEVIATIONS {
        let names: Vec<&str> = row.mechanisms.iter().map(|one| one.name()).collect();
        writeln!(text, "| {} | {} | {} | {} |", names.join(", "), row.epoll, row.here, row.reason)
            .expect("strings take everything");
    }
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, text).expect("written");
        return;
    }
    let found = std::fs::read_to_string(&path).expect("the page");
    assert!(found == text, "docs/epoll-interface.md is not the table's: run cargo xtask bless");
}
