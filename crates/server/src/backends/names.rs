//! The names of servers, and the addresses that they have: looked up in threads of their own, never in a loop's.
//!
//! ```text
//!  settings: NAME:PORT ──► places for its addresses (backends.rs) ◄── set when the name has others
//!                                   ▲                                      │
//!  threads, 4 at most: getaddrinfo ─┘    every lookup_interval,            ▼
//!                                        earlier when a server fails    loops are notified
//! ```
//!
//! Each address of a name is a backend. One that the name has no more gets no new requests; its place goes to another
//! address only once nothing of it is under way any more. So a name has more places than addresses: all may change at
//! once while the former ones have requests. Where that is not enough, one of the former ones stays until the name has
//! another one with a place. A lookup that fails changes nothing. What is known goes to the
//! master, and from there to the next worker, which can so be started while no name server answers.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use pollux_engine::{Address, ListenAddress, look_up};

use crate::backends::Backend;
use crate::backends::shared_upstreams::SharedUpstreams;
use crate::config::Resolve;
use crate::config::proxy::{ProxyConfig, reaches};
use crate::fault::ProxyCounters;
use crate::ids::GroupId;
use crate::log::{Event, Logs, unix_s};

/// Addresses of one name that are used, the lowest ones first.
pub(crate) const ADDRESSES_OF_NAME_MAX: usize = 16;
/// Places for them: what an address that the name has no more has under way keeps its place.
const PLACES_OF_NAME: usize = 2 * ADDRESSES_OF_NAME_MAX;
/// Lookups at once; of one name there is one.
const LOOKUPS_MAX: usize = 4;
/// The least time between the beginnings of two lookups of a name, however often its servers fail.
const EARLY_GAP: Duration = Duration::from_secs(1);
/// When what is never looked up again would be: longer than any process lives.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);
/// How long a place of an address that a name has no more is left before another one gets it: loops know by then.
const REUSE_AFTER: Duration = Duration::from_secs(1);
/// How long a start waits for names without which a group has no address; longer than resolv.conf(5) lets two attempts
/// take.
const START_WAIT: Duration = Duration::from_secs(12);
/// And for the others: the worker before knew some, or another server of their group has one.
const START_WAIT_OTHER: Duration = Duration::from_secs(1);
/// What begins a line with the addresses of a name among the states of backends.
const LINE: &str = "addresses ";

/// What looks up the addresses of a host; it may block.
#[derive(Clone)]
pub struct Resolver(Arc<LookUp>);

type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Resolver {
    /// One that asks this, from several threads.
    pub fn new(look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }
}

/// The system's: getaddrinfo(3).
impl Default for Resolver {
    fn default() -> Self {
        Self::new(look_up)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// The names of a proxy's servers.
pub(crate) struct Names {
    backends: Arc<[Backend]>,
    /// Where the proxy itself listens.
    listens: Vec<SocketAddr>,
    /// Between two lookups of a name that says nothing else, and between tries of one that failed.
    interval: Duration,
    resolver: Resolver,
    state: Mutex<State>,
    changed: Condvar,
    /// What uses the backends, once that is there.
    users: OnceLock<Users>,
    logs: Logs,
    lookups: AtomicU64,
    failed: AtomicU64,
    began: Instant,
}

struct Users {
    upstreams: Weak<SharedUpstreams>,
    counters: Vec<Arc<ProxyCounters>>,
}

#[derive(Default)]
struct State {
    names: Vec<Name>,
    has_ended: bool,
}

struct Name {
    host: String,
    /// The places of its backends, with the port, for each server that has it.
    servers: Vec<(Range<usize>, u16)>,
    /// When it is looked up again.
    resolve: Resolve,
    /// What it has, in order.
    addresses: Vec<IpAddr>,
    /// All of these have their places.
    all_placed: bool,
    /// Why the last lookup failed, if it did.
    failure: Option<String>,
    due: Instant,
    began: Option<Instant>,
    is_under_way: bool,
    /// A lookup has ended.
    was_looked_up: bool,
}

impl Name {
    /// Looks up again at that moment, but not too soon behind the last time.
    fn hurry(&mut self, now: Instant) {
        if self.resolve == Resolve::Never && self.is_settled() {
            return;
        }
        let soonest = self.began.map_or(now, |began| (began + EARLY_GAP).max(now));
        self.due = self.due.min(soonest);
    }

    /// The last lookup was good.
    fn is_settled(&self) -> bool {
        self.was_looked_up && self.failure.is_none()
    }
}

impl Names {
    /// The names of these backends; `listens` is where the proxy listens.
    pub(crate) fn new(
        config: &ProxyConfig,
        backends: &Arc<[Backend]>,
        listens: &[ListenAddress],
        resolver: Resolver,
        logs: &Logs,
    ) -> Arc<Self> {
        let mut names: Vec<Name> = Vec::new();
        let now = Instant::now();
        let mut first = 0;
        for server in config.servers() {
            let places = first..first + places_of(&server.address);
            first = places.end;
            let Address::Name { host, port } = &server.address else { continue };
            // Servers of one name are looked up together, as often as one of them wants.
            let resolve = server.resolve.unwrap_or(Resolve::Every(config.limits.lookup_interval));
            match names.iter_mut().find(|name| name.host == *host) {
                Some(name) => {
                    name.servers.push((places, *port));
                    name.resolve = name.resolve.min(resolve);
                }
                None => names.push(Name {
                    host: host.clone(),
                    servers: vec![(places, *port)],
                    resolve,
                    addresses: Vec::new(),
                    all_placed: true,
                    failure: None,
                    due: now,
                    began: None,
                    is_under_way: false,
                    was_looked_up: false,
                }),
            }
        }
        let tcp = |address: &ListenAddress| match address {
            ListenAddress::Tcp(tcp) => Some(*tcp),
            ListenAddress::Unix(_) => None,
        };
        Arc::new(Self {
            backends: Arc::clone(backends),
            listens: listens.iter().filter_map(tcp).collect(),
            interval: config.limits.lookup_interval,
            resolver,
            state: Mutex::new(State { names, has_ended: false }),
            changed: Condvar::new(),
            users: OnceLock::new(),
            logs: logs.clone(),
            lookups: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            began: now,
        })
    }

    /// Starts the lookups, and waits for the first of each name for a while; those that the worker before knew are used
    /// meanwhile. They end with what is returned.
    ///
    /// # Errors
    /// A group has no server with an address; the text says why.
    pub(crate) fn start(
        self: &Arc<Self>,
        config: &ProxyConfig,
        states: &str,
    ) -> Result<Lookups, String> {
        let lookups = Lookups(Arc::clone(self));
        let count = self.restore(states);
        for _ in 0..count.min(LOOKUPS_MAX) {
            let names = Arc::clone(self);
            let thread = std::thread::Builder::new().name("lookup".to_owned());
            thread.spawn(move || names.run()).map_err(|error| format!("no thread: {error}"))?;
        }
        self.wait_for_first();
        self.missing(config).map_or(Ok(lookups), Err)
    }

    /// The backends are used by these from now on.
    pub(crate) fn used_by(
        &self,
        upstreams: &Arc<SharedUpstreams>,
        counters: Vec<Arc<ProxyCounters>>,
    ) {
        let users = Users { upstreams: Arc::downgrade(upstreams), counters };
        assert!(self.users.set(users).is_ok(), "a proxy is started once");
    }

    /// Lookups that have ended, and those of them that failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.lookups.load(Relaxed), self.failed.load(Relaxed))
    }

    /// Names that can't be looked up, in lines.
    pub(crate) fn failures(&self) -> Vec<String> {
        let state = self.lock();
        let failed = state.names.iter().filter_map(|name| Some((name, name.failure.as_ref()?)));
        let line = |(name, why): (&Name, &String)| {
            format!("the name \"{}\" of a backend can't be looked up: {why}", name.host)
        };
        failed.map(line).collect()
    }

    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().names.is_empty()
    }

    /// A server of that backend has failed: it may have moved.
    pub(crate) fn hurry(&self, backend: usize) {
        let mut state = self.lock();
        let of_it = |(places, _): &(Range<usize>, u16)| places.contains(&backend);
        let name = state.names.iter_mut().find(|name| name.servers.iter().any(of_it));
        if let Some(name) = name {
            name.hurry(Instant::now());
            self.changed.notify_one();
        }
    }

    /// The names with their addresses, in lines behind those of the states of backends.
    pub(crate) fn lines(&self) -> String {
        let mut lines = String::new();
        for name in self.lock().names.iter().filter(|name| !name.addresses.is_empty()) {
            write!(lines, "{LINE}{}", name.host).expect("a string");
            for ip in &name.addresses {
                write!(lines, " {ip}").expect("a string");
            }
            lines.push('\n');
        }
        lines
    }

    /// Takes the addresses that the worker before knew; says how many names there are.
    fn restore(&self, states: &str) -> usize {
        let mut state = self.lock();
        for line in states.lines().filter_map(|line| line.strip_prefix(LINE)) {
            let mut words = line.split(' ');
            let host = words.next().unwrap_or_default();
            let found = state.names.iter_mut().find(|name| name.host == host);
            if let Some(name) = found {
                let addresses = words.filter_map(|word| word.parse().ok()).collect();
                self.assign(name, addresses);
            }
        }
        state.names.len()
    }

    fn wait_for_first(&self) {
        let began = Instant::now();
        let mut state = self.lock();
        loop {
            let is_needed = |name: &Name| {
                let group = |(places, _): &(Range<usize>, u16)| self.backends[places.start].group;
                name.servers.iter().any(|server| !self.has_one(group(server)))
            };
            let wait = |name: &Name| if is_needed(name) { START_WAIT } else { START_WAIT_OTHER };
            let waits = state.names.iter().filter(|name| !name.was_looked_up).map(wait);
            let Some(left) = waits.max().and_then(|wait| wait.checked_sub(began.elapsed())) else {
                return;
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.expect("nothing panics under this lock").0;
        }
    }

    /// Whether a server of the group has an address.
    fn has_one(&self, group: GroupId) -> bool {
        self.backends.iter().any(|backend| backend.group == group && backend.is_there())
    }

    /// Why a group has no server with an address, if there is such a group.
    fn missing(&self, config: &ProxyConfig) -> Option<String> {
        let state = self.lock();
        let mut groups = (0..config.groups.len()).map(GroupId::of_place);
        let group = groups.find(|group| !self.has_one(*group))?;
        let of_group = |name: &&Name| {
            name.servers.iter().any(|(places, _)| self.backends[places.start].group == group)
        };
        let why = |name: &Name| {
            let host = &name.host;
            match &name.failure {
                Some(why) => format!("\"{host}\" can't be looked up: {why}"),
                None if name.addresses.is_empty() => {
                    format!("no address of \"{host}\" came in time")
                }
                None => format!("the proxy itself listens at \"{host}\""),
            }
        };
        let all: Vec<String> = state.names.iter().filter(of_group).map(why).collect();
        Some(format!(
            "no server of the backend \"{}\" has an address: {}; expected a name that this machine can look up \
             (getent ahosts NAME), or another address",
            config.groups[group.place()].name,
            all.join("; ")
        ))
    }

    /// Looks names up, each when it is due, until the end.
    fn run(&self) {
        let mut state = self.lock();
        while !state.has_ended {
            let now = Instant::now();
            let free = state.names.iter_mut().filter(|name| !name.is_under_way);
            let wait = match free.min_by_key(|name| name.due) {
                Some(name) if name.due <= now => {
                    (name.is_under_way, name.began) = (true, Some(now));
                    let host = name.host.clone();
                    drop(state);
                    let found = (self.resolver.0)(&host);
                    state = self.lock();
                    self.looked_up(&mut state, &host, found);
                    continue;
                }
                Some(name) => name.due - now,
                None => self.interval,
            };
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.expect("nothing panics under this lock").0;
        }
    }

    fn looked_up(&self, state: &mut State, host: &str, found: io::Result<Vec<IpAddr>>) {
        let name = state.names.iter_mut().find(|name| name.host == host).expect("it was asked for");
        (name.is_under_way, name.was_looked_up) = (false, true);
        self.lookups.fetch_add(1, Relaxed);
        let has_changed = match found {
            Ok(addresses) => {
                name.failure = None;
                self.assign(name, addresses)
            }
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                let why = error.to_string();
                if name.failure.as_ref() != Some(&why) {
                    self.logs.errors.report(Event::BackendLost, unix_s(), || {
                        let stay = if name.addresses.is_empty() {
                            "it gets no requests"
                        } else {
                            "its addresses stay as they are"
                        };
                        format!(
                            "the name \"{host}\" of a backend can't be looked up: {why}; {stay}"
                        )
                    });
                }
                name.failure = Some(why);
                !name.all_placed && self.assign(name, name.addresses.clone())
            }
        };
        name.due = Instant::now()
            + match name.resolve {
                Resolve::Never if name.is_settled() => NEVER,
                Resolve::Never => self.interval,
                Resolve::Every(interval) => interval,
            };
        if !name.all_placed {
            name.due = name.due.min(Instant::now() + REUSE_AFTER);
        }
        self.changed.notify_all();
        if has_changed
            && let Some(upstreams) = self.users.get().and_then(|of| of.upstreams.upgrade())
        {
            upstreams.notify_of_addresses();
        }
    }

    /// Gives the places of a name to these addresses; whether one changed.
    fn assign(&self, name: &mut Name, found: Vec<IpAddr>) -> bool {
        // In one order, whatever order a name server gives them in: what is hashed stays where it is.
        let found: BTreeSet<IpAddr> = found
            .into_iter()
            .map(|ip| ip.to_canonical())
            .filter(|ip| !ip.is_unspecified())
            .collect();
        if found.is_empty() {
            return false;
        }
        let count = found.len();
        let used: Vec<IpAddr> = found.into_iter().take(ADDRESSES_OF_NAME_MAX).collect();
        let is_news = used != name.addresses;
        if !is_news && name.all_placed {
            return false;
        }
        let host = &name.host;
        if is_news && count > used.len() {
            self.logs.errors.report(Event::BackendLost, unix_s(), || {
                format!("the name \"{host}\" of a backend has {count} addresses; the first {ADDRESSES_OF_NAME_MAX} are used")
            });
        }
        let mut placed = Placed::default();
        for (places, port) in &name.servers {
            if is_news {
                self.report_round(*port, &used, host);
            }
            let of_server = self.place(places.clone(), *port, &used);
            placed.has_changed |= of_server.has_changed;
            placed.missing += of_server.missing;
        }
        if is_news && !name.addresses.is_empty() {
            let list =
                |all: &[IpAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let before = list(&name.addresses);
            let now = list(&used);
            self.logs.errors.report(Event::BackendHealth, unix_s(), || {
                format!("the name \"{host}\" of a backend has moved from {before} to {now}")
            });
        }
        if is_news && placed.missing > 0 {
            self.logs.errors.report(Event::BackendLost, unix_s(), || {
                format!(
                    "{} new addresses of the name \"{host}\" of a backend wait for a place: its former ones have \
                     requests under way in all {PLACES_OF_NAME}",
                    placed.missing
                )
            });
        }
        // With one that found no place yet, it is tried again soon.
        (name.addresses, name.all_placed) = (used, placed.missing == 0);
        placed.has_changed
    }

    /// Whether connections to it come back to the proxy.
    fn is_round(&self, to: SocketAddr) -> bool {
        self.listens.iter().any(|at| reaches(to, *at))
    }

    fn report_round(&self, port: u16, used: &[IpAddr], host: &str) {
        let all = used.iter().map(|ip| SocketAddr::new(*ip, port));
        for to in all.filter(|to| self.is_round(*to)) {
            self.logs.errors.report(Event::BackendLost, unix_s(), || {
                format!("{to}, an address of \"{host}\", is where the proxy listens: it gets no requests")
            });
        }
    }

    /// Gives the places of one server to the addresses. A server that has an address keeps one.
    fn place(&self, places: Range<usize>, port: u16, used: &[IpAddr]) -> Placed {
        let backends = &self.backends[places.clone()];
        let wanted = used.iter().map(|ip| SocketAddr::new(*ip, port));
        let wanted: Vec<SocketAddr> = wanted.filter(|to| !self.is_round(*to)).collect();
        let orders = Backend::common_orders(backends);
        let mut placed = Placed::default();
        for &to in &wanted {
            let has_it = |backend: &&Backend| backend.at() == Some(to);
            if let Some(backend) = backends.iter().find(has_it) {
                placed.has_changed |= !backend.is_there();
                backend.begin_at(to, orders);
                continue;
            }
            let is_free = |at: &usize| {
                let left_at = self.backends[*at].retired_at();
                let is_old = left_at.is_zero() || left_at + REUSE_AFTER <= self.began.elapsed();
                !self.backends[*at].is_there() && is_old && self.is_unused(*at)
            };
            // Those that never had an address first, then the one that was left longest ago.
            let free = places.clone().filter(is_free);
            match free.min_by_key(|at| self.backends[*at].retired_at()) {
                Some(at) => {
                    self.backends[at].begin_at(to, orders);
                    placed.has_changed = true;
                }
                None => placed.missing += 1,
            }
        }
        let is_wanted = |backend: &&Backend| backend.at().is_some_and(|at| wanted.contains(&at));
        let (kept, former): (Vec<&Backend>, Vec<&Backend>) =
            backends.iter().filter(|backend| backend.is_there()).partition(is_wanted);
        // The others leave, as new addresses need their places; with none of those yet the best one stays.
        let stays = former.iter().enumerate().min_by_key(|(_, backend)| backend.is_down());
        let stays = stays.filter(|_| kept.is_empty() && placed.missing > 0).map(|(at, _)| at);
        for (at, backend) in former.into_iter().enumerate() {
            if Some(at) != stays {
                backend.retire(self.began.elapsed().max(Duration::from_nanos(1)));
                placed.has_changed = true;
            }
        }
        placed
    }

    /// Nothing is under way with what was at this place before, nor kept for it.
    fn is_unused(&self, place: usize) -> bool {
        let Some(users) = self.users.get() else { return true };
        let in_use = users.counters.iter().any(|of| of.backends()[place].in_use() > 0);
        let is_idle = users.upstreams.upgrade().is_none_or(|of| of.view(place).idle == 0);
        !in_use && is_idle
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

/// Lookups that run; they end when it is dropped. One that is under way then ends with its thread, whenever the system
/// answers.
#[derive(Debug)]
pub(crate) struct Lookups(Arc<Names>);

impl Drop for Lookups {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}

/// What became of the addresses of one server, or name.
#[derive(Default)]
struct Placed {
    /// Something is elsewhere now.
    has_changed: bool,
    /// Addresses that found no place yet.
    missing: usize,
}

/// Backends that a server with this address may have.
pub(crate) fn places_of(address: &Address) -> usize {
    match address {
        Address::Known(_) => 1,
        Address::Name { .. } => PLACES_OF_NAME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::backends_of;

    fn names(resolver: Resolver) -> (ProxyConfig, Arc<[Backend]>, Arc<Names>) {
        let to = ["app.test:80", "127.0.0.9:80", "app.test:81"];
        let to: Vec<Address> = to.map(|text| text.parse().expect("an address")).into();
        let config = ProxyConfig::new(vec!["127.0.0.1:8080".parse().expect("one")], to);
        let backends = backends_of(&config);
        let listens = ["127.0.0.1:80".parse().expect("an address")];
        let names = Names::new(&config, &backends, &listens, resolver, &Logs::default());
        (config, backends, names)
    }

    fn shown(backends: &[Backend]) -> Vec<String> {
        backends.iter().filter(|backend| backend.is_there()).map(Backend::name).collect()
    }

    #[test]
    fn a_worker_is_replaced_while_no_name_server_answers() {
        let (config, backends, first) =
            names(Resolver::new(|_| Ok(vec![[10, 0, 0, 2].into(), [10, 0, 0, 1].into()])));
        let lookups = first.start(&config, "").expect("found");
        let all = ["10.0.0.1:80", "10.0.0.2:80", "127.0.0.9:80", "10.0.0.1:81", "10.0.0.2:81"];
        assert_eq!(shown(&backends), all);
        assert_eq!(first.lines(), "addresses app.test 10.0.0.1 10.0.0.2\n");
        let states = format!("1 7 ready up 10.0.0.1:80\n{}garbage\naddresses x\n", first.lines());
        drop(lookups);
        let (config, backends, next) = names(Resolver::new(|_| Err(io::Error::other("no answer"))));
        let _lookups = next.start(&config, &states).expect("what was known is used");
        assert_eq!(shown(&backends), all);
        assert_eq!(next.lines(), first.lines(), "and the next one gets it");
        assert_eq!(next.failures().len(), 1);
        let (config, backends, last) = names(Resolver::new(|_| Err(io::Error::other("no answer"))));
        let _lookups = last.start(&config, "").expect("one has an address");
        assert_eq!(shown(&backends), ["127.0.0.9:80"]);
    }

    #[test]
    fn no_address_of_a_name_leads_back_to_the_proxy_or_everywhere() {
        let (config, backends, first) =
            names(Resolver::new(|_| Ok(vec![[127, 0, 0, 1].into(), [0, 0, 0, 0].into()])));
        let _lookups = first.start(&config, "").expect("found");
        assert_eq!(shown(&backends), ["127.0.0.9:80", "127.0.0.1:81"]);
    }

    #[test]
    fn a_name_with_more_addresses_than_places_uses_the_first_of_them() {
        let many = |_: &str| Ok((1..=40).rev().map(|n| IpAddr::from([10, 0, 0, n])).collect());
        let (config, backends, first) = names(Resolver::new(many));
        let _lookups = first.start(&config, "").expect("found");
        assert_eq!(shown(&backends).len(), 2 * ADDRESSES_OF_NAME_MAX + 1);
        assert!(shown(&backends).contains(&"10.0.0.16:81".to_owned()));
    }

    #[test]
    fn a_worker_receives_what_a_name_has_now_though_not_all_has_a_place() {
        let (config, backends, first) = names(Resolver::new(|_| Err(io::Error::other("unused"))));
        let of = |net: u8| (1..=16).map(move |n| IpAddr::from([10, 0, net, n])).collect::<Vec<_>>();
        let look_up = |net: u8| first.looked_up(&mut first.lock(), "app.test", Ok(of(net)));
        let count = |net: u8| {
            shown(&backends).iter().filter(|it| it.starts_with(&format!("10.0.{net}."))).count()
        };
        look_up(0);
        look_up(1);
        assert_eq!((count(0), count(1)), (0, 32), "two servers have the name");
        // The first places are not free yet.
        look_up(2);
        assert_eq!((count(1), count(2)), (2, 0), "each keeps one");
        assert!(first.lines().starts_with("addresses app.test 10.0.2.1 10.0.2.2 "));
        let due = first.lock().names[0].due;
        assert!(
            due <= Instant::now() + REUSE_AFTER,
            "it is looked up soon, not in {:?}",
            config.limits.lookup_interval
        );
        // A lookup that fails keeps no address from its place.
        pollux_testing::wait_until("the places of the former addresses", || {
            let failed = Err(io::Error::other("no answer"));
            first.looked_up(&mut first.lock(), "app.test", failed);
            count(2) == 32
        });
        assert_eq!((count(0), count(1)), (0, 0));
        assert!(first.lock().names[0].all_placed);
    }

    #[test]
    fn a_lookup_that_never_ends_holds_nothing_up() {
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let stuck = Resolver::new(move |_| {
            let _ = wait.lock().expect("no panic").recv();
            Err(io::Error::other("late"))
        });
        let (config, backends, first) = names(stuck);
        let began = Instant::now();
        let lookups = first.start(&config, "addresses app.test 10.0.0.1\n").expect("known");
        assert!(began.elapsed() < START_WAIT, "the known address is enough");
        assert_eq!(shown(&backends), ["10.0.0.1:80", "127.0.0.9:80", "10.0.0.1:81"]);
        // Nor the end.
        drop(lookups);
        drop(release);
    }
}
