//! `pollux-pool herd`: a pool with its callers, as the laboratory measures it (`pollux lab`, `herd`).
//!
//! The process that the laboratory starts calls: it starts the manager of a pool (`manager`), which
//! starts the bank's workers, and has a customer of the bank for each caller (`bank`). What it is asked and
//! tells over its standard input is that of `pollux_callers`. The manager ends when this process does, and
//! takes all workers and queues along; none of it is for users.

mod bank;
mod manager;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Args;
use pollux_callers::{Failure as Reason, Served, Target};
use pollux_command::limits::raise_descriptor_limit;
use pollux_command::output::Failure;
use pollux_pool_flags::{StartFlags, Wake};
use pollux_processes::ControlSocket;
use pollux_xatmi::environment::{Environment, Transport};
use pollux_xatmi::queue::Prefix;
use rustix::process::Signal;

use crate::start;
use bank::Customer;
use manager::{Manager, Rows, calls_between};

/// The word behind which the words of a manager to its worker follow.
const SERVER: &str = "herd-server";

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
    /// Whom a message wakes
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
    start::start(flags)
}

/// A worker of that pool, if the command line is one's. A pool starts hundreds, so it is found before all
/// flags are set up, which takes longer than the start of a process.
pub(crate) fn server() -> Option<Result<ExitCode, Failure>> {
    let is_one = std::env::args_os().nth(1).is_some_and(|word| word == SERVER);
    is_one.then(|| {
        prepare(Signal::KILL)?;
        bank::serve(std::env::args_os().skip(2))
            .map_err(|error| Failure::failed(pollux_command::output::in_words(&error)))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// `signal` comes when the process that started this one has ended.
fn prepare(signal: Signal) -> Result<(), Failure> {
    raise_descriptor_limit().map_err(Failure::failed)?;
    rustix::process::set_parent_process_death_signal(Some(signal)).map_err(Failure::failed)
}

/// The bank: its pool, and a customer for each caller, who has its lock without a rival.
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
