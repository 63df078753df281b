//! Programs that have callers and workers of their own: the service pool of pollux, and the baseline in C.
//!
//! `pollux-pool herd` starts a pool and calls its workers; how those wait is the pool's own switch. Names
//! begin with the number of the measuring process, and files are in a folder of the run's own. `raw.c` is built
//! once for each record: bare message queues with EPOLLEXCLUSIVE. Both talk over a control socket like the
//! callers of `pollux_callers`; what a pool costs beside the program in C is what pollux adds to the kernel.

use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_processes::{ControlSocket, compiler};

use super::{Calling, Form, Source};
use crate::error::MeasureError;
use crate::host::programs;
use crate::measure::RunSpec;

/// The pool's command.
const PROGRAM: &str = "pollux-pool";
/// How long a pool may take to start_pool or to end with all workers; 250 take a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a pool can't run here, if so.
pub(super) fn pool_missing() -> Option<String> {
    let reason = "pollux-pool was found neither beside pollux nor in PATH (in the sources: cargo build \
                  --release -p pollux-pool)";
    programs::find_beside(PROGRAM).is_none().then(|| reason.to_owned())
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
    let program = programs::find_beside(PROGRAM).ok_or_else(|| MeasureError::Program {
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
        command.stdin(Stdio::from(control)).stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    Calling::spawn(control, command, theirs, PATIENCE)?.ready(is_interrupted)
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
    let program = compiler::built(&spec.scratch, "herd-raw", RAW_C_TEXT, &["-pthread", "-lrt"])?;
    let (control, theirs) = ControlSocket::pair()?;
    let command = theirs.try_clone().map(|control| {
        let mut command = Command::new(program);
        command.args(["workers", "callers"].map(|axis| spec.count(axis).to_string()));
        command.stdin(Stdio::from(control)).stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    Calling::spawn(control, command, theirs, Duration::ZERO)?.ready(is_interrupted)
}
