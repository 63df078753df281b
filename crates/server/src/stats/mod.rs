//! A running server, to be looked at: what the metrics endpoint and the control socket show.
//!
//! Both read the same counters, live, from threads of their own; no loop is stopped for it but
//! by `show fd`, which needs all of them at rest for a moment.

mod activity;
mod control;
mod ended;
mod metrics;
mod servers;
mod status;
mod supervised;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pollux_engine::{Counters, Driver};

use crate::counters::ServerCounters;
use crate::proxy::{Backend, Passing, ProxyCounters};

pub use activity::{activity, info};
pub use control::{ControlSession, ControlShared};
pub use ended::Ended;
pub use metrics::metrics;
pub use servers::{pools, servers, set_server};
pub use status::{STATUS_PAGE, status};
pub(crate) use supervised::Reloads;
pub use supervised::{NOT_RELOADED, RELOADED, Supervised};

/// What can be read of one loop while it runs.
#[derive(Clone, Debug)]
pub struct LoopSource {
    /// Connections, bytes, turns.
    pub engine: Arc<Counters>,
    /// Waits and events; none under the completion loop, which has no poller.
    pub poller: Option<Arc<pollux_poller::Counters>>,
    /// Requests and answers.
    pub server: Arc<ServerCounters>,
    /// What only a proxy counts; none in other servers.
    pub proxy: Option<Arc<ProxyCounters>>,
}

/// Asks for the descriptors of all loops: the lines of each, or why there are none.
pub type Descriptors = Box<dyn Fn() -> Result<Vec<Vec<String>>, String> + Send + Sync>;

/// A running server.
pub struct Overview {
    /// When it was started.
    pub started: Instant,
    /// Which loop on which mechanism.
    pub driver: Driver,
    /// What the settings in force say, as name and value.
    pub facts: Mutex<Vec<(String, String)>>,
    /// What the loops said when they started, in the same form.
    pub notes: Vec<(String, String)>,
    /// Its loops, in order.
    pub loops: Vec<LoopSource>,
    /// Where a proxy sends requests; none in other servers.
    pub backends: Arc<[Backend]>,
    /// What the loops of a proxy share of their connections to backends; none in other servers.
    pub passing: Option<Arc<Passing>>,
    /// Looks at the descriptors.
    pub descriptors: Descriptors,
    /// What is known of a master.
    pub supervised: Supervised,
}

impl Overview {
    /// Other settings are in force.
    pub(crate) fn set_facts(&self, facts: Vec<(String, String)>) {
        *self.facts.lock().expect("nothing panics under this lock") = facts;
    }
}

impl fmt::Debug for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overview {{ driver: {}, loops: {} }}", self.driver, self.loops.len())
    }
}

#[cfg(test)]
mod tests;
