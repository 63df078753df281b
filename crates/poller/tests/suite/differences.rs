//! The one table of differences between the backends.
//!
//! The suite checks every row both ways: a difference that is not declared here fails, and so
//! does a declared one that no longer occurs. `docs/poller-differences.md` is made from it.

use pollux_poller::Backend;

use super::{Deviation, Need};

/// One row: on these backends these cases end in this deviation.
pub(crate) struct Difference {
    /// Which mechanisms differ.
    pub(crate) backends: &'static [Backend],
    /// Where.
    pub(crate) cases: Cases,
    /// How.
    pub(crate) deviation: Deviation,
    /// Why the kernel interface leaves no choice, or why the other choice is worse.
    pub(crate) reason: &'static str,
}

/// Which cases a row is about.
pub(crate) enum Cases {
    /// Every case that needs this.
    Needing(Need),
    /// These, by full name.
    Named(&'static [&'static str]),
}

impl Cases {
    /// The cases that are named one by one.
    pub(crate) fn named(&self) -> &'static [&'static str] {
        match self {
            Self::Needing(_) => &[],
            Self::Named(names) => names,
        }
    }
}

/// The first row for `backend` that covers the case: the reason that a script meets first
/// stands first.
pub(crate) fn declared(
    backend: Backend,
    name: &str,
    needs: &[Need],
) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|row| {
        row.backends.contains(&backend)
            && match &row.cases {
                Cases::Needing(need) => needs.contains(need),
                Cases::Named(names) => names.contains(&name),
            }
    })
}

/// The table.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        backends: &[Backend::Sim],
        cases: Cases::Needing(Need::Kernel),
        deviation: Deviation::NoObject,
        reason: "the simulated world has pipes, socket pairs, event counters and queues, and \
                 time that moves only while a poller waits",
    },
    Difference {
        backends: &[Backend::Select, Backend::Poll, Backend::Aio],
        cases: Cases::Needing(Need::Edge),
        deviation: Deviation::Refused,
        reason: "select(2), poll(2) and IOCB_CMD_POLL look at a condition and keep no memory of \
                 it, so a second write to a readable file can't be seen",
    },
    Difference {
        backends: &[Backend::Select, Backend::Poll, Backend::Aio],
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
            "hangup/hup_is_reported_with_an_empty_interest",
            "hangup/oneshot_modified_to_none_reports_hup",
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
        backends: &[Backend::Aio, Backend::Uring],
        cases: Cases::Named(&[
            "errno/a_regular_file_is_eperm",
            "errno/a_directory_is_eperm",
            "errno/a_device_without_readiness_is_eperm",
            "counters/the_file_policy_is_what_happens",
        ]),
        deviation: Deviation::AcceptsFiles,
        reason: "a poll request on a file without readiness completes at once; asking before \
                 each add would cost a system call that these interfaces exist to save",
    },
    Difference {
        backends: &[Backend::Aio, Backend::Uring],
        cases: Cases::Named(&[
            "errno/a_path_descriptor_is_ebadf",
            "process/numbers/a_closed_number_is_ebadf",
        ]),
        deviation: Deviation::ErrorLater,
        reason: "changes ride with the next wait, and only then does the kernel look",
    },
    Difference {
        backends: &[Backend::Select, Backend::Poll, Backend::Aio, Backend::Uring],
        cases: Cases::Named(&["errno/a_second_add_under_another_token_is_eexist"]),
        deviation: Deviation::Replaces,
        reason: "these backends don't see a close, so another generation under the same number \
                 means that the number was used again",
    },
    Difference {
        backends: &[Backend::Select, Backend::Poll],
        cases: Cases::Named(&["reuse/a_number_reused_without_add_is_not_watched"]),
        deviation: Deviation::WatchesNumbers,
        reason: "select(2) and poll(2) are given numbers anew with each call and look at \
                 whatever file has them then",
    },
    Difference {
        backends: &[Backend::Select, Backend::Poll],
        cases: Cases::Named(&[
            "reuse/a_duplicate_keeps_the_file_watched",
            "process/fork/a_file_that_a_child_inherited_lives_on",
        ]),
        deviation: Deviation::ForgetsClosed,
        reason: "a number that is closed is an error of the call (EBADF, POLLNVAL), so it is \
                 dropped and counted",
    },
    Difference {
        backends: &[Backend::Aio, Backend::Uring],
        cases: Cases::Named(&[
            "reuse/a_file_closed_without_delete_is_silent",
            "reuse/a_file_closed_without_delete_is_received_by_the_peer",
        ]),
        deviation: Deviation::HoldsFiles,
        reason: "an armed poll request holds the open file, and close(2) does not cancel it",
    },
    Difference {
        backends: &[Backend::Select, Backend::Poll, Backend::Aio, Backend::Uring],
        cases: Cases::Named(&["counters/stale_events_are_counted"]),
        deviation: Deviation::NothingStale,
        reason: "adding a reused number takes the old number or request away, and only \
                 epoll(7) continues to report a file that lives in a duplicate",
    },
    Difference {
        backends: &[Backend::Aio, Backend::Uring],
        cases: Cases::Named(&[
            "triggers/level_is_silent_about_what_was_read_before_the_wait",
            "triggers/edge_is_silent_about_what_was_read_before_the_wait",
            "triggers/oneshot_is_silent_about_what_was_read_before_the_wait",
        ]),
        deviation: Deviation::ReportsWhatIsOver,
        reason: "a poll request completes when its file wakes it, not when somebody waits; to \
                 look again at each would double the requests: read with O_NONBLOCK",
    },
    Difference {
        backends: &[Backend::Select, Backend::Poll, Backend::Aio, Backend::Uring],
        cases: Cases::Named(&["reuse/a_modified_number_reports_nothing_of_the_closed_file"]),
        deviation: Deviation::ModifiesSuccessor,
        reason: "these backends don't see a close; another generation lets go of the old file",
    },
    Difference {
        backends: &[Backend::Epoll, Backend::Sim],
        cases: Cases::Named(&["reuse/a_wait_that_finds_only_stale_events_continues"]),
        deviation: Deviation::EndsEarly,
        reason: "a file that lives in a duplicate can't be taken out of epoll(7) by the number \
                 that was closed; the caller sees it in the counter of stale events and must \
                 close the duplicate or the poller",
    },
];
