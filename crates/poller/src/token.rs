//! The name that a caller gives to a registration: slot and generation.
//!
//! The caller's connection table owns both numbers. The slot is an index that is used again;
//! the generation says which use of the slot is meant, so that an event for an earlier use is
//! recognised. A token never holds a pointer or a descriptor.

use std::fmt;

/// Names one use of one slot of the caller's table.
///
/// The generation must change whenever the file behind the slot changes: two registrations
/// with equal tokens are promised to be the same open file.
///
/// ```text
///  63      56 55            32 31                              0
/// +----------+----------------+---------------------------------+
/// |    0     |   generation   |              slot               |
/// +----------+----------------+---------------------------------+
/// ```
///
/// ```
/// use pollux_poller::Token;
///
/// let (first, second) = (Token::new(7, 0), Token::new(7, 1));
/// assert_eq!((first.slot(), second.slot()), (7, 7));
/// assert_ne!(first, second, "an event for the first use of the slot is not one for the second");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// Generations count modulo 2^24: 16 million reuses of one slot before a number returns.
    pub const GENERATIONS: u32 = 1 << 24;

    /// A token for `slot`; only the low 24 bits of `generation` are kept.
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self(((generation % Self::GENERATIONS) as u64) << 32 | slot as u64)
    }

    /// Index into the caller's table.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    /// Which use of the slot is meant, below [`Token::GENERATIONS`].
    #[must_use]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The token for the next use of the same slot.
    #[must_use]
    pub const fn next_generation(self) -> Self {
        Self::new(self.slot(), self.generation().wrapping_add(1))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}.{})", self.slot(), self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_back_slot_and_generation() {
        let token = Token::new(u32::MAX, Token::GENERATIONS - 1);
        assert_eq!((token.slot(), token.generation()), (u32::MAX, Token::GENERATIONS - 1));
    }

    #[test]
    fn generations_wrap_without_touching_the_slot() {
        let last = Token::new(9, Token::GENERATIONS - 1);
        assert_eq!(last.next_generation(), Token::new(9, 0));
    }
}
