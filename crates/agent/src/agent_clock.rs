//! The clock that an agent shows: the monotonic one of its host. A test can move it and let it drift, as another host's
//! would.

use pollux_sys::clock::monotonic_ns;

/// The clock of this agent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct AgentClock {
    began_ns: u64,
    offset_ns: i64,
    ppm: f64,
}

impl AgentClock {
    /// Moved by so many nanoseconds, and drifting by so many parts in a million from now on.
    pub(crate) fn new((offset_ns, ppm): (i64, f64)) -> Self {
        Self { began_ns: monotonic_ns(), offset_ns, ppm }
    }

    /// What it says now.
    pub(crate) fn now_ns(&self) -> u64 {
        self.shown(monotonic_ns())
    }

    /// What it says at a moment of the host's clock.
    fn shown(&self, host_ns: u64) -> u64 {
        let since_ns = host_ns.saturating_sub(self.began_ns) as f64;
        let drifted_ns = (since_ns * self.ppm / 1e6) as i64;
        host_ns.saturating_add_signed(self.offset_ns).saturating_add_signed(drifted_ns)
    }

    /// The moment of the host's clock at which it says that.
    pub(crate) fn host_ns(&self, shown_ns: u64) -> u64 {
        let near_ns = shown_ns.saturating_add_signed(self.offset_ns.saturating_neg());
        let since_ns = near_ns.saturating_sub(self.began_ns) as f64;
        let drifted_ns = since_ns - since_ns / (1.0 + self.ppm / 1e6);
        near_ns.saturating_add_signed((drifted_ns as i64).saturating_neg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_that_is_shown_is_that_of_the_host() {
        for (offset_ns, ppm) in [(0, 0.0), (7_000_000_000, 100.0), (-3_000_000, -100.0)] {
            let clock = AgentClock { began_ns: 60_000_000_000, offset_ns, ppm };
            for host_ns in [60_000_000_000, 61_000_000_007, 99_000_000_000] {
                let back_ns = clock.host_ns(clock.shown(host_ns));
                assert!(back_ns.abs_diff(host_ns) <= 2, "{host_ns} {back_ns}");
            }
            let _ = (clock.host_ns(0), clock.host_ns(u64::MAX), clock.shown(u64::MAX));
        }
    }
}
