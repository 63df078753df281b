//! `pollux-pool herd`: a pool with its callers, as the laboratory measures it (`pollux lab`, `herd`).
//!
//! The process that the laboratory starts calls: it starts the manager of a pool, which
//! starts the bank's workers, and has a customer of the bank for each caller. What it is asked and
//! answers over its standard input is that of `pollux_callers`. The manager ends when this process does, and
//! takes all workers and queues along; its files are in a folder of the run's own, which is removed. None of it is for users.

mod bank;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use clap::Args;
use pollux_callers::{Failure as Reason, Served, Target};
use pollux_settings::command::output::{Failure, in_words};
use pollux_processes::{ControlSocket, Program};
use pollux_sys::descriptors;
use pollux_xatmi::control::{Answer, Control, Request};
use pollux_xatmi::environment::{Environment, TRANSPORT_VARIABLE, Transport};
use pollux_xatmi::queue::Prefix;
use rustix::process::Signal;

use bank::Customer;

use crate::flags::{StartFlags, Wake};
use crate::orders::{self, OPEN};

/// The word behind which the words of a manager to its worker follow.
const SERVER: &str = "herd-server";

/// Name of the script that runs it.
const PROGRAM: &str = "herdsv";
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

/// Why the lock of [`Pool`] is sound.
const ALONE: &str = "one thread has it";

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct HerdFlags {
    /// Workers of the bank
    #[arg(long)]
    workers: usize,
    /// Threads that call
    #[arg(long)]
    callers: usize,
    /// Workers that a message wakes
    #[arg(long)]
    wake: Wake,
    /// How requests travel: memory or queues
    #[arg(long, default_value = "queues", value_parser = transport)]
    transport: Transport,
    /// What the names of its queues begin with
    #[arg(long)]
    prefix: String,
    /// A folder that is made for its files, and removed
    #[arg(long)]
    folder: PathBuf,
}

fn transport(name: &str) -> Result<Transport, String> {
    Transport::named(name).ok_or_else(|| "expected memory or queues".to_owned())
}

/// Starts a pool and calls as often as it is asked to.
pub(crate) fn run(flags: HerdFlags) -> Result<ExitCode, Failure> {
    prepare(Signal::KILL)?;
    let control = ControlSocket::on_stdin().map_err(|error| Failure::failed(error.to_string()))?;
    pollux_callers::serve(&control, || Herd::start(flags))
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

/// The manager of that pool.
pub(crate) fn manager(flags: &StartFlags) -> Result<ExitCode, Failure> {
    // It ends its workers and removes its queues before it is gone.
    prepare(Signal::TERM)?;
    orders::start(flags)
}

/// A worker of that pool, if the command line is one's. A pool starts hundreds, so it is found before all
/// flags are set up, which takes longer than the start of a process.
pub(crate) fn server() -> Option<Result<ExitCode, Failure>> {
    let is_one = std::env::args_os().nth(1).is_some_and(|word| word == SERVER);
    is_one.then(|| {
        prepare(Signal::KILL)?;
        bank::serve(std::env::args_os().skip(2))
            .map_err(|error| Failure::failed(in_words(&error)))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// `signal` comes when the process that started this one has ended.
fn prepare(signal: Signal) -> Result<(), Failure> {
    descriptors::raise().map_err(Failure::failed)?;
    rustix::process::set_parent_process_death_signal(Some(signal)).map_err(Failure::failed)
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
    fn start(flags: HerdFlags) -> Result<Self, Reason> {
        let environment = Environment {
            prefix: Prefix::new(&flags.prefix)?,
            // A call that takes so long has lost its message.
            timeout: Some(pollux_callers::PATIENCE),
            messages_max: None,
            message_len_bytes: None,
            transport: Some(flags.transport),
            group: None,
        };
        let manager = Manager::start(&environment, flags.workers, flags.wake, flags.folder)?;
        let customer = |number| Customer::open(&environment, number).map(Mutex::new);
        let customers = (0..flags.callers).map(customer).collect::<Result<_, _>>()?;
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
    fn start(
        environment: &Environment,
        workers: usize,
        wake: Wake,
        folder: PathBuf,
    ) -> Result<Self, Reason> {
        let own = std::env::current_exe()?;
        let folder = Folder::make(folder, &own, workers)?;
        let mut command = Command::new(own);
        let prefix = &environment.prefix;
        // A pool is set up by its environment, and the user may have one.
        command.env_clear().env("PATH", &folder.path).env("NDRX_QPREFIX", prefix.as_str());
        command.env("NDRX_TOUT", pollux_callers::PATIENCE.as_secs().to_string());
        command.env(TRANSPORT_VARIABLE, environment.transport.unwrap_or_default().name());
        command.args(["herd-manager", "--detached", "--wake", wake.name()]);
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
        asked.map(drop).map_err(|error| self.failed(&in_words(&error)))
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
        Ok(self.program.ends_within(END_PATIENCE, &|| false)?)
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
        let script = String::from_utf8(script(Path::new("/it's a/pollux-pool"))).expect("text");
        assert_eq!(script, "#!/bin/sh\nexec '/it'\\''s a/pollux-pool' herd-server \"$@\"\n");
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
