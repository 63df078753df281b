//! How a worker takes other settings from its master while it runs: what answers is replaced in each loop between two turns, and
//! no connection is touched.
//!
//! ```text
//!  master: settings read, nothing of them needs another worker (`in_place.rs`) ─► frame with the text of the file
//!  worker: read, opened ─► a replacement for each loop ─► wake_all ─► taken by all ─► frame: how that went
//! ```
//!
//! All replacements are made before the first one is offered; what is wrong changes nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Group, ListenAddress};
use pollux_settings::command::output::error_chain;

use crate::backends::shared_upstreams::SharedUpstreams;
use crate::certificates::FrontCertificates;
use crate::config::ProxyConfig;
use crate::counters::ServerCounters;
use crate::epochs::{EPOCHS_MAX, EpochUses};
use crate::fault::{ProxyCounter, ProxyCounters};
use crate::front::epoch::{Carried, NewSettings};
use crate::front::state::Replacements;
use crate::log::Logs;
use crate::rates::Rates;
use crate::site_orders::SiteOrders;

/// For all loops to take a turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads settings from the text of their file, as a master has sent it; or says what is wrong with them.
pub type ReadSettings = Box<dyn Fn(&str) -> Result<ProxyConfig, String> + Send + Sync>;

/// What a worker needs for that.
pub(crate) struct SettingsTaker {
    pub(crate) config: ProxyConfig,
    pub(crate) read: ReadSettings,
    pub(crate) replacements: Arc<Replacements<NewSettings>>,
    /// Of each loop.
    pub(crate) counters: Vec<(Arc<ServerCounters>, Arc<ProxyCounters>)>,
    pub(crate) epochs: Vec<Arc<EpochUses>>,
    pub(crate) addresses: Vec<(ListenAddress, usize)>,
    /// Of each front end.
    pub(crate) certificates: Vec<Option<FrontCertificates>>,
    pub(crate) rates: Arc<Rates>,
    pub(crate) upstreams: Arc<SharedUpstreams>,
}

/// How it went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// All loops have the settings.
    Yes,
    /// Another worker has to take them, for this reason.
    ByAnother(String),
    /// They are wrong, and nothing has changed.
    Wrong(String),
}

/// What the settings of a text are made into, before anything goes by them.
struct Prepared {
    config: ProxyConfig,
    rates: Arc<Rates>,
    orders: Arc<SiteOrders>,
    of_loops: Vec<NewSettings>,
}

impl Taken {
    /// The words of a frame, each in front of a line feed and a reason.
    const YES: &str = "taken";
    const BY_ANOTHER: &str = "by another";
    const WRONG: &str = "wrong";

    /// As a master reads it.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (word, why) = text.split_once('\n')?;
        match word {
            Self::YES => Some(Self::Yes),
            Self::BY_ANOTHER => Some(Self::ByAnother(why.to_owned())),
            Self::WRONG => Some(Self::Wrong(why.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, why) = match self {
            Self::Yes => (Self::YES, ""),
            Self::ByAnother(why) => (Self::BY_ANOTHER, why.as_str()),
            Self::Wrong(why) => (Self::WRONG, why.as_str()),
        };
        write!(f, "{word}\n{why}")
    }
}

impl SettingsTaker {
    /// Has all loops go by the settings of this text.
    pub(crate) fn take(&mut self, text: &str, group: &Group, logs: &Logs) -> Taken {
        // A place that is free stays so: nothing else takes one.
        if !self.epochs.iter().all(|epochs| epochs.has_place()) {
            self.count(ProxyCounter::ReloadsWithoutPlace);
            return Taken::ByAnother(format!(
                "requests under way still go by {} earlier settings",
                EPOCHS_MAX - 1
            ));
        }
        match self.replacements_of(text, logs) {
            Ok(Prepared { config, rates, orders, of_loops }) => {
                self.upstreams.replace_sites(&orders);
                self.replacements.offer(of_loops);
                group.wake_all();
                if !self.replacements.await_taken(TURN_TIMEOUT) {
                    return Taken::ByAnother("a loop has taken no turn for 10 s".to_owned());
                }
                (self.config, self.rates) = (config, rates);
                self.count(ProxyCounter::ReloadsInPlace);
                // As another worker would at its start.
                if let Some(names) = self.upstreams.names() {
                    (0..self.upstreams.backends.len()).for_each(|backend| names.hurry(backend));
                }
                Taken::Yes
            }
            Err(why) => Taken::Wrong(why),
        }
    }

    /// What each loop takes by the settings of this text.
    fn replacements_of(&self, text: &str, logs: &Logs) -> Result<Prepared, String> {
        let config = (self.read)(text)?;
        for (front, certificates) in config.frontends.iter().zip(&self.certificates) {
            let found = certificates.as_ref().map(|all| all.note_missing(front, &config.sites));
            found.transpose().map_err(|error| error_chain(&error))?;
        }
        let rates = Arc::new(self.rates.by(&config.rates));
        let orders = Arc::new(SiteOrders::none(&config.sites));
        let old = &self.config.monitoring.access_log;
        let new = &config.monitoring.access_log;
        let carried = Carried {
            addresses: &self.addresses,
            shared: &self.upstreams,
            orders: &orders,
            certificates: &self.certificates,
            rates: &rates,
            logs,
            keeps_log: new.is_some() && old == new,
        };
        let mut of_loops = Vec::new();
        for (server, proxied) in &self.counters {
            let settings = NewSettings::new(&config, server, carried);
            of_loops.push(settings.map_err(|error| error_chain(&error))?);
            proxied.make_routes(self.upstreams.routes.names().len());
        }
        Ok(Prepared { config, rates, orders, of_loops })
    }

    fn count(&self, counter: ProxyCounter) {
        // No loop counts these.
        self.counters[0].1.count(counter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_says_of_settings_is_read_as_it_was_meant() {
        for taken in [
            Taken::Yes,
            Taken::ByAnother("two\nlines".to_owned()),
            Taken::Wrong("p.toml:1:2: a: b".to_owned()),
        ] {
            assert_eq!(Taken::read(&taken.to_string()), Some(taken));
        }
        assert_eq!((Taken::read("taken"), Taken::read("x\n")), (None, None));
    }
}
