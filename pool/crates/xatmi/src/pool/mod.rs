//! The manager of a pool: it starts, watches and ends the workers, makes the queues of their
//! services, and answers for those that died.
//!
//! ```text
//!   config ──► Supervisor (pure) ──── actions ────► processes, links, signals
//!                  ▲                                     │
//!                  └──────────── events ─────────────────┤
//!                                                        │   one thread, one poller
//!   control socket: clients, commands ───────────────────┤
//!   queues that were withdrawn, answers not sent yet ───┘
//! ```
//!
//! The command line makes a [`Pool`] and runs it. One thread does everything and never waits but
//! in its poller, and at its end, for a second, until callers take their answers; what can't be
//! done at once (a full reply queue, a worker that does not read) is tried again or left to a
//! limit of the supervisor.
//!
//! | part | one job |
//! |---|---|
//! | `turn`, `poller` | the loop: wait, events, time; what is watched |
//! | `workers` | what the supervisor asks for, and what workers say |
//! | `control_socket`, `connections` | who comes to the control socket; what is known of each connection, answers, its end |
//! | `orders` | orders and their progress |
//! | `anew` | workers that use too much memory, or whose program has changed |
//! | `logs` | files opened again, levels |
//! | `readiness` | what the service manager is notified of |
//! | `services`, `unsent` | queues of services; answers for the dead |
//! | `events` | the subscribers of events and unsolicited messages |
//! | `process` | one worker's process and its start; the services that a program offers, asked without a pool |
//! | `previous` | what an earlier manager left behind: workers, queues, memory, clients |
//! | `figures` | tables of workers, services, queues, clients and counts; the page of metrics over HTTP |
//! | `options` | what a pool is started with; its log |

mod anew;
mod connections;
mod control_socket;
mod events;
mod figures;
mod logs;
mod options;
mod orders;
mod poller;
mod previous;
mod process;
mod readiness;
mod services;
mod turn;
mod unsent;
mod workers;

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use std::{fmt, io};

use pollux_engine::{Signal, Signals};
use pollux_host::ServiceManager;
use pollux_poller::Token;
use pollux_sys::futex::Owned;
use signal_hook::consts::SIGXFSZ;

use crate::config::{ConfigError, PoolConfig, Spinning};
use crate::environment::{GROUP_VARIABLE, Group, Transport};
use crate::memory::{Memory, Ticket};
use crate::needs::{Shortage, file_size_limits, file_size_shortage};
use crate::queue::Prefix;
use crate::slots::Slots;
use crate::supervisor::Supervisor;
use connections::ControlConnections;
use events::Events;
use figures::{Counts, Endpoint};
use orders::PoolCommand;
use poller::{PoolPoller, Source};
use previous::EarlierClients;
use process::{Process, SlotHandle};
use readiness::Readiness;
use services::Services;
use unsent::Unsent;

pub use options::{Log, PoolOptions, Sizes, memory_len_bytes, memory_room};
pub use previous::workers as workers_left;
pub use process::{
    BRIDGE_PROGRAM, EXPORTS_VARIABLE, REFRESH_VARIABLE, find, keep_from_children, leave_terminal,
    output_faults, services_of,
};

/// Slots beyond those of the configuration, for workers that a reload adds.
const SLOTS_SPARE: usize = 256;

/// Why a pool can't run.
#[derive(Debug)]
pub enum PoolError {
    /// The configuration is wrong.
    Config(ConfigError),
    /// A pool with this prefix runs already.
    Running {
        /// What the names of its queues begin with.
        prefix: String,
        /// Process of its manager, if it says so.
        pid: Option<u32>,
    },
    /// Another user, or a program that is not a manager, holds the name of the control socket.
    Foreign {
        /// The prefix that both want.
        prefix: String,
        /// The process that holds it, in words.
        holder: String,
    },
    /// This process is not in the group that the pool is to be open to.
    Outside(Group),
    /// A limit of this process is too low for it.
    Short(Shortage),
    /// The metrics endpoint could not be started.
    Metrics(pollux_engine::GroupError),
    /// The poller failed.
    Poller(pollux_poller::Error),
    /// A system call failed.
    System { what: &'static str, cause: io::Error },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "{error}"),
            Self::Running { prefix, pid } => {
                let process = pid.map_or_else(String::new, |pid| format!(", as process {pid}"));
                write!(
                    f,
                    "a pool with the prefix {prefix} runs already{process}; end it with `pollux pool \
                     stop`, or give this one another NDRX_QPREFIX"
                )
            }
            Self::Foreign { prefix, holder } => write!(
                f,
                "the prefix {prefix} is taken: {holder}; give this pool another NDRX_QPREFIX, or \
                 end that process"
            ),
            Self::Outside(group) => write!(
                f,
                "the pool is to be open to {group}, and user {} is not in it: add the user to the group, or \
                 change the attribute group of <appconfig> ({GROUP_VARIABLE})",
                rustix::process::geteuid().as_raw()
            ),
            Self::Short(shortage) => write!(f, "{shortage}"),
            Self::Metrics(_) => f.write_str("the metrics endpoint could not be started"),
            Self::Poller(_) => f.write_str("the poller failed"),
            Self::System { what, .. } => write!(f, "{what} failed"),
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Metrics(cause) => Some(cause),
            Self::Poller(cause) => Some(cause),
            Self::System { cause, .. } => Some(cause),
            Self::Config(_)
            | Self::Running { .. }
            | Self::Foreign { .. }
            | Self::Outside(_)
            | Self::Short(_) => None,
        }
    }
}

impl From<pollux_poller::Error> for PoolError {
    fn from(cause: pollux_poller::Error) -> Self {
        Self::Poller(cause)
    }
}

/// A pool that can run.
pub struct Pool {
    options: PoolOptions,
    config: PoolConfig,
    sizes: Sizes,
    prefix: Prefix,
    /// What workers get as `-k`.
    key: String,
    log: Log,
    started: Instant,
    supervisor: Supervisor,
    poller: PoolPoller,
    signals: Signals,
    control: Option<(OwnedFd, Token)>,
    workers: BTreeMap<u32, Process>,
    slots: Rc<Slots>,
    /// Where requests are, unless they travel by queues.
    memory: Option<Rc<Memory>>,
    /// This thread as the manager, known to workers that sleep in the memory.
    lead: Option<Owned>,
    /// Whose members may call, beside the user of this process.
    group: Option<Group>,
    /// Requests in the memory that no worker seemed to have at the last check.
    suspects: HashSet<Ticket>,
    /// Whether to look for such.
    is_suspicious: bool,
    /// Slots of ours without a worker.
    slots_free: Vec<usize>,
    services: Services,
    connections: ControlConnections,
    events: Events,
    earlier_clients: EarlierClients,
    unsent: Unsent,
    orders: Vec<PoolCommand>,
    /// Whether a worker of an earlier manager may still report: the queues that it reads stay.
    awaits_adoption: bool,
    /// Whether something happened since services and orders were looked at.
    has_changes: bool,
    counts: Counts,
    /// When rings are looked at for requests that stand still, and where their heads were; none with queues.
    next_ring_look: Option<Instant>,
    ring_heads: Vec<(usize, u64)>,
    /// Until when queues are looked at for messages whose wake died with a worker.
    nudging: Option<(Instant, Instant)>,
    endpoint: Option<Endpoint>,
    service_manager: ServiceManager,
    readiness: Readiness,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool {{ prefix: {}, workers: {} }}", self.prefix, self.workers.len())
    }
}

impl Pool {
    /// Reads the configuration, takes the control socket, and looks for workers that an earlier
    /// manager left behind; nothing is started yet.
    ///
    /// # Errors
    /// [`PoolError`]; nothing stays behind.
    pub fn open(options: PoolOptions, log: Log) -> Result<Self, PoolError> {
        let config = PoolConfig::from_file(&options.config).map_err(PoolError::Config)?;
        let prefix = options.environment.prefix.clone();
        let group = options.environment.group.clone().or_else(|| config.settings.group.clone());
        if let Some(group) = group.as_ref().filter(|group| !group.has_this_process()) {
            return Err(PoolError::Outside(group.clone()));
        }
        let control = match crate::control::listen(&prefix) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(running(&prefix)),
            other => other.map_err(system("the control socket"))?,
        };
        let mut poller = PoolPoller::open()?;
        let token = poller.add(control.as_fd(), Source::Control);
        let token = token.map_err(system("watching the control socket"))?;
        let signals = Signals::catch(&[Signal::Terminate, Signal::Interrupt, Signal::HangUp])
            .map_err(system("catching signals"))?;
        poller.add(signals.fd(), Source::Signals).map_err(system("watching for signals"))?;
        // A log at the limit on the size of files fails with EFBIG. Workers have the default again.
        signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(system("catching SIGXFSZ"))?;
        let sizes = Sizes::new(&options.environment);
        let transport = options.transport(&config);
        let needed = memory_len_bytes(transport, config.workers_max(), &sizes);
        if let Some(shortage) = file_size_shortage(needed, file_size_limits()) {
            return Err(PoolError::Short(shortage));
        }
        let slots_max = config.workers_max() as usize + SLOTS_SPARE;
        let slots = Slots::create(slots_max).map_err(system("the memory of the workers"))?;
        let endpoint = options.metrics.as_ref().map(Endpoint::start).transpose();
        let endpoint = endpoint.map_err(PoolError::Metrics)?;
        let memory = match transport {
            Transport::Queues => None,
            Transport::Memory => {
                let memory = memory(&prefix, slots_max, &sizes)?;
                memory.set_always_spins(config.settings.spin == Spinning::Always);
                Some(Rc::new(memory))
            }
        };
        let started = Instant::now();
        let key = std::env::var("NDRX_RNDK").unwrap_or_else(|_| prefix.as_str()[1..].to_owned());
        for warning in &config.warnings {
            log.line(&format!("warning: {warning}"));
        }
        Ok(Self {
            supervisor: Supervisor::new(&config, started).limited_to(options.only.clone()),
            services: Services::new(prefix.clone(), sizes.service, memory.clone(), group.clone()),
            options,
            config,
            sizes,
            prefix,
            key,
            log,
            started,
            poller,
            signals,
            control: Some((control, token)),
            workers: BTreeMap::new(),
            slots: Rc::new(slots),
            next_ring_look: memory.is_some().then_some(started),
            memory,
            lead: None,
            group,
            suspects: HashSet::new(),
            is_suspicious: false,
            slots_free: (0..slots_max).rev().collect(),
            connections: ControlConnections::default(),
            events: Events::default(),
            earlier_clients: EarlierClients::default(),
            unsent: Unsent::default(),
            orders: Vec::new(),
            awaits_adoption: false,
            has_changes: true,
            counts: Counts::default(),
            ring_heads: Vec::new(),
            nudging: None,
            endpoint,
            service_manager: ServiceManager::of_environment(),
            readiness: Readiness::default(),
        })
    }

    /// The configuration that was read.
    #[must_use]
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// How requests travel.
    #[must_use]
    pub fn transport(&self) -> Transport {
        if self.memory.is_some() { Transport::Memory } else { Transport::Queues }
    }

    /// Where metrics are served, with the port that the kernel chose.
    #[must_use]
    pub fn metrics_address(&self) -> Option<String> {
        self.endpoint.as_ref().map(Endpoint::address)
    }

    /// A slot that no worker has.
    fn slot_handle(&mut self) -> Option<SlotHandle> {
        let index = self.slots_free.pop()?;
        Some(SlotHandle { slots: Rc::clone(&self.slots), index })
    }

    /// Gives a slot back, if it is of ours.
    fn release(&mut self, slot_handle: &SlotHandle) {
        if let Some(slot) = slot_handle.slots.slot(slot_handle.index) {
            slot.clear();
        }
        slot_handle.slots.forget(slot_handle.index);
        if Rc::ptr_eq(&slot_handle.slots, &self.slots) {
            self.slots_free.push(slot_handle.index);
        }
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> PoolError {
    move |cause| PoolError::System { what, cause }
}

/// The memory of requests: that which an earlier manager left, where there is one. Clients that have a part in it come here when
/// they see that its manager is gone.
fn memory(prefix: &Prefix, slots_max: usize, sizes: &Sizes) -> Result<Memory, PoolError> {
    match previous::memory(prefix) {
        Some(left) => Ok(left),
        None => Memory::create(prefix, slots_max, sizes.service.message_len_bytes)
            .map_err(system("the memory of the requests")),
    }
}

fn running(prefix: &Prefix) -> PoolError {
    use crate::control::{Answer, Control, Request};
    /// A manager answers within milliseconds; one that hangs is not waited for.
    const ANSWER_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(1);
    let mut pid = None;
    if let Ok(mut control) = Control::connect(prefix) {
        let _ = control.ask(&Request::Info, ANSWER_TIME_MAX, |answer| {
            if let Answer::Info(info) = answer {
                pid = Some(info.pid);
            }
        });
    }
    if pid.is_none() {
        let holder = crate::control::holder(prefix);
        return PoolError::Foreign { prefix: prefix.to_string(), holder };
    }
    PoolError::Running { prefix: prefix.to_string(), pid }
}
