//! A herd in turns: callers call while it is its turn, and workers sleep in between.
//!
//! The measured side is the workers and their callers together: the kernel wakes a herd in the time
//! of the callers. At the end the calls that each worker counted must add up to those that were
//! answered in all turns.

use std::collections::BTreeMap;
use std::time::Duration;

use pollux_host::task_use::TaskUse;

use super::callers::{CallPlan, CallResult, Served};
use super::processes::{Calling, Orders, Report, WorkerProcesses, start_pool, start_raw};
use super::sources::{Opened, Source, Wait};
use super::{Form, check_sum, for_each_call, form, requests_of, shares, wait_of};
use crate::arm::RAW_C;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::record::Interval;
use crate::subject::{self, Life, Subject, SubjectInfo, TurnSize};

/// So many times its planned window a fixed number of calls may take.
const WINDOWS_MAX: u32 = 20;
/// The callers are threads that each turn starts anew.
const SHORTEST_TURN: Duration = Duration::from_millis(20);

/// Workers and their callers.
pub(super) struct RunningHerd<'a> {
    calling: Calling,
    workers: Workers,
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

/// Which program's processes the workers are.
enum Workers {
    /// The lab's own, which wait for a source.
    Own {
        processes: WorkerProcesses,
        source: Source,
        opened: Opened,
        callers: usize,
        wait: Wait,
        ramp: u64,
    },
    /// Those of the program that calls: what each did so far, and how they wait.
    Foreign { served: Served, mechanism: String },
}

impl<'a> RunningHerd<'a> {
    /// Starts workers and callers of the arm.
    pub(crate) fn start(
        spec: &RunSpec,
        is_interrupted: &'a dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let workers = spec.count("workers");
        let callers = spec.count("callers");
        let source = Source::of(&spec.axes);
        let (calling, workers, pids) = match spec.arm.peer() {
            None => {
                let wait = wait_of(spec)?;
                let opened = Opened::open(source, callers, wait == Wait::Block)?;
                let processes =
                    WorkerProcesses::start(workers, source, wait, &opened, is_interrupted)?;
                let orders = Orders { source, address: opened.address, callers };
                let calling = Calling::start(&orders, &opened.for_callers(), is_interrupted)?;
                let pids = processes.pids();
                (calling, Workers::Own { processes, source, opened, callers, wait, ramp: 0 }, pids)
            }
            Some(peer) => {
                let (calling, mechanism) = match form(&spec.arm) {
                    Some(form) => {
                        let calling = start_pool(spec, form, is_interrupted)?;
                        let Form { wake, transport } = form;
                        (calling, format!("a message wakes {wake}, by {transport}"))
                    }
                    None if spec.arm.is(RAW_C) => {
                        (start_raw(spec, is_interrupted)?, "exclusive, in C".to_owned())
                    }
                    None => {
                        let what = format!("herd does not run on {peer}");
                        return Err(MeasureError::Spec(what));
                    }
                };
                let pids = calling.workers.clone();
                (calling, Workers::Foreign { served: Served::default(), mechanism }, pids)
            }
        };
        let before = TaskUse::of_processes(&pids);
        Ok(Self {
            calling,
            workers,
            pids,
            callers: Duration::ZERO,
            calls: 0,
            machine_switches: Some(0),
            before,
            is_interrupted,
        })
    }
}

impl RunningHerd<'_> {
    /// The ramp of a whole run; what follows is counted without it.
    pub(super) fn ramp(&mut self, spec: &RunSpec) -> Result<(), MeasureError> {
        let ramp_ms = spec.ramp_ms;
        if ramp_ms == 0 {
            return Ok(());
        }
        let plan = CallPlan { is_window: false, time_ms: ramp_ms, interval_ms: ramp_ms, calls: 0 };
        let (called, _) = self.call(plan, spec.ramp_time())?;
        self.calls = 0;
        match &mut self.workers {
            // They report it at their end.
            Workers::Own { ramp, .. } => *ramp = called.calls,
            Workers::Foreign { served, .. } => {
                let served = std::mem::take(served);
                check_sum("ramp", called.calls, served.calls.iter().sum())?;
            }
        }
        Ok(())
    }

    /// The window of a whole run: for its time, or until each caller made its calls.
    pub(super) fn window(
        &mut self,
        spec: &RunSpec,
    ) -> Result<(CallResult, Vec<Interval>), MeasureError> {
        let calls = spec.count("calls") as u64;
        let interval_ms = spec.interval().as_millis() as u64;
        let plan = CallPlan { is_window: true, time_ms: spec.runtime_ms, interval_ms, calls };
        let longest = if calls == 0 { 1 } else { WINDOWS_MAX };
        self.call(plan, spec.runtime() * longest)
    }

    /// The process numbers of the workers, and that of the callers.
    pub(super) fn pids(&self) -> (Vec<u32>, u32) {
        (self.pids.clone(), self.calling.pid())
    }

    /// Lets them call for no longer than `longest`.
    fn call(
        &mut self,
        plan: CallPlan,
        longest: Duration,
    ) -> Result<(CallResult, Vec<Interval>), MeasureError> {
        let workers = &self.workers;
        let complaint = || match workers {
            Workers::Own { processes, .. } => processes.complaint(),
            Workers::Foreign { .. } => None,
        };
        let (called, intervals) =
            self.calling.call(plan, longest, &complaint, self.is_interrupted)?;
        self.callers += Duration::from_nanos(called.cpu_ns);
        self.calls += called.calls;
        let switches = self.machine_switches.zip(called.machine_switches);
        self.machine_switches = switches.map(|(sum, now)| sum + now);
        if let Workers::Foreign { served, .. } = &mut self.workers {
            served.add(std::mem::take(&mut self.calling.served));
        }
        Ok((called, intervals))
    }

    /// Ends callers and workers: what the workers counted.
    pub(super) fn ended(self) -> Result<Work, MeasureError> {
        let Self { calling, workers, calls: answered, is_interrupted, .. } = self;
        let work = match workers {
            Workers::Own { processes, source, opened, callers, wait, ramp } => {
                drop(calling);
                let reports =
                    processes.end(&requests_of(source, &opened, callers)?, is_interrupted)?;
                let total = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
                check_sum("ramp", ramp, total(|report| report.calls_ramp))?;
                Work {
                    calls: reports.iter().map(|report| report.calls).collect(),
                    waits: Some([total(|report| report.waits), total(|report| report.empty)]),
                    rearms: wait == Wait::Uring,
                }
            }
            Workers::Foreign { served: Served { calls, waits }, .. } => {
                calling.end(is_interrupted)?;
                Work { calls, waits, rearms: false }
            }
        };
        check_sum("measurement", answered, work.calls.iter().sum())?;
        Ok(work)
    }
}

/// What workers counted.
pub(super) struct Work {
    /// The calls of each.
    pub(super) calls: Vec<u64>,
    /// Waits, and those that found nothing; a pool's workers don't count them.
    waits: Option<[u64; 2]>,
    /// Whether each wait makes its poll request anew.
    rearms: bool,
}

impl Work {
    /// How evenly calls were shared, and waits for each of them.
    pub(super) fn figures(&self) -> BTreeMap<String, f64> {
        let calls = self.calls.iter().sum::<u64>().max(1) as f64;
        let mut figures = shares(&self.calls);
        if let Some([waits, empty]) = self.waits {
            figures.insert("waits_per_call".to_owned(), waits as f64 / calls);
            figures.insert("empty_waits_per_call".to_owned(), empty as f64 / calls);
        }
        figures
    }

    /// The same as counters of a poller.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        let events = ("events", self.calls.iter().sum());
        let waits = self.waits.map(|[waits, empty]| [("waits", waits), ("empty_waits", empty)]);
        let rearms = self.waits.filter(|_| self.rearms).map(|[waits, _]| ("rearms", waits));
        let counters = [events].into_iter().chain(waits.into_iter().flatten()).chain(rearms);
        counters.map(|(name, count)| (name.to_owned(), count)).collect()
    }
}

impl Subject for RunningHerd<'_> {
    fn turn(&mut self, size: TurnSize) -> Result<u64, MeasureError> {
        let length = size.length;
        let time_ms = length.as_micros().div_ceil(1000) as u64;
        let plan = CallPlan { is_window: true, time_ms, interval_ms: time_ms, calls: 0 };
        Ok(self.call(plan, length)?.0.calls)
    }

    fn cpu_time(&mut self) -> Result<Duration, MeasureError> {
        Ok(subject::cpu_time_asleep(&self.pids)? + self.callers)
    }

    fn threads(&mut self) -> Vec<(u32, u32)> {
        self.pids.iter().map(|&pid| (pid, pid)).collect()
    }

    fn described(&self) -> SubjectInfo {
        let mechanism = match &self.workers {
            Workers::Own { wait, .. } => wait.name().to_owned(),
            Workers::Foreign { mechanism, .. } => mechanism.clone(),
        };
        let shortest_turn_us = SHORTEST_TURN.as_micros() as u64;
        SubjectInfo { mechanism: Some(mechanism), shortest_turn_us, ..SubjectInfo::default() }
    }

    fn end(self: Box<Self>) -> Result<Life, MeasureError> {
        let switches = TaskUse::of_processes(&self.pids).since(&self.before);
        let calls = self.calls;
        let callers_ns = self.callers.as_nanos() as u64;
        let mut figures = for_each_call(calls, &switches, callers_ns, self.machine_switches);
        let work = self.ended()?;
        figures.extend(work.figures());
        Ok(Life { figures, worker_calls: work.calls, ..Life::default() })
    }
}
