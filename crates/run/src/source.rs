//! Where the figures of a run come from, and which of them that source cannot have.

use pollux_loop_stats::Counter;

/// Who counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The library before the program's C library, which sees arguments and memory of each call.
    Library,
    /// Tracepoints of the kernel, for a process that already ran.
    Tracepoints {
        /// Records for which the kernel found no room.
        records_lost: u64,
    },
}

/// Figures that a source cannot have.
#[derive(Debug)]
pub struct Open {
    /// What they are called in the table.
    pub what: &'static str,
    /// Why they are not known.
    pub why: &'static str,
    /// The figures.
    pub counters: &'static [Counter],
}

const OF_TRACEPOINTS: &[Open] = &[
    Open {
        what: "events of closed descriptors, events one by one, EAGAIN right behind an event",
        why: "which descriptor an event belongs to is in the program's memory",
        counters: &[Counter::OneByOne, Counter::Stale, Counter::Unknown, Counter::AgainAfterEvent],
    },
    Open {
        what: "updates that set what was set or were taken back, EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE",
        why: "masks are in the program's memory",
        counters: &[
            Counter::Edges,
            Counter::Oneshots,
            Counter::Exclusives,
            Counter::ModsSame,
            Counter::Cancelled,
            Counter::ModsBack,
            Counter::WritableUnneeded,
        ],
    },
    Open {
        what: "reads and writes",
        why: "only those that would have blocked are recorded; a record for each would slow the program",
        counters: &[Counter::Transfers],
    },
];

impl Source {
    /// Its name in results for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Tracepoints { .. } => "tracepoints",
        }
    }

    /// Why a counter is not known, if it is not.
    #[must_use]
    pub fn unknown(self, counter: Counter) -> Option<&'static str> {
        self.open().iter().find(|open| open.counters.contains(&counter)).map(|open| open.why)
    }

    /// What it leaves open.
    #[must_use]
    pub fn open(self) -> &'static [Open] {
        match self {
            Self::Library => &[],
            Self::Tracepoints { .. } => OF_TRACEPOINTS,
        }
    }

    /// Records for which the kernel found no room.
    #[must_use]
    pub const fn records_lost(self) -> u64 {
        match self {
            Self::Library => 0,
            Self::Tracepoints { records_lost } => records_lost,
        }
    }
}
