//! Which changes of settings a worker takes while it runs, and which need another one.
//!
//! | what differs | who takes it |
//! |---|---|
//! | sites, routes, who may ask, rules for fields, pages, rates of limits, times and sizes of requests, the access log | the worker that serves, without touching a connection |
//! | addresses, threads, mechanism, backends, users, certificates, limits by name, what sockets and pools are made with | another worker, started beside it ([`needs_worker`]) |
//! | what a file says that only the master may be able to read ([`FilesPrint`]) | the same |
//!
//! What is not known here to be taken needs another worker: a setting that comes to it is never left out.

use std::fs::{read, read_dir};
use std::path::{Path, PathBuf};

use ring::digest;

use crate::certificates::are_shown_alike;
use crate::config::sections::Resolve;
use crate::config::{ClientTls, Frontend, Limits, Monitoring, ProxyConfig, ProxyLimits};
use crate::tls::{Keys, Trust};

/// What differs of these settings and needs another worker than the one that serves by the `old` ones, by its names; nothing
/// where that takes the `new` ones.
pub(crate) fn needs_worker(old: &ProxyConfig, new: &ProxyConfig) -> Vec<&'static str> {
    let fronts = |differs: fn(&Frontend, &Frontend) -> bool| {
        let mut both = old.frontends.iter().zip(&new.frontends);
        both.any(|(old, new)| differs(old, new))
    };
    let names = |config: &ProxyConfig| -> Vec<String> {
        let mut names: Vec<_> = config.rates.iter().map(|limit| limit.name.clone()).collect();
        names.sort_unstable();
        names
    };
    let is_never = |config: &ProxyConfig| {
        config.servers().any(|server| server.resolve == Some(Resolve::Never))
    };
    let loops = &old.loops;
    let others = &new.loops;
    let limits = &old.limits;
    let of_new = &new.limits;
    let clients = &limits.clients;
    let clients_of_new = &of_new.clients;
    let monitoring = &old.monitoring;
    let watched = &new.monitoring;
    let settings = [
        ("listen", old.listen() != new.listen() || old.frontends.len() != new.frontends.len()),
        ("mode", fronts(|old, new| old.mode != new.mode)),
        ("certificates", fronts(|old, new| old.tls != new.tls) || !are_shown_alike(old, new)),
        ("backends", old.groups != new.groups),
        // Such a name is looked up at a reload, and by no other one than a worker that starts.
        ("resolve = \"never\"", is_never(new)),
        ("users", old.sites.users != new.sites.users),
        ("names of limits", names(old) != names(new)),
        ("no_http2, http2_streams, http2_requests", old.http2 != new.http2),
        ("socket_mode and socket_owner", old.sockets != new.sockets),
        ("user and group", old.identity != new.identity),
        ("poller", loops.poller != others.poller),
        ("threads", loops.threads != others.threads),
        ("listeners", loops.listeners != others.listeners),
        ("pin", loops.pin != others.pin),
        ("busy_poll", loops.is_busy_polling != others.is_busy_polling),
        ("mask_ends", loops.masks_ends != others.masks_ends),
        ("let_go_at_once", old.lets_go_at_once != new.lets_go_at_once),
        ("max_connections", clients.connections_max != clients_of_new.connections_max),
        ("write_timeout", clients.write_timeout != clients_of_new.write_timeout),
        ("read_rate_min", clients.read_rate_min_bytes != clients_of_new.read_rate_min_bytes),
        (
            "upstream_idle_max, upstream_idle_total, queue_max",
            (limits.upstream_idle_max, limits.upstream_idle_total, limits.queue_max)
                != (of_new.upstream_idle_max, of_new.upstream_idle_total, of_new.queue_max),
        ),
        ("pipes_max", limits.pipes_max != of_new.pipes_max),
        ("lookup_interval", limits.lookup_interval != of_new.lookup_interval),
        ("error_log", monitoring.error_log != watched.error_log),
        ("log_level", monitoring.log_level != watched.log_level),
        ("stats", monitoring.stats != watched.stats),
        ("control", monitoring.control != watched.control),
        ("pid_file", monitoring.pid_file != watched.pid_file),
        ("quiet", monitoring.is_quiet != watched.is_quiet),
    ];
    let named: Vec<_> =
        settings.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect();
    match named {
        named if !named.is_empty() => named,
        // They take descriptors, and as many connections as before would be one too many.
        _ if old.connections_max() > new.connections_max() => vec!["more folders of sites"],
        _ if with_what_is_taken(old, new) != *new => vec!["other settings"],
        nothing => nothing,
    }
}

/// The `old` settings with all that a worker takes of the `new` ones.
fn with_what_is_taken(old: &ProxyConfig, new: &ProxyConfig) -> ProxyConfig {
    let mut taken = old.clone();
    taken.sites = new.sites.clone();
    taken.rates = new.rates.clone();
    for (taken, new) in taken.frontends.iter_mut().zip(&new.frontends) {
        let Frontend { listen, mode, tls, .. } = taken.clone();
        *taken = Frontend { listen, mode, tls, ..new.clone() };
    }
    let kept = old.limits.clone();
    taken.limits = ProxyLimits {
        lookup_interval: kept.lookup_interval,
        upstream_idle_max: kept.upstream_idle_max,
        upstream_idle_total: kept.upstream_idle_total,
        pipes_max: kept.pipes_max,
        queue_max: kept.queue_max,
        clients: Limits {
            connections_max: kept.clients.connections_max,
            write_timeout: kept.clients.write_timeout,
            read_rate_min_bytes: kept.clients.read_rate_min_bytes,
            ..new.limits.clients.clone()
        },
        ..new.limits.clone()
    };
    taken.monitoring = Monitoring {
        access_log: new.monitoring.access_log.clone(),
        access_log_format: new.monitoring.access_log_format,
        ..taken.monitoring
    };
    taken
}

/// What stands in the files that a worker reads before it becomes another user: certificates, keys, authorities, users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FilesPrint([u8; 32]);

impl FilesPrint {
    /// That of the files of these settings. One that can't be read is one of its own: who needs it says what is wrong.
    pub(crate) fn of(config: &ProxyConfig) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for path in files(config) {
            add(&mut context, &path, Folders::OfOne);
        }
        Self(context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// The files, and folders of files, of these settings.
fn files(config: &ProxyConfig) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let of_pair = |keys: &Keys| [keys.cert.clone(), keys.key.clone()];
    for front in &config.frontends {
        match &front.tls {
            ClientTls::Off => {}
            ClientTls::One(keys) => all.extend(of_pair(keys)),
            ClientTls::Folder(folder) => all.push(folder.clone()),
        }
    }
    for site in &config.sites.all {
        all.extend(site.tls.keys.iter().flat_map(of_pair));
        all.extend(site.tls.clients.iter().map(|clients| clients.ca.clone()));
    }
    all.extend(config.sites.users.iter().map(|users| users.file.clone()));
    for group in &config.groups {
        if let Some(Trust::File(ca)) = group.tls.as_ref().map(|tls| &tls.trust) {
            all.push(ca.clone());
        }
    }
    all
}

/// How deep folders are looked into.
#[derive(Clone, Copy)]
enum Folders {
    /// A folder has one for each certificate, as certbot makes them.
    OfOne,
    None,
}

fn add(context: &mut digest::Context, path: &Path, folders: Folders) {
    context.update(path.as_os_str().as_encoded_bytes());
    let Ok(entries) = read_dir(path) else {
        let text = read(path);
        context.update(&[u8::from(text.is_ok())]);
        let text = text.unwrap_or_default();
        context.update(&(text.len() as u64).to_le_bytes());
        context.update(&text);
        return;
    };
    let mut below: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    below.sort_unstable();
    for path in below {
        match folders {
            Folders::OfOne => add(context, &path, Folders::None),
            Folders::None if path.is_file() => add(context, &path, Folders::None),
            Folders::None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};

    use pollux_settings::Given;

    use super::*;

    fn read(text: &str) -> ProxyConfig {
        Given::from_toml(text, "p.toml").read().unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
    }

    const SITE: &str = "[[limit]]\nname = \"few\"\nrate = \"5/m\"\n\
        [[backend]]\nname = \"app\"\n[[backend.server]]\naddress = \"127.0.0.1:9\"\n\
        [[site]]\nhost = \"a.example\"\nroute = [{ path = \"/\", backend = \"app\", limit = \"few\" }]\n";

    #[test]
    fn what_answers_is_taken_and_what_loops_are_made_of_needs_another_worker() {
        let old = read(SITE);
        let none: [&str; 0] = [];
        for text in [
            SITE.to_owned(),
            SITE.replace("a.example", "b.example"),
            SITE.replace("5/m", "9/s"),
            SITE.replace("backend = \"app\",", "reply = 3,"),
            SITE.replace("path = \"/\"", "path = \"/x/\", allow = \"10.0.0.0/8\", strip = \"/x\""),
            format!("{SITE}[[site]]\nhost = \"*\"\nroute = [{{ path = \"/\", echo = true }}]\n"),
            format!("request_id = \"X-Id\"\nmax_body = 7\nheader_timeout = \"1s\"\n{SITE}"),
            format!(
                "response_field = \"set A: b\"\naccess_log = \"-\"\nrequest_timeout = \"9s\"\n{SITE}"
            ),
            format!(
                "drain_timeout = \"9s\"\ntunnel_timeout = \"9s\"\ntunnel_workers_max = 3\n{SITE}"
            ),
        ] {
            assert_eq!(needs_worker(&old, &read(&text)), none, "{text}");
        }
        for (text, expected) in [
            (format!("threads = 2\nlisten = \":1\"\n{SITE}"), &["listen", "threads"][..]),
            (SITE.replace("127.0.0.1:9", "127.0.0.1:8"), &["backends"]),
            (SITE.replace("few", "more"), &["names of limits"]),
            (
                SITE.replace("127.0.0.1:9\"", "localhost:9\"\nresolve = \"never\""),
                &["backends", "resolve = \"never\""],
            ),
            (
                format!("http2_streams = 7\nwrite_timeout = \"1s\"\n{SITE}"),
                &["no_http2, http2_streams, http2_requests", "write_timeout"],
            ),
            (
                format!("queue_max = 7\nlog_level = \"info\"\n{SITE}"),
                &["upstream_idle_max, upstream_idle_total, queue_max", "log_level"],
            ),
            (format!("[[users]]\nname = \"staff\"\nfile = \"/x\"\n{SITE}"), &["users"]),
            (
                format!(
                    "[[frontend]]\nlisten = \"127.0.0.1:8080\"\ncert = \"c\"\nkey = \"k\"\n{SITE}"
                ),
                &["certificates"],
            ),
        ] {
            assert_eq!(needs_worker(&old, &read(&text)), expected, "{text}");
        }
    }

    #[test]
    fn certificates_by_name_are_the_same_as_long_as_sites_are_asked_for_by_the_same_names() {
        let file = |sites: &[&str]| {
            let site = |keys: &&str| {
                format!("[[site]]\n{keys}\nroute = [{{ path = \"/\", reply = 1 }}]\n")
            };
            let sites: String = sites.iter().map(site).collect();
            read(&format!("[[frontend]]\nlisten = \":443\"\ncerts = \"/certs\"\n{sites}"))
        };
        let old = file(&["host = \"a.example\""]);
        assert!(
            needs_worker(&old, &file(&["host = \"a.example\"", "host = \"b.example\""])).is_empty()
        );
        let own = "host = \"b.example\"\ncert = \"b.pem\"\nkey = \"b.key\"";
        assert_eq!(needs_worker(&old, &file(&["host = \"a.example\"", own])), ["certificates"]);
        assert_eq!(
            needs_worker(&old, &file(&["host = \"a.example\"\ndefault = true"])),
            ["certificates"]
        );
    }

    #[test]
    fn files_of_keys_and_users_are_known_by_what_stands_in_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        create_dir(at("certs")).expect("made");
        create_dir(at("certs/b")).expect("made");
        let put = |name: &str, text: &str| write(at(name), text).expect("written");
        for name in ["certs/a.pem", "certs/b/fullchain.pem", "staff"] {
            put(name, "1");
        }
        let root = folder.path().display();
        let config = read(&format!(
            "[[users]]\nname = \"staff\"\nfile = \"{root}/staff\"\n[[frontend]]\nlisten = \":443\"\ncerts = \"{root}/certs\"\n\
             [[site]]\nhost = \"a\"\nusers = \"staff\"\nroute = [{{ path = \"/\", reply = 1 }}]\n"
        ));
        let first = FilesPrint::of(&config);
        put("certs/a.pem", "1");
        assert_eq!(FilesPrint::of(&config), first, "it was written anew");
        let mut seen = vec![first];
        for name in ["certs/a.pem", "certs/b/fullchain.pem", "staff", "certs/c.pem"] {
            put(name, "2");
            let print = FilesPrint::of(&config);
            assert!(!seen.contains(&print), "{name}");
            seen.push(print);
        }
        std::fs::remove_file(at("staff")).expect("removed");
        assert!(!seen.contains(&FilesPrint::of(&config)));
    }
}
