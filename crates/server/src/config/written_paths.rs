//! What a start writes: logs, the file with its id, unix sockets. Each has a path of its own.
//!
//! The settings of `serve` and `proxy` are held to it when they are read, so at a start, at a reload and by `--check`.
//! Two logs may share a file: both are appended to, line by line.

use std::path::{Path, PathBuf, absolute};

use pollux_engine::{Address, ListenAddress};
use pollux_settings::Keys;

use crate::config::{LogTarget, Monitoring};

/// A path that a start writes.
struct Written {
    /// The setting that names it.
    key: &'static str,
    /// As users write it.
    named: String,
    /// Where that leads.
    place: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Socket,
    Log,
    Id,
}

/// Notes the settings that name a path which another one of them writes as well.
pub(crate) fn note_shared_paths(keys: &mut Keys<'_>, listen: &[Address], monitoring: &Monitoring) {
    let all = written(listen, monitoring);
    for (at, one) in all.iter().enumerate() {
        // Sockets of one name are addresses of one name, which is said elsewhere.
        let is_said = |other: &Written| one.kind == other.kind && one.kind != Kind::Id;
        let other = all[..at].iter().find(|other| other.place == one.place && !is_said(other));
        if let Some(other) = other {
            let named = &one.named;
            let key = other.key;
            let what = if other.kind == Kind::Socket { "socket" } else { "file" };
            let why = format!("{named} is the {what} of {key} as well; expected a path of its own");
            keys.note(one.key, why);
        }
    }
}

fn written(listen: &[Address], monitoring: &Monitoring) -> Vec<Written> {
    let mut all = Vec::new();
    let mut socket = |key, path: &Path| {
        let named = format!("unix:{}", path.display());
        all.push(Written { key, named, place: place(path), kind: Kind::Socket });
    };
    let listened = listen.iter().map(|address| ("listen", address));
    let stats = monitoring.stats.iter().map(|address| ("stats", address));
    for (key, address) in listened.chain(stats) {
        if let Address::Known(ListenAddress::Unix(path)) = address {
            socket(key, path);
        }
    }
    monitoring.control.iter().for_each(|path| socket("control", path));
    let logs = [("access_log", monitoring.access_log.as_ref())];
    for (key, log) in logs.into_iter().chain([("error_log", Some(&monitoring.error_log))]) {
        if let Some(LogTarget::File(path)) = log.map(LogTarget::led_to) {
            let named = format!("{path:?}");
            // Appended to where links lead.
            let place = path.canonicalize().unwrap_or_else(|_| place(&path));
            all.push(Written { key, named, place, kind: Kind::Log });
        }
    }
    if let Some(path) = &monitoring.pid_file {
        let named = format!("{path:?}");
        all.push(Written { key: "pid_file", named, place: place(path), kind: Kind::Id });
    }
    all
}

/// Where a file of this name is made, however its folder is written. Sockets and the file with the id take the place
/// of a link and do not follow it.
fn place(path: &Path) -> PathBuf {
    let whole = absolute(path).unwrap_or_else(|_| path.to_owned());
    let (Some(folder), Some(name)) = (whole.parent(), whole.file_name()) else { return whole };
    folder.canonicalize().map_or_else(|_| whole.clone(), |folder| folder.join(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use pollux_settings::{Given, Table};

    use crate::config::{ProxyConfig, ServeConfig};

    /// What is wrong with these settings.
    fn wrong<T: Table>(text: &str) -> Option<String> {
        Given::from_toml(text, "p").read::<T>().err().map(|wrong| wrong.to_string())
    }

    #[test]
    fn a_pid_file_that_is_a_log_or_a_socket_of_the_same_start_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        symlink(folder.path(), folder.path().join("link")).expect("linked");
        let one = at("one");
        let other = at("link/./one");
        let two = at("two");
        let quoted = |path: &str| format!("{path:?}");
        for (keys, expected) in [
            (
                format!("access_log = {one:?}\npid_file = {one:?}"),
                format!("pid_file: {} is the file of access_log as well", quoted(&one)),
            ),
            (
                format!("error_log = {one:?}\npid_file = {other:?}"),
                format!("pid_file: {} is the file of error_log as well", quoted(&other)),
            ),
            (
                format!("control = \"unix:{one}\"\npid_file = {one:?}"),
                format!("pid_file: {} is the socket of control as well", quoted(&one)),
            ),
            (
                format!("stats = \"unix:{one}\"\npid_file = {one:?}"),
                format!("pid_file: {} is the socket of stats as well", quoted(&one)),
            ),
            (
                format!("listen = \"unix:{one}\"\naccess_log = {one:?}"),
                format!("access_log: {} is the socket of listen as well", quoted(&one)),
            ),
            (
                format!("control = \"unix:{one}\"\nerror_log = {other:?}"),
                format!("error_log: {} is the socket of control as well", quoted(&other)),
            ),
        ] {
            let said = [
                wrong::<ServeConfig>(&format!("{keys}\nreply = 1")),
                wrong::<ProxyConfig>(&format!("{keys}\n[[server]]\naddress = \"127.0.0.1:9\"")),
            ];
            for said in said {
                let said = said.expect(&keys);
                assert!(said.contains(&expected), "{said}");
                assert!(said.contains("p:2:") && said.ends_with("a path of its own"), "{said}");
            }
        }
        let one_log = format!("access_log = {one:?}\nerror_log = {other:?}\npid_file = {two:?}");
        assert_eq!(wrong::<ServeConfig>(&format!("{one_log}\nreply = 1")), None);
    }
}
