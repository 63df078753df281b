//! Which request of a list comes next at random, by weight, at the cost of one look into a table.
//!
//! The alias method (Walker 1977, Vose 1991): a column for each request, all of the same height, filled by it
//! and at most one other. One random number says which column, and where in it.
//!
//! ```text
//!  weights 1 6 3          columns      │ 1 │ 0 │ 2 │
//!                                      │▒▒▒│ 1 │ 1 │    0 is topped up by 1, 2 by 1
//!                                      │▒0▒│▒1▒│▒2▒│
//! ```

/// One request's column.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// Up to here, in parts of 2^32, it is its own.
    own: u32,
    /// And above it this one's.
    other: u32,
}

/// The columns of a list.
#[derive(Clone, Debug)]
pub(crate) struct Chooser(Box<[Column]>);

impl Chooser {
    /// For requests with these weights, of which one at least is not 0 and their sum fits 63 bits.
    pub(crate) fn new(weights: impl ExactSizeIterator<Item = u32>) -> Self {
        let count = weights.len() as u64;
        // In units of which a column is `height` high, so that nothing is rounded before the end.
        let mut left: Vec<u64> = weights.map(|weight| u64::from(weight) * count).collect();
        let height = left.iter().map(|left| left / count).sum::<u64>();
        let mut columns: Vec<Column> =
            (0..count as u32).map(|own| Column { own: u32::MAX, other: own }).collect();
        let (mut low, mut high): (Vec<usize>, Vec<usize>) =
            (0..left.len()).partition(|at| left[*at] < height);
        while let (Some(short), Some(&tall)) = (low.pop(), high.last()) {
            columns[short] = Column { own: part(left[short], height), other: tall as u32 };
            left[tall] -= height - left[short];
            if left[tall] < height {
                high.pop();
                low.push(tall);
            }
        }
        Self(columns.into())
    }

    /// One of them.
    #[inline]
    pub(crate) fn choose(&self, random: &mut fastrand::Rng) -> u32 {
        let number = random.u64(..);
        // The upper half says which column (Lemire's multiplication), the lower one where in it.
        let at = ((number >> 32) * self.0.len() as u64) >> 32;
        let Column { own, other } = self.0[at as usize];
        if number as u32 <= own { at as u32 } else { other }
    }
}

/// A part of the height, in parts of 2^32.
fn part(left: u64, height: u64) -> u32 {
    let part = (u128::from(left) << 32) / u128::from(height);
    u32::try_from(part.saturating_sub(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_as_often_as_it_weighs() {
        let mut random = fastrand::Rng::with_seed(7);
        let many: Vec<u32> = (0..300).map(|_| random.u32(1..50)).collect();
        for weights in [&[1][..], &[1, 1, 1, 1], &[1, 6, 3], &[1, u32::MAX], &[u32::MAX; 5], &many]
        {
            let chooser = Chooser::new(weights.iter().copied());
            let sum: u64 = weights.iter().copied().map(u64::from).sum();
            // Exactly: what all columns give to each.
            let mut given = vec![0_u128; weights.len()];
            for (at, Column { own, other }) in chooser.0.iter().enumerate() {
                let own = u128::from(*own) + 1;
                given[at] += own;
                given[*other as usize] += (1 << 32) - own;
            }
            let whole = (weights.len() as u128) << 32;
            for (weight, given) in weights.iter().zip(given) {
                let expected = u128::from(*weight) * whole / u128::from(sum);
                // A part of 2^32 for each column that tops others up.
                assert!(given.abs_diff(expected) <= weights.len() as u128 + 1, "{weights:?}");
            }
        }
        let chooser = Chooser::new([1, 6, 3].into_iter());
        let mut counts = [0_u32; 3];
        (0..100_000).for_each(|_| counts[chooser.choose(&mut random) as usize] += 1);
        for (count, expected) in counts.iter().zip([10_000, 60_000, 30_000_u32]) {
            assert!(count.abs_diff(expected) < 1_000, "{counts:?}");
        }
    }
}
