//! What arms that took turns leave in a record: of a set, of a row, of the whole run.

use serde::{Deserialize, Serialize};

/// What interleaved turns gave for one arm in one set of fresh processes.
///
/// All arms of a point live at once, asleep, and the controller hands out turns in random order,
/// every arm once in each round. The ratio is formed within each round, so what drifts more slowly
/// than a round falls out of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turns {
    /// Rounds in which both this arm and the baseline had a turn with a figure.
    pub rounds: u32,
    /// Length of a turn, without its lead-in.
    pub turn_us: u64,
    /// Length of the lead-in of each turn, whose cost is not counted.
    pub lead_in_us: u64,
    /// Trimmed mean (a quarter at each end) over the rounds of ln(cost of this arm / cost of the
    /// baseline); absent for the baseline itself, and where the baseline had no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_ratio: Option<f64>,
    /// Deviation of a round: over the root of the rounds it is the standard error of `log_ratio`
    /// within this set (the winsorised deviation over the share that the trimming kept).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_sd: Option<f64>,
}

/// How a row was measured whose arms took turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowTurns {
    /// Median over the sets of their rounds.
    pub rounds: u32,
    /// Median over the sets of the length of a turn, without its lead-in.
    pub turn_us: u64,
    /// Standard deviation of the log ratio that a fresh start makes; absent below two sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_sets: Option<f64>,
    /// Deviation of the log ratio from round to round; absent likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_set: Option<f64>,
}

/// Whether to believe the rows whose arms took turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnsTrust {
    /// Rows that compare an arm with the baseline in turns; the A/A rows are not among them.
    pub rows: u32,
    /// Rows that compare whole runs: the gates and the badge speak of these.
    pub rows_of_whole_runs: u32,
    /// Widest half-width of a 95 % interval among the rows in turns, relative.
    pub half_width_max: Option<f64>,
    /// Fewest and most sets behind a row.
    pub sets: [u32; 2],
    /// Fewest and most rounds in a set, as medians of rows.
    pub rounds: [u32; 2],
    /// A/A rows with an interval.
    pub controls: u32,
    /// Widest half-width of their 95 % intervals, relative: no smaller fault of the method would show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_half_width_max: Option<f64>,
    /// Those whose 95 % interval holds 1: 95 in 100 should.
    pub controls_hold: u32,
    /// Those that still differ from 1 after the correction for all A/A rows: none should.
    pub controls_differ: u32,
    /// Load average of the machine before the run, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average: Option<String>,
}
