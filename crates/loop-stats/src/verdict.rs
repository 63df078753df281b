//! Where the time of a long turn went: one judgement for all sources of figures.

/// From here on a turn is long.
pub const LONG_NS: u64 = 10_000_000;
/// Waits on other instances that one turn may have, as of a loop within a callback; beyond, the thread has gone over
/// to the other instance.
pub const NESTED_WAITS_MAX: u32 = 1024;

/// What a long turn did with most of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnKind {
    /// Slept in calls.
    Blocked,
    /// Used the CPU.
    Computed,
    /// Neither: it was ready and had no CPU.
    HeldUp,
}

/// Judges a turn by its CPU time and the time it was asleep. Either counts where it makes up half of the turn, or
/// would have made it long by itself: what the machine added does not excuse it.
#[must_use]
pub fn turn_kind(lasted_ns: u64, cpu_ns: u64, asleep_ns: u64) -> TurnKind {
    let counts = |ns: u64| ns >= LONG_NS || ns >= lasted_ns / 2;
    match (counts(asleep_ns), counts(cpu_ns)) {
        (true, true) if cpu_ns > asleep_ns => TurnKind::Computed,
        (true, _) => TurnKind::Blocked,
        (false, true) => TurnKind::Computed,
        (false, false) => TurnKind::HeldUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_milliseconds_count_whatever_the_machine_added() {
        const MS: u64 = 1_000_000;
        for (lasted, cpu, asleep, expected) in [
            (12, 12, 0, TurnKind::Computed),
            (250, 60, 0, TurnKind::Computed),
            (1190, 30, 0, TurnKind::Computed),
            (15, 0, 0, TurnKind::HeldUp),
            (30, 9, 9, TurnKind::HeldUp),
            (100, 0, 100, TurnKind::Blocked),
            (100, 0, 12, TurnKind::Blocked),
            (11, 0, 8, TurnKind::Blocked),
            (100, 30, 20, TurnKind::Computed),
            (100, 20, 30, TurnKind::Blocked),
        ] {
            let kind = turn_kind(lasted * MS, cpu * MS, asleep * MS);
            assert_eq!(kind, expected, "{lasted} ms, CPU {cpu}, asleep {asleep}");
        }
    }
}
