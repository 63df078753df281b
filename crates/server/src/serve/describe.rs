//! A server in words: for its start-up lines and for the endpoints while it runs.

use pollux_engine::{Driver, ListenAddress};

use crate::config::{Answer, ServeConfig};
use crate::descriptors::{connections_max, connections_within, limit};

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
    let threads = config.loops.summary();
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
