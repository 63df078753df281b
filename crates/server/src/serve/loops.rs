//! The loops of a server: started on the configured driver, or on the best that works here.

use std::sync::Arc;

use pollux_engine::{Driver, Group, GroupConfig, GroupError, Limits, Sockets};
use pollux_poller::Mechanism;
use pollux_tls::ServerConfig;

use super::{SERVER, explained};
use crate::config::{Answer, ServeConfig};
use crate::descriptors::connections_max;
use crate::reload::{Inbox, Replacements};
use crate::{EncryptedSession, HttpSession, Logs, ServerCounters, ServerError, Shared};

/// What is tried when no poller is named, best first.
const PREFERENCES: [Driver; 4] = [
    Driver::Completion,
    Driver::Readiness(Mechanism::EpollEt),
    Driver::Readiness(Mechanism::Epoll),
    Driver::Readiness(Mechanism::Poll),
];

/// Starts the loops, on the configured driver or on the best that works; says what was refused.
pub(super) fn start_group(
    config: &ServeConfig,
    sockets: &Sockets,
    tls: Option<&Arc<ServerConfig>>,
    counters: &[Arc<ServerCounters>],
    logs: &Logs,
    replacements: &Arc<Replacements>,
) -> Result<(Group, Driver, Vec<String>), ServerError> {
    start_on_first(SERVER, config.loops.poller, |driver| {
        let (shared_config, counters, logs) = (config.clone(), counters.to_vec(), logs.clone());
        let replacements = Arc::clone(replacements);
        let make = move |index: usize| {
            let shared = Shared::new(&shared_config, Arc::clone(&counters[index]), &logs);
            shared.map(|shared| shared.reloadable(Inbox::new(&replacements, index)))
        };
        let group = group_config(config, driver);
        let again = sockets.duplicate().map_err(|error| GroupError::System("dup", error))?;
        let Some(tls) = tls.cloned() else {
            return Group::start_on::<HttpSession, _, _>(&group, again, make);
        };
        let make = move |index| make(index).map(|shared| shared.encrypted(Arc::clone(&tls)));
        Group::start_on::<EncryptedSession, _, _>(&group, again, make)
    })
}

/// Starts the loops of `part` on `poller`, or without one on the best driver that works; which one it
/// is, and what was refused.
pub(crate) fn start_on_first(
    part: &'static str,
    poller: Option<Driver>,
    mut start: impl FnMut(Driver) -> Result<Group, GroupError>,
) -> Result<(Group, Driver, Vec<String>), ServerError> {
    let one = poller.map(|driver| [driver]);
    let drivers = one.as_ref().map_or(PREFERENCES.as_slice(), <[Driver; 1]>::as_slice);
    let mut refused = Vec::new();
    let mut last = None;
    for &driver in drivers {
        match start(driver) {
            Ok(group) => return Ok((group, driver, refused)),
            // Only a mechanism that is not to be had is a reason to try the next one.
            Err(cause @ GroupError::Loop(_)) => {
                refused.push(format!("{driver} was refused: {cause}"));
                last = Some(cause);
            }
            Err(cause) => return Err(explained(part, "--listen", cause)),
        }
    }
    Err(ServerError::Group { part, cause: last.expect("at least one was tried") })
}

fn group_config(config: &ServeConfig, driver: Driver) -> GroupConfig {
    let limits = Limits {
        connections_max: connections_max(config),
        write_timeout: config.limits.write_timeout,
        write_rate_min: config.limits.read_rate_min_bytes,
        busy_poll: config.loops.is_busy_polling,
        mask_ends: config.loops.masks_ends,
        ..Limits::default()
    };
    GroupConfig {
        listen: Vec::new(),
        driver,
        threads: config.loops.threads,
        listeners: config.loops.listeners,
        cpus: config.loops.pin.clone(),
        delays_small_writes: matches!(config.answer, Answer::Reply { is_split: true, .. }),
        limits,
    }
}
