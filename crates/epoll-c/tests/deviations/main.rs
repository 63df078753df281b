//! Every mechanism beside the kernel's epoll: it differs where the table says, and nowhere else; and
//! `docs/reference/epoll-interface.md` has that table.

mod calls;
mod random;
mod scripts;

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::thread;

use pollux_conformance::rig::allowed_but_epoll;
use pollux_epoll_c::Mechanism;
use pollux_epoll_c::deviations::{self, DEVIATIONS, Deviation};

use scripts::SCRIPTS;

/// Says to a process on which mechanism it runs the scripts.
const RUNS: &str = "POLLUX_TEST_RUNS_SCRIPTS";
/// Makes the check of the page rewrite it instead of failing.
const BLESS: &str = "POLLUX_BLESS";
const HEAD: &str = include_str!("head.md");
/// What the page says of a mechanism that does not differ from the one beside it.
const SAME: &str = "the same";

/// A process for each mechanism, as no other thread may take the descriptor numbers that the scripts use; most of a script
/// is waiting.
#[test]
fn a_mechanism_differs_where_the_table_says_and_nowhere_else() {
    let answers = |mechanism: Mechanism| {
        let mut command = Command::new(std::env::current_exe().expect("the own path"));
        command.args(["--exact", "this_runs_the_scripts"]).env(RUNS, mechanism.name());
        scripts::answers_of(mechanism.name(), &mut command)
    };
    let (expected, seen) = thread::scope(|scope| {
        let mechanisms = allowed_but_epoll();
        let seen: Vec<_> = mechanisms
            .map(|mechanism| scope.spawn(move || (mechanism, answers(mechanism))))
            .collect();
        let expected = answers(Mechanism::Epoll);
        let seen = seen.into_iter().map(|seen| seen.join().expect("no panic"));
        (expected, seen.collect::<Vec<_>>())
    });
    let mut wrong = Vec::new();
    for (mechanism, seen) in seen {
        for (name, _) in SCRIPTS {
            let declared = deviations::of_linked(name, mechanism);
            let both = (&*expected[*name], &*seen[*name]);
            wrong.extend(scripts::judge(name, mechanism, both, declared));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Nothing but for the test above, which starts this binary again.
#[test]
fn this_runs_the_scripts() {
    if let Ok(name) = std::env::var(RUNS) {
        scripts::print_answers(name.parse().expect("a mechanism"));
    }
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

/// A line of the header lists them; a blessing writes it.
#[test]
fn the_header_lists_the_mechanisms() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/pollux/epoll.h");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let begin = " * A mechanism is one of ";
    let listed = format!("{begin}{}.", plain('"'));
    let mut lines: Vec<&str> = text.lines().collect();
    let line = lines.iter_mut().find(|line| line.starts_with(begin)).expect("a line of its own");
    if std::env::var_os(BLESS).is_some() {
        *line = &listed;
        std::fs::write(&path, lines.join("\n") + "\n").expect("written");
        return;
    }
    assert_eq!(*line, listed, "epoll.h is not the table's: run cargo xtask bless");
}

/// The names of the interfaces in a sentence, each between `quotes`.
fn plain(quotes: char) -> String {
    let names = Mechanism::PLAIN.map(|mechanism| format!("{quotes}{mechanism}{quotes}"));
    let (last, front) = names.split_last().expect("there are some");
    format!("{} and {last}", front.join(", "))
}

/// Compares the file with the table.
fn check() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/epoll-interface.md");
    let mut text = HEAD.replacen("MECHANISMS", &plain('`'), 1);
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

fn names(row: &Deviation, mechanisms: &[Mechanism]) -> String {
    let name = |one: &Mechanism| {
        if row.at_times.contains(one) { format!("{one} (at times)") } else { one.to_string() }
    };
    let names: Vec<String> = mechanisms.iter().map(name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
