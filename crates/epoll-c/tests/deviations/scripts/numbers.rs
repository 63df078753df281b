//! What close(2), dup(2) and close_range(2) do to instances and registrations.

use std::io::{Read, Write, pipe};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, c_int, c_uint};

use super::{at_number, eventfd, high_pipe, ready};
use crate::subject::{Subject, answered, ctl, found_on};

/// What the peer of a closed socket sees.
fn after_close(subject: &Subject, is_deleted: bool) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    peer.set_nonblocking(true).expect("set");
    subject.add(&ours, EPOLLIN, 1);
    let before = subject.soon();
    if is_deleted {
        subject.ctl(EPOLL_CTL_DEL, ours.as_raw_fd(), 0, 0);
    }
    drop(ours);
    let after = subject.soon();
    let read = peer.read(&mut [0]).map_err(|error| error.kind());
    format!("{before:?} {after:?} {read:?}")
}

pub(super) fn a_file_closed_without_del_is_closed(subject: &Subject) -> String {
    after_close(subject, false)
}

pub(super) fn a_file_closed_after_del_is_closed(subject: &Subject) -> String {
    after_close(subject, true)
}

pub(super) fn a_number_used_again_without_add_is_silent(subject: &Subject) -> String {
    let (reader, _writer) = high_pipe(600);
    subject.add(&reader, EPOLLIN, 1);
    let before = subject.soon();
    drop(reader);
    let (other, _other) = ready();
    let _other = at_number(&other, 600);
    format!("{before:?} {:?}", subject.soon())
}

pub(super) fn a_number_used_again_can_be_added(subject: &Subject) -> String {
    let (reader, writer) = high_pipe(601);
    subject.add(&reader, EPOLLIN, 1);
    drop((reader, writer));
    let (other, _other) = ready();
    let other = at_number(&other, 601);
    let modified = subject.ctl(EPOLL_CTL_MOD, other.as_raw_fd(), EPOLLIN as u32, 2);
    let deleted = subject.ctl(EPOLL_CTL_DEL, other.as_raw_fd(), 0, 0);
    let added = subject.add(&other, EPOLLIN, 3);
    format!("{modified} {deleted} {added} {:?}", subject.found())
}

pub(super) fn a_duplicate_keeps_a_registration(subject: &Subject) -> String {
    let (reader, mut writer) = high_pipe(602);
    let twin = reader.try_clone().expect("a duplicate");
    subject.add(&reader, EPOLLIN, 1);
    let before = subject.soon();
    drop(reader);
    writer.write_all(b"x").expect("room");
    let after = subject.soon();
    drop(twin);
    format!("{before:?} {after:?}")
}

pub(super) fn a_duplicate_is_a_registration_of_its_own(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let twin = reader.try_clone().expect("a duplicate");
    let added = [subject.add(&reader, EPOLLIN, 1), subject.add(&twin, EPOLLIN, 2)];
    let mut seen = subject.found();
    for _ in 0..20 {
        seen.extend(subject.found());
        seen.sort_unstable();
        seen.dedup();
        if seen.len() > 1 {
            break;
        }
    }
    subject.ctl(EPOLL_CTL_DEL, twin.as_raw_fd(), 0, 0);
    format!("{added:?} {seen:?} {:?}", subject.found())
}

pub(super) fn another_eventfd_of_the_number_is_another_file(subject: &Subject) -> String {
    let first = at_number(&eventfd(), 603);
    subject.add(&first, EPOLLIN, 1);
    drop(first);
    let second = at_number(&eventfd(), 603);
    format!("{}", subject.add(&second, EPOLLIN, 2))
}

/// What the peer of a socket sees, once `close` has closed the number of it that is registered.
fn after(subject: &Subject, close: impl FnOnce(RawFd)) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    peer.set_nonblocking(true).expect("set");
    subject.add(&ours, EPOLLIN, 1);
    let before = subject.soon();
    close(ours.into_raw_fd());
    let after = subject.soon();
    let read = peer.read(&mut [0]).map_err(|error| error.kind());
    format!("{before:?} {after:?} {read:?}")
}

pub(super) fn a_file_closed_by_close_range_is_closed(subject: &Subject) -> String {
    after(subject, |fd| {
        let fd = c_uint::try_from(fd).expect("open");
        assert_eq!(close_range(fd, fd, 0), 0);
    })
}

pub(super) fn a_file_closed_by_fclose_is_closed(subject: &Subject) -> String {
    after(subject, |fd| {
        // SAFETY: a number that nobody else has, and a string.
        let stream = unsafe { libc::fdopen(fd, c"r+".as_ptr()) };
        assert!(!stream.is_null(), "a stream");
        // SAFETY: made above.
        assert_eq!(unsafe { libc::fclose(stream) }, 0);
    })
}

pub(super) fn a_file_that_dup2_replaced_is_closed(subject: &Subject) -> String {
    let (silent, _writer) = pipe().expect("a pipe");
    let mut number = -1;
    let seen = after(subject, |fd| {
        number = fd;
        // SAFETY: takes no pointer; the number is this script's.
        assert_eq!(unsafe { libc::dup2(silent.as_raw_fd(), fd) }, fd);
    });
    // SAFETY: it names a pipe of this script's.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    seen
}

pub(super) fn a_duplicate_of_an_instance_names_it(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let first = subject.another().into_number();
    let added = ctl(first.as_raw_fd(), EPOLL_CTL_ADD, reader.as_raw_fd(), IN);
    let twin = at_number(&first, 604);
    drop(first);
    let modified = ctl(604, EPOLL_CTL_MOD, reader.as_raw_fd(), Some((EPOLLIN as u32, 2)));
    let found = found_on(604, SOON);
    drop(twin);
    let closed = [ctl(604, EPOLL_CTL_DEL, reader.as_raw_fd(), None)];
    format!("{added} {modified} {found:?} {closed:?} {:?}", found_on(604, SOON))
}

pub(super) fn a_file_that_takes_the_number_of_an_instance_is_none(subject: &Subject) -> String {
    let (reader, writer) = ready();
    let number = subject.another().into_number();
    let (epoll, fd) = (number.as_raw_fd(), reader.as_raw_fd());
    let added = ctl(epoll, EPOLL_CTL_ADD, fd, IN);
    // SAFETY: takes no pointer; the number is this script's.
    let replaced = unsafe { libc::dup2(writer.as_raw_fd(), epoll) } == epoll;
    let used = [ctl(epoll, EPOLL_CTL_ADD, fd, IN), ctl(epoll, EPOLL_CTL_DEL, fd, None)];
    format!("{added} {replaced} {used:?} {:?}", found_on(epoll, SOON))
}

pub(super) fn an_instance_at_the_number_of_another_is_empty(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let first = at_number(&subject.another().into_number(), 605);
    let added = ctl(605, EPOLL_CTL_ADD, reader.as_raw_fd(), IN);
    let seen = found_on(605, SOON);
    drop(first);
    let _second = at_number(&subject.another().into_number(), 605);
    let empty = found_on(605, SOON);
    let again = ctl(605, EPOLL_CTL_ADD, reader.as_raw_fd(), IN);
    format!("{added} {seen:?} {empty:?} {again} {:?}", found_on(605, SOON))
}

/// Calls that close nothing, as what they are asked for cannot be: an instance and its registrations
/// are as before.
pub(super) fn calls_that_fail_close_nothing(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    let mut seen = Vec::new();
    for fd in [subject.number(), reader.as_raw_fd()] {
        let unsigned = c_uint::try_from(fd).expect("open");
        // SAFETY: takes no pointer, and the first number is that of no file.
        seen.push(answered(unsafe { libc::dup2(-1, fd) }));
        // SAFETY: as above.
        seen.push(answered(unsafe { libc::dup3(-1, fd, 0) }));
        // SAFETY: takes no pointer; the flag is none.
        seen.push(answered(unsafe { libc::dup3(0, fd, 1) }));
        // SAFETY: takes no pointer; both numbers are the same.
        seen.push(answered(unsafe { libc::dup3(fd, fd, 0) }));
        // SAFETY: as above: dup2(2) answers with the number.
        seen.push(answered(unsafe { libc::dup2(fd, fd) }).map(|number| usize::from(number == 0)));
        seen.push(answered(close_range(unsigned, unsigned, 1 << 10)));
        seen.push(answered(close_range(unsigned, unsigned - 1, 0)));
        seen.push(answered(close_range(unsigned, unsigned, CLOEXEC)));
    }
    format!("{seen:?} {:?}", subject.found())
}

/// CLOSE_RANGE_CLOEXEC of linux/close_range.h.
const CLOEXEC: c_int = 1 << 2;
const IN: Option<(u32, u64)> = Some((EPOLLIN as u32, 1));
const SOON: Duration = Duration::from_millis(60);

fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // The C library's function, which the crate libc does not have.
    unsafe extern "C" {
        fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    }
    // SAFETY: takes no pointer; the numbers are those of the script.
    unsafe { close_range(first, last, flags) }
}
