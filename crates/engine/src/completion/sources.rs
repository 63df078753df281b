//! Sources on io_uring: a poll request for one event each, armed again when the program answered.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};

use pollux_sys::ring::Shots;

use super::slots::{Kind, numbered};
use super::{CompletionLoop, POLLIN};
use crate::sources::SourceId;
use crate::{Counter, Now, Session};

impl<S: Session> CompletionLoop<S> {
    /// Calls `on_readable` in each turn in which `source` is readable.
    ///
    /// # Errors
    /// Of [`crate::sources::Sources::insert`].
    pub(crate) fn watch<T, F>(&mut self, source: T, on_readable: F) -> io::Result<SourceId>
    where
        T: AsFd + 'static,
        F: FnMut(&mut T, &mut S::Shared, Now) -> ControlFlow<()> + 'static,
    {
        let id = self.sources.insert(source, on_readable, u32::MAX)?;
        self.arm_source(id);
        Ok(id)
    }

    pub(crate) fn unwatch(&mut self, id: SourceId) -> bool {
        if self.sources.fd(id).is_none() {
            return false;
        }
        self.push(|ring| ring.cancel(numbered(Kind::Source, id.0), numbered(Kind::Errand, 0)));
        // The poll holds the file until the cancellation was submitted, with the next turn.
        self.sources.remove(id);
        true
    }

    /// A poll has ended: the source is readable, or the poll was cancelled or refused.
    pub(super) fn source_readable(&mut self, id: SourceId, result: i32) {
        let now = self.clock.now();
        if result < 0 {
            // A refusal stays one: the source can do no more.
            return self.sources.remove(id);
        }
        let Some(answer) = self.sources.readable(id, &mut self.shared, now) else {
            return self.counters.count(Counter::Stale);
        };
        self.counters.count(Counter::SourcesReadable);
        match answer {
            ControlFlow::Continue(()) => self.arm_source(id),
            ControlFlow::Break(()) => self.sources.remove(id),
        }
    }

    fn arm_source(&mut self, id: SourceId) {
        let Some(fd) = self.sources.fd(id).map(|fd| fd.as_raw_fd()) else { return };
        self.push(|ring| ring.poll(fd, POLLIN, Shots::One, numbered(Kind::Source, id.0)));
    }
}
