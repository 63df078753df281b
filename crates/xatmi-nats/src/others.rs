//! The services of the other pools of a domain, as these publish them, and for how long they count.
//!
//! `exchange` fills the table; nothing here sends, and time is passed in.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use pollux_xatmi::queue::ServiceName;
use serde::{Deserialize, Serialize};

/// Lists that did not come again for this many of their periods are forgotten.
const PERIODS_BELIEVED: u32 = 3;
/// The longest time that lists without a period are believed.
const BELIEVED_MAX: Duration = Duration::from_secs(24 * 3600);
/// The most pools of one domain; lists of more are dropped and counted.
const POOLS_MAX: usize = 1024;
/// The longest name of a pool: that of a host (64 bytes) and a prefix, with room.
pub(crate) const POOL_LEN_BYTES_MAX: usize = 512;
/// The most services of one pool that are believed: what a worker can offer.
const SERVICES_MAX: usize = pollux_xatmi::slots::SERVICES_MAX;

/// What one pool offers to the others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ServiceList {
    /// The pool: host and prefix.
    pub(crate) pool: String,
    /// All that it offers now.
    pub(crate) services: BTreeSet<String>,
    /// Seconds until it says so again; 0 if it speaks only when something changes.
    pub(crate) refresh_s: u64,
}

/// What the other pools of the domain offer.
#[derive(Debug)]
pub(crate) struct Others {
    own: String,
    pools: HashMap<String, Known>,
    /// Lists that were not taken: too many pools, or names that are not valid.
    pub(crate) dropped: u64,
}

#[derive(Debug)]
struct Known {
    services: BTreeSet<String>,
    until: Instant,
}

impl Others {
    /// Nothing is known yet. `own` is the name of this pool, whose lists are not read.
    pub(crate) fn new(own: String) -> Self {
        Self { own, pools: HashMap::new(), dropped: 0 }
    }

    /// A list came.
    pub(crate) fn take(&mut self, list: ServiceList, now: Instant) {
        if list.pool == self.own {
            return;
        }
        let is_known = self.pools.contains_key(&list.pool);
        let is_sound = list.services.iter().all(|name| ServiceName::new(name).is_some())
            && list.pool.len() <= POOL_LEN_BYTES_MAX;
        if !is_sound || (!is_known && self.pools.len() == POOLS_MAX) {
            self.dropped += 1;
            return;
        }
        if list.services.is_empty() {
            self.pools.remove(&list.pool);
        } else {
            let period = Duration::from_secs(list.refresh_s).min(BELIEVED_MAX);
            let believed = (period * PERIODS_BELIEVED).min(BELIEVED_MAX);
            let believed = if believed.is_zero() { BELIEVED_MAX } else { believed };
            let services = list.services.into_iter().take(SERVICES_MAX).collect();
            self.pools.insert(list.pool, Known { services, until: now + believed });
        }
    }

    /// The services that others offer, without those that this pool has itself (`local`).
    pub(crate) fn wanted(&mut self, local: &BTreeSet<String>, now: Instant) -> BTreeSet<String> {
        self.pools.retain(|_, known| now < known.until);
        let all = self.pools.values().flat_map(|known| &known.services);
        all.filter(|name| !local.contains(*name)).take(SERVICES_MAX).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(5);

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn list(pool: &str, services: &[&str]) -> ServiceList {
        ServiceList {
            pool: pool.to_owned(),
            services: names(services),
            refresh_s: PERIOD.as_secs(),
        }
    }

    #[test]
    fn services_of_others_are_wanted_unless_they_are_here() {
        let (mut others, now) = (Others::new("me".to_owned()), Instant::now());
        others.take(list("a", &["X", "Y"]), now);
        others.take(list("b", &["Y", "Z"]), now);
        others.take(list("me", &["MINE"]), now);
        assert_eq!(others.wanted(&names(&["Z"]), now), names(&["X", "Y"]));
        others.take(list("a", &[]), now);
        assert_eq!(others.wanted(&names(&[]), now), names(&["Y", "Z"]));
    }

    #[test]
    fn a_pool_that_is_silent_for_three_periods_is_forgotten() {
        let (mut others, start) = (Others::new("me".to_owned()), Instant::now());
        others.take(list("a", &["X"]), start);
        others.take(list("b", &["Y"]), start + PERIOD);
        assert_eq!(others.wanted(&names(&[]), start + 3 * PERIOD), names(&["Y"]));
        assert_eq!(others.wanted(&names(&[]), start + 4 * PERIOD), names(&[]));
    }

    #[test]
    fn lists_of_unknown_senders_are_bounded() {
        let (mut others, now) = (Others::new("me".to_owned()), Instant::now());
        others.take(list("a", &["not a name"]), now);
        others.take(list(&"a".repeat(POOL_LEN_BYTES_MAX + 1), &["X"]), now);
        assert_eq!(others.wanted(&names(&[]), now), names(&[]));
        for pool in 0..=POOLS_MAX {
            others.take(list(&pool.to_string(), &["X"]), now);
        }
        assert_eq!((others.pools.len(), others.dropped), (POOLS_MAX, 3));
    }
}
