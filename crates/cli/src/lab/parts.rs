//! The hidden commands of `pollux lab`, the processes of which a run is made: the measured process of an arm; workers
//! and callers of a herd; a baseline server to compare servers with. None of them outlives the process that started it,
//! and none is for users.

use crate::output::{self, Failure};
use pollux_baselines::{BaselineOptions, BaselineServer};

use pollux_lab::child::{Task, measure, serve};
use pollux_lab::experiments::herd::{run_callers, run_worker};
use pollux_lab::measure::Line;
use pollux_sys::descriptors;
use rustix::process::Signal;
use std::ffi::OsString;
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Longest run description that `measure` reads.
const SPEC_BYTES_MAX: u64 = 1 << 20;

/// A part of a run.
type Part = fn() -> Result<ExitCode, Failure>;

/// Those without flags, `pollux lab NAME`. A run starts thousands, so they are found before the flags of
/// all commands are set up, which takes longer than the start of a process.
const PARTS: &[(&str, Part)] = &[
    ("subject", subject),
    ("measure", measure_one),
    ("herd-worker", herd_worker),
    ("herd-callers", herd_callers),
];

/// The part of a run that these words of the command line name, if they do.
pub(crate) fn named(words: impl Iterator<Item = OsString>) -> Option<Part> {
    let words: Vec<OsString> = words.take(3).collect();
    let [lab, name] = &words[..] else { return None };
    let part = PARTS.iter().find(|(part, _)| lab == "lab" && name == part)?;
    Some(part.1)
}

/// A baseline server, until it is ended by a signal; the lab reads the address as it reads a server's.
pub(crate) fn baseline(name: &str, options: &BaselineOptions) -> Result<ExitCode, Failure> {
    let server = BaselineServer::by_name(name).ok_or_else(|| {
        let names = BaselineServer::ALL.map(BaselineServer::name).join(", ");
        Failure::usage(format!("\"{name}\" is not a baseline server; expected one of {names}"))
    })?;
    prepare()?;
    let ran = pollux_baselines::run(server, options, &mut |address| {
        output::remark(&format!("pollux lab baseline: http://{address} ({server})"));
    });
    ran.map_err(|error| Failure::failed(output::in_words(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// A worker of a herd; what it does comes over standard input.
fn herd_worker() -> Result<ExitCode, Failure> {
    prepare()?;
    run_worker().map_err(|error| Failure::failed(output::in_words(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// The callers of a herd; what they do comes over standard input.
fn herd_callers() -> Result<ExitCode, Failure> {
    prepare()?;
    run_callers().map_err(|error| Failure::failed(output::in_words(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// Only the lab starts these, and none outlives the process that started it.
fn prepare() -> Result<(), Failure> {
    descriptors::raise().map_err(Failure::failed)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::failed)
}

/// The measured process: a description on standard input, a JSON line for each interval and one
/// for the result on standard output.
fn measure_one() -> Result<ExitCode, Failure> {
    let mut text = String::new();
    let stdin = std::io::stdin();
    stdin.take(SPEC_BYTES_MAX).read_to_string(&mut text).map_err(Failure::failed)?;
    let task = Task::read(&text).map_err(|error| Failure::usage(output::in_words(&error)))?;
    descriptors::raise().map_err(Failure::failed)?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    // A run without its runner would only disturb later runs. One that has a server and a
    // load generator to end gets a signal that it can catch.
    let goodbye = match task.experiment.has_processes {
        true => Signal::TERM,
        false => Signal::KILL,
    };
    if task.experiment.has_processes {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let flag = Arc::clone(&is_interrupted);
            signal_hook::flag::register(signal, flag).map_err(Failure::failed)?;
        }
    }
    rustix::process::set_parent_process_death_signal(Some(goodbye)).map_err(Failure::failed)?;
    let line = |line: &Line| output::result(&serde_json::to_string(line).expect("plain data"));
    let done = measure(
        &task,
        &mut |interval| {
            // A runner that went away is noticed at the end.
            let _ = line(&Line::Interval(*interval));
        },
        &|| is_interrupted.load(Relaxed),
    );
    let done = done.map_err(|error| Failure::failed(output::in_words(&error)))?;
    line(&Line::Done(Box::new(done)))?;
    Ok(ExitCode::SUCCESS)
}

/// The process of an arm that takes turns: a description and orders on standard input, answers on
/// standard output.
fn subject() -> Result<ExitCode, Failure> {
    descriptors::raise().map_err(Failure::failed)?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    // What it has started ends with it, so it must be notified that the runner is gone.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let flag = Arc::clone(&is_interrupted);
        signal_hook::flag::register(signal, flag).map_err(Failure::failed)?;
    }
    let goodbye = Signal::TERM;
    rustix::process::set_parent_process_death_signal(Some(goodbye)).map_err(Failure::failed)?;
    let (mut orders, mut answers) = (std::io::stdin().lock(), std::io::stdout().lock());
    let is_interrupted = || is_interrupted.load(Relaxed);
    serve(&mut orders, &mut answers, &is_interrupted)
        .map_err(|error| Failure::failed(output::in_words(&error)))?;
    Ok(ExitCode::SUCCESS)
}
