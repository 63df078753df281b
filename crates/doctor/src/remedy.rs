//! Commands that mend what a check found. They are printed, never run.
//!
//! A remedy is one command or several, joined by `&&`: its steps. Two checks may want the same
//! setting at different values; [`agree`] makes all of them name the one that serves both, so that
//! the order in which they are run does not matter.

use std::collections::BTreeMap;

use serde::Serialize;

use super::check::Check;

use crate::host::environment::Environment;

/// Between the steps of a command.
pub(super) const AND: &str = " && ";
const SYSCTL: &str = "sudo sysctl -w ";
/// Settings of which less allows more; of all others more does.
const LESS_ALLOWS_MORE: [&str; 4] = [
    "kernel.perf_event_paranoid",
    "kernel.kptr_restrict",
    "kernel.io_uring_disabled",
    "net.ipv4.tcp_fin_timeout",
];

/// A command for the user's shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Holds until the next boot or for this shell, unless it says otherwise.
    pub command: String,
    /// An ordinary user cannot do it alone; the command then has `sudo` where it is due.
    pub needs_root: bool,
}

impl Remedy {
    /// A command that any user can run, or one that says `sudo` itself.
    pub(super) fn of_command(command: impl Into<String>) -> Self {
        let command = command.into();
        let needs_root = command.split_ascii_whitespace().any(|word| word == "sudo")
            || command.starts_with("boot ");
        Self { command, needs_root }
    }

    /// Sets a sysctl until the next boot.
    pub(super) fn sysctl(name: &str, value: impl std::fmt::Display) -> Self {
        Self::of_command(setting_command(name, &value.to_string()))
    }

    /// Its commands, one after the other.
    pub(super) fn steps(&self) -> impl Iterator<Item = &str> {
        self.command.split(AND)
    }

    /// Writes a word into a file of `/sys`.
    pub(super) fn write(word: &str, path: &str) -> Self {
        Self::of_command(format!("echo {word} | sudo tee {path}"))
    }

    /// Raises a hard limit of the calling shell and of what it starts, which takes
    /// `CAP_SYS_RESOURCE` (prlimit(1)). `None` where this root lacks it: a `sudo` would be the
    /// same root, so only the user that started the container or the machine can help.
    pub(super) fn raise(environment: &Environment, limit: &str, value: u64) -> Option<Self> {
        if is_root_without_power(environment) {
            return None;
        }
        Some(Self::of_command(format!("sudo prlimit --pid $$ --{limit}={value}:{value}")))
    }
}

/// Gives each setting the one value that serves all checks that want it.
pub(super) fn agree(checks: &mut [Check]) {
    let mut wanted: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in
        checks.iter().flat_map(remedies).flat_map(Remedy::steps).filter_map(setting)
    {
        let stricter = match wanted.get(name) {
            Some(known) if !allows_more(name, value, known) => continue,
            _ => value.to_owned(),
        };
        wanted.insert(name.to_owned(), stricter);
    }
    let agreed = |step: &str| match setting(step) {
        Some((name, _)) => setting_command(name, &wanted[name]),
        None => step.to_owned(),
    };
    for remedy in checks.iter_mut().filter_map(|check| check.remedy.as_mut()) {
        remedy.command = remedy.steps().map(agreed).collect::<Vec<_>>().join(AND);
    }
}

fn remedies(check: &Check) -> Option<&Remedy> {
    check.remedy.as_ref()
}

/// Whether the first value of a setting allows all that the second does and more. What is not a
/// number cannot be ordered: the first one stays.
fn allows_more(name: &str, value: &str, than: &str) -> bool {
    let (Ok(value), Ok(than)) = (value.parse::<i64>(), than.parse::<i64>()) else { return false };
    if LESS_ALLOWS_MORE.contains(&name) { value < than } else { value > than }
}

/// `sudo sysctl -w name=value` as its name and value.
fn setting(step: &str) -> Option<(&str, &str)> {
    let (name, value) = step.strip_prefix(SYSCTL)?.split_once('=')?;
    Some((name, value.trim_matches('"')))
}

fn setting_command(name: &str, value: &str) -> String {
    match value.contains(' ') {
        true => format!("{SYSCTL}{name}=\"{value}\""),
        false => format!("{SYSCTL}{name}={value}"),
    }
}

/// What to add where [`Remedy::raise`] has nothing.
pub(super) fn who_can_raise(environment: &Environment) -> &'static str {
    if is_root_without_power(environment) {
        " (this root has no CAP_SYS_RESOURCE: raise it where the container or machine is started)"
    } else {
        ""
    }
}

fn is_root_without_power(environment: &Environment) -> bool {
    let held = environment.capabilities.value();
    environment.is_root
        && held.is_some_and(|held| !held.names.iter().any(|name| name == "CAP_SYS_RESOURCE"))
}
