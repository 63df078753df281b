//! Every mechanism beside the kernel's epoll: it differs where the table says, and nowhere else.

mod calls;
mod document;
#[path = "../mechanisms/mod.rs"]
mod mechanisms;
mod random;
mod scripts;
mod subject;

use pollux_epoll_c::{Mechanism, deviations};

use mechanisms::others;
use scripts::SCRIPTS;
use subject::Subject;

/// One test, as the scripts count on numbers of descriptors that nobody else takes.
#[test]
fn a_mechanism_differs_where_the_table_says_and_nowhere_else() {
    let mut wrong = Vec::new();
    for (name, script) in SCRIPTS {
        let expected = script(&Subject::new(Mechanism::Epoll));
        for mechanism in others() {
            let seen = script(&Subject::new(mechanism));
            let is_declared = deviations::is_of_linked(name, mechanism);
            wrong.extend(scripts::judge(name, mechanism, (&expected, &seen), is_declared));
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
        for script in row.scripts {
            assert!(SCRIPTS.iter().any(|(name, _)| name == script), "{script}");
        }
        let differs = !row.linked.is_empty() || !row.preloaded.is_empty();
        assert!(differs && !row.scripts.is_empty(), "{}", row.epoll);
    }
}

#[test]
fn the_page_is_the_tables() {
    document::check();
}
