//! What a backend can do on this kernel, probed when it is opened.
//!
//! Callers choose by it; backends refuse by it (`Caps::check`), so that what is printed and
//! what is refused cannot differ.

use std::time::Duration;

use crate::{Backend, Error, Interest, Registration, Trigger};

/// What happens to regular files and directories, which are always ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilePolicy {
    /// Refused with [`Error::NotPollable`], as `epoll_ctl(2)` does (EPERM).
    Refused,
    /// Accepted and reported as ready: the kernel interface can't tell before it is armed.
    AlwaysReady,
}

/// What kernel interfaces with a `timespec` count in.
pub(crate) const NANOSECOND: Duration = Duration::from_nanos(1);

/// The capabilities of one opened backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Which backend this is.
    pub backend: Backend,
    /// [`Trigger::Level`] is served.
    pub level: bool,
    /// [`Trigger::Edge`] is served.
    pub edge: bool,
    /// [`Trigger::Oneshot`] is served.
    pub oneshot: bool,
    /// [`Registration::exclusive`] is served, without priority, rdhup and oneshot.
    pub exclusive: bool,
    /// [`Interest::RDHUP`] is served.
    pub rdhup: bool,
    /// Hang-up and error arrive as their own bits; otherwise as readable and writable.
    pub hangup: bool,
    /// What happens to regular files.
    pub files: FilePolicy,
    /// Changes wait in user space and reach the kernel with the next wait, many at a time.
    pub deferred_changes: bool,
    /// An armed registration keeps the open file alive after its descriptor is closed.
    pub holds_files: bool,
    /// The most descriptors that can be watched at once, where the interface has such a bound.
    pub fds_max: Option<usize>,
    /// Timeouts of less than a second are rounded up to multiples of this: a nanosecond, or a
    /// millisecond for epoll where `epoll_pwait2(2)` is refused.
    pub timeout_step: Duration,
    /// What was found at open, in words: ring flags, sizes, fallbacks.
    pub notes: Vec<String>,
}

impl Caps {
    /// Whether `trigger` is served.
    #[must_use]
    pub fn serves(&self, trigger: Trigger) -> bool {
        match trigger {
            Trigger::Level => self.level,
            Trigger::Edge => self.edge,
            Trigger::Oneshot => self.oneshot,
        }
    }

    /// Refuses a registration that the backend can't honour.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the part that can't be served and who can.
    pub fn check(&self, how: Registration) -> Result<(), Error> {
        let refuse = |what: &'static str| Err(Error::Unsupported { backend: self.backend, what });
        if !self.serves(how.trigger) {
            return refuse(match how.trigger {
                Trigger::Level => "level trigger",
                Trigger::Edge => "edge trigger (epoll and uring-poll have it)",
                Trigger::Oneshot => "oneshot trigger",
            });
        }
        if how.interest.contains(Interest::RDHUP) && !self.rdhup {
            return refuse("rdhup interest (every other backend has it)");
        }
        if !how.exclusive {
            return Ok(());
        }
        if !self.exclusive {
            return refuse("exclusive wake-ups (epoll and uring-poll have them)");
        }
        if how.trigger == Trigger::Oneshot {
            return refuse("exclusive together with oneshot (epoll_ctl(2): EINVAL)");
        }
        if how.interest.contains(Interest::PRIORITY) || how.interest.contains(Interest::RDHUP) {
            return refuse("exclusive together with priority or rdhup (epoll_ctl(2): EINVAL)");
        }
        Ok(())
    }
}
