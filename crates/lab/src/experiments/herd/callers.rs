//! The callers of the lab's own workers, at their sources.
//!
//! `pollux lab herd-callers` calls [`run`], which receives over its standard input what to call, and then
//! calls as `pollux_callers` has it.

use std::net::SocketAddr;

use pollux_callers::{Failure, Target};
use pollux_processes::ControlSocket;
use serde::{Deserialize, Serialize};

use super::requests::{Answers, Requests};
use super::requests::{Message, Purpose};
use super::source::Source;
use crate::error::MeasureError;

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

/// Calls as often as it is asked to.
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
