//! The endpoints by which a server is monitored: metrics, and the socket for commands.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pollux_engine::{Driver, GroupConfig, Limits, ListenAddress, Listeners, Sockets};
use pollux_poller::Mechanism;

use super::explained_open;
use crate::ServerError;
use crate::config::Monitoring;

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
    pub(super) fn open(monitoring: &Monitoring) -> Result<Self, ServerError> {
        let open = |address: ListenAddress, part, flag| {
            let opened = Sockets::open(&[address], Listeners::Exclusive, 1);
            opened.map_err(|cause| explained_open(part, flag, cause))
        };
        let stats = monitoring.stats.clone().map(|address| open(address, STATS, "--stats"));
        let stats = stats.transpose()?;
        let Some(path) = &monitoring.control else { return Ok(Self { stats, control: None }) };
        let control = open(ListenAddress::Unix(path.clone()), CONTROL, "--control")?;
        close_to_others(path)?;
        Ok(Self { stats, control: Some(control) })
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let all = [&self.stats, &self.control].into_iter().flatten();
        all.flat_map(Sockets::paths).collect()
    }
}

/// Where endpoints listen, with their names and flags.
pub(super) fn addresses(
    monitoring: &Monitoring,
) -> impl Iterator<Item = (&'static str, &'static str, ListenAddress)> {
    let stats = monitoring.stats.clone().map(|address| (STATS, "--stats", address));
    let control = monitoring.control.clone().map(ListenAddress::Unix);
    stats.into_iter().chain(control.map(|address| (CONTROL, "--control", address)))
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

/// Commands are for the user who runs the server.
pub(crate) fn close_to_others(path: &Path) -> Result<(), ServerError> {
    let set = std::fs::set_permissions(path, Permissions::from_mode(0o600));
    set.map_err(|cause| ServerError::Permissions { path: path.to_owned(), cause })
}
