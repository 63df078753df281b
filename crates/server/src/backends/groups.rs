//! Which backends a request may go to, which of them gets it, and what clients and backends speak TLS with.
//!
//! All backends of a proxy are numbered through; a group is a range of them, with its own balance and its
//! own checks. A front end is known by the address that a connection was accepted on. Certificates and keys are
//! read from files before the proxy starts and at each reload.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Actions, Address, ListenAddress};
use pollux_http::ProxyVersion;
use pollux_tls::{
    ClientConfig, HTTP_1_1, HTTP_2, Remedies, ServerConfig, ServerName, SharedTls, Tls, server_name,
};

use crate::backends::names::places_of;
use crate::certificates::FrontCertificates;
use crate::config::{
    Balance, Check, Frontend, GroupConfig, Mode, Protocol, ProxyConfig, ServerTls,
};
use crate::ids::{BackendId, FrontId, GroupId};
use crate::sticky::StickyCookie;
use crate::tls::TlsError;

/// One group, as one loop has it.
#[derive(Debug)]
pub(crate) struct Group {
    /// Places of its backends among those of all groups.
    members: Range<usize>,
    /// The first of them.
    first: BackendId,
    pub(crate) balancer: Balancer,
    /// What leads clients back to the server that they had, if something does.
    pub(crate) cookie: Option<StickyCookie>,
    pub(crate) sends_header: Option<ProxyVersion>,
    /// What its servers speak TLS with, if they do.
    pub(crate) tls: Option<ServerSecrets>,
    pub(crate) protocol: Protocol,
    pub(crate) check: Check,
    /// What Host says in checks, where it is not that of the server.
    pub(crate) check_host: Option<String>,
    pub(crate) check_interval: Duration,
    pub(crate) check_timeout: Duration,
}

impl Group {
    /// The groups of a proxy; `seed` makes the draws of one loop differ from those of another.
    pub(crate) fn all(config: &ProxyConfig, seed: u64) -> Box<[Self]> {
        let mut first = 0;
        let one = |group: &GroupConfig| {
            let places = group.servers.iter().map(|server| places_of(&server.address));
            let members = first..first + places.sum::<usize>();
            first = members.end;
            Self {
                balancer: Balancer::new(group.balance, members.len(), seed),
                cookie: StickyCookie::of(group),
                sends_header: group.sends_header,
                tls: None,
                protocol: group.protocol,
                check: group.health.check.clone(),
                check_host: group.health.host.clone(),
                check_interval: group.health.interval,
                check_timeout: group.health.timeout,
                first: BackendId::of_place(members.start),
                members,
            }
        };
        config.groups.iter().map(one).collect()
    }
}

impl Group {
    /// Its backends.
    pub(crate) fn members(&self) -> impl ExactSizeIterator<Item = BackendId> + Clone + use<> {
        self.members.clone().map(BackendId::of_place)
    }

    /// The first one.
    #[inline]
    pub(crate) fn first(&self) -> BackendId {
        self.first
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The one at this place of the group.
    pub(crate) fn member(&self, place: usize) -> BackendId {
        BackendId::of_place(self.members.start + place)
    }
}

/// The front ends, by the addresses that they listen on.
#[derive(Clone, Debug)]
pub(crate) struct FrontendTable {
    all: Vec<Frontend>,
    /// For each, where its clients speak TLS.
    secured: Vec<Option<FrontCertificates>>,
    /// Where each leads to; none where sites say that.
    groups: Vec<Option<GroupId>>,
    by_address: Vec<(ListenAddress, FrontId)>,
}

impl FrontendTable {
    /// `addresses` are those that the kernel gave, each with the place of what it was in the configuration: a name may
    /// have several.
    pub(crate) fn new(config: &ProxyConfig, addresses: &[(ListenAddress, usize)]) -> Self {
        let places = config.frontends.iter().enumerate();
        let ids: Vec<FrontId> = places
            .flat_map(|(place, each)| each.listen.iter().map(move |_| FrontId::of_place(place)))
            .collect();
        let by_address =
            addresses.iter().map(|(address, at)| (address.clone(), ids[*at])).collect();
        let all = config.frontends.clone();
        let groups = all.iter().map(|front| front.group.map(GroupId::of_place)).collect();
        Self { secured: vec![None; all.len()], groups, all, by_address }
    }

    /// The front end that a connection was accepted by. A system call where there are
    /// several.
    pub(crate) fn of_connection(&self, actions: &Actions<'_>) -> FrontId {
        match self.all.len() {
            1 => FrontId::default(),
            // A connection that is gone already ends wherever it is led.
            _ => actions.local().map_or(FrontId::default(), |local| self.find(&local)),
        }
    }

    /// The front end of this number.
    pub(crate) fn get(&self, id: FrontId) -> &Frontend {
        &self.all[id.place()]
    }

    /// The group of backends that it leads to; none where it has sites.
    #[inline]
    pub(crate) fn group(&self, id: FrontId) -> Option<GroupId> {
        self.groups[id.place()]
    }

    /// What clients of this front end speak TLS with.
    #[inline]
    pub(crate) fn secured(&self, id: FrontId) -> Option<&Arc<ServerConfig>> {
        self.certificates(id).map(FrontCertificates::config)
    }

    /// What clients of this front end are shown, where they speak TLS.
    #[inline]
    pub(crate) fn certificates(&self, id: FrontId) -> Option<&FrontCertificates> {
        self.secured[id.place()].as_ref()
    }

    /// What clients speak TLS with, for each front end.
    pub(crate) fn secure(&mut self, secured: Vec<Option<FrontCertificates>>) {
        assert_eq!(secured.len(), self.all.len(), "one for each front end");
        self.secured = secured;
    }

    /// The kernel gives a connection to the listener of its very address before one of all
    /// addresses with the port.
    fn find(&self, local: &ListenAddress) -> FrontId {
        let exact = |listens: &ListenAddress| match (listens, local) {
            (ListenAddress::Tcp(one), ListenAddress::Tcp(two)) => {
                (one.ip().to_canonical(), one.port()) == (two.ip().to_canonical(), two.port())
            }
            (one, two) => one == two,
        };
        let any = |listens: &ListenAddress| match (listens, local) {
            (ListenAddress::Tcp(one), ListenAddress::Tcp(two)) => {
                one.ip().is_unspecified() && one.port() == two.port()
            }
            _ => false,
        };
        let mut all = self.by_address.iter();
        let found = all.clone().find(|(listens, _)| exact(listens));
        let found = found.or_else(|| all.find(|(listens, _)| any(listens)));
        found.map_or(FrontId::default(), |(_, id)| *id)
    }
}

/// A backend at the moment of a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    /// Its weight in thousandths; 0 for no requests.
    pub(crate) share: u64,
    /// Requests that it has.
    pub(crate) in_use: u64,
    /// A request would have to wait for a connection to it.
    pub(crate) is_busy: bool,
    /// It gets none, whatever happens to the others.
    pub(crate) is_drained: bool,
}

/// The memory of one loop's choices.
///
/// Each loop chooses for itself, by its own requests. When all backends are down, all that are not drained
/// are tried: an answer that may come beats one that can't.
#[derive(Debug)]
pub(crate) struct Balancer {
    how: Balance,
    /// Round robin: what each has saved up.
    credits: Vec<i64>,
    choices: Vec<Choice>,
    random: u64,
    start: usize,
}

impl Balancer {
    /// `seed` makes the draws of one loop differ from those of another.
    pub(crate) fn new(how: Balance, backends: usize, seed: u64) -> Self {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { how, credits: vec![0; backends], choices: Vec::new(), random, start: 0 }
    }

    /// How it chooses.
    pub(crate) fn how(&self) -> Balance {
        self.how
    }

    /// Chooses among the backends that `all` gives, but for those that were tried and failed, if there is
    /// another one. `key` is the [`hash`] of what a request is placed by. The one at the place `kept`, which the client had
    /// before, is chosen if it may have requests, whether one has to wait for it or not.
    pub(crate) fn choose(
        &mut self,
        all: impl Iterator<Item = Choice>,
        is_tried: impl Fn(usize) -> bool,
        key: u64,
        kept: Option<usize>,
    ) -> usize {
        self.choices.clear();
        self.choices.extend(all);
        if self.choices.len() == 1 {
            return 0;
        }
        if self.choices.iter().all(|choice| choice.share == 0) {
            let may_try = self.choices.iter_mut().filter(|choice| !choice.is_drained);
            may_try.for_each(|choice| choice.share = 1000);
        }
        if (0..self.choices.len()).any(|at| !is_tried(at) && self.choices[at].share > 0) {
            let all = self.choices.iter_mut().enumerate();
            let tried = all.filter(|(at, _)| is_tried(*at));
            tried.for_each(|(_, choice)| choice.share = 0);
        }
        if let Some(kept) = kept
            && self.choices[kept].share > 0
        {
            return kept;
        }
        let is_by_hash = matches!(self.how, Balance::Client | Balance::Path);
        // Backends with a free connection come before those without; a hash stays.
        let is_free = |choice: &Choice| choice.share > 0 && !choice.is_busy;
        if !is_by_hash && self.choices.iter().any(is_free) {
            let busy = self.choices.iter_mut().filter(|choice| choice.is_busy);
            busy.for_each(|choice| choice.share = 0);
        }
        match self.how {
            Balance::RoundRobin => self.in_turn(),
            Balance::Least => self.least(),
            Balance::Random => self.of_two(),
            Balance::Client | Balance::Path => self.by_hash(key),
        }
    }

    /// Each saves its share, the richest pays for all: backends alternate as evenly as weights allow.
    fn in_turn(&mut self) -> usize {
        let mut total = 0;
        let mut richest = None;
        for (at, choice) in self.choices.iter().enumerate() {
            if choice.share == 0 {
                continue;
            }
            let share = choice.share as i64;
            total += share;
            self.credits[at] += share;
            if richest.is_none_or(|best: usize| self.credits[at] > self.credits[best]) {
                richest = Some(at);
            }
        }
        let richest = richest.unwrap_or(0);
        self.credits[richest] -= total;
        richest
    }

    fn least(&mut self) -> usize {
        let count = self.choices.len();
        // Equals take turns.
        self.start = (self.start + 1) % count;
        let order = (0..count).map(|step| (self.start + step) % count);
        let usable = order.filter(|at| self.choices[*at].share > 0);
        usable.min_by_key(|at| load(self.choices[*at])).unwrap_or(0)
    }

    fn of_two(&mut self) -> usize {
        let usable = self.choices.iter().filter(|choice| choice.share > 0).count() as u64;
        let first = self.draw() % usable;
        let second = (first + 1 + self.draw() % usable.saturating_sub(1).max(1)) % usable;
        let at = |number: u64| {
            let mut places = (0..self.choices.len()).filter(|at| self.choices[*at].share > 0);
            places.nth(number as usize).unwrap_or(0)
        };
        let first = at(first);
        let second = at(second);
        if load(self.choices[second]) < load(self.choices[first]) { second } else { first }
    }

    /// Every backend draws a lot by key and place; when one framing, only its keys move (rendezvous
    /// hashing, Thaler and Ravishankar).
    fn by_hash(&self, key: u64) -> usize {
        let lot = |at: usize| {
            let draw = (mixed(key ^ mixed(at as u64 + 1)) >> 11) as f64 / (1_u64 << 53) as f64;
            self.choices[at].share as f64 / -draw.max(f64::MIN_POSITIVE).ln()
        };
        let usable = (0..self.choices.len()).filter(|at| self.choices[*at].share > 0);
        usable.max_by(|one, two| lot(*one).total_cmp(&lot(*two))).unwrap_or(0)
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        mixed(self.random)
    }
}

/// Requests for each thousandth of weight, with the one that is to come.
fn load(choice: Choice) -> u128 {
    (u128::from(choice.in_use) + 1) * 1_000_000_000 / u128::from(choice.share.max(1))
}

/// FNV-1a: keys are short, and a collision is of no use to an attacker.
pub(crate) fn hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The finisher of SplitMix64.
fn mixed(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// What a user of the proxy can do about a backend's certificate.
const REMEDIES: Remedies = Remedies {
    name_authority: "--ca FILE",
    accept_any: "--verify none",
    name_server: "give a name that it has with --sni",
};

/// What clients and backends of a proxy speak TLS with.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// For each front end.
    pub(crate) clients: Vec<Option<FrontCertificates>>,
    /// For each group.
    pub(crate) servers: Vec<Option<ServerSecrets>>,
    /// What clients will not like about the certificates that they are shown, in lines.
    pub remarks: Vec<String>,
}

/// What the servers of a group speak TLS with.
#[derive(Clone, Debug)]
pub(crate) struct ServerSecrets {
    /// For requests, and for bytes of an unknown protocol.
    http: Arc<ClientConfig>,
    bytes: Arc<ClientConfig>,
    /// Of each server.
    names: Vec<ServerName<'static>>,
}

impl ProxyConfig {
    /// Reads all certificates and keys.
    ///
    /// # Errors
    /// A file can't be used, or a server has no name that a certificate can have.
    pub fn read_secrets(&self) -> Result<Secrets, TlsError> {
        let read = |front| FrontCertificates::read(front, &self.sites, &self.http2);
        let clients = self.frontends.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let servers = self.groups.iter().map(of_servers).collect::<Result<_, _>>()?;
        let mut remarks: Vec<String> =
            clients.iter().flatten().flat_map(FrontCertificates::remarks).collect();
        // Front ends may have one in common.
        remarks.sort();
        remarks.dedup();
        Ok(Secrets { clients, servers, remarks })
    }
}

fn of_servers(group: &GroupConfig) -> Result<Option<ServerSecrets>, TlsError> {
    let Some(ServerTls { name, trust }) = &group.tls else { return Ok(None) };
    let name_of = |address: &Address| {
        let text = name.clone().unwrap_or_else(|| match address {
            Address::Known(ListenAddress::Tcp(address)) => address.ip().to_canonical().to_string(),
            Address::Known(unix @ ListenAddress::Unix(_)) => unix.to_string(),
            Address::Name { host, .. } => host.trim_end_matches('.').to_owned(),
        });
        server_name(&text).map_err(TlsError::new)
    };
    let names = group.servers.iter().map(|server| name_of(&server.address));
    let protocol = if group.protocol.is_http2() { HTTP_2 } else { HTTP_1_1 };
    Ok(Some(ServerSecrets {
        http: trust.config(Some(protocol))?,
        bytes: trust.config([])?,
        names: names.collect::<Result<_, _>>()?,
    }))
}

impl ServerSecrets {
    /// The encryption of a connection to the server at this place of the group.
    pub(crate) fn connection(&self, place: usize, mode: Mode) -> SharedTls {
        let config = match mode {
            Mode::Http => &self.http,
            Mode::Tcp => &self.bytes,
        };
        Tls::outgoing(config, &self.names[place]).into()
    }
}

/// Why TLS with a backend failed, and what to do.
pub(crate) fn why(error: Option<&pollux_tls::Error>) -> String {
    match error {
        Some(error) => REMEDIES.why(error),
        None => "it ended the connection in the handshake; does it speak TLS?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_belongs_to_the_front_end_whose_address_it_was_accepted_on() {
        let listens = ["127.0.0.1:80", "[::]:80", "0.0.0.0:81", "[::1]:81", "unix:/a", "unix:/b"];
        let read = |text: &str| text.parse::<ListenAddress>().expect("an address");
        let by_address =
            listens.iter().map(|text| read(text)).zip((0..).map(FrontId::of_place)).collect();
        let frontends =
            FrontendTable { all: Vec::new(), secured: Vec::new(), groups: Vec::new(), by_address };
        for (local, place) in [
            ("127.0.0.1:80", 0),
            ("[::ffff:127.0.0.1]:80", 0),
            ("[::1]:80", 1),
            ("[::ffff:10.0.0.1]:80", 1),
            ("127.0.0.1:81", 2),
            ("[::1]:81", 3),
            ("unix:/b", 5),
        ] {
            assert_eq!(frontends.find(&read(local)), FrontId::of_place(place), "{local}");
        }
    }

    fn shares(shares: &[u64]) -> Vec<Choice> {
        shares
            .iter()
            .map(|&share| Choice { share, in_use: 0, is_busy: false, is_drained: false })
            .collect()
    }

    /// How many of `keys` requests each backend gets.
    fn spread(how: Balance, choices: &[Choice], keys: u32) -> Vec<u32> {
        let mut balancer = Balancer::new(how, choices.len(), 7);
        let mut counts = vec![0; choices.len()];
        for key in 0..keys {
            let at =
                balancer.choose(choices.iter().copied(), |_| false, hash(&key.to_le_bytes()), None);
            counts[at] += 1;
        }
        counts
    }

    #[test]
    fn turns_follow_weights_exactly_and_alternate() {
        assert_eq!(spread(Balance::RoundRobin, &shares(&[1000, 2000, 5000]), 800), [100, 200, 500]);
        let mut balancer = Balancer::new(Balance::RoundRobin, 2, 0);
        let turns: Vec<_> = (0..4)
            .map(|_| balancer.choose(shares(&[1, 1]).into_iter(), |_| false, 0, None))
            .collect();
        assert_eq!(turns, [0, 1, 0, 1]);
    }

    #[test]
    fn least_goes_by_requests_for_weight() {
        let mut balancer = Balancer::new(Balance::Least, 3, 0);
        let mut choose = |loads: [(u64, u64); 3]| {
            let all = loads.map(|(share, in_use)| Choice {
                share,
                in_use,
                is_busy: false,
                is_drained: false,
            });
            balancer.choose(all.into_iter(), |_| false, 0, None)
        };
        assert_eq!(choose([(1000, 5), (1000, 4), (1000, 6)]), 1);
        assert_eq!(choose([(1000, 5), (1000, 4), (4000, 10)]), 2);
        assert_eq!(choose([(1000, 5), (0, 0), (1000, 6)]), 0);
        let spread = spread(Balance::Least, &shares(&[1000, 1000, 1000]), 300);
        assert_eq!(spread, [100, 100, 100], "equals take turns");
    }

    #[test]
    fn of_two_that_are_drawn_the_emptier_one_is_taken() {
        let mut choices = shares(&[1000, 1000, 1000]);
        let even = spread(Balance::Random, &choices, 3000);
        assert!(even.iter().all(|count| (800..1200).contains(count)), "{even:?}");
        choices[1].in_use = 100;
        let uneven = spread(Balance::Random, &choices, 3000);
        assert_eq!(uneven[1], 0, "there is always an emptier one: {uneven:?}");
        choices[0].share = 0;
        choices[2].share = 0;
        assert_eq!(spread(Balance::Random, &choices, 30)[1], 30);
    }

    #[test]
    fn keys_stay_where_they_are_when_a_backend_goes() {
        let place = |all: &[Choice], key: u32| {
            let mut balancer = Balancer::new(Balance::Path, all.len(), 0);
            balancer.choose(all.iter().copied(), |_| false, hash(&key.to_le_bytes()), None)
        };
        let all = shares(&[1000, 1000, 2000, 1000]);
        let less = shares(&[1000, 0, 2000, 1000]);
        let mut counts = [0; 4];
        for key in 0..5000 {
            let before = place(&all, key);
            let after = place(&less, key);
            counts[before] += 1;
            assert!(before == after || before == 1, "key {key} moved from {before} to {after}");
        }
        for (count, expected) in counts.into_iter().zip([1000, 1000, 2000, 1000]) {
            assert!((expected * 4 / 5..expected * 6 / 5).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn when_none_may_get_requests_all_are_tried_and_the_one_that_failed_last() {
        for how in Balance::ALL {
            let counts = spread(how, &shares(&[0, 0, 0]), 60);
            assert!(counts.iter().all(|count| *count > 0), "{how:?}: {counts:?}");
            let mut choices = shares(&[0, 0, 0]);
            choices[1].is_drained = true;
            let counts = spread(how, &choices, 60);
            assert!(counts[0] > 0 && counts[1] == 0 && counts[2] > 0, "{how:?}: {counts:?}");
            let mut balancer = Balancer::new(how, 2, 0);
            for key in 0..20_u32 {
                let key = hash(&key.to_le_bytes());
                assert_eq!(
                    balancer.choose(shares(&[1, 1]).into_iter(), |at| at == 0, key, None),
                    1
                );
                assert_eq!(
                    balancer.choose(shares(&[1, 0]).into_iter(), |at| at == 0, key, None),
                    0
                );
            }
        }
    }
}
