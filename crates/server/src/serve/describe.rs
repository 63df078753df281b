//! A server in words: for its start-up lines and for the endpoints while it runs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pollux_engine::{Driver, Group, ListenAddress};

use crate::ServerCounters;
use crate::config::{Answer, ServeConfig};
use crate::descriptors::{connections_max, connections_within, limit};
use crate::stats::{LoopSource, Overview, Supervised};

/// What the endpoints show of a running group.
pub(super) fn overview(
    config: &ServeConfig,
    group: &Group,
    driver: Driver,
    counters: &[Arc<ServerCounters>],
) -> Overview {
    let views = group.views();
    let notes = views.iter().flat_map(|view| view.notes.iter().cloned());
    let notes: BTreeSet<String> = notes.collect();
    let loops = views.into_iter().zip(counters).map(|(view, server)| LoopSource {
        engine: view.counters,
        poller: view.poller,
        server: Arc::clone(server),
        proxy: None,
    });
    let dumper = group.dumper();
    let facts = facts(config, group.addresses());
    let notes = notes.into_iter().map(|note| ("note".to_owned(), note));
    Overview {
        started: Instant::now(),
        driver,
        facts: Mutex::new(facts),
        notes: notes.collect(),
        loops: loops.collect(),
        backends: Arc::default(),
        passing: None,
        descriptors: Box::new(move || dumper.descriptors().map_err(|error| error.to_string())),
        supervised: Supervised::default(),
    }
}

/// What a server configured so would do, in lines.
pub(super) fn summary(config: &ServeConfig) -> String {
    let facts = facts(config, &config.listen);
    facts.into_iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

pub(super) fn facts(config: &ServeConfig, addresses: &[ListenAddress]) -> Vec<(String, String)> {
    let limits = &config.limits;
    let listen = addresses.iter().map(|address| ("listen", address.to_string()));
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
        ("max-body", format!("{} bytes", limits.body_bytes_max)),
    ];
    listen.chain(others).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What is shown at the start.
pub(super) fn banner(
    config: &ServeConfig,
    addresses: &[ListenAddress],
    driver: Driver,
    refused: &[String],
) -> Vec<String> {
    let urls: Vec<String> =
        addresses.iter().map(|address| url(address, config.tls.is_some(), "")).collect();
    let threads = match config.loops.threads {
        1 => "1 thread".to_owned(),
        n => format!("{n} threads, {}", config.loops.listeners),
    };
    let answer = answer(&config.answer);
    let first = format!("{} ({driver}, {threads}, {answer})", urls.join(" "));
    let few = shortage(connections_max(config).into(), connections_within(limit(), &config.answer));
    std::iter::once(first).chain(refused.iter().cloned()).chain(few).collect()
}

/// A remark when more connections were configured than there can be.
pub(crate) fn shortage(wanted: u64, allowed: u64) -> Option<String> {
    (wanted > allowed).then(|| {
        format!(
            "max-connections is {wanted}, but the descriptor limit allows about {allowed}; \
             raise it (ulimit -Hn, LimitNOFILE=)"
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
pub(crate) fn url(address: &ListenAddress, is_secure: bool, path: &str) -> String {
    let scheme = if is_secure { "https" } else { "http" };
    match address {
        ListenAddress::Tcp(address) => format!("{scheme}://{address}{path}"),
        ListenAddress::Unix(_) => format!("{address}{path}"),
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
}
