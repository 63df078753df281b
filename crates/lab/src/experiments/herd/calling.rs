//! The process of the callers: that of the lab's own workers, or a program that has callers and workers of its own,
//! the service pool of pollux and the baseline in C.
//!
//! `pollux-pool herd` starts a pool and calls its workers; how those wait is the pool's own switch. Names
//! begin with the number of the measuring process, and files are in a folder of the run's own. `raw.c` is built
//! once for each record: bare message queues with EPOLLEXCLUSIVE. Both talk over a control socket like the
//! callers of `pollux_callers`; what a pool costs beside the program in C is what pollux adds to the kernel.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_callers::{Called as Outcome, Failure, Go, PATIENCE, Served, Target, Word};
use pollux_processes::{ControlSocket, Program, built_from_c};
use serde::{Deserialize, Serialize};

use super::requests::{Answers, Message, Purpose, Requests};
use super::sources::Source;
use super::{Form, worker};
use crate::error::MeasureError;
use crate::host;
use crate::measure::RunSpec;
use crate::record::Interval;

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
        let command = worker::command("herd-callers", &theirs);
        let calling = Self::spawn(control, command, theirs, Duration::ZERO)?;
        calling.control.send(orders, fds)?;
        calling.ready(is_interrupted)
    }

    /// Starts a program with a control socket as its standard input; `theirs` ends with it. Other programs than
    /// this one may take `end_patience` to end what they have started.
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
            match self.control.receive_within(PATIENCE + self.end_patience, is_interrupted)? {
                Some(Word::Workers(pids)) => self.workers = pids,
                Some(Word::Ready) => return Ok(self),
                Some(Word::Failed(what)) => return Err(failed(what)),
                _ => return Err(self.not_ready()),
            }
        }
    }

    /// Why they are not; a program of another version has no herd.
    fn not_ready(&mut self) -> MeasureError {
        let what = match self.program.status() {
            Some(status) => format!(
                "ended before they were ready ({status}); expected pollux-pool of this version, where a pool \
                 was asked for"
            ),
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
        match self.control.receive_within(PATIENCE + self.end_patience, is_interrupted)? {
            None => Ok(()),
            Some(Word::Failed(what)) => Err(failed(what)),
            Some(_) => Err(failed("said more than they were asked".to_owned())),
        }
    }

    /// Lets them call, for no longer than `longest`; what came of it, with its intervals.
    /// `complaint` is what a worker has said that failed.
    pub(super) fn call(
        &mut self,
        go: Go,
        longest: Duration,
        complaint: &dyn Fn() -> Option<MeasureError>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(Outcome, Vec<Interval>), MeasureError> {
        self.control.send(&go, &[])?;
        let patience = longest + PATIENCE * 2;
        let mut intervals = Vec::new();
        loop {
            match self.control.receive_within(patience, is_interrupted)? {
                Some(Word::Interval(interval)) => intervals.push(interval_of(interval)),
                Some(Word::Called(called)) => return Ok((called, intervals)),
                // A call that fails does so because of a worker, if one has failed.
                Some(Word::Failed(what)) => {
                    return Err(complaint().unwrap_or_else(|| failed(what)));
                }
                Some(Word::Served(served)) => self.served = served,
                Some(Word::Ready | Word::Workers(_)) => {}
                None => {
                    let silent = || failed("did not end when they should".to_owned());
                    return Err(complaint().unwrap_or_else(silent));
                }
            }
        }
    }
}

/// As a record has it.
fn interval_of(of_calls: pollux_callers::Interval) -> Interval {
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
                self.control.receive_within::<Word>(self.end_patience, &|| false)
            {}
        }
    }
}

fn failed(what: String) -> MeasureError {
    MeasureError::Program { program: "the callers".to_owned(), what }
}

/// The pool's command.
const PROGRAM: &str = "pollux-pool";
/// How long a pool may take to start or to end with all workers; 250 take a fraction of a second.
const POOL_PATIENCE: Duration = Duration::from_secs(20);

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
    let (control, theirs) = ControlSocket::pair()?;
    let command = theirs.try_clone().map(|control| {
        let mut command = Command::new(program);
        command.args(["herd", "--wake", form.wake, "--transport", form.transport]);
        command.args(["--prefix", &format!("/pollux-herd-{own}")]);
        command.arg("--folder").arg(spec.scratch.join(format!("herd-pool-{own}")));
        for axis in ["workers", "callers"] {
            command.args([&format!("--{axis}"), &spec.count(axis).to_string()]);
        }
        command.stdin(Stdio::from(control)).stdout(Stdio::null());
        command
    });
    Calling::spawn(control, command, theirs, POOL_PATIENCE)?.ready(is_interrupted)
}

const RAW_C_TEXT: &str = include_str!("raw.c");

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
/// standard input what to call, and then calls as `pollux_callers` has it.
///
/// # Errors
/// [`MeasureError`] when a failure can't be reported; one that is reported is not an error here.
pub fn run() -> Result<(), MeasureError> {
    let control = ControlSocket::on_stdin()?;
    let Some((orders, fds)) = control.receive::<Orders>()? else { return Ok(()) };
    let Orders { source, address, callers } = orders;
    let open = || {
        let (requests, answers) = Requests::new(source, address, fds, callers)?;
        Ok(Called { requests, answers })
    };
    Ok(pollux_callers::serve(&control, open)?)
}

/// A source, with what each caller needs for it.
struct Called {
    requests: Requests,
    answers: Vec<Answers>,
}

impl Target for Called {
    fn callers(&self) -> usize {
        self.answers.len()
    }

    fn call(&self, caller: usize, is_window: bool) -> Result<(), Failure> {
        let purpose = if is_window { Purpose::Window } else { Purpose::Ramp };
        let message = Message { caller: caller as u8, purpose };
        Ok(self.requests.call(&self.answers[caller], message)?)
    }
}
