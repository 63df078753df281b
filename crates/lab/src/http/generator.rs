//! The load generator: wrk for connections that are kept, ab for those that are not.
//!
//! A generator runs until it is interrupted, at the end of the window, and prints what it counted
//! over exactly its run. Both know whole seconds only, so neither is given a length that matters.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::load::Load;
use super::process::Process;
use super::{ab, wrk};
use crate::error::MeasureError;
use crate::host::programs;

/// How long a generator may go on after it was interrupted: wrk looks ten times a second.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// A run in which more requests than this share failed is no measurement.
const FAILED_SHARE_MAX: f64 = 0.001;

/// Which program makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generator {
    /// Keep-alive and pipelining; with `Connection: close` where there is no ab.
    Wrk,
    /// HTTP/1.0, a connection for each request.
    Ab,
}

/// What a generator counted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counted {
    /// Requests that were answered.
    pub(super) requests: u64,
    /// How long its run was, by its own clock.
    pub(super) elapsed: Duration,
    /// Requests and connections that failed.
    pub(super) failed: u64,
    /// Latencies and the like, by name with the unit last.
    pub(super) figures: BTreeMap<String, f64>,
}

impl Generator {
    /// The generator for a load on this machine.
    pub(super) fn choose(load: &Load) -> Self {
        match !load.is_kept_alive && programs::find("ab").is_some() {
            true => Self::Ab,
            false => Self::Wrk,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Wrk => "wrk",
            Self::Ab => "ab",
        }
    }

    /// Runs for `time` against a server; only while it runs is there any load.
    pub(super) fn run(
        self,
        load: &Load,
        to: SocketAddr,
        time: Duration,
        scratch: &Path,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Counted, MeasureError> {
        let mut process =
            Process::start(self.name(), self.command(load, to, time, scratch)?, Stdio::piped())?;
        let has_ended = process.ends_within(time, is_interrupted)?;
        if has_ended && self == Self::Wrk {
            return Err(process.failed("ended before it was asked to"));
        }
        process.signal(Signal::INT);
        if !process.ends_within(STOP_PATIENCE, is_interrupted)? {
            return Err(process.failed("did not end when it was asked to"));
        }
        let failure = process.failed("printed no result");
        let (text, _) = process.output()?;
        let read = match self {
            Self::Wrk => wrk::read(&text),
            Self::Ab => ab::read(&text),
        };
        self.checked(read.ok_or(failure)?)
    }

    fn command(
        self,
        load: &Load,
        to: SocketAddr,
        time: Duration,
        scratch: &Path,
    ) -> Result<Command, MeasureError> {
        let program = programs::find(self.name()).ok_or_else(|| MeasureError::Program {
            program: self.name().to_owned(),
            what: programs::missing(self.name(), self.package()).unwrap_or_default(),
        })?;
        match self {
            Self::Wrk => wrk::command(&program, load, to, scratch).map_err(|cause| {
                MeasureError::Setup { what: "the script for wrk".to_owned(), cause }
            }),
            Self::Ab => Ok(ab::command(&program, load, to, time)),
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Wrk => "wrk",
            Self::Ab => "apache2-utils",
        }
    }

    fn checked(self, counted: Counted) -> Result<Counted, MeasureError> {
        let failed = |what: String| MeasureError::Program { program: self.name().to_owned(), what };
        if counted.requests == 0 {
            return Err(failed("had not one request answered".to_owned()));
        }
        if counted.failed as f64 > counted.requests as f64 * FAILED_SHARE_MAX {
            let (bad, all) = (counted.failed, counted.requests);
            return Err(failed(format!("{bad} failures beside {all} answers")));
        }
        Ok(counted)
    }
}

/// The generator that would be used, with its version, for the record.
pub(super) fn described(generator: Generator) -> String {
    // Neither has a flag that prints the version alone; both begin with it.
    let flag = match generator {
        Generator::Wrk => "-v",
        Generator::Ab => "-V",
    };
    let output = programs::find(generator.name())
        .and_then(|program| Command::new(program).arg(flag).stdin(Stdio::null()).output().ok());
    let version = output.and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let words = text.lines().next()?.split_whitespace().map(str::to_owned);
        words.into_iter().find(|word| word.contains(|c: char| c.is_ascii_digit()))
    });
    match version {
        Some(version) => format!("{} {version}", generator.name()),
        None => generator.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_failures_is_no_measurement() {
        let counted = |requests, failed| Counted {
            requests,
            failed,
            elapsed: Duration::from_secs(1),
            figures: BTreeMap::new(),
        };
        assert!(Generator::Wrk.checked(counted(100_000, 100)).is_ok());
        assert!(Generator::Wrk.checked(counted(100_000, 101)).is_err());
        assert!(Generator::Wrk.checked(counted(0, 0)).is_err());
    }
}
