//! A start rehearsed, for `--check`: everything that `pollux serve` and `pollux proxy` open before they take a
//! connection is looked at, for both in the same way, and every mistake is reported, not the first alone.
//!
//! Nothing is listened on, written or left open, and no server that runs is disturbed: the check is for a reload
//! as well, so what a running server has is right. What a start would only say is a warning.

use std::fmt::Write;
use std::path::Path;

use pollux_engine::{
    Address, Driver, EventLoop, GroupError, Limits, ListenAddress, ListenError, NoSession,
};
use pollux_host::holders;
use pollux_tls::HTTP_1_1;
use rustix::io::Errno;

use crate::config::ProxyConfig;
use crate::config::descriptors::connections_max;
use crate::config::{LogTarget, Loops, Monitoring, ServeConfig, takes};
use crate::front::state::LoopState;
use crate::handlers::sites::SiteHandlers;
use crate::head::shared_fields::Common;
use crate::identity::Identity;
use crate::log;
use crate::passwords::Passwords;
use crate::run::report::{proxy_shortage, serve_shortage, summary};
use crate::run::sockets::{check_all, looked_up};
use crate::run::start::{CONTROL, PROXY, STATS, explained_open};
use crate::run::{SERVER, Server};
use crate::system::{PidFile, unless_unit_makes};
use crate::tls::Certificate;
use crate::{Logs, ServerError};

/// What a start would meet.
#[derive(Debug, Default)]
struct Rehearsal {
    /// Where clients and metrics come, with what the names are now.
    listened: Vec<(Address, Vec<ListenAddress>)>,
    warnings: Vec<String>,
    mistakes: Vec<ServerError>,
}

impl Server {
    /// Does what the start of a server configured so does up to its first loop, and says what it would do, in lines,
    /// and of what it would warn. Nothing is listened on, written or left open; an address, a PID file or a
    /// socket that a server has which runs is right, and so is a file in a folder that a unit of systemd makes, with
    /// a warning while the folder is missing. With a user the process becomes that user.
    ///
    /// # Errors
    /// All that would keep it from starting, at least one.
    pub fn check(config: &ServeConfig) -> Result<String, Vec<ServerError>> {
        let mut start = Rehearsal::default();
        start.log("error", &config.monitoring.error_log);
        if let Some(keys) = &config.tls {
            let certificate = start.noted(Certificate::open(keys.clone(), Some(HTTP_1_1)));
            start.warnings.extend(certificate.iter().flat_map(Certificate::remarks));
        }
        config.listen.iter().for_each(|address| start.address(SERVER, "--listen", address));
        start.endpoints(&config.monitoring);
        // The loops open all else, as that user.
        start.noted(config.identity.as_ref().map(Identity::assume).transpose());
        start.access_log(&config.monitoring);
        start.loops(SERVER, &config.loops, connections_max(config));
        let mut without_log = config.clone();
        without_log.monitoring.access_log = None;
        start.noted(LoopState::new(&without_log, Default::default(), &Logs::default()));
        start.warnings.extend(serve_shortage(config));
        start.ended(summary(config))
    }

    /// As [`Server::check`], of a proxy.
    ///
    /// # Errors
    /// All that would keep it from starting, at least one.
    pub fn check_proxy(config: &ProxyConfig) -> Result<String, Vec<ServerError>> {
        let mut start = Rehearsal::default();
        config.listen().iter().for_each(|address| start.address(PROXY, "--listen", address));
        start.endpoints(&config.monitoring);
        start.log("error", &config.monitoring.error_log);
        let secrets = start.noted(config.read_secrets().map_err(ServerError::from));
        start.warnings.extend(secrets.into_iter().flat_map(|secrets| secrets.remarks));
        let passwords = start.noted(Passwords::read(&config.sites.users)).flatten();
        // A worker does all else as that user.
        start.noted(config.identity.as_ref().map(Identity::assume).transpose());
        let unknown = start.noted(Self::check_names(config));
        start.warnings.extend(unknown.unwrap_or_default());
        start.access_log(&config.monitoring);
        start.loops(PROXY, &config.loops, config.connections_max());
        start.noted(SiteHandlers::open(config, &Logs::default(), &Default::default()));
        start.noted(Common::all(config));
        start.warnings.extend(config.sites.warnings.iter().cloned());
        start.warnings.extend(proxy_shortage(config));
        let mut summary = config.summary();
        for (users, count) in passwords.iter().flat_map(|passwords| passwords.lists()) {
            let plural = if count == 1 { "" } else { "s" };
            let name = &users.name;
            let file = users.file.display();
            writeln!(summary, "users \"{name}\": {count} name{plural} in {file}")
                .expect("a string");
        }
        start.ended(summary)
    }
}

impl Rehearsal {
    /// What was checked, or its mistake among the others.
    fn noted<T>(&mut self, checked: Result<T, impl Into<ServerError>>) -> Option<T> {
        checked.map_err(|mistake| self.mistakes.push(mistake.into())).ok()
    }

    /// A file that is made, or a socket, which a unit of systemd may make the folder of.
    fn file(&mut self, path: &Path, checked: Result<(), ServerError>) {
        let warnings = self.noted(unless_unit_makes(path, checked));
        self.warnings.extend(warnings.unwrap_or_default());
    }

    fn log(&mut self, which: &'static str, target: &LogTarget) {
        self.file(&target.path(), log::check(which, target));
    }

    fn access_log(&mut self, monitoring: &Monitoring) {
        if let Some(target) = &monitoring.access_log {
            self.log("access", target);
        }
    }

    /// Stats, the control socket and the file with the id of the process.
    fn endpoints(&mut self, monitoring: &Monitoring) {
        if let Some(address) = &monitoring.stats {
            self.address(STATS, "--stats", address);
        }
        if let Some(path) = &monitoring.control {
            self.address(CONTROL, "--control", &ListenAddress::Unix(path.clone()).into());
        }
        if let Some(path) = &monitoring.pid_file {
            self.file(path, PidFile::check(path));
        }
    }

    /// Where `part` listens, which `flag` sets.
    fn address(&mut self, part: &'static str, flag: &'static str, address: &Address) {
        let checked = check_all(address);
        let explained = |cause: ListenError| explained_open(part, flag, cause);
        match address {
            Address::Known(ListenAddress::Unix(path)) => {
                self.file(path, checked.map(drop).map_err(explained));
                self.held(flag, address, holders::of_path(path));
            }
            Address::Known(ListenAddress::Tcp(_)) | Address::Name { .. } => {
                let is_free = self.noted(checked.map_err(explained)).unwrap_or(true);
                self.compare(flag, address);
                if !is_free {
                    let port = address.port().unwrap_or_default();
                    self.held(flag, address, holders::of_port(port));
                }
            }
        }
    }

    /// Warns where another program listens; of this program it is the server that is to be reloaded or replaced.
    fn held(&mut self, flag: &'static str, address: &Address, holder: Option<String>) {
        if let Some(other) = holder.filter(|it| !is_like_us(it)) {
            self.warnings.push(format!(
                "{address} is in use by {other}: a start needs that to end, or another {flag}"
            ));
        }
    }

    /// Settings compare what was written; here a name has its addresses.
    fn compare(&mut self, flag: &'static str, address: &Address) {
        let Ok(all) = looked_up(address) else { return };
        let is_named = |address: &Address| matches!(address, Address::Name { .. });
        let known = |address: &ListenAddress| Address::from(address.clone());
        let are_one = |one: &ListenAddress, two: &ListenAddress| {
            takes(&known(one), &known(two)) || takes(&known(two), &known(one))
        };
        let other = self.listened.iter().find(|(written, others)| {
            (is_named(written) || is_named(address))
                && others.iter().any(|one| all.iter().any(|two| are_one(one, two)))
        });
        if let Some((other, _)) = other {
            let reason = format!(
                "{address} and {other} are one address of this machine; name it once with {flag}"
            );
            let cause = Errno::ADDRINUSE.into();
            self.mistakes.push(ServerError::Listen { reason, cause });
        }
        self.listened.push((address.clone(), all));
    }

    /// Threads on their CPUs, and the mechanism.
    fn loops(&mut self, part: &'static str, loops: &Loops, connections_max: u32) {
        let failed = |cause| ServerError::Group { part, cause };
        if let Some(cpus) = &loops.pin {
            self.noted(cpus.check().map_err(|cause| failed(GroupError::Cpu(cause))));
        }
        let each = connections_max.div_ceil(u32::try_from(loops.threads).unwrap_or(u32::MAX));
        let limits = loops.group(Driver::default(), &Limits::default()).limits;
        let limits = Limits { connections_max: each, ..limits };
        let open = |driver| EventLoop::<NoSession>::open(driver, (), limits.clone()).map(drop);
        let opened = Driver::start_first(loops.poller, open);
        if let Some(started) = self.noted(opened.map_err(|cause| failed(GroupError::Loop(cause)))) {
            let refused = started.refused.into_iter();
            self.warnings.extend(refused.map(|(driver, cause)| {
                format!("{driver} was refused, {} is taken: {cause}", started.driver)
            }));
        }
    }

    /// What it would do, with the warnings behind; or all that is wrong.
    fn ended(self, summary: String) -> Result<String, Vec<ServerError>> {
        if !self.mistakes.is_empty() {
            return Err(self.mistakes);
        }
        let warnings = self.warnings.iter().map(|warning| format!("warning: {warning}\n"));
        Ok(std::iter::once(summary).chain(warnings).collect())
    }
}

/// Whether the holder of a port, `name (process 12)`, is a process of this program.
fn is_like_us(holder: &str) -> bool {
    let own = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    holder.split(" (process ").next() == Some(own.trim())
}
