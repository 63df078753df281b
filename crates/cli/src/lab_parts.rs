//! The hidden commands of `pollux lab`: programs that a run of `http` or `herd` starts.
//!
//! A floor to compare servers with; workers, callers and pools of a herd. None of them outlives the
//! process that started it, and none is for users.

use std::process::ExitCode;

use pollux_floor::{Floor, FloorOptions};
use pollux_lab::error::in_words;
use pollux_lab::experiments::herd::{bank, callers, pool, worker};
use rustix::process::Signal;

use crate::lab::raise_descriptor_limit;
use crate::output::{self, Failure};

/// A floor, until it is ended by a signal; the lab reads the address as it reads a server's.
pub(crate) fn floor(name: &str, options: &FloorOptions) -> Result<ExitCode, Failure> {
    let floor = Floor::by_name(name).ok_or_else(|| {
        let names = Floor::ALL.map(Floor::name).join(", ");
        Failure::usage(format!("no floor is called \"{name}\"; there are {names}"))
    })?;
    prepare()?;
    let ran = pollux_floor::run(floor, options, &mut |address| {
        output::remark(&format!("pollux lab floor: http://{address} ({floor})"));
    });
    ran.map_err(|error| Failure::failed(in_words(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// A worker of a herd; what it does comes over standard input.
pub(crate) fn herd_worker() -> Result<ExitCode, Failure> {
    prepare()?;
    worker::run().map_err(|error| Failure::failed(in_words(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// The callers of a herd; what they do comes over standard input.
pub(crate) fn herd_callers() -> Result<ExitCode, Failure> {
    prepare()?;
    callers::run().map_err(|error| Failure::failed(in_words(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// The manager of a pool; what it does comes over standard input.
pub(crate) fn herd_pool() -> Result<ExitCode, Failure> {
    // It ends its workers and removes its queues before it is gone.
    prepare_until(Signal::TERM)?;
    pool::run().map_err(|error| Failure::failed(in_words(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// A worker of that pool, which its manager starts under another name.
pub(crate) fn herd_server() -> Result<ExitCode, Failure> {
    prepare()?;
    bank::run().map_err(|error| Failure::failed(in_words(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// Only the lab starts these, and none outlives its run.
fn prepare() -> Result<(), Failure> {
    prepare_until(Signal::KILL)
}

/// `signal` comes when the process that started this one has ended.
fn prepare_until(signal: Signal) -> Result<(), Failure> {
    raise_descriptor_limit().map_err(Failure::failed)?;
    rustix::process::set_parent_process_death_signal(Some(signal)).map_err(Failure::failed)
}
