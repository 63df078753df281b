//! The baseline of herds as a system under test: callers and workers in C, on bare message queues with
//! EPOLLEXCLUSIVE.
//!
//! The program stands in `raw.c`. It is built once for each record, and talks over a control socket like the
//! callers of `pollux_callers`; its workers are processes of its own. What a pool costs beside it
//! is what pollux adds to the kernel: everything that is Rust is on the other side of the quotient.

use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_processes::ControlSocket;

use super::{Calling, Source};
use crate::error::MeasureError;
use crate::measure::RunSpec;
use pollux_processes::compiler;

const PROGRAM: &str = include_str!("raw.c");

/// Starts the program, with its workers.
pub(super) fn start(
    spec: &RunSpec,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Calling, MeasureError> {
    if Source::of(&spec.axes) != Source::Queue {
        return Err(MeasureError::Spec("the workers in C wait for queues".to_owned()));
    }
    let program = compiler::built(&spec.scratch, "herd-raw", PROGRAM, &["-pthread", "-lrt"])?;
    let (control, theirs) = ControlSocket::pair()?;
    let command = theirs.try_clone().map(|control| {
        let mut command = Command::new(program);
        command.args(["workers", "callers"].map(|axis| spec.count(axis).to_string()));
        command.stdin(Stdio::from(control)).stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    Calling::spawn(control, command, theirs, Duration::ZERO)?.ready(is_interrupted)
}
