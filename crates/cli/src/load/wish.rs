//! The wish of somebody outside that a run end early, and the exit code that it gives.

use std::process::ExitCode;

use pollux_engine::Signal;

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

    /// What a shell shows for a command that a signal ended: 128 and its number (`signal(7)`).
    pub(crate) fn exit_code(self) -> ExitCode {
        const BY_A_SIGNAL: u8 = 128;
        ExitCode::from(match self {
            Self::Signal(Signal::HangUp) => BY_A_SIGNAL + 1,
            Self::Signal(Signal::Terminate) => BY_A_SIGNAL + 15,
            Self::Signal(_) | Self::Key => BY_A_SIGNAL + 2,
        })
    }
}
