//! How a single call is to be made: the flags of the specification.
//!
//! The numbers are those of C programs, so that the C interface passes them through.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CallFlags(u32);

impl CallFlags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// TPNOBLOCK: fail with TPEBLOCK instead of waiting for room in a queue, or, when a reply is
    /// asked for, instead of waiting for it.
    pub const NO_BLOCK: Self = Self(0x1);
    /// TPSIGRSTRT: go on waiting after a signal handler ran, instead of failing with TPGOTSIG.
    pub const SIGNAL_RESTART: Self = Self(0x2);
    /// TPNOREPLY: nobody waits for the reply, and there is no descriptor.
    pub const NO_REPLY: Self = Self(0x4);
    /// TPNOTRAN: outside the transaction. There are none here, so it changes nothing.
    pub const NO_TRANSACTION: Self = Self(0x8);
    /// TPNOTIME: wait as long as it takes.
    pub const NO_TIME: Self = Self(0x20);
    /// TPGETANY: any reply will do.
    pub const ANY: Self = Self(0x80);
    /// TPNOCHANGE: the reply must have the type of the buffer that is there.
    pub const NO_CHANGE: Self = Self(0x100);

    const ALL: [(Self, &'static str); 7] = [
        (Self::NO_BLOCK, "TPNOBLOCK"),
        (Self::SIGNAL_RESTART, "TPSIGRSTRT"),
        (Self::NO_REPLY, "TPNOREPLY"),
        (Self::NO_TRANSACTION, "TPNOTRAN"),
        (Self::NO_TIME, "TPNOTIME"),
        (Self::ANY, "TPGETANY"),
        (Self::NO_CHANGE, "TPNOCHANGE"),
    ];

    /// The flags of a number as C programs write it; bits without a meaning for calls are left
    /// out.
    #[must_use]
    pub fn from_bits(bits: i64) -> Self {
        let known = Self::ALL.iter().fold(0, |bits, (flag, _)| bits | flag.0);
        Self((bits & i64::from(known)) as u32)
    }

    /// The number as C programs write it.
    #[must_use]
    pub const fn bits(self) -> i64 {
        self.0 as i64
    }

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These without `flags`.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

impl BitOr for CallFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for CallFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for CallFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = Self::ALL.iter().filter(|(flag, _)| self.contains(*flag));
        let names: Vec<_> = given.map(|(_, name)| *name).collect();
        f.write_str(&names.join("|"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_c_and_strangers_are_left_out() {
        let flags = CallFlags::from_bits(0x1 | 0x100 | 0x4000);
        assert_eq!(flags, CallFlags::NO_BLOCK | CallFlags::NO_CHANGE);
        assert_eq!(flags.bits(), 0x101);
        assert!(!flags.contains(CallFlags::NO_TIME));
        assert_eq!(format!("{flags:?}"), "TPNOBLOCK|TPNOCHANGE");
        assert_eq!(CallFlags::from_bits(-1).without(CallFlags::NO_BLOCK).bits(), 0x1ae);
    }
}
