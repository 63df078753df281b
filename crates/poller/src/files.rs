//! Which descriptors have no readiness to wait for.
//!
//! `epoll_ctl(2)` refuses them by itself (EPERM). `select(2)` and `poll(2)` call them always
//! ready, so the backends on those check here when a descriptor is added.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::epoll;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::{Counters, Error};

/// Refuses what epoll would refuse, and counts the system calls that this takes.
///
/// One `fstat(2)` is enough for sockets, pipes and the kernel's anonymous files. Among regular
/// files, directories and devices are some with readiness (message queues, files of `/proc`,
/// terminals) and most without, and only epoll knows which: an instance is made for it and
/// dropped at once.
///
/// # Errors
/// [`Error::NotPollable`] for a file without readiness, [`Error::NotOpen`] for a number that
/// is not open and for an O_PATH descriptor. One of a socket or a pipe is let through.
pub(crate) fn check_pollable(fd: BorrowedFd<'_>, counters: &Counters) -> Result<(), Error> {
    counters.system_calls.add(1);
    let stat = rustix::fs::fstat(fd).map_err(refused(fd, "fstat"))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile
        | FileType::Directory
        | FileType::BlockDevice
        | FileType::CharacterDevice
        | FileType::Symlink => ask_epoll(fd, counters),
        FileType::Socket | FileType::Fifo | FileType::Unknown => Ok(()),
    }
}

fn ask_epoll(fd: BorrowedFd<'_>, counters: &Counters) -> Result<(), Error> {
    // Made, asked and closed.
    counters.system_calls.add(3);
    let probe =
        epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll_create1"))?;
    let nothing = epoll::EventData::new_u64(0);
    let answer = epoll::add(&probe, fd, nothing, epoll::EventFlags::empty());
    answer.map_err(refused(fd, "epoll_ctl"))
}

fn refused(fd: BorrowedFd<'_>, call: &'static str) -> impl Fn(Errno) -> Error {
    let fd = fd.as_raw_fd();
    move |errno| match errno {
        Errno::PERM => Error::NotPollable { fd },
        Errno::BADF => Error::NotOpen { fd },
        other => Error::system(call)(other),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    fn open(path: &str, flags: OFlags) -> OwnedFd {
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).expect("it is everywhere")
    }

    fn check(fd: impl std::os::fd::AsFd) -> Result<(), Error> {
        check_pollable(fd.as_fd(), &Counters::default())
    }

    #[test]
    fn files_without_readiness_are_refused() {
        for path in ["/proc/self/exe", "/", "/dev/null"] {
            let refused = check(open(path, OFlags::RDONLY)).expect_err(path);
            assert!(matches!(refused, Error::NotPollable { .. }), "{path}: {refused}");
        }
    }

    #[test]
    fn regular_files_with_readiness_are_let_through() {
        check(open("/proc/self/mounts", OFlags::RDONLY)).expect("it reports changes");
    }

    #[test]
    fn a_path_is_not_a_file_and_a_pipe_costs_one_call() {
        let refused = check(open("/dev/null", OFlags::PATH)).expect_err("O_PATH");
        assert_eq!(refused.raw_os_error(), Some(Errno::BADF.raw_os_error()));
        let counters = Counters::default();
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        check_pollable(std::os::fd::AsFd::as_fd(&reader), &counters).expect("a pipe");
        assert_eq!(counters.snapshot().system_calls, 1);
    }
}
