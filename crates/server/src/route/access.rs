//! Which clients may ask, by their address: `allow` and `deny` of a site and of its routes.
//!
//! Of the networks that an address lies in the smallest one decides, and `deny` where both name the same; with any `allow`
//! every other address is denied. The rules of a site and those of its route both have to let a request through, so
//! that a route makes its site stricter and never looser. An address that nobody knows (a unix socket, a proxy that
//! names none) is denied wherever there is a rule.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use pollux_http::Fields;

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Network {
    /// All bits behind the first ones are 0.
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads an address, or one with the number of its bits that count.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| String::new())?;
        let most = bits_of(address);
        let bits = match bits {
            None => most,
            Some(bits) => bits
                .parse::<u8>()
                .ok()
                .filter(|number| *number <= most && number.to_string() == bits)
                .ok_or_else(|| {
                    format!("\"{bits}\" is not a number of bits; expected 0 to {most}")
                })?,
        };
        if let IpAddr::V6(six) = address
            && let Some(four) = six.to_ipv4_mapped()
        {
            let expected = match bits.checked_sub(96) {
                None | Some(32) => four.to_string(),
                Some(bits) => format!("{four}/{bits}"),
            };
            return Err(format!("is an address of IPv4; expected {expected}"));
        }
        let network = Self { address: first_bits(address, bits), bits };
        if network.address != address {
            return Err(format!(
                "has bits behind its prefix; expected {network}, or {address}/{most} for one address"
            ));
        }
        Ok(network)
    }

    /// Whether this address lies in it; that of a client of IPv4 in one of IPv4.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && first_bits(address, self.bits) == self.address
    }

    /// Whether some address lies in both.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.has(other.address) && self.bits <= other.bits
            || other.has(self.address) && other.bits <= self.bits
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits == bits_of(self.address) {
            return write!(f, "{}", self.address);
        }
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with all bits behind so many of its first ones as 0.
fn first_bits(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from_bits(four.to_bits() & mask).into()
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            Ipv6Addr::from_bits(six.to_bits() & mask).into()
        }
    }
}

/// What is done with a client that may not ask.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum DenyWith {
    /// It gets 403.
    #[default]
    Forbidden,
    /// Its connection ends, or its stream of HTTP/2.
    Close,
}

/// The rules of a site, or of a route.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct AccessRules {
    pub(crate) allow: Vec<Network>,
    pub(crate) deny: Vec<Network>,
    pub(crate) deny_with: DenyWith,
}

/// What rules say of an address, and by what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// By this one of `allow`; by none where no one is said, or there are no rules.
    Allowed(Option<Network>),
    /// By this one of `deny`; by none of both where there is an `allow`, or the address is not known.
    Denied(Option<Network>),
}

impl AccessRules {
    /// Whether every address may ask.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// What they say of an address; none where it is not known.
    pub(crate) fn verdict(&self, address: Option<IpAddr>) -> Verdict {
        if self.is_empty() {
            return Verdict::Allowed(None);
        }
        let Some(address) = address else { return Verdict::Denied(None) };
        let smallest = |networks: &[Network]| {
            let own = networks.iter().filter(|network| network.has(address));
            own.max_by_key(|network| network.bits).copied()
        };
        match (smallest(&self.allow), smallest(&self.deny)) {
            (Some(allow), Some(deny)) if allow.bits > deny.bits => Verdict::Allowed(Some(allow)),
            (_, Some(deny)) => Verdict::Denied(Some(deny)),
            (Some(allow), None) => Verdict::Allowed(Some(allow)),
            (None, None) if self.allow.is_empty() => Verdict::Allowed(None),
            (None, None) => Verdict::Denied(None),
        }
    }

    /// Whether some address may be let through by the `allow` of both.
    pub(crate) fn may_meet(&self, other: &Self) -> bool {
        self.allow.is_empty()
            || other.allow.is_empty()
            || self.allow.iter().any(|one| other.allow.iter().any(|two| one.meets(two)))
    }
}

impl fmt::Display for AccessRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |networks: &[Network]| {
            networks.iter().map(|network| format!(" {network}")).collect::<String>()
        };
        let mut comma = "";
        for (what, networks) in [("allow", &self.allow), ("deny", &self.deny)] {
            if !networks.is_empty() {
                write!(f, "{comma}{what}{}", list(networks))?;
                comma = ", ";
            }
        }
        let others = if self.allow.is_empty() { "they" } else { "all others" };
        match self.deny_with {
            DenyWith::Forbidden => write!(f, "; {others} get 403"),
            DenyWith::Close => write!(f, "; {others} are cut off"),
        }
    }
}

/// Proxies in front whose word of their client is believed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct TrustedProxies {
    pub(crate) networks: Vec<Network>,
    /// All that come by a unix socket.
    pub(crate) has_unix_sockets: bool,
}

impl TrustedProxies {
    /// Whether nobody's word is taken.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.has_unix_sockets
    }

    /// Whether the word of this peer is taken; of none, as of a unix socket.
    pub(crate) fn believes(&self, peer: Option<IpAddr>) -> bool {
        let is_trusted = |address: IpAddr| self.networks.iter().any(|network| network.has(address));
        peer.map_or(self.has_unix_sockets, is_trusted)
    }

    /// The address of who asked: that of the connection, or, behind proxies that are trusted, the last one of X-Forwarded-For
    /// that is none of theirs; of several that are all theirs the first one. None where it is not known.
    pub(crate) fn client(&self, peer: Option<IpAddr>, fields: Fields<'_>) -> Option<IpAddr> {
        let is_trusted = |address: IpAddr| self.networks.iter().any(|network| network.has(address));
        if !self.believes(peer) {
            return peer;
        }
        // What stands further right was said by somebody nearer. What cannot be read as an address stands for somebody who is not known.
        let mut first = None;
        let mut last_other = None;
        for value in fields.all("x-forwarded-for") {
            for said in value.split(|byte| *byte == b',') {
                let said = address(said.trim_ascii());
                first = first.or(Some(said));
                if !said.is_some_and(is_trusted) {
                    last_other = Some(said);
                }
            }
        }
        last_other.or(first).unwrap_or(peer)
    }
}

/// An address as proxies write it, with a port perhaps.
fn address(said: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(said).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().ok();
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|both| both.ip()));
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| Network::read(text).expect(text)).collect()
    }

    fn rules(allow: &[&str], deny: &[&str]) -> AccessRules {
        AccessRules { allow: networks(allow), deny: networks(deny), ..AccessRules::default() }
    }

    #[test]
    fn networks_are_read_and_shown_as_they_are_meant() {
        for (text, shown) in [
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.17", "192.0.2.17"),
            ("192.0.2.17/32", "192.0.2.17"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:DB8:0::/48", "2001:db8::/48"),
            ("::/0", "::/0"),
            ("::1", "::1"),
        ] {
            assert_eq!(Network::read(text).expect(text).to_string(), shown);
        }
        for (text, why) in [
            (
                "192.0.2.17/24",
                "has bits behind its prefix; expected 192.0.2.0/24, or 192.0.2.17/32 for one address",
            ),
            (
                "2001:db8::1/48",
                "has bits behind its prefix; expected 2001:db8::/48, or 2001:db8::1/128 for one address",
            ),
            ("192.0.2.0/33", "\"33\" is not a number of bits; expected 0 to 32"),
            ("192.0.2.0/+8", "\"+8\" is not a number of bits; expected 0 to 32"),
            ("192.0.2.0/", "\"\" is not a number of bits; expected 0 to 32"),
            ("::ffff:192.0.2.0/120", "is an address of IPv4; expected 192.0.2.0/24"),
            ("::ffff:192.0.2.1", "is an address of IPv4; expected 192.0.2.1"),
            ("192.0.2", ""),
            ("all", ""),
            ("[::1]", ""),
            ("192.0.2.1:80", ""),
        ] {
            assert_eq!(Network::read(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_smallest_network_decides_and_deny_of_two_that_are_the_same() {
        let office = rules(&["192.0.2.0/24", "10.1.2.3"], &["192.0.2.128/25", "10.1.2.3"]);
        let of = |rules: &AccessRules, address: &str| match rules.verdict(address.parse().ok()) {
            Verdict::Allowed(by) => (true, by.map(|by| by.to_string()).unwrap_or_default()),
            Verdict::Denied(by) => (false, by.map(|by| by.to_string()).unwrap_or_default()),
        };
        for (address, expected) in [
            ("192.0.2.1", (true, "192.0.2.0/24")),
            ("192.0.2.129", (false, "192.0.2.128/25")),
            ("10.1.2.3", (false, "10.1.2.3")),
            ("203.0.113.1", (false, "")),
            ("::1", (false, "")),
            ("nobody", (false, "")),
        ] {
            assert_eq!(of(&office, address), (expected.0, expected.1.to_owned()), "{address}");
        }
        let open = rules(&[], &["::/0", "203.0.113.0/24"]);
        for (address, expected) in
            [("192.0.2.1", true), ("203.0.113.9", false), ("2001:db8::1", false), ("nobody", false)]
        {
            assert_eq!(of(&open, address).0, expected, "{address}");
        }
        assert!(of(&AccessRules::default(), "nobody").0);
        assert_eq!(open.to_string(), "deny ::/0 203.0.113.0/24; they get 403");
        let closing = AccessRules { deny_with: DenyWith::Close, ..office };
        assert_eq!(
            closing.to_string(),
            "allow 192.0.2.0/24 10.1.2.3, deny 192.0.2.128/25 10.1.2.3; all others are cut off"
        );
    }

    #[test]
    fn two_lists_that_have_no_address_in_common_never_meet() {
        for (one, two, expected) in [
            (&["10.0.0.0/8"][..], &["10.1.0.0/16"][..], true),
            (&["10.1.0.0/16"], &["10.0.0.0/8"], true),
            (&["10.0.0.0/8"], &["192.0.2.1"], false),
            (&["0.0.0.0/0"], &["::1"], false),
            (&[], &["::1"], true),
            (&["::/0"], &[], true),
        ] {
            assert_eq!(rules(one, &[]).may_meet(&rules(two, &[])), expected, "{one:?} {two:?}");
        }
    }

    fn client(trusted: &[&str], peer: &str, lines: &str) -> String {
        let trusted =
            TrustedProxies { networks: networks(trusted), has_unix_sockets: peer.is_empty() };
        let client = trusted.client(peer.parse().ok(), Fields::of_trailers(lines.as_bytes()));
        client.map_or_else(|| "nobody".to_owned(), |client| client.to_string())
    }

    #[test]
    fn only_a_proxy_that_is_trusted_says_who_asked_and_only_of_who_asked_it() {
        const OWN: &[&str] = &["10.0.0.0/8", "2001:db8::/32"];
        for (peer, said, expected) in [
            ("203.0.113.9", "192.0.2.1", "203.0.113.9"),
            ("10.0.0.1", "192.0.2.1", "192.0.2.1"),
            ("10.0.0.1", "127.0.0.1, 192.0.2.1", "192.0.2.1"),
            ("10.0.0.1", "127.0.0.1, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
            ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
            ("10.0.0.1", "192.0.2.1, unknown", "nobody"),
            ("10.0.0.1", "192.0.2.1, unknown, 10.0.0.2", "nobody"),
            ("10.0.0.1", "192.0.2.1,", "nobody"),
            ("10.0.0.1", "192.0.2.1:4711", "192.0.2.1"),
            ("10.0.0.1", "[2001:db9::1]:4711", "2001:db9::1"),
            ("10.0.0.1", "[2001:db9::1]", "2001:db9::1"),
            ("10.0.0.1", "::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "192.0.2.1", "192.0.2.1"),
            ("", "192.0.2.1", "192.0.2.1"),
        ] {
            let line = format!("X-Forwarded-For: {said}\r\n");
            assert_eq!(client(OWN, peer, &line), expected, "{peer} {said}");
        }
        let two = "X-Forwarded-For: 127.0.0.1\r\nx-forwarded-for: 192.0.2.1\r\n";
        assert_eq!(client(OWN, "10.0.0.1", two), "192.0.2.1");
        assert_eq!(client(OWN, "10.0.0.1", ""), "10.0.0.1");
        assert_eq!(client(&[], "10.0.0.1", two), "10.0.0.1");
    }

    proptest! {
        #[test]
        fn the_client_is_the_last_one_who_is_not_trusted(
            said in prop::collection::vec(prop::sample::select(&["10.0.0.1", "10.0.0.2", "192.0.2.1", "::1", "x"][..]), 0..6),
            cuts in prop::collection::vec(any::<bool>(), 6),
        ) {
            let mut lines = String::new();
            for (one, begins) in said.iter().zip(&cuts) {
                let begins = *begins || lines.is_empty();
                lines += if begins { "\r\nX-Forwarded-For: " } else { ", " };
                lines += one;
            }
            let lines = format!("{}\r\n", lines.trim_start());
            let last = said.iter().rev().find(|one| !one.starts_with("10."));
            let expected = last.or(said.first()).copied().unwrap_or("10.9.9.9");
            let expected = if expected == "x" { "nobody" } else { expected };
            prop_assert_eq!(client(&["10.0.0.0/8"], "10.9.9.9", &lines), expected);
        }
    }
}
