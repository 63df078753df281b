//! The service pool of pollux as a system under test: the same herd on the same kind of queue, with
//! everything that a pool adds to it.
//!
//! The pool is that of the command: the measuring process starts `pollux lab herd-pool`, which calls
//! [`run`] and becomes `pollux-pool`, so that it is told when the measuring process ends. That one
//! starts the workers (`bank`), and the callers of [`super::callers`] call them as clients do. How
//! workers wait is the pool's own switch. Names begin with the number of the measuring process, and
//! files are in a folder of the run's own, which is removed; the manager ends when the measuring
//! process does, and takes all workers and queues along.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pollux_xatmi::control::{Answer, Control, Request};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::queue::Prefix;
use pollux_xatmi::worker::Wake;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use pollux_processes::{Desk, Program};

use super::bank::PROGRAM;
use super::callers::{Calls, Orders as CallerOrders, PATIENCE};
use super::crew;
use super::{Calling, Source};
use crate::error::{MeasureError, in_words};
use crate::host::programs;
use crate::measure::RunSpec;

/// The pool's command.
const POOL_PROGRAM: &str = "pollux-pool";
/// What it says when it can be asked.
const OPEN: &str = "open";
/// Longest silence of a manager: it tells how far it is whenever a worker is up.
const SILENCE: Duration = Duration::from_secs(20);
/// How long it may take to end with all workers; 250 take a fraction of a second.
const END_PATIENCE: Duration = Duration::from_secs(20);
/// Lines of its log that a failure quotes, from the end.
const QUOTED_LINES: usize = 3;
/// The configuration in the folder of a run.
const CONFIG: &str = "pool.xml";
/// The manager's log there.
const LOG: &str = "pool.log";

/// What becomes the manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Orders {
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// Why there can be no pool here, if so.
pub(super) fn missing() -> Option<String> {
    let reason = "pollux-pool was found neither beside pollux nor in PATH (in the sources: cargo build \
                  --release -p pollux-pool)";
    programs::find_beside(POOL_PROGRAM).is_none().then(|| reason.to_owned())
}

/// Starts the pool and its callers.
pub(super) fn start(
    spec: &RunSpec,
    wake: Wake,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<(Manager, Calling), MeasureError> {
    if Source::of(&spec.axes) != Source::Queue {
        return Err(MeasureError::Spec("the workers of a pool wait for queues".to_owned()));
    }
    let (workers, callers) = (spec.count("workers"), spec.count("callers"));
    let manager = Manager::start(spec, workers, wake, is_interrupted)?;
    let calls = Calls::Pool(manager.prefix.to_string());
    let orders = CallerOrders { calls, callers };
    let calling = Calling::start(&orders, &[], is_interrupted)?;
    Ok((manager, calling))
}

/// A worker at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) pid: u32,
    pub(super) calls: u64,
}

/// Workers by their server ids.
pub(super) type Rows = BTreeMap<u32, Row>;

/// The calls that each worker answered meanwhile.
pub(super) fn calls_between(before: &Rows, after: &Rows) -> Result<Vec<u64>, MeasureError> {
    let replaced = |id: &u32| failed(&format!("worker {id} was replaced in the window"));
    let one = |(id, then): (&u32, &Row)| match after.get(id) {
        Some(now) if now.pid == then.pid => Ok(now.calls - then.calls),
        _ => Err(replaced(id)),
    };
    before.iter().map(one).collect()
}

/// The manager of the run's pool, with everything that belongs to it.
#[derive(Debug)]
pub(super) struct Manager {
    program: Program,
    prefix: Prefix,
    workers: usize,
    folder: Folder,
}

impl Manager {
    /// Starts the pool and returns when all workers are up.
    fn start(
        spec: &RunSpec,
        workers: usize,
        wake: Wake,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let program = programs::find_beside(POOL_PROGRAM);
        let program = program.ok_or_else(|| failed(&missing().unwrap_or_default()))?;
        let prefix = prefix(&format!("/pollux-herd-{}", std::process::id()))?;
        let folder = Folder::make(&spec.scratch, workers)?;
        let (config, log) = (folder.path.join(CONFIG), folder.path.join(LOG));
        let words = ["start", "--detached", "--wake", wake.name()].map(OsString::from);
        let files = ["--config".into(), config.into(), "--log".into(), log.into()];
        let orders = Orders { program, arguments: words.into_iter().chain(files).collect() };
        let (desk, theirs) = Desk::pair()?;
        let setup = MeasureError::setup("the manager of a pool");
        let mut command = crew::command("herd-pool", &theirs).map_err(setup)?;
        // A pool is set up by its environment, and whoever measures may have one of his own.
        command.env_clear().env("PATH", &folder.path).env("NDRX_QPREFIX", prefix.to_string());
        command.env("NDRX_TOUT", PATIENCE.as_secs().to_string());
        let program = Program::start_hearing_all("the pool", command)?;
        let mut manager = Self { program, prefix, workers, folder };
        desk.send(&orders, &[])?;
        manager.program.says_within(OPEN, SILENCE, is_interrupted)?;
        manager.ask(&Request::Settle, |_| {})?;
        Ok(manager)
    }

    fn ask(&self, request: &Request, each: impl FnMut(Answer)) -> Result<(), MeasureError> {
        let control = Control::connect(&self.prefix);
        let asked = control.and_then(|mut control| control.ask(request, SILENCE, each));
        asked
            .map(drop)
            .map_err(|error| failed(&format!("{}; {}", in_words(&error), self.folder.last_words())))
    }

    /// All workers, as the manager counts their calls.
    pub(super) fn rows(&self) -> Result<Rows, MeasureError> {
        let mut rows = Rows::new();
        self.ask(&Request::Ps, |answer| {
            let Answer::Workers(workers) = answer else { return };
            let up = workers.iter().filter_map(|row| Some((row, row.pid?)));
            rows.extend(up.map(|(row, pid)| (row.srvid, Row { pid, calls: row.calls })));
        })?;
        match rows.len() {
            up if up == self.workers => Ok(rows),
            up => Err(failed(&format!("{up} of {} workers are up", self.workers))),
        }
    }

    /// Ends the pool; one that does not end well is an error.
    pub(super) fn end(mut self) -> Result<(), MeasureError> {
        self.told_to_end()?;
        match self.program.status() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(failed(&format!("{status}; {}", self.folder.last_words()))),
            None => Err(failed("it did not end")),
        }
    }

    /// Its workers and queues are gone when it has ended, for which it may take its time.
    fn told_to_end(&mut self) -> Result<bool, MeasureError> {
        self.program.signal(Signal::TERM);
        Ok(self.program.ends_within(END_PATIENCE, &|| false)?)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // After an end this is the status once more; after a failure there is nobody to tell.
        let _ = self.told_to_end();
    }
}

/// The folder of a run: the configuration, the worker's program under its name, the log.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn make(scratch: &Path, workers: usize) -> Result<Self, MeasureError> {
        let path = scratch.join(format!("herd-pool-{}", std::process::id()));
        let failed = MeasureError::setup("the folder of a pool");
        std::fs::create_dir_all(&path).map_err(failed)?;
        let folder = Self { path };
        std::fs::write(folder.path.join(CONFIG), config(workers)).map_err(failed)?;
        let own = std::env::current_exe().map_err(failed)?;
        let server = folder.path.join(PROGRAM);
        std::fs::write(&server, script(&own)).map_err(failed)?;
        std::fs::set_permissions(&server, PermissionsExt::from_mode(0o700)).map_err(failed)?;
        Ok(folder)
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.path.join(LOG)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(QUOTED_LINES)..];
        if last.is_empty() { "its log is empty".to_owned() } else { last.join(" | ") }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The runner removes the folder around it in any case.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// So many copies of the bank's server. Nothing looks at workers but every ten minutes.
fn config(workers: usize) -> String {
    format!(
        "<endurox><appconfig><sanity>600</sanity></appconfig><servers><server name=\"{PROGRAM}\">\
         <srvid>1</srvid><min>{workers}</min><max>{workers}</max><start_max>0</start_max>\
         <pingtime>0</pingtime></server></servers></endurox>"
    )
}

/// The server's program: a part of this one.
fn script(own: &Path) -> Vec<u8> {
    // A quote in the path ends the quoted text, stands for itself, and begins it again.
    let quoted = own.as_os_str().as_bytes().split(|byte| *byte == b'\'').collect::<Vec<_>>();
    let quoted = quoted.join(&b"'\\''"[..]);
    [b"#!/bin/sh\nexec '", &quoted[..], b"' lab herd-server \"$@\"\n"].concat()
}

/// Becomes the manager of a pool, in the process that the measuring one has started.
///
/// # Errors
/// [`MeasureError`] when it can't be told what, or the program can't be run.
pub fn run() -> Result<(), MeasureError> {
    let desk = Desk::on_stdin()?;
    let Some((orders, _)) = desk.receive::<Orders>()? else { return Ok(()) };
    let cause = Command::new(&orders.program).args(&orders.arguments).exec();
    Err(MeasureError::Setup { what: orders.program.display().to_string(), cause })
}

/// The settings of the run's pool, for its manager and its clients.
pub(super) fn environment(prefix: &str) -> Result<Environment, MeasureError> {
    let prefix = self::prefix(prefix)?;
    // A call that takes so long has lost its message.
    let timeout = Some(PATIENCE);
    Ok(Environment { prefix, timeout, messages_max: None, message_len_bytes: None })
}

fn prefix(text: &str) -> Result<Prefix, MeasureError> {
    Prefix::new(text).map_err(|mistake| MeasureError::Spec(mistake.to_string()))
}

fn failed(what: &str) -> MeasureError {
    MeasureError::Program { program: "the pool".to_owned(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_was_replaced_spoils_the_window() {
        let row = |pid, calls| Row { pid, calls };
        let before = Rows::from([(1, row(10, 5)), (2, row(11, 0))]);
        let after = Rows::from([(1, row(10, 9)), (2, row(11, 1))]);
        assert_eq!(calls_between(&before, &after).expect("the same workers"), [4, 1]);
        let replaced = Rows::from([(1, row(10, 9)), (2, row(12, 1))]);
        let error = calls_between(&before, &replaced).expect_err("another process");
        assert!(error.to_string().contains("worker 2 was replaced"), "{error}");
        assert!(calls_between(&before, &Rows::new()).is_err());
    }

    #[test]
    fn the_server_is_started_whatever_its_folder_is_called() {
        let script = String::from_utf8(script(Path::new("/it's a/pollux"))).expect("text");
        assert_eq!(script, "#!/bin/sh\nexec '/it'\\''s a/pollux' lab herd-server \"$@\"\n");
    }

    #[test]
    fn the_configuration_is_one_that_the_pool_reads_without_a_warning() {
        let file = std::env::temp_dir().join(format!("herd-pool-{}.xml", std::process::id()));
        std::fs::write(&file, config(250)).expect("written");
        let read = pollux_xatmi::config::PoolConfig::from_file(&file);
        std::fs::remove_file(&file).expect("removed");
        let read = read.expect("sound");
        assert!(read.warnings.is_empty(), "{:?}", read.warnings);
        assert_eq!(read.entries.iter().map(|entry| entry.min).collect::<Vec<_>>(), [250]);
    }
}
