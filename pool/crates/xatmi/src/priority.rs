//! Priorities of requests: of those that wait for a service, the one with the highest is taken first, of several the one
//! that came first.
//!
//! Programs say them (`tpsprio`), else the configuration does (`<service prio>`). By queues the kernel keeps the order, in
//! memory `memory/ring`, where each tenth is the one that came first, so that none waits for ever.

use std::fmt;

/// 1 to 100: higher is served first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Priority(u8);

/// What a program asks for its next request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// So much more than the service has, or less.
    Relative(i32),
    Absolute(Priority),
}

impl Priority {
    pub const LOWEST: Self = Self(1);
    /// Where nothing was said.
    pub const USUAL: Self = Self(50);
    pub const HIGHEST: Self = Self(100);

    /// None outside of 1 to 100.
    #[must_use]
    pub fn new(number: i64) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (Self::LOWEST.0..=Self::HIGHEST.0).contains(&number).then_some(Self(number))
    }

    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// What a request has that was to have this, by what its program asked for; within the bounds.
    #[must_use]
    pub fn changed_by(self, asked: Option<Asked>) -> Self {
        match asked {
            None => self,
            Some(Asked::Absolute(priority)) => priority,
            Some(Asked::Relative(more)) => {
                let number = i32::from(self.0).saturating_add(more);
                Self(number.clamp(Self::LOWEST.0.into(), Self::HIGHEST.0.into()) as u8)
            }
        }
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::USUAL
    }
}

impl fmt::Debug for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_stays_within_the_bounds() {
        let changed = |asked| Priority::USUAL.changed_by(asked).number();
        assert_eq!(changed(None), 50);
        assert_eq!(changed(Some(Asked::Relative(-7))), 43);
        assert_eq!(changed(Some(Asked::Relative(i32::MAX))), 100);
        assert_eq!(changed(Some(Asked::Relative(i32::MIN))), 1);
        assert_eq!(changed(Priority::new(70).map(Asked::Absolute)), 70);
        assert_eq!([0, 101, -1, 256 + 50].map(Priority::new), [None; 4]);
    }
}
