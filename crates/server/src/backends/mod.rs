//! The backends as all loops of a proxy know them: which may have requests, how many, and when they are
//! checked.
//!
//! ```text
//!           `fall` failures in a row                    orders of the control socket
//!   Up ─────────────────────────────► Down       Ready ◄──────────────────────────► Drain
//!    ▲   checks: `rise` good ones      │
//!    └── without checks: after a while ┘         weight: 1 to 256
//! ```
//!
//! Failures are those of checks and of requests alike; any good answer ends the row. Loops read these
//! words for each request and write them only when something changes, so they are shared without a
//! lock. What a loop did with a backend is counted in [`BackendCounts`](crate::fault::BackendCounts), which only that loop writes.
//!
//! | part | one job |
//! |---|---|
//! | `groups` | which backend of a group gets the next request, and the TLS to it |
//! | `counted_routes` | where answers of routes are counted |
//! | `names` | the addresses of their names, looked up in threads of their own |
//! | `pool`, `shared_upstreams` | idle connections and waiting requests of all loops |

pub(crate) mod counted_routes;
pub(crate) mod groups;
pub(crate) mod names;
pub(crate) mod pool;
pub(crate) mod shared_upstreams;

use std::fmt::Write as _;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use pollux_engine::{Address, ConnectTo, ListenAddress, Moment};

use crate::backends::names::places_of;
use crate::config::sections::{HealthRules, WEIGHT_MAX};
use crate::config::{BackendConfig, ProxyConfig, ServerTls};
use crate::ids::{BackendId, GroupId};
use crate::sticky::{Mark, StickyCookie};

/// A backend that just came up has at least this part of its weight, in thousandths.
const SHARE_LEAST: u64 = 50;

/// One backend: a server, or one address of a server that has a name.
#[derive(Debug)]
pub struct Backend {
    /// Its group.
    pub(crate) group: GroupId,
    /// The place of its server in the group.
    pub(crate) server: usize,
    /// What Host says in checks of it, and in requests that name no host.
    pub(crate) host: String,
    /// Its address, or the name of which it has one, as it was written.
    written: String,
    /// The name of its group, where there are several.
    group_name: Option<String>,
    /// Where it is; loops have it too. None of a place for an address of a name that never had one.
    target: RwLock<Option<Arc<Target>>>,
    /// It may have requests: its name has this address.
    is_there: AtomicBool,
    /// When its name had this address no more, in nanoseconds; 0 for never.
    retired_ns: AtomicU64,
    rules: HealthRules,
    /// What makes the mark of its address, where a cookie has one.
    cookie: Option<Arc<StickyCookie>>,
    weight_configured: u32,
    weight: AtomicU32,
    is_draining: AtomicBool,
    is_down: AtomicBool,
    /// Failures in a row.
    failures: AtomicU32,
    /// Good checks in a row, while it is down.
    good_checks: AtomicU32,
    /// When it came up or went down last, in nanoseconds of the loops' clock; 0 for never.
    changed_ns: AtomicU64,
    /// How often it went down.
    falls: AtomicU64,
}

/// Where a backend is, and what it is called there.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) to: ConnectTo,
    address: String,
    /// Its address, behind the name of its group where there are several: for commands, logs and metrics.
    pub(crate) name: String,
    /// What stands for it in cookies, where its group has some.
    pub(crate) mark: Mark,
}

/// What commands say of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Orders {
    weight: u32,
    is_draining: bool,
}

/// A change of health, for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HealthChange {
    Up,
    Down,
}

impl Backend {
    /// A place for the server at this place of the group at this place, whose name it bears where there are several.
    /// That of a name has no address yet.
    pub(super) fn new(
        config: &BackendConfig,
        (group, group_name, server): (GroupId, Option<&str>, usize),
        tls: Option<&ServerTls>,
        rules: HealthRules,
        cookie: Option<Arc<StickyCookie>>,
    ) -> Self {
        let backend = Self {
            group,
            server,
            host: host_of(&config.address, tls),
            written: config.address.to_string(),
            group_name: group_name.map(str::to_owned),
            target: RwLock::default(),
            is_there: AtomicBool::new(false),
            retired_ns: AtomicU64::new(0),
            rules,
            cookie,
            weight_configured: config.weight,
            weight: AtomicU32::new(config.weight),
            is_draining: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            good_checks: AtomicU32::new(0),
            changed_ns: AtomicU64::new(0),
            falls: AtomicU64::new(0),
        };
        if let Address::Known(known) = &config.address {
            backend.set_target(known.clone());
            backend.is_there.store(true, Release);
        }
        backend
    }

    fn set_target(&self, peer: ListenAddress) {
        let address = peer.to_string();
        let name = match &self.group_name {
            Some(group) => format!("{group}/{address}"),
            None => address.clone(),
        };
        let mark = self.cookie.as_ref().map(|cookie| cookie.mark(&address)).unwrap_or_default();
        let target = Target { to: ConnectTo { peer, source: None }, address, name, mark };
        *self.target.write().expect("nothing panics under this lock") = Some(Arc::new(target));
    }

    /// Where it is, or was last; none where it never was.
    pub(crate) fn target(&self) -> Option<Arc<Target>> {
        self.target.read().expect("nothing panics under this lock").clone()
    }

    /// Its address on a network, or the last one.
    pub(crate) fn at(&self) -> Option<SocketAddr> {
        match self.target()?.to.peer {
            ListenAddress::Tcp(tcp) => Some(tcp),
            ListenAddress::Unix(_) => None,
        }
    }

    /// Whether it may have requests; not once its name has its address no more.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.is_there.load(Acquire)
    }

    /// Its name has its address no more, since that time.
    pub(crate) fn retire(&self, at: Duration) {
        self.retired_ns.store(at.as_nanos() as u64, Relaxed);
        self.is_there.store(false, Release);
    }

    /// When that was; zero for never.
    pub(crate) fn retired_at(&self) -> Duration {
        Duration::from_nanos(self.retired_ns.load(Relaxed))
    }

    /// Its name has this address, and nothing is under way with another one at its place. It begins as one that is up,
    /// with these orders.
    pub(crate) fn begin_at(&self, to: SocketAddr, orders: Option<Orders>) {
        if self.is_there() {
            return;
        }
        let Orders { weight, is_draining } =
            orders.unwrap_or(Orders { weight: self.weight_configured, is_draining: false });
        self.set_weight(weight);
        self.set_draining(is_draining);
        self.is_down.store(false, Relaxed);
        for count in [&self.failures, &self.good_checks] {
            count.store(0, Relaxed);
        }
        self.changed_ns.store(0, Relaxed);
        if self.at() != Some(to) {
            self.set_target(to.into());
        }
        self.is_there.store(true, Release);
    }

    /// The orders that hold for all of these that are there: another address of their name begins with them.
    pub(crate) fn common_orders(backends: &[Self]) -> Option<Orders> {
        let mut orders = backends
            .iter()
            .filter(|backend| backend.is_there())
            .map(|backend| Orders { weight: backend.weight(), is_draining: backend.is_draining() });
        let first = orders.next()?;
        orders.all(|other| other == first).then_some(first)
    }

    /// Its name: the address, behind the name of its group where there are several.
    #[must_use]
    pub fn name(&self) -> String {
        self.target().map_or_else(|| self.written.clone(), |target| target.name.clone())
    }

    /// Whether a command means it by this name: its own, its address, which several groups may have, or the name of a
    /// host as the settings have it, which may have several addresses.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        let is_target = |target: Arc<Target>| target.name == name || target.address == name;
        self.written == name || self.target().is_some_and(is_target)
    }

    /// The weight that the settings give it.
    pub(crate) fn configured_weight(&self) -> u32 {
        self.weight_configured
    }

    /// A weight in digits, if it is one.
    pub(crate) fn read_weight(text: &str) -> Option<u32> {
        text.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight))
    }

    /// Its weight.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    /// Changes its weight, from any thread.
    ///
    /// # Panics
    /// When it is not 1 to 256.
    pub fn set_weight(&self, weight: u32) {
        assert!((1..=WEIGHT_MAX).contains(&weight), "a weight is 1 to 256");
        self.weight.store(weight, Relaxed);
    }

    /// Whether it gets no new requests.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// Gives it no new requests, or again; from any thread.
    pub fn set_draining(&self, is_draining: bool) {
        self.is_draining.store(is_draining, Relaxed);
    }

    /// Whether it is taken for down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.is_down.load(Relaxed)
    }

    /// How often it went down.
    #[must_use]
    pub fn falls(&self) -> u64 {
        self.falls.load(Relaxed)
    }

    /// Its weight at this moment in thousandths; 0 when it should get no requests.
    pub(crate) fn share(&self, now: Moment) -> u64 {
        if self.is_draining() || !self.is_there() {
            return 0;
        }
        let since = now - Moment::from_nanos(self.changed_ns.load(Relaxed));
        let weight = u64::from(self.weight());
        if self.is_down() {
            let is_on_trial = !self.rules.has_checks && since >= self.rules.down_time;
            return if is_on_trial { weight * SHARE_LEAST } else { 0 };
        }
        let has_changed = self.changed_ns.load(Relaxed) != 0;
        if !has_changed || since >= self.rules.slow_start {
            return weight * 1000;
        }
        let part = 1000 * since.as_nanos() / self.rules.slow_start.as_nanos().max(1);
        weight * (part as u64).max(SHARE_LEAST)
    }

    /// It answered a request.
    pub(crate) fn answered(&self, now: Moment) -> Option<HealthChange> {
        if self.failures.load(Relaxed) == 0 {
            return None;
        }
        self.failures.store(0, Relaxed);
        // With checks they alone say when it is up again.
        if self.rules.has_checks { None } else { self.turn(false, now) }
    }

    /// It failed a request or a check.
    pub(crate) fn failed(&self, now: Moment) -> Option<HealthChange> {
        self.good_checks.store(0, Relaxed);
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        if failures < self.rules.fall {
            return None;
        }
        if self.is_down() {
            // Its trial has failed: it stays down as long again.
            self.changed_ns.store(now.as_nanos(), Relaxed);
            return None;
        }
        self.turn(true, now)
    }

    /// It was down for a worker before this one.
    pub(crate) fn begin_down(&self) {
        self.failures.store(self.rules.fall, Relaxed);
        self.is_down.store(true, Relaxed);
    }

    /// It passed a check.
    pub(crate) fn passed_check(&self, now: Moment) -> Option<HealthChange> {
        self.failures.store(0, Relaxed);
        if !self.is_down() {
            return None;
        }
        let good = self.good_checks.fetch_add(1, Relaxed).saturating_add(1);
        if good < self.rules.rise { None } else { self.turn(false, now) }
    }

    fn turn(&self, is_down: bool, now: Moment) -> Option<HealthChange> {
        // Of several loops that find out together one has the change.
        if self.is_down.swap(is_down, Relaxed) == is_down {
            return None;
        }
        self.changed_ns.store(now.as_nanos(), Relaxed);
        self.good_checks.store(0, Relaxed);
        if is_down {
            self.falls.fetch_add(1, Relaxed);
        }
        Some(if is_down { HealthChange::Down } else { HealthChange::Up })
    }
}

/// The `uri-host [ ":" port ]` of a server (RFC 9110 7.2): the name that TLS asks it for, else its own name or address;
/// `localhost` on a unix socket. The scope of an address means nothing to others and the usual port of a scheme is
/// left out, as clients do.
fn host_of(address: &Address, tls: Option<&ServerTls>) -> String {
    let (own, port) = match address {
        Address::Known(ListenAddress::Tcp(tcp)) => (tcp.ip().to_string(), Some(tcp.port())),
        Address::Known(ListenAddress::Unix(_)) => ("localhost".to_owned(), None),
        Address::Name { host, port } => (host.clone(), Some(*port)),
    };
    let name = tls.and_then(|tls| tls.name.clone()).unwrap_or(own);
    let name = if name.parse::<Ipv6Addr>().is_ok() { format!("[{name}]") } else { name };
    let usual_port = if tls.is_some() { 443 } else { 80 };
    match port.filter(|port| *port != usual_port) {
        Some(port) => format!("{name}:{port}"),
        None => name,
    }
}

/// When which backend is checked next.
#[derive(Debug)]
pub(crate) struct Schedule {
    due: Vec<Moment>,
}

impl Schedule {
    /// For backends of which these are checked, all of them soon.
    pub(crate) fn new(is_checked: &[bool]) -> Self {
        let first = |&is_checked| if is_checked { Moment::default() } else { Moment::NEVER };
        Self { due: is_checked.iter().map(first).collect() }
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Moment {
        self.due.iter().copied().min().unwrap_or(Moment::NEVER)
    }

    /// A backend that is due; it is under way from now on.
    pub(crate) fn take(&mut self, now: Moment) -> Option<BackendId> {
        let at = self.due.iter().position(|due| *due <= now)?;
        self.due[at] = Moment::NEVER;
        Some(BackendId::of_place(at))
    }

    /// Has the backend not checked, until it is said when.
    pub(crate) fn never(&mut self, backend: BackendId) {
        self.due[backend.place()] = Moment::NEVER;
    }

    /// Has the backend checked again at that moment.
    pub(crate) fn again(&mut self, backend: BackendId, at: Moment) {
        self.due[backend.place()] = at;
    }
}

/// The lines of these backends; empty when all is as configured.
///
/// The states of backends beside the settings: orders of the control socket, and which are down. Workers
/// send them to their master, and the master to the next worker, so that a drained backend stays drained
/// while workers come and go.
///
/// One line for each backend of which there is anything to say, with the configured weight first: a weight
/// that was ordered counts until the settings name another one.
///
/// ```text
/// CONFIGURED WEIGHT drain|ready up|down NAME
/// ```
pub(crate) fn states(backends: &[Backend]) -> String {
    let mut lines = String::new();
    for backend in backends.iter().filter(|backend| backend.is_there()) {
        let configured = backend.configured_weight();
        let weight = backend.weight();
        let is_draining = backend.is_draining();
        let is_down = backend.is_down();
        if weight == configured && !is_draining && !is_down {
            continue;
        }
        let order = if is_draining { "drain" } else { "ready" };
        let health = if is_down { "down" } else { "up" };
        let name = backend.name();
        writeln!(lines, "{configured} {weight} {order} {health} {name}").expect("a string");
    }
    lines
}

/// Sets the backends whose line in `now` is not the one in `before` to the state there; one that it does
/// not name is as configured. One that was found down meanwhile stays down. A line that makes no sense is of
/// another version, and is passed over.
pub(crate) fn restore_states(backends: &[Backend], before: &str, now: &str) {
    for backend in backends.iter().filter(|backend| backend.is_there()) {
        let name = backend.name();
        let find = |lines: &str| lines.lines().find_map(|line| Line::parse(line, &name));
        let before = find(before);
        let now = find(now);
        if before == now {
            continue;
        }
        let configured = backend.configured_weight();
        let weight = now.filter(|line| line.configured == configured).map(|line| line.weight);
        backend.set_weight(weight.unwrap_or(configured));
        backend.set_draining(now.is_some_and(|line| line.is_draining));
        if now.is_some_and(|line| line.is_down) {
            backend.begin_down();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Line {
    configured: u32,
    weight: u32,
    is_draining: bool,
    is_down: bool,
}

impl Line {
    /// What the line says, if it is about the backend of that name.
    fn parse(line: &str, name: &str) -> Option<Self> {
        let mut words = line.strip_suffix(name)?.strip_suffix(' ')?.split(' ');
        let configured = Backend::read_weight(words.next()?)?;
        let weight = Backend::read_weight(words.next()?)?;
        let is_draining = words.next()? == "drain";
        let is_down = words.next()? == "down";
        words.next().is_none().then_some(Self { configured, weight, is_draining, is_down })
    }
}

/// The backends of a proxy configured so, for all its loops.
#[must_use]
pub fn backends_of(config: &ProxyConfig) -> Arc<[Backend]> {
    let groups = config.groups.iter().enumerate();
    let all = groups.flat_map(|(place, group)| {
        let rules = group.health.rules();
        let id = GroupId::of_place(place);
        let name = (config.groups.len() > 1).then_some(group.name.as_str());
        let cookie = StickyCookie::of(group).map(Arc::new);
        group.servers.iter().enumerate().flat_map(move |(at, server)| {
            let cookie = cookie.clone();
            let tls = group.tls.as_ref();
            let new = move |_| Backend::new(server, (id, name, at), tls, rules, cookie.clone());
            (0..places_of(&server.address)).map(new)
        })
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use pollux_engine::Moment;

    use super::*;
    use crate::backends::backends_of;
    use crate::config::ProxyConfig;

    const RULES: HealthRules = HealthRules {
        rise: 2,
        fall: 3,
        down_time: Duration::from_secs(5),
        has_checks: true,
        slow_start: Duration::from_secs(10),
    };

    fn backend(rules: HealthRules) -> Backend {
        let address = "127.0.0.1:1".parse().expect("an address");
        let config = BackendConfig { address, weight: 10, connections_max: None, resolve: None };
        Backend::new(&config, (GroupId::default(), None, 0), None, rules, None)
    }

    #[test]
    fn the_host_of_a_server_is_one_that_every_server_takes() {
        let tls = |name: Option<&str>| ServerTls {
            name: name.map(str::to_owned),
            ..ServerTls::default()
        };
        for (address, tls, expected) in [
            ("10.0.0.1:9000", None, "10.0.0.1:9000"),
            ("10.0.0.1:80", None, "10.0.0.1"),
            ("10.0.0.1:443", None, "10.0.0.1:443"),
            ("[2001:db8::1]:8080", None, "[2001:db8::1]:8080"),
            ("[fe80::1%7]:8080", None, "[fe80::1]:8080"),
            ("unix:/run/a b.sock", None, "localhost"),
            ("10.0.0.1:443", Some(tls(None)), "10.0.0.1"),
            ("10.0.0.1:8443", Some(tls(Some("app.example"))), "app.example:8443"),
            ("10.0.0.1:443", Some(tls(Some("app.example"))), "app.example"),
            ("10.0.0.1:443", Some(tls(Some("::1"))), "[::1]"),
            ("unix:/run/a.sock", Some(tls(Some("app.example"))), "app.example"),
            ("app.example:9000", None, "app.example:9000"),
            ("app.example:443", Some(tls(None)), "app.example"),
        ] {
            let host = host_of(&address.parse().expect(address), tls.as_ref());
            assert_eq!(host, expected, "{address}");
            assert!(pollux_http::is_host_and_port(host.as_bytes()), "{host}");
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(1) + Duration::from_secs(seconds)
    }

    #[test]
    fn it_falls_after_some_failures_in_a_row_and_rises_after_some_good_checks() {
        let backend = backend(RULES);
        assert_eq!(backend.share(at(0)), 10_000);
        for _ in 0..5 {
            assert_eq!((backend.failed(at(0)), backend.failed(at(0))), (None, None));
            assert_eq!(backend.answered(at(0)), None, "a good answer ends the row");
        }
        assert_eq!((backend.failed(at(1)), backend.failed(at(1))), (None, None));
        assert_eq!(backend.failed(at(1)), Some(HealthChange::Down));
        assert_eq!((backend.share(at(1000)), backend.falls()), (0, 1));
        assert_eq!(backend.answered(at(2)), None, "an old request is not a check");
        assert_eq!(backend.passed_check(at(2)), None);
        assert_eq!(backend.failed(at(2)), None);
        assert_eq!(backend.passed_check(at(2)), None, "the row began anew");
        assert_eq!(backend.passed_check(at(20)), Some(HealthChange::Up));
        let shares = [20, 21, 25, 30, 1000].map(|second| backend.share(at(second)));
        assert_eq!(shares, [500, 1_000, 5_000, 10_000, 10_000], "it starts slowly");
    }

    #[test]
    fn without_checks_it_is_tried_again_after_a_while() {
        let backend = backend(HealthRules { has_checks: false, fall: 1, ..RULES });
        assert_eq!(backend.failed(at(0)), Some(HealthChange::Down));
        assert_eq!((backend.share(at(4)), backend.share(at(5))), (0, 500));
        assert_eq!(backend.failed(at(5)), None);
        assert_eq!((backend.share(at(9)), backend.share(at(10))), (0, 500));
        assert_eq!(backend.answered(at(10)), Some(HealthChange::Up));
    }

    #[test]
    fn one_that_drains_gets_nothing_until_it_is_ready() {
        let backend = backend(RULES);
        backend.set_draining(true);
        assert_eq!(backend.share(at(0)), 0);
        backend.set_draining(false);
        backend.set_weight(256);
        assert_eq!(backend.share(at(0)), 256_000);
    }

    fn backends(weights: [u32; 3]) -> Arc<[Backend]> {
        let address =
            |port: u16| -> Address { format!("127.0.0.1:{port}").parse().expect("an address") };
        let listen = vec![address(1)];
        let mut config = ProxyConfig::new(listen, vec![address(2), address(3), address(4)]);
        let servers = config.groups[0].servers.iter_mut();
        servers.zip(weights).for_each(|(server, weight)| server.weight = weight);
        backends_of(&config)
    }

    #[test]
    fn the_next_worker_has_the_orders_and_the_health_of_the_one_before() {
        let before = backends([1, 2, 3]);
        assert_eq!(states(&before), "");
        before[0].set_draining(true);
        before[1].set_weight(7);
        let falls = (0..1000).filter_map(|_| before[2].failed(Moment::default())).count();
        assert_eq!(falls, 1);
        let lines = states(&before);
        let expected =
            "1 1 drain up 127.0.0.1:2\n2 7 ready up 127.0.0.1:3\n3 3 ready down 127.0.0.1:4\n";
        assert_eq!(lines, expected);
        let after = backends([1, 2, 3]);
        restore_states(&after, "", &lines);
        assert_eq!(states(&after), lines);
        // The settings have another weight meanwhile.
        let after = backends([1, 5, 3]);
        restore_states(&after, "", &lines);
        assert_eq!(after[1].weight(), 5);
        // What was ordered meanwhile is changed, and nothing else.
        after[1].set_draining(true);
        restore_states(&after, &lines, &lines.replace("drain", "ready"));
        assert_eq!((after[0].is_draining(), after[1].is_draining()), (false, true));
        restore_states(&after, "5 7 ready up 127.0.0.1:3\n", "");
        assert!(!after[1].is_draining(), "no line says that it is as configured");
    }

    #[test]
    fn lines_that_make_no_sense_change_nothing() {
        let all = backends([1, 2, 3]);
        restore_states(
            &all,
            "",
            "\n1\n1 9 drain up 127.0.0.1:9\n1 0 ready up 127.0.0.1:2\nx y z\n1 999 ready up 127.0.0.1:2",
        );
        assert_eq!(states(&all), "");
    }
}
