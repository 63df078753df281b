//! How long requests take inside a loop: from a head that is here to an answer that is handed
//! over, without the system call that sends it.
//!
//! Only counted with `request-times`: it costs a clock reading for each request. The loop's
//! thread writes, the endpoints for monitoring read. Buckets are quarters of powers of two, so a
//! time is known to a fifth.

use pollux_poller::Count;

/// Times of this many bits and more nanoseconds share the last bucket: over a minute.
const BITS_MAX: u32 = 36;
const PARTS: usize = 4;
const BUCKETS: usize = PARTS * (BITS_MAX as usize - 1);

/// Times of the requests of one loop.
#[derive(Debug)]
pub struct RequestTimes {
    buckets: [Count; BUCKETS],
    sum_ns: Count,
}

impl Default for RequestTimes {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Count::default()), sum_ns: Count::default() }
    }
}

impl RequestTimes {
    pub(crate) fn record(&self, nanoseconds: u64) {
        self.buckets[bucket(nanoseconds)].add(1);
        self.sum_ns.add(nanoseconds);
    }

    /// Pairs of a time in nanoseconds and how many requests took less, rising; empty buckets at
    /// both ends are left out.
    #[must_use]
    pub fn below(&self) -> Vec<(u64, u64)> {
        let mut below = 0;
        let total = self.count();
        let pairs = self.buckets.iter().enumerate().filter_map(|(index, count)| {
            let before = below;
            below += count.value();
            (below > 0 && before < total).then(|| (end_ns(index), below))
        });
        pairs.collect()
    }

    /// Requests that were timed.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Count::value).sum()
    }

    /// Time of all of them.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.value()
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let Some(power) = nanoseconds.checked_ilog2().filter(|power| *power >= 2) else {
        return nanoseconds as usize;
    };
    let part = (nanoseconds >> (power - 2)) as usize % PARTS;
    (PARTS * (power as usize - 1) + part).min(BUCKETS - 1)
}

/// The shortest time that is too long for a bucket.
fn end_ns(index: usize) -> u64 {
    if index < PARTS {
        return index as u64 + 1;
    }
    let (power, part) = (index / PARTS + 1, index % PARTS);
    ((PARTS + part + 1) as u64) << (power - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_the_bucket_that_ends_behind_it() {
        let edges = (0..BITS_MAX).flat_map(|bits| {
            let power = 1_u64 << bits;
            [power.saturating_sub(1), power, power + 1, power + power / 4, power + power / 2 + 1]
        });
        for nanoseconds in edges {
            let index = bucket(nanoseconds);
            assert!(nanoseconds < end_ns(index), "{nanoseconds} in {index}");
            let begin = if index == 0 { 0 } else { end_ns(index - 1) };
            assert!(nanoseconds >= begin, "{nanoseconds} in {index} from {begin}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn what_is_read_adds_up() {
        let times = RequestTimes::default();
        assert_eq!((times.below(), times.count()), (vec![], 0));
        [100, 100, 1_000].iter().for_each(|each| times.record(*each));
        let below = times.below();
        assert_eq!(below.first(), Some(&(112, 2)));
        assert_eq!(below.last(), Some(&(1_024, 3)));
        assert_eq!((times.count(), times.sum_ns()), (3, 1_200));
    }
}
