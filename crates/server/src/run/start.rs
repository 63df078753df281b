//! The parts of the start of a server, and the start of a proxy: endpoints, loops, the rights that it keeps, and why
//! an address could not be listened on, in words of the settings.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollux_engine::{
    Address, Driver, Group, GroupConfig, GroupError, Limits, ListenAddress, ListenError, Listeners,
    Sockets,
};
use pollux_host::holders;
use pollux_poller::{Mechanism, Waker};
use pollux_sys::descriptors::in_words;
use pollux_tls::{Encrypted, ServerConfig};
use rustix::io::Errno;

use crate::backends::groups::Secrets;
use crate::backends::names::{Lookups, Names, Resolver};
use crate::backends::restore_states;
use crate::backends::shared_upstreams::SharedUpstreams;
use crate::backends::{Backend, backends_of};
use crate::config::ProxyConfig;
use crate::config::descriptors::{connections_max, limit};
use crate::config::{Answer, LogLevel, LogTarget, Monitoring, ServeConfig, UnixSockets};
use crate::epochs::EpochUses;
use crate::fault::ProxyCounters;
use crate::front::epoch::NewSettings;
use crate::front::state::{Inbox, Replacements};
use crate::identity::{Identity, SocketOwner};
use crate::log::{ErrorWriter, Event, unix_s};
use crate::passwords::Passwords;
use crate::rates::{RateTables, Rates};
use crate::run::privileges;
use crate::run::privileges::Privileged;
use crate::run::report::{proxy_banner, proxy_facts};
use crate::run::sockets::{ProxySockets, open_all};
use crate::run::stats::Overview;
use crate::run::take_settings::{ReadSettings, SettingsTaker};
use crate::run::{Reporter, SERVER, ServerParts, SocketPaths};
use crate::{HttpSession, Logs, LoopState, ProxyConnection, Server, ServerCounters, ServerError};

/// What an error of the group `part`, whose address the flag sets, is to the user.
pub(crate) fn explained(part: &'static str, flag: &'static str, cause: GroupError) -> ServerError {
    match cause {
        GroupError::Listen(cause) => explained_open(part, flag, cause),
        cause => ServerError::Group { part, cause },
    }
}

/// What it is that an address of `part`, which the flag sets, could not be opened.
pub(crate) fn explained_open(
    part: &'static str,
    flag: &'static str,
    cause: ListenError,
) -> ServerError {
    let (address, cause) = match cause {
        ListenError::System { address, cause, .. } => (address, cause),
        ListenError::Occupied { path, why } => match holders::of_path(&path) {
            Some(program) => {
                let address = format!("unix:{}", path.display());
                let reason = in_use(&address, flag, Some(program));
                return ServerError::Listen { reason, cause: Errno::ADDRINUSE.into() };
            }
            None => {
                let cause = GroupError::Listen(ListenError::Occupied { path, why });
                return ServerError::Group { part, cause };
            }
        },
        cause => return ServerError::Group { part, cause: GroupError::Listen(cause) },
    };
    let reason = reason(&address, flag, Errno::from_io_error(&cause), holders::of_port);
    ServerError::Listen { reason, cause }
}

/// That another program listens there, or this one does already.
fn in_use(address: &str, flag: &str, holder: Option<String>) -> String {
    let (by, next) = match holder {
        Some(own) if holders::is_this(&own) => {
            (format!(" by {own}, which is this server itself"), "name each address once")
        }
        Some(program) => (format!(" by {program}"), "end that program"),
        None => (String::new(), "end that program"),
    };
    format!("{address} is in use{by}; {next} or choose another address with {flag}")
}

/// What is wrong with the address and what is expected.
fn reason(
    address: &str,
    flag: &str,
    errno: Option<Errno>,
    holder: fn(u16) -> Option<String>,
) -> String {
    let tcp: Option<SocketAddr> = address.parse().ok();
    match (errno, tcp) {
        (Some(Errno::ADDRINUSE), Some(tcp)) => in_use(address, flag, holder(tcp.port())),
        (Some(Errno::ACCESS), Some(tcp)) => format!(
            "port {} needs root or CAP_NET_BIND_SERVICE (setcap cap_net_bind_service=+ep, \
             AmbientCapabilities=); or choose a port from 1024 on with {flag}",
            tcp.port()
        ),
        (Some(Errno::ADDRNOTAVAIL), Some(tcp)) => format!(
            "{} is not an address of this machine; choose one of its own with {flag}, or :{} for all \
             of them",
            tcp.ip(),
            tcp.port()
        ),
        _ => format!("{address} cannot be listened on; choose another address with {flag}"),
    }
}

pub(crate) const STATS: &str = "stats endpoint";
pub(crate) const CONTROL: &str = "control socket";
/// Most connections to each of them.
const ENDPOINT_CONNECTIONS_MAX: u32 = 64;

/// The sockets of a server's endpoints.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    pub(crate) stats: Option<Sockets>,
    pub(crate) control: Option<Sockets>,
}

impl Endpoints {
    /// Opens what `monitoring` names.
    ///
    /// # Errors
    /// [`ServerError::Listen`], or the control socket could not be closed to others.
    pub(super) fn open(
        monitoring: &Monitoring,
        sockets: &UnixSockets,
    ) -> Result<Self, ServerError> {
        let open = |address: Address, part, flag| {
            let opened = open_all(&address, Listeners::Exclusive, 1);
            opened.map_err(|cause| explained_open(part, flag, cause))
        };
        let stats = monitoring.stats.clone().map(|address| open(address, STATS, "--stats"));
        let stats = stats.transpose()?;
        stats.as_ref().map_or(Ok(()), |stats| open_to_others(&stats.paths(), sockets))?;
        let Some(path) = &monitoring.control else { return Ok(Self { stats, control: None }) };
        let control = open(ListenAddress::Unix(path.clone()).into(), CONTROL, "--control")?;
        close_to_others(path)?;
        Ok(Self { stats, control: Some(control) })
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let all = [&self.stats, &self.control].into_iter().flatten();
        all.flat_map(Sockets::paths).collect()
    }
}

/// A small group for an endpoint.
pub(super) fn endpoint() -> GroupConfig {
    GroupConfig {
        listen: Vec::new(),
        driver: Driver::Readiness(Mechanism::Poll),
        threads: 1,
        listeners: Listeners::Reuseport,
        cpus: None,
        delays_small_writes: false,
        limits: Limits { connections_max: ENDPOINT_CONNECTIONS_MAX, ..Limits::default() },
    }
}

/// Commands are for the user that runs the server.
pub(crate) fn close_to_others(path: &Path) -> Result<(), ServerError> {
    let set = std::fs::set_permissions(path, Permissions::from_mode(0o600));
    set.map_err(|cause| ServerError::Permissions { path: path.to_owned(), cause })
}

/// Clients may be other users: the mode does not depend on the umask of the one that starts the server.
///
/// # Errors
/// [`ServerError::Permissions`].
pub(crate) fn open_to_others(paths: &[PathBuf], sockets: &UnixSockets) -> Result<(), ServerError> {
    for path in paths {
        let failed = |cause| ServerError::Permissions { path: path.clone(), cause };
        let owner = sockets.owner.as_ref().map(SocketOwner::find).transpose();
        let (uid, gid) = owner.map_err(|why| failed(io::Error::other(why)))?.unwrap_or_default();
        // Before the mode: nobody of the old group may connect meanwhile.
        std::os::unix::fs::chown(path, uid, gid).map_err(failed)?;
        let set = std::fs::set_permissions(path, Permissions::from_mode(sockets.mode));
        set.map_err(failed)?;
    }
    Ok(())
}

/// Loops that run.
pub(crate) struct OnDriver {
    pub(crate) group: Group,
    pub(crate) driver: Driver,
    /// Its name, and why it was taken where none was configured.
    pub(crate) choice: String,
    /// A line for each that would have come before it.
    pub(crate) refused: Vec<String>,
}

/// Starts the loops, on the configured driver or on the best that works; says what was refused.
pub(super) fn start_group(
    config: &ServeConfig,
    sockets: &Sockets,
    tls: Option<&Arc<ServerConfig>>,
    counters: &[Arc<ServerCounters>],
    logs: &Logs,
    replacements: &Arc<Replacements<LoopState>>,
) -> Result<OnDriver, ServerError> {
    start_on_first(SERVER, config.loops.poller, |driver| {
        let shared_config = config.clone();
        let counters = counters.to_vec();
        let logs = logs.clone();
        let replacements = Arc::clone(replacements);
        let make = move |index: usize| {
            let shared = LoopState::new(&shared_config, Arc::clone(&counters[index]), &logs);
            shared.map(|shared| shared.reloadable(Inbox::new(&replacements, index)))
        };
        let group = group_config(config, driver);
        let again = sockets.duplicate().map_err(|error| GroupError::System("dup", error))?;
        let Some(tls) = tls.cloned() else {
            return Group::start_on::<HttpSession, _, _>(&group, again, make);
        };
        let make = move |index| make(index).map(|shared| shared.encrypted(Arc::clone(&tls)));
        Group::start_on::<Encrypted<HttpSession>, _, _>(&group, again, make)
    })
}

/// Starts the loops of `part` on `poller`, or without one on the best driver that works; which one it
/// is, and what was refused.
pub(crate) fn start_on_first(
    part: &'static str,
    poller: Option<Driver>,
    mut start: impl FnMut(Driver) -> Result<Group, GroupError>,
) -> Result<OnDriver, ServerError> {
    let started = Driver::start_first(poller, |driver| match start(driver) {
        // Only a mechanism that is not available is a reason to try the next one.
        Err(refused @ GroupError::Loop(_)) => Err(refused),
        started => Ok(started),
    });
    let started = started.map_err(|cause| ServerError::Group { part, cause })?;
    let driver = started.driver;
    let choice = started.choice();
    let group = started.value.map_err(|cause| explained(part, "--listen", cause))?;
    let refused = started.refused.iter();
    let refused = refused.map(|(driver, cause)| format!("{driver} was refused: {cause}")).collect();
    Ok(OnDriver { group, driver, choice, refused })
}

fn group_config(config: &ServeConfig, driver: Driver) -> GroupConfig {
    let limits = Limits {
        connections_max: connections_max(config),
        write_timeout: config.limits.write_timeout,
        write_rate_min: config.limits.read_rate_min_bytes,
        ..Limits::default()
    };
    let delays_small_writes = matches!(config.answer, Answer::Reply { is_split: true, .. });
    GroupConfig { delays_small_writes, ..config.loops.group(driver, &limits) }
}

pub(super) const PROXY: &str = "proxy";

/// What a proxy has of its master.
pub(crate) struct OfMaster<'m> {
    /// Of the thread that talks to it.
    pub(crate) waker: Waker,
    /// How backends stood for the worker before.
    pub(crate) states: &'m str,
    /// Reads other settings that it sends.
    pub(crate) read: Option<ReadSettings>,
}

/// The counters of one loop of a proxy.
type LoopCounters = (Arc<ServerCounters>, Arc<ProxyCounters>);

impl Server {
    /// Starts a proxy; all its loops and endpoints run when this returns. Backends are asked for a
    /// connection when the first request comes.
    ///
    /// # Errors
    /// [`ServerError`]; what was started already is ended.
    ///
    /// # Panics
    /// Without an address, a backend or a thread.
    pub fn start_proxy(config: &ProxyConfig) -> Result<Self, ServerError> {
        Self::start_proxy_with(config, Resolver::default())
    }

    /// As [`Server::start_proxy`], where this looks up the names of backends.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn start_proxy_with(config: &ProxyConfig, resolver: Resolver) -> Result<Self, ServerError> {
        let sockets = ProxySockets::open(config)?;
        let mut paths = SocketPaths(sockets.paths());
        let mut tables = RateTables::default();
        tables.make(&config.rates).map_err(|cause| ServerError::Descriptors { cause })?;
        let rates = tables.rates(&config.rates)?;
        let mut server = Self::start_proxy_on(config, &sockets, rates, resolver, None)?;
        server.own(std::mem::take(&mut paths));
        Ok(server)
    }

    /// Looks up the names of backends as a start does; says which can't be looked up, in lines.
    ///
    /// # Errors
    /// [`ServerError::NoAddress`].
    pub fn check_names(config: &ProxyConfig) -> Result<Vec<String>, ServerError> {
        let backends = backends_of(config);
        let logs = Logs::new(LogLevel::Error);
        let known = |address| match address {
            Address::Known(known) => Some(known),
            Address::Name { .. } => None,
        };
        let listens: Vec<ListenAddress> = config.listen().into_iter().filter_map(known).collect();
        let names = Names::new(config, &backends, &listens, Resolver::default(), &logs);
        let _lookups = names.start(config, "").map_err(|why| ServerError::NoAddress { why })?;
        Ok(names.failures())
    }

    /// As [`Server::start_proxy`], on sockets that the caller opened, and whose paths are the caller's
    /// to remove; under a master, with the waker of the thread that talks to it, and how backends stood
    /// for the worker before.
    ///
    /// # Errors
    /// [`ServerError`]; what was started already is ended.
    ///
    /// # Panics
    /// Without a backend or sites, or without a thread.
    pub(crate) fn start_proxy_on(
        config: &ProxyConfig,
        sockets: &ProxySockets,
        rates: Rates,
        resolver: Resolver,
        mut master: Option<OfMaster<'_>>,
    ) -> Result<Self, ServerError> {
        let has_backends = config.servers().next().is_some();
        assert!(has_backends || !config.sites.is_empty(), "a proxy has a backend, or sites");
        let logs = Logs::of_command(PROXY, config.monitoring.log_level);
        let error_writer = ErrorWriter::open(&config.monitoring.error_log)?;
        let secrets = config.read_secrets()?;
        // As keys, the user of a worker need not be able to read them.
        let passwords = Passwords::read(&config.sites.users)?;
        let rates = Arc::new(rates);
        // A process of its own: the master keeps the rights, and starts the next worker with them.
        if let Some(identity) = config.identity.as_ref().filter(|_| master.is_some()) {
            identity.assume()?;
        }
        let backends = backends_of(config);
        let routes = config.sites.routes().count();
        let counts = || ProxyCounters::new(backends.len()).with_routes(routes);
        let of_loop = |_| (Arc::default(), Arc::new(counts()));
        let counters: Vec<LoopCounters> = (0..config.loops.threads).map(of_loop).collect();
        let replacements = Arc::default();
        let epochs: Vec<Arc<EpochUses>> = counters.iter().map(|_| Arc::default()).collect();
        let states = master.as_ref().map_or("", |master| master.states);
        let names = Names::new(config, &backends, &sockets.addresses(), resolver, &logs);
        let (upstreams, lookups) = share_upstreams(config, (&backends, names), &counters, states)?;
        let threads = passwords.as_ref().map(|passwords| passwords.start(&upstreams));
        let threads = threads.transpose().map_err(|cause| ServerError::Descriptors { cause })?;
        let (clients, endpoints) = sockets.divided()?;
        let places = sockets.with_places();
        let OnDriver { group, driver, choice, refused } = start_proxy_group(
            config,
            &secrets,
            (&clients, &places),
            (&upstreams, &rates, passwords.as_ref()),
            (&counters, &replacements, &epochs),
            &logs,
        )?;
        let read = master.as_mut().and_then(|master| master.read.take());
        let taker = read.map(|read| SettingsTaker {
            config: config.clone(),
            read,
            replacements,
            counters: counters.clone(),
            epochs: epochs.clone(),
            addresses: places.clone(),
            certificates: secrets.clients.clone(),
            rates: Arc::clone(&rates),
            upstreams: Arc::clone(&upstreams),
        });
        let of_loops = counters.into_iter().map(|(server, proxied)| (server, Some(proxied)));
        let facts = proxy_facts(config, group.addresses());
        let overview = Overview {
            backends,
            upstreams: Some(upstreams),
            rates: Some(rates),
            passwords,
            epochs,
            certificates: secrets.clients.into_iter().flatten().collect(),
            ..Overview::of_group(&group, driver, facts, of_loops)
        };
        if let Some(master) = master {
            // Before the control socket is there, where a client may wait to ask for a reload.
            overview.supervised.begin(master.waker);
        }
        let parts = ServerParts {
            overview,
            banner: proxy_banner(config, &places, &choice, &refused),
            reporter: proxy_reporter(config),
            drain_timeout: config.limits.clients.drain_timeout,
            tunnel_drain_timeout: config.limits.tunnel_drain_timeout,
            // Another worker reads it, where it has changed.
            certificate: None,
            reload: None,
            group,
            logs,
            error_writer,
            paths: SocketPaths::default(),
        };
        let mut server = Self::assemble(parts, endpoints)?;
        server.lookups = Some(lookups);
        server.passwords = threads;
        server.taker = taker;
        Ok(server)
    }
}

/// The connections that loops share to their backends, which stand as they did for the worker before, and what looks up
/// their names, once that was done.
fn share_upstreams(
    config: &ProxyConfig,
    (backends, names): (&Arc<[Backend]>, Arc<Names>),
    counters: &[LoopCounters],
    states: &str,
) -> Result<(Arc<SharedUpstreams>, Lookups), ServerError> {
    let lookups = names.start(config, states).map_err(|why| ServerError::NoAddress { why })?;
    restore_states(backends, "", states);
    let upstreams = SharedUpstreams::new(config, Arc::clone(backends));
    upstreams.site_orders().restore("", states);
    names.used_by(&upstreams, counters.iter().map(|(_, proxied)| Arc::clone(proxied)).collect());
    if !names.is_empty() {
        upstreams.set_names(names);
    }
    Ok((upstreams, lookups))
}

/// Says what costs clients time or answers, and what would help.
fn proxy_reporter(config: &ProxyConfig) -> Reporter {
    let connections_max = config.connections_max();
    let remedy = format!(
        "raise --max-connections, now {connections_max}, and {}, of which each needs {}",
        in_words(limit()),
        if config.loops.threads > 1 { 3 } else { 2 },
    );
    Reporter::new(connections_max, remedy, config.monitoring.access_log.as_ref())
}

/// Starts the loops, on the configured driver or on the best that works; says what was refused.
fn start_proxy_group(
    config: &ProxyConfig,
    secrets: &Secrets,
    (sockets, places): (&Sockets, &[(ListenAddress, usize)]),
    (upstreams, rates, passwords): (&Arc<SharedUpstreams>, &Arc<Rates>, Option<&Arc<Passwords>>),
    (counters, replacements, epochs): (
        &[LoopCounters],
        &Arc<Replacements<NewSettings>>,
        &[Arc<EpochUses>],
    ),
    logs: &Logs,
) -> Result<OnDriver, ServerError> {
    for remark in &secrets.remarks {
        logs.errors.report(Event::Certificate, unix_s(), || remark.clone());
    }
    start_on_first(PROXY, config.loops.poller, |driver| {
        let shared_config = config.clone();
        let counters = counters.to_vec();
        let logs = logs.clone();
        let upstreams = Arc::clone(upstreams);
        let rates = Arc::clone(rates);
        let passwords = passwords.cloned();
        let replacements = Arc::clone(replacements);
        let epochs = epochs.to_vec();
        let addresses = places.to_vec();
        let secrets = secrets.clone();
        let make = move |index: usize| {
            let (server, proxied) = counters[index].clone();
            let upstreams = Arc::clone(&upstreams);
            let config = &shared_config;
            let shared =
                LoopState::for_proxy(index, config, &addresses, upstreams, server, proxied, &logs);
            shared.map(|shared| {
                let shared = shared.secured(secrets.clone()).held_to(Arc::clone(&rates));
                let shared = shared.guarded_by(passwords.clone(), index);
                shared.taking(Inbox::new(&replacements, index), Arc::clone(&epochs[index]))
            })
        };
        let again = sockets.duplicate().map_err(|error| GroupError::System("dup", error))?;
        Group::start_on::<ProxyConnection, _, _>(&proxy_group_config(config, driver), again, make)
    })
}

fn proxy_group_config(config: &ProxyConfig, driver: Driver) -> GroupConfig {
    let connections_max = config.connections_max();
    config.loops.group(
        driver,
        &Limits {
            connections_max,
            connects_max: Some(connections_max),
            write_timeout: config.limits.clients.write_timeout,
            write_rate_min: config.limits.clients.read_rate_min_bytes,
            ..Limits::default()
        },
    )
}

/// Starts the process that does for a server what only root may, where there is something.
pub(super) fn keep_rights(
    config: &ServeConfig,
    removed: &[PathBuf],
    words: &[OsString],
) -> Result<Option<Privileged>, ServerError> {
    if config.tls.is_none() && removed.is_empty() {
        return Ok(None);
    }
    let sandbox = privileges::Narrow::from_config(&config.sandbox);
    let task = privileges::Task { keys: config.tls.clone(), removed: removed.to_vec(), sandbox };
    Privileged::start(&task, words).map(Some).map_err(ServerError::Privileged)
}

/// What a reload would need and this user can't open, in lines: better shown now than then.
pub(super) fn out_of_reach(
    config: &ServeConfig,
    settings: Option<&Path>,
    user: &Identity,
) -> Vec<String> {
    let user = user.name();
    let unread = settings.and_then(|path| {
        let error = std::fs::File::open(path).err()?;
        Some(format!(
            "the settings in {} can't be read by the user {user} ({error}): a reload will fail; let that user \
             read them (chgrp, chmod g+r)",
            path.display()
        ))
    });
    let log = match config.monitoring.error_log.led_to() {
        LogTarget::File(path) => Some(path),
        LogTarget::Stdout | LogTarget::Stderr => None,
    };
    let unwritten = log.and_then(|path| {
        let error = std::fs::OpenOptions::new().append(true).open(&path).err()?;
        Some(format!(
            "the error log {} can't be opened again by the user {user} ({error}): after a rotation the old \
             file will be written on; let that user write it (chown, chmod g+w)",
            path.display()
        ))
    });
    unread.into_iter().chain(unwritten).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(address: &str, errno: Errno) -> String {
        reason(address, "--listen", Some(errno), |_| Some("nginx (process 7)".to_owned()))
    }

    #[test]
    fn readers_of_a_proxy_are_held_to_the_rate_of_its_settings() {
        let rate = |said: &str| {
            let text = format!("{said}\n[[server]]\naddress = \"127.0.0.1:9\"");
            let read = pollux_settings::Given::from_toml(&text, "p").read::<ProxyConfig>();
            let driver = Driver::Readiness(Mechanism::Poll);
            proxy_group_config(&read.expect("right"), driver).limits.write_rate_min
        };
        assert_eq!(
            ["", "read_rate_min = 0", "read_rate_min = \"3KiB\""].map(rate),
            [1024, 0, 3072]
        );
    }

    #[test]
    fn every_refusal_of_an_address_names_a_way_out() {
        assert_eq!(
            message("127.0.0.1:80", Errno::ADDRINUSE),
            "127.0.0.1:80 is in use by nginx (process 7); end that program or choose another \
             address with --listen"
        );
        let low = message("[::]:80", Errno::ACCESS);
        assert!(low.starts_with("port 80 needs root or CAP_NET_BIND_SERVICE (setcap"), "{low}");
        let other = message("8.8.8.8:80", Errno::ADDRNOTAVAIL);
        assert!(other.starts_with("8.8.8.8 is not an address of this machine;"), "{other}");
        assert!(other.ends_with(", or :80 for all of them"), "{other}");
        let unix = message("unix:/x", Errno::ACCESS);
        assert_eq!(unix, "unix:/x cannot be listened on; choose another address with --listen");
    }
}
