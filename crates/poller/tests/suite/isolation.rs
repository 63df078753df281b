//! Runs one case where it can do no harm: in a thread, or in a process of its own.
//!
//! Either way a hang ends with its deadline, and a panic is an answer.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pollux_poller::Backend;

use super::rig::Rig;
use super::{Case, Deviation, Verdict};

/// How long one case may take on one backend: the largest takes a second.
const CASE_DEADLINE: Duration = Duration::from_secs(30);
/// First argument of this binary when it is started again for one run.
pub(crate) const CHILD: &str = "--child";
/// What a child prints for a kept contract.
const KEPT: &str = "kept";

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Where cases run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// In a thread each, one after the other.
    Thread,
    /// In a process each, on its only thread.
    Process,
}

/// What a case answered, or how it failed to answer.
pub(crate) type Answer = Result<Verdict, String>;

impl Isolation {
    /// Runs `case`, which the report calls `line`.
    pub(crate) fn run(self, case: &'static Case, backend: Backend, line: &str) -> Answer {
        let line = line.to_owned();
        let (answer, answers) = mpsc::channel();
        let (child, children) = mpsc::channel();
        let run = move || {
            let outcome = match self {
                Self::Thread => here(case, backend),
                Self::Process => elsewhere(&line, &child),
            };
            // Nobody listens any more when the deadline has passed.
            let _ = answer.send(outcome);
        };
        let thread = thread::Builder::new().spawn(run).expect("a thread");
        match answers.recv_timeout(CASE_DEADLINE) {
            Ok(outcome) => {
                thread.join().expect("panics are caught inside");
                outcome
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Ok(id) = children.try_recv() {
                    let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
                }
                Err(format!("hangs: no end within {CASE_DEADLINE:?}"))
            }
            Err(RecvTimeoutError::Disconnected) => Err("ended without an answer".to_owned()),
        }
    }
}

/// Keeps the messages of panics instead of printing them: most are answers.
pub(crate) fn keep_panics() {
    panic::set_hook(Box::new(|info| PANIC.set(info.to_string().replace('\n', " "))));
}

/// The whole life of a process that was started for one run.
pub(crate) fn live_as_child(case: &Case, backend: Backend) -> ExitCode {
    let answer = match here(case, backend) {
        Ok(Ok(())) => KEPT.to_owned(),
        Ok(Err(deviation)) => format!("{deviation:?}"),
        Err(why) => why,
    };
    match std::io::stdout().write_all(answer.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn here(case: &Case, backend: Backend) -> Answer {
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        let mut rig = Rig::open(backend).expect("it was opened a moment ago");
        (case.run)(&mut rig)
    }));
    outcome.map_err(|_| PANIC.take())
}

fn elsewhere(line: &str, child: &mpsc::Sender<rustix::process::Pid>) -> Answer {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let started = Command::new(program).args([CHILD, line]).stdout(Stdio::piped()).spawn();
    let mut started = started.map_err(|error| error.to_string())?;
    let _ = child.send(rustix::process::Pid::from_child(&started));
    let mut answer = String::new();
    let mut output = started.stdout.take().expect("piped");
    output.read_to_string(&mut answer).map_err(|error| error.to_string())?;
    let status = started.wait().map_err(|error| error.to_string())?;
    if answer == KEPT {
        return Ok(Ok(()));
    }
    let known = Deviation::ALL.into_iter().find(|known| format!("{known:?}") == answer);
    known.map(Err).ok_or_else(|| format!("{answer} ({status})"))
}
