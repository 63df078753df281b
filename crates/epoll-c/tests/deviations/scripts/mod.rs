//! Scripts that run on the kernel's epoll and on every mechanism: each answers what it saw.
//!
//! | file | subject |
//! |---|---|
//! | `readiness.rs` | when a condition is reported, how often, and by which bits; what each call refuses |
//! | `programs.rs` | threads, signals, fork(2), execve(2), and what close(2), dup(2) and close_range(2) do |

mod programs;
mod readiness;

use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use pollux_epoll_c::Mechanism;

pub(crate) use programs::be_a_new_program;

use crate::subject::Subject;

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

/// What is wrong, where a script saw something else than declared on a mechanism.
pub(crate) fn judge(
    name: &str,
    mechanism: Mechanism,
    (expected, seen): (&str, &str),
    is_declared: bool,
) -> Option<String> {
    let declared = if is_declared { "declared" } else { "not declared" };
    ((seen != expected) != is_declared)
        .then(|| format!("{name} on {mechanism} ({declared}):\n  epoll {expected}\n  here  {seen}"))
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
