//! Carries out a plan: starts the threads, shows how far they are, and waits for the outcome.
//!
//! The command line and the lab call it. It prints nothing.

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control::{Control, Counts, Phase, Start};
use crate::gather::{Gatherer, RunSnapshot, ServerCpu, ThreadOutcome};
use crate::plan::check;
use crate::requests::Requests;
use crate::schedule::{Budget, OpenLoop, Supply};
use crate::session::Tls;
use crate::worker::{Worker, WorkerParts, share};
use crate::{Arrivals, Errors, LoadError, Outcome, Pace, Plan, Second, Totals};

/// Starts a plan, whose threads run until its time is over: see [`Load::start`].
#[derive(Clone, Copy, Debug)]
pub struct Load;

impl Load {
    /// Checks `plan` and starts its threads.
    ///
    /// # Errors
    /// [`LoadError`]: the plan makes no sense, its driver or CPUs are not available, or a thread
    /// could not be started. Nothing runs then.
    pub fn start(plan: Plan) -> Result<Running, LoadError> {
        Self::start_when(plan, Start::WhenReady)
    }

    /// The same, but its threads open the connections and then wait until [`Running::begin_at`] says when requests begin.
    ///
    /// # Errors
    /// As [`Load::start`].
    pub fn prepare(plan: Plan) -> Result<Running, LoadError> {
        Self::start_when(plan, Start::WhenTold)
    }

    fn start_when(mut plan: Plan, start: Start) -> Result<Running, LoadError> {
        plan.reach();
        check(&plan)?;
        let tls = Tls::of(&plan)?;
        let server = plan.server_pid.map(server).transpose()?;
        let plan = Arc::new(plan);
        let control = Arc::new(Control::new(plan.threads, plan.warm_up, plan.end.after, start));
        let pool = Arc::new(AtomicU64::new(plan.end.requests.unwrap_or(0)));
        let (sender, receiver) = channel();
        let (opened_sender, opened) = channel();
        let mut spares = Vec::new();
        let mut workers = Workers { control: Arc::clone(&control), threads: Vec::new() };
        for thread in 0..plan.threads {
            let (spare_sender, spare_receiver) = channel();
            spares.push(spare_sender);
            let parts = WorkerParts {
                thread,
                plan: Arc::clone(&plan),
                control: Arc::clone(&control),
                requests: Requests::new(&plan, thread)?,
                supply: supply(&plan, thread),
                budget: budget(&plan, &pool, thread),
                tls: tls.clone(),
                sender: sender.clone(),
                spares: spare_receiver,
            };
            let opened = opened_sender.clone();
            let worker = named(format!("load-{thread}"), move || work(parts, opened))?;
            workers.threads.push(worker);
        }
        drop((sender, opened_sender));
        opened.iter().collect::<Result<(), LoadError>>()?;
        let seen = Arc::default();
        let gatherer = Gatherer::new(
            Arc::clone(&plan),
            Arc::clone(&control),
            receiver,
            spares,
            Arc::clone(&seen),
            server,
        );
        let gathering = named("load-sum".to_owned(), move || sum_up(gatherer, workers))?;
        Ok(Running { control, seen, gathering })
    }
}

fn server(pid: u32) -> Result<ServerCpu, LoadError> {
    ServerCpu::of(pid).map_err(|error| LoadError::Plan {
        what: "--server-pid",
        why: format!(
            "process {pid} can't be observed: {error}; give the number of a server that runs here"
        ),
    })
}

/// A run that is under way.
#[derive(Debug)]
pub struct Running {
    control: Arc<Control>,
    seen: Arc<Mutex<RunSnapshot>>,
    gathering: JoinHandle<Result<Outcome, LoadError>>,
}

/// How far a run is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Which part of it runs.
    pub phase: Phase,
    /// Time since requests began, the warm-up included; zero before.
    pub elapsed: Duration,
    /// The last whole second; `None` in the first one.
    pub last: Option<Second>,
    /// What was counted so far, without the warm-up; at most some tenths of a second old.
    pub totals: Totals,
    /// What went wrong so far, without the warm-up.
    pub errors: Errors,
    /// Connections of the crowd that were set up so far.
    pub crowd_connected: u32,
}

impl Running {
    /// How far the run is; from any thread, at any time.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let (phase, elapsed) = self.control.phase();
        let RunSnapshot { last } = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Counts { totals, errors } = self.control.counts();
        let crowd_connected = self.control.crowd_connected();
        Progress { phase, elapsed, last, totals, errors, crowd_connected }
    }

    /// Whether every connection was tried, so that all that is missing is a moment to begin at.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.control.is_ready()
    }

    /// Has requests begin at this time of the monotonic clock, in nanoseconds. For a run that was prepared and is ready; the
    /// first call counts.
    pub fn begin_at(&self, origin_ns: u64) {
        self.control.begin_at(origin_ns);
    }

    /// Ends the run early, as its user wishes: requests under way have one more second, and what was
    /// measured until then is the outcome.
    pub fn stop(&self) {
        self.control.end_early();
    }

    /// Ends the run because it is in vain, as when no connection comes about.
    pub fn give_up(&self) {
        self.control.stop();
    }

    /// Whether every active connection was tried, and none came about, or the server speaks another
    /// protocol: no request can be answered.
    #[must_use]
    pub fn has_elapsed_unanswered(&self) -> bool {
        let is_set_up = self.control.origin_ns().is_some();
        let is_alone = is_set_up && !self.control.was_connected();
        (is_alone || self.control.is_misunderstood()) && self.control.first_failure().is_some()
    }

    /// Whether the outcome is there, so that [`Running::join`] does not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.gathering.is_finished()
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// [`LoadError`] when a loop failed while it ran.
    ///
    /// # Panics
    /// When one of its threads did.
    pub fn join(self) -> Result<Outcome, LoadError> {
        self.gathering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

type Worked = Result<Option<ThreadOutcome>, LoadError>;

/// The threads of a run; none outlives it, also when it fails.
struct Workers {
    control: Arc<Control>,
    threads: Vec<JoinHandle<Worked>>,
}

impl Workers {
    /// Waits for all of them.
    fn outcomes(mut self) -> Result<Vec<ThreadOutcome>, LoadError> {
        let mut outcomes = Vec::with_capacity(self.threads.len());
        for worker in std::mem::take(&mut self.threads) {
            let done = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcomes.extend(done?);
        }
        Ok(outcomes)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.control.break_off();
        }
        for worker in self.threads.drain(..) {
            // Why it failed is known already, or is in another thread's error.
            drop(worker.join());
        }
    }
}

/// Breaks the run off unless its thread came to its end.
struct Ends {
    control: Arc<Control>,
    is_whole: bool,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if !self.is_whole {
            self.control.break_off();
        }
    }
}

fn named<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, LoadError> {
    let started = Builder::new().name(name).spawn(body);
    started.map_err(|source| LoadError::System { call: "clone", source })
}

/// What a worker's thread does; `opened` receives first whether it has its loop.
fn work(parts: WorkerParts, opened: Sender<Result<(), LoadError>>) -> Worked {
    let mut ends = Ends { control: Arc::clone(&parts.control), is_whole: false };
    let worker = match Worker::open(parts) {
        Ok(worker) => worker,
        Err(error) => {
            let _ = opened.send(Err(error));
            return Ok(None);
        }
    };
    let _ = opened.send(Ok(()));
    // The start of the run waits until every sender is dropped.
    drop(opened);
    let outcome = worker.run()?;
    ends.is_whole = true;
    Ok(Some(outcome))
}

fn sum_up(mut gatherer: Gatherer, workers: Workers) -> Result<Outcome, LoadError> {
    gatherer.gather();
    Ok(gatherer.outcome(&workers.outcomes()?))
}

fn supply(plan: &Plan, thread: u32) -> Supply {
    match &plan.pace {
        Pace::Closed => Supply::Closed,
        Pace::Open { arrival, stages } => {
            let (thread, threads) = plan.thread_of_all(thread);
            let arrivals = Arrivals::new(stages, *arrival, thread, threads, plan.seed);
            Supply::Open(Box::new(OpenLoop::new(arrivals)))
        }
    }
}

/// In an open loop the schedule shares requests among the threads, in a closed one a faster thread takes more.
fn budget(plan: &Plan, pool: &Arc<AtomicU64>, thread: u32) -> Budget {
    match (plan.end.requests, &plan.pace) {
        (None, _) => Budget::unlimited(),
        (Some(requests), Pace::Open { .. }) => Budget::own(share(requests, thread, plan.threads)),
        (Some(_), Pace::Closed) => Budget::shared(Arc::clone(pool), plan.connections.into()),
    }
}
