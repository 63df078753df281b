//! The processes of a herd, workers and callers: what each does, and how all of a run are started, observed, ended, and
//! never left behind.
//!
//! `pollux lab herd-worker` calls [`run_worker`]: a process that waits for the source, takes requests and answers
//! them. It receives its orders over a [`ControlSocket`] that all workers share, says there when it is ready,
//! and at the end how many calls it answered. Workers end when the pipe that all of them watch is closed;
//! those that block take a request each that says stop. One that has not ended by a deadline is killed, and
//! so are all when `WorkerProcesses` is dropped.
//!
//! The callers are one process: that of the lab's own workers ([`run_callers`]), or a program that has callers and
//! workers of its own, the service pool of pollux (`pool.rs`) and the baseline in C. How the workers of the pool wait is
//! the pool's own switch. Names begin with the number of the measuring process, and files
//! are in a folder of the run's own. `raw.c` is built once for each record: bare message queues with EPOLLEXCLUSIVE.
//! Both talk over a control socket like the callers of `callers`; what a pool costs beside the program in C is
//! what pollux adds to the kernel.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pollux_host::{self as host, ControlSocket, Program, built_from_c, patience};
use pollux_settings::command::output::error_chain;
use rustix::event::epoll::EventFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::Form;
use super::callers::{
    self, CallPlan, CallResult as Outcome, CallerMessage, Failure, LAST_ANSWER_TIME_MAX, Served,
    Target,
};
use super::pool::PoolOrders;
use super::requests::{Answers, Intake, Message, Purpose, Requests};
use super::sources::{Opened, Source, Wait, Waiting, Woken, instance};
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::record::Interval;

/// The pool's command.
const PROGRAM: &str = "pollux-pool";
const RAW_C_TEXT: &str = include_str!("raw.c");

/// What a worker receives. The descriptors beside it: the end of the run, the epoll instance of all
/// workers where there is one, then those of the source.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WorkerSetup {
    /// What it waits for.
    pub(super) source: Source,
    pub(super) wait: Wait,
}

/// What a worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkerMessage {
    /// It is about to wait for the first time.
    Ready,
    /// It has ended well.
    Ended(Report),
    /// It has not.
    Failed(String),
}

/// What a worker counted in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Calls of the ramp that it answered.
    pub(super) calls_ramp: u64,
    /// Calls of the window that it answered.
    pub(super) calls: u64,
    /// Times that it returned from waiting.
    pub(super) waits: u64,
    /// Times that it found nothing then.
    pub(super) empty: u64,
}

/// Works until the run is over.
///
/// # Errors
/// [`MeasureError`] when a failure can't be reported; one that is reported is not an error here.
pub fn run_worker() -> Result<(), MeasureError> {
    let control = ControlSocket::on_stdin()?;
    let Some((orders, fds)) = control.receive::<WorkerSetup>()? else { return Ok(()) };
    let word = match work(&control, &orders, fds) {
        Ok(report) => WorkerMessage::Ended(report),
        Err(error) => WorkerMessage::Failed(error_chain(&error)),
    };
    Ok(control.send(&word, &[])?)
}

fn work(
    control: &ControlSocket,
    orders: &WorkerSetup,
    fds: Vec<OwnedFd>,
) -> Result<Report, MeasureError> {
    let WorkerSetup { source, wait } = *orders;
    let mut fds = fds.into_iter();
    let end =
        fds.next().ok_or_else(|| MeasureError::Spec("no descriptor of the end".to_owned()))?;
    let shared = (wait == Wait::Shared).then(|| fds.next()).flatten();
    let intake = Intake::new(source, fds.collect())?;
    let mut waiting = Waiting::open(wait, intake.waited_for(), end.as_fd(), shared)?;
    control.send(&WorkerMessage::Ready, &[])?;
    serve(&intake, &mut waiting, wait == Wait::Edge)
}

/// Waits and serves until the end, or until a request that says stop.
fn serve(intake: &Intake, waiting: &mut Waiting, drains: bool) -> Result<Report, MeasureError> {
    let mut report = Report::default();
    // A wake-up without a request belongs to the calls around it.
    let mut purpose = Purpose::Ramp;
    let mut waits = 0;
    let mut empty = 0;
    while waiting.wait()? == Woken::Work {
        waits += 1;
        loop {
            let Some(message) = intake.serve()? else {
                empty += 1;
                break;
            };
            match message.purpose {
                Purpose::Stop => return Ok(report.with(purpose, waits, empty)),
                Purpose::Window => report.calls += 1,
                Purpose::Ramp => report.calls_ramp += 1,
            }
            if purpose != message.purpose {
                (purpose, waits, empty) = (message.purpose, 1, 0);
            }
            if !drains {
                break;
            }
        }
    }
    Ok(report.with(purpose, waits, empty))
}

impl Report {
    /// With the waits that were counted since the window's first call, if it had one.
    fn with(self, purpose: Purpose, waits: u64, empty: u64) -> Self {
        match purpose {
            Purpose::Window => Self { waits, empty, ..self },
            Purpose::Ramp | Purpose::Stop => self,
        }
    }
}

/// Workers that wait for a source.
#[derive(Debug)]
pub(super) struct WorkerProcesses {
    control: ControlSocket,
    workers: Vec<Program>,
    wait: Wait,
    /// Closing it is the end for all that watch the other side.
    end: Option<OwnedFd>,
}

impl WorkerProcesses {
    /// Starts so many workers and returns when all of them are about to wait.
    pub(super) fn start(
        count: usize,
        source: Source,
        wait: Wait,
        opened: &Opened,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let (end_watched, end) =
            pipe_with(PipeFlags::CLOEXEC).map_err(MeasureError::io("pipe2"))?;
        let shared = match wait {
            Wait::Shared => {
                let work = opened.workers[0].as_fd();
                Some(instance(work, end_watched.as_fd(), EventFlags::empty())?)
            }
            _ => None,
        };
        let mut fds: Vec<BorrowedFd<'_>> = vec![end_watched.as_fd()];
        fds.extend(shared.as_ref().map(AsFd::as_fd));
        fds.extend(opened.for_workers());
        let orders = WorkerSetup { source, wait };
        let (control, theirs) = ControlSocket::pair()?;
        let mut processes = Self { control, workers: Vec::new(), wait, end: Some(end) };
        for number in 1..=count {
            if is_interrupted() {
                return Err(MeasureError::Interrupted);
            }
            let name = format!("worker {number} of {count} (see ulimit -u and pids.max)");
            let command = command("herd-worker", &theirs)
                .map_err(|cause| MeasureError::Setup { what: name.clone(), cause })?;
            processes.workers.push(Program::start_unread(&name, command)?);
            processes.control.send(&orders, &fds)?;
        }
        // From here on the control socket ends with the last worker.
        drop(theirs);
        processes.wait_until_ready(is_interrupted)?;
        Ok(processes)
    }

    fn wait_until_ready(&self, is_interrupted: &dyn Fn() -> bool) -> Result<(), MeasureError> {
        let start = Instant::now();
        for ready in 0..self.workers.len() {
            let left = patience::WORKERS_WAIT.saturating_sub(start.elapsed());
            match self.control.receive_within(left, is_interrupted)? {
                Some(WorkerMessage::Ready) => {}
                Some(WorkerMessage::Failed(what)) => return Err(worker_failed(what)),
                Some(WorkerMessage::Ended(_)) | None => {
                    let count = self.workers.len();
                    return Err(worker_failed(format!(
                        "only {ready} of {count} were ready in time"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Their process numbers.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.workers.iter().map(Program::pid).collect()
    }

    /// What a worker has said that failed meanwhile, if one has.
    pub(super) fn complaint(&self) -> Option<MeasureError> {
        match self.control.receive_within(Duration::ZERO, &|| false) {
            Ok(Some(WorkerMessage::Failed(what))) => Some(worker_failed(what)),
            _ => None,
        }
    }

    /// Ends all workers, by `requests` those that block; what each of them counted.
    pub(super) fn end(
        mut self,
        requests: &Requests,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<Report>, MeasureError> {
        let count = self.workers.len();
        // A connection is kept until its worker has read what is on it.
        let mut connections = Vec::new();
        if self.wait == Wait::Block {
            for _ in 0..count {
                let stop = Message { caller: 0, purpose: Purpose::Stop };
                connections.push(requests.send(stop)?);
            }
        }
        drop(self.end.take());
        let start = Instant::now();
        let mut reports = Vec::new();
        while reports.len() < count {
            let left = patience::WORKERS_END.saturating_sub(start.elapsed());
            match self.control.receive_within(left, is_interrupted)? {
                Some(WorkerMessage::Ended(report)) => reports.push(report),
                Some(WorkerMessage::Failed(what)) => return Err(worker_failed(what)),
                Some(WorkerMessage::Ready) => {}
                None => {
                    let ended = reports.len();
                    let what = format!("{ended} of {count} ended when they were asked to");
                    return Err(worker_failed(what));
                }
            }
        }
        Ok(reports)
    }
}

impl Drop for WorkerProcesses {
    fn drop(&mut self) {
        // All at once: each waits for its end when it is dropped.
        for worker in &self.workers {
            worker.signal(Signal::KILL);
        }
    }
}

/// A hidden command of this program with a control socket as its standard input; what goes wrong in it is said where
/// this process says it.
fn command(name: &str, control: &OwnedFd) -> std::io::Result<Command> {
    let control = control.try_clone()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["lab", name]).stdin(Stdio::from(control));
    command.stdout(Stdio::null());
    Ok(command)
}

fn worker_failed(what: String) -> MeasureError {
    MeasureError::Program { program: "a worker".to_owned(), what }
}

/// The process of the callers.
pub(super) struct Calling {
    control: ControlSocket,
    program: Program,
    /// The workers, where they are that program's own.
    pub(super) workers: Vec<u32>,
    /// What those did in the last run.
    pub(super) served: Served,
    /// How long it may take to end what it has started.
    end_patience: Duration,
}

impl Calling {
    pub(super) fn start(
        orders: &Orders,
        fds: &[BorrowedFd<'_>],
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let (control, theirs) = ControlSocket::pair()?;
        let command = command("herd-callers", &theirs);
        let calling = Self::spawn(control, command, theirs, Duration::ZERO)?;
        calling.control.send(orders, fds)?;
        calling.ready(is_interrupted)
    }

    /// Starts a program with a control socket as its standard input; `theirs` ends with it. It may take
    /// `end_patience` to end what it has started.
    fn spawn(
        control: ControlSocket,
        command: std::io::Result<Command>,
        theirs: OwnedFd,
        end_patience: Duration,
    ) -> Result<Self, MeasureError> {
        let command = command.map_err(MeasureError::setup("the process of the callers"))?;
        let program = Program::start("the callers", command)?;
        drop(theirs);
        Ok(Self { control, program, workers: Vec::new(), served: Served::default(), end_patience })
    }

    /// Waits until they are about to call.
    fn ready(mut self, is_interrupted: &dyn Fn() -> bool) -> Result<Self, MeasureError> {
        loop {
            match self
                .control
                .receive_within(LAST_ANSWER_TIME_MAX + self.end_patience, is_interrupted)?
            {
                Some(CallerMessage::Workers(pids)) => self.workers = pids,
                Some(CallerMessage::Ready) => return Ok(self),
                Some(CallerMessage::Failed(what)) => return Err(callers_failed(what)),
                _ => return Err(self.not_ready()),
            }
        }
    }

    /// Why they are not.
    fn not_ready(&mut self) -> MeasureError {
        let what = match self.program.status() {
            Some(status) => format!("ended before they were ready ({status})"),
            None => "were not ready in time".to_owned(),
        };
        self.program.failed(&what).into()
    }

    pub(super) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Lets a program with workers of its own end them; it is over when this returns.
    pub(super) fn end(self, is_interrupted: &dyn Fn() -> bool) -> Result<(), MeasureError> {
        self.control.hang_up();
        match self
            .control
            .receive_within(LAST_ANSWER_TIME_MAX + self.end_patience, is_interrupted)?
        {
            None => Ok(()),
            Some(CallerMessage::Failed(what)) => Err(callers_failed(what)),
            Some(_) => Err(callers_failed("said more than they were asked".to_owned())),
        }
    }

    /// Lets them call, for no longer than `longest`; what came of it, with its intervals.
    /// `complaint` is what a worker has said that failed.
    pub(super) fn call(
        &mut self,
        plan: CallPlan,
        longest: Duration,
        complaint: &dyn Fn() -> Option<MeasureError>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(Outcome, Vec<Interval>), MeasureError> {
        self.control.send(&plan, &[])?;
        let patience = longest + LAST_ANSWER_TIME_MAX * 2;
        let mut intervals = Vec::new();
        loop {
            match self.control.receive_within(patience, is_interrupted)? {
                Some(CallerMessage::Interval(interval)) => intervals.push(interval_of(interval)),
                Some(CallerMessage::Called(called)) => return Ok((called, intervals)),
                // A call that fails does so because of a worker, if one has failed.
                Some(CallerMessage::Failed(what)) => {
                    return Err(complaint().unwrap_or_else(|| callers_failed(what)));
                }
                Some(CallerMessage::Served(served)) => self.served = served,
                Some(CallerMessage::Ready | CallerMessage::Workers(_)) => {}
                None => {
                    let silent = || callers_failed("did not end when they should".to_owned());
                    return Err(complaint().unwrap_or_else(silent));
                }
            }
        }
    }
}

/// As a record has it.
fn interval_of(of_calls: callers::Interval) -> Interval {
    Interval {
        end_s: of_calls.end_s,
        events_per_s: of_calls.calls_per_s,
        events_per_wait: None,
        process_switches_per_s: None,
        machine_switches_per_s: of_calls.machine_switches_per_s,
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        // The callers of the lab end when their control socket does.
        self.control.hang_up();
        self.program.end();
        if !self.end_patience.is_zero() {
            // What it has started ends by itself then, and has the other side of the control socket until it has.
            while let Ok(Some(_)) =
                self.control.receive_within::<CallerMessage>(self.end_patience, &|| false)
            {
            }
        }
    }
}

fn callers_failed(what: String) -> MeasureError {
    MeasureError::Program { program: "the callers".to_owned(), what }
}

/// Why a pool can't run here, if so.
pub(super) fn pool_missing() -> Option<String> {
    let reason = "pollux-pool was found neither beside pollux nor in PATH (in the sources: cargo build \
                  --release -p pollux-pool)";
    host::find_program_beside(PROGRAM).is_none().then(|| reason.to_owned())
}

/// Starts the pool and its callers.
pub(super) fn start_pool(
    spec: &RunSpec,
    form: Form,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Calling, MeasureError> {
    if Source::of(&spec.axes) != Source::Queue {
        return Err(MeasureError::Spec("the workers of a pool wait for queues".to_owned()));
    }
    let program = host::find_program_beside(PROGRAM).ok_or_else(|| MeasureError::Program {
        program: "the pool".to_owned(),
        what: pool_missing().unwrap_or_default(),
    })?;
    let own = std::process::id();
    let orders = PoolOrders {
        program,
        workers: spec.count("workers"),
        callers: spec.count("callers"),
        wake: form.wake.to_owned(),
        transport: form.transport.to_owned(),
        prefix: format!("/pollux-herd-{own}"),
        folder: spec.scratch.join(format!("herd-pool-{own}")),
    };
    let (control, theirs) = ControlSocket::pair()?;
    let command = command("herd-pool", &theirs);
    let calling = Calling::spawn(control, command, theirs, patience::POOL_SETTLES)?;
    calling.control.send(&orders, &[])?;
    calling.ready(is_interrupted)
}

/// Starts the program, with its workers.
pub(super) fn start_raw(
    spec: &RunSpec,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Calling, MeasureError> {
    if Source::of(&spec.axes) != Source::Queue {
        return Err(MeasureError::Spec("the workers in C wait for queues".to_owned()));
    }
    let program = built_from_c(&spec.scratch, "herd-raw", RAW_C_TEXT, &["-pthread", "-lrt"])?;
    let (control, theirs) = ControlSocket::pair()?;
    let command = theirs.try_clone().map(|control| {
        let mut command = Command::new(program);
        command.args(["workers", "callers"].map(|axis| spec.count(axis).to_string()));
        command.stdin(Stdio::from(control)).stdout(Stdio::null());
        command
    });
    Calling::spawn(control, command, theirs, Duration::ZERO)?.ready(is_interrupted)
}

/// What the callers receive first. The descriptors beside it are those of the source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// What they call.
    pub(super) source: Source,
    /// Where it listens, where it does.
    pub(super) address: Option<SocketAddr>,
    /// Number of callers.
    pub(super) callers: usize,
}

/// The callers of the lab's own workers, at their sources, as `pollux lab herd-callers` runs them: receives over its
/// standard input what to call, and then calls as `callers` has it.
///
/// # Errors
/// [`MeasureError`] when a failure can't be reported; one that is reported is not an error here.
pub fn run_callers() -> Result<(), MeasureError> {
    let control = ControlSocket::on_stdin()?;
    let Some((orders, fds)) = control.receive::<Orders>()? else { return Ok(()) };
    let Orders { source, address, callers } = orders;
    let open = || {
        let (requests, answers) = Requests::new(source, address, fds, callers)?;
        Ok(CallResult { requests, answers })
    };
    Ok(callers::serve(&control, open)?)
}

/// A source, with what each caller needs for it.
struct CallResult {
    requests: Requests,
    answers: Vec<Answers>,
}

impl Target for CallResult {
    fn callers(&self) -> usize {
        self.answers.len()
    }

    fn call(&self, caller: usize, is_window: bool) -> Result<(), Failure> {
        let purpose = if is_window { Purpose::Window } else { Purpose::Ramp };
        let message = Message { caller: caller as u8, purpose };
        Ok(self.requests.call(&self.answers[caller], message)?)
    }
}
