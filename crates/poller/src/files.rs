//! Which descriptors have no readiness to wait for.
//!
//! `epoll_ctl(2)` refuses them by itself (EPERM). `select(2)` and `poll(2)` call them always
//! ready, so the backends on those ask here when a descriptor is added.
//!
//! What every kernel backend asks before it does anything: is this the process that opened the
//! poller, and can the number be a descriptor at all.
//!
//! A child of `fork(2)` shares the epoll instance and the eventfd of its parent. Its changes would
//! be the parent's, and a wait would take the parent's events; AIO and io_uring refuse it in words
//! of their own, select and poll would keep using a copy. Here all of them refuse alike.
//! `docs/fork.md` has the reasons. [`crate::Mechanism::open`] puts it around what it opens.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_sys::process::ForkMark;
use rustix::event::epoll;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::{Caps, Counters, Error, Events, Poller, Registration, SignalMask, Token, Waker};

/// Refuses what epoll would refuse, and counts the system calls that this takes.
///
/// One `fstat(2)` is enough for sockets, pipes and the kernel's anonymous files. Among regular
/// files, directories and devices are some with readiness (message queues, files of `/proc`,
/// terminals) and most without, and only epoll tells which: it is asked, by an instance that is
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

/// A poller of the process that opened it.
pub(crate) struct Owned<P> {
    poller: P,
    mark: ForkMark,
}

impl<P: Poller> Owned<P> {
    pub(crate) fn new(poller: P) -> Result<Self, Error> {
        let mark = ForkMark::new().map_err(|cause| Error::System { call: "mmap", cause })?;
        Ok(Self { poller, mark })
    }
}

impl<P: Poller> Poller for Owned<P> {
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        if !self.mark.is_here() {
            return Err(Error::Inherited);
        }
        let raw = fd.as_raw_fd();
        if raw < 0 {
            return Err(Error::NotOpen { fd: raw });
        }
        self.poller.add(fd, token, how)
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        if !self.mark.is_here() {
            return Err(Error::Inherited);
        }
        self.poller.modify(fd, token, how)
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        if !self.mark.is_here() {
            return Err(Error::Inherited);
        }
        self.poller.delete(fd)
    }

    fn forget(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        if !self.mark.is_here() {
            return Err(Error::Inherited);
        }
        self.poller.forget(fd)
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.mark.is_here() {
            return Err(Error::Inherited);
        }
        self.poller.flush()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.poller.fd()
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        if !self.mark.is_here() {
            events.clear();
            return Err(Error::Inherited);
        }
        self.poller.wait(events, timeout)
    }

    fn set_signal_mask(&mut self, mask: Option<SignalMask>) {
        self.poller.set_signal_mask(mask);
    }

    fn waker(&self) -> Waker {
        self.poller.waker()
    }

    fn caps(&self) -> &Caps {
        self.poller.caps()
    }

    fn counters(&self) -> &Arc<Counters> {
        self.poller.counters()
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
