//! Descriptors that a parent left open for its child, known to it only by their numbers.
//!
//! A worker of the service pool duplicates each number that its environment names; a pool that
//! continues behind the terminal keeps from its workers what its own parent left open. A number
//! alone proves no ownership: [`duplicate`] hands out another descriptor of the same file, [`take`] asks
//! for the mark of what a parent left open.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Duplicates descriptor `number`, and marks both it and the duplicate to be closed on exec, so
/// that the children of this process don't keep the file open.
///
/// The original stays open until the process ends.
///
/// # Errors
/// EBADF when the number names no open file, EMFILE.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers; for a number that is not open it gives EBADF.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave this descriptor out, to nobody else.
    let copy = unsafe { OwnedFd::from_raw_fd(copy) };
    // SAFETY: the call takes integers and changes a flag that matters only at an exec.
    let marked = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    if marked < 0 { Err(io::Error::last_os_error()) } else { Ok(copy) }
}

/// Takes descriptor `number`, which a parent left open: the original is closed, so that the file is
/// closed with what is handed out.
///
/// Only a descriptor above standard error that is not marked to be closed on exec is taken: a parent
/// must leave it so, and this process marks everything that it opens itself.
///
/// # Errors
/// EBADF when the number names no such descriptor, EMFILE.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers; for a number that is not open it gives EBADF.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if number <= libc::STDERR_FILENO || flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let copy = duplicate(number)?;
    // SAFETY: the call takes an integer; nothing in this process owns the number, as it was not marked
    // to be closed on exec.
    unsafe { libc::close(number) };
    Ok(copy)
}

/// Marks all descriptors from `first` on, open at this moment, to be closed on exec, so that what
/// this process starts does not keep the files open (`close_range(2)`).
///
/// # Errors
/// EINVAL before Linux 5.11, ENOSYS before 5.9.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    let (last, flags) = (libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: the call takes integers and changes flags that matter only at an exec.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if marked < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_a_parent_left_open_is_taken_once_and_nothing_that_is_ours() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        take(there.as_raw_fd()).expect_err("marked, so ours");
        take(2).expect_err("standard error");
        take(-1).expect_err("no number");
        // Far above what other tests have open at this moment.
        const NUMBER: i32 = 901;
        // SAFETY: the call takes integers; the number is nobody else's.
        let left = unsafe { libc::fcntl(there.as_raw_fd(), libc::F_DUPFD, NUMBER) };
        assert!(left >= NUMBER);
        drop(there);
        let taken = take(left).expect("left open");
        take(left).expect_err("taken already");
        drop(taken);
        let mut text = String::new();
        here.read_to_string(&mut text).expect("the end: nobody has the other side any more");
        assert!(text.is_empty());
    }

    #[test]
    fn what_is_marked_is_closed_on_exec_and_stays_open_here() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        // Far above what other tests have open at this moment.
        const NUMBER: i32 = 900;
        // SAFETY: the call takes integers; the number is nobody else's.
        let copy = unsafe { libc::fcntl(there.as_raw_fd(), libc::F_DUPFD, NUMBER) };
        assert!(copy >= NUMBER);
        // SAFETY: the kernel just gave this descriptor out, to nobody else.
        let mut copy = unsafe { UnixStream::from_raw_fd(copy) };
        close_on_exec_from(NUMBER as u32).expect("Linux 5.11");
        // SAFETY: the call takes integers.
        let flags = unsafe { libc::fcntl(copy.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        copy.write_all(b"x").expect("it is open");
        here.read_exact(&mut [0]).expect("one byte");
    }

    #[test]
    fn the_duplicate_is_the_same_file_and_a_closed_number_is_an_error() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        let number = there.as_raw_fd();
        let copy = duplicate(number).expect("it is open");
        assert_ne!(copy.as_raw_fd(), number);
        let mut copy = UnixStream::from(copy);
        copy.write_all(b"x").expect("connected");
        let mut byte = [0];
        here.read_exact(&mut byte).expect("one byte");
        assert_eq!(byte, *b"x");
        let error = duplicate(RawFd::MAX).expect_err("never open");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
