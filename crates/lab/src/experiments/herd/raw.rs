//! The floor of herds as a system under test: callers and workers in C, on bare message queues with
//! EPOLLEXCLUSIVE.
//!
//! The program stands in `raw.c`. It is built once for each record, and talks over a desk like the
//! callers of [`super::callers`]; its workers are processes of its own. What a pool costs beside it
//! is what pollux adds to the kernel: everything that is Rust is on the other side of the quotient.

use std::process::{Command, Stdio};

use pollux_processes::Desk;

use super::{Calling, Source, Window, add_work, check_sum};
use crate::error::MeasureError;
use crate::measure::{Done, RunSpec};
use crate::record::Interval;
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
    let (desk, theirs) = Desk::pair()?;
    let command = theirs.try_clone().map(|desk| {
        let mut command = Command::new(program);
        command.args(["workers", "callers"].map(|axis| spec.count(axis).to_string()));
        command.stdin(Stdio::from(desk)).stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    Calling::spawn(desk, command, theirs)?.ready(is_interrupted)
}

/// Runs the arm once, as [`super::measure`].
pub(super) fn measure(
    spec: &RunSpec,
    on_interval: &mut dyn FnMut(&Interval),
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Done, MeasureError> {
    let mut calling = start(spec, is_interrupted)?;
    let nobody = || None;
    let ramp = calling.ramp(spec, &nobody, is_interrupted)?;
    check_sum("ramp", ramp, calling.served.calls.iter().sum())?;
    let window = Window::open(spec, calling.crew.clone(), calling.pid());
    let (called, intervals) = calling.window(spec, &nobody, is_interrupted)?;
    let mut done = window.close(spec, &called)?;
    intervals.iter().for_each(on_interval);
    let served = std::mem::take(&mut calling.served);
    calling.end(is_interrupted)?;
    check_sum("window", called.calls, served.calls.iter().sum())?;
    add_work(&mut done, served.calls, served.waits, served.empty);
    done.mechanism = Some("exclusive, in C".to_owned());
    Ok(done)
}
