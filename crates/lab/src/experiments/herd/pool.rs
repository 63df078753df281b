//! The service pool of pollux as a system under test: the same herd on the same kind of queue, with
//! everything that a pool adds to it.
//!
//! `pollux-pool herd` starts a pool and calls its workers; how those wait is the pool's own switch. Names
//! begin with the number of the measuring process, and files are in a folder of the run's own.

use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_processes::ControlSocket;

use super::{Calling, Form, Source};
use crate::error::MeasureError;
use crate::host::programs;
use crate::measure::RunSpec;

/// The pool's command.
const PROGRAM: &str = "pollux-pool";
/// How long a pool may take to start or to end with all workers; 250 take a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a pool can't run here, if so.
pub(super) fn missing() -> Option<String> {
    let reason = "pollux-pool was found neither beside pollux nor in PATH (in the sources: cargo build \
                  --release -p pollux-pool)";
    programs::find_beside(PROGRAM).is_none().then(|| reason.to_owned())
}

/// Starts the pool and its callers.
pub(super) fn start(
    spec: &RunSpec,
    form: Form,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Calling, MeasureError> {
    if Source::of(&spec.axes) != Source::Queue {
        return Err(MeasureError::Spec("the workers of a pool wait for queues".to_owned()));
    }
    let program = programs::find_beside(PROGRAM).ok_or_else(|| MeasureError::Program {
        program: "the pool".to_owned(),
        what: missing().unwrap_or_default(),
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
        command.stdin(Stdio::from(control)).stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    Calling::spawn(control, command, theirs, PATIENCE)?.ready(is_interrupted)
}
