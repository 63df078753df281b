//! The laboratory's statistics: from paired block values to a verdict that can be trusted.
//!
//! Called by the runner (block order, when to stop), by the judge (estimates, verdicts,
//! steadiness) and by the report (flags, summaries). Everything here is a pure function of its
//! arguments: no I/O, no clock, no global state, and every random draw comes from a seed that the
//! caller can see, so a result file always gives the same numbers again.
//!
//! # The recipe for costs: turns
//!
//! Where arms can take turns, [`set_ratio`] forms the ratio within each round, its trimmed mean is the figure
//! of one set of fresh processes, and the interval is Student's over sets
//! ([`RatioEstimate::over_sets`]). Any difference that survives the correction counts, however small,
//! and equivalence is shown within the least effect ([`Delta::in_turns`]). The A/A arm is a control
//! whose interval must hold 1; no other row has to leave a band of noise. Fewer sets than [`SETS_MIN`]
//! give no verdict, but a bound where the difference is large ([`bounds_of_few_sets`]).
//!
//! # The recipe for whole runs
//!
//! 1. The sample is one *fresh process run*; events inside a run share its luck and are never
//!    counted as samples (Kalibera & Jones, "Quantifying performance changes with effect size
//!    confidence intervals").
//! 2. Runs come in *blocks*: each arm once, in a seeded order that gives every arm every position
//!    ([`block_order`]). Machine moods that last longer than a block hit all arms alike and cancel in
//!    the ratio (Abedi & Brecht, ICPE 2017, randomised multiple interleaved trials). One arm is a
//!    second copy of the baseline: the A/A arm.
//! 3. Per block, `d = ln(arm / baseline)`. The estimate is the mean of `d`, which is the geometric
//!    mean ratio, with a confidence interval ([`RatioEstimate`]): studentised bootstrap from ten blocks
//!    on, Student's t below, moving blocks when neighbours resemble each other.
//! 4. Blocks are added until the intervals are narrow enough or the limit is reached
//!    ([`StoppingRule`]); the rule never sees a verdict, because stopping at the first significant
//!    result manufactures significant results.
//! 5. What the A/A arm shows is noise by construction. Its interval sets the [`noise_level`], and the
//!    effect that counts is the larger of this level and the least effect that the job cares about.
//! 6. The [`Verdict`] compares interval and band, and has three honest outcomes: different, equivalent
//!    (the reverse claim, which needs its own evidence), or inconclusive with the number of blocks that
//!    would settle it. A table of many rows is then corrected by [`holm`] (Holm 1979).
//! 7. Inside a run, [`steadiness`] says whether there was one level at all: a run may never reach a
//!    steady state (Barrett et al., OOPSLA 2017), and then its mean describes nothing.
//! 8. [`tukey_flags`] marks outliers (Tukey 1977); every value stays in. Dropping what looks odd is
//!    how benchmarks lie (Hoefler & Belli, SC'15).
#![forbid(unsafe_code)]

pub mod agree;
mod change;
mod confidence;
mod drift;
mod few;
mod latency;
mod random;
mod ratio;
mod sample_size;
mod steady;
mod summary;
mod verdict;

#[cfg(test)]
mod acceptance;

pub use change::{BETWEEN_RUNS, Change};
pub use confidence::{Interval, Method, Resampling};
pub use drift::{SetChange, change_over_sets, change_within_sets};
pub use few::bounds_of_few_sets;
pub use latency::{LATENCY_DIGITS, LONGEST_NS};
pub use random::{Rng, block_order};
pub use ratio::{
    Levels, RatioError, RatioEstimate, SetRatio, log_ratios, ratio_of_sums, set_ratio,
};
pub use sample_size::{
    Aim, Effort, ROUNDS_MAX, ROUNDS_MIN, SETS_MAX, SETS_MIN, SETS_NARROW, SoFar, StoppingRule,
    Trial, comes_now, rounds_within,
};
pub use steady::{Steadiness, steadiness};
pub use summary::{
    Outlier, gini, lorenz, lorenz_at, mean, mean_half_width_rel, mean_shares, median, quantile,
    standard_deviation, student_t_quantile, tukey_flags,
};
pub use verdict::{
    Delta, Direction, MORE_BLOCKS_MAX, Row, Verdict, decision_delta, holm, noise_level,
};
