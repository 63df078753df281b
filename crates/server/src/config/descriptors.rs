//! How many connections the descriptor limit allows, and what helps when descriptors run out.
//!
//! ```text
//!  limit (RLIMIT_NOFILE) = kept + connections + files
//!                          256                  a quarter of the rest, where files are served
//! ```
//!
//! A connection has one descriptor. It has a second one only while a large file is sent to it, so
//! files have a share of their own and no place is kept beside each connection. When more files are
//! sent at once, those beyond the limit are answered with 503.

use std::io;

use pollux_sys::descriptors::{self, Limit};
use rustix::io::Errno;

use crate::config::{Answer, ServeConfig};

/// Descriptors that are neither connections nor files: listeners, wakers, logs, the endpoints.
pub(crate) const KEPT: u64 = 256;
/// The part of all others that files may always have: one in so many.
const FILES_SHARE: u64 = 4;
/// Most connections when the descriptor limit is the only bound.
pub(crate) const CONNECTIONS_DEFAULT: u64 = 100_000;

/// The limit of this process.
pub(crate) fn limit() -> u64 {
    Limit::here().soft
}

/// Most connections of a server: what was configured, else what the descriptor limit allows.
pub(crate) fn connections_max(config: &ServeConfig) -> u32 {
    let allowed = || connections_within(limit(), &config.answer).clamp(1, CONNECTIONS_DEFAULT);
    config.limits.connections_max.unwrap_or_else(|| u32::try_from(allowed()).expect("clamped"))
}

/// Connections that so many descriptors allow; a small limit is shared evenly with what is kept.
pub(crate) fn connections_within(descriptors: u64, answer: &Answer) -> u64 {
    let free = descriptors - KEPT.min(descriptors / 2);
    if matches!(answer, Answer::Files(_)) { without_files(free) } else { free }
}

/// What is left of so many descriptors beside the share of files.
pub(crate) fn without_files(free: u64) -> u64 {
    free - free / FILES_SHARE
}

/// What allows more connections than [`connections_max`] within that descriptor limit.
pub(crate) fn remedy_for_full(config: &ServeConfig, descriptors: u64) -> String {
    let allowed = connections_within(descriptors, &config.answer);
    let limit = descriptors::in_words(descriptors);
    match config.limits.connections_max {
        Some(most) if u64::from(most) < allowed => {
            format!("raise --max-connections, now {most}; {limit} allows {allowed}")
        }
        Some(most) => {
            format!("raise --max-connections, now {most}, and {limit}, which allows {allowed}")
        }
        None if allowed < CONNECTIONS_DEFAULT => format!("raise {limit}"),
        None => format!("set --max-connections above its default of {CONNECTIONS_DEFAULT}"),
    }
}

/// What helps against this error of a call that makes a descriptor; nothing for other errors.
pub(crate) fn remedy_for(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => format!("; raise {}", descriptors::in_words(limit())),
        Some(Errno::NFILE) => "; raise the system's limit (sysctl fs.file-max)".to_owned(),
        Some(Errno::NOBUFS | Errno::NOMEM) => "; the system is short of memory".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use pollux_settings::Given;

    use super::*;

    fn config(text: &str) -> ServeConfig {
        Given::from_toml(text, "test").read().expect("right")
    }

    #[test]
    fn idle_connections_keep_no_descriptors_for_files() {
        let files = config("dir = \"/\"");
        for (limit, replies, served) in
            [(30, 15, 12), (256, 128, 96), (1024, 768, 576), (20_000, 19_744, 14_808)]
        {
            assert_eq!(connections_within(limit, &Answer::Echo), replies);
            assert_eq!(connections_within(limit, &files.answer), served);
        }
    }

    #[test]
    fn a_full_server_names_the_setting_that_bounds_it() {
        let message = |text: &str, limit| remedy_for_full(&config(text), limit);
        let of = "descriptor limit of 1024 (ulimit -Hn, LimitNOFILE=)";
        assert_eq!(message("reply = 1", 1024), format!("raise the {of}"));
        let given = "reply = 1\nmax_connections = ";
        let most = message(&format!("{given}9"), 1024);
        assert_eq!(most, format!("raise --max-connections, now 9; the {of} allows 768"));
        let both = message(&format!("{given}768"), 1024);
        assert_eq!(
            both,
            format!("raise --max-connections, now 768, and the {of}, which allows 768")
        );
        assert!(message("reply = 1", 1 << 20).contains("above its default of 100000"));
    }
}
