//! A live page of a running proxy: one file of HTML, and the figures that it asks for
//! once a second. They are those of the metrics, of the worker that serves.

use std::fmt::Write;

use super::Overview;
use crate::proxy::{BackendCounts, Fault};

/// The page. It loads nothing else.
pub const STATUS_PAGE: &str = include_str!("status.html");

/// The figures as JSON: numbers are counts since the start, but for `connections`, `active`, `queue` and
/// `idle`; `wait_us` is the time to the first byte of all answers together.
#[must_use]
pub fn status(overview: &Overview) -> String {
    let loops = &overview.loops;
    let proxies = || loops.iter().filter_map(|source| source.proxy.as_ref());
    let requests: u64 = loops.iter().map(|source| source.server.requests_total()).sum();
    let connections: u64 = loops.iter().map(|source| source.engine.open()).sum();
    let mut text = String::new();
    let mut put = |piece: String| text.push_str(&piece);
    put(format!(
        "{{\"version\":{},\"uptime_s\":{:.3},\"poller\":{},\"threads\":{},\"requests\":{requests},\
         \"connections\":{connections},\"servers\":[",
        quoted(env!("CARGO_PKG_VERSION")),
        overview.started.elapsed().as_secs_f64(),
        quoted(&overview.driver.to_string()),
        loops.len(),
    ));
    for (place, backend) in overview.backends.iter().enumerate() {
        let counts: Vec<_> = proxies().filter_map(|proxy| proxy.backends().get(place)).collect();
        let sum = |read: fn(&BackendCounts) -> u64| counts.iter().map(|of| read(of)).sum::<u64>();
        let view = overview.passing.as_ref().map(|passing| passing.view(place)).unwrap_or_default();
        let state = match (backend.is_draining(), backend.is_down()) {
            (true, _) => "drain",
            (false, true) => "down",
            (false, false) => "up",
        };
        put(format!(
            "{}{{\"name\":{},\"state\":\"{state}\",\"weight\":{},\"active\":{},\"queue\":{},\"idle\":{},\
             \"requests\":{},\"failed\":{},\"answered\":{},\"wait_us\":{},\"falls\":{}}}",
            if place == 0 { "" } else { "," },
            quoted(backend.name()),
            backend.weight(),
            sum(BackendCounts::in_use),
            view.waiting,
            view.idle,
            sum(|of| of.begun.value()),
            sum(|of| of.failed.value()),
            sum(|of| of.answered.value()),
            sum(|of| of.wait_us.value()),
            backend.falls(),
        ));
    }
    put("],\"faults\":{".to_owned());
    for (place, fault) in Fault::ALL.into_iter().enumerate() {
        let count: u64 = proxies().map(|proxy| proxy.faults(place)).sum();
        put(format!("{}\"{}\":{count}", if place == 0 { "" } else { "," }, fault.name()));
    }
    put("}}\n".to_owned());
    text
}

/// A string of JSON (RFC 8259 7).
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c < ' ' => write!(quoted, "\\u{:04x}", c as u32).expect("a string"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_their_quotes() {
        assert_eq!(quoted("unix:/a\"b\\c\n"), "\"unix:/a\\\"b\\\\c\\u000a\"");
    }
}
