//! `pollux pool start`, stop, restart and reload: a pool in the foreground, or one that stays when this command returns,
//! and orders to one that runs, with their progress.
//!
//! ```text
//!  start ──► this binary again, --detached ──► a process group, a control socket, "open" on its standard output
//!    │                                                                │
//!    └── waits for "open" ──► control socket ──► Settle ──────────────┴─► progress … done
//! ```
//!
//! Errors before the pool is open go to that standard output; those that follow go to its log.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pollux_host::Program;
use pollux_settings::command::output::{self, Failure};
use pollux_sys::descriptors;
use pollux_xatmi::config::Entry;
use pollux_xatmi::control::{Answer, Control, ControlError, OPEN, Progress, Request};
use pollux_xatmi::environment::{Environment, Transport};
use pollux_xatmi::pool::{
    Log, Pool, PoolOptions, find, keep_from_children, leave_terminal, output_faults, workers_left,
};
use pollux_xatmi::supervisor::{NoSuchWorker, Selection};

use crate::flags::{LogFlags, StartFlags};
use crate::{SILENCE, asked, config_file, connect, environment, show};

/// The longest time without any progress: limits of a configuration are up to a day of seconds,
/// but a user at a terminal has given up long before.
const ORDER_SILENCE: Duration = Duration::from_secs(600);
/// From the last worker's end until it is said that the manager is still there.
const END_PROGRESS_AFTER: Duration = Duration::from_secs(2);

/// Starts a pool, or workers of one that runs.
pub(crate) fn start(flags: &StartFlags) -> Result<ExitCode, Failure> {
    let only = crate::selection(&flags.which);
    if let Some(what) = &only
        && !flags.detached
    {
        let environment = environment()?;
        let is_another = |file: &PathBuf| running_pool_of(file, &environment).is_none();
        match Control::connect(&environment.prefix) {
            Err(ControlError::NoPool { .. }) => {}
            Ok(_) if flags.config.as_ref().is_some_and(is_another) => {}
            _ => return start_workers(what.clone()),
        }
    }
    // An old kernel can't; then it is as it was before.
    let _ = keep_from_children();
    let file = config_file(flags.config.clone())?;
    let environment = environment()?;
    if flags.detached {
        return run_detached(flags, file, environment);
    }
    if !flags.foreground
        && only.is_none()
        && let Some(mut control) = running_pool_of(&file, &environment)
    {
        return start_missing(&mut control, &environment);
    }
    check(&file, &only.unwrap_or(Selection::All))?;
    if flags.foreground {
        let log = match &flags.log {
            Some(path) => Log::append_to(path).map_err(|error| unwritable(path, &error))?,
            None => Log::to_standard_error().map_err(Failure::failed)?,
        };
        let pool = open(flags, file, environment, log)?;
        if let Some(address) = pool.metrics_address() {
            output::remark(&format!("metrics: http://{address}/metrics"));
        }
        pool.run().map_err(|error| Failure::failed(output::error_chain(&error)))?;
        return Ok(ExitCode::SUCCESS);
    }
    start_behind(flags, &file, &environment)
}

/// The pool that runs with this configuration, if it does.
fn running_pool_of(file: &Path, environment: &Environment) -> Option<Control> {
    let mut control = Control::connect(&environment.prefix).ok()?;
    let known = PathBuf::from(show::info_of(&mut control)?.config);
    // One with another configuration is in the way, which its start says.
    let same = std::fs::canonicalize(file).ok()? == std::fs::canonicalize(known).ok()?;
    same.then_some(control)
}

/// Starts what is missing of a pool that runs: scripts and timers begin one again and again.
fn start_missing(control: &mut Control, environment: &Environment) -> Result<ExitCode, Failure> {
    let what = Selection::All;
    let said =
        follow(control, &Request::Start { what }, "starting").map_err(|error| asked(&error))?;
    let prefix = &environment.prefix;
    let manager = control.manager();
    output::remark(&format!("pool {prefix} runs already, as process {manager}: {said}"));
    Ok(ExitCode::SUCCESS)
}

/// What would keep every copy of a program from starting is reported before anything is started, and keeps the others
/// only if none is left.
fn check(file: &Path, what: &Selection) -> Result<(), Failure> {
    let config = crate::read_config(file)?;
    for warning in &config.warnings {
        output::remark(&format!("warning: {warning}"));
    }
    let faults_of = |entry| {
        let missing = find(entry).err();
        missing.into_iter().chain(output_faults(entry)).collect::<Vec<String>>()
    };
    let entries: Vec<&Entry> = config.entries.iter().filter(|entry| what.starts(entry)).collect();
    if entries.is_empty() && *what != Selection::All {
        return Err(Failure::failed(NoSuchWorker::new(what.clone())));
    }
    let (sound, faulty): (Vec<_>, Vec<_>) =
        entries.into_iter().map(faults_of).partition(Vec::is_empty);
    let faults = faulty.concat();
    if sound.is_empty() && !faults.is_empty() {
        return Err(Failure::failed(faults.join("\n")));
    }
    for fault in faults {
        output::remark(&format!("warning: {fault}"));
    }
    Ok(())
}

fn open(
    flags: &StartFlags,
    config: PathBuf,
    environment: Environment,
    log: Log,
) -> Result<Pool, Failure> {
    descriptors::raise().map_err(Failure::failed)?;
    // A pool whose session keeps it runs as well.
    if let Err(error) = leave_terminal() {
        output::remark(&format!("the terminal could not be given up: {error}"));
    }
    let wake = crate::wake(flags.wake);
    let metrics = flags.metrics.clone();
    let only = crate::selection(&flags.which).unwrap_or(Selection::All);
    let options = PoolOptions { config, environment, wake, metrics, only };
    Pool::open(options, log).map_err(|error| Failure::failed(output::error_chain(&error)))
}

/// The process that stays: says on standard output whether the pool is open.
fn run_detached(
    flags: &StartFlags,
    config: PathBuf,
    environment: Environment,
) -> Result<ExitCode, Failure> {
    let path = flags.log.clone().ok_or_else(|| Failure::usage("--detached needs --log"))?;
    let opened = Log::append_to(&path).map_err(|error| unwritable(&path, &error));
    let opened = opened.and_then(|log| {
        leave_process_group()?;
        open(flags, config, environment, log)
    });
    let pool = match opened {
        Ok(pool) => pool,
        Err(failure) => {
            // Standard error is the log already; the command that waits reads here.
            output::result(&failure.message)?;
            return Ok(failure.code);
        }
    };
    let mut stdout = std::io::stdout();
    let said = writeln!(stdout, "{OPEN}").and_then(|()| stdout.flush());
    let closed = said.and_then(|()| {
        let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
        Ok(rustix::stdio::dup2_stdout(nowhere)?)
    });
    closed.map_err(|error| Failure::failed(format!("standard output: {error}")))?;
    pool.run().map_err(|error| Failure::failed(output::error_chain(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// Goes into a process group of its own, so that the keys and the end of a terminal mean others. Not into a session of
/// its own: the kernel shares the CPUs among sessions (sched(7), autogroup), and where clients and workers are in two,
/// a thread of one that was interrupted within a call can wait for a tenth of a second until it continues.
fn leave_process_group() -> Result<(), Failure> {
    let moved = rustix::process::setpgid(None, None);
    moved.map_err(|errno| Failure::failed(format!("setpgid: {errno}")))
}

/// Starts the process that stays, and waits until its workers are up.
fn start_behind(
    flags: &StartFlags,
    file: &Path,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let log = log_file(flags, file, environment)?;
    let process = |error| Failure::failed(output::error_chain(&error));
    let mut pool = spawn(flags, file, &log)?;
    let said = pool.output_within(Duration::MAX, &|| false).map_err(process)?;
    if said.trim_end() == OPEN {
        pool.leave_running();
    } else {
        let status = pool.wait().map_err(process)?;
        let said = said.trim_end();
        let log = log.display();
        return Err(Failure::failed(match said {
            "" => format!("the pool ended ({status}) before it was open; its log: {log}"),
            _ => said.to_owned(),
        }));
    }
    let mut control = Control::connect(&environment.prefix).map_err(|error| asked(&error))?;
    let outcome = follow(&mut control, &Request::Settle, "starting");
    let took = began.elapsed().as_secs_f64();
    let log = log.display();
    match outcome {
        Ok(said) => {
            let prefix = &environment.prefix;
            let info = show::info_of(&mut control);
            let travel = info.as_ref().and_then(|info| Transport::named(&info.transport));
            let travel = travel.map_or_else(String::new, |transport| {
                format!("; requests {}", transport.in_words())
            });
            output::remark(&format!("pool {prefix}: {said} after {took:.2} s{travel}; log: {log}"));
            if let Some(address) = info.and_then(|info| info.metrics) {
                output::remark(&format!("metrics: http://{address}/metrics"));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error @ ControlError::Refused(_)) => Err(Failure::failed(format!(
            "{error}\nthe pool stays up and tries them again; log: {log}; end it with `pollux pool \
             stop`"
        ))),
        Err(error) => Err(Failure::failed(format!("{error}\nlog: {log}"))),
    }
}

fn spawn(flags: &StartFlags, file: &Path, log: &Path) -> Result<Program, Failure> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| Failure::failed(format!("this program: {error}")))?;
    let error_file = append(log)?;
    let mut command = Command::new(own);
    command.args(["start", "--detached", "--config"]).arg(file);
    command.arg("--log").arg(log).args(["--wake", flags.wake.name()]);
    if let Some(address) = &flags.metrics {
        command.args(["--metrics", &address.to_string()]);
    }
    match crate::selection(&flags.which) {
        None | Some(Selection::All) => {}
        Some(Selection::Program(name)) => _ = command.args(["--name", &name]),
        Some(Selection::Id(id)) => _ = command.args(["--id", &id.to_string()]),
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(error_file);
    let started = Program::start_unread("pollux-pool", command);
    started.map_err(|error| Failure::failed(output::error_chain(&error)))
}

fn log_file(
    flags: &StartFlags,
    file: &Path,
    environment: &Environment,
) -> Result<PathBuf, Failure> {
    if let Some(path) = &flags.log {
        return Ok(path.clone());
    }
    let name = format!("pollux-pool-{}.log", &environment.prefix.as_str()[1..]);
    let folder = std::env::var_os("NDRX_ULOG").filter(|folder| !folder.is_empty());
    let folder = folder.map(PathBuf::from).or_else(|| file.parent().map(Path::to_owned));
    let path = folder.unwrap_or_default().join(name);
    append(&path)?;
    Ok(path)
}

fn append(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    Failure::failed(format!("the log {path}: {error}; give another one by --log FILE"))
}

/// Starts workers of the running pool.
fn start_workers(what: Selection) -> Result<ExitCode, Failure> {
    order(&Request::Start { what }, "starting")
}

/// Stops workers, or the pool.
pub(crate) fn stop(what: Option<Selection>, now: bool) -> Result<ExitCode, Failure> {
    let Some(what) = what else { return end(now) };
    order(&Request::Stop { what }, "stopping")
}

/// Restarts workers.
pub(crate) fn restart(what: Option<Selection>, is_for_running: bool) -> Result<ExitCode, Failure> {
    let what = what.unwrap_or(Selection::All);
    order(&Request::Restart { what, is_for_running }, "restarting")
}

/// Has the configuration read again.
pub(crate) fn reload() -> Result<ExitCode, Failure> {
    let said = connect()?.ask(&Request::Reload, SILENCE, |_| {});
    output::remark(&said.map_err(|error| asked(&error))?);
    Ok(ExitCode::SUCCESS)
}

/// Has logs opened again, or programs write another level.
pub(crate) fn log(flags: &LogFlags) -> Result<ExitCode, Failure> {
    let what = crate::selection(&flags.which).unwrap_or(Selection::All);
    let request = Request::Log { what, level: flags.level, is_opened_again: flags.is_opened_again };
    let said = connect()?.ask(&request, SILENCE, |_| {});
    output::remark(&said.map_err(|error| asked(&error))?);
    Ok(ExitCode::SUCCESS)
}

/// Sends an order and shows how far it is; the words at its end.
pub(crate) fn follow(
    control: &mut Control,
    request: &Request,
    verb: &'static str,
) -> Result<String, ControlError> {
    let bar = std::io::stderr().is_terminal().then(|| bar(verb));
    let outcome = control.ask(request, ORDER_SILENCE, |answer| {
        if let (Some(bar), Answer::Progress(Progress { done, of, failed })) = (&bar, answer) {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
            if failed > 0 {
                bar.set_message(format!("{failed} failed"));
            }
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    outcome
}

fn order(request: &Request, verb: &'static str) -> Result<ExitCode, Failure> {
    let said = follow(&mut connect()?, request, verb).map_err(|error| asked(&error))?;
    output::remark(&said);
    Ok(ExitCode::SUCCESS)
}

fn end(now: bool) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let prefix = environment()?.prefix;
    let mut control = Control::connect(&prefix).map_err(|error| {
        let left = match error {
            ControlError::NoPool { .. } => workers_left(&prefix).len(),
            _ => 0,
        };
        let failure = asked(&error);
        match left {
            0 => failure,
            _ => Failure::failed(format!(
                "{}; {left} workers of a manager that was killed are left: a `start` takes them \
                 over, else they end within a minute",
                failure.message
            )),
        }
    })?;
    let said = follow(&mut control, &Request::End { now }, "stopping");
    let said = said.map_err(|error| asked(&error))?;
    wait_for_end(&mut control)?;
    output::remark(&format!("{said} after {:.2} s", began.elapsed().as_secs_f64()));
    Ok(ExitCode::SUCCESS)
}

/// Waits until the process of the manager has ended: until then the prefix and its files are in use.
fn wait_for_end(control: &mut Control) -> Result<(), Failure> {
    let outcome = match control.wait_for_end(END_PROGRESS_AFTER) {
        Err(ControlError::Silent(_)) => {
            let pid = control.manager();
            output::remark(&format!(
                "all workers are stopped; the manager, process {pid}, is still ending"
            ));
            control.wait_for_end(SILENCE)
        }
        other => other,
    };
    outcome.map_err(|error| match error {
        ControlError::Silent(_) => Failure::failed(format!(
            "all workers are stopped, and the manager, process {pid}, has not ended within {} s; its log says \
             what it waits for, `kill -9 {pid}` ends it",
            (END_PROGRESS_AFTER + SILENCE).as_secs(),
            pid = control.manager(),
        )),
        error => asked(&error),
    })
}

fn bar(verb: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix} {bar:24} {pos}/{len} {msg}");
    bar.set_style(style.expect("a constant template"));
    bar.set_prefix(verb);
    bar
}
