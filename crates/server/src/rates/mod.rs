//! How often each client may ask: the limits that routes name, each with one table that all loops share, and that a reload
//! hands on to the next worker.
//!
//! | part | one job |
//! |---|---|
//! | `table` | when each key may ask again, without a lock |
//! | `connections` | how many connections each client has |
//!
//! `front/sites.rs` asks for each request of a route with limits, once, before its handler or a backend sees it. Times are
//! those of the loop's turn, which all processes of the machine have in common.

mod connections;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64, Ordering::Relaxed};

use pollux_engine::Moment;
use pollux_http::Request;
use pollux_sys::shared::{PAGE_WORDS, SharedWords};

use crate::ServerError;
use crate::config::rates::{LimitConfig, RateKey};
use crate::ids::LimitId;
use crate::random::random;
use connections::ClientConnections;
use table::{Charged, Pace, RateTable};

/// Slots of a table, of 16 bytes each.
const SLOTS: usize = 65_536;
/// The first page of a table has what its keys are hashed with.
const SECRET_WORDS: usize = 2;

/// The tables of the limits of a file, by their names.
#[derive(Default, Debug)]
pub(crate) struct RateTables(BTreeMap<String, SharedWords>);

impl RateTables {
    /// Makes those that are not there yet for these limits.
    ///
    /// # Errors
    /// No descriptor or memory is left.
    pub(crate) fn make(&mut self, limits: &[LimitConfig]) -> io::Result<()> {
        for limit in limits {
            if !self.0.contains_key(&limit.name) {
                self.0.insert(limit.name.clone(), new_table()?);
            }
        }
        Ok(())
    }

    /// Those of these limits, in their order.
    pub(crate) fn of<'t>(
        &'t self,
        limits: &'t [LimitConfig],
    ) -> impl Iterator<Item = &'t SharedWords> {
        limits.iter().map(|limit| &self.0[&limit.name])
    }

    /// The limits with their tables, in this process.
    ///
    /// # Errors
    /// No descriptor or memory is left.
    pub(crate) fn rates(&self, limits: &[LimitConfig]) -> Result<Rates, ServerError> {
        let again =
            |table: &SharedWords| table.as_fd().try_clone_to_owned().and_then(SharedWords::from_fd);
        let tables = self.of(limits).map(again).collect::<io::Result<_>>();
        Ok(Rates::new(limits, tables.map_err(|cause| ServerError::Descriptors { cause })?))
    }

    /// All of them, with the names of their limits.
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = (&str, &SharedWords)> {
        self.0.iter().map(|(name, table)| (name.as_str(), table))
    }

    /// Takes that of the limit of this name over.
    pub(crate) fn take(&mut self, name: String, table: SharedWords) {
        self.0.insert(name, table);
    }

    /// Forgets those of other limits.
    pub(crate) fn keep(&mut self, limits: &[LimitConfig]) {
        self.0.retain(|name, _| limits.iter().any(|limit| limit.name == *name));
    }
}

/// A table that nobody has used, with a secret of its own.
pub(crate) fn new_table() -> io::Result<SharedWords> {
    let words = SharedWords::create(PAGE_WORDS + RateTable::words(SLOTS))?;
    for word in &words[..SECRET_WORDS] {
        word.store(u64::from_ne_bytes(random()), Relaxed);
    }
    Ok(words)
}

/// The limits of a proxy.
pub(crate) struct Rates {
    limits: Box<[Limit]>,
    /// Of front ends that take so many of each client alone.
    pub(crate) connections: Arc<ClientConnections>,
}

/// One of them.
pub(crate) struct Limit {
    config: LimitConfig,
    pace: Pace,
    state: Arc<LimitState>,
}

/// What of a limit stays when other settings are read for its name.
struct LimitState {
    table: SharedWords,
    refused: AtomicU64,
    /// What a dry run would have refused.
    excused: AtomicU64,
    evictions: AtomicU64,
}

/// Why a request goes no further.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over<'r> {
    pub(crate) limit: &'r Limit,
    /// After so many seconds one would be admitted.
    pub(crate) wait_s: u64,
}

impl fmt::Debug for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.limits.iter()).finish()
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Limit {{ {}: {} }}", self.config.name, self.config)
    }
}

impl Limit {
    fn new(config: &LimitConfig, state: Arc<LimitState>) -> Self {
        let pace =
            Pace::new(config.rate.requests, config.rate.seconds * 1_000_000_000, config.burst);
        Self { config: config.clone(), pace, state }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Refused, excused by a dry run, and slots that were taken away too early.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let LimitState { refused, excused, evictions, .. } = &*self.state;
        [refused, excused, evictions].map(|count| count.load(Relaxed))
    }

    /// A keyed hash of who asks, which nobody outside can foresee.
    fn key(&self, client: &str, request: &Request<'_>) -> u64 {
        #[expect(
            deprecated,
            reason = "the only hasher of std whose key can be given: other processes have the same"
        )]
        let mut hasher = {
            let secret = |at: usize| self.state.table[at].load(Relaxed);
            std::hash::SipHasher::new_with_keys(secret(0), secret(1))
        };
        let field = match &self.config.by {
            RateKey::All => return hasher.finish(),
            RateKey::Header(name) => request.fields.first(name),
            RateKey::Client => None,
        };
        match (field, client.parse()) {
            (Some(value), _) => hasher.write(value),
            (None, Ok(IpAddr::V4(address))) => {
                let bits = u32::from(address) & u32::MAX << (32 - self.config.ipv4_prefix);
                hasher.write(&bits.to_ne_bytes());
            }
            (None, Ok(IpAddr::V6(address))) => {
                let bits = u128::from(address) & u128::MAX << (128 - self.config.ipv6_prefix);
                hasher.write(&bits.to_ne_bytes());
            }
            // Of a unix socket: nobody knows who.
            (None, Err(_)) => hasher.write(client.as_bytes()),
        }
        hasher.finish()
    }

    fn table(&self) -> RateTable<'_> {
        RateTable::new(&self.state.table[PAGE_WORDS..])
    }
}

impl Rates {
    /// The limits of these settings, each with its table.
    ///
    /// # Panics
    /// When there are not as many tables.
    pub(crate) fn new(limits: &[LimitConfig], tables: Vec<SharedWords>) -> Self {
        assert_eq!(limits.len(), tables.len(), "one for each");
        let limit = |(config, table): (&LimitConfig, SharedWords)| {
            let none = || AtomicU64::new(0);
            let state = LimitState { table, refused: none(), excused: none(), evictions: none() };
            Limit::new(config, Arc::new(state))
        };
        let limits = limits.iter().zip(tables).map(limit).collect();
        Self { limits, connections: Arc::default() }
    }

    /// The same limits by other settings for their names: each with what it has counted and what clients owe it.
    ///
    /// # Panics
    /// When there is another name among them.
    pub(crate) fn by(&self, limits: &[LimitConfig]) -> Self {
        let limit = |config: &LimitConfig| {
            let before = self.limits.iter().find(|limit| limit.name() == config.name);
            Limit::new(config, Arc::clone(&before.expect("the names are the same").state))
        };
        let connections = Arc::clone(&self.connections);
        Self { limits: limits.iter().map(limit).collect(), connections }
    }

    pub(crate) fn all(&self) -> &[Limit] {
        &self.limits
    }

    /// Charges a request of this client to these limits: to all of them, or to none where one refuses it. What a dry run would
    /// have refused is given to `excused`.
    ///
    /// # Errors
    /// The limit that refuses it.
    pub(crate) fn admit(
        &self,
        limits: &[LimitId],
        client: &str,
        request: &Request<'_>,
        now: Moment,
        mut excused: impl FnMut(&Limit),
    ) -> Result<(), Over<'_>> {
        // What a dry run was not charged: rarely any.
        let mut uncharged = Vec::new();
        for (at, id) in limits.iter().enumerate() {
            let limit = &self.limits[id.place()];
            let key = limit.key(client, request);
            match limit.table().charge(key, limit.pace, now.as_nanos()) {
                Charged::Admitted { evicted } => {
                    if evicted {
                        limit.state.evictions.fetch_add(1, Relaxed);
                    }
                }
                Charged::Refused { .. } if limit.config.is_dry_run => {
                    limit.state.excused.fetch_add(1, Relaxed);
                    uncharged.push(at);
                    excused(limit);
                }
                Charged::Refused { wait_ns } => {
                    limit.state.refused.fetch_add(1, Relaxed);
                    let charged = (0..at).filter(|before| !uncharged.contains(before));
                    for before in charged {
                        let before = &self.limits[limits[before].place()];
                        before.table().refund(before.key(client, request), before.pace);
                    }
                    return Err(Over { limit, wait_s: wait_ns.div_ceil(1_000_000_000).max(1) });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pollux_http::{Limits, Parsed};

    use super::*;
    use crate::config::rates::Rate;

    fn limit(name: &str, requests: u64, burst: u64, by: RateKey) -> LimitConfig {
        LimitConfig {
            name: name.to_owned(),
            rate: Rate { requests, seconds: 60 },
            burst,
            by,
            ipv4_prefix: 24,
            ipv6_prefix: 64,
            is_dry_run: false,
        }
    }

    /// Whether a client may ask these limits now.
    fn asks(rates: &Rates, limits: &[u16], client: &str, fields: &str) -> Result<(), u64> {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let Parsed::Complete(request, _) = Request::parse(head.as_bytes(), &Limits::DEFAULT) else {
            panic!("sound");
        };
        let limits: Vec<LimitId> =
            limits.iter().map(|id| LimitId::of_place(usize::from(*id))).collect();
        let now = Moment::from_nanos(1_000_000_000);
        let admitted = rates.admit(&limits, client, &request, now, |_| {});
        admitted.map_err(|over| over.wait_s)
    }

    fn tables(count: usize) -> Vec<SharedWords> {
        (0..count).map(|_| new_table().expect("made")).collect()
    }

    #[test]
    fn addresses_of_one_prefix_are_one_client_and_others_are_not() {
        let rates = Rates::new(&[limit("a", 5, 2, RateKey::Client)], tables(1));
        let ask = |client| asks(&rates, &[0], client, "");
        for (same, other) in [
            (["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:0:f::"], "2001:db8:0:1::1"),
            (["192.0.2.1", "192.0.2.2", "192.0.2.255"], "192.0.3.1"),
            (["", "", ""], "::1"),
        ] {
            let all = same.map(ask);
            assert_eq!(all, [Ok(()), Ok(()), Err(12)], "{same:?}");
            assert_eq!(ask(other), Ok(()), "{other}");
        }
        assert_eq!(rates.all()[0].counts(), [3, 0, 0]);
    }

    #[test]
    fn by_a_field_each_value_is_one_and_clients_without_it_are_each_one() {
        let rates = Rates::new(&[limit("a", 5, 1, RateKey::Header("x-key".to_owned()))], tables(1));
        assert_eq!(asks(&rates, &[0], "192.0.2.1", "X-Key: one\r\n"), Ok(()));
        assert!(asks(&rates, &[0], "198.51.100.1", "X-Key: one\r\n").is_err());
        assert_eq!(asks(&rates, &[0], "192.0.2.1", "X-Key: two\r\n"), Ok(()));
        assert_eq!(asks(&rates, &[0], "192.0.2.1", ""), Ok(()));
        assert!(asks(&rates, &[0], "192.0.2.1", "").is_err());
        assert_eq!(asks(&rates, &[0], "198.51.100.1", ""), Ok(()));
        let together = Rates::new(&[limit("a", 5, 1, RateKey::All)], tables(1));
        assert_eq!(asks(&together, &[0], "192.0.2.1", ""), Ok(()));
        assert!(asks(&together, &[0], "198.51.100.1", "").is_err());
    }

    #[test]
    fn of_several_limits_none_is_charged_when_one_refuses() {
        let limits = [limit("wide", 60, 3, RateKey::Client), limit("narrow", 60, 1, RateKey::All)];
        let rates = Rates::new(&limits, tables(2));
        assert_eq!(asks(&rates, &[0, 1], "192.0.2.1", ""), Ok(()));
        for _ in 0..5 {
            assert_eq!(asks(&rates, &[0, 1], "192.0.2.1", ""), Err(1));
        }
        // Two of three are left.
        let left = [(); 3].map(|()| asks(&rates, &[0], "192.0.2.1", "").is_ok());
        assert_eq!(left, [true, true, false]);
    }

    #[test]
    fn what_a_dry_run_was_not_charged_is_not_given_back_to_it() {
        let dry = LimitConfig { is_dry_run: true, ..limit("dry", 60, 1, RateKey::Client) };
        let rates = Rates::new(&[dry, limit("narrow", 60, 1, RateKey::All)], tables(2));
        assert_eq!(asks(&rates, &[0, 1], "192.0.2.1", ""), Ok(()));
        for excused in 1..=3 {
            assert!(asks(&rates, &[0, 1], "192.0.2.1", "").is_err());
            assert_eq!(rates.all()[0].counts()[1], excused);
        }
    }

    #[test]
    fn a_dry_run_refuses_nothing_and_counts_it() {
        let limits = [LimitConfig { is_dry_run: true, ..limit("a", 5, 1, RateKey::All) }];
        let rates = Rates::new(&limits, tables(1));
        for _ in 0..4 {
            assert_eq!(asks(&rates, &[0], "", ""), Ok(()));
        }
        assert_eq!(rates.all()[0].counts(), [0, 3, 0]);
    }

    #[test]
    fn other_settings_for_a_limit_change_its_pace_and_not_what_clients_owe() {
        let one = limit("one", 60, 2, RateKey::All);
        let two = limit("two", 60, 1, RateKey::All);
        let before = Rates::new(&[one.clone(), two.clone()], tables(2));
        assert_eq!(asks(&before, &[1], "", ""), Ok(()));
        assert_eq!(asks(&before, &[1], "", ""), Err(1));
        before.connections.enter("192.0.2.1".parse().expect("an address"), 1);
        let after = before.by(&[LimitConfig { burst: 3, ..two }, one]);
        assert_eq!(after.all()[0].counts(), [1, 0, 0], "by its name");
        let left = [(); 3].map(|()| asks(&after, &[0], "", "").is_ok());
        assert_eq!(left, [true, true, false], "one of three is owed");
        assert!(!after.connections.enter("192.0.2.1".parse().expect("an address"), 1));
        assert_eq!(before.all()[1].counts(), [2, 0, 0], "both count together");
    }

    #[test]
    fn the_tables_of_a_file_are_kept_by_name_when_another_one_is_read() {
        let old = limit("a", 5, 1, RateKey::All);
        let new = limit("b", 5, 1, RateKey::All);
        let mut all = RateTables::default();
        all.make(std::slice::from_ref(&old)).expect("made");
        let secret = |all: &RateTables| {
            all.of(std::slice::from_ref(&old)).next().expect("one")[0].load(Relaxed)
        };
        let before = secret(&all);
        let both = [new.clone(), LimitConfig { burst: 9, ..old.clone() }];
        all.make(&both).expect("made");
        all.keep(&both);
        assert_eq!((secret(&all), all.of(&both).count()), (before, 2));
        all.keep(&[new]);
        all.make(std::slice::from_ref(&old)).expect("made");
        assert_ne!(secret(&all), before, "it was gone");
    }
}
