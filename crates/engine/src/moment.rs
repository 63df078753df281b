//! Points in time, as sessions and timers see them.
//!
//! A loop reads the clocks once a turn and passes the result in; sessions compute with it and
//! never read a clock themselves.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the monotonic clock, in nanoseconds since the machine started.
///
/// ```
/// use pollux_engine::Moment;
/// use std::time::Duration;
///
/// let begin = Moment::from_nanos(1_000);
/// let deadline = begin + Duration::from_secs(5);
/// assert_eq!(deadline - begin, Duration::from_secs(5));
/// assert_eq!(begin - deadline, Duration::ZERO, "never less than nothing");
/// assert!(deadline < Moment::NEVER);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// Later than every other moment: a deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanoseconds` after the machine started.
    #[must_use]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the machine started.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whether this is a point in time at all, and not [`Moment::NEVER`].
    #[must_use]
    pub const fn is_finite(self) -> bool {
        self.0 != u64::MAX
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    /// Saturates at [`Moment::NEVER`].
    fn add(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }
}

impl Sub for Moment {
    type Output = Duration;
    /// Time from `earlier` to this moment; zero when it is later.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// What the clocks said at the start of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// For deadlines and durations.
    pub at: Moment,
    /// For dates: seconds since 1970, UTC. May jump when the machine's clock is set.
    pub unix_s: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_saturate_instead_of_wrapping() {
        let early = Moment::from_nanos(5);
        assert_eq!(early + Duration::MAX, Moment::NEVER);
        assert_eq!(early - Moment::from_nanos(7), Duration::ZERO);
        assert_eq!((early + Duration::from_nanos(3)).as_nanos(), 8);
    }
}
