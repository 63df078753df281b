//! An id for each request: made here, or taken from a proxy in front that is trusted.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use pollux_http::Fields;

use crate::random::random;
use crate::route::access::TrustedProxies;

/// Longest id that is taken from others.
const ID_BYTES_MAX: usize = 64;

/// What the settings say of ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RequestIdConfig {
    /// The field that has it.
    pub(crate) name: String,
    /// Whether clients get it too.
    pub(crate) is_answered: bool,
}

/// The id of the request that a loop looks at, for all that its answer is made by; empty where it has none.
///
/// Only that loop has it: the lock is never waited for.
#[derive(Clone, Debug, Default)]
pub(crate) struct CurrentId(Arc<Mutex<String>>);

impl CurrentId {
    /// A request with this id is looked at.
    pub(crate) fn set(&self, id: &str) {
        id.clone_into(&mut self.lock());
    }

    /// Calls this with the id.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&str) -> R) -> R {
        call(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.0.lock().expect("nothing panics under this lock")
    }
}

/// Makes the ids of one loop.
#[derive(Debug)]
pub(crate) struct RequestIds {
    name: String,
    /// Another one for each loop of each process.
    own: u64,
    made: u32,
    current: CurrentId,
}

impl RequestIds {
    pub(crate) fn new(config: &RequestIdConfig) -> Self {
        let own = u64::from_le_bytes(random());
        Self { name: config.name.clone(), own, made: 0, current: CurrentId::default() }
    }

    /// Has its ids there, of a loop.
    pub(crate) fn share(&mut self, current: &CurrentId) {
        self.current = current.clone();
    }

    /// Makes one: 128 bits as 32 hex digits, the second in front.
    pub(crate) fn make(&mut self, unix_s: u64) {
        self.made = self.made.wrapping_add(1);
        let mut id = self.current.lock();
        id.clear();
        let second = unix_s as u32;
        let Self { own, made, .. } = *self;
        write!(id, "{second:08x}{own:016x}{made:08x}").expect("a string");
    }

    /// That of a request: the one that its field has, where a trusted proxy says it and it is sound; whether it is that.
    pub(crate) fn of(
        &mut self,
        trusted: &TrustedProxies,
        peer: impl FnOnce() -> Option<IpAddr>,
        fields: Fields<'_>,
        unix_s: u64,
    ) -> bool {
        let said = fields.first(&self.name).filter(|_| !trusted.is_empty());
        let said = said.filter(|_| trusted.believes(peer()));
        match said.and_then(|said| str::from_utf8(said).ok()).filter(|said| is_sound(said)) {
            Some(said) => {
                self.current.set(said);
                true
            }
            None => {
                self.make(unix_s);
                false
            }
        }
    }
}

fn is_sound(id: &str) -> bool {
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::access::Network;

    #[test]
    fn ids_are_taken_from_trusted_proxies_alone_and_only_sound_ones() {
        let config = RequestIdConfig { name: "X-Request-Id".to_owned(), is_answered: false };
        let mut ids = RequestIds::new(&config);
        let networks = vec![Network::read("10.0.0.0/8").expect("right")];
        let trusted = TrustedProxies { networks, has_unix_sockets: false };
        let long = "a".repeat(65);
        for (peer, said, is_kept) in [
            ("10.0.0.1", "abc-1._Z", true),
            ("192.0.2.1", "abc", false),
            ("10.0.0.1", "", false),
            ("10.0.0.1", "a b", false),
            ("10.0.0.1", "a\"b", false),
            ("10.0.0.1", &long, false),
            ("10.0.0.1", &long[1..], true),
        ] {
            let lines = format!("x-request-id: {said}\r\n\r\n");
            let fields = Fields::of_trailers(lines.as_bytes());
            let peer = || peer.parse().ok();
            assert_eq!(ids.of(&trusted, peer, fields, 7), is_kept, "{said}");
            ids.current.with(|id| assert_eq!(id == said, is_kept, "{id}"));
        }
    }

    #[test]
    fn ids_differ_from_each_other_and_between_loops() {
        let config = RequestIdConfig { name: "X".to_owned(), is_answered: false };
        let mut one = RequestIds::new(&config);
        let mut two = RequestIds::new(&config);
        let mut all = Vec::new();
        for at in 0..1000 {
            for ids in [&mut one, &mut two] {
                ids.make(at / 100);
                all.push(ids.current.with(str::to_owned));
            }
        }
        assert!(all.iter().all(|id| id.len() == 32 && is_sound(id)));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2000);
    }
}
