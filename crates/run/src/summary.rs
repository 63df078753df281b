//! The figures of a run: each process, and all together.

use std::time::Duration;

use pollux_loop_stats::{Counter, Figures, Module, Region, Site, Turn};

use crate::source::Source;
use crate::symbols::Symbols;

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

/// All processes.
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
        let (threads_lost, programs_uncounted) =
            (region.threads_lost(), region.programs_uncounted());
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
    /// What it is called: its program, else its thread.
    #[must_use]
    pub fn name(&self) -> &str {
        self.program.as_deref().unwrap_or(&self.figures.name)
    }
}
