//! Every mechanism beside the kernel's epoll: it differs where the table says, and nowhere else.

mod document;
#[path = "../mechanisms/mod.rs"]
mod mechanisms;
mod random;
mod scripts;
mod subject;

use pollux_epoll_c::{Mechanism, deviations};

use scripts::SCRIPTS;
use subject::{Subject, mechanisms};

/// One test, as the scripts count on numbers of descriptors that nobody else takes.
#[test]
fn a_mechanism_differs_where_the_table_says_and_nowhere_else() {
    let mut wrong = Vec::new();
    for (name, script) in SCRIPTS {
        let expected = script(&Subject::new(Mechanism::Epoll));
        for mechanism in mechanisms() {
            let seen = script(&Subject::new(mechanism));
            let is_declared = deviations::of(mechanism).any(|row| row.script == *name);
            if (seen != expected) != is_declared {
                let declared = if is_declared { "declared" } else { "not declared" };
                wrong.push(format!(
                    "{name} on {mechanism} ({declared}):\n  epoll {expected}\n  here  {seen}"
                ));
            }
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
    for row in deviations::DEVIATIONS {
        assert!(SCRIPTS.iter().any(|(name, _)| *name == row.script), "{}", row.script);
    }
}

#[test]
fn the_page_is_the_tables() {
    document::check();
}
