//! `docs/poller-differences.md`, made from the table and compared with the file.

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

use super::differences::{Cases, DIFFERENCES};

/// Makes the check rewrite the file instead of failing.
const BLESS: &str = "POLLUX_BLESS";

const HEAD: &str = "\
# Where the pollers differ

Every backend of `pollux-poller` keeps one contract (`crates/poller/src/contract.rs`). Where
the kernel interface behind a backend does not allow that, the difference stands here, and
nowhere else. This page is made from `crates/poller/tests/suite/differences.rs`; the conformance
suite fails when a backend differs in any other way, when a difference listed here no longer
occurs, and when this page is not the table's
(`POLLUX_BLESS=1 cargo test -p pollux-poller --test conformance` writes it anew).

";

/// Compares the file with the table.
pub(crate) fn check() -> Result<(), String> {
    let path = path();
    let wanted = text();
    if env::var_os(BLESS).is_some() {
        return fs::write(&path, wanted).map_err(|error| format!("{}: {error}", path.display()));
    }
    match fs::read_to_string(&path) {
        Ok(found) if found == wanted => Ok(()),
        Ok(_) => Err(format!("{} is not the table's: run with {BLESS}=1", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn path() -> PathBuf {
    let root = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    root.join("../../docs/poller-differences.md")
}

fn text() -> String {
    let mut text = HEAD.to_owned();
    text.push_str("| backend | where | what happens | why |\n|---|---|---|---|\n");
    for row in DIFFERENCES {
        let backends: Vec<String> = row.backends.iter().map(ToString::to_string).collect();
        let cases = match &row.cases {
            Cases::Needing(need) => need.name().to_owned(),
            Cases::Named(names) => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                names.join(", ")
            }
        };
        let what = row.deviation.about();
        writeln!(text, "| {} | {cases} | {what} | {} |", backends.join(", "), row.reason)
            .expect("strings take everything");
    }
    text
}
