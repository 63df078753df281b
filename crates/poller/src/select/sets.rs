//! Three bitmaps by descriptor number, as `select(2)` takes them: what is wanted, or found.
//!
//! Only the select backend uses them. They grow with the highest number and never shrink; the
//! kernel bounds numbers by `fs.nr_open`.

use pollux_sys::readiness::WORD_BITS;

use crate::Interest;

/// The condition that each bitmap stands for, in the order of the system call.
const CONDITIONS: [Interest; 3] = [Interest::READABLE, Interest::WRITABLE, Interest::PRIORITY];

/// Three bitmaps of equal length: what is wanted, or found, of each number.
#[derive(Default)]
pub(super) struct Sets {
    pub(super) bits: [Vec<u64>; 3],
}

impl Sets {
    /// Gives `index` the bits of `interest` and no others.
    pub(super) fn set(&mut self, index: usize, interest: Interest) {
        let (word, bit) = (index / WORD_BITS, 1 << (index % WORD_BITS));
        for (bits, condition) in self.bits.iter_mut().zip(CONDITIONS) {
            if word >= bits.len() {
                bits.resize(word + 1, 0);
            }
            bits[word] &= !bit;
            if interest.contains(condition) {
                bits[word] |= bit;
            }
        }
    }

    pub(super) fn interest(&self, index: usize) -> Interest {
        let (word, bit) = (index / WORD_BITS, 1 << (index % WORD_BITS));
        let mut interest = Interest::NONE;
        for (bits, condition) in self.bits.iter().zip(CONDITIONS) {
            if bits[word] & bit != 0 {
                interest |= condition;
            }
        }
        interest
    }

    /// The numbers of one word that have any bit.
    pub(super) fn any(&self, word: usize) -> u64 {
        self.bits.iter().fold(0, |any, bits| any | bits[word])
    }

    /// The highest number below `index` that has any bit.
    pub(super) fn highest_below(&self, index: usize) -> Option<usize> {
        let words = (0..index.div_ceil(WORD_BITS)).rev();
        let mut words = words.map(|word| (word, self.any(word))).filter(|&(_, any)| any != 0);
        let (word, any) = words.next()?;
        Some(word * WORD_BITS + any.ilog2() as usize)
    }

    /// Takes over the first `words` words of `other`; what lies behind them is not looked at.
    pub(super) fn copy_from(&mut self, other: &Self, words: usize) {
        for (ours, theirs) in self.bits.iter_mut().zip(&other.bits) {
            ours.clear();
            ours.extend_from_slice(&theirs[..words]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_gets_back_the_conditions_that_it_was_given() {
        let all = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
        let mut sets = Sets::default();
        sets.set(63, all);
        sets.set(64, Interest::WRITABLE);
        sets.set(63, Interest::PRIORITY);
        assert_eq!(sets.interest(63), Interest::PRIORITY);
        assert_eq!(sets.interest(64), Interest::WRITABLE);
        assert_eq!((sets.any(0), sets.any(1)), (1 << 63, 1));
    }

    #[test]
    fn the_highest_number_below_a_cleared_one_is_found_across_words() {
        let mut sets = Sets::default();
        for index in [3, 64, 200] {
            sets.set(index, Interest::READABLE);
        }
        sets.set(200, Interest::NONE);
        assert_eq!(sets.highest_below(200), Some(64));
        sets.set(64, Interest::NONE);
        assert_eq!(sets.highest_below(64), Some(3));
        sets.set(3, Interest::NONE);
        assert_eq!(sets.highest_below(3), None);
    }
}
