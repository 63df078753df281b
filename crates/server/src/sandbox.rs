//! The sandbox of a server: what it gives up between opening its sockets and serving.
//!
//! ```text
//!  sockets, logs, certificate, id file, user ─► files ─► loops and endpoints start ─► calls ─► ready
//! ```
//!
//! [`Server::start_on`](crate::Server::start_on) calls it, for a process that is the server's alone. Rings
//! are restricted where they are made, with a sandbox or without. `docs/serve-sandbox.md` has what is left.

use std::path::{Path, PathBuf};

use pollux_engine::Driver;
use pollux_poller::Mechanism;
use pollux_sandbox::{Confined, Reach, Unavailable, Use};
use pollux_sys::ring::RESTRICTED;

use crate::config::{Answer, LogTarget, SandboxMode, ServeConfig};
use crate::stats::Overview;
use crate::{ServerError, system::ACCOUNTS};

/// What a server has given up.
#[derive(Debug)]
pub(crate) struct Sandbox {
    mode: SandboxMode,
    files: Option<Confined>,
    /// Another process reads the certificate and key anew.
    has_privileged: bool,
    /// What is in force.
    parts: Vec<String>,
    /// What the kernel does not allow.
    lacking: Vec<String>,
}

impl Sandbox {
    /// Takes from this thread, and those that it starts, all paths but those that the server configured
    /// so still uses; `settings` is the file that a reload reads, `removed` what goes with the server. With a
    /// privileged process, that reads the certificate and key.
    ///
    /// # Errors
    /// [`ServerError::Sandbox`]: a part is not available, and was required.
    pub(crate) fn of_files(
        config: &ServeConfig,
        settings: Option<&Path>,
        removed: &[PathBuf],
        has_privileged: bool,
    ) -> Result<Self, ServerError> {
        let (mode, parts, lacking) = (config.sandbox.mode, Vec::new(), Vec::new());
        let mut sandbox = Self { mode, files: None, has_privileged, parts, lacking };
        if sandbox.mode == SandboxMode::Off {
            return Ok(sandbox);
        }
        let privileges = pollux_sandbox::refuse_privileges();
        sandbox.note("no new privileges", privileges.map(|()| "no new privileges".to_owned()))?;
        let mut reach = reach(config, settings, has_privileged);
        removed.iter().for_each(|path| reach.add(path, Use::Remove));
        let files = pollux_sandbox::confine_files(&reach);
        sandbox.files = files.as_ref().ok().cloned();
        sandbox.note("landlock", files.map(|confined| confined.to_string()))?;
        Ok(sandbox)
    }

    /// Forbids all threads the calls that no server makes that serves.
    ///
    /// # Errors
    /// As [`Sandbox::of_files`].
    pub(crate) fn forbid_calls(&mut self, overview: &Overview) -> Result<(), ServerError> {
        if self.mode == SandboxMode::Off {
            return Ok(());
        }
        let calls = pollux_sandbox::confine_calls();
        self.note("seccomp", calls.map(|()| "seccomp".to_owned()))?;
        if matches!(overview.driver, Driver::Completion | Driver::Readiness(Mechanism::UringPoll)) {
            let is_restricted = overview.notes.iter().any(|(_, note)| note == RESTRICTED);
            let unavailable = || Unavailable { reason: "this kernel restricts none".to_owned() };
            let ring = is_restricted.then(|| "ring restricted".to_owned());
            self.note("a restricted ring", ring.ok_or_else(unavailable))?;
        }
        Ok(())
    }

    fn note(&mut self, part: &str, done: Result<String, Unavailable>) -> Result<(), ServerError> {
        match done {
            Ok(part) => self.parts.push(part),
            Err(Unavailable { reason }) if self.mode == SandboxMode::Required => {
                return Err(ServerError::Sandbox { part: part.to_owned(), reason });
            }
            Err(Unavailable { reason }) => self.lacking.push(format!("without {part}: {reason}")),
        }
        Ok(())
    }

    /// What is in force and what is not, in one line.
    pub(crate) fn summary(&self) -> String {
        if self.mode == SandboxMode::Off {
            return "off".to_owned();
        }
        let parts =
            if self.parts.is_empty() { "nothing".to_owned() } else { self.parts.join(", ") };
        let lacking = self.lacking.iter().map(|lacking| format!("; {lacking}"));
        std::iter::once(parts).chain(lacking).collect()
    }

    /// The line of it among the facts of a server.
    pub(crate) fn fact(&self) -> (String, String) {
        ("sandbox".to_owned(), self.summary())
    }

    /// Whether a server configured so would reach what it needs.
    ///
    /// # Errors
    /// What it would not reach, and what to do.
    pub(crate) fn admits(&self, config: &ServeConfig) -> Result<(), String> {
        // The file of the settings was read just now.
        let later = reach(config, None, self.has_privileged);
        match self.files.as_ref().and_then(|files| files.lacks(&later)) {
            None => Ok(()),
            Some(path) => Err(format!(
                "the sandbox of the start does not reach {}: it lies elsewhere, or was replaced; restart \
                 the server, or start it with --sandbox-path and a folder that both lie in",
                path.display()
            )),
        }
    }
}

/// What is read and written after the start, and by a reload.
fn reach(config: &ServeConfig, settings: Option<&Path>, has_privileged: bool) -> Reach {
    let mut reach = Reach::default();
    if let Answer::Files(files) = &config.answer {
        reach.add(&files.root, Use::ReadBelow);
    }
    let pages = config.extras.error_pages.iter().map(|(_, page)| page.as_path());
    let own = config.tls.iter().filter(|_| !has_privileged);
    let tls = own.flat_map(|keys| [keys.cert.as_path(), keys.key.as_path()]);
    let accounts = config.identity.iter().flat_map(|_| ACCOUNTS.map(Path::new));
    for path in pages.chain(tls).chain(settings) {
        reach.add(path, Use::Read);
    }
    for path in accounts {
        reach.add(path, Use::ReadOne);
    }
    for path in &config.sandbox.paths {
        reach.add(path, Use::ReadBelow);
    }
    let monitoring = &config.monitoring;
    for log in monitoring.access_log.iter().chain([&monitoring.error_log]) {
        if let LogTarget::File(path) = log {
            reach.add(path, Use::Write);
        }
    }
    reach
}
