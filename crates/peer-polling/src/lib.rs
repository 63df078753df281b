//! The Rust library `polling` behind a safe interface, so that the lab can measure it.
//!
//! The lab's `chain` experiment calls it; nothing else may. `polling` makes registration `unsafe`,
//! because the caller has to promise that a source is deleted before it is dropped. [`OwningPoller`] keeps
//! that promise by construction: this is one `unsafe` block, and the whole reason for this crate.
//! It must never add work to what is measured: a look is one wait of the library and nothing else.
#![deny(unsafe_code)]

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use polling::{Event, Events, PollMode, Poller};

/// A poller of the library, and the descriptors that it watches for something to read.
///
/// Level-triggered ([`PollMode::Level`]), which Linux supports. The default of `polling` is
/// one-shot, where every event is followed by a `modify`.
///
/// It shares the descriptors instead of borrowing them, so that they stay open even if it is
/// leaked and its `drop` never runs.
#[derive(Debug)]
pub struct OwningPoller {
    poller: Poller,
    sources: Rc<[OwnedFd]>,
    /// The first so many sources are registered.
    watched: usize,
    events: Events,
}

impl OwningPoller {
    /// Registers every one of `sources`, which should not block. A look brings up to `events_max`
    /// of them.
    ///
    /// # Errors
    ///
    /// What the kernel says of a poller that it can't open or a descriptor that it can't watch,
    /// such as `EPERM` for a regular file (epoll_ctl(2)). Nothing stays registered.
    pub fn open(sources: Rc<[OwnedFd]>, events_max: NonZeroUsize) -> io::Result<Self> {
        let events = Events::with_capacity(events_max);
        let mut opened = Self { poller: Poller::new()?, sources, watched: 0, events };
        while opened.watched < opened.sources.len() {
            opened.add_next()?;
        }
        Ok(opened)
    }

    #[expect(unsafe_code, reason = "the library has no safe way to register")]
    fn add_next(&mut self) -> io::Result<()> {
        let source = &self.sources[self.watched];
        let interest = Event::readable(self.watched);
        // SAFETY: the source is deleted from this poller before it is dropped: `self.sources` keeps
        // it open until after `drop` below has deleted it, and for ever if `drop` never runs.
        unsafe { self.poller.add_with_mode(source, interest, PollMode::Level) }?;
        self.watched += 1;
        Ok(())
    }

    /// Looks once, without waiting: the indices of sources that have something to read.
    ///
    /// # Errors
    ///
    /// What the library's `wait` gives; none is known for a poller that is open.
    #[inline]
    pub fn look(&mut self) -> io::Result<impl Iterator<Item = usize> + '_> {
        self.events.clear();
        self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
        Ok(self.events.iter().map(|event| event.key))
    }
}

impl Drop for OwningPoller {
    fn drop(&mut self) {
        for source in &self.sources[..self.watched] {
            self.poller.delete(source).expect("a source that was added can be deleted");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    const EVENTS_MAX: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

    /// The ends to write to, and the ends to watch.
    fn pairs(count: usize) -> (Vec<UnixStream>, Rc<[OwnedFd]>) {
        let pairs = (0..count).map(|_| UnixStream::pair().expect("a pair"));
        let (writers, readers): (Vec<_>, Vec<_>) = pairs.unzip();
        (writers, readers.into_iter().map(OwnedFd::from).collect())
    }

    fn look(poller: &mut OwningPoller) -> Vec<usize> {
        let mut ready: Vec<usize> = poller.look().expect("a look").collect();
        ready.sort_unstable();
        ready
    }

    #[test]
    fn what_can_be_read_is_reported_until_it_is_read() {
        let (mut writers, readers) = pairs(3);
        let mut poller = OwningPoller::open(Rc::clone(&readers), EVENTS_MAX).expect("a poller");
        assert!(look(&mut poller).is_empty());
        for index in [0, 2] {
            writers[index].write_all(b"e").expect("a byte");
        }
        assert_eq!(look(&mut poller), [0, 2]);
        assert_eq!(look(&mut poller), [0, 2], "level-triggered");
        let mut reader = UnixStream::from(readers[0].try_clone().expect("a copy"));
        reader.read_exact(&mut [0]).expect("a byte");
        assert_eq!(look(&mut poller), [2]);
    }

    #[test]
    fn a_look_brings_no_more_than_it_may() {
        let (mut writers, readers) = pairs(3);
        let mut poller = OwningPoller::open(readers, NonZeroUsize::MIN).expect("a poller");
        for writer in &mut writers {
            writer.write_all(b"e").expect("a byte");
        }
        assert_eq!(look(&mut poller).len(), 1);
    }

    /// Descriptors that an epoll instance watches, by its fdinfo (proc_pid_fdinfo(5)).
    fn watched_by(epoll: &OwnedFd) -> usize {
        let path = format!("/proc/self/fdinfo/{}", epoll.as_raw_fd());
        let text = std::fs::read_to_string(path).expect("fdinfo");
        text.lines().filter(|line| line.starts_with("tfd:")).count()
    }

    #[test]
    fn every_source_is_deleted_before_it_is_dropped() {
        let (_writers, readers) = pairs(3);
        let poller = OwningPoller::open(Rc::clone(&readers), EVENTS_MAX).expect("a poller");
        let epoll = poller.poller.as_fd().try_clone_to_owned().expect("the same epoll instance");
        assert!(watched_by(&epoll) >= 3);
        drop(poller);
        assert_eq!((watched_by(&epoll), Rc::strong_count(&readers)), (0, 1));
    }

    #[test]
    fn the_descriptors_outlive_a_poller_that_is_leaked() {
        let (mut writers, readers) = pairs(1);
        std::mem::forget(OwningPoller::open(readers, EVENTS_MAX).expect("a poller"));
        writers[0].write_all(b"e").expect("a reader that is still open");
    }

    #[test]
    fn what_can_not_be_watched_is_refused() {
        let (reader, _writer) = UnixStream::pair().expect("a pair");
        let file = File::open("/proc/self/exe").expect("a regular file");
        let sources: Rc<[OwnedFd]> = Rc::new([reader.into(), file.into()]);
        let error =
            OwningPoller::open(Rc::clone(&sources), EVENTS_MAX).expect_err("a regular file");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(Rc::strong_count(&sources), 1, "nothing holds them any more");
    }
}
