//! A worker: a process of its own that waits for the source, takes requests and answers them.
//!
//! `pollux lab herd-worker` calls [`run`]. It learns from its standard input what to do (`control socket`),
//! says there when it is ready, and at the end how many calls it answered.

use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};

use pollux_processes::ControlSocket;

use super::intake::Intake;
use super::message::Purpose;
use super::source::Source;
use super::wait::Wait;
use super::waiting::{Waiting, Woken};
use crate::error::{MeasureError, in_words};

/// What a worker receives. The descriptors beside it: the end of the run, the epoll instance of all
/// workers where there is one, then those of the source.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// What it waits for.
    pub(super) source: Source,
    /// How.
    pub(super) wait: Wait,
}

/// What a worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
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
pub fn run() -> Result<(), MeasureError> {
    let control = ControlSocket::on_stdin()?;
    let Some((orders, fds)) = control.receive::<Orders>()? else { return Ok(()) };
    let word = match work(&control, &orders, fds) {
        Ok(report) => Word::Ended(report),
        Err(error) => Word::Failed(in_words(&error)),
    };
    Ok(control.send(&word, &[])?)
}

fn work(
    control: &ControlSocket,
    orders: &Orders,
    fds: Vec<OwnedFd>,
) -> Result<Report, MeasureError> {
    let Orders { source, wait } = *orders;
    let mut fds = fds.into_iter();
    let end =
        fds.next().ok_or_else(|| MeasureError::Spec("no descriptor of the end".to_owned()))?;
    let shared = (wait == Wait::Shared).then(|| fds.next()).flatten();
    let intake = Intake::new(source, fds.collect())?;
    let mut waiting = Waiting::open(wait, intake.waited_for(), end.as_fd(), shared)?;
    control.send(&Word::Ready, &[])?;
    serve(&intake, &mut waiting, wait == Wait::Edge)
}

/// Waits and serves until the end, or until a request that says stop.
fn serve(intake: &Intake, waiting: &mut Waiting, drains: bool) -> Result<Report, MeasureError> {
    let mut report = Report::default();
    // A wake-up without a request belongs to the calls around it.
    let (mut purpose, mut waits, mut empty) = (Purpose::Ramp, 0, 0);
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
