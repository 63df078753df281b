//! The one table of where a mechanism differs from the kernel's epoll.
//!
//! `tests/deviations` runs the scripts of each row, and others, on the kernel's epoll and on every
//! mechanism: what differs must stand here, and what stands here must differ. `tests/plain_names` of
//! `crates/preload` does the same with the library that takes the plain names.
//! `docs/reference/epoll-interface.md` is made from the table.

use pollux_poller::{Backend, Keeps, Mechanism, Trigger, chosen};

#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// The scripts that show it.
    pub scripts: &'static [&'static str],
    /// What differs where a program calls the `px_` functions, which learn of close, dup and exec only later.
    pub linked: &'static [Mechanism],
    /// What differs where `libpollux_preload` takes the plain names, and those of close, dup and exec.
    pub preloaded: &'static [Mechanism],
    /// Those of both where it differs at times only: the kernel may be fast enough.
    pub at_times: &'static [Mechanism],
    /// What the kernel's epoll does.
    pub epoll: &'static str,
    /// What happens instead.
    pub here: &'static str,
    /// Why, and what to do about it.
    pub reason: &'static str,
}

const SELECT: &[Mechanism] = &[Mechanism::Select];
/// What differs as a mechanism keeps the same of a descriptor; the table of mechanisms says what that is.
const NUMBERS: &[Mechanism] =
    chosen!(Mechanism in Mechanism::PLAIN, |it| matches!(it.backend().keeps(), Keeps::Number));
const REQUESTS: &[Mechanism] =
    chosen!(Mechanism in Mechanism::PLAIN, |it| matches!(it.backend().keeps(), Keeps::Request));
/// What keeps no memory of a condition.
const LEVEL: &[Mechanism] = chosen!(Mechanism in Mechanism::PLAIN, |it| {
    !matches!(it.backend(), Backend::Epoll) && matches!(it.trigger(), Trigger::Level)
});
/// What is not the kernel's own.
const ALL: &[Mechanism] =
    chosen!(Mechanism in Mechanism::PLAIN, |it| !matches!(it.backend(), Backend::Epoll));
const AIO: &[Mechanism] = &[Mechanism::Aio];
const NONE: &[Mechanism] = &[];

pub const DEVIATIONS: &[Deviation] = &[
    Deviation {
        scripts: &[
            "an_edge_is_reported_once",
            "an_instance_within_another_by_edge_is_reported_once",
            "an_edge_wakes_one_of_the_threads_that_wait",
        ],
        linked: LEVEL,
        preloaded: LEVEL,
        at_times: NONE,
        epoll: "EPOLLET reports a condition when it is entered or renewed",
        here: "reported in every wait while it holds, as without EPOLLET",
        reason: "these interfaces keep no memory of a condition, and what happened to it between two waits \
                 can't be seen, so to be silent could lose an edge; a program that reads and writes until \
                 EAGAIN works, and spins while it leaves something ready that it asked for (as \
                 tokio does with its waker, an eventfd that is never read). What a program does with every event \
                 it does all the time then: a proxy that renews a time limit (nginx: proxy_timeout of an idle \
                 stream) never reaches it, and uses a third to a half of a processor; several threads that wait are all \
                 woken",
    },
    Deviation {
        scripts: &["an_edge_that_was_reported_is_silent_for_a_second_thread"],
        linked: ALL,
        preloaded: ALL,
        at_times: NONE,
        epoll: "an edge that one thread got is not reported to a second one that waits later",
        here: "on uring-poll reported once more when the second thread of an instance waits for the first time; on \
               the others as above",
        reason: "a ring is fastest for the thread that opened it: the second one makes the library open another, \
                 in which all is registered anew",
    },
    Deviation {
        scripts: &["an_edge_wakes_one_of_the_threads_that_wait"],
        linked: &[Mechanism::UringPoll],
        preloaded: &[Mechanism::UringPoll],
        at_times: &[Mechanism::UringPoll],
        epoll: "an edge wakes one of the threads that wait",
        here: "an edge that comes while the first threads of an instance begin to wait may be reported to two of them",
        reason: "as above: it is reported by the ring that is exchanged and by the one that takes its place",
    },
    Deviation {
        scripts: &["an_edge_reports_all_that_holds"],
        linked: &[Mechanism::UringPoll],
        preloaded: &[Mechanism::UringPoll],
        at_times: NONE,
        epoll: "an event with EPOLLET has every condition that holds",
        here: "it has those that were entered or renewed",
        reason: "a multishot poll request tells what woke it; what held before was reported before",
    },
    Deviation {
        scripts: &["a_oneshot_reports_all_that_holds"],
        linked: &[Mechanism::Select, Mechanism::Aio, Mechanism::UringPoll],
        preloaded: &[Mechanism::Select, Mechanism::Aio, Mechanism::UringPoll],
        at_times: NONE,
        epoll: "an event with EPOLLONESHOT has every condition that holds when a thread waits",
        here: "it has what completed the request, without what came until the wait; on select it has no \
               EPOLLRDHUP anyhow",
        reason: "a poll request completes when its file wakes it; EPOLL_CTL_MOD looks again",
    },
    Deviation {
        scripts: &["what_was_read_before_the_wait_is_silent"],
        linked: REQUESTS,
        preloaded: REQUESTS,
        at_times: NONE,
        epoll: "what was ready and is over when a wait begins is not reported",
        here: "reported once",
        reason: "a poll request completes when its file wakes it: use O_NONBLOCK",
    },
    Deviation {
        scripts: &[
            "a_file_closed_without_del_is_closed",
            "a_file_closed_by_close_range_is_closed",
            "a_file_closed_by_fclose_is_closed",
            "a_file_that_dup2_replaced_is_closed",
        ],
        linked: REQUESTS,
        preloaded: NONE,
        at_times: NONE,
        epoll: "close(2) of the last number of a file closes it and ends its registration",
        here: "it stays open, for its peer too, until something happens to it",
        reason: "a poll request holds the file and the library does not see close(2): \
                 EPOLL_CTL_DEL before it, and wait or make another change",
    },
    Deviation {
        scripts: &["a_file_closed_without_del_ends_at_once"],
        linked: REQUESTS,
        preloaded: AIO,
        at_times: AIO,
        epoll: "the peer of a file that is closed without EPOLL_CTL_DEL sees its end at once",
        here: "on aio some milliseconds later, where close(2) is seen; otherwise as above",
        reason: "the kernel lets go of a file whose AIO poll was cancelled in a thread of its own, a tick of \
                 its clock later",
    },
    Deviation {
        scripts: &[
            "a_file_closed_after_del_ends_at_once",
            "a_file_closed_after_del_beside_a_wait_ends_at_once",
            "a_file_that_another_thread_closes_ends",
        ],
        linked: AIO,
        preloaded: AIO,
        at_times: AIO,
        epoll: "EPOLL_CTL_DEL lets go of a file: behind a close(2) the peer sees its end at once",
        here: "some milliseconds later; pipes at once",
        reason: "the same, but pipes and listeners are watched by an epoll beside it (on uring-poll listeners). On uring-poll it is at once, but for the first file that another thread than the one \
                 that waited before takes out while none waits: the ring is exchanged for one that serves all \
                 threads",
    },
    Deviation {
        scripts: &["a_file_of_a_closed_instance_ends_at_once"],
        linked: ALL,
        preloaded: AIO,
        at_times: AIO,
        epoll: "an instance that is closed holds no file",
        here: "it holds what it watched until the next px_epoll_create; on aio some milliseconds anyhow",
        reason: "the library does not see close(2): EPOLL_CTL_DEL before it",
    },
    Deviation {
        scripts: &["a_file_of_a_process_that_is_killed_ends_with_it"],
        linked: &[Mechanism::UringPoll],
        preloaded: &[Mechanism::UringPoll],
        at_times: &[Mechanism::UringPoll],
        epoll: "what a process held is closed when waitpid(2) says that it was ended by a signal, or by _exit(2)",
        here: "some milliseconds later, but for listeners, whose port is free",
        reason: "the kernel ends the polls of a ring that nobody ended in a thread of its own; let the program end by \
                 exit(3). Listeners are watched by an epoll beside the ring",
    },
    Deviation {
        scripts: &["a_udp_port_of_a_process_that_is_killed_is_free"],
        linked: &[Mechanism::UringPoll],
        preloaded: NONE,
        at_times: &[Mechanism::UringPoll],
        epoll: "the port of a socket of UDP that it held can be bound then",
        here: "EADDRINUSE for some milliseconds",
        reason: "the same; an epoll beside the ring would be a system call more for each wait of a server (10 % of an \
                 echo). By `pollux run` bind(2) tries again for 100 ms before it answers EADDRINUSE",
    },
    Deviation {
        scripts: &["a_file_of_a_process_that_exits_ends_with_it"],
        linked: &[Mechanism::UringPoll],
        preloaded: NONE,
        at_times: &[Mechanism::UringPoll],
        epoll: "the same for one that ends by exit(3)",
        here: "some milliseconds later",
        reason: "the same: EPOLL_CTL_DEL before it. `pollux run` ends the polls at exit(3), but for those of an \
                 instance on which a thread waits, and of a ring that another thread opened",
    },
    Deviation {
        scripts: &["an_instance_lives_on_when_all_behind_it_is_closed"],
        linked: ALL,
        preloaded: NONE,
        at_times: NONE,
        epoll: "an instance is one descriptor: to close every other one does it no harm",
        here: "it is an epoll of the kernel's without any registration, or its waits fail (EBADF)",
        reason: "the library holds descriptors of its own for each instance. Where close(2), close_range(2), \
                 closefrom(3) and dup2(2) are seen, they pass these over (close: EBADF), or they are made anew",
    },
    Deviation {
        scripts: &["a_number_used_again_without_add_is_silent"],
        linked: NUMBERS,
        preloaded: NONE,
        at_times: NONE,
        epoll: "a file that gets a closed number is not watched before it is added",
        here: "reported with the data of the closed one",
        reason: "select(2) and poll(2) look at whatever has the number: EPOLL_CTL_DEL before close(2)",
    },
    Deviation {
        scripts: &["a_duplicate_keeps_a_registration"],
        linked: NUMBERS,
        preloaded: ALL,
        at_times: NONE,
        epoll: "a registration lives until the last duplicate of its file is closed",
        here: "it ends with the number that was added",
        reason: "a closed number is an error of select(2) and poll(2); where close(2) is seen, it ends the \
                 registration of its number, as whether a duplicate is open cannot be asked",
    },
    Deviation {
        scripts: &["another_eventfd_of_the_number_is_another_file"],
        linked: ALL,
        preloaded: NONE,
        at_times: NONE,
        epoll: "an eventfd that gets the number of a closed one can be added",
        here: "EEXIST, and it is watched in its place",
        reason: "anonymous files of the kernel (eventfd, timerfd, signalfd, inotify) have one \
                 identity: EPOLL_CTL_DEL before close(2)",
    },
    Deviation {
        scripts: &["a_hang_up_has_a_bit_of_its_own"],
        linked: SELECT,
        preloaded: SELECT,
        at_times: NONE,
        epoll: "EPOLLHUP and EPOLLERR are reported as such",
        here: "a hang-up is EPOLLIN, an error EPOLLIN and EPOLLOUT, as far as these were asked for",
        reason: "select(2) has three sets only",
    },
    Deviation {
        scripts: &["a_hang_up_is_reported_without_interest"],
        linked: SELECT,
        preloaded: SELECT,
        at_times: NONE,
        epoll: "EPOLLHUP and EPOLLERR are always reported",
        here: "not to a registration that asks for none of EPOLLIN, EPOLLOUT and EPOLLPRI",
        reason: "what is in none of the sets of select(2) is not looked at",
    },
    Deviation {
        scripts: &["the_end_of_the_peers_writing_has_a_bit"],
        linked: SELECT,
        preloaded: SELECT,
        at_times: NONE,
        epoll: "EPOLLRDHUP tells that the peer has shut down writing",
        here: "never reported; the end is EPOLLIN",
        reason: "select(2) has no set for it",
    },
    Deviation {
        scripts: &["bands_are_reported"],
        linked: ALL,
        preloaded: ALL,
        at_times: NONE,
        epoll: "EPOLLWRBAND and EPOLLRDBAND are reported where the file has them",
        here: "never",
        reason: "the pollers have no such condition; no Linux program is known to ask for it",
    },
    Deviation {
        scripts: &["poll_and_select_see_that_an_instance_is_ready"],
        linked: ALL,
        preloaded: NONE,
        at_times: NONE,
        epoll: "the descriptor of an instance is readable for poll(2) and select(2) while events are there",
        here: "never, until the instance is added to another one: from then on it is an epoll of the \
               kernel's, and behaves as one",
        reason: "only the kernel can report it; px_epoll_poller names what an instance stands on. Where poll(2) \
                 and select(2) are seen, an instance that is among their descriptors becomes an epoll \
                 of the kernel's",
    },
    Deviation {
        scripts: &["a_child_shares_the_instance"],
        linked: ALL,
        preloaded: ALL,
        at_times: NONE,
        epoll: "after fork(2) parent and child change and wait on one instance",
        here: "the child has a copy, which goes its own way",
        reason: "poll requests and lists belong to a process",
    },
    Deviation {
        scripts: &["a_new_program_has_the_registrations"],
        linked: ALL,
        preloaded: NONE,
        at_times: NONE,
        epoll: "an instance whose number survives execve(2) keeps its registrations",
        here: "it is an epoll of the kernel's without any",
        reason: "poll requests and lists end with the program, and the library does not see execve(2): \
                 EPOLL_CTL_ADD in the new one; where exec is seen they are handed to the kernel",
    },
    Deviation {
        scripts: &["a_spawned_program_has_the_registrations"],
        linked: ALL,
        preloaded: ALL,
        at_times: NONE,
        epoll: "the same by posix_spawn(3), system(3) and popen(3)",
        here: "it is an epoll of the kernel's without any",
        reason: "the C library calls execve(2) itself there, which no library before it sees",
    },
    Deviation {
        scripts: &["an_instance_that_is_closed_ends_no_wait"],
        linked: NONE,
        preloaded: ALL,
        at_times: NONE,
        epoll: "a wait that is under way when another thread closes the instance continues, and returns events",
        here: "its registrations end at once, and so does the wait, without an event",
        reason: "what is registered must not stay open behind its close(2)",
    },
    Deviation {
        scripts: &["a_thread_is_cancelled_in_a_wait"],
        linked: ALL,
        preloaded: ALL,
        at_times: NONE,
        epoll: "a wait is a point of cancellation: pthread_cancel(3) ends a thread in it",
        here: "the wait continues, and the next point of cancellation behind it ends the thread",
        reason: "the thread has the poller, which it must give back",
    },
    Deviation {
        scripts: &["a_null_buffer_is_accepted_while_nothing_is_ready"],
        linked: ALL,
        preloaded: ALL,
        at_times: NONE,
        epoll: "NULL as the buffer for events is EFAULT once there is an event to write",
        here: "EFAULT at once",
        reason: "an event that cannot be written would be lost",
    },
    Deviation {
        scripts: &["a_pointer_into_nothing_is_efault"],
        linked: ALL,
        preloaded: ALL,
        at_times: NONE,
        epoll: "an address that is not mapped is EFAULT",
        here: "SIGSEGV; NULL is EFAULT",
        reason: "the library reads and writes in the program's memory; to ask the kernel first would be a \
                 system call for each",
    },
];

/// What a script is declared to see on a mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Declared {
    /// What it sees on the kernel's epoll.
    Same,
    Differs,
    DiffersAtTimes,
}

/// What a script is declared to see on `mechanism` where a program calls the `px_` functions.
#[must_use]
pub fn of_linked(script: &str, mechanism: Mechanism) -> Declared {
    declared(script, mechanism, |row| row.linked)
}

/// What a script is declared to see on `mechanism` where the plain names are taken.
#[must_use]
pub fn of_preloaded(script: &str, mechanism: Mechanism) -> Declared {
    declared(script, mechanism, |row| row.preloaded)
}

fn declared(
    script: &str,
    mechanism: Mechanism,
    differing: fn(&Deviation) -> &'static [Mechanism],
) -> Declared {
    let mut rows = DEVIATIONS.iter().filter(|row| row.scripts.contains(&script));
    match rows.find(|row| differing(row).contains(&mechanism)) {
        None => Declared::Same,
        Some(row) if row.at_times.contains(&mechanism) => Declared::DiffersAtTimes,
        Some(_) => Declared::Differs,
    }
}
