//! The processes of which a run is made, hidden commands of `pollux lab`: the measured process of an arm (`subject` in turns,
//! `measure` in a run by itself); workers and callers of a herd; a baseline server to compare servers with. None of them outlives
//! the process that started it, and none but the last is for users.

use std::ffi::OsString;
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pollux_lab::baselines::{BaselineOptions, BaselineServer};
use pollux_lab::child::{self, Task, measure, take_orders};
use pollux_lab::experiments::herd;
use pollux_lab::measure::{Line, Pass};
use pollux_sys::descriptors;
use rustix::process::Signal;

use super::ending_signals;
use crate::output::{self, Failure};

/// Longest run description that `measure` reads.
const SPEC_BYTES_MAX: u64 = 1 << 20;

/// A part of a run, a hidden command.
pub(crate) type Internal = fn() -> Result<ExitCode, Failure>;

/// Those without flags, `pollux lab NAME`. A run starts thousands, so they are found before the flags of
/// all commands are set up, which takes longer than the start of a process.
const INTERNAL: &[(&str, Internal)] = &[
    ("subject", subject),
    ("measure", measure_one),
    ("herd-worker", herd_worker),
    ("herd-callers", herd_callers),
    ("herd-pool", herd_pool),
];

/// Those with words of another program behind them.
const INTERNAL_WITH_WORDS: &[(&str, Internal)] =
    &[("herd-manager", herd_manager), ("herd-server", herd_server)];

/// The part of a run that these words of the command line name, if they do.
pub(crate) fn find_internal(words: impl Iterator<Item = OsString>) -> Option<Internal> {
    let words: Vec<OsString> = words.take(3).collect();
    let found = |parts: &[(&str, Internal)], name: &OsString| {
        parts.iter().find(|(part, _)| name == part).map(|(_, run)| *run)
    };
    match &words[..] {
        [lab, name, rest @ ..] if lab == "lab" => {
            let alone = rest.is_empty().then(|| found(INTERNAL, name)).flatten();
            alone.or_else(|| found(INTERNAL_WITH_WORDS, name))
        }
        _ => None,
    }
}

/// What stands behind `pollux lab NAME`.
fn words_behind() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip(3)
}

/// A baseline server, until it is ended by a signal; the lab reads the address as it reads a server's.
pub(super) fn baseline(name: &str, options: &BaselineOptions) -> Result<ExitCode, Failure> {
    let server = BaselineServer::by_name(name).ok_or_else(|| {
        let names = BaselineServer::ALL.map(BaselineServer::name).join(", ");
        Failure::usage(format!("\"{name}\" is not a baseline server; expected one of {names}"))
    })?;
    prepare()?;
    let ran = pollux_lab::baselines::run(server, options, &mut |address| {
        output::remark(&format!("pollux lab baseline: http://{address} ({server})"));
    });
    ran.map_err(|error| Failure::failed(output::error_chain(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// A worker of a herd; what it does comes over standard input.
fn herd_worker() -> Result<ExitCode, Failure> {
    prepare()?;
    herd::run_worker().map_err(|error| Failure::failed(output::error_chain(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// The callers of a herd; what they do comes over standard input.
fn herd_callers() -> Result<ExitCode, Failure> {
    prepare()?;
    herd::run_callers().map_err(|error| Failure::failed(output::error_chain(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// A pool with its callers; what they do comes over standard input.
fn herd_pool() -> Result<ExitCode, Failure> {
    prepare()?;
    herd::run_pool().map_err(|error| Failure::failed(output::error_chain(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// The manager of that pool, which has its own signal for the end of what started it.
fn herd_manager() -> Result<ExitCode, Failure> {
    match herd::run_manager(words_behind()) {
        Err(error) => Err(Failure::failed(output::error_chain(&error))),
        Ok(never) => match never {},
    }
}

/// A worker of that pool.
fn herd_server() -> Result<ExitCode, Failure> {
    prepare()?;
    herd::run_server(words_behind())
        .map_err(|error| Failure::failed(output::error_chain(&error)))?;
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
    let task = Task::read(&text).map_err(|error| Failure::usage(output::error_chain(&error)))?;
    descriptors::raise().map_err(Failure::failed)?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    // A run without its runner would only disturb later runs. One that has a server and a
    // load generator to end gets a signal that it can catch.
    let goodbye = if task.experiment.has_processes { Signal::TERM } else { Signal::KILL };
    if task.experiment.has_processes {
        for signal in ending_signals() {
            let flag = Arc::clone(&is_interrupted);
            signal_hook::flag::register(signal, flag).map_err(Failure::failed)?;
        }
    }
    rustix::process::set_parent_process_death_signal(Some(goodbye)).map_err(Failure::failed)?;
    let line = |line: &Line| output::result(&serde_json::to_string(line).expect("plain data"));
    if task.spec.pass == Pass::Look {
        let looked = child::look(&task, &|| is_interrupted.load(Relaxed));
        let looked = looked.map_err(|error| Failure::failed(output::error_chain(&error)))?;
        line(&Line::Looked(Box::new(looked)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let done = measure(
        &task,
        &mut |interval| {
            // A runner that went away is noticed at the end.
            let _ = line(&Line::Interval(*interval));
        },
        &|| is_interrupted.load(Relaxed),
    );
    let done = done.map_err(|error| Failure::failed(output::error_chain(&error)))?;
    line(&Line::Done(Box::new(done)))?;
    Ok(ExitCode::SUCCESS)
}

/// The process of an arm that takes turns: a description and orders on standard input, answers on
/// standard output.
fn subject() -> Result<ExitCode, Failure> {
    descriptors::raise().map_err(Failure::failed)?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    // What it has started ends with it, so it must be notified that the runner is gone.
    for signal in ending_signals() {
        let flag = Arc::clone(&is_interrupted);
        signal_hook::flag::register(signal, flag).map_err(Failure::failed)?;
    }
    let goodbye = Signal::TERM;
    rustix::process::set_parent_process_death_signal(Some(goodbye)).map_err(Failure::failed)?;
    let mut orders = std::io::stdin().lock();
    let mut answers = std::io::stdout().lock();
    let is_interrupted = || is_interrupted.load(Relaxed);
    take_orders(&mut orders, &mut answers, &is_interrupted)
        .map_err(|error| Failure::failed(output::error_chain(&error)))?;
    Ok(ExitCode::SUCCESS)
}
