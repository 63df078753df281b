//! `tpbridge`, the bridge of a service pool over a NATS broker. The manager of a pool starts it, from
//! PATH or from beside its own program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use pollux_command::output;

fn main() -> ExitCode {
    match pollux_xatmi_nats::run(std::env::args_os()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&output::in_words(&error));
            ExitCode::FAILURE
        }
    }
}
