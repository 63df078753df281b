//! What a server says of itself: in words at its start, for `--check` and for the endpoints; and once a second
//! to the error log, what its counters mean. For a watchdog it finds loops that hang.
//!
//! ```text
//!  Free ── a loop paused for want of room ──► Full ── no pause since, and room in every loop ──► Free
//!            "connections are full"                     "there is room for connections again"
//! ```
//!
//! The thread that waits for signals observes.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pollux_engine::{Counter, Driver, ListenAddress};
use pollux_sys::descriptors::RAISED_BY;

use crate::config::descriptors::{connections_max, connections_within, limit, remedy_for};
use crate::config::{Answer, LogTarget, SandboxMode, ServeConfig};
use crate::config::{Check, Frontend, GroupConfig, Limits, Mode, ProxyConfig, ProxyLimits};
use crate::counters::ServerCounter;
use crate::log::{ErrorLog, Event};
use crate::run::stats::LoopSource;

/// What a server configured so would do, in lines.
pub(super) fn summary(config: &ServeConfig) -> String {
    let facts = facts(config, config.listen.iter());
    let extras = extras(config);
    let poller = config.loops.poller.map_or("the best that the kernel allows", Driver::name);
    let loops = [("poller", poller.to_owned()), ("threads", config.loops.threads.to_string())];
    let loops = loops.map(|(name, value)| (name.to_owned(), value));
    let all = facts.into_iter().chain(extras).chain(loops);
    all.map(|(name, value)| format!("{name}: {value}\n")).collect()
}

/// What is added to answers, and where logs and endpoints are: what was asked for alone.
fn extras(config: &ServeConfig) -> Vec<(String, String)> {
    let ServeConfig { answer, extras, monitoring, .. } = config;
    let mut all: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
    if let Answer::Files(files) = answer {
        if let Some(page) = &files.spa {
            add("spa", files.root.join(page).display().to_string());
        }
        let forms = [
            ("listing", files.listing_max.is_some()),
            ("precompressed", files.has_precompressed),
            ("compress", files.compresses),
        ];
        let on = forms.into_iter().filter(|(_, is_on)| *is_on);
        on.for_each(|(name, _)| add(name, "true".to_owned()));
    }
    for (status, page) in &extras.error_pages {
        add("error-page", format!("{status} {}", page.display()));
    }
    extras.fields.iter().for_each(|rule| add("response-field", rule.to_string()));
    extras.cors.iter().for_each(|origin| add("cors", origin.clone()));
    let format = monitoring.access_log_format.name();
    if let Some(target) = &monitoring.access_log {
        add("access-log", format!("{} ({format})", target.path().display()));
    }
    let level = monitoring.log_level.name();
    add("error-log", format!("{} ({level})", monitoring.error_log.path().display()));
    if let Some(address) = &monitoring.stats {
        add("stats", address.to_string());
    }
    if let Some(path) = &monitoring.control {
        add("control", format!("unix:{}", path.display()));
    }
    if let Some(path) = &monitoring.pid_file {
        add("pid-file", path.display().to_string());
    }
    if let Some(user) = &config.identity {
        add("user", user.name().to_owned());
    }
    let sandbox = match config.sandbox.mode {
        SandboxMode::Off => "off",
        SandboxMode::Available => "as much as the kernel allows",
        SandboxMode::Required => "required",
    };
    add("sandbox", sandbox.to_owned());
    all
}

pub(super) fn facts(
    config: &ServeConfig,
    addresses: impl IntoIterator<Item: ToString>,
) -> Vec<(String, String)> {
    let limits = &config.limits;
    let listen = addresses.into_iter().map(|address| ("listen", address.to_string()));
    let tls = config
        .tls
        .as_ref()
        .map_or_else(|| "none".to_owned(), |keys| keys.cert.display().to_string());
    let pin = config.loops.pin.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let others = [
        ("answer", answer(&config.answer)),
        ("cert", tls),
        ("listeners", config.loops.listeners.to_string()),
        ("pin", pin),
        ("busy-poll", config.loops.is_busy_polling.to_string()),
        ("max-connections", connections_max(config).to_string()),
        ("header-timeout", format!("{:?}", limits.header_timeout)),
        ("body-timeout", format!("{:?}", limits.body_timeout)),
        ("idle-timeout", format!("{:?}", limits.idle_timeout)),
        ("write-timeout", format!("{:?}", limits.write_timeout)),
        ("max-body", format!("{} bytes", limits.own_body_bytes_max())),
    ];
    listen.chain(others).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What is shown at the start.
pub(super) fn banner(
    config: &ServeConfig,
    addresses: &[ListenAddress],
    choice: &str,
    refused: &[String],
) -> Vec<String> {
    let urls: Vec<String> =
        addresses.iter().map(|address| url(address, config.tls.is_some(), "")).collect();
    let threads = config.loops.summary();
    let answer = answer(&config.answer);
    let first = format!("{} ({choice}, {threads}, {answer})", urls.join(" "));
    std::iter::once(first).chain(refused.iter().cloned()).chain(serve_shortage(config)).collect()
}

/// A remark on more connections than a server may have descriptors for.
pub(super) fn serve_shortage(config: &ServeConfig) -> Option<String> {
    shortage(connections_max(config).into(), connections_within(limit(), &config.answer))
}

/// The same of a proxy.
pub(super) fn proxy_shortage(config: &ProxyConfig) -> Option<String> {
    shortage(config.connections_max().into(), config.connections_within(limit()))
}

pub(super) fn proxy_facts(
    config: &ProxyConfig,
    addresses: &[ListenAddress],
) -> Vec<(String, String)> {
    let Limits { header_timeout, idle_timeout, body_timeout, .. } = &config.limits.clients;
    let ProxyLimits {
        connect_timeout,
        first_byte_timeout,
        request_timeout,
        tunnel_timeout,
        upstream_idle_timeout,
        ..
    } = &config.limits;
    let listen = addresses.iter().map(|address| ("listen", address.to_string()));
    let backends = config.servers().map(|each| ("backend", each.address.to_string()));
    let times = [
        ("header-timeout", header_timeout),
        ("idle-timeout", idle_timeout),
        ("connect-timeout", connect_timeout),
        ("first-byte-timeout", first_byte_timeout),
        ("body-timeout", body_timeout),
        ("request-timeout", request_timeout),
        ("tunnel-timeout", tunnel_timeout),
        ("upstream-idle-timeout", upstream_idle_timeout),
    ];
    let times = times.into_iter().map(|(name, time)| (name, format!("{time:?}")));
    let others = [
        ("listeners", config.loops.listeners.to_string()),
        ("max-connections", config.connections_max().to_string()),
        ("max-body", format!("{} bytes", config.limits.clients.passed_body_bytes_max())),
    ];
    let balance = config.groups.iter().map(|group| ("balance", group.balance.name().to_owned()));
    let all = listen.chain(backends).chain(balance).chain(others).chain(times);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) fn proxy_banner(
    config: &ProxyConfig,
    addresses: &[(ListenAddress, usize)],
    choice: &str,
    refused: &[String],
) -> Vec<String> {
    let fronts = config.frontends.iter().flat_map(|front| front.listen.iter().map(move |_| front));
    let fronts: Vec<&Frontend> = fronts.collect();
    let place = |(address, place): &(ListenAddress, usize)| match (address, fronts[*place]) {
        (ListenAddress::Tcp(address), Frontend { mode: Mode::Tcp, .. }) => {
            format!("tcp://{address}")
        }
        (_, front) => url(address, front.tls.is_on(), ""),
    };
    let urls: Vec<String> = addresses.iter().map(place).collect();
    let mut to: Vec<String> = config.servers().map(|each| each.address.to_string()).collect();
    if !config.sites.is_empty() {
        to = vec![config.sites.count()];
    }
    let threads = config.loops.summary();
    let first = format!("{} to {} ({choice}, {threads})", urls.join(" "), to.join(" "));
    let warnings = config.sites.warnings.iter().map(|warning| format!("warning: {warning}"));
    std::iter::once(first)
        .chain(refused.iter().cloned())
        .chain(proxy_shortage(config))
        .chain(warnings)
        .collect()
}

impl ProxyConfig {
    /// One line for each front end, group and backend, and one for what runs it.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for front in &self.frontends {
            let to = match (front.group, front.leads_to_https) {
                (Some(group), _) => format!("to the backend \"{}\"", self.groups[group].name),
                (None, true) => "led to https at the hosts of the sites".to_owned(),
                (None, false) => "for the sites".to_owned(),
            };
            for address in &front.listen {
                let header = if front.accepts_header { " behind a PROXY head" } else { "" };
                let mode = match (front.mode, front.tls.is_on()) {
                    (Mode::Tcp, false) => "TCP",
                    (Mode::Tcp, true) => "TCP in TLS",
                    (Mode::Http, false) => "HTTP",
                    (Mode::Http, true) => "HTTP in TLS",
                };
                writeln!(text, "listen on {address}: {mode}{header} {to}").expect("a string");
            }
        }
        text.push_str(&self.sites.summary(&self.groups));
        for limit in &self.rates {
            writeln!(text, "limit \"{}\": {limit}", limit.name).expect("a string");
        }
        for group in &self.groups {
            writeln!(text, "backend \"{}\": {}", group.name, group_summary(group))
                .expect("a string");
            for server in &group.servers {
                writeln!(text, "  {} weight {}", server.address, server.weight).expect("a string");
            }
        }
        if let Some(user) = &self.identity {
            writeln!(text, "workers run as the user {}", user.name()).expect("a string");
        }
        let loops = &self.loops;
        let poller = self.loops.poller;
        let poller = poller.map_or_else(|| "the best poller".to_owned(), |it| it.to_string());
        let count = loops.threads;
        let threads = if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") };
        let connections = self.connections_max();
        writeln!(text, "{threads}, {poller}, {}, at most {connections} clients", loops.listeners)
            .expect("a string");
        text
    }
}

/// How requests are spread, and backends looked at.
fn group_summary(group: &GroupConfig) -> String {
    let health = &group.health;
    let check = match &health.check {
        Check::None => format!("no checks, down for {:?} after {}", health.down_time, health.fall),
        Check::Tcp => format!("a connect every {:?}", health.interval),
        Check::Http(path) => format!("GET {path} every {:?}", health.interval),
        Check::Grpc(service) if service.is_empty() => {
            format!("a health check of gRPC every {:?}", health.interval)
        }
        Check::Grpc(service) => {
            format!("a health check of gRPC for {service} every {:?}", health.interval)
        }
    };
    let header = if group.sends_header.is_some() { "; with a PROXY head" } else { "" };
    let tls = if group.tls.is_some() { "; in TLS" } else { "" };
    let protocol = if group.protocol.is_http2() { "; by HTTP/2" } else { "" };
    format!("{}; {check}{header}{tls}{protocol}", group.balance.name())
}

/// A remark when more connections were configured than there can be.
fn shortage(wanted: u64, allowed: u64) -> Option<String> {
    (wanted > allowed).then(|| {
        format!(
            "max-connections is {wanted}, but the descriptor limit allows about {allowed}; \
             raise it ({RAISED_BY})"
        )
    })
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Reply { len_bytes, is_split } => {
            let how = if *is_split { ", in two writes without TCP_NODELAY" } else { "" };
            format!("a fixed reply, size {len_bytes}{how}")
        }
        Answer::Echo => "echo".to_owned(),
        Answer::Files(files) => format!("files of {}", files.root.display()),
    }
}

/// Where a browser finds it.
pub(super) fn url(address: &ListenAddress, is_secure: bool, path: &str) -> String {
    let scheme = if is_secure { "https" } else { "http" };
    match address {
        ListenAddress::Tcp(address) => format!("{scheme}://{address}{path}"),
        ListenAddress::Unix(_) => format!("{address}{path}"),
    }
}

/// Lost lines of the access log are reported so often.
const LOST_LINES_S: u64 = 60;

/// What was seen last.
#[derive(Debug)]
pub(crate) struct Reporter {
    connections_max: u64,
    remedy: String,
    access_log: Option<PathBuf>,
    is_full: bool,
    seen: CounterSums,
    lost_unreported: u64,
    lost_reported_s: Option<u64>,
}

/// Counts over all loops.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct CounterSums {
    full_pauses: u64,
    accept_pauses: u64,
    lines_lost: u64,
}

impl Reporter {
    /// For a server with so many connections at most; the remedy says how to get more.
    pub(crate) fn new(
        connections_max: u32,
        remedy: String,
        access_log: Option<&LogTarget>,
    ) -> Self {
        Self {
            connections_max: connections_max.into(),
            remedy,
            access_log: access_log.map(LogTarget::path),
            is_full: false,
            seen: CounterSums::default(),
            lost_unreported: 0,
            lost_reported_s: None,
        }
    }

    /// The access log is another one from now on.
    pub(crate) fn set_access_log(&mut self, access_log: Option<&LogTarget>) {
        self.access_log = access_log.map(LogTarget::path);
    }

    /// Reports what is new at this second since 1970; everything when the server ends.
    pub(crate) fn report(
        &mut self,
        loops: &[LoopSource],
        log: &ErrorLog,
        unix_s: u64,
        is_end: bool,
    ) {
        let sum = |of: &dyn Fn(&LoopSource) -> u64| loops.iter().map(of).sum::<u64>();
        let now = CounterSums {
            full_pauses: sum(&|source| source.engine.value(Counter::FullPauses)),
            accept_pauses: sum(&|source| source.engine.value(Counter::AcceptPauses)),
            lines_lost: sum(&|source| source.server.value(ServerCounter::LogLinesLost)),
        };
        let before = std::mem::replace(&mut self.seen, now);
        let open = sum(&|source| source.engine.open());
        self.report_fullness(now.full_pauses > before.full_pauses, open, loops, log, unix_s);
        if now.accept_pauses > before.accept_pauses {
            let times = now.accept_pauses - before.accept_pauses;
            log.report(Event::AcceptPaused, unix_s, || accept_paused(times, open, loops));
        }
        self.lost_unreported += now.lines_lost - before.lines_lost;
        let is_due =
            self.lost_reported_s.is_none_or(|message| unix_s.abs_diff(message) >= LOST_LINES_S);
        if self.lost_unreported > 0 && (is_due || is_end) {
            self.lost_reported_s = Some(unix_s);
            let lines = std::mem::take(&mut self.lost_unreported);
            log.report(Event::AccessLogLost, unix_s, || self.lines_lost(lines, loops));
        }
    }

    fn report_fullness(
        &mut self,
        has_paused: bool,
        open: u64,
        loops: &[LoopSource],
        log: &ErrorLog,
        unix_s: u64,
    ) {
        // A proxy's connections to backends are open as well, and bounded apart.
        let most = self.connections_max;
        let open = open.min(most);
        if has_paused && !self.is_full {
            self.is_full = true;
            log.report(Event::ConnectionsFull, unix_s, || {
                let remedy = &self.remedy;
                format!("connections are full, {open} of {most}: others wait unanswered; {remedy}")
            });
        } else if !has_paused && self.is_full {
            // A loop that paused continues as soon as one of its own closes.
            let share = (most / loops.len() as u64).max(1);
            self.is_full = loops.iter().any(|source| source.engine.open() >= share);
            if !self.is_full {
                let text = || format!("there is room for connections again: {open} of {most}");
                log.report(Event::ConnectionsFree, unix_s, text);
            }
        }
    }

    fn lines_lost(&self, lines: u64, loops: &[LoopSource]) -> String {
        let why = match loops.iter().find_map(|source| source.server.log_errno()) {
            Some(errno) => std::io::Error::from(errno).to_string(),
            None => "its reader is too slow".to_owned(),
        };
        let word = if lines == 1 { "line" } else { "lines" };
        let log = self.access_log.as_deref().unwrap_or("access log".as_ref()).display();
        format!("the access log {log} lost {lines} {word}: {why}")
    }
}

fn accept_paused(times: u64, open: u64, loops: &[LoopSource]) -> String {
    let error = loops.iter().find_map(|source| source.engine.accept_error());
    let (why, remedy) = match &error {
        Some(error) => (error.to_string(), remedy_for(error)),
        None => ("unknown".to_owned(), String::new()),
    };
    format!("accepting paused {times} times with {open} connections open: {why}{remedy}")
}

/// When it is asked next, and the turns that each loop had taken when it was asked last.
///
/// Whether a server works, for the watchdog of its manager: every loop has taken a turn since it was
/// asked for one.
///
/// The thread that waits for signals asks, so a loop that hangs is noticed although that thread does not.
#[derive(Debug)]
pub(super) struct Watchdog {
    every: Duration,
    due: Instant,
    turns: Vec<u64>,
}

impl Watchdog {
    /// One that is asked for now, and then this often.
    pub(super) fn new(every: Duration, now: Instant) -> Self {
        Self { every, due: now, turns: Vec::new() }
    }

    /// How long until it is asked for next.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// When it is due, whether each loop has taken turns since it was due last; every loop has to be
    /// nudged then. The first time nothing is known against them.
    pub(super) fn is_alive(
        &mut self,
        now: Instant,
        turns: impl Iterator<Item = u64>,
    ) -> Option<bool> {
        if now < self.due {
            return None;
        }
        self.due = now + self.every;
        let before = std::mem::replace(&mut self.turns, turns.collect());
        Some(before.iter().zip(&self.turns).all(|(before, now)| now > before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_limit_that_is_too_low_is_reported() {
        assert_eq!(shortage(10, 10), None);
        assert!(shortage(11, 10).is_some_and(|line| line.contains("allows about 10")));
    }

    #[test]
    fn a_loop_that_takes_no_turn_stops_the_pulse_and_one_that_does_again_starts_it() {
        let begin = Instant::now();
        let every = Duration::from_secs(1);
        let mut watchdog = Watchdog::new(every, begin);
        for (at, turns, is_alive) in [
            (0, [5, 0], Some(true)),
            (0, [9, 9], None),
            (1, [6, 1], Some(true)),
            (2, [7, 1], Some(false)),
            (3, [8, 1], Some(false)),
            (4, [8, 2], Some(false)),
            (5, [9, 3], Some(true)),
        ] {
            assert_eq!(watchdog.is_alive(begin + every * at, turns.into_iter()), is_alive, "{at}");
        }
        assert_eq!(watchdog.wait(begin + every * 5), every);
        assert_eq!(watchdog.wait(begin + every * 9), Duration::ZERO);
    }
}
