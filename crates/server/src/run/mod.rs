//! A running server: its loops, its endpoints, and how signals end it.
//!
//! ```text
//!  group "server"    N loops      HttpSession      the configured answer
//!                                 Encrypted<HttpSession>, with a certificate
//!  group "stats"     1 loop       HttpSession      /metrics
//!  group "control"   1 loop       ControlSession   show …
//!  this thread       Signals::wait
//! ```
//!
//! The command line starts one and waits in [`Server::run`]; the lab starts and ends them itself.

pub mod explain;
pub(crate) mod in_place;
pub(crate) mod link;
pub mod master;
pub mod privileges;
mod rehearsal;
mod reload;
mod report;
pub(crate) mod sockets;
mod start;
pub mod stats;
pub(crate) mod take_settings;
mod upgrade;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_engine::{Counter, Group, ListenAddress, Signal, Signals, Sockets};
use pollux_host::{ServiceManager, ServiceState};
use pollux_sys::ring::{RESTRICTED, UNRESTRICTED};

use crate::backends;
use crate::backends::names::Lookups;
use crate::certificates::FrontCertificates;
use crate::config::descriptors::{connections_max, limit, remedy_for_full};
use crate::config::{Loops, ServeConfig};
use crate::log::{ErrorWriter, Event, unix_s};
use crate::passwords::PasswordThreads;
use crate::run::privileges::{Privileged, Sandbox};
use crate::run::reload::Reload;
use crate::run::stats::{ControlSession, ControlShared, Overview, RetiredCounts};
use crate::system::PidFile;
use crate::tls::{Certificate, Keys};
use crate::{HttpSession, Logs, LoopState, ServerCounters, ServerError};
use link::{MasterMessage, MasterStream};
use report::{Reporter, Watchdog, banner, facts, proxy_facts, url};
use sockets::open_listed;
use start::{
    CONTROL, Endpoints, OnDriver, STATS, endpoint, explained_open, keep_rights, open_to_others,
    out_of_reach, start_group,
};
use take_settings::{SettingsTaker, Taken};

/// How often the end of the loops is looked for, once they drain.
const DRAIN_TICK: Duration = Duration::from_millis(50);
/// What is said when a server ends, by a signal or at its master's word.
pub(crate) const DRAINING: &str = "draining: no new connections, then the end";
/// What is said of the signal that others replace a program by that runs.
pub(crate) const USER2_IGNORED: &str =
    "SIGUSR2 is ignored: a program that runs is not replaced by another one; restart it";
/// How often a loop that was lost is looked for, and the counters are.
const IDLE_TICK: Duration = Duration::from_secs(1);

/// What a running server is made of, beside its endpoints.
pub(crate) struct ServerParts {
    pub(crate) group: Group,
    pub(crate) overview: Overview,
    pub(crate) logs: Logs,
    pub(crate) error_writer: ErrorWriter,
    pub(crate) reporter: Reporter,
    pub(crate) drain_timeout: Duration,
    /// The same of tunnels and streams, where another worker takes over.
    pub(crate) tunnel_drain_timeout: Duration,
    /// What clients are shown, of a server that reads it again itself.
    pub(crate) certificate: Option<Certificate>,
    /// Of a server that reads its settings again itself.
    pub(crate) reload: Option<Reload>,
    pub(crate) banner: Vec<String>,
    /// Sockets that are to be removed at the end.
    pub(crate) paths: SocketPaths,
}

/// Paths of unix sockets, removed when it is dropped.
#[derive(Default)]
pub(crate) struct SocketPaths(pub(crate) Vec<PathBuf>);

impl Drop for SocketPaths {
    fn drop(&mut self) {
        for path in &self.0 {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What a process brings that is a server's alone.
#[derive(Default)]
pub struct OwnProcess<'a> {
    /// Sockets that a service manager opened; what the configuration says of addresses is put aside then.
    pub sockets: Option<Sockets>,
    /// The file that settings are read from, again at each reload.
    pub settings: Option<&'a Path>,
    /// Words by which this program, started anew, calls [`privileges::run`];
    /// none where it does not, and then what only root may do is not done for another user.
    pub privileged: Option<&'a [OsString]>,
}

/// A server that runs.
pub struct Server {
    group: Group,
    endpoints: Vec<(&'static str, Group)>,
    overview: Arc<Overview>,
    logs: Logs,
    error_writer: ErrorWriter,
    reporter: Reporter,
    reported: Instant,
    drain_timeout: Duration,
    tunnel_drain_timeout: Duration,
    certificate: Option<Certificate>,
    reload: Option<Reload>,
    /// Notified of the state of the server, while it runs.
    manager: Option<ServiceManager>,
    pid_file: Option<PidFile>,
    /// Of a server that has given up its rights.
    privileged: Option<Privileged>,
    /// Of a process that is the server's alone.
    sandbox: Option<Sandbox>,
    /// Others have the sockets too, and the endpoints drain as the loops do.
    is_handed_over: bool,
    /// Of a proxy, for the names of its backends.
    lookups: Option<Lookups>,
    /// Of one whose sites have users.
    passwords: Option<PasswordThreads>,
    /// Of a worker that takes other settings while it runs.
    taker: Option<SettingsTaker>,
    banner: Vec<String>,
    paths: SocketPaths,
}

impl Server {
    /// Starts all loops and endpoints; all of them run when this returns.
    ///
    /// # Errors
    /// [`ServerError`]; what was started already is ended.
    pub fn start(config: &ServeConfig) -> Result<Self, ServerError> {
        Self::start_in(config, None)
    }

    /// As [`Server::start`], in a process that is the server's alone and in which nothing else runs yet:
    /// it becomes the user of the configuration, and enters its sandbox.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on(config: &ServeConfig, process: OwnProcess<'_>) -> Result<Self, ServerError> {
        Self::start_in(config, Some(process))
    }

    fn start_in(
        config: &ServeConfig,
        process: Option<OwnProcess<'_>>,
    ) -> Result<Self, ServerError> {
        let is_own = process.is_some();
        let OwnProcess { sockets: passed, settings, privileged } = process.unwrap_or_default();
        let logs = Logs::new(config.monitoring.log_level);
        let error_writer = ErrorWriter::open(&config.monitoring.error_log)?;
        let protocols = config.http2.protocols().iter().copied();
        let open = |keys: &Keys| Certificate::open(keys.clone(), protocols.clone());
        let certificate = config.tls.as_ref().map(open).transpose()?;
        let is_passed = passed.is_some();
        let Loops { threads, listeners, .. } = config.loops;
        let open = || open_listed(&config.listen, listeners, threads);
        let sockets = passed.map_or_else(open, Ok);
        let sockets = sockets.map_err(|cause| explained_open(SERVER, "--listen", cause))?;
        // Those of a manager are its own to remove, and to open to whom it likes.
        let mut paths = SocketPaths(if is_passed { Vec::new() } else { sockets.paths() });
        open_to_others(&paths.0, &config.sockets)?;
        let endpoints = Endpoints::open(&config.monitoring, &config.sockets)?;
        paths.0.extend(endpoints.paths());
        let pid_file = config.monitoring.pid_file.as_deref().map(PidFile::write).transpose()?;
        let removed: Vec<PathBuf> =
            paths.0.iter().chain(&config.monitoring.pid_file).cloned().collect();
        let mut privileged_process = None;
        let mut unreachable = Vec::new();
        if let Some(identity) = &config.identity {
            let words = privileged.filter(|_| identity.is_another());
            privileged_process =
                words.map(|words| keep_rights(config, &removed, words)).transpose()?.flatten();
            identity.assume()?;
            unreachable = out_of_reach(config, settings, identity);
        }
        let manager = is_own.then(ServiceManager::of_environment);
        let sandbox = is_own
            .then(|| Sandbox::of_files(config, settings, &removed, privileged_process.is_some()));
        let sandbox = sandbox.transpose()?;
        let counters: Vec<Arc<ServerCounters>> = (0..threads).map(|_| Arc::default()).collect();
        let replacements = Arc::default();
        let tls = certificate.as_ref().map(Certificate::config);
        let OnDriver { group, driver, choice, refused } =
            start_group(config, &sockets, tls, &counters, &logs, &replacements)?;
        let remedy = remedy_for_full(config, limit());
        let reload = Reload { config: config.clone(), replacements, counters, read: None };
        let counters = reload.counters.iter().map(|server| (Arc::clone(server), None));
        let parts = ServerParts {
            overview: Overview {
                certificates: certificate.iter().cloned().map(FrontCertificates::One).collect(),
                ..Overview::of_group(&group, driver, facts(config, group.addresses()), counters)
            },
            banner: banner(config, group.addresses(), &choice, &refused),
            reporter: Reporter::new(
                connections_max(config),
                remedy,
                config.monitoring.access_log.as_ref(),
            ),
            drain_timeout: config.limits.drain_timeout,
            tunnel_drain_timeout: config.limits.drain_timeout,
            certificate,
            reload: Some(reload),
            group,
            logs,
            error_writer,
            paths,
        };
        let mut server = Self::assemble(parts, endpoints)?;
        (server.pid_file, server.manager) = (pid_file, manager);
        server.privileged = privileged_process;
        if let Some(sandbox) = sandbox
            && let Err(error) = server.complete_sandbox(sandbox)
        {
            server.abort();
            let _ = server.join();
            return Err(error);
        }
        server.banner.extend(unreachable);
        server.report_certificate();
        Ok(server)
    }

    /// Makes the sandbox of a running server complete, and reports what is in force.
    fn complete_sandbox(&mut self, mut sandbox: Sandbox) -> Result<(), ServerError> {
        let Overview { driver, notes, .. } = &*self.overview;
        // Of every loop: one whose ring takes all is enough for a way out.
        let is_ring_restricted = notes.iter().any(|(_, note)| note == RESTRICTED)
            && !notes.iter().any(|(_, note)| note.starts_with(UNRESTRICTED));
        sandbox.forbid_calls(*driver, is_ring_restricted)?;
        let line = format!("sandbox: {}", sandbox.summary());
        self.logs.errors.report(Event::Sandbox, unix_s(), || line.clone());
        self.banner.insert(1, line);
        self.sandbox = Some(sandbox);
        self.show_facts();
        Ok(())
    }

    fn show_facts(&self) {
        let Some(reload) = &self.reload else { return };
        let mut facts = facts(&reload.config, self.group.addresses());
        facts.extend(self.sandbox.as_ref().map(Sandbox::fact));
        self.overview.set_facts(facts);
    }

    /// Has SIGHUP read the settings anew by this: what answers, its limits and its log change without
    /// touching a connection; what is fixed while loops run, or wrong, is reported and changes nothing.
    pub fn read_settings_by(
        &mut self,
        read: impl Fn() -> Result<ServeConfig, String> + Send + Sync + 'static,
    ) {
        if let Some(reload) = &mut self.reload {
            reload.read = Some(Box::new(read));
        }
    }

    /// Notifies the service manager of this process, if it has one, that the server takes connections
    /// (`sd_notify(3)`).
    pub fn notify_manager(&mut self) {
        self.notify_state(ServiceState::Ready);
    }

    /// A server of loops that run already, with its endpoints.
    ///
    /// # Errors
    /// An endpoint could not be started; the loops are ended then.
    pub(crate) fn assemble(parts: ServerParts, endpoints: Endpoints) -> Result<Self, ServerError> {
        let mut server = Self {
            group: parts.group,
            endpoints: Vec::new(),
            overview: Arc::new(parts.overview),
            logs: parts.logs,
            error_writer: parts.error_writer,
            reporter: parts.reporter,
            reported: Instant::now(),
            drain_timeout: parts.drain_timeout,
            tunnel_drain_timeout: parts.tunnel_drain_timeout,
            certificate: parts.certificate,
            reload: parts.reload,
            manager: None,
            pid_file: None,
            privileged: None,
            sandbox: None,
            is_handed_over: false,
            lookups: None,
            passwords: None,
            taker: None,
            banner: parts.banner,
            paths: parts.paths,
        };
        match server.start_endpoints(endpoints) {
            Ok(()) => Ok(server),
            Err(error) => {
                server.abort();
                let _ = server.join();
                Err(error)
            }
        }
    }

    /// What is shown at the start, in lines.
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

    /// Runs until SIGTERM, SIGINT or SIGQUIT and drains then; a second one ends it at once. SIGHUP opens
    /// the logs again and reads the certificate anew, and the settings ([`Server::read_settings_by`]); SIGUSR1
    /// opens the logs alone; SIGUSR2 is reported and ignored. The caller makes `signals` before the server, so
    /// that none is missed.
    ///
    /// # Errors
    /// What ended a loop, when no signal did.
    pub fn run(self, signals: &mut Signals) -> Result<(), ServerError> {
        self.run_under(signals, None)
    }

    /// As [`Server::run`], under a master perhaps; its messages wake the wait for `signals`.
    pub(crate) fn run_under(
        mut self,
        signals: &mut Signals,
        mut master: Option<&mut MasterStream>,
    ) -> Result<(), ServerError> {
        let mut is_draining = false;
        let alive_every = self.manager.as_ref().and_then(ServiceManager::alive_every);
        let mut watchdog = alive_every.map(|every| Watchdog::new(every, Instant::now()));
        while !self.has_ended(is_draining) {
            let mut tick = if is_draining { DRAIN_TICK } else { IDLE_TICK };
            if let Some(watchdog) = &mut watchdog {
                self.notify_watchdog(watchdog, is_draining);
                tick = tick.min(watchdog.wait(Instant::now()));
            }
            match signals.wait(Some(tick)).map_err(ServerError::Signals)? {
                Some(Signal::HangUp) => {
                    self.notify_state(ServiceState::Reloading);
                    self.reopen_logs();
                    self.read_settings();
                    self.notify_state(ServiceState::Ready);
                }
                Some(Signal::User1) => self.reopen_logs(),
                Some(Signal::User2) => self.report(Event::SignalIgnored, USER2_IGNORED),
                Some(Signal::Terminate | Signal::Interrupt | Signal::Quit) if is_draining => {
                    self.report_signal("a second signal to end: connections are cut");
                    self.abort();
                }
                Some(Signal::Terminate | Signal::Interrupt | Signal::Quit) => {
                    is_draining = true;
                    self.notify_state(ServiceState::Stopping);
                    self.report_signal(DRAINING);
                    self.drain();
                }
                _ => {}
            }
            if let Some(link) = &mut master {
                for message in link.messages() {
                    if let MasterMessage::Settings(text) = &message {
                        let taken = self.take_settings(text, is_draining);
                        link.answer(&taken);
                    }
                    is_draining |= self.on_master_message(message);
                }
                link.ask(&self.overview);
            }
            if self.reported.elapsed() >= IDLE_TICK {
                self.observe();
                if let Some(link) = &mut master {
                    link.report(&self.overview);
                }
            }
        }
        let overview = Arc::clone(&self.overview);
        let outcome = self.join();
        if let Some(link) = master {
            link.report(&overview);
        }
        outcome
    }

    /// Does what the master asks for; whether the server drains because of it.
    fn on_master_message(&mut self, message: MasterMessage) -> bool {
        let drains =
            matches!(message, MasterMessage::Drain | MasterMessage::End(_) | MasterMessage::Gone);
        match message {
            MasterMessage::Drain => {
                let at_most = self.drain_timeout.max(self.tunnel_drain_timeout);
                self.leave_sockets("another worker takes the connections: draining", at_most);
            }
            MasterMessage::End(why) => self.leave_sockets(&why, self.drain_timeout),
            MasterMessage::Gone => {
                self.leave_sockets("the master is gone: draining", self.drain_timeout);
            }
            MasterMessage::Reopen => self.reopen_logs(),
            // It was answered.
            MasterMessage::Settings(_) => {}
            MasterMessage::RetiredCounts(page) => {
                self.overview.supervised.set_ended(RetiredCounts::of_page(&page));
            }
            MasterMessage::Reloads(text) => self.overview.supervised.set_reloads(text),
            MasterMessage::BackendStates { before, now } => {
                backends::restore_states(&self.overview.backends, &before, &now);
                if let Some(upstreams) = &self.overview.upstreams {
                    upstreams.site_orders().restore(&before, &now);
                }
            }
        }
        drains
    }

    /// Leaves the sockets, those of the endpoints too, to the processes that have them as well.
    fn leave_sockets(&mut self, why: &str, at_most: Duration) {
        self.is_handed_over = true;
        self.report_signal(why);
        self.group.drain(at_most);
        for (_, group) in &self.endpoints {
            group.drain(self.drain_timeout);
        }
    }

    /// Takes sockets over that are to be removed at the end.
    pub(crate) fn own(&mut self, paths: SocketPaths) {
        self.paths = paths;
    }

    /// Looks at the counters and writes the error log, without waiting for its reader. Call it about
    /// once a second; [`Server::run`] does.
    pub fn observe(&mut self) {
        self.reported = Instant::now();
        let now_s = unix_s();
        self.reporter.report(&self.overview.loops, &self.logs.errors, now_s, false);
        self.error_writer.write(&self.logs.errors, now_s, false);
    }

    /// Opens all logs again, after they were renamed perhaps.
    fn reopen_logs(&mut self) {
        self.report_signal("opening the logs again");
        self.observe();
        if let Err(error) = self.error_writer.reopen() {
            let text = || {
                format!("the error log can't be opened again: {error}; the old file is written on")
            };
            self.logs.errors.report(Event::ReopenFailed, unix_s(), text);
        }
        self.logs.reopen();
        self.group.wake_all();
    }

    /// Answers by the settings of this text, of which the master knows that they need no other worker.
    fn take_settings(&mut self, text: &str, is_draining: bool) -> Taken {
        let Some(taker) = self.taker.as_mut().filter(|_| !is_draining) else {
            return Taken::ByAnother("the worker takes no settings".to_owned());
        };
        let taken = taker.take(text, &self.group, &self.logs);
        if taken == Taken::Yes {
            let config = &taker.config;
            self.drain_timeout = config.limits.clients.drain_timeout;
            self.tunnel_drain_timeout = config.limits.tunnel_drain_timeout;
            self.reporter.set_access_log(config.monitoring.access_log.as_ref());
            self.overview.set_facts(proxy_facts(config, self.group.addresses()));
            self.report_signal("reloaded");
        }
        taken
    }

    /// Answers by what the settings and the files that they name say now.
    fn read_settings(&mut self) {
        let Some(reload) = &mut self.reload else { return };
        let certificate = self.certificate.as_ref();
        let sandbox = self.sandbox.as_ref();
        match reload.offer(certificate, &self.logs, sandbox, self.privileged.as_ref()) {
            Ok(()) => {
                self.drain_timeout = reload.config.limits.drain_timeout;
                self.reporter.set_access_log(reload.config.monitoring.access_log.as_ref());
                self.show_facts();
                self.group.wake_all();
                self.report_signal("reloaded");
                self.report_certificate();
            }
            Err(why) => self.logs.errors.report(Event::ReloadFailed, unix_s(), || {
                // One mistake a line; an entry of the log is one line.
                let why = why.to_string().replace('\n', "; ");
                format!("not reloaded, the old settings stay: {why}")
            }),
        }
    }

    /// Reports what clients will refuse the certificate for, if there is one.
    fn report_certificate(&self) {
        for remark in self.certificate.iter().flat_map(Certificate::remarks) {
            self.logs.errors.report(Event::Certificate, unix_s(), || remark.clone());
        }
    }

    fn notify_state(&self, state: ServiceState) {
        if let Some(manager) = &self.manager {
            manager.notify(state);
        }
    }

    /// Notifies the manager that the server works, when that is due and every loop takes turns.
    fn notify_watchdog(&self, watchdog: &mut Watchdog, is_draining: bool) {
        let turns = self.overview.loops.iter().map(|source| source.engine.value(Counter::Turns));
        let Some(is_alive) = watchdog.is_alive(Instant::now(), turns) else { return };
        self.group.wake_all();
        // Loops that have drained take no turns any more.
        if is_alive || is_draining {
            self.notify_state(ServiceState::Alive);
        }
    }

    fn report_signal(&self, text: &str) {
        self.report(Event::Signal, text);
    }

    fn report(&self, event: Event, text: &str) {
        self.logs.errors.report(event, unix_s(), || text.to_owned());
    }

    /// Takes no new connection and lets those that are open come to their end in time.
    pub fn drain(&self) {
        self.group.drain(self.drain_timeout);
    }

    /// Ends all loops at once.
    pub fn abort(&self) {
        self.group.abort();
    }

    /// Waits for the loops, which are ending, and ends the endpoints.
    ///
    /// # Errors
    /// The first error of a loop.
    pub fn join(self) -> Result<(), ServerError> {
        let Self { group, endpoints, overview, logs, mut error_writer, mut reporter, .. } = self;
        let paths = self.paths;
        let pid_file = self.pid_file;
        let privileged = self.privileged;
        let failed = |part| move |cause| ServerError::Group { part, cause };
        let mut outcome = group.join().map_err(failed(SERVER));
        for (part, group) in endpoints {
            group.abort();
            outcome = outcome.and(group.join().map_err(failed(part)));
        }
        drop((paths, pid_file));
        if let Some(privileged) = privileged {
            privileged.end();
        }
        let now_s = unix_s();
        reporter.report(&overview.loops, &logs.errors, now_s, true);
        error_writer.write(&logs.errors, now_s, true);
        outcome
    }

    /// A loop that ends unasked takes the server with it.
    fn has_ended(&self, is_draining: bool) -> bool {
        if is_draining {
            let mut handed_over = self.endpoints.iter().filter(|_| self.is_handed_over);
            return self.group.has_ended() && handed_over.all(|(_, group)| group.has_ended());
        }
        let is_lost = self.group.has_ended_loop();
        if is_lost {
            self.abort();
        }
        is_lost
    }

    fn start_endpoints(&mut self, endpoints: Endpoints) -> Result<(), ServerError> {
        let failed = |part| move |cause| ServerError::Group { part, cause };
        let Endpoints { stats, control } = endpoints;
        if let Some(sockets) = stats {
            let overview = Arc::clone(&self.overview);
            let make = move |_| {
                Ok::<_, ServerError>(LoopState::for_status(Box::new(Arc::clone(&overview))))
            };
            let group = Group::start_on::<HttpSession, _, _>(&endpoint(), sockets, make);
            let group = group.map_err(failed(STATS))?;
            let at = |address| url(address, false, "/metrics");
            let urls: Vec<String> = group.addresses().iter().map(at).collect();
            self.banner.push(format!("metrics: {}", urls.join(" ")));
            self.endpoints.push((STATS, group));
        }
        if let Some(sockets) = control {
            let shared = ControlShared::new(Arc::clone(&self.overview));
            let make = move |_| Ok::<_, ServerError>(shared.clone());
            let group = Group::start_on::<ControlSession, _, _>(&endpoint(), sockets, make);
            let group = group.map_err(failed(CONTROL))?;
            self.banner.push(format!("control: {}", group.addresses()[0]));
            self.endpoints.push((CONTROL, group));
        }
        Ok(())
    }
}

const SERVER: &str = "server";
