//! The figures of a run: each process, all together, and over the time; which of them a source cannot
//! have.

use std::time::Duration;

use pollux_sys::loop_stats::{Counter, Figures, Module, Region, Site, Turn};
use serde::Serialize;

use pollux_host::symbols::Symbols;

/// Above this every second point goes, so that a long run has as many as a short one.
const POINTS_MAX: usize = 400;

/// A process with the sum of its threads.
#[derive(Clone, Debug)]
pub struct Process {
    /// What its threads did together; the name and the thread are those of the first one.
    pub figures: Figures,
    /// Threads that used epoll.
    pub threads: u64,
    /// The file of its program, where that is known.
    pub program: Option<String>,
    /// The files in its memory, the program first.
    pub(crate) modules: Vec<Module>,
}

#[derive(Clone, Debug)]
pub struct Summary {
    /// Since the program was started, or since it is followed.
    pub lasted: Duration,
    /// In the order in which they came to epoll.
    pub processes: Vec<Process>,
    /// Counters and histograms of all together; nothing where no process used epoll.
    pub total: Option<Figures>,
    /// Threads for which there was no room.
    pub threads_lost: u64,
    /// Programs that were started with an environment by which they are not counted.
    pub programs_uncounted: u64,
    /// Where the figures come from.
    pub source: Source,
}

impl Summary {
    pub(crate) fn of(region: Region<'_>, lasted: Duration, source: Source) -> Self {
        let mut processes: Vec<Process> = Vec::new();
        let mut total: Option<Figures> = None;
        for figures in region.figures() {
            match &mut total {
                Some(total) => total.add(&figures),
                None => total = Some(figures.clone()),
            }
            // A process that became another program has another image.
            let is_same = |known: &&mut Process| {
                (known.figures.pid, known.figures.image) == (figures.pid, figures.image)
            };
            if let Some(known) = processes.iter_mut().find(is_same) {
                known.figures.add(&figures);
                known.threads += 1;
            } else {
                let modules = figures.image.and_then(|image| region.image(image));
                let modules = modules.map_or_else(Vec::new, |image| image.modules());
                let name = modules.first().and_then(|module| module.path.file_name());
                let program = name.map(|name| name.to_string_lossy().into_owned());
                processes.push(Process { figures, threads: 1, program, modules });
            }
        }
        let threads_lost = region.threads_lost();
        let programs_uncounted = region.programs_uncounted();
        Self { lasted, processes, total, threads_lost, programs_uncounted, source }
    }

    /// A counter over all processes.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.total.as_ref().map_or(0, |total| total.get(counter))
    }

    /// Processes or threads whose counter is not 0.
    pub(crate) fn processes_with(&self, counter: Counter) -> usize {
        self.processes.iter().filter(|process| process.figures.get(counter) > 0).count()
    }

    /// How often something happened at call sites that have a name.
    pub(crate) fn times_at(&self, site: Site) -> u64 {
        let sites = self.processes.iter().flat_map(|process| &process.figures.sites);
        sites.filter(|figure| figure.site == site).map(|figure| figure.times).sum()
    }

    /// The call site where something happened most often, named.
    pub(crate) fn place_of(&self, site: Site, symbols: &mut Symbols) -> Option<String> {
        let sites = self.processes.iter().flat_map(|process| {
            let sites = process.figures.sites.iter().filter(|figure| figure.site == site);
            sites.map(move |figure| (process, figure))
        });
        let (process, figure) = sites.max_by_key(|(_, figure)| figure.times)?;
        Some(symbols.name(&process.modules, figure.caller))
    }

    /// The longest turns of all processes, each with its process.
    pub(crate) fn turns<'a>(&'a self) -> Vec<(&'a Process, &'a Turn)> {
        const SHOWN: usize = 5;
        let turns = |process: &'a Process| process.figures.turns.iter().map(move |t| (process, t));
        let mut all: Vec<_> = self.processes.iter().flat_map(turns).collect();
        all.sort_by_key(|(_, turn)| std::cmp::Reverse(turn.lasted_ns));
        all.truncate(SHOWN);
        all
    }
}

impl Process {
    /// Its program, else its first thread.
    pub(crate) fn program(&self) -> &str {
        self.program.as_deref().unwrap_or(&self.figures.name)
    }

    /// What it is called for people: its program, and before it the name that it was started by, where
    /// that is another one, as of a link.
    #[must_use]
    pub fn name(&self) -> String {
        let (program, Figures { name, pid, tid, .. }) = (self.program(), &self.figures);
        if pid != tid || program.starts_with(name.as_str()) {
            program.to_owned()
        } else {
            format!("{name} ({program})")
        }
    }
}

/// Where the figures of a run come from.
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
pub(crate) struct Open {
    /// What they are called in the table.
    pub what: &'static str,
    /// Why they are not known.
    pub why: &'static str,
    pub counters: &'static [Counter],
}

const OF_TRACEPOINTS: &[Open] = &[
    Open {
        what: "events of closed descriptors, events one by one, EAGAIN right behind an event",
        why: "which descriptor an event belongs to is in the program's memory",
        counters: &[Counter::OneByOne, Counter::Stale, Counter::Unknown, Counter::AgainAfterEvent],
    },
    Open {
        what: "updates that changed nothing or were undone, EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE",
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

/// Why figures of updates are not known where the program registers past the C library.
const PAST: &str = "registrations were made past the C library, by system calls of the program's own or by io_uring";
/// What is not known then.
const OF_PAST: &[Counter] = &[
    Counter::Adds,
    Counter::Mods,
    Counter::Dels,
    Counter::Edges,
    Counter::Oneshots,
    Counter::Exclusives,
    Counter::ModsSame,
    Counter::Cancelled,
    Counter::ModsBack,
    Counter::WritableUnneeded,
    Counter::Readds,
    Counter::Stale,
    Counter::Unknown,
    Counter::OneByOne,
    Counter::AgainAfterEvent,
    Counter::AcceptsWoken,
    Counter::AcceptsEmpty,
];

/// Why a counter of these figures is not known, if it is not.
pub(crate) fn unknown(source: Source, of: &Figures, counter: Counter) -> Option<&'static str> {
    let is_past = of.get(Counter::PastRegistrations) > 0 && OF_PAST.contains(&counter);
    is_past.then_some(PAST).or_else(|| source.unknown(counter))
}

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
    pub(crate) fn open(self) -> &'static [Open] {
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

/// The figures up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Mark {
    at_s: f64,
    waits: u64,
    events: u64,
    updates: u64,
    accepted: u64,
    wait_ns: u64,
    turn_ns: u64,
}

/// What happened between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    pub(crate) waits: u64,
    pub(crate) events: u64,
    /// ADD, MOD and DEL.
    pub(crate) updates: u64,
    pub(crate) accepted: u64,
    /// Share of the time of waits and turns; nothing where there was neither.
    pub(crate) in_waits: Option<f64>,
}

/// The figures at moments of a run.
#[derive(Clone, Debug, Default)]
pub struct Course {
    marks: Vec<Mark>,
}

impl Course {
    /// Notes the figures so far.
    pub fn note(&mut self, summary: &Summary) {
        if self.marks.len() >= POINTS_MAX {
            let mut place = 0;
            self.marks.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
        let get = |counter| summary.get(counter);
        self.marks.push(Mark {
            at_s: summary.lasted.as_secs_f64(),
            waits: get(Counter::Waits),
            events: get(Counter::Events),
            updates: get(Counter::Adds) + get(Counter::Mods) + get(Counter::Dels),
            accepted: get(Counter::Accepted),
            wait_ns: get(Counter::WaitNs),
            turn_ns: get(Counter::TurnNs),
        });
    }

    /// Between two notes, for as long as there are few.
    #[must_use]
    pub fn interval(lasted: Duration) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(250);
        SHORTEST.max(lasted / POINTS_MAX as u32)
    }

    /// What happened from note to note.
    pub(crate) fn intervals(&self) -> Vec<Interval> {
        let before = [Mark::default()].into_iter().chain(self.marks.iter().copied());
        let between = |(before, now): (Mark, &Mark)| {
            let waits_ns = now.wait_ns.saturating_sub(before.wait_ns);
            let all_ns = waits_ns + now.turn_ns.saturating_sub(before.turn_ns);
            Interval {
                from_s: before.at_s,
                to_s: now.at_s,
                waits: now.waits.saturating_sub(before.waits),
                events: now.events.saturating_sub(before.events),
                updates: now.updates.saturating_sub(before.updates),
                accepted: now.accepted.saturating_sub(before.accepted),
                in_waits: (all_ns > 0).then(|| waits_ns as f64 / all_ns as f64),
            }
        };
        before.zip(&self.marks).map(between).collect()
    }
}

impl Interval {
    pub(crate) fn seconds(&self) -> f64 {
        self.to_s - self.from_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_started_by_a_link_has_both_names() {
        let memory = crate::attach::memory();
        let region = Region::begin(&memory).expect("room");
        let mut name = [0; 16];
        name[..5].copy_from_slice(b"redis");
        region.claim_cell().expect("room").name(7, 7, name, None);
        let summary = Summary::of(region, Duration::ZERO, Source::Library);
        let mut process = summary.processes.into_iter().next().expect("one");
        for (program, expected) in [
            (None, "redis"),
            (Some("redis-server"), "redis-server"),
            (Some("check-rdb"), "redis (check-rdb)"),
        ] {
            process.program = program.map(str::to_owned);
            assert_eq!(process.name(), expected);
        }
    }

    #[test]
    fn a_long_run_keeps_few_points_and_loses_no_count() {
        let mut course = Course::default();
        let mut summary = Summary::of(
            Region::begin(&crate::attach::memory()).expect("room"),
            Duration::ZERO,
            Source::Library,
        );
        for second in 1..=5000 {
            summary.lasted = Duration::from_secs(second);
            course.note(&summary);
            course.marks.last_mut().expect("noted").waits = second * 10;
        }
        let intervals = course.intervals();
        assert!(intervals.len() <= POINTS_MAX, "{}", intervals.len());
        assert_eq!(intervals.iter().map(|interval| interval.waits).sum::<u64>(), 50_000);
        assert!(intervals.windows(2).all(|pair| pair[0].to_s == pair[1].from_s));
    }
}
