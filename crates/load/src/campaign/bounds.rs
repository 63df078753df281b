//! What an agent lets an order ask for: which servers, and how much. An agent that said nothing allows loopback alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use pollux_engine::{ListenAddress, look_up};
use pollux_report::number::{count, plural};

use crate::{Pace, Plan};

/// What an order may ask for.
#[derive(Clone, Debug)]
pub struct LoadBounds {
    /// Servers that may be asked; loopback alone where there is none.
    pub allowed: Vec<AllowedTarget>,
    /// Connections of one order at most, those beside the active ones too.
    pub connections_max: u64,
    /// Requests per second at most; a closed loop has no rate and is refused where this is set.
    pub rate_max: Option<f64>,
    /// How long requests of one order may be sent, warm-up included. One that ends by number ends then as well.
    pub duration_max: Duration,
    /// Bytes of all bodies of an order.
    pub body_bytes_max: u64,
    /// Threads at most.
    pub threads_max: u32,
}

/// Each thread has counters for each URL of an order with several, and times take a megabyte: so many of both together.
const COUNTED_MAX: u64 = 1024;

/// Servers that an order may name: `HOST:PORT`, `HOST`, `NETWORK/BITS:PORT` or `NETWORK/BITS`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedTarget {
    text: String,
    host: AllowedHost,
    /// Any without one.
    port: Option<u16>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum AllowedHost {
    Network {
        address: IpAddr,
        bits: u32,
    },
    /// Looked up for each order.
    Name(String),
}

impl LoadBounds {
    /// Has `plan` end in time, and says what is wrong with it, in words that name the agent's own flag. Nothing is looked up:
    /// what only a name can allow is returned, and has to be [checked](ByName::check) before anything is sent.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self, plan: &mut Plan) -> Result<ByName, String> {
        let mut by_name = ByName { bounds: self.clone(), addresses: BTreeSet::new() };
        for target in &plan.targets {
            for address in target.addresses() {
                let ListenAddress::Tcp(address) = address else {
                    return Err(format!("{address} is not an address of the network"));
                };
                if self.allows(*address) {
                    continue;
                }
                if !self.allowed.iter().any(|allowed| allowed.may_name(*address)) {
                    return Err(self.not_allowed(*address));
                }
                by_name.addresses.insert(*address);
            }
        }
        let crowd = [plan.crowd.dead, plan.crowd.silent, plan.crowd.slow];
        let connections = crowd.into_iter().chain([plan.connections]).map(u64::from).sum::<u64>();
        if connections > self.connections_max {
            let asked = plural(connections, "connection");
            let most = count(self.connections_max);
            return Err(format!("{asked}; this agent opens {most} at most (--max-connections)"));
        }
        if plan.threads > self.threads_max {
            let asked = plural(plan.threads.into(), "thread");
            let most = self.threads_max;
            return Err(format!("{asked}; this agent has {most} at most (--max-threads)"));
        }
        let counted = plan.targets.len() as u64 * u64::from(plan.threads);
        if plan.targets.len() > 1 && counted > COUNTED_MAX {
            return Err(format!(
                "{} on {}; an agent counts for {COUNTED_MAX} URLs of all its threads at most",
                plural(plan.targets.len() as u64, "URL"),
                plural(plan.threads.into(), "thread")
            ));
        }
        if let Some(most) = self.rate_max {
            let asked = rate(plan);
            if asked.is_none_or(|asked| asked > most) {
                let asked = asked.map_or_else(
                    || "a closed loop, which has no rate".to_owned(),
                    |asked| format!("{asked} requests per second"),
                );
                return Err(format!("{asked}; this agent sends {most} at most (--max-rate)"));
            }
        }
        let body_bytes = plan.targets.iter().map(|target| target.body.len() as u64).sum::<u64>();
        if body_bytes > self.body_bytes_max {
            let most = self.body_bytes_max;
            return Err(format!(
                "bodies of {body_bytes} bytes; this agent sends {most} at most (--max-body)"
            ));
        }
        let left = self.duration_max.saturating_sub(plan.warm_up);
        if left.is_zero() || plan.end.after.is_some_and(|after| after > left) {
            let asked = plan.warm_up.saturating_add(plan.end.after.unwrap_or_default());
            let most = self.duration_max;
            return Err(format!(
                "{asked:?} in all; this agent runs for {most:?} at most (--max-duration)"
            ));
        }
        plan.end.after = Some(plan.end.after.unwrap_or(left));
        Ok(by_name)
    }

    /// Whether this is allowed without a name.
    fn allows(&self, address: SocketAddr) -> bool {
        if self.allowed.is_empty() {
            address.ip().to_canonical().is_loopback()
        } else {
            self.allowed.iter().any(|allowed| allowed.allows(address))
        }
    }

    fn not_allowed(&self, address: SocketAddr) -> String {
        let allowed: Vec<&str> = self.allowed.iter().map(|each| &*each.text).collect();
        let allowed = match &*allowed {
            [] => "loopback alone".to_owned(),
            some => some.join(", "),
        };
        format!("{address} is not a target that this agent allows; it allows {allowed} (--allow)")
    }
}

/// Addresses of an order that only names can allow.
#[derive(Clone, Debug)]
pub struct ByName {
    bounds: LoadBounds,
    addresses: BTreeSet<SocketAddr>,
}

impl ByName {
    /// Looks the names up that are allowed, each once however many addresses there are, and none without any. Blocks as long
    /// as the resolver takes.
    ///
    /// # Errors
    /// A sentence: what a name does not stand for is not allowed.
    pub fn check(&self) -> Result<(), String> {
        self.check_by(|host| look_up(host).unwrap_or_default())
    }

    fn check_by(&self, mut look_up: impl FnMut(&str) -> Vec<IpAddr>) -> Result<(), String> {
        let mut left = self.addresses.clone();
        let mut known = BTreeMap::new();
        for allowed in &self.bounds.allowed {
            let AllowedHost::Name(host) = &allowed.host else { continue };
            if !left.iter().any(|address| allowed.may_name(*address)) {
                continue;
            }
            let found = known.entry(host).or_insert_with(|| look_up(host));
            let stands_for = |address: &SocketAddr| {
                let ip = address.ip().to_canonical();
                found.iter().any(|found| found.to_canonical() == ip)
            };
            left.retain(|address| !allowed.may_name(*address) || !stands_for(address));
        }
        left.first().map_or(Ok(()), |address| Err(self.bounds.not_allowed(*address)))
    }
}

/// The highest rate of this part of the schedule, with what its slow connections send; `None` of a closed loop.
fn rate(plan: &Plan) -> Option<f64> {
    let Pace::Open { stages, .. } = &plan.pace else { return None };
    let highest = stages.iter().map(|stage| stage.from_per_s.max(stage.to_per_s));
    let highest = highest.fold(0.0, f64::max) / f64::from(plan.part.of.max(1));
    let dripped = match plan.crowd.slow {
        0 => 0.0,
        slow => f64::from(slow) / plan.crowd.drip.as_secs_f64(),
    };
    Some(highest + dripped)
}

impl AllowedTarget {
    /// The name that is looked up for each order; none of an address or a network.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.host {
            AllowedHost::Name(name) => Some(name),
            AllowedHost::Network { .. } => None,
        }
    }

    /// Whether it allows this by its network.
    fn allows(&self, asked: SocketAddr) -> bool {
        match &self.host {
            AllowedHost::Network { address, bits } => {
                self.is_port(asked) && is_within(asked.ip().to_canonical(), *address, *bits)
            }
            AllowedHost::Name(_) => false,
        }
    }

    /// Whether it is a name that may stand for this.
    fn may_name(&self, asked: SocketAddr) -> bool {
        matches!(self.host, AllowedHost::Name(_)) && self.is_port(asked)
    }

    fn is_port(&self, asked: SocketAddr) -> bool {
        self.port.is_none_or(|port| port == asked.port())
    }
}

fn is_within(ip: IpAddr, network: IpAddr, bits: u32) -> bool {
    let bits_of = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    };
    let ((ip, ip_len), (network, network_len)) = (bits_of(ip), bits_of(network));
    // A shift by all bits is none.
    let differs = (ip ^ network).checked_shr(128 - bits).unwrap_or(0);
    ip_len == network_len && differs == 0
}

impl FromStr for AllowedTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!("\"{text}\": {why}; expected HOST:PORT, HOST or NETWORK/BITS[:PORT]")
        };
        let ends = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, rest) = match ends {
            Some((host, rest)) => (host, rest),
            // An address of IPv6 without brackets has no port.
            None if text.matches(':').count() > 1 => (text, ""),
            None => text.split_at(text.rfind(':').unwrap_or(text.len())),
        };
        // The bits of a network stand before its port: behind the brackets of IPv6 ones, or within what is the host.
        let (bits, port) = match rest.strip_prefix('/') {
            Some(rest) => {
                let (bits, port) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
                (Some(bits), port)
            }
            None => (None, rest),
        };
        let (host, bits) = match (host.split_once('/'), bits) {
            (Some((host, bits)), None) => (host, Some(bits)),
            (None, bits) => (host, bits),
            (Some(_), Some(_)) => return Err(wrong("bits of a network twice")),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => Some(port.parse().map_err(|_| wrong("not a port"))?),
            None if port.is_empty() => None,
            None => return Err(wrong("not a port")),
        };
        let host = match (host.parse::<IpAddr>(), bits) {
            (Ok(address), bits) => {
                let address = address.to_canonical();
                let most = if address.is_ipv4() { 32 } else { 128 };
                let bits = match bits.map(str::parse) {
                    None => most,
                    Some(Ok(bits)) if bits <= most => bits,
                    Some(_) => return Err(wrong("not a number of bits")),
                };
                AllowedHost::Network { address, bits }
            }
            (Err(_), Some(_)) => return Err(wrong("not a network")),
            (Err(_), None) => {
                let is_name = |letter: char| letter.is_alphanumeric() || "-._".contains(letter);
                if host.is_empty() || !host.chars().all(is_name) {
                    return Err(wrong("not a host"));
                }
                AllowedHost::Name(host.to_owned())
            }
        };
        Ok(Self { text: text.to_owned(), host, port })
    }
}

impl fmt::Display for AllowedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use pollux_engine::Driver;

    use super::*;
    use crate::{Arrival, Crowd, End, LoadPart, Stage, Target};

    fn bounds(allowed: &[&str]) -> LoadBounds {
        LoadBounds {
            allowed: allowed.iter().map(|text| text.parse().expect(text)).collect(),
            connections_max: 100,
            rate_max: None,
            duration_max: Duration::from_secs(60),
            body_bytes_max: 10,
            threads_max: 8,
        }
    }

    fn plan(url: &str) -> Plan {
        let target = Target::parse(url, None).expect(url);
        let end = End { requests: None, after: Some(Duration::from_secs(10)) };
        Plan { end, ..Plan::new(vec![target], Driver::PREFERRED[0]) }
    }

    #[test]
    fn only_targets_that_are_named_are_allowed() {
        for (allowed, url, is_allowed) in [
            ("", "http://127.0.0.1:1/", true),
            ("", "http://[::1]:1/", true),
            ("", "http://[::ffff:127.0.0.1]:1/", true),
            ("", "http://10.0.0.1:1/", false),
            ("10.0.0.1", "http://127.0.0.1:1/", false),
            ("10.0.0.1:80", "http://10.0.0.1/", true),
            ("10.0.0.1:80", "http://10.0.0.1:81/", false),
            ("10.0.0.0/24", "http://10.0.0.255:9/", true),
            ("10.0.0.0/24", "http://10.0.1.0:9/", false),
            ("10.0.0.0/24:9", "http://10.0.0.7:9/", true),
            ("10.0.0.0/24:9", "http://10.0.0.7:8/", false),
            ("0.0.0.0/0", "http://192.0.2.1/", true),
            ("0.0.0.0/0", "http://[2001:db8::1]/", false),
            ("[2001:db8::]/32:80", "http://[2001:db8::1]/", true),
            ("2001:db8::/32", "http://[2001:db9::1]/", false),
            ("localhost:8080", "http://127.0.0.1:8080/", true),
            ("localhost:8080", "http://10.0.0.1:8080/", false),
        ] {
            let bounds =
                bounds(if allowed.is_empty() { &[] } else { std::slice::from_ref(&allowed) });
            let checked = bounds.check(&mut plan(url)).and_then(|by_name| by_name.check());
            assert_eq!(checked.is_ok(), is_allowed, "{allowed} {url}: {checked:?}");
            if let Err(why) = checked {
                assert!(why.contains("--allow"), "{why}");
            }
        }
    }

    #[test]
    fn a_name_is_looked_up_once_and_only_where_no_network_allows() {
        let bounds = bounds(&["10.0.0.0/8", "a.test", "a.test:81", "b.test:80", "c.test:81"]);
        let mut asked = Vec::new();
        let mut check = |plan: &mut Plan| {
            asked.clear();
            let by_name = bounds.check(plan).expect("a name may allow it");
            let checked = by_name.check_by(|host| {
                asked.push(host.to_owned());
                let last = if host == "a.test" { 1 } else { 2 };
                vec![IpAddr::from([192, 0, 2, last])]
            });
            (checked, asked.clone())
        };
        assert_eq!(check(&mut plan("http://10.0.0.1/")), (Ok(()), Vec::new()));
        let mut many = plan("http://192.0.2.2/");
        for port in 1..60_000 {
            many.targets[0].further.push(SocketAddr::from(([192, 0, 2, 1], port)).into());
        }
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        assert_eq!(check(&mut many), (Ok(()), names(&["a.test", "b.test"])));
        let (checked, asked) = check(&mut plan("http://192.0.2.3/"));
        let why = checked.expect_err("no name stands for it");
        assert!(why.starts_with("192.0.2.3:80 is not") && why.contains("(--allow)"), "{why}");
        assert_eq!(asked, names(&["a.test", "b.test"]));
    }

    #[test]
    fn further_addresses_of_a_target_are_targets_too() {
        let mut plan = plan("http://127.0.0.1:1/");
        plan.targets[0].further.push(SocketAddr::from(([10, 0, 0, 1], 1)).into());
        assert!(bounds(&[]).check(&mut plan).is_err());
    }

    #[test]
    fn more_than_the_flags_of_the_agent_allow_is_refused_by_the_flag() {
        let stage = Stage { from_per_s: 100.0, to_per_s: 900.0, lasts: None };
        let open = |of| Plan {
            pace: Pace::Open { arrival: Arrival::Constant, stages: vec![stage] },
            part: LoadPart { number: 0, of },
            ..plan("http://127.0.0.1:1/")
        };
        let slow = LoadBounds { rate_max: Some(300.0), ..bounds(&[]) };
        assert_eq!(slow.check(&mut open(3)).err(), None);
        let mut long = plan("http://127.0.0.1:1/");
        long.end.after = Some(Duration::from_secs(61));
        let mut large = plan("http://127.0.0.1:1/");
        large.targets[0].body = vec![0; 11];
        let crowded = Plan { connections: 101, ..plan("http://127.0.0.1:1/") };
        let wide = Plan { threads: 9, ..plan("http://127.0.0.1:1/") };
        // A byte of each in each millisecond.
        let drip = Duration::from_millis(1);
        let dripping = Plan { crowd: Crowd { slow: 1, drip, ..Crowd::default() }, ..open(3) };
        for (bounds, mut plan, flag) in [
            (&slow, open(2), "--max-rate"),
            (&slow, plan("http://127.0.0.1:1/"), "--max-rate"),
            (&bounds(&[]), long, "--max-duration"),
            (&bounds(&[]), large, "--max-body"),
            (&bounds(&[]), crowded, "--max-connections"),
            (&bounds(&[]), wide, "--max-threads"),
            (&slow, dripping, "--max-rate"),
        ] {
            let why = bounds.check(&mut plan).expect_err(flag);
            assert!(why.contains(flag), "{why}");
        }
        let mut many = Plan { threads: 8, ..plan("http://127.0.0.1:1/") };
        many.targets = vec![many.targets[0].clone(); 129];
        let why = bounds(&[]).check(&mut many).expect_err("a gigabyte of counters");
        assert!(why.starts_with("129 URLs on 8 threads; "), "{why}");
        many.targets.pop();
        assert_eq!(bounds(&[]).check(&mut many).err(), None);
        let mut counted = plan("http://127.0.0.1:1/");
        counted.end = End { requests: Some(5), after: None };
        assert_eq!(bounds(&[]).check(&mut counted).err(), None);
        assert_eq!(counted.end.after, Some(Duration::from_secs(60)));
    }

    #[test]
    fn texts_that_name_no_target_say_what_is_expected() {
        for text in ["", ":80", "a:b", "10.0.0.0/33", "a/8", "10.0.0.1:70000", "[::1]x", "a b"] {
            let error = text.parse::<AllowedTarget>().expect_err(text);
            assert!(error.contains("expected HOST:PORT"), "{error}");
        }
    }
}
