//! What a loop watches beside connections and listeners: any descriptor that becomes readable.
//!
//! A datagram socket, a [`Timer`](crate::Timer), [`Signals`](crate::Signals), a pidfd, an inotify instance,
//! another poller. The loop says when a source is readable and leaves the reading to the program, so one
//! way serves all of them: level-triggered registrations of the poller, or poll requests on
//! io_uring, each armed again when the program has answered. [`crate::EventLoop::watch`] is the way
//! in; the two loops call this.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, fstat};

use crate::Now;

/// Most sources of one loop: they are found by bisection and meant for the few things that a
/// program has one of, not for connections.
const SOURCES_MAX: usize = 1024;

/// Names one source of one loop; never used again for another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub(crate) u32);

impl fmt::Debug for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "source {}", self.0)
    }
}

/// A descriptor with what is called when it is readable.
trait Source<Shared> {
    fn fd(&self) -> BorrowedFd<'_>;
    fn readable(&mut self, shared: &mut Shared, now: Now) -> ControlFlow<()>;
}

struct Watched<T, F> {
    source: T,
    on_readable: F,
}

impl<Shared, T, F> Source<Shared> for Watched<T, F>
where
    T: AsFd,
    F: FnMut(&mut T, &mut Shared, Now) -> ControlFlow<()>,
{
    fn fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }

    fn readable(&mut self, shared: &mut Shared, now: Now) -> ControlFlow<()> {
        (self.on_readable)(&mut self.source, shared, now)
    }
}

/// The sources of one loop, by rising number.
pub(crate) struct Sources<Shared> {
    list: Vec<(u32, Box<dyn Source<Shared>>)>,
    next: u32,
}

impl<Shared> Sources<Shared> {
    pub(crate) fn new() -> Self {
        Self { list: Vec::new(), next: 0 }
    }

    /// Takes a source in.
    ///
    /// # Errors
    /// A regular file or a directory, which some mechanisms refuse and others call ready for ever;
    /// more than [`SOURCES_MAX`]; numbers up to `numbers_max` used up.
    pub(crate) fn insert<T, F>(
        &mut self,
        source: T,
        on_readable: F,
        numbers_max: u32,
    ) -> io::Result<SourceId>
    where
        T: AsFd + 'static,
        F: FnMut(&mut T, &mut Shared, Now) -> ControlFlow<()> + 'static,
    {
        let kind = FileType::from_raw_mode(fstat(&source)?.st_mode);
        if matches!(kind, FileType::RegularFile | FileType::Directory) {
            let what = "a regular file or directory is always readable: it cannot be watched";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if self.list.len() >= SOURCES_MAX || self.next >= numbers_max {
            let what = format!("a loop watches at most {SOURCES_MAX} sources");
            return Err(io::Error::other(what));
        }
        let number = self.next;
        self.next += 1;
        self.list.push((number, Box::new(Watched { source, on_readable })));
        Ok(SourceId(number))
    }

    /// The descriptor of a source that is still there.
    pub(crate) fn fd(&self, id: SourceId) -> Option<BorrowedFd<'_>> {
        self.position(id).map(|index| self.list[index].1.fd())
    }

    /// Lets the program answer; says whether the source is watched on. None when it is gone.
    pub(crate) fn readable(
        &mut self,
        id: SourceId,
        shared: &mut Shared,
        now: Now,
    ) -> Option<ControlFlow<()>> {
        let index = self.position(id)?;
        Some(self.list[index].1.readable(shared, now))
    }

    /// Takes a source out and closes it, if it is not shared.
    pub(crate) fn remove(&mut self, id: SourceId) {
        if let Some(index) = self.position(id) {
            self.list.remove(index);
        }
    }

    fn position(&self, id: SourceId) -> Option<usize> {
        self.list.binary_search_by_key(&id.0, |(number, _)| *number).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn there_are_at_most_so_many_and_numbers_are_not_used_again() {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let mut sources = Sources::<()>::new();
        let insert = |sources: &mut Sources<()>| {
            let again = Arc::clone(&socket);
            sources.insert(again, |_, (), _| ControlFlow::Continue(()), u32::MAX)
        };
        for number in 0..SOURCES_MAX as u32 {
            assert_eq!(insert(&mut sources).expect("room"), SourceId(number));
        }
        let refused = insert(&mut sources).expect_err("one too many");
        assert!(refused.to_string().contains("1024 sources"), "{refused}");
        sources.remove(SourceId(500));
        assert!(sources.readable(SourceId(500), &mut (), Now::default()).is_none());
        assert!(sources.fd(SourceId(501)).is_some(), "the others stay");
        assert_eq!(insert(&mut sources).expect("room"), SourceId(SOURCES_MAX as u32));
    }
}
