//! How a server that runs takes other settings.

use std::sync::Arc;

use pollux_settings::command::output::error_chain;

use crate::config::{Answer, Limits, Monitoring, ServeConfig};
use crate::counters::ServerCounters;
use crate::front::state::Replacements;
use crate::run::privileges::{Privileged, Sandbox};
use crate::tls::Certificate;
use crate::{Logs, LoopState, ServerError};

/// Reads the settings anew; or says what is wrong with them.
pub(crate) type Reader = Box<dyn Fn() -> Result<ServeConfig, String> + Send + Sync>;

/// What a reload of a server needs. What answers is replaced between two turns, and no connection is touched.
///
/// ```text
///  signal ─► settings read and checked ─► a replacement for each loop ─► wake_all ─► taken at the next turn
///                     │ wrong
///                     └─► reported, and nothing changes
/// ```
///
/// All replacements are made before the first one is offered, so a server never answers by two settings
/// for longer than a turn takes. What is fixed when loops start is refused by its name, and what is not known here to be taken is
/// refused as well: a setting that comes to it is never reported as taken when it is not.
pub(crate) struct Reload {
    pub(crate) config: ServeConfig,
    pub(crate) replacements: Arc<Replacements<LoopState>>,
    pub(crate) counters: Vec<Arc<ServerCounters>>,
    /// None where only the certificate is read again.
    pub(crate) read: Option<Reader>,
}

impl Reload {
    /// Offers the loops what the settings say now; which is in force from then on.
    ///
    /// # Errors
    /// What is wrong; nothing was changed then.
    pub(crate) fn offer(
        &mut self,
        certificate: Option<&Certificate>,
        logs: &Logs,
        sandbox: Option<&Sandbox>,
        privileged: Option<&Privileged>,
    ) -> Result<(), String> {
        let config = match &self.read {
            Some(read) => read()?,
            None => self.config.clone(),
        };
        let fixed = fixed(&self.config, &config);
        if !fixed.is_empty() {
            let names = fixed.join(", ");
            return Err(format!("{names}: fixed while the server runs; restart it to change them"));
        }
        // The loops open a file of the same name again by themselves, and write the old one on where they can't.
        let target = config.monitoring.access_log.as_ref();
        let is_kept = target.is_some() && target == self.config.monitoring.access_log.as_ref();
        let new_log = target.filter(|_| !is_kept);
        sandbox.map_or(Ok(()), |sandbox| sandbox.admits(&config, new_log))?;
        let words = |error: ServerError| error_chain(&error);
        let tls = certificate.map(Certificate::config);
        let mut replacements = Vec::new();
        if self.read.is_some() {
            let mut own = config.clone();
            own.monitoring.access_log = new_log.cloned();
            let format = config.monitoring.access_log_format;
            for counters in &self.counters {
                let mut shared = LoopState::new(&own, Arc::clone(counters), logs).map_err(words)?;
                if is_kept {
                    shared = shared.keeping_log(format);
                }
                replacements.push(match tls {
                    Some(tls) => shared.encrypted(Arc::clone(tls)),
                    None => shared,
                });
            }
        }
        if let Some(certificate) = certificate {
            let keys = certificate.keys();
            let pem = privileged.map_or_else(|| keys.load(), Privileged::pem);
            let renewed = pem.and_then(|pem| certificate.renew(&pem));
            renewed.map_err(|error| format!("the certificate: {error}"))?;
        }
        if !replacements.is_empty() {
            self.replacements.offer(replacements);
        }
        self.config = config;
        Ok(())
    }
}

/// The settings that differ and can't be changed while loops run, by their names.
fn fixed(old: &ServeConfig, new: &ServeConfig) -> Vec<&'static str> {
    let is_split =
        |config: &ServeConfig| matches!(config.answer, Answer::Reply { is_split: true, .. });
    let loops = &old.loops;
    let limits = &old.limits;
    let monitoring = &old.monitoring;
    let settings = [
        ("listen", old.listen != new.listen),
        ("socket_mode and socket_owner", old.sockets != new.sockets),
        ("cert and key", old.tls != new.tls),
        // TLS offers its protocols as it did at the start.
        ("no_http2", old.tls.is_some() && old.http2.is_off != new.http2.is_off),
        ("user and group", old.identity != new.identity),
        ("no_sandbox, require_sandbox, sandbox_path, sandbox_exact", old.sandbox != new.sandbox),
        ("poller", loops.poller != new.loops.poller),
        ("threads", loops.threads != new.loops.threads),
        ("listeners", loops.listeners != new.loops.listeners),
        ("pin", loops.pin != new.loops.pin),
        ("busy_poll", loops.is_busy_polling != new.loops.is_busy_polling),
        ("mask_ends", loops.masks_ends != new.loops.masks_ends),
        ("split_reply", is_split(old) != is_split(new)),
        ("max_connections", limits.connections_max != new.limits.connections_max),
        ("write_timeout", limits.write_timeout != new.limits.write_timeout),
        ("read_rate_min", limits.read_rate_min_bytes != new.limits.read_rate_min_bytes),
        ("error_log", monitoring.error_log != new.monitoring.error_log),
        ("log_level", monitoring.log_level != new.monitoring.log_level),
        ("stats", monitoring.stats != new.monitoring.stats),
        ("control", monitoring.control != new.monitoring.control),
        ("pid_file", monitoring.pid_file != new.monitoring.pid_file),
        ("quiet", monitoring.is_quiet != new.monitoring.is_quiet),
    ];
    let named: Vec<_> =
        settings.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect();
    match named {
        named if named.is_empty() && with_what_is_taken(old, new) != *new => vec!["other settings"],
        named => named,
    }
}

/// The `old` settings with all that a reload takes of the `new` ones.
fn with_what_is_taken(old: &ServeConfig, new: &ServeConfig) -> ServeConfig {
    let limits = new.limits.clone();
    ServeConfig {
        answer: new.answer.clone(),
        extras: new.extras.clone(),
        http2: new.http2.clone(),
        is_timing_requests: new.is_timing_requests,
        limits: Limits {
            header_timeout: limits.header_timeout,
            body_timeout: limits.body_timeout,
            body_rate_min_bytes: limits.body_rate_min_bytes,
            idle_timeout: limits.idle_timeout,
            drain_timeout: limits.drain_timeout,
            body_bytes_max: limits.body_bytes_max,
            heads: limits.heads,
            ..old.limits.clone()
        },
        monitoring: Monitoring {
            access_log: new.monitoring.access_log.clone(),
            access_log_format: new.monitoring.access_log_format,
            ..old.monitoring.clone()
        },
        ..old.clone()
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
    fn what_loops_are_made_of_is_fixed_and_what_answers_is_not() {
        let old = config("reply = 1");
        for (text, names) in [
            ("reply = 2\nidle_timeout = \"1s\"\nmax_body = 5\naccess_log = \"-\"", vec![]),
            ("dir = \".\"\nresponse_field = \"add X: 1\"\nheader_timeout = \"1s\"", vec![]),
            ("reply = 1\nthreads = 2\nlisten = \":1\"", vec!["listen", "threads"]),
            ("reply = 1\nsplit_reply = true", vec!["split_reply"]),
            ("reply = 1\ncert = \"a\"\nkey = \"b\"", vec!["cert and key"]),
            ("reply = 1\nquiet = true\nlog_level = \"warn\"", vec!["quiet"]),
            (
                "echo = true\nbody_timeout = \"1s\"\nbody_rate_min = 0\ndrain_timeout = \"1s\"",
                vec![],
            ),
            (
                "reply = 1\nmax_head = \"8KiB\"\nhttp2_streams = 7\naccess_log = \"-\"\naccess_log_format = \"json\"",
                vec![],
            ),
            (
                "reply = 1\nwrite_timeout = \"1s\"\nread_rate_min = 0",
                vec!["write_timeout", "read_rate_min"],
            ),
        ] {
            assert_eq!(fixed(&old, &config(text)), names, "{text}");
        }
    }

    #[test]
    fn http_2_is_fixed_where_tls_has_offered_it() {
        let both = |first: &str| {
            let off = format!("{first}\nno_http2 = true");
            fixed(&config(first), &config(&off))
        };
        assert_eq!(both("reply = 1\ncert = \"a\"\nkey = \"b\""), ["no_http2"]);
        assert!(both("reply = 1").is_empty());
    }
}
