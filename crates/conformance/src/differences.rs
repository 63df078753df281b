//! The one table of differences between the backends.
//!
//! The suite checks every row both ways: a difference that is not declared here fails, and so
//! does a declared one that no longer occurs. `docs/reference/poller-differences.md` is made from it.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use pollux_poller::{Backend, Keeps, Trigger, chosen};

use crate::runner::{BACKENDS, report};
use crate::{Deviation, Group, Need};

/// Makes the check of the page write it instead of failing.
const BLESS: &str = "POLLUX_BLESS";

const HEAD: &str = "\
# Where the pollers differ

Every backend of `pollux-poller` keeps one contract (`crates/poller/src/contract.rs`). Where
the kernel interface behind a backend does not allow that, the difference stands here, and
nowhere else. This page is made from `crates/conformance/src/differences.rs`; the conformance
suite fails when a backend differs in any other way, when a difference listed here no longer
occurs, and when this page is not the table's
(`POLLUX_BLESS=1 cargo test -p pollux-poller --test conformance differences` writes it anew).

";

/// One row: on these backends these cases end in this deviation.
pub struct Difference {
    /// Which mechanisms differ.
    pub backends: &'static [Backend],
    pub cases: Cases,
    pub deviation: Deviation,
    /// Why the kernel interface leaves no choice, or why the other choice is worse.
    pub reason: &'static str,
}

/// Which cases a row is about.
pub enum Cases {
    /// Every case that needs this.
    Needing(Need),
    /// These, by full name.
    Named(&'static [&'static str]),
}

/// The first row for `backend` that covers the case: the reason that a script meets first
/// stands first.
pub fn declared(backend: Backend, name: &str, needs: &[Need]) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|row| {
        row.backends.contains(&backend)
            && match &row.cases {
                Cases::Needing(need) => needs.contains(need),
                Cases::Named(names) => names.contains(&name),
            }
    })
}

/// Every case that the table names exists, of those that run in this binary; counts cases and differences.
pub fn check_names(groups: &[Group]) {
    let cases =
        || groups.iter().flat_map(|group| group.cases.iter().map(move |case| (group, case)));
    let names: Vec<_> =
        cases().map(|(group, case)| (format!("{}::{}", group.name, case.name), case)).collect();
    for row in DIFFERENCES {
        let Cases::Named(named) = row.cases else { continue };
        for name in named {
            assert!(names.iter().any(|(known, _)| known == name), "no case is called {name}");
        }
    }
    let differing = BACKENDS.into_iter().flat_map(|backend| {
        names.iter().filter(move |(name, case)| declared(backend, name, case.needs).is_some())
    });
    let count = names.len();
    let backends = BACKENDS.len();
    report(&format!(
        "{count} cases x {backends} backends, {} declared differences ... ",
        differing.count()
    ));
}

/// Compares the page with the table.
pub fn check_page() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/poller-differences.md");
    if env::var_os(BLESS).is_some() {
        fs::write(&path, page()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let found = fs::read_to_string(&path);
    let found = found.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(found == page(), "{} is not the table's: run with {BLESS}=1", path.display());
}

fn page() -> String {
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

/// What differs as a backend keeps the same of a descriptor; the table of mechanisms says what that is.
const NUMBERS: &[Backend] = chosen!(Backend in BACKENDS, |it| matches!(it.keeps(), Keeps::Number));
const REQUESTS: &[Backend] =
    chosen!(Backend in BACKENDS, |it| matches!(it.keeps(), Keeps::Request));
const REGISTRATIONS: &[Backend] =
    chosen!(Backend in BACKENDS, |it| matches!(it.keeps(), Keeps::Registration));
const NO_REGISTRATIONS: &[Backend] =
    chosen!(Backend in BACKENDS, |it| !matches!(it.keeps(), Keeps::Registration));
/// What keeps no memory of a condition.
const LEVEL: &[Backend] = chosen!(Backend in BACKENDS, |it| {
    !matches!(it.keeps(), Keeps::Registration) && matches!(it.plain_trigger(), Trigger::Level)
});

pub const DIFFERENCES: &[Difference] = &[
    Difference {
        backends: &[crate::sim::BACKEND],
        cases: Cases::Needing(Need::Kernel),
        deviation: Deviation::NoObject,
        reason: "the simulated world has pipes, socket pairs, event counters and queues, and \
                 time that moves only while a poller waits",
    },
    Difference {
        backends: LEVEL,
        cases: Cases::Needing(Need::Edge),
        deviation: Deviation::Refused,
        reason: "select(2), poll(2) and IOCB_CMD_POLL look at a condition and keep no memory of \
                 it, so a second write to a readable file can't be seen",
    },
    Difference {
        backends: LEVEL,
        cases: Cases::Needing(Need::Exclusive),
        deviation: Deviation::Refused,
        reason: "only epoll_ctl(2) and io_uring poll requests take EPOLLEXCLUSIVE",
    },
    Difference {
        backends: &[Backend::Select],
        cases: Cases::Needing(Need::Rdhup),
        deviation: Deviation::Refused,
        reason: "select(2) has three sets, and none of them for a half-closed peer",
    },
    Difference {
        backends: &[Backend::Select],
        cases: Cases::Named(&[
            "hangup::hup_is_reported_with_an_empty_interest",
            "hangup::oneshot_modified_to_none_reports_hup",
        ]),
        deviation: Deviation::HangupUnreported,
        reason: "a descriptor that is in none of the sets of select(2) is not polled",
    },
    Difference {
        backends: &[Backend::Select],
        cases: Cases::Needing(Need::Hangup),
        deviation: Deviation::HangupAsReadable,
        reason: "select(2) folds POLLHUP into the read set and POLLERR into both",
    },
    Difference {
        backends: REQUESTS,
        cases: Cases::Named(&[
            "errno::a_regular_file_is_eperm",
            "errno::a_directory_is_eperm",
            "errno::a_device_without_readiness_is_eperm",
            "counters::the_file_policy_is_what_happens",
        ]),
        deviation: Deviation::AcceptsFiles,
        reason: "a poll request on a file without readiness completes at once; asking before \
                 each add would cost a system call that these interfaces exist to save",
    },
    Difference {
        backends: REQUESTS,
        cases: Cases::Named(&[
            "errno::a_path_descriptor_is_ebadf",
            "process::descriptors::a_closed_number_is_ebadf",
        ]),
        deviation: Deviation::ErrorLater,
        reason: "changes ride with the next wait, and only then does the kernel look",
    },
    Difference {
        backends: NO_REGISTRATIONS,
        cases: Cases::Named(&["errno::a_second_add_under_another_token_is_eexist"]),
        deviation: Deviation::Replaces,
        reason: "these backends don't see a close, so another generation under the same number \
                 means that the number was used again",
    },
    Difference {
        backends: NUMBERS,
        cases: Cases::Named(&["reuse::a_number_reused_without_add_is_not_watched"]),
        deviation: Deviation::WatchesNumbers,
        reason: "select(2) and poll(2) are given numbers anew with each call and look at \
                 whatever file has them then",
    },
    Difference {
        backends: NUMBERS,
        cases: Cases::Named(&[
            "reuse::a_duplicate_keeps_the_file_watched",
            "process::fork::a_file_that_a_child_inherited_lives_on",
        ]),
        deviation: Deviation::ForgetsClosed,
        reason: "a number that is closed is an error of the call (EBADF, POLLNVAL), so it is \
                 dropped and counted",
    },
    Difference {
        backends: REQUESTS,
        cases: Cases::Named(&[
            "reuse::a_file_closed_without_delete_is_silent",
            "reuse::a_file_closed_without_delete_is_received_by_the_peer",
        ]),
        deviation: Deviation::HoldsFiles,
        reason: "an armed poll request holds the open file, and close(2) does not cancel it",
    },
    Difference {
        backends: NO_REGISTRATIONS,
        cases: Cases::Named(&["counters::stale_events_are_counted"]),
        deviation: Deviation::NothingStale,
        reason: "adding a reused number takes the old number or request away, and only \
                 epoll(7) continues to report a file that lives in a duplicate",
    },
    Difference {
        backends: REQUESTS,
        cases: Cases::Named(&[
            "triggers::level_is_silent_about_what_was_read_before_the_wait",
            "triggers::edge_is_silent_about_what_was_read_before_the_wait",
            "triggers::oneshot_is_silent_about_what_was_read_before_the_wait",
        ]),
        deviation: Deviation::ReportsWhatIsOver,
        reason: "a poll request completes when its file wakes it, not when a wait looks; to \
                 look again at each would double the requests: read with O_NONBLOCK",
    },
    Difference {
        backends: NO_REGISTRATIONS,
        cases: Cases::Named(&["reuse::a_modified_number_reports_nothing_of_the_closed_file"]),
        deviation: Deviation::ModifiesSuccessor,
        reason: "these backends don't see a close; another generation lets go of the old file",
    },
    Difference {
        backends: &[Backend::UringPoll],
        cases: Cases::Named(&["errno::exclusive_passes_over_a_poller_that_does_not_wait"]),
        deviation: Deviation::TakesWakes,
        reason: "a poll request that is armed counts as a waiter, though its loop is busy: with \
                 exclusive registrations no turn of a loop may take long (an edge is armed all the \
                 time, a level until it is reported); one listener for each loop (SO_REUSEPORT) needs none",
    },
    Difference {
        backends: REGISTRATIONS,
        cases: Cases::Named(&["reuse::a_wait_that_finds_only_stale_events_continues"]),
        deviation: Deviation::EndsEarly,
        reason: "a file that lives in a duplicate can't be taken out of epoll(7) by the number \
                 that was closed; the caller sees it in the counter of stale events and must \
                 close the duplicate or the poller",
    },
];
