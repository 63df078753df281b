//! A running server: its loops, its endpoints, and how signals end it.
//!
//! ```text
//!  group "server"    N loops      HttpSession      the configured answer
//!  group "stats"     1 loop       HttpSession      /metrics
//!  group "control"   1 loop       ControlSession   show …
//!  this thread       Signals::wait
//! ```
//!
//! The command line starts one and waits in [`Server::run`]; the lab starts and ends them itself.

mod describe;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{
    Driver, Group, GroupConfig, GroupError, Limits, ListenAddress, Listeners, Signal, Signals,
};
use pollux_poller::Mechanism;

use crate::config::{Answer, ServeConfig};
use crate::stats::{ControlSession, ControlShared, Overview};
use crate::{HttpSession, ReopenSignal, ServerCounters, ServerError, Shared};
use describe::{banner, overview, url};

/// What is tried when no poller is named, best first.
const PREFERENCES: [Driver; 4] = [
    Driver::Completion,
    Driver::Readiness(Mechanism::EpollEt),
    Driver::Readiness(Mechanism::Epoll),
    Driver::Readiness(Mechanism::Poll),
];
/// Descriptors that are not connections: listeners, wakers, logs, the endpoints.
const DESCRIPTORS_KEPT: u64 = 256;
/// Most connections when the descriptor limit is the only bound.
const CONNECTIONS_DEFAULT: u64 = 100_000;
/// Connections to each of the endpoints.
const WATCHERS_MAX: u32 = 64;
/// How often the end of the loops is looked for, once they drain.
const DRAIN_TICK: Duration = Duration::from_millis(50);
/// How often a loop that was lost is looked for.
const IDLE_TICK: Duration = Duration::from_secs(1);

/// A server that runs.
pub struct Server {
    group: Group,
    endpoints: Vec<(&'static str, Group)>,
    overview: Arc<Overview>,
    reopen: ReopenSignal,
    drain_timeout: Duration,
    banner: Vec<String>,
}

impl Server {
    /// Starts all loops and endpoints; all of them run when this returns.
    ///
    /// # Errors
    /// [`ServerError`]; what was started already is ended.
    pub fn start(config: &ServeConfig) -> Result<Self, ServerError> {
        let reopen = ReopenSignal::default();
        let counters: Vec<Arc<ServerCounters>> =
            (0..config.threads).map(|_| Arc::default()).collect();
        let (group, driver, refused) = start_group(config, &counters, &reopen)?;
        let overview = Arc::new(overview(config, &group, driver, &counters));
        let mut server = Self {
            banner: banner(config, group.addresses(), driver, &refused),
            group,
            endpoints: Vec::new(),
            overview,
            reopen,
            drain_timeout: config.limits.drain_timeout,
        };
        match server.start_endpoints(config) {
            Ok(()) => Ok(server),
            Err(error) => {
                server.abort();
                let _ = server.join();
                Err(error)
            }
        }
    }

    /// What a user should be told at the start, in lines.
    #[must_use]
    pub fn banner(&self) -> &[String] {
        &self.banner
    }

    /// Where the server listens, with the ports that the kernel chose.
    #[must_use]
    pub fn addresses(&self) -> &[ListenAddress] {
        self.group.addresses()
    }

    /// Where metrics are served, with the port that the kernel chose.
    #[must_use]
    pub fn stats_address(&self) -> Option<&ListenAddress> {
        let (_, group) = self.endpoints.iter().find(|(part, _)| *part == STATS)?;
        group.addresses().first()
    }

    /// What can be read of it while it runs.
    #[must_use]
    pub fn overview(&self) -> &Arc<Overview> {
        &self.overview
    }

    /// Runs until SIGTERM or SIGINT and drains then; a second one ends it at once. SIGHUP opens
    /// the logs again. The caller makes `signals` before the server, so that none is missed.
    ///
    /// # Errors
    /// What ended a loop, when no signal did.
    pub fn run(self, signals: &mut Signals) -> Result<(), ServerError> {
        let mut is_draining = false;
        while !self.has_ended(is_draining) {
            let tick = if is_draining { DRAIN_TICK } else { IDLE_TICK };
            match signals.wait(Some(tick))? {
                Some(Signal::HangUp) => {
                    self.reopen.raise();
                    self.group.nudge();
                }
                Some(Signal::Terminate | Signal::Interrupt) if is_draining => self.abort(),
                Some(Signal::Terminate | Signal::Interrupt) => {
                    is_draining = true;
                    self.drain();
                }
                Some(Signal::User1) | None => {}
            }
        }
        self.join()
    }

    /// Takes no new connection and lets those that are open come to their end in time.
    pub fn drain(&self) {
        self.group.drain(self.drain_timeout);
    }

    /// Ends all loops at once.
    pub fn abort(&self) {
        self.group.abort();
    }

    /// Waits for the loops, which were told to end, and ends the endpoints.
    ///
    /// # Errors
    /// The first error of a loop.
    pub fn join(self) -> Result<(), ServerError> {
        let failed = |part| move |cause| ServerError::Group { part, cause };
        let mut outcome = self.group.join().map_err(failed(SERVER));
        for (part, group) in self.endpoints {
            group.abort();
            outcome = outcome.and(group.join().map_err(failed(part)));
        }
        outcome
    }

    /// A loop that ends unasked takes the server with it.
    fn has_ended(&self, is_draining: bool) -> bool {
        if is_draining {
            return self.group.has_ended();
        }
        let is_lost = self.group.has_lost_a_loop();
        if is_lost {
            self.abort();
        }
        is_lost
    }

    fn start_endpoints(&mut self, config: &ServeConfig) -> Result<(), ServerError> {
        if let Some(address) = &config.stats {
            let overview = Arc::clone(&self.overview);
            let make = move |_| Ok::<_, ServerError>(Shared::for_metrics(Arc::clone(&overview)));
            let group = Group::start::<HttpSession, _, _>(&endpoint(address.clone()), make);
            let group = group.map_err(|cause| ServerError::Group { part: STATS, cause })?;
            self.banner.push(format!("metrics: {}", url(&group.addresses()[0], "/metrics")));
            self.endpoints.push((STATS, group));
        }
        if let Some(path) = &config.control {
            let shared = ControlShared { overview: Arc::clone(&self.overview) };
            let make = move |_| Ok::<_, ServerError>(shared.clone());
            let address = ListenAddress::Unix(path.clone());
            let group = Group::start::<ControlSession, _, _>(&endpoint(address), make);
            let group = group.map_err(|cause| ServerError::Group { part: CONTROL, cause })?;
            self.endpoints.push((CONTROL, group));
            close_to_others(path)?;
            self.banner.push(format!("control: unix:{}", path.display()));
        }
        Ok(())
    }
}

const SERVER: &str = "server";
const STATS: &str = "stats endpoint";
const CONTROL: &str = "control socket";

/// Starts the loops, on the configured driver or on the best that works; says what was refused.
fn start_group(
    config: &ServeConfig,
    counters: &[Arc<ServerCounters>],
    reopen: &ReopenSignal,
) -> Result<(Group, Driver, Vec<String>), ServerError> {
    let one = config.poller.map(|driver| [driver]);
    let drivers = one.as_ref().map_or(PREFERENCES.as_slice(), <[Driver; 1]>::as_slice);
    let mut refused = Vec::new();
    let mut last = None;
    for &driver in drivers {
        let (shared_config, counters, reopen) = (config.clone(), counters.to_vec(), reopen.clone());
        let make =
            move |index: usize| Shared::new(&shared_config, Arc::clone(&counters[index]), &reopen);
        match Group::start::<HttpSession, _, _>(&group_config(config, driver), make) {
            Ok(group) => return Ok((group, driver, refused)),
            // Only a mechanism that is not to be had is a reason to try the next one.
            Err(cause @ GroupError::Loop(_)) => {
                refused.push(format!("{driver} was refused: {cause}"));
                last = Some(cause);
            }
            Err(cause) => return Err(ServerError::Group { part: SERVER, cause }),
        }
    }
    Err(ServerError::Group { part: SERVER, cause: last.expect("at least one was tried") })
}

fn group_config(config: &ServeConfig, driver: Driver) -> GroupConfig {
    let limits = Limits {
        connections_max: connections_max(config),
        write_timeout: config.limits.write_timeout,
        write_rate_min: config.limits.read_rate_min_bytes,
        busy_poll: config.is_busy_polling,
        ..Limits::default()
    };
    GroupConfig {
        listen: config.listen.clone(),
        driver,
        threads: config.threads,
        listeners: config.listeners,
        cpus: config.pin.clone(),
        delays_small_writes: matches!(config.answer, Answer::Reply { is_split: true, .. }),
        limits,
    }
}

/// What was configured, else what the descriptor limit allows.
fn connections_max(config: &ServeConfig) -> u32 {
    let allowed = || u32::try_from(connections_allowed(config).clamp(1, CONNECTIONS_DEFAULT));
    config.limits.connections_max.unwrap_or_else(|| allowed().expect("clamped"))
}

/// Connections that the descriptor limit allows.
fn connections_allowed(config: &ServeConfig) -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    connections_within(limit.unwrap_or(u64::MAX), &config.answer)
}

/// One descriptor for each connection, and one for the file it is sent; a small limit is shared
/// evenly with everything else.
fn connections_within(descriptors: u64, answer: &Answer) -> u64 {
    let free = descriptors - DESCRIPTORS_KEPT.min(descriptors / 2);
    if matches!(answer, Answer::Files { .. }) { free / 2 } else { free }
}

/// A small group for an endpoint.
fn endpoint(address: ListenAddress) -> GroupConfig {
    GroupConfig {
        listen: vec![address],
        driver: Driver::Readiness(Mechanism::Poll),
        threads: 1,
        listeners: Listeners::Reuseport,
        cpus: None,
        delays_small_writes: false,
        limits: Limits { connections_max: WATCHERS_MAX, ..Limits::default() },
    }
}

/// Commands are for the user who runs the server.
fn close_to_others(path: &Path) -> Result<(), ServerError> {
    let set = std::fs::set_permissions(path, Permissions::from_mode(0o600));
    set.map_err(|cause| ServerError::Permissions { path: path.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_descriptor_limit_leaves_room_for_connections() {
        let files =
            Answer::Files { root: "/".into(), has_listing: false, has_precompressed: false };
        for (limit, replies, served) in [(30, 15, 7), (256, 128, 64), (1024, 768, 384)] {
            assert_eq!(connections_within(limit, &Answer::Echo), replies);
            assert_eq!(connections_within(limit, &files), served);
        }
    }
}
