//! Where the time of a long turn went: one judgement for all sources of figures.

/// From here on a turn is long.
pub const LONG_NS: u64 = 10_000_000;
/// Waits on other instances that one turn may have, as of a loop within a callback; beyond, the thread has gone over
/// to the other instance.
pub const NESTED_WAITS_MAX: u32 = 1024;

/// What a long turn did with its time; with neither it was ready and had no CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnKinds {
    /// Used the CPU.
    pub computed: bool,
    /// Slept in calls.
    pub blocked: bool,
}

/// Judges a turn by its CPU time and the time it was asleep. Each counts by itself, where it makes up half of the
/// turn or would have made it long alone: neither excuses the other, nor does what the machine added.
#[must_use]
pub fn turn_kinds(lasted_ns: u64, cpu_ns: u64, asleep_ns: u64) -> TurnKinds {
    let counts = |ns: u64| ns >= LONG_NS || ns >= lasted_ns / 2;
    TurnKinds { computed: counts(cpu_ns), blocked: counts(asleep_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_milliseconds_count_whatever_else_the_turn_did() {
        const MS: u64 = 1_000_000;
        for (lasted, cpu, asleep, computed, blocked) in [
            (12, 12, 0, true, false),
            (250, 60, 0, true, false),
            (1190, 30, 0, true, false),
            (15, 0, 0, false, false),
            (30, 9, 9, false, false),
            (100, 0, 100, false, true),
            (100, 0, 12, false, true),
            (11, 0, 8, false, true),
            (80, 20, 60, true, true),
            (100, 30, 20, true, true),
            (100, 9, 91, false, true),
            (100, 80, 9, true, false),
        ] {
            let kinds = turn_kinds(lasted * MS, cpu * MS, asleep * MS);
            let expected = TurnKinds { computed, blocked };
            assert_eq!(kinds, expected, "{lasted} ms, CPU {cpu}, asleep {asleep}");
        }
    }
}
