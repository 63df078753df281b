//! A service pool with its callers, as one of the programs that have both.
//!
//! ```text
//!  measuring process ─► herd-pool: calls, a customer of the bank for each caller
//!                         └─► herd-manager ═► pollux-pool start --detached: the manager
//!                                               └─► herdsv ═► herd-server: workers of the bank (bank.rs)
//! ```
//!
//! What the process that calls is asked and answers over its standard input is that of `callers.rs`. The
//! manager ends when this process does, and takes all workers and queues along; its files are in a folder of
//! the run's own, which is removed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use pollux_host::{ControlSocket, Program, patience};
use pollux_settings::command::output::error_chain;
use pollux_xatmi::control::{Answer, Control, OPEN, Request};
use pollux_xatmi::environment::{Environment, TRANSPORT_VARIABLE, Transport};
use pollux_xatmi::queue::Prefix;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::bank::{self, Customer};
use super::callers::{self, Failure as Reason, LAST_ANSWER_TIME_MAX, Served, Target};
use crate::error::MeasureError;

/// The words of this program behind which those of a manager to its worker follow.
const SERVER: &str = "lab herd-server";

/// Name of the script that runs it.
const PROGRAM: &str = "herdsv";
/// Longest silence of a manager: it tells how far it is whenever a worker is up.
const SILENCE: Duration = Duration::from_secs(20);
/// Lines of its log that a failure quotes, from the end.
const QUOTED_LINES: usize = 3;
/// The configuration in the folder of a run.
const CONFIG: &str = "pool.xml";
/// The manager's log there.
const LOG: &str = "pool.log";

/// Why the lock of [`Pool`] is sound.
const ALONE: &str = "one thread has it";

/// What is measured, as the process that calls receives it first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PoolOrders {
    /// The command of the pool.
    pub(super) program: PathBuf,
    /// Workers of the bank.
    pub(super) workers: usize,
    /// Threads that call.
    pub(super) callers: usize,
    /// Workers that a message wakes, in that command's words.
    pub(super) wake: String,
    /// How requests travel: memory or queues.
    pub(super) transport: String,
    /// What the names of its queues begin with.
    pub(super) prefix: String,
    /// A folder that is made for its files, and removed.
    pub(super) folder: PathBuf,
}

/// Starts a pool and calls as often as it is asked to, over its standard input, as `pollux lab herd-pool`.
///
/// # Errors
/// [`MeasureError`] when a failure can't be reported; one that is reported is not an error here.
pub fn run_pool() -> Result<(), MeasureError> {
    let control = ControlSocket::on_stdin()?;
    let Some((orders, _)) = control.receive::<PoolOrders>()? else { return Ok(()) };
    Ok(callers::serve(&control, || Herd::start(&orders))?)
}

/// Becomes the manager of that pool, `pollux lab herd-manager PROGRAM WORDS`: the pool's own command, which is asked to
/// end when the process that calls has ended. It ends its workers and removes its queues before it is gone.
///
/// # Errors
/// [`MeasureError`] where it can't; else this does not return.
pub fn run_manager(mut words: impl Iterator<Item = OsString>) -> Result<Infallible, MeasureError> {
    let missing = || MeasureError::Spec("no program of a pool".to_owned());
    let program = words.next().ok_or_else(missing)?;
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(MeasureError::io("prctl"))?;
    // The signal survives that another program takes the place of this one (PR_SET_PDEATHSIG(2const)).
    let cause = Command::new(program).args(words).exec();
    Err(MeasureError::setup("the manager of the pool")(cause))
}

/// A worker of that pool, as the script in its folder starts it: `pollux lab herd-server WORDS`.
///
/// # Errors
/// In one line: no manager started this process, or what it needs cannot be obtained.
pub fn run_server(words: impl Iterator<Item = OsString>) -> Result<(), MeasureError> {
    bank::serve(words).map_err(|error| MeasureError::Program {
        program: "a worker of the pool".to_owned(),
        what: error_chain(&error),
    })
}

/// The bank: its pool, and a customer for each caller, so that no lock is contended.
struct Herd {
    // Customers leave before their pool ends.
    customers: Vec<Mutex<Customer>>,
    pool: Mutex<Pool>,
}

/// The pool, which only the thread of the orders uses.
struct Pool {
    manager: Manager,
    /// The workers when their work was asked for last.
    known: Rows,
}

impl Herd {
    fn start(orders: &PoolOrders) -> Result<Self, Reason> {
        let environment = Environment {
            prefix: Prefix::new(&orders.prefix)?,
            // A call that takes so long has lost its message.
            timeout: Some(LAST_ANSWER_TIME_MAX),
            messages_max: None,
            message_len_bytes: None,
            transport: Some(transport(&orders.transport)?),
            group: None,
        };
        let manager = Manager::start(&environment, orders)?;
        let customer = |number| Customer::open(&environment, number).map(Mutex::new);
        let customers = (0..orders.callers).map(customer).collect::<Result<_, _>>()?;
        let known = manager.rows()?;
        Ok(Self { customers, pool: Mutex::new(Pool { manager, known }) })
    }
}

impl Target for Herd {
    fn callers(&self) -> usize {
        self.customers.len()
    }

    fn call(&self, caller: usize, _: bool) -> Result<(), Reason> {
        self.customers[caller].lock().expect("a caller does not panic").ask()
    }

    fn workers(&self) -> Vec<u32> {
        self.pool.lock().expect(ALONE).known.values().map(|row| row.pid).collect()
    }

    fn served(&self) -> Result<Option<Served>, Reason> {
        let mut pool = self.pool.lock().expect(ALONE);
        let now = pool.manager.rows()?;
        let calls = calls_between(&pool.known, &now)?;
        pool.known = now;
        Ok(Some(Served { calls, waits: None }))
    }

    fn end(self) -> Result<(), Reason> {
        drop(self.customers);
        self.pool.into_inner().expect(ALONE).manager.end()
    }
}

/// A worker at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    pid: u32,
    calls: u64,
}

fn transport(name: &str) -> Result<Transport, Reason> {
    Transport::named(name).ok_or_else(|| "expected memory or queues".into())
}

/// Workers by their server ids.
type Rows = BTreeMap<u32, Row>;

/// The calls that each worker answered meanwhile.
fn calls_between(before: &Rows, after: &Rows) -> Result<Vec<u64>, Reason> {
    let one = |(id, then): (&u32, &Row)| match after.get(id) {
        Some(now) if now.pid == then.pid => Ok(now.calls - then.calls),
        _ => Err(format!("the pool: worker {id} was replaced in the window").into()),
    };
    before.iter().map(one).collect()
}

/// The manager of the run's pool, with everything that belongs to it.
#[derive(Debug)]
struct Manager {
    program: Program,
    prefix: Prefix,
    workers: usize,
    folder: Folder,
}

impl Manager {
    /// Starts the pool and returns when all workers are up.
    fn start(environment: &Environment, orders: &PoolOrders) -> Result<Self, Reason> {
        let own = std::env::current_exe()?;
        let workers = orders.workers;
        let folder = Folder::make(orders.folder.clone(), &own, workers)?;
        let mut command = Command::new(own);
        let prefix = &environment.prefix;
        // A pool is set up by its environment, and the user may have one.
        command.env_clear().env("PATH", &folder.path).env("NDRX_QPREFIX", prefix.as_str());
        command.env("NDRX_TOUT", LAST_ANSWER_TIME_MAX.as_secs().to_string());
        command.env(TRANSPORT_VARIABLE, environment.transport.unwrap_or_default().name());
        command.args(["lab", "herd-manager"]).arg(&orders.program);
        command.args(["start", "--detached", "--wake", &orders.wake]);
        command.arg("--config").arg(folder.path.join(CONFIG));
        command.arg("--log").arg(folder.path.join(LOG));
        // The control socket: the laboratory sees its end when all of them have ended.
        command.stdin(Stdio::inherit());
        let program = Program::start_reading_all("the pool", command)?;
        let mut manager = Self { program, prefix: prefix.clone(), workers, folder };
        manager.program.wait_for_line(OPEN, SILENCE, &|| false)?;
        manager.ask(&Request::Settle, |_| {})?;
        Ok(manager)
    }

    fn ask(&self, request: &Request, each: impl FnMut(Answer)) -> Result<(), Reason> {
        let control = Control::connect(&self.prefix);
        let asked = control.and_then(|mut control| control.ask(request, SILENCE, each));
        asked.map(drop).map_err(|error| self.failed(&error_chain(&error)))
    }

    /// All workers, as the manager counts their calls.
    fn rows(&self) -> Result<Rows, Reason> {
        let mut rows = Rows::new();
        self.ask(&Request::Ps, |answer| {
            let Answer::Workers(workers) = answer else { return };
            let up = workers.iter().filter_map(|row| Some((row, row.pid?)));
            rows.extend(up.map(|(row, pid)| (row.srvid, Row { pid, calls: row.calls })));
        })?;
        match rows.len() {
            up if up == self.workers => Ok(rows),
            up => Err(self.failed(&format!("{up} of {} workers are up", self.workers))),
        }
    }

    /// Ends the pool; one that does not end well is an error.
    fn end(mut self) -> Result<(), Reason> {
        self.ends()?;
        match self.program.status() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failed(&status.to_string())),
            None => Err(self.failed("it did not end")),
        }
    }

    /// Its workers and queues are gone when it has ended, for which it may take its time.
    fn ends(&mut self) -> Result<bool, Reason> {
        self.program.signal(Signal::TERM);
        Ok(self.program.ends_within(patience::POOL_SETTLES, &|| false)?)
    }

    fn failed(&self, what: &str) -> Reason {
        format!("the pool: {what}; {}", self.folder.stderr_tail()).into()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // After an end this is the status once more; after a failure it is reported no more.
        let _ = self.ends();
    }
}

/// The folder of a run: the configuration, the worker's program under its name, the log.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn make(path: PathBuf, own: &Path, workers: usize) -> Result<Self, Reason> {
        std::fs::create_dir_all(&path)?;
        let folder = Self { path };
        std::fs::write(folder.path.join(CONFIG), config(workers))?;
        let server = folder.path.join(PROGRAM);
        std::fs::write(&server, script(own))?;
        std::fs::set_permissions(&server, PermissionsExt::from_mode(0o700))?;
        Ok(folder)
    }

    fn stderr_tail(&self) -> String {
        let log = std::fs::read_to_string(self.path.join(LOG)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(QUOTED_LINES)..];
        if last.is_empty() { "its log is empty".to_owned() } else { last.join(" | ") }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The laboratory removes the folder around it in any case.
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
    [b"#!/bin/sh\nexec '", &quoted[..], b"' ", SERVER.as_bytes(), b" \"$@\"\n"].concat()
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
