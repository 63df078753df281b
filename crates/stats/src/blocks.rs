//! The order of arms inside each block: random, but fair about positions.
//!
//! Called by the planner and the runner. It must never depend on how many blocks will be run: the
//! order of a block stays the same when blocks are added later.

use super::rng::Rng;

/// The order in which block number `block` (from 0) runs arms `0..arms`.
///
/// Each group of `arms` consecutive blocks is a Latin square: every arm stands in every position
/// exactly once. The square is Williams' zigzag design (1949), so with an even number of arms each arm
/// also follows each other arm exactly once per square, which spreads what one run leaves behind for
/// the next (warm caches, sockets in TIME_WAIT). Arm labels and row order are drawn anew for each
/// square from `seed`. A last, incomplete square puts an arm into any one position at most once.
#[must_use]
pub fn block_order(arms: usize, block: usize, seed: u64) -> Vec<usize> {
    if arms == 0 {
        return Vec::new();
    }
    let mut rng = Rng::stream(seed, (block / arms) as u64);
    let labels = shuffled(arms, &mut rng);
    let rows = shuffled(arms, &mut rng);
    let shift = rows[block % arms];
    (0..arms).map(|position| labels[(zigzag(position, arms) + shift) % arms]).collect()
}

/// `0..count` in random order.
fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    rng.shuffle(&mut numbers);
    numbers
}

/// The sequence 0, 1, n-1, 2, n-2, …: neighbours differ by a different step at every place.
fn zigzag(position: usize, arms: usize) -> usize {
    if position % 2 == 1 { position.div_ceil(2) } else { (arms - position / 2) % arms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_stands_in_every_position_once_per_square() {
        for arms in 1..=9 {
            let mut seen = vec![vec![0; arms]; arms];
            for block in 0..arms * 3 {
                for (position, arm) in block_order(arms, block, 77).into_iter().enumerate() {
                    seen[arm][position] += 1;
                }
            }
            assert!(seen.iter().flatten().all(|&count| count == 3), "{arms}: {seen:?}");
        }
    }

    #[test]
    fn an_even_number_of_arms_balances_what_precedes_what() {
        let arms = 6;
        let mut follows = vec![vec![0; arms]; arms];
        for block in 0..arms {
            for pair in block_order(arms, block, 5).windows(2) {
                follows[pair[0]][pair[1]] += 1;
            }
        }
        for (first, row) in follows.iter().enumerate() {
            for (second, &count) in row.iter().enumerate() {
                assert_eq!(count, usize::from(first != second), "{first} before {second}");
            }
        }
    }

    #[test]
    fn twelve_blocks_of_five_arms_are_nearly_balanced() {
        let mut seen = [[0_u32; 5]; 5];
        for block in 0..12 {
            for (position, arm) in block_order(5, block, 1).into_iter().enumerate() {
                seen[arm][position] += 1;
            }
        }
        assert!(seen.iter().flatten().all(|count| (2..=3).contains(count)), "{seen:?}");
    }

    #[test]
    fn the_order_follows_the_seed_alone() {
        let plan = |seed| (0..8).map(|block| block_order(4, block, seed)).collect::<Vec<_>>();
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn no_arms_and_one_arm_are_plain() {
        assert!(block_order(0, 3, 1).is_empty());
        assert_eq!(block_order(1, 3, 1), [0]);
    }
}
