//! The wish of somebody outside that a run end early, and the exit code that it gives.

use std::process::ExitCode;

use pollux_engine::Signal;

use crate::output;

/// Who wishes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// A key of the live view: as Ctrl-C.
    Key,
    /// A signal.
    Signal(Signal),
}

impl Wish {
    /// The signals that end a run.
    pub(crate) const SIGNALS: [Signal; 3] = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];

    /// That of a command which the signal ended.
    pub(crate) fn exit_code(self) -> ExitCode {
        output::ended_by(match self {
            Self::Signal(signal) => signal.number(),
            Self::Key => Signal::Interrupt.number(),
        })
    }
}
