//! A herd in turns: callers call while it is its turn, and workers sleep in between.
//!
//! The measured side is the workers and their callers together: the kernel wakes a herd in the time
//! of whoever calls. At the end the calls that each worker counted must add up to those that were
//! answered in all turns.

use std::time::Duration;

use pollux_xatmi::worker::Wake;

use super::callers::{Calls, Go, Orders};
use super::crew::Crew;
use super::source::{Opened, Source};
use super::wait_of;
use super::{Calling, check_sum, for_each_call, pool, raw, requests_of, shares, wake};
use crate::arm::{RAW_C, Wait};
use crate::error::MeasureError;
use crate::host::process::TaskUse;
use crate::measure::RunSpec;
use crate::turns::{self, Described, Life, Stint, Subject};

/// Workers and their callers.
pub(super) struct Crewed<'a> {
    calling: Calling,
    crew: Workers,
    pids: Vec<u32>,
    /// CPU time that the callers have used in all turns.
    callers: Duration,
    /// Calls that were answered in all turns.
    calls: u64,
    /// Context switches of the whole machine in all turns; none where they can't be read.
    machine_switches: Option<u64>,
    /// What the workers had used before the first turn.
    before: TaskUse,
    is_interrupted: &'a dyn Fn() -> bool,
}

/// Whose processes the workers are.
enum Workers {
    /// The lab's own, which wait for a source.
    Own { crew: Crew, source: Source, opened: Opened, callers: usize, wait: Wait },
    /// A pool's.
    Pool { manager: pool::Manager, before: pool::Rows, wake: Wake },
    /// Those of the program in C, which calls as well: calls of each worker so far.
    Raw(Vec<u64>),
}

impl<'a> Crewed<'a> {
    /// Starts workers and callers of the arm.
    pub(crate) fn start(
        spec: &RunSpec,
        is_interrupted: &'a dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let (workers, callers) = (spec.count("workers"), spec.count("callers"));
        let source = Source::of(&spec.axes);
        let (calling, crew, pids) = match spec.arm.peer() {
            None => {
                let wait = wait_of(spec)?;
                let opened = Opened::open(source, callers, wait == Wait::Block)?;
                let crew = Crew::start(workers, source, wait, &opened, is_interrupted)?;
                let calls = Calls::Source { source, address: opened.address };
                let orders = Orders { calls, callers };
                let calling = Calling::start(&orders, &opened.for_callers(), is_interrupted)?;
                let pids = crew.pids();
                (calling, Workers::Own { crew, source, opened, callers, wait }, pids)
            }
            Some(_) if spec.arm.is(RAW_C) => {
                let calling = raw::start(spec, is_interrupted)?;
                let pids = calling.crew.clone();
                (calling, Workers::Raw(vec![0; workers]), pids)
            }
            Some(peer) => {
                let unknown = || MeasureError::Spec(format!("herd does not run on {peer}"));
                let wake = wake(&spec.arm).ok_or_else(unknown)?;
                let (manager, calling) = pool::start(spec, wake, is_interrupted)?;
                let before = manager.rows()?;
                let pids = before.values().map(|row| row.pid).collect();
                (calling, Workers::Pool { manager, before, wake }, pids)
            }
        };
        let before = TaskUse::of_processes(&pids);
        Ok(Self {
            calling,
            crew,
            pids,
            callers: Duration::ZERO,
            calls: 0,
            machine_switches: Some(0),
            before,
            is_interrupted,
        })
    }
}

impl Subject for Crewed<'_> {
    fn turn(&mut self, stint: Stint) -> Result<u64, MeasureError> {
        let length = stint.length;
        let time_ms = length.as_micros().div_ceil(1000) as u64;
        let go = Go { is_window: true, time_ms, interval_ms: time_ms, calls: 0 };
        let crew = &self.crew;
        let complaint = || match crew {
            Workers::Own { crew, .. } => crew.complaint(),
            Workers::Pool { .. } | Workers::Raw(_) => None,
        };
        let (called, _) = self.calling.call(go, length, &complaint, self.is_interrupted)?;
        self.callers += Duration::from_nanos(called.cpu_ns);
        self.calls += called.calls;
        let switches = self.machine_switches.zip(called.machine_switches);
        self.machine_switches = switches.map(|(sum, now)| sum + now);
        if let Workers::Raw(counts) = &mut self.crew {
            let served = std::mem::take(&mut self.calling.served);
            counts.iter_mut().zip(served.calls).for_each(|(sum, calls)| *sum += calls);
        }
        Ok(called.calls)
    }

    fn cpu_time(&mut self) -> Result<Duration, MeasureError> {
        Ok(turns::cpu_time_asleep(&self.pids)? + self.callers)
    }

    fn threads(&mut self) -> Vec<(u32, u32)> {
        self.pids.iter().map(|&pid| (pid, pid)).collect()
    }

    fn described(&self) -> Described {
        let mechanism = match &self.crew {
            Workers::Own { wait, .. } => wait.name().to_owned(),
            Workers::Pool { wake, .. } => format!("a message wakes {wake}"),
            Workers::Raw(_) => "exclusive, in C".to_owned(),
        };
        Described { mechanism: Some(mechanism), ..Described::default() }
    }

    fn end(self: Box<Self>) -> Result<Life, MeasureError> {
        let switches = TaskUse::of_processes(&self.pids).since(&self.before);
        let Self { calling, crew, calls, is_interrupted, callers, machine_switches, .. } = *self;
        let callers_ns = callers.as_nanos() as u64;
        let mut figures = for_each_call(calls, &switches, callers_ns, machine_switches);
        let of_each: Vec<u64> = match crew {
            Workers::Own { crew, source, opened, callers, .. } => {
                drop(calling);
                let reports = crew.end(&requests_of(source, &opened, callers)?, is_interrupted)?;
                let total = |count: fn(&super::worker::Report) -> u64| {
                    reports.iter().map(count).sum::<u64>() as f64 / calls.max(1) as f64
                };
                figures.insert("waits_per_call".to_owned(), total(|report| report.waits));
                figures.insert("empty_waits_per_call".to_owned(), total(|report| report.empty));
                reports.iter().map(|report| report.calls).collect()
            }
            Workers::Pool { manager, before, .. } => {
                let after = manager.rows()?;
                drop(calling);
                manager.end()?;
                pool::calls_between(&before, &after)?
            }
            Workers::Raw(counts) => {
                calling.end(is_interrupted)?;
                counts
            }
        };
        check_sum("turns", calls, of_each.iter().sum())?;
        figures.extend(shares(&of_each));
        Ok(Life { figures, worker_calls: of_each })
    }
}
