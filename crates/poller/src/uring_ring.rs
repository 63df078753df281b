//! The io_uring backend's way into the kernel: a ring that counts its system calls and
//! distinguishes what `io_uring_enter(2)` folds into one return value.
//!
//! A call that took requests answers with their number even when the wait that followed was
//! ended by a signal or by its timeout; an overflow shows in one call and does its damage in
//! the next. Only [`crate::uring_poll`] calls this; it knows nothing of registrations.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_sys::ring::{Completion, EnterFailure, Request, Ring, Setup, Sizes};

use crate::{Backend, Caps, Counters, Error, FilePolicy, SignalMask, Threads};

/// The longest wait handed to the kernel in one piece: its clock arithmetic can't overflow.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);

/// An overflow is flagged after one enter, and what it ended arrives with the next.
const OVERFLOW_ENTERS: u32 = 2;

/// A ring and what its calls have shown.
pub(crate) struct CountedRing {
    ring: Ring,
    enters_since_overflow: u32,
    counters: Arc<Counters>,
}

/// How an enter ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entered {
    /// Something came, the time is over, or nothing was waited for.
    Regularly,
    /// A signal handler ran.
    BySignal,
}

impl CountedRing {
    pub(crate) fn open(
        sizes: Sizes,
        threads: Threads,
        counters: Arc<Counters>,
    ) -> Result<Self, Error> {
        let ring = match threads {
            Threads::One => Ring::open(sizes),
            Threads::Several => Ring::open_shared(sizes),
        };
        let ring = ring.map_err(|refused| Error::Unavailable {
            backend: Backend::UringPoll,
            reason: refused.reason,
            cause: refused.cause,
        })?;
        Ok(Self { ring, enters_since_overflow: OVERFLOW_ENTERS, counters })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    pub(crate) fn setup(&self) -> &Setup {
        self.ring.setup()
    }

    /// What a poller on this ring can do.
    pub(crate) fn caps(&self) -> Caps {
        Caps {
            files: FilePolicy::AlwaysReady,
            deferred_changes: true,
            holds_files: true,
            notes: self.setup().notes(),
            ..Caps::complete(Backend::UringPoll)
        }
    }

    /// Moves `requests` into the submission queue. What exceeds one queueful is submitted on
    /// the way; the last queueful rides with the next enter. When the kernel is congested the
    /// rest stays in `requests`.
    pub(crate) fn load(&mut self, requests: &mut VecDeque<Request>) -> Result<(), Error> {
        while let Some(&request) = requests.front() {
            if self.ring.push(request).is_ok() {
                requests.pop_front();
                continue;
            }
            self.counters.system_calls.add(1);
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if EnterFailure::of(&error) == EnterFailure::Congested => break,
                Err(cause) => return Err(enter_error(cause)),
            }
        }
        Ok(())
    }

    /// Submits what was loaded, and waits for `completions_min` completions at most `timeout`
    /// (`None`: for ever), with the signals of `mask` blocked while it waits.
    pub(crate) fn enter(
        &mut self,
        completions_min: u32,
        timeout: Option<Duration>,
        mask: Option<&SignalMask>,
    ) -> Result<Entered, Error> {
        let has_submissions = self.ring.queued() > 0;
        let timeout = timeout.map(|rest| rest.min(SLEEP_MAX));
        let started = timeout.filter(|_| has_submissions).map(|_| Instant::now());
        let had_overflow = self.ring.has_overflow();
        self.counters.system_calls.add(1);
        let outcome = match mask {
            Some(mask) if completions_min > 0 => {
                self.ring.enter_masked(completions_min, timeout, mask)
            }
            _ => self.ring.enter(completions_min, timeout),
        };
        self.note_overflow(had_overflow);
        let ended = match outcome {
            // The number of requests taken hides a signal and the clock.
            Ok(_) if !has_submissions || completions_min == 0 => Entered::Regularly,
            Ok(_) if self.has_unfetched() || self.ring.queued() > 0 => Entered::Regularly,
            Ok(_) => match timeout.zip(started) {
                Some((timeout, started)) if started.elapsed() >= timeout => Entered::Regularly,
                _ => Entered::BySignal,
            },
            Err(error) => match EnterFailure::of(&error) {
                EnterFailure::Interrupted => Entered::BySignal,
                EnterFailure::TimedOut | EnterFailure::Congested => Entered::Regularly,
                EnterFailure::Broken => return Err(enter_error(error)),
            },
        };
        Ok(ended)
    }

    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.ring.next_completion()
    }

    /// Requests wait to be submitted.
    pub(crate) fn has_loaded(&mut self) -> bool {
        self.ring.queued() > 0
    }

    /// Completions are there, or would be after an enter that waits for nothing.
    pub(crate) fn has_unfetched(&mut self) -> bool {
        self.ring.has_completions() || self.ring.has_deferred_work() || self.ring.has_overflow()
    }

    /// The kernel keeps completions that did not fit.
    pub(crate) fn has_overflow(&mut self) -> bool {
        self.ring.has_overflow()
    }

    /// Multishots that end now may be victims of an overflow.
    pub(crate) fn is_shaken(&self) -> bool {
        self.enters_since_overflow < OVERFLOW_ENTERS
    }

    fn note_overflow(&mut self, had_overflow: bool) {
        if had_overflow || self.ring.has_overflow() {
            self.counters.overflows.add(1);
            self.enters_since_overflow = 0;
        } else {
            self.enters_since_overflow = self.enters_since_overflow.saturating_add(1);
        }
    }
}

/// The ring is broken, which `Poller` rules out: other threads and children of a fork do not get here.
fn enter_error(cause: io::Error) -> Error {
    Error::System { call: "io_uring_enter", cause }
}
