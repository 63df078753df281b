//! Numbers that look random and are the same for the same seed (SplitMix64).

/// A source of numbers.
pub(super) struct Random(u64);

impl Random {
    /// The source of this seed and these numbers: a thread, a connection, an attempt.
    pub(crate) fn new(seed: u64, numbers: &[u64]) -> Self {
        let mut source = Self(seed);
        for number in numbers {
            source.0 ^= number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            source.0 = source.next();
        }
        source
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// A number below that one, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A length: mostly small, once in a hundred large.
    pub(crate) fn len(&mut self, large: usize) -> usize {
        match self.below(100) {
            0 => self.below(large),
            1..10 => self.below(5_000),
            10..30 => 0,
            _ => self.below(200),
        }
    }

    /// Cuts at which a stream of that length is sent in pieces: in one, in some, or byte by byte.
    pub(crate) fn cuts(&mut self, len: usize) -> Vec<usize> {
        let mut cuts: Vec<usize> = match self.below(8) {
            0 if len <= 600 => (1..len).collect(),
            0..4 if len > 1 => (0..1 + self.below(6)).map(|_| 1 + self.below(len - 1)).collect(),
            _ => Vec::new(),
        };
        cuts.sort_unstable();
        cuts.dedup();
        cuts.push(len);
        cuts
    }
}
