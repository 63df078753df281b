//! Scripts that run on the kernel's epoll and on every mechanism: each answers what it saw. An instance of either
//! is a [`Subject`]. `crates/preload` takes them in with functions of its own in the place of `calls.rs`.
//!
//! | file | subject |
//! |---|---|
//! | `readiness.rs` | when a condition is reported, how often, and by which bits; what each call refuses |
//! | `closing.rs` | what EPOLL_CTL_DEL and close(2) have done when they come back |
//! | `kinds.rs` | files that not every mechanism can watch by itself, and instances and threads that share one |
//! | `programs.rs` | threads, signals, fork(2), execve(2), and what close(2), dup(2) and close_range(2) do |

mod closing;
mod kinds;
mod programs;
mod readiness;

use std::collections::BTreeMap;
use std::io::{Error, PipeReader, PipeWriter, Write, pipe};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::Command;
use std::ptr;
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event};
use pollux_epoll_c::Mechanism;
use pollux_epoll_c::deviations::Declared;
use pollux_testing::{Output, Process};

pub(crate) use programs::be_a_new_program;

use crate::calls;

/// How long something has to come: what a loaded machine takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing has to come.
const QUIET_MS: u64 = 60;
/// Stands between the answers, which have lines of their own.
const END: &str = "\n--- end of script ";
/// Room for the events of a script.
pub(crate) const ROOM: usize = 16;

/// A name and what happens.
pub(crate) type Script = (&'static str, fn(&Subject) -> String);

macro_rules! scripts {
    ($($module:ident: $($name:ident),* $(,)?;)*) => {
        &[$($((stringify!($name), $module::$name)),*),*]
    };
}

pub(crate) const SCRIPTS: &[Script] = scripts![
    readiness:
    a_level_repeats_until_it_is_read,
    an_edge_is_reported_once,
    an_edge_is_reported_again_after_mod,
    an_edge_that_was_emptied_comes_again,
    an_edge_that_was_left_comes_again_with_more,
    an_edge_for_room_comes_again_when_there_is_some,
    an_edge_with_oneshot_is_silent_until_mod,
    an_edge_reports_all_that_holds,
    a_oneshot_reports_all_that_holds,
    a_oneshot_is_reported_once_for_each_mod,
    a_disarmed_oneshot_is_silent_about_a_hang_up,
    what_was_read_before_the_wait_is_silent,
    a_hang_up_has_a_bit_of_its_own,
    a_hang_up_is_reported_without_interest,
    the_end_of_the_peers_writing_has_a_bit,
    normal_data_has_a_name_of_its_own,
    bands_are_reported,
    unknown_and_ignored_flags_are_taken,
    poll_and_select_see_that_an_instance_is_ready,
    an_instance_within_another_is_reported_through_it,
    an_instance_within_another_by_edge_is_reported_once;
    programs:
    a_file_closed_without_del_is_closed,
    a_file_closed_after_del_is_closed,
    a_file_closed_by_close_range_is_closed,
    a_file_closed_by_fclose_is_closed,
    a_file_that_dup2_replaced_is_closed,
    a_number_used_again_without_add_is_silent,
    a_number_used_again_can_be_added,
    a_duplicate_keeps_a_registration,
    a_duplicate_is_a_registration_of_its_own,
    another_eventfd_of_the_number_is_another_file,
    a_duplicate_of_an_instance_names_it,
    a_file_that_takes_the_number_of_an_instance_is_none,
    an_instance_at_the_number_of_another_is_empty,
    calls_that_fail_close_nothing;
    closing:
    a_file_closed_after_del_ends_at_once,
    a_pipe_closed_after_del_is_broken_at_once,
    a_file_closed_without_del_ends_at_once,
    a_listener_closed_after_del_takes_nobody,
    a_listener_closed_without_del_takes_nobody,
    many_listeners_deleted_before_their_closes_take_nobody,
    a_socket_that_listens_after_its_add_takes_nobody_once_closed,
    a_file_closed_after_del_beside_a_wait_ends_at_once,
    a_file_that_another_thread_closes_ends,
    a_file_of_a_closed_instance_ends_at_once,
    a_file_of_a_process_that_is_killed_ends_with_it,
    a_file_of_a_process_that_exits_ends_with_it,
    a_port_of_a_process_that_is_killed_is_free,
    a_udp_port_of_a_process_that_is_killed_is_free,
    a_child_that_exits_leaves_the_instance_to_its_parent,
    a_process_whose_threads_wait_can_exit,
    an_instance_lives_on_when_all_behind_it_is_closed;
    kinds:
    a_signalfd_is_reported,
    a_terminal_is_reported,
    a_fifo_for_both_directions_is_reported,
    a_pipe_and_a_listener_are_watched_when_no_number_is_left,
    news_of_the_mounts_are_reported,
    a_listener_that_is_shut_down_is_hung_up,
    a_busy_instance_takes_no_exclusive_wake,
    an_edge_wakes_one_of_the_threads_that_wait,
    an_edge_that_was_reported_is_silent_for_a_second_thread,
    a_wait_continues_when_its_instance_is_watched;
    programs:
    a_child_shares_the_instance,
    a_new_program_has_the_registrations,
    a_spawned_program_has_the_registrations,
    a_new_program_can_use_the_number,
    a_number_with_cloexec_is_closed_in_a_new_program,
    what_another_thread_adds_ends_a_wait,
    what_another_thread_deletes_is_silent,
    an_instance_that_is_closed_ends_no_wait,
    a_signal_ends_a_wait_that_lets_it_through,
    a_thread_is_cancelled_in_a_wait;
    readiness:
    files_without_readiness_are_refused,
    exclusive_goes_by_its_rules,
    changes_are_refused_as_the_manual_says,
    waits_are_refused_as_the_manual_says,
    instances_are_refused_as_the_manual_says,
    a_wait_lasts_as_long_as_it_was_asked_to,
    nesting_ends_where_the_manual_says,
    a_null_buffer_is_accepted_while_nothing_is_ready,
    a_pointer_into_nothing_is_efault;
];

/// Runs all scripts on a mechanism, and writes what each saw for [`answers_of`].
pub(crate) fn print_answers(mechanism: Mechanism) {
    for (name, script) in SCRIPTS {
        let seen = script(&Subject::new(mechanism));
        let mut output = std::io::stdout();
        write!(output, "{END}{name}\n{seen}{END}").expect("it is read");
        output.flush().expect("it is read");
    }
}

/// What each script saw in a process that prints it.
pub(crate) fn answers_of(title: &str, command: &mut Command) -> BTreeMap<String, String> {
    let Output { status, stdout: said, stderr } = Process::run(command);
    assert!(status.success(), "{title}: {status}: {said}\n{stderr}");
    assert!(!stderr.contains("past the C library"), "{title}: {stderr}");
    let parts = said.split(END).filter_map(|part| part.split_once('\n'));
    let answers: BTreeMap<String, String> =
        parts.map(|(name, seen)| (name.to_owned(), seen.to_owned())).collect();
    for (name, _) in SCRIPTS {
        assert!(answers.contains_key(*name), "{title}: no answer of {name} in {said}");
    }
    answers
}

/// What is wrong, where a script saw something else than declared on a mechanism.
pub(crate) fn judge(
    name: &str,
    mechanism: Mechanism,
    (expected, seen): (&str, &str),
    declared: Declared,
) -> Option<String> {
    let is_wrong = match declared {
        Declared::Same => seen != expected,
        Declared::Differs => seen == expected,
        Declared::DiffersAtTimes => false,
    };
    is_wrong.then(|| {
        format!(
            "{name} on {mechanism} (declared: {declared:?}):\n  epoll {expected}\n  here  {seen}"
        )
    })
}

/// A pipe whose ends are high numbers, which no other test takes when they are free.
fn high_pipe(at: RawFd) -> (OwnedFd, PipeWriter) {
    let (reader, writer) = pipe().expect("a pipe");
    (at_number(&reader, at), writer)
}

fn at_number(of: &impl AsRawFd, at: RawFd) -> OwnedFd {
    // SAFETY: makes a new descriptor and touches no memory.
    let fd = unsafe { libc::fcntl(of.as_raw_fd(), libc::F_DUPFD_CLOEXEC, at) };
    assert_eq!(fd, at, "the number is free");
    // SAFETY: made above.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn ready() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    writer.write_all(b"x").expect("room");
    (reader, writer)
}

fn eventfd() -> OwnedFd {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    assert!(fd >= 0, "an eventfd");
    // SAFETY: made above.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// What one wait found, sorted: data and events.
pub(crate) type Found = Vec<(u64, u32)>;

/// An epoll instance of the kernel's or on a mechanism, with one way to use it.
pub(crate) struct Subject {
    mechanism: Mechanism,
    epoll: OwnedFd,
}

impl AsRawFd for Subject {
    fn as_raw_fd(&self) -> RawFd {
        self.number()
    }
}

impl Subject {
    pub(crate) fn new(mechanism: Mechanism) -> Self {
        let epoll = calls::create(mechanism, libc::EPOLL_CLOEXEC);
        assert!(epoll >= 0, "{mechanism}: {}", Error::last_os_error());
        // SAFETY: made for us a moment ago.
        Self { mechanism, epoll: unsafe { OwnedFd::from_raw_fd(epoll) } }
    }

    /// Another instance on the same mechanism.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.mechanism)
    }

    /// Why another one is not made with these flags.
    pub(crate) fn refused(&self, flags: c_int) -> Result<usize, i32> {
        answered(calls::create(self.mechanism, flags))
    }

    pub(crate) fn into_number(self) -> OwnedFd {
        self.epoll
    }

    pub(crate) fn number(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// 0, or the errno.
    pub(crate) fn ctl(&self, op: c_int, fd: RawFd, events: u32, data: u64) -> i32 {
        ctl(self.number(), op, fd, Some((events, data)))
    }

    pub(crate) fn add(&self, fd: &impl AsRawFd, events: c_int, data: u64) -> i32 {
        self.ctl(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), events as u32, data)
    }

    pub(crate) fn wait(&self, timeout: Duration) -> Found {
        found_on(self.number(), timeout).unwrap_or_else(|errno| panic!("wait: errno {errno}"))
    }

    /// What comes at last.
    pub(crate) fn found(&self) -> Found {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.wait(Duration::from_millis(QUIET_MS));
            if !found.is_empty() || Instant::now() > end {
                return found;
            }
        }
    }

    /// What comes soon: nothing, most often.
    pub(crate) fn soon(&self) -> Found {
        self.wait(Duration::from_millis(QUIET_MS))
    }
}

/// `epoll_ctl(2)`; without an event its pointer is NULL. 0, or the errno.
pub(crate) fn ctl(epoll: RawFd, op: c_int, fd: RawFd, event: Option<(u32, u64)>) -> i32 {
    let mut event = event.map(|(events, u64)| epoll_event { events, u64 });
    let event = event.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the pointer is null or leads to a live local.
    answered(unsafe { calls::ctl(epoll, op, fd, event) }).err().unwrap_or(0)
}

/// What `epoll_pwait2(2)` finds on a number, or the errno. A signal that the kernel sends to itself does not
/// end it: the end of a ring of this thread, which is tidied up later.
pub(crate) fn found_on(epoll: RawFd, timeout: Duration) -> Result<Found, i32> {
    let mut room = [epoll_event { events: 0, u64: 0 }; ROOM];
    let time = libc::timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let found = loop {
        let first = room.as_mut_ptr();
        let no_mask = ptr::null();
        // SAFETY: room for as many events as said, and a live time.
        let found = unsafe { calls::pwait2(epoll, first, ROOM as c_int, &raw const time, no_mask) };
        match answered(found) {
            Err(libc::EINTR) => {}
            found => break found?,
        }
    };
    let mut found: Found = room[..found].iter().map(|event| (event.u64, event.events)).collect();
    found.sort_unstable();
    Ok(found)
}

/// What a function answered, or the errno.
pub(crate) fn answered(result: c_int) -> Result<usize, i32> {
    let errno = || Error::last_os_error().raw_os_error().expect("an errno");
    usize::try_from(result).map_err(|_| errno())
}
