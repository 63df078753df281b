//! What a run does: everything that the flags of `pollux load` and the lab can ask for, with its targets, and what
//! is wrong with a plan before anything is opened.
//!
//! A plan is plain data; [`Load`](crate::Load) carries it out. Every refusal names the flag of `pollux load` and what is
//! expected.

mod http2;

use std::io;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Address, CpuList, Driver, ListenAddress, ListenError, look_up};
use pollux_report::number::{count, plural};
use pollux_sys::descriptors;
use pollux_tls::{Keys, Trust};
use url::{Host, Url};

use crate::resolving::with_port;
use crate::{LoadError, Objective, Protocol, RequestList, RequestOrder};

/// Windows of HTTP/2 that never hold up a server: what comes is read at once, so they cost no memory.
pub const WINDOW_BYTES: u32 = 1 << 30;
/// Requests under way on one connection at most.
pub const PIPELINE_MAX: u32 = 1024;
/// Threads at most: far more than machines that have a use for them have CPUs.
pub const THREADS_MAX: u32 = 1024;
/// Parts of a load at most, each of a generator.
pub const PARTS_MAX: u32 = 4096;
/// Descriptors that a run needs beside its connections: loops, timers, files of the program.
const DESCRIPTORS_OVER: u64 = 32;
/// And for each thread.
const DESCRIPTORS_PER_THREAD: u64 = 8;
/// What a URL looks like.
const FORM: &str = "expected http://HOST[:PORT]/PATH or https://…";

/// One run of the generator.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is asked for; each request takes one of them by weight. At least one, all at the
    /// same address.
    pub targets: Vec<Target>,
    /// Requests that active connections send instead of those of the one target, which says where
    /// to; none of it is counted apart.
    pub list: Option<(Arc<RequestList>, RequestOrder)>,
    /// The loop that the generator itself runs on.
    pub driver: Driver,
    /// Loops, each on a thread of its own.
    pub threads: u32,
    /// CPUs that the threads are pinned to, in turn; unpinned when there is none.
    pub cpus: Option<CpuList>,
    /// Active connections over all threads; at least one for each thread, or none beside a crowd.
    pub connections: u32,
    /// When requests begin.
    pub pace: Pace,
    /// When the run ends; at least one of both is set.
    pub end: End,
    /// Time at the start whose requests are sent but not counted.
    pub warm_up: Duration,
    /// After so many requests a connection is closed and opened anew.
    pub requests_per_connection: Option<NonZeroU32>,
    /// Connections that were opened and have had no answer yet, at most, on each thread: a server may not have accepted
    /// them, and what does not fit into its backlog is tried again by the kernel after a second only.
    pub unproven_max: Option<NonZeroU32>,
    /// Requests that may be under way on one connection of HTTP/1.1 at the same time; 1 means without pipelining.
    pub pipeline: u32,
    /// Which HTTP is spoken.
    pub http: Protocol,
    /// Requests that may be under way on one connection of HTTP/2 at the same time, each on a stream.
    pub streams: u32,
    /// Bytes of an answer's body that a server may send on a stream of HTTP/2 before they were read.
    pub stream_window: u32,
    /// The same of all streams of a connection together.
    pub connection_window: u32,
    /// Time between a response and the next request of a connection (closed loop only).
    pub think_time: Duration,
    /// A connect that takes longer has failed.
    pub connect_timeout: Duration,
    /// A response that is not complete so long after its request was sent is a failure, and
    /// its connection is closed.
    pub request_timeout: Duration,
    /// How long answers are waited for after the last request has begun, when a run ends by its
    /// time: what is out then counts as [`Outcome::unanswered`](crate::Outcome::unanswered).
    pub grace: Duration,
    /// Which answers are right.
    pub expect: Expect,
    /// What the figures have to keep to, if anything.
    pub objectives: Vec<Objective>,
    /// Quantiles of the times that the result shows, 0 to 1 and rising; those of
    /// [`SHOWN`](crate::SHOWN) when there is none.
    pub quantiles: Vec<f64>,
    /// Addresses that connections come from, in turn; the kernel chooses when there is none.
    pub sources: Vec<IpAddr>,
    /// Connections beside the active ones.
    pub crowd: Crowd,
    /// Which certificates are trusted, for targets with `https`.
    pub trust: Trust,
    /// Whether connections resume TLS sessions of earlier ones; without, each makes a full handshake.
    pub resumes: bool,
    /// Whether each active connection keeps the cookies that its server sets, and sends them.
    pub keeps_cookies: bool,
    /// The certificate that the generator shows where a server asks for one, for targets with `https`.
    pub identity: Option<Keys>,
    /// A server on this machine whose CPU time is shown, with that of all that it starts.
    pub server_pid: Option<u32>,
    /// Seed of everything random: Poisson arrivals, the choice among targets.
    pub seed: u64,
    /// Which part of a load this is, where several generators put it on a server together.
    pub part: LoadPart,
}

/// One generator's part of a load. The schedule of an open loop is that of the whole load: of each request this
/// generator sends those that its threads would send if all threads of all generators were those of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadPart {
    /// Its number, from 0.
    pub number: u32,
    /// How many parts there are.
    pub of: u32,
}

impl LoadPart {
    /// The whole load.
    pub const WHOLE: Self = Self { number: 0, of: 1 };
}

impl Plan {
    /// A closed loop over one connection on one thread, on which all answers are right and nothing is pipelined, with
    /// time limits of ten seconds. Its end is the caller's to set.
    #[must_use]
    pub fn new(targets: Vec<Target>, driver: Driver) -> Self {
        const LIMIT: Duration = Duration::from_secs(10);
        Self {
            targets,
            list: None,
            driver,
            threads: 1,
            cpus: None,
            connections: 1,
            pace: Pace::Closed,
            end: End::default(),
            warm_up: Duration::ZERO,
            requests_per_connection: None,
            unproven_max: None,
            pipeline: 1,
            http: Protocol::Http1,
            streams: 1,
            stream_window: WINDOW_BYTES,
            connection_window: WINDOW_BYTES,
            think_time: Duration::ZERO,
            connect_timeout: LIMIT,
            request_timeout: LIMIT,
            grace: LIMIT,
            expect: Expect::default(),
            objectives: Vec::new(),
            quantiles: Vec::new(),
            sources: Vec::new(),
            crowd: Crowd::default(),
            trust: Trust::default(),
            resumes: true,
            keeps_cookies: false,
            identity: None,
            server_pid: None,
            seed: 0,
            part: LoadPart::WHOLE,
        }
    }

    /// The number of a thread among those of all parts, and how many these are.
    pub(crate) fn thread_of_all(&self, thread: u32) -> (u32, u32) {
        (self.part.number * self.threads + thread, self.part.of * self.threads)
    }

    /// Whether HTTP/2 may be spoken.
    pub(crate) fn may_be_http2(&self) -> bool {
        self.http.may_be_http2(self.targets.first().is_some_and(|first| first.tls_name.is_some()))
    }

    /// Whether a connection carries one request only.
    pub(crate) fn closes_after_one(&self) -> bool {
        self.requests_per_connection.is_some_and(|limit| limit.get() == 1)
    }
}

/// When requests begin.
#[derive(Clone, PartialEq, Debug)]
pub enum Pace {
    /// Each connection asks again as soon as it was answered: the server sets the rate.
    Closed,
    /// Requests begin by a schedule, whether or not earlier ones were answered.
    Open {
        /// The distances between them.
        arrival: Arrival,
        /// One after the other; the last one's rate holds until the end.
        stages: Vec<Stage>,
    },
}

/// How the distances between requests are distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// All alike.
    Constant,
    /// Exponentially, as independent users would come.
    Poisson,
}

/// A part of an open loop's schedule. Its rate goes from one value to the other in a straight
/// line; alike, they are a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stage {
    /// Requests per second over all threads at its start.
    pub from_per_s: f64,
    /// And at its end.
    pub to_per_s: f64,
    /// How long it lasts; `None`: until the run ends (the last one only).
    pub lasts: Option<Duration>,
}

/// When a run ends. What is under way then is waited for: at most [`Plan::grace`] after a time
/// (a second, while the server says nothing at all any more), at most the request's time limit
/// after a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// After so many requests, without those of the warm-up.
    pub requests: Option<u64>,
    /// After this time, without the warm-up.
    pub after: Option<Duration>,
}

/// What an answer must be to count as right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Expect {
    /// Its status; `None`: any of 200 to 399, of which redirects are counted apart.
    pub status: Option<u16>,
    /// The length of its body in bytes; `None`: any.
    pub body_bytes: Option<u64>,
}

/// Connections that are open beside the active ones. They are set up before the first request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crowd {
    /// Ask once, read the answer, then never send again.
    pub dead: u32,
    /// Never send anything.
    pub silent: u32,
    /// Send a request byte by byte, [`Crowd::drip`] apart, for ever.
    pub slow: u32,
    /// Time between two bytes of a slow connection.
    pub drip: Duration,
}

impl Crowd {
    /// All of them.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.dead + self.silent + self.slow
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Crowd {
    fn default() -> Self {
        Self { dead: 0, silent: 0, slow: 0, drip: Duration::from_secs(1) }
    }
}

/// Says what is wrong with `plan`.
///
/// # Errors
/// [`LoadError::Plan`].
pub(crate) fn check(plan: &Plan) -> Result<(), LoadError> {
    targets(plan)?;
    http2::check(plan)?;
    numbers(plan)?;
    cpus(plan)?;
    pace(plan)?;
    sources(plan)?;
    fits_descriptors(plan)
}

pub(crate) fn refuse<T>(what: &'static str, why: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError::Plan { what, why: why.into() })
}

fn targets(plan: &Plan) -> Result<(), LoadError> {
    let Some(first) = plan.targets.first() else {
        return refuse("URL", "missing; expected an http:// or https:// URL");
    };
    if plan.list.as_ref().is_some_and(|(list, _)| list.is_empty()) {
        return refuse("requests", "the list of them is empty");
    }
    if plan.list.is_some() && plan.targets.len() > 1 {
        return refuse("URL", "a list of requests goes to one URL; give one");
    }
    let of_list = plan.list.as_ref().is_some_and(|(list, _)| list.has_cookie());
    if plan.keeps_cookies
        && (of_list || plan.targets.iter().any(|target| target.has_field("cookie")))
    {
        return refuse(
            "--cookies",
            "a request has a Cookie field of its own; leave one of both out",
        );
    }
    for target in &plan.targets {
        if !target.is_beside(first) {
            let why = format!(
                "{} and {} have different addresses; expected URLs of one server",
                first.url, target.url
            );
            return refuse("URL", why);
        }
        if target.weight == 0 {
            return refuse("URL", format!("{} has weight 0; leave it out", target.url));
        }
        if target.tls_name != first.tls_name {
            let why = format!(
                "{} and {} differ in encryption or name; expected URLs of one server, which share connections",
                first.url, target.url
            );
            return refuse("URL", why);
        }
    }
    Ok(())
}

fn numbers(plan: &Plan) -> Result<(), LoadError> {
    if !(1..=THREADS_MAX).contains(&plan.threads) {
        return refuse("--threads", format!("it is {}, not 1 to {THREADS_MAX}", plan.threads));
    }
    let is_crowd_only = plan.connections == 0 && !plan.crowd.is_empty();
    if plan.connections < plan.threads && !is_crowd_only {
        let connections = plan.connections;
        let threads = plan.threads;
        let threads = plural(threads.into(), "thread");
        let why = format!("{connections} for {threads}; each thread needs at least one");
        return refuse("--connections", why);
    }
    if !(1..=PIPELINE_MAX).contains(&plan.pipeline) {
        return refuse("--pipeline", format!("it is {}, not 1 to {PIPELINE_MAX}", plan.pipeline));
    }
    let LoadPart { number, of } = plan.part;
    if number >= of || of > PARTS_MAX {
        return refuse(
            "--agents",
            format!("part {number} of {of}; there are 1 to {PARTS_MAX} of them"),
        );
    }
    if plan.end.requests.is_none() && plan.end.after.is_none() {
        return refuse("--duration", "the run has no end; give a duration or --requests");
    }
    if plan.end.requests == Some(0) || plan.end.after.is_some_and(|after| after.is_zero()) {
        return refuse("--duration", "the run would end before it begins");
    }
    if plan.connect_timeout.is_zero() || plan.request_timeout.is_zero() {
        return refuse("--timeout", "it is zero; everything would fail");
    }
    if plan.crowd.slow > 0 && plan.crowd.drip.is_zero() {
        return refuse("--drip", "it is zero; a slow connection waits between its bytes");
    }
    Ok(())
}

/// Each CPU of the list has to be there, also those that no thread comes to.
fn cpus(plan: &Plan) -> Result<(), LoadError> {
    let Some(cpus) = &plan.cpus else { return Ok(()) };
    cpus.check().map_err(|error| LoadError::Plan { what: "--cpus", why: error.to_string() })
}

fn pace(plan: &Plan) -> Result<(), LoadError> {
    let has_think_time = !plan.think_time.is_zero();
    match &plan.pace {
        Pace::Closed if has_think_time && plan.pipeline > 1 => refuse(
            "--think",
            "with --pipeline it is not clear after which answer to think; use one of both",
        ),
        Pace::Closed => Ok(()),
        Pace::Open { .. } if has_think_time => {
            refuse("--think", "with --rate the schedule says when requests begin")
        }
        Pace::Open { stages, .. } => {
            rate(stages)?;
            let falls_to_zero = stages.last().is_some_and(|stage| stage.to_per_s == 0.0);
            if falls_to_zero && plan.end.after.is_none() {
                refuse(
                    "--rate",
                    "it ends at zero, and what is missing of --requests then would never come; \
                     give --duration too",
                )
            } else {
                Ok(())
            }
        }
    }
}

fn rate(stages: &[Stage]) -> Result<(), LoadError> {
    let is_rate = |rate: f64| rate.is_finite() && rate >= 0.0;
    for (number, stage) in stages.iter().enumerate() {
        if !is_rate(stage.from_per_s) || !is_rate(stage.to_per_s) {
            return refuse("--rate", format!("stage {} is not a rate", number + 1));
        }
        if stage.lasts.is_none() && number + 1 < stages.len() {
            return refuse("--rate", format!("stage {} has no end; only the last may", number + 1));
        }
    }
    if stages.iter().all(|stage| stage.from_per_s == 0.0 && stage.to_per_s == 0.0) {
        return refuse("--rate", "nothing would ever be asked for");
    }
    Ok(())
}

fn sources(plan: &Plan) -> Result<(), LoadError> {
    let is_wrong = |source: &&IpAddr| match &plan.targets[0].address {
        ListenAddress::Tcp(address) => address.is_ipv4() != source.is_ipv4(),
        ListenAddress::Unix(_) => true,
    };
    match plan.sources.iter().find(is_wrong) {
        None => Ok(()),
        Some(source) => {
            let address = &plan.targets[0].address;
            refuse("--source", format!("no connection to {address} can come from {source}"))
        }
    }?;
    plan.sources.iter().try_for_each(is_ours)
}

/// Whether something can be bound to `source`. Only an address that is not of this machine is
/// refused: whatever else fails says so when connections are opened.
fn is_ours(source: &IpAddr) -> Result<(), LoadError> {
    match UdpSocket::bind((*source, 0)) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => refuse(
            "--source",
            format!("{source} is not an address of this machine (`ip addr` lists them)"),
        ),
        _ => Ok(()),
    }
}

fn fits_descriptors(plan: &Plan) -> Result<(), LoadError> {
    let crowd = [plan.crowd.dead, plan.crowd.silent, plan.crowd.slow];
    // A connection whose server ends it (GOAWAY) stays until its last answer, beside the one that takes its place.
    let active = u64::from(plan.connections) * if plan.may_be_http2() { 2 } else { 1 };
    let connections = crowd.map(u64::from).iter().sum::<u64>() + active;
    let over = DESCRIPTORS_OVER + DESCRIPTORS_PER_THREAD * u64::from(plan.threads);
    let needed = connections + over;
    let limit = descriptors::Limit::here();
    if needed <= limit.soft {
        return Ok(());
    }
    let threads = if plan.threads > 1 { plan.threads } else { 0 };
    let parts = [
        ("--connections", plan.connections),
        ("--dead", plan.crowd.dead),
        ("--silent", plan.crowd.silent),
        ("--slow", plan.crowd.slow),
        ("--threads", threads),
    ];
    let parts = parts.iter().filter(|(_, of_it)| *of_it > 0);
    let parts: Vec<_> = parts.map(|(flag, of_it)| format!("{flag} {of_it}")).collect();
    let why = format!(
        "{} need {}; this process may have {}; {}",
        parts.join(" + "),
        plural(needed, "descriptor"),
        count(limit.soft),
        limit.remedy(needed)
    );
    Err(LoadError::Descriptors { why })
}

/// One request that is sent again and again: a URL with method, fields and body, and where its server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// As it was given.
    pub url: String,
    /// Where its server is.
    pub address: ListenAddress,
    /// Other addresses of the same name, which are tried where that one takes no connection; [`Plan::reach`] does it.
    pub further: Vec<ListenAddress>,
    /// Those that were tried before it.
    pub in_vain: Vec<ListenAddress>,
    /// Whether the connection is encrypted, and the name that the server's certificate is for.
    pub tls_name: Option<String>,
    /// What the Host field says.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// GET unless something else was asked for.
    pub method: String,
    /// Further fields, in order.
    pub fields: Vec<(String, String)>,
    /// Sent with a Content-Length when it is not empty.
    pub body: Vec<u8>,
    /// How often it is chosen, in relation to the others; at least 1.
    pub weight: u32,
}

impl Target {
    /// A GET of `url`, which begins with `http://` or `https://`. `instead` is where to connect to
    /// in place of the URL's host, whose name is not looked up then. An IPv6 address of one link has its interface behind
    /// `%`, or `%25` (RFC 6874).
    ///
    /// # Errors
    /// [`LoadError::Url`] says what is wrong with it. A host name is looked up here:
    /// [`LoadError::Lookup`] when that fails.
    pub fn parse(url: &str, instead: Option<&Address>) -> Result<Self, LoadError> {
        let wrong = |why: String| LoadError::Url { url: url.to_owned(), why };
        // Without it "localhost:8080" would have the scheme "localhost".
        if !url.contains("://") {
            return Err(wrong(without_scheme(url)));
        }
        if let Some(right) = with_brackets(url) {
            let why = "an IPv6 address without its brackets";
            return Err(wrong(format!("{why}; expected such as {right}")));
        }
        // The interface is this machine's: neither Host nor a certificate has it (RFC 6874, section 4).
        let (plain, interface) = without_interface(url);
        let parsed = Url::parse(&plain).map_err(|error| wrong(format!("{error}; {FORM}")))?;
        let is_encrypted = match parsed.scheme() {
            "http" => false,
            "https" => true,
            other => return Err(wrong(format!("unknown scheme \"{other}\"; {FORM}"))),
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(wrong(
                "it has a user name; expected that in --user NAME:PASSWORD".to_owned(),
            ));
        }
        let host = parsed.host().ok_or_else(|| wrong(format!("no host; {FORM}")))?;
        let port = parsed.port_or_known_default().unwrap_or(80);
        let mut addresses = match (instead, interface) {
            (Some(address), _) => look_up_address(address)?,
            (None, interface) if interface.is_some() || is_of_one_link(&host) => {
                let scope = interface.map(|interface| format!("%{interface}")).unwrap_or_default();
                let written = format!("[{}{scope}]:{port}", bare(&host));
                let address: Address = written.parse().map_err(|error| match error {
                    ListenError::Address { why, .. } => {
                        wrong(format!("{why} (`ip link` lists them)"))
                    }
                    other => wrong(other.to_string()),
                })?;
                look_up_address(&address)?
            }
            (None, _) => resolve(&host, port)?,
        };
        let address = addresses.remove(0);
        Ok(Self {
            url: url.to_owned(),
            address,
            further: addresses,
            in_vain: Vec::new(),
            tls_name: is_encrypted.then(|| bare(&host)),
            host: match parsed.port() {
                Some(port) => format!("{host}:{port}"),
                None => host.to_string(),
            },
            path: parsed[url::Position::BeforePath..url::Position::AfterQuery].to_owned(),
            method: "GET".to_owned(),
            fields: Vec::new(),
            body: Vec::new(),
            weight: 1,
        })
    }
}

impl Target {
    /// Whether it has a further field of this name.
    pub(crate) fn has_field(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| field.eq_ignore_ascii_case(name))
    }
}

/// What is wrong with a URL that has no `://`.
fn without_scheme(url: &str) -> String {
    if let Some(path) = url.strip_prefix("unix:") {
        return format!(
            "no scheme; the socket is named apart: expected http://localhost/ with --unix {path}"
        );
    }
    let after = |scheme: &str| url.strip_prefix(scheme)?.strip_prefix(':');
    if let Some((scheme, rest)) =
        ["http", "https"].into_iter().find_map(|scheme| Some((scheme, after(scheme)?)))
    {
        let (slashes, rest) = match rest.strip_prefix('/') {
            Some(rest) => ("one slash", rest),
            None => ("no slashes", rest),
        };
        return format!("{slashes} behind {scheme}:; expected {scheme}://{rest}");
    }
    let rest = url.trim_start_matches('/');
    format!("no scheme; expected http://{rest} or https://{rest}")
}

/// Whether an address is of one link, so that it means nothing without its interface (RFC 4007).
fn is_of_one_link(host: &Host<&str>) -> bool {
    matches!(host, Host::Ipv6(address) if address.is_unicast_link_local())
}

/// The URL with brackets around the IPv6 address that it has instead of a host, if it has one without.
fn with_brackets(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.starts_with('[') || authority.matches(':').count() < 2 {
        return None;
    }
    let is_address = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    let with_port = authority
        .rsplit_once(':')
        .filter(|(host, port)| is_address(host) && port.parse::<u16>().is_ok_and(|port| port > 0));
    match with_port {
        Some((host, port)) => Some(format!("{scheme}://[{host}]:{port}{path}")),
        None if is_address(authority) => Some(format!("{scheme}://[{authority}]{path}")),
        None => None,
    }
}

/// Every address of the host, at least one, in the order in which they are tried.
fn resolve(host: &Host<&str>, port: u16) -> Result<Vec<ListenAddress>, LoadError> {
    let found = match host {
        Host::Ipv4(address) => vec![IpAddr::V4(*address)],
        Host::Ipv6(address) => vec![IpAddr::V6(*address)],
        Host::Domain(name) => {
            let failed = |source| LoadError::Lookup { host: (*name).to_owned(), source };
            look_up(name).map_err(failed)?
        }
    };
    Ok(with_port(found, port))
}

/// The same of an address that was named beside the URL.
fn look_up_address(address: &Address) -> Result<Vec<ListenAddress>, LoadError> {
    let host = || match address {
        Address::Name { host, .. } => host.clone(),
        Address::Known(known) => known.to_string(),
    };
    address.look_up().map_err(|source| LoadError::Lookup { host: host(), source })
}

/// The URL without the interface of its IPv6 address, which a URL can't hold, and the interface.
fn without_interface(url: &str) -> (String, Option<&str>) {
    let whole = || (url.to_owned(), None);
    let Some(begin) = url.find("://[").map(|at| at + 4) else { return whole() };
    let Some(end) = url[begin..].find(']').map(|at| begin + at) else { return whole() };
    let Some(percent) = url[begin..end].find('%').map(|at| begin + at) else { return whole() };
    let interface = &url[percent + 1..end];
    let interface =
        interface.strip_prefix("25").filter(|rest| !rest.is_empty()).unwrap_or(interface);
    (format!("{}{}", &url[..percent], &url[end..]), Some(interface))
}

/// The host as certificates name it: an IPv6 address without brackets.
fn bare(host: &Host<&str>) -> String {
    match host {
        Host::Ipv6(address) => address.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_becomes_address_host_and_path() {
        let target = Target::parse("http://127.0.0.1:8080/a?b=c#d", None).expect("a URL");
        assert_eq!(target.address.to_string(), "127.0.0.1:8080");
        assert_eq!((&*target.host, &*target.path), ("127.0.0.1:8080", "/a?b=c"));
        assert_eq!(target.tls_name, None);
    }

    #[test]
    fn the_port_of_the_scheme_is_left_out_of_the_host() {
        let target = Target::parse("https://[::1]", None).expect("a URL");
        assert_eq!((target.address.to_string(), &*target.host), ("[::1]:443".into(), "[::1]"));
        assert_eq!((target.tls_name.as_deref(), &*target.path), (Some("::1"), "/"));
    }

    #[test]
    fn a_unix_socket_takes_the_place_of_the_host() {
        let socket = ListenAddress::Unix("/run/s".into()).into();
        let target = Target::parse("http://app/x", Some(&socket)).expect("a URL");
        assert_eq!((target.address.to_string(), &*target.host), ("unix:/run/s".into(), "app"));
    }

    #[test]
    fn an_address_of_one_link_has_its_interface_and_keeps_it_to_itself() {
        let scope = |url: &str| {
            let target = Target::parse(url, None).expect(url);
            assert_eq!((&*target.host, &*target.path), ("[fe80::1]:8080", "/a%20b"));
            assert_eq!(target.further, []);
            match target.address {
                ListenAddress::Tcp(std::net::SocketAddr::V6(address)) => address.scope_id(),
                other => panic!("{other}"),
            }
        };
        let by_name = scope("http://[fe80::1%lo]:8080/a%20b");
        assert_ne!(by_name, 0);
        assert_eq!(scope("http://[fe80::1%25lo]:8080/a%20b"), by_name);
        assert_eq!(scope(&format!("http://[fe80::1%{by_name}]:8080/a%20b")), by_name);
        let secure = Target::parse("https://[fe80::1%lo]/", None).expect("a URL");
        assert_eq!(secure.tls_name.as_deref(), Some("fe80::1"));
        let error =
            Target::parse("http://[fe80::1%nowhere]/", None).expect_err("no such interface");
        assert!(error.to_string().contains("no interface \"nowhere\""), "{error}");
    }

    #[test]
    fn a_name_has_all_its_addresses() {
        let known = Address::Name { host: "localhost".to_owned(), port: 7 };
        let known = known.look_up().expect("every machine has it");
        for instead in [None, Some(Address::Name { host: "localhost".to_owned(), port: 7 })] {
            let target = Target::parse("http://localhost:7/", instead.as_ref()).expect("a URL");
            let all: Vec<ListenAddress> = target.addresses().cloned().collect();
            assert_eq!(all, known);
        }
    }

    #[test]
    fn wrong_urls_say_what_is_wrong() {
        for (url, why) in [
            ("localhost:80/", "scheme"),
            ("http:/127.0.0.1/a", "one slash behind http:; expected http://127.0.0.1/a"),
            ("http:127.0.0.1/a", "no slashes behind http:; expected http://127.0.0.1/a"),
            ("https:a.example", "no slashes behind https:; expected https://a.example"),
            ("//a.example/x", "no scheme; expected http://a.example/x or https://a.example/x"),
            ("unix:/run/a.sock", "http://localhost/ with --unix /run/a.sock"),
            (
                "http://[fe80::1]/",
                "fe80::1 needs the interface of its link, such as [fe80::1%eth0]",
            ),
            ("http://::1:8097/", "without its brackets; expected such as http://[::1]:8097/"),
            ("https://fe80::1", "expected such as https://[fe80::1]"),
            ("http://", "host"),
            ("http://a@127.0.0.1/", "user name"),
            ("ftp://127.0.0.1/", "scheme"),
        ] {
            let error = Target::parse(url, None).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn the_flags_that_ask_for_too_many_descriptors_are_named() {
        let target = Target::parse("http://127.0.0.1:1/", None).expect("a URL");
        // The kernel allows no process so many.
        let crowd = Crowd { dead: 4_000_000_000, silent: 5, ..Crowd::default() };
        let plan = Plan { connections: 64, crowd, ..Plan::new(vec![target], Driver::default()) };
        let said = fits_descriptors(&plan).expect_err("too many").to_string();
        let start = "--connections 64 + --dead 4000000000 + --silent 5 need 4,000,000,109 descriptors; this \
                     process may have ";
        assert!(said.starts_with(start) && said.contains("LimitNOFILE=4000000109"), "{said}");
    }

    #[test]
    fn an_unknown_name_is_not_a_mistake_in_the_url() {
        // RFC 6761: no name below it has an address.
        let error = Target::parse("http://pollux.invalid/", None).expect_err("no such host");
        assert!(matches!(error, LoadError::Lookup { ref host, .. } if host == "pollux.invalid"));
    }
}
