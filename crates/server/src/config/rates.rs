//! Settings of rates: how often each client may ask, under a name that sites and routes say.

use std::fmt;

use pollux_settings::{Keys, Kind, integer, name};

use crate::config::named::{place_of, refuse_twins};

/// Most limits of a file: each has a table of 1 MiB.
const LIMITS_MAX: usize = 32;
/// Most limits of a site, and of a route.
const LIMITS_OF_ONE_MAX: usize = 8;
/// Most requests of a key in a second.
const REQUESTS_MAX: u64 = 100_000;
/// Longest name of a field that is counted by.
const FIELD_NAME_BYTES_MAX: usize = 64;
/// The burst, where that is more than what comes in a second.
const BURST_MIN: u64 = 10;
const ABOUT: &str = "How often each client may ask, where a site or route names it in limit";

/// A limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitConfig {
    pub(crate) name: String,
    pub(crate) rate: Rate,
    /// How many requests may come at once.
    pub(crate) burst: u64,
    pub(crate) by: RateKey,
    /// How much of an address is one client.
    pub(crate) ipv4_prefix: u32,
    pub(crate) ipv6_prefix: u32,
    /// Whether nothing is refused, only counted.
    pub(crate) is_dry_run: bool,
}

/// So many requests in a second, minute or hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    pub(crate) requests: u64,
    pub(crate) seconds: u64,
}

/// What has a rate of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RateKey {
    /// Each client.
    Client,
    /// Each value of this field, in small letters; each client where it is missing.
    Header(String),
    /// All requests together.
    All,
}

impl Rate {
    fn read(text: &str) -> Result<Self, String> {
        let (requests, unit) = text.split_once('/').unwrap_or((text, ""));
        let number = requests.parse::<u64>().ok().filter(|number| *number > 0);
        let Some(requests) = number else { return Err(String::new()) };
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "" => {
                return Err(format!(
                    "lacks its time; expected {requests}/s, {requests}/m or {requests}/h"
                ));
            }
            _ => return Err(String::new()),
        };
        if requests > REQUESTS_MAX * seconds {
            return Err(format!("is more than {REQUESTS_MAX}/s; expected that at most"));
        }
        Ok(Self { requests, seconds })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.seconds {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        write!(f, "{}/{unit}", self.requests)
    }
}

impl RateKey {
    fn read(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "client" => Ok(Self::Client),
            None if text == "all" => Ok(Self::All),
            Some(("header", name)) if is_field_name(name) => {
                Ok(Self::Header(name.to_ascii_lowercase()))
            }
            _ => Err(String::new()),
        }
    }
}

pub(super) fn is_field_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=FIELD_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter)
}

impl fmt::Display for LimitConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.rate;
        let burst = self.burst;
        write!(f, "{rate}, {burst} at once, ")?;
        let four = self.ipv4_prefix;
        let six = self.ipv6_prefix;
        match &self.by {
            RateKey::Client => write!(f, "for each client (/{four} of IPv4, /{six} of IPv6)")?,
            RateKey::Header(name) => write!(f, "for each value of {name}")?,
            RateKey::All => write!(f, "for all together")?,
        }
        f.write_str(if self.is_dry_run { ", nothing is refused (dry_run)" } else { "" })
    }
}

/// The limits of a file.
pub(super) fn limits(keys: &mut Keys<'_>) -> Vec<LimitConfig> {
    let all = keys.tables("limit", ABOUT, 0..=LIMITS_MAX, limit);
    let all: Vec<LimitConfig> = all.into_iter().flatten().collect();
    refuse_twins(keys, "limit", &all, |limit| &limit.name);
    all
}

fn limit(keys: &mut Keys<'_>) -> Option<LimitConfig> {
    let name = keys.key("name", "Name for limit of a site or route").required(&name());
    let of_rate =
        Kind::new("RATE", "requests in a second, minute or hour: 20/s, 5/m, 100/h", Rate::read);
    let about = "How many requests are taken on and on; more get 429 with Retry-After";
    let rate = keys.key("rate", about).example("\"5/m\"").required(&of_rate);
    let key = keys.key("burst", "How many may come at once, after a time without");
    let key = key.otherwise("what comes in a second, 10 at least");
    let burst = key.optional(&integer(1..=REQUESTS_MAX));
    let accepts = "client, header:NAME or all";
    let about = "What has this rate of its own: client, each address; header:NAME, each value of a field, and each address where \
                 it is missing; all, everybody together";
    let by =
        keys.key("by", about).default("client").one(&Kind::new("WHAT", accepts, RateKey::read));
    let about = "Of IPv6: addresses that have so many bits in common are one client";
    let key = keys.key("ipv6_prefix", about).default("64");
    let ipv6_prefix = key.one(&integer(16..=128));
    let key = keys.key("ipv4_prefix", "The same of IPv4").default("32");
    let ipv4_prefix = key.one(&integer(8..=32));
    let is_dry_run = keys.key("dry_run", "Refuse nothing: count and log what would be").switch();
    if by == RateKey::All && keys.is_right() {
        for name in ["ipv6_prefix", "ipv4_prefix"] {
            if keys.has(name) {
                keys.note(name, "has no effect beside by = \"all\"; expected none");
            }
        }
    }
    let name = name?;
    let rate = rate?;
    let burst = burst.unwrap_or((rate.requests / rate.seconds).max(BURST_MIN));
    Some(LimitConfig { name, rate, burst, by, ipv4_prefix, ipv6_prefix, is_dry_run })
}

/// The limits that a site or route names.
pub(super) fn named(
    keys: &mut Keys<'_>,
    known: &[LimitConfig],
    about: &'static str,
) -> Vec<String> {
    let named = keys.key("limit", about).distinct(&name(), 0..=LIMITS_OF_ONE_MAX);
    if keys.is_right() {
        for name in &named {
            let known = known.iter().map(|limit| limit.name.as_str());
            // One mistake for the key is enough.
            if place_of(keys, "limit", "limit", name, known).is_none() {
                break;
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use crate::config::serve_or_proxy::proxy_of;

    #[test]
    fn a_check_says_what_a_limit_is_and_which_routes_have_it() {
        let text = "[[limit]]\nname = \"login\"\nrate = \"5/m\"\n\
                    [[limit]]\nname = \"all\"\nrate = \"2000/s\"\nby = \"header:X-Key\"\nburst = 7\ndry_run = true\n\
                    [[site]]\nhost = \"*\"\nlimit = \"all\"\n\
                    route = [ { path = \"/\", reply = 1 }, { path = \"/in\", reply = 2, limit = [\"login\"] } ]";
        let config = proxy_of(text).expect("right");
        let limits: Vec<String> = config.rates.iter().map(ToString::to_string).collect();
        assert_eq!(
            limits,
            [
                "5/m, 10 at once, for each client (/32 of IPv4, /64 of IPv6)",
                "2000/s, 7 at once, for each value of x-key, nothing is refused (dry_run)",
            ]
        );
        let summary = config.summary();
        for line in [
            "  /in  a reply of 2 bytes, limit all, login\n",
            "  /    a reply of 1 bytes, limit all\n",
            "limit \"login\": 5/m, 10 at once, for each client (/32 of IPv4, /64 of IPv6)\n",
        ] {
            assert!(summary.contains(line), "{line}{summary}");
        }
    }
}
