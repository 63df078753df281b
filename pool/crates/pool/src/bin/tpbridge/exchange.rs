//! What pools publish to each other, kept in step: what this one offers, and what it may call elsewhere, as the
//! other pools of the domain publish it and for as long as that counts.
//!
//! ```text
//!  the pool at home ─► exported and here ─► subscriptions of `host`, service list to the others
//!  lists of others ─► Others ─► what to offer at home ─► the main thread is woken
//! ```
//!
//! Nothing is offered at home before it is known what is there: a bridge that did would take calls
//! away from the pool's own workers. Nothing is published before that either: others would believe that
//! this pool has nothing. After each connection all pools are asked anew, as lists may have passed
//! meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::{Client, Subscriber};
use futures_util::StreamExt;
use pollux_xatmi::queue::{Prefix, ServiceName};
use rustix::event::EventfdFlags;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::host::{self, Host, Served};
use crate::log::Log;
use crate::settings::{Domain, GROUP, Settings};

/// How often the pool at home is asked what it offers.
const LOOK_HOME: Duration = Duration::from_secs(1);
/// Between two answers to the bridges that ask for lists: one answer serves all of them.
const PUBLISH_PAUSE: Duration = Duration::from_millis(100);
/// Between two lines that count what unknown senders sent.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(60);

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

/// The services to offer at home, and the means to say that they changed.
#[derive(Debug)]
pub(crate) struct Wanted {
    services: Mutex<BTreeSet<String>>,
    changed: OwnedFd,
}

impl Wanted {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let changed = rustix::event::eventfd(0, flags)?;
        Ok(Self { services: Mutex::default(), changed })
    }

    /// Becomes readable when the services changed.
    pub(crate) fn changed(&self) -> io::Result<OwnedFd> {
        self.changed.as_fd().try_clone_to_owned()
    }

    /// What is to be offered now.
    pub(crate) fn services(&self) -> BTreeSet<String> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, services: BTreeSet<String>) {
        let mut known = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != services {
            *known = services;
            self.wake();
        }
    }

    /// Has the worker look at the services and at the connection.
    pub(crate) fn wake(&self) {
        // It counts to 2^64: a write can't fail for want of room.
        let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
    }
}

/// Keeps subscriptions, service lists and wanted services in step.
#[derive(Debug)]
pub(crate) struct Exchange {
    client: Client,
    domain: Domain,
    prefix: Prefix,
    exports: BTreeSet<String>,
    pool: String,
    refresh: Duration,
    host: Host,
    wanted: Arc<Wanted>,
    log: Arc<Log>,
    others: Others,
    served: BTreeMap<String, Served>,
    /// What workers at home offer; none until that is known.
    home: Option<BTreeSet<String>>,
    published: Option<Instant>,
    /// Another bridge asked what is offered here, and was not answered yet.
    is_asked: bool,
    /// Messages of unknown senders that the log has, and when.
    complained: Option<(u64, Instant)>,
}

impl Exchange {
    pub(crate) fn new(
        client: Client,
        settings: &Settings,
        prefix: Prefix,
        host: Host,
        wanted: Arc<Wanted>,
        log: Arc<Log>,
    ) -> Self {
        Self {
            client,
            domain: settings.domain.clone(),
            prefix,
            exports: settings.exports.clone(),
            pool: settings.pool.clone(),
            refresh: settings.refresh,
            host,
            wanted,
            log,
            others: Others::new(settings.pool.clone()),
            served: BTreeMap::new(),
            home: None,
            published: None,
            is_asked: false,
            complained: None,
        }
    }

    /// Runs until it is asked to leave; then no call comes here any more. `came` counts
    /// connections to the broker.
    pub(crate) async fn run(
        mut self,
        mut came: watch::Receiver<u64>,
        mut leave: watch::Receiver<bool>,
    ) {
        let lists = self.domain.service_lists();
        let questions = self.domain.questions();
        let (Ok(mut lists), Ok(mut questions)) =
            (self.client.subscribe(lists).await, self.client.subscribe(questions).await)
        else {
            // Only without a connection object, and then there is nothing to do.
            return;
        };
        let mut look = tokio::time::interval(LOOK_HOME);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.ask().await;
        loop {
            tokio::select! {
                _ = look.tick() => self.look_home().await,
                Some(message) = lists.next() => self.read(&message.payload),
                Some(_) = questions.next() => self.asked(&mut questions).await,
                Ok(()) = came.changed() => {
                    self.ask().await;
                    self.is_asked = true;
                }
                Ok(()) = leave.changed() => return self.leave().await,
                else => return,
            }
            if let Some(home) = &self.home {
                self.wanted.set(self.others.wanted(home, Instant::now()));
            }
        }
    }

    async fn look_home(&mut self) {
        let prefix = self.prefix.clone();
        let asked = tokio::task::spawn_blocking(move || host::services(&prefix)).await;
        // Without a manager everything is as it was: workers serve on.
        if let Ok(Ok(services)) = asked {
            self.home = Some(services);
        }
        let has_changed = self.subscribe().await;
        if has_changed || self.is_asked || self.is_time() {
            self.publish().await;
        }
        self.complain();
    }

    fn read(&mut self, payload: &[u8]) {
        match serde_json::from_slice::<ServiceList>(payload) {
            Ok(list) => self.others.take(list, Instant::now()),
            Err(_) => self.others.dropped += 1,
        }
    }

    async fn asked(&mut self, questions: &mut Subscriber) {
        // Each bridge that has asked by now is answered at the same time.
        while futures_util::FutureExt::now_or_never(questions.next()).flatten().is_some() {}
        self.is_asked = true;
        if self.published.is_none_or(|at| at.elapsed() >= PUBLISH_PAUSE) {
            self.publish().await;
        }
    }

    /// Whether what is offered has to be said again.
    fn is_time(&self) -> bool {
        self.published.is_none_or(|at| !self.refresh.is_zero() && at.elapsed() >= self.refresh)
    }

    /// Serves what is exported and here, and nothing else; whether that changed anything.
    async fn subscribe(&mut self) -> bool {
        let Some(home) = &self.home else { return false };
        let offered: BTreeSet<_> = self.exports.intersection(home).cloned().collect();
        let gone =
            |service: &String, served: &mut Served| !offered.contains(service) || served.is_over();
        let gone: Vec<_> = self.served.extract_if(.., gone).collect();
        let mut has_changed = !gone.is_empty();
        for (_, served) in gone {
            // It ends by itself.
            drop(served.withdraw());
        }
        for service in offered {
            if self.served.contains_key(&service) {
                continue;
            }
            let subject = self.domain.call(&service);
            if let Ok(requests) = self.client.queue_subscribe(subject, GROUP.to_owned()).await {
                let served = self.host.offer(service.clone(), requests);
                self.served.insert(service, served);
                has_changed = true;
            }
        }
        has_changed
    }

    async fn ask(&self) {
        // A broker that is away receives it later, or is asked again when it is there.
        let _ = self.client.publish(self.domain.questions(), "".into()).await;
    }

    async fn publish(&mut self) {
        if self.home.is_none() {
            return;
        }
        let pool = self.pool.clone();
        let services = self.served.keys().cloned().collect();
        let list = ServiceList { pool, services, refresh_s: self.refresh.as_secs() };
        let Ok(text) = serde_json::to_vec(&list) else { return };
        // Announced again after a period, whatever became of it.
        let _ = self.client.publish(self.domain.service_lists(), text.into()).await;
        (self.published, self.is_asked) = (Some(Instant::now()), false);
    }

    /// Says how much of what came was nothing of a bridge's.
    fn complain(&mut self) {
        let foreign = self.host.foreign() + self.others.dropped;
        let (said, at) = self.complained.unwrap_or((0, Instant::now()));
        let is_due = self.complained.is_none() || at.elapsed() >= COMPLAINT_PAUSE;
        if foreign > said && is_due {
            let domain = &self.domain;
            self.log.say(&format!("{foreign} messages in domain {domain} were none of a bridge's"));
            self.complained = Some((foreign, Instant::now()));
        }
    }

    /// Serves no call any more. Nothing is published: other copies of this bridge may continue.
    async fn leave(&mut self) {
        let tasks: Vec<_> = std::mem::take(&mut self.served).into_values().collect();
        let tasks: Vec<_> = tasks.into_iter().map(Served::withdraw).collect();
        for task in tasks {
            // One that panicked serves none either.
            let _ = task.await;
        }
    }
}

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
    dropped: u64,
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
        let mut others = Others::new("me".to_owned());
        let now = Instant::now();
        others.take(list("a", &["X", "Y"]), now);
        others.take(list("b", &["Y", "Z"]), now);
        others.take(list("me", &["MINE"]), now);
        assert_eq!(others.wanted(&names(&["Z"]), now), names(&["X", "Y"]));
        others.take(list("a", &[]), now);
        assert_eq!(others.wanted(&names(&[]), now), names(&["Y", "Z"]));
    }

    #[test]
    fn a_pool_that_is_silent_for_three_periods_is_forgotten() {
        let mut others = Others::new("me".to_owned());
        let start = Instant::now();
        others.take(list("a", &["X"]), start);
        others.take(list("b", &["Y"]), start + PERIOD);
        assert_eq!(others.wanted(&names(&[]), start + 3 * PERIOD), names(&["Y"]));
        assert_eq!(others.wanted(&names(&[]), start + 4 * PERIOD), names(&[]));
    }

    #[test]
    fn lists_of_unknown_senders_are_bounded() {
        let mut others = Others::new("me".to_owned());
        let now = Instant::now();
        others.take(list("a", &["not a name"]), now);
        others.take(list(&"a".repeat(POOL_LEN_BYTES_MAX + 1), &["X"]), now);
        assert_eq!(others.wanted(&names(&[]), now), names(&[]));
        for pool in 0..=POOLS_MAX {
            others.take(list(&pool.to_string(), &["X"]), now);
        }
        assert_eq!((others.pools.len(), others.dropped), (POOLS_MAX, 3));
    }
}
