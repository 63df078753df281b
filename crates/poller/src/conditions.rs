//! Conditions of a descriptor: what a caller wants reported, how often, and what a wait reports.
//!
//! *Interest* is wanted, *readiness* is known. Both are small bit sets with one bit for each
//! condition; the backends translate them into the masks of their kernel interface.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// POLLRDHUP is 0x2000; here it is 0x20. The other bits stand where `poll(2)` has them.
const RDHUP_SHIFT: u32 = 8;

/// The conditions to watch for. Errors and hang-ups are always reported and need no bit.
///
/// An empty interest is allowed: only errors and hang-ups are then reported.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Interest(u8);

impl Interest {
    /// Nothing but errors and hang-ups.
    pub const NONE: Self = Self(0);
    /// Data, a pending connection or the end of the stream can be read without blocking.
    pub const READABLE: Self = Self(0x01);
    /// A write of at least one byte would not block.
    pub const WRITABLE: Self = Self(0x04);
    /// An exceptional condition: TCP urgent data and the like (`POLLPRI`).
    pub const PRIORITY: Self = Self(0x02);
    /// The peer closed its writing half (`POLLRDHUP`).
    pub const RDHUP: Self = Self(0x20);

    /// The mask for `poll(2)`, `epoll(7)`, AIO poll and io_uring poll, which share these bits.
    #[must_use]
    pub const fn poll_mask(self) -> u32 {
        (self.0 & 0x1f) as u32 | ((self.0 & Self::RDHUP.0) as u32) << RDHUP_SHIFT
    }

    /// Whether every bit of `other` is set here.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no bit is set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Interest {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Interest {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_bits(f, self.0, &BIT_NAMES)
    }
}

/// The conditions that a descriptor was found in.
///
/// Only bits of the interest, and error and hang-up, are ever delivered.
///
/// ```
/// use pollux_poller::{Interest, Readiness};
///
/// let found = Readiness::READABLE | Readiness::RDHUP | Readiness::HUP;
/// assert!(found.is_readable() && found.is_closed() && !found.is_writable());
/// assert_eq!(found.visible_to(Interest::WRITABLE), Readiness::HUP);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Readiness(u8);

impl Readiness {
    /// No condition.
    pub const NONE: Self = Self(0);
    /// See [`Interest::READABLE`].
    pub const READABLE: Self = Self(0x01);
    /// See [`Interest::WRITABLE`].
    pub const WRITABLE: Self = Self(0x04);
    /// See [`Interest::PRIORITY`].
    pub const PRIORITY: Self = Self(0x02);
    /// See [`Interest::RDHUP`].
    pub const RDHUP: Self = Self(0x20);
    /// Both directions are closed (`POLLHUP`).
    pub const HUP: Self = Self(0x10);
    /// An error is pending on the descriptor (`POLLERR`).
    pub const ERROR: Self = Self(0x08);
    /// What says that a stream has ended or broken, in one direction or both.
    pub const ENDS: Self = Self(Self::RDHUP.0 | Self::HUP.0 | Self::ERROR.0);

    /// What a `poll(2)` mask says; bits without a meaning here (RDNORM and the like) fall away.
    #[must_use]
    pub const fn from_poll_mask(mask: u32) -> Self {
        Self((mask & 0x1f) as u8 | ((mask >> RDHUP_SHIFT) as u8 & Self::RDHUP.0))
    }

    /// Whether every bit of `other` is set here.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no bit is set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bits of both, also in constants.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether any bit of `other` is set here.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Data, a connection or the end of the stream can be read.
    #[must_use]
    pub const fn is_readable(self) -> bool {
        self.contains(Self::READABLE)
    }

    /// A write would not block.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.contains(Self::WRITABLE)
    }

    /// An error or a hang-up was reported: a read or a write will say which.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        self.0 & (Self::HUP.0 | Self::ERROR.0) != 0
    }

    /// Whether this may be no more than a claim when a poll request reports it (AIO, io_uring).
    ///
    /// A request that was woken reports what the waker of the file claimed, not what holds.
    /// Sockets claim priority data with all data, the end of a pipe is claimed as error and
    /// hang-up, and a listener that is shut down as an error. A request that looks at the file when it is armed is right. Of other files
    /// ([`is_claimed`](crate::table::is_claimed)) it is true, and must not be looked at again: the look of a poll
    /// takes the news away (`/proc/self/mounts`, pressure).
    pub(crate) const fn is_doubtful_claim(self) -> bool {
        self.intersects(Self(Self::PRIORITY.0 | Self::ERROR.0))
    }

    /// What of this readiness may be reported to a caller with `interest`.
    #[must_use]
    pub const fn visible_to(self, interest: Interest) -> Self {
        Self(self.0 & (interest.0 | Self::HUP.0 | Self::ERROR.0))
    }
}

impl BitOr for Readiness {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Readiness {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_bits(f, self.0, &BIT_NAMES)
    }
}

const BIT_NAMES: [&str; 6] = ["readable", "priority", "writable", "error", "hup", "rdhup"];

fn write_bits(f: &mut fmt::Formatter<'_>, bits: u8, names: &[&str]) -> fmt::Result {
    let set = names.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    let set: Vec<&str> = set.map(|(_, name)| *name).collect();
    f.write_str(if set.is_empty() { "none" } else { "" })?;
    f.write_str(&set.join("|"))
}

/// When a ready descriptor is reported again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Trigger {
    /// On every wait for as long as the condition holds.
    Level,
    /// When the condition is entered or new data arrives; the caller reads until it would block.
    Edge,
    /// Once; then the registration is disarmed, also for errors, until it is modified.
    Oneshot,
}

/// How a descriptor is watched.
///
/// A oneshot registration is armed again by modifying it:
///
/// ```
/// use pollux_poller::{Events, Interest, Mechanism, Registration, Token, Trigger};
/// use std::io::Write;
/// use std::os::fd::AsFd;
/// use std::time::Duration;
///
/// let mut poller = Mechanism::EpollOneshot.open()?;
/// let (mut ours, theirs) = std::os::unix::net::UnixStream::pair()?;
/// let (token, once) = (Token::new(0, 0), Registration::new(Interest::READABLE, Trigger::Oneshot));
/// poller.add(theirs.as_fd(), token, once)?;
/// ours.write_all(b"x")?;
///
/// let mut events = Events::with_capacity(64);
/// poller.wait(&mut events, None)?;
/// assert_eq!(events.len(), 1);
/// poller.wait(&mut events, Some(Duration::ZERO))?;
/// assert!(events.is_empty(), "it is disarmed, though the byte is still there");
/// poller.modify(theirs.as_fd(), token, once)?;
/// poller.wait(&mut events, None)?;
/// assert_eq!(events.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Registration {
    /// The conditions to report.
    pub interest: Interest,
    /// How often to report them.
    pub trigger: Trigger,
    /// Wake one of the pollers that watch the same file instead of all (`EPOLLEXCLUSIVE`).
    pub exclusive: bool,
}

impl Registration {
    /// A registration that is not exclusive.
    #[must_use]
    pub const fn new(interest: Interest, trigger: Trigger) -> Self {
        Self { interest, trigger, exclusive: false }
    }

    /// The same registration, exclusive.
    #[must_use]
    pub const fn exclusive(mut self) -> Self {
        self.exclusive = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_hides_what_was_not_asked_but_never_error_or_hang_up() {
        let all = Readiness::READABLE | Readiness::WRITABLE | Readiness::HUP | Readiness::ERROR;
        assert_eq!(
            all.visible_to(Interest::WRITABLE),
            Readiness::WRITABLE | Readiness::HUP | Readiness::ERROR
        );
        assert_eq!(all.visible_to(Interest::NONE), Readiness::HUP | Readiness::ERROR);
    }

    #[test]
    fn poll_masks_translate_both_ways() {
        let all = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY | Interest::RDHUP;
        assert_eq!(all.poll_mask(), 0x2007);
        let seen = Readiness::from_poll_mask(0x2015 | 0x40);
        assert_eq!(
            seen,
            Readiness::READABLE | Readiness::WRITABLE | Readiness::HUP | Readiness::RDHUP
        );
    }

    #[test]
    fn bits_print_as_words() {
        assert_eq!(format!("{:?}", Interest::READABLE | Interest::RDHUP), "readable|rdhup");
        assert_eq!(format!("{:?}", Readiness::NONE), "none");
    }
}
