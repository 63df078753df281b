//! `pollux load --hold`: a crowd and nothing else, until standard input ends.
//!
//! The lab starts it beside a server that is measured: as many as the limit of descriptors asks for.
//! The end of its input is the end of the process that started it, however that ends.

use std::process::ExitCode;

use pollux_load::{Plan, Turns};

use super::failure;
use crate::output::{self, Failure};

/// Opens the crowd of `plan`, says so on standard error, and holds it.
pub(super) fn run(plan: Plan) -> Result<ExitCode, Failure> {
    pollux_command::limits::raise_descriptor_limit().map_err(Failure::failed)?;
    let plan = Plan { connections: 0, ..plan };
    let mut turns = Turns::open(plan).map_err(|error| failure(&error))?;
    output::remark("pollux load: the crowd is set up");
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).map_err(Failure::failed)?;
    let crowd = turns.crowd().map_err(|error| failure(&error))?;
    output::result(&serde_json::to_string(&crowd).expect("plain data"))?;
    Ok(ExitCode::SUCCESS)
}
