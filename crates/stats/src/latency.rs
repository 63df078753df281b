//! How finely latencies are kept in histograms, wherever they are taken: by `pollux load`, and by the callers of a herd.

/// The longest time that is distinguished, one hour; what is longer counts as that.
pub const LONGEST_NS: u64 = 3_600_000_000_000;

/// Significant digits of a latency.
pub const LATENCY_DIGITS: u8 = 3;
