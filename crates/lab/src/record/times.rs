//! The part of the result file that holds how long requests took inside a server.
//!
//! The server counts into buckets; the lab keeps those that are not empty. What is read out of
//! them is as exact as they are narrow: a fifth.

use serde::{Deserialize, Serialize};

/// One run of the pass in which a server times each request inside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestTimesRun {
    /// The experiment.
    pub experiment: String,
    /// Label of the point.
    pub point: String,
    /// The arm.
    pub arm: String,
    /// What it timed.
    pub times: RequestTimes,
}

/// A histogram of the time of a request inside the server: from a head that is here to an answer
/// handed over, without the system call that sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestTimes {
    /// Requests that were timed.
    pub requests: u64,
    /// Time of all of them.
    pub sum_ns: f64,
    /// Buckets that are not empty, rising.
    pub buckets: Vec<TimeBucket>,
}

/// Requests that took about as long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeBucket {
    /// The shortest time in it.
    pub from_ns: f64,
    /// The shortest time that is too long for it.
    pub below_ns: f64,
    /// How many.
    pub requests: u64,
}

impl RequestTimes {
    /// The time within which this share of the requests was done, evenly spread over its bucket;
    /// none where nothing was timed.
    ///
    /// # Panics
    /// If `share` is not between 0 and 1.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<f64> {
        assert!((0.0..=1.0).contains(&share), "{share} is not a share");
        let wanted = share * self.requests as f64;
        let mut before = 0.0;
        for bucket in &self.buckets {
            let here = bucket.requests as f64;
            if before + here >= wanted && here > 0.0 {
                let part = (wanted - before).max(0.0) / here;
                return Some(bucket.from_ns + part * (bucket.below_ns - bucket.from_ns));
            }
            before += here;
        }
        self.buckets.last().map(|bucket| bucket.below_ns)
    }

    /// Mean time, which the server sums up exactly; none where nothing was timed.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.sum_ns / self.requests as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(from_ns: f64, below_ns: f64, requests: u64) -> TimeBucket {
        TimeBucket { from_ns, below_ns, requests }
    }

    #[test]
    fn quantiles_lie_in_their_buckets() {
        let times = RequestTimes {
            requests: 100,
            sum_ns: 60_000.0,
            buckets: vec![bucket(512.0, 640.0, 90), bucket(1024.0, 1280.0, 10)],
        };
        assert_eq!(times.quantile_ns(0.45), Some(576.0));
        assert_eq!(times.quantile_ns(0.9), Some(640.0));
        assert_eq!(times.quantile_ns(0.95), Some(1152.0));
        assert_eq!(times.quantile_ns(1.0), Some(1280.0));
        assert_eq!(times.mean_ns(), Some(600.0));
        let nothing = RequestTimes { requests: 0, sum_ns: 0.0, buckets: Vec::new() };
        assert_eq!((nothing.quantile_ns(0.5), nothing.mean_ns()), (None, None));
    }
}
