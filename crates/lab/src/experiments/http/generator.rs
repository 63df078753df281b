//! The load generator of a run: pollux itself, or wrk or ab to repeat a figure with them.
//!
//! Each runs once for the ramp and once for the window, in a process of its own on the
//! generator's CPU, and prints what it counted over exactly its run. Pollux ends by itself; wrk
//! and ab know whole seconds only and are interrupted at the end of the window.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_processes::Program;
use rustix::process::Signal;

use super::Generator;
use super::load::Load;
use super::server::Asked;
use super::{ab, own, wrk};
use crate::error::MeasureError;
use crate::host::programs;

/// How long a generator may run after its time: pollux waits for what is under way, wrk looks
/// ten times a second whether it was interrupted.
const STOP_PATIENCE: Duration = own::PATIENCE.saturating_mul(2);
/// A run in which more requests than this share failed is not a measurement.
const FAILED_SHARE_MAX: f64 = 0.001;

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
    /// What it found about its run, by kind.
    pub(super) findings: BTreeMap<String, String>,
    /// Its name with its version or driver, where it says so itself.
    pub(super) described: Option<String>,
}

/// Runs the load's generator for `time` against a server; only while it runs is there any load.
pub(super) fn run(
    load: &Load,
    asked: &Asked,
    time: Duration,
    scratch: &Path,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Counted, MeasureError> {
    let generator = load.generator;
    let mut command = command(load, asked, time, scratch)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Program::start(generator.name(), command)?;
    match generator {
        Generator::Pollux => {}
        Generator::Wrk | Generator::Ab => {
            // It catches interrupts just before its requests: an earlier one would end it without a result.
            process.catches_within(Signal::INT, STOP_PATIENCE, is_interrupted)?;
            let has_ended = process.ends_within(time, is_interrupted)?;
            if has_ended && generator == Generator::Wrk {
                return Err(process.failed("ended before it was asked to").into());
            }
        }
    }
    let has_ended = match generator {
        Generator::Pollux => process.ends_within(time + STOP_PATIENCE, is_interrupted)?,
        // One that comes before wrk sleeps, while it still opens connections, ends its threads and not
        // its sleep.
        Generator::Wrk | Generator::Ab => {
            process.ends_by(Signal::INT, STOP_PATIENCE, is_interrupted)?
        }
    };
    if !has_ended {
        return Err(process.failed("did not end when it should").into());
    }
    let failure = process.failed("printed no result");
    let (text, _) = process.output()?;
    let read = match generator {
        Generator::Pollux => own::read(&text),
        Generator::Wrk => wrk::read(&text),
        Generator::Ab => ab::read(&text),
    };
    checked(generator, read.ok_or(failure)?)
}

fn command(
    load: &Load,
    asked: &Asked,
    time: Duration,
    scratch: &Path,
) -> Result<Command, MeasureError> {
    let setup = |what: &str| {
        let what = what.to_owned();
        move |cause| MeasureError::Setup { what, cause }
    };
    let program = || {
        let name = load.generator.name();
        programs::find(name).ok_or_else(|| MeasureError::Program {
            program: name.to_owned(),
            what: missing(load.generator).unwrap_or_default(),
        })
    };
    match load.generator {
        Generator::Pollux => own::command(load, asked, time).map_err(setup("this program's path")),
        Generator::Wrk => wrk::command(&program()?, load, &asked.url, scratch)
            .map_err(setup("the script for wrk")),
        Generator::Ab => Ok(ab::command(&program()?, load, &asked.url, time)),
    }
}

/// Why this machine lacks a generator, if it does.
pub(crate) fn missing(generator: Generator) -> Option<String> {
    programs::missing(generator.name(), generator.package()?)
}

fn checked(generator: Generator, counted: Counted) -> Result<Counted, MeasureError> {
    let failed =
        |what: String| MeasureError::Program { program: generator.name().to_owned(), what };
    if counted.requests == 0 {
        let found = counted.findings.values().next();
        let found = found.map_or_else(String::new, |text| format!(": {text}"));
        return Err(failed(format!("had not one request answered{found}")));
    }
    if counted.failed as f64 > counted.requests as f64 * FAILED_SHARE_MAX {
        let (bad, all) = (counted.failed, counted.requests);
        return Err(failed(format!("{bad} failures beside {all} answers")));
    }
    Ok(counted)
}

/// A generator from elsewhere with its version, for the record.
pub(super) fn with_version(generator: Generator) -> String {
    // Neither has a flag that prints the version alone; both begin with it.
    let flag = if generator == Generator::Ab { "-V" } else { "-v" };
    let output = programs::find(generator.name())
        .and_then(|program| Command::new(program).arg(flag).stdin(Stdio::null()).output().ok());
    let version = output.and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let words = text.lines().next()?.split_whitespace().map(str::to_owned);
        words.into_iter().find(|word| word.contains(|c: char| c.is_ascii_digit()))
    });
    match version {
        Some(version) => format!("{generator} {version}"),
        None => generator.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_failures_is_not_a_measurement() {
        let counted = |requests, failed| Counted {
            requests,
            failed,
            elapsed: Duration::from_secs(1),
            figures: BTreeMap::new(),
            findings: BTreeMap::from([("no-answers".to_owned(), "nothing came".to_owned())]),
            described: None,
        };
        assert!(checked(Generator::Wrk, counted(100_000, 100)).is_ok());
        assert!(checked(Generator::Wrk, counted(100_000, 101)).is_err());
        let error = checked(Generator::Pollux, counted(0, 0)).expect_err("no answer");
        let expected = "pollux: had not one request answered: nothing came";
        assert_eq!(error.to_string(), expected);
    }
}
