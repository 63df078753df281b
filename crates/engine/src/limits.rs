//! What a loop bounds, with the defaults and their reasons.

use std::time::Duration;

/// Bounds and budgets of one loop.
///
/// ```
/// use pollux_engine::{Driver, EventLoop, Limits, NoSession};
/// use std::time::Duration;
///
/// let limits = Limits {
///     connections_max: 100,
///     write_timeout: Duration::from_secs(10),
///     ..Limits::default()
/// };
/// let event_loop = EventLoop::<NoSession>::open(Driver::default(), (), limits)?;
/// assert_eq!(event_loop.open_connections(), 0);
/// # Ok::<(), pollux_engine::LoopError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections open at once; the listener pauses there and continues when one closes.
    /// The default is far below what a process may open as files.
    pub connections_max: u32,
    /// Most connections to peers open at once, which are counted apart then; none to count them
    /// among `connections_max`. For servers that open a connection for what they accepted.
    pub connects_max: Option<u32>,
    /// Most connections accepted in one turn, after all live connections had theirs.
    pub accepts_per_turn: u32,
    /// Most events of one wait: a bigger batch makes the last one wait longer.
    pub events_per_turn: u32,
    /// How long a peer may take nothing of what was sent to it, wherever that waits: then the
    /// connection is closed, up to 1/16 later, and reset when it is a TCP one. What a TCP peer's
    /// kernel acknowledged counts as taken, on a unix socket what the peer has read.
    ///
    /// A peer's kernel reports what it read in steps, of 64 KiB on loopback: in the default time
    /// a peer with 1.1 kB/s makes one.
    pub write_timeout: Duration,
    /// What a peer has to take in each second, in bytes, while something waits for it; 0 for
    /// anything. It may fall behind by 64 KiB and by what this makes in `write_timeout`.
    pub write_rate_min: u64,
    /// How long the peer's last bytes are waited for after the output was ended and taken.
    pub linger_time: Duration,
    /// Most bytes dropped while lingering.
    pub linger_bytes: u64,
    /// How long the listener pauses when no descriptor or memory is left.
    pub accept_pause: Duration,
    /// Whether the loop spins instead of sleeping.
    pub busy_poll: bool,
    /// Whether a readiness loop takes error, hang-up and end of stream for readable where reading is
    /// wanted, so that the read alone says what it was: against a kernel or a poller that reports wrongly.
    /// A completion loop learns it from its reads in any case.
    pub mask_ends: bool,
}

impl Limits {
    /// Whether a loop with that many open connections, of which `outgoing` go to peers, has as many
    /// as it may have of those that it opens itself; then how many that are.
    pub(crate) fn connects_full(&self, open: u32, outgoing: u32) -> Option<u32> {
        let (count, most) = match self.connects_max {
            Some(most) => (outgoing, most),
            None => (open, self.connections_max),
        };
        (count >= most).then_some(most)
    }

    /// What counts against `connections_max`.
    pub(crate) fn accepted(&self, open: u32, outgoing: u32) -> u32 {
        if self.connects_max.is_some() { open - outgoing } else { open }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connects_max: None,
            accepts_per_turn: 64,
            events_per_turn: 512,
            write_timeout: Duration::from_secs(60),
            write_rate_min: 512,
            linger_time: Duration::from_secs(2),
            linger_bytes: 1 << 20,
            accept_pause: Duration::from_millis(100),
            busy_poll: false,
            mask_ends: false,
        }
    }
}
