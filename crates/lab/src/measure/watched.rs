//! What is looked at beside a whole run, as its pass asks for it: counters or a profile.

use super::{Done, Pass, RunSpec};
use crate::host::Profiling;
use crate::host::counting::{CountReadings, Counting};

/// Counters and a profile under way, of which a run has one or none.
pub(crate) struct Watched {
    counting: Option<Counting>,
    profiling: Option<Profiling>,
}

impl Watched {
    /// Starts to count what `threads` do, each with its process, or to sample the process `profiled`.
    pub(crate) fn start(
        spec: &RunSpec,
        threads: impl FnOnce() -> Vec<(u32, u32)>,
        profiled: Option<u32>,
    ) -> Self {
        let counting = match (&spec.pass, &spec.sources) {
            (Pass::Counting, Some(sources)) => Some(Counting::start(&threads(), sources)),
            _ => None,
        };
        let profiling = match (spec.pass, profiled) {
            (Pass::Profile { rate_hz }, Some(pid)) => Some(Profiling::start(pid, rate_hz)),
            _ => None,
        };
        Self { counting, profiling }
    }

    /// Empties the kernel's buffers, at the end of each interval.
    pub(crate) fn drain(&mut self) {
        self.profiling.iter_mut().for_each(Profiling::drain);
    }

    /// Ends both: a result with what they found.
    pub(crate) fn finish(self) -> Done {
        let kernel = self.counting.map(|counting| CountReadings::named(counting.stop()));
        let (samples, symbols) = self.profiling.map_or((None, Vec::new()), Profiling::finish);
        Done { kernel: kernel.unwrap_or_default(), samples, symbols, ..Done::default() }
    }
}
