//! A proxy's backends on the control socket: how they are, and orders for them.

use std::fmt::Write;

use super::Overview;
use crate::proxy::{Backend, BackendCounts, ProxyCounter, WEIGHT_MAX};

/// The backends of a proxy, one line each.
#[must_use]
pub fn servers(overview: &Overview) -> String {
    if overview.backends.is_empty() {
        return NO_PROXY.to_owned();
    }
    let mut text = format!(
        "{:<28} {:>7}{:>8}{:>7}{:>7}{:>12}{:>8}{:>8}{:>8}\n",
        "server", "weight", "order", "health", "falls", "requests", "failed", "in use", "idle"
    );
    for (place, backend) in overview.backends.iter().enumerate() {
        let proxies = overview.loops.iter().filter_map(|source| source.proxy.as_ref());
        let counts: Vec<_> = proxies.filter_map(|proxy| proxy.backends().get(place)).collect();
        let sum = |read: fn(&BackendCounts) -> u64| counts.iter().map(|of| read(of)).sum::<u64>();
        let line = format!(
            "{:<28} {:>7}{:>8}{:>7}{:>7}{:>12}{:>8}{:>8}{:>8}",
            backend.name(),
            backend.weight(),
            if backend.is_draining() { "drain" } else { "ready" },
            if backend.is_down() { "down" } else { "up" },
            backend.falls(),
            sum(|of| of.begun.value()),
            sum(|of| of.failed.value()),
            sum(BackendCounts::in_use),
            overview.passing.as_ref().map_or(0, |passing| passing.view(place).idle),
        );
        writeln!(text, "{line}").expect("a string");
    }
    text
}

/// The connections to a proxy's backends that have no request, and the requests that have none.
#[must_use]
pub fn pools(overview: &Overview) -> String {
    let Some(passing) = &overview.passing else { return NO_PROXY.to_owned() };
    let mut text =
        format!("{:<28} {:>7}{:>8}{:>8}{:>9}\n", "server", "idle", "open", "most", "waiting");
    let or_dash = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
    for (place, backend) in overview.backends.iter().enumerate() {
        let view = passing.view(place);
        let (open, most) = (or_dash(view.open), or_dash(view.open_max));
        let (name, idle, waiting) = (backend.name(), view.idle, view.waiting);
        writeln!(text, "{name:<28} {idle:>7}{open:>8}{most:>8}{waiting:>9}").expect("a string");
    }
    text.push('\n');
    for counter in POOL_COUNTERS {
        let proxies = overview.loops.iter().filter_map(|source| source.proxy.as_ref());
        let sum: u64 = proxies.map(|proxy| proxy.value(counter)).sum();
        let line = format!("{:<14}{sum:>12}  {}", counter.name(), counter.about());
        writeln!(text, "{line}").expect("a string");
    }
    text
}

/// The counters of `show pools`.
const POOL_COUNTERS: [ProxyCounter; 9] = [
    ProxyCounter::Connects,
    ProxyCounter::Parked,
    ProxyCounter::Reuses,
    ProxyCounter::TakenOver,
    ProxyCounter::Refused,
    ProxyCounter::Stale,
    ProxyCounter::IdleClosed,
    ProxyCounter::IdleDropped,
    ProxyCounter::Queued,
];

/// Does what `set server NAME …` says with every backend of that name, and shows them.
#[must_use]
pub fn set_server(overview: &Overview, name: &str, order: &[&str]) -> String {
    let mut called = overview.backends.iter().filter(|backend| backend.is_called(name)).peekable();
    if called.peek().is_none() {
        let names: Vec<_> = overview.backends.iter().map(Backend::name).collect();
        let known = if names.is_empty() { NO_PROXY.to_owned() } else { names.join(", ") };
        return format!("no such server; expected one of: {known}");
    }
    match order {
        ["drain"] => called.for_each(|backend| backend.set_draining(true)),
        ["ready"] => called.for_each(|backend| backend.set_draining(false)),
        ["weight", weight] => match Backend::read_weight(weight) {
            Some(weight) => called.for_each(|backend| backend.set_weight(weight)),
            None => return format!("expected a weight from 1 to {WEIGHT_MAX}"),
        },
        _ => return "expected drain, ready or weight N".to_owned(),
    }
    // The next worker has to get it, also when this one is about to end.
    overview.supervised.wake();
    servers(overview)
}

const NO_PROXY: &str = "n/a: this server is not a proxy";
