//! Which descriptors have no readiness to wait for.
//!
//! `epoll_ctl(2)` refuses them by itself (EPERM). `select(2)` and `poll(2)` call them always
//! ready, so the backends on those ask here when a descriptor is added.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::FileType;

use crate::Error;

/// Refuses regular files, directories and block devices, with one `fstat(2)`.
///
/// A character device without readiness (`/dev/null`) can't be told from one that has it, and
/// is let through.
pub(crate) fn check_pollable(fd: BorrowedFd<'_>) -> Result<(), Error> {
    let stat = rustix::fs::fstat(fd).map_err(Error::system("fstat"))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory | FileType::BlockDevice => {
            Err(Error::NotPollable { fd: fd.as_raw_fd() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn files_and_directories_are_refused_and_pipes_are_not() {
        let file = std::fs::File::open("/proc/self/exe").expect("our own program");
        let refused = check_pollable(file.as_fd()).expect_err("a regular file");
        assert!(matches!(refused, Error::NotPollable { .. }), "{refused}");
        let directory = std::fs::File::open("/").expect("the root");
        assert!(check_pollable(directory.as_fd()).is_err());
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        check_pollable(reader.as_fd()).expect("a pipe has readiness");
    }
}
