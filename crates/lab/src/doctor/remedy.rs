//! Commands that mend what a check found. They are printed, never run.

use serde::Serialize;

use crate::host::environment::Environment;

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
        Self::of_command(format!("sudo sysctl -w {name}=\"{value}\""))
    }

    /// Writes a word into a file of `/sys`.
    pub(super) fn write(word: &str, path: &str) -> Self {
        Self::of_command(format!("echo {word} | sudo tee {path}"))
    }

    /// Raises a hard limit of the calling shell and of what it starts, which takes
    /// `CAP_SYS_RESOURCE` (prlimit(1)). `None` where this root lacks it: a `sudo` would be the
    /// same root, so only whoever started the container or the machine can help.
    pub(super) fn raise(environment: &Environment, limit: &str, value: u64) -> Option<Self> {
        if is_root_without_power(environment) {
            return None;
        }
        Some(Self::of_command(format!("sudo prlimit --pid $$ --{limit}={value}:{value}")))
    }
}

/// What to add where [`Remedy::raise`] has nothing.
pub(super) fn who_can_raise(environment: &Environment) -> &'static str {
    if is_root_without_power(environment) {
        " (this root has no CAP_SYS_RESOURCE: whoever starts the container or machine must raise it)"
    } else {
        ""
    }
}

fn is_root_without_power(environment: &Environment) -> bool {
    let held = environment.capabilities.value();
    environment.is_root
        && held.is_some_and(|held| !held.names.iter().any(|name| name == "CAP_SYS_RESOURCE"))
}
