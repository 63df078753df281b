//! The one table of where a mechanism differs from the kernel's epoll.
//!
//! `tests/deviations` runs a script for each row, and others, on the kernel's epoll and on every
//! mechanism: what differs must stand here, and what stands here must differ. `docs/epoll-interface.md`
//! is made from it.

use pollux_poller::Mechanism;

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// The script that shows it.
    pub script: &'static str,
    /// Who differs.
    pub mechanisms: &'static [Mechanism],
    /// What the kernel's epoll does.
    pub epoll: &'static str,
    /// What happens instead.
    pub here: &'static str,
    /// Why, and what to do about it.
    pub reason: &'static str,
}

const SELECT: &[Mechanism] = &[Mechanism::Select];
const NUMBERS: &[Mechanism] = &[Mechanism::Select, Mechanism::Poll];
const LEVEL: &[Mechanism] = &[Mechanism::Select, Mechanism::Poll, Mechanism::Aio];
const REQUESTS: &[Mechanism] = &[Mechanism::Aio, Mechanism::UringPoll];
const ALL: &[Mechanism] =
    &[Mechanism::Select, Mechanism::Poll, Mechanism::Aio, Mechanism::UringPoll];

/// The table.
pub const DEVIATIONS: &[Deviation] = &[
    Deviation {
        script: "an_edge_is_reported_once",
        mechanisms: LEVEL,
        epoll: "EPOLLET reports a condition when it is entered or renewed",
        here: "reported in every wait while it holds, as without EPOLLET",
        reason: "these interfaces keep no memory of a condition, and what happened to it between two waits \
                 can't be seen, so to be silent could lose an edge; a program that reads and writes until \
                 EAGAIN works, and spins while it leaves something ready that it asked for (as \
                 tokio does with its waker, an eventfd that is never read)",
    },
    Deviation {
        script: "an_edge_reports_all_that_holds",
        mechanisms: &[Mechanism::UringPoll],
        epoll: "an event with EPOLLET has every condition that holds",
        here: "it has those that were entered or renewed",
        reason: "a multishot poll request tells what woke it; what held before was reported before",
    },
    Deviation {
        script: "a_oneshot_reports_all_that_holds",
        mechanisms: &[Mechanism::Select, Mechanism::Aio, Mechanism::UringPoll],
        epoll: "an event with EPOLLONESHOT has every condition that holds when somebody waits",
        here: "it has what completed the request, without what came until the wait; on select it has no \
               EPOLLRDHUP anyhow",
        reason: "a poll request completes when its file wakes it; EPOLL_CTL_MOD looks again",
    },
    Deviation {
        script: "what_was_read_before_the_wait_is_silent",
        mechanisms: REQUESTS,
        epoll: "what was ready and is over when somebody waits is not reported",
        here: "reported once",
        reason: "a poll request completes when its file wakes it: use O_NONBLOCK",
    },
    Deviation {
        script: "a_file_closed_without_del_is_closed",
        mechanisms: REQUESTS,
        epoll: "close(2) of the last number of a file closes it and ends its registration",
        here: "it stays open, for its peer too, until something happens to it",
        reason: "a poll request holds the file and the library is not told of close(2): \
                 EPOLL_CTL_DEL before it, and wait or make another change; a library that takes \
                 close(2) too does it",
    },
    Deviation {
        script: "a_number_used_again_without_add_is_silent",
        mechanisms: NUMBERS,
        epoll: "a file that gets a closed number is not watched before it is added",
        here: "reported with the data of the closed one",
        reason: "select(2) and poll(2) look at whatever has the number: EPOLL_CTL_DEL before close(2)",
    },
    Deviation {
        script: "a_duplicate_keeps_a_registration",
        mechanisms: NUMBERS,
        epoll: "a registration lives until the last duplicate of its file is closed",
        here: "it ends with the number that was added",
        reason: "a closed number is an error of select(2) and poll(2)",
    },
    Deviation {
        script: "another_eventfd_of_the_number_is_another_file",
        mechanisms: ALL,
        epoll: "an eventfd that gets the number of a closed one can be added",
        here: "EEXIST, and it is watched in its place",
        reason: "anonymous files of the kernel (eventfd, timerfd, signalfd, inotify) can't be told \
                 apart: EPOLL_CTL_DEL before close(2)",
    },
    Deviation {
        script: "a_hang_up_has_a_bit_of_its_own",
        mechanisms: SELECT,
        epoll: "EPOLLHUP and EPOLLERR are reported as such",
        here: "a hang-up is EPOLLIN, an error EPOLLIN and EPOLLOUT, as far as these were asked for",
        reason: "select(2) has three sets only",
    },
    Deviation {
        script: "a_hang_up_is_reported_without_interest",
        mechanisms: SELECT,
        epoll: "EPOLLHUP and EPOLLERR are always reported",
        here: "not to a registration that asks for none of EPOLLIN, EPOLLOUT and EPOLLPRI",
        reason: "what is in none of the sets of select(2) is not looked at",
    },
    Deviation {
        script: "the_end_of_the_peers_writing_has_a_bit",
        mechanisms: SELECT,
        epoll: "EPOLLRDHUP tells that the peer has shut down writing",
        here: "never reported; the end is EPOLLIN",
        reason: "select(2) has no set for it",
    },
    Deviation {
        script: "bands_are_reported",
        mechanisms: ALL,
        epoll: "EPOLLWRBAND and EPOLLRDBAND are reported where the file has them",
        here: "never",
        reason: "the pollers have no such condition; no Linux program is known to ask for it",
    },
    Deviation {
        script: "poll_sees_that_an_instance_is_ready",
        mechanisms: ALL,
        epoll: "the descriptor of an instance is readable for poll(2) while events are there",
        here: "never, until the instance is added to another one: from then on it is an epoll of the \
               kernel's, and behaves as one",
        reason: "only the kernel can report it; px_epoll_poller tells",
    },
    Deviation {
        script: "a_child_shares_the_instance",
        mechanisms: ALL,
        epoll: "after fork(2) parent and child change and wait on one instance",
        here: "the child has a copy, which goes its own way",
        reason: "poll requests and lists belong to a process",
    },
    Deviation {
        script: "a_new_program_has_the_registrations",
        mechanisms: ALL,
        epoll: "an instance whose number survives execve(2) keeps its registrations",
        here: "it is an epoll of the kernel's without any",
        reason: "poll requests and lists end with the program, and the library is not told of execve(2): \
                 EPOLL_CTL_ADD in the new one; a library that takes exec too hands them to the kernel",
    },
];

/// The rows of `mechanism`.
pub fn of(mechanism: Mechanism) -> impl Iterator<Item = &'static Deviation> {
    DEVIATIONS.iter().filter(move |row| row.mechanisms.contains(&mechanism))
}
