//! What a server gives up once it has its sockets, certificate and error log: the user that it continues as,
//! the process that keeps the rights of before, and the sandbox.
//!
//! ```text
//!  sockets, logs, certificate, id file, user ─► files ─► loops and endpoints start ─► calls ─► ready
//! ```
//!
//! [`Server::start_on`](crate::Server::start_on) makes the sandbox, for a
//! process that is the server's alone. Rings are restricted where they are made, with a sandbox or without.
//! `docs/serve-sandbox.md` has what is left.

use std::ffi::{OsStr, OsString};
use std::fs::remove_file;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_engine::{Driver, Signal, Signals};
use pollux_poller::{Facility, Mechanism};
use pollux_sys::sandbox::{AllowedPaths, Confined, Unavailable, Use};
use pollux_tls::{Keys, Pem, TlsError};

use crate::ServerError;
use crate::config::{Answer, LogTarget, SandboxConfig, SandboxMode, ServeConfig};
use crate::identity::ACCOUNTS;

/// Set for the process, whose link is its standard input then.
const VARIABLE: &str = "POLLUX_SERVE_PRIVILEGED";
/// Its name in lists of processes.
const NAME: &str = "pollux-serve-privileged";
/// It reads two small files; one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest part of a message: a file of certificates, or a path.
const FRAME_BYTES_MAX: usize = 4 << 20;
/// Most files that it removes: as many as there are addresses, and a few.
const REMOVED_MAX: usize = crate::system::ADDRESSES_MAX + 8;

/// What the process is for.
#[derive(Debug, Default)]
pub(crate) struct Task {
    pub(crate) keys: Option<Keys>,
    /// Removed at the end, where the file is still the same.
    pub(crate) removed: Vec<PathBuf>,
    /// What it gives up; none where it gives up nothing.
    pub(crate) sandbox: Option<Narrow>,
}

/// What of the sandbox of a server is for its process that keeps the rights too.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Narrow {
    /// Folders that stay in reach.
    pub(crate) paths: Vec<PathBuf>,
    /// Whether what takes the place of a folder is out of reach.
    pub(crate) is_exact: bool,
}

impl Narrow {
    /// That of the settings.
    pub(crate) fn from_config(config: &SandboxConfig) -> Option<Self> {
        let SandboxConfig { mode, paths, is_exact } = config;
        (*mode != SandboxMode::Off).then(|| Self { paths: paths.clone(), is_exact: *is_exact })
    }

    /// Adds a path that is read, also by a reload.
    fn add(&self, reach: &mut AllowedPaths, path: &Path, used: Use) -> Option<PathBuf> {
        if self.is_exact {
            reach.add(path, used);
            None
        } else {
            reach.add_replaceable(path, used)
        }
    }
}

/// What to do about a path that a sandbox does not reach.
fn out_of_reach(path: &Path) -> String {
    format!(
        "the sandbox of the start does not reach {}: it lies elsewhere, or was replaced; restart \
         the server, or start it with --sandbox-path and a folder that both lie in",
        path.display()
    )
}

/// The server's side of the process.
///
/// A small process that keeps the rights of root where the server gives its own up (`--user`): it reads the
/// certificate and key anew for a reload, and removes PID file and sockets at the end.
///
/// ```text
///  server, as root ── starts it, sends it its paths ──► privileged process, in a sandbox of its own
///  server, as user ── a byte ─────────────────────────► reads both files ── their bytes ──► server
///  the server ends, however it does ── end of the link ──► removes what is still the server's, and ends
/// ```
///
/// It takes no path from the server once that runs as its user: an attacker in the server can have the two
/// files read, as the server itself could before, and nothing else. Signals are for the server: this process
/// ends when the server does. The program is the same one started anew; `pollux serve` calls [`run`] first of all.
#[derive(Debug)]
pub(crate) struct Privileged {
    link: UnixStream,
}

impl Privileged {
    /// Starts this program once more with these words, and waits until it is ready.
    ///
    /// # Errors
    /// No process or descriptor is left, or the program does not do what is expected of it.
    pub(crate) fn start(task: &Task, words: &[OsString]) -> io::Result<Self> {
        let (link, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0(NAME).args(words).env_clear().env(VARIABLE, "1");
        // A signal of the terminal is for the server.
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).process_group(0);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        link.set_read_timeout(Some(PATIENCE))?;
        link.set_write_timeout(Some(PATIENCE))?;
        task.send(&link)?;
        receive(&link)?;
        Ok(Self { link })
    }

    /// What stands in the files of the certificate and its key now.
    ///
    /// # Errors
    /// They can't be read, or the process is gone.
    pub(crate) fn pem(&self) -> Result<Pem, TlsError> {
        let lost = |error| {
            TlsError::new(format!(
                "the process that keeps the rights to read it does not answer ({error}); restart the server"
            ))
        };
        let link = &self.link;
        send(link, b"").and_then(|()| receive(link)).map_err(lost).and_then(|wrong| {
            if !wrong.is_empty() {
                return Err(TlsError::new(String::from_utf8_lossy(&wrong)));
            }
            let (cert, key) =
                receive(link).and_then(|cert| Ok((cert, receive(link)?))).map_err(lost)?;
            Ok(Pem { cert, key })
        })
    }

    /// Has it remove what is left, and waits until it has.
    pub(crate) fn end(self) {
        // One that is gone already has removed what it could.
        let _ = self.link.shutdown(Shutdown::Write);
        let _ = receive(&self.link);
    }
}

impl Task {
    fn send(&self, link: &UnixStream) -> io::Result<()> {
        let (word, narrow): (&[u8], _) = match &self.sandbox {
            None => (b"free", &Narrow::default()),
            Some(narrow) if narrow.is_exact => (b"exact", narrow),
            Some(narrow) => (b"confined", narrow),
        };
        send(link, word)?;
        let path = |keys: fn(&Keys) -> &PathBuf| {
            self.keys.as_ref().map_or(&b""[..], |each| keys(each).as_os_str().as_bytes())
        };
        send(link, path(|keys| &keys.cert))?;
        send(link, path(|keys| &keys.key))?;
        for paths in [&self.removed, &narrow.paths] {
            paths.iter().try_for_each(|path| send(link, path.as_os_str().as_bytes()))?;
            send(link, b"")?;
        }
        Ok(())
    }

    fn receive(link: &UnixStream) -> io::Result<Self> {
        let path = || receive(link).map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
        let word = receive(link)?;
        let cert = path()?;
        let key = path()?;
        let keys = (!cert.as_os_str().is_empty()).then_some(Keys { cert, key });
        let list = || {
            let mut paths = Vec::new();
            loop {
                let next = path()?;
                if next.as_os_str().is_empty() || paths.len() == REMOVED_MAX {
                    return Ok::<_, io::Error>(paths);
                }
                paths.push(next);
            }
        };
        let removed = list()?;
        let paths = list()?;
        let sandbox = (word != b"free").then(|| Narrow { paths, is_exact: word == b"exact" });
        Ok(Self { keys, removed, sandbox })
    }

    /// Gives up what this task does not need. Where the kernel lacks a part the server has said so.
    fn confine(&self) -> Option<Confined> {
        let narrow = self.sandbox.as_ref()?;
        let mut reach = AllowedPaths::default();
        for path in self.keys.iter().flat_map(|keys| [&keys.cert, &keys.key]) {
            narrow.add(&mut reach, path, Use::Read);
        }
        narrow.paths.iter().for_each(|path| reach.add(path, Use::ReadBelow));
        self.removed.iter().for_each(|path| reach.add(path, Use::Remove));
        let _ = pollux_sys::sandbox::refuse_privileges();
        let confined = pollux_sys::sandbox::confine_files(&reach).ok();
        let _ = confine_calls();
        confined
    }

    fn answer(&self, link: &UnixStream, confined: Option<&Confined>) -> io::Result<()> {
        let Some(keys) = &self.keys else { return send(link, b"no certificate was named") };
        let mut later = AllowedPaths::default();
        [&keys.cert, &keys.key].into_iter().for_each(|path| later.add(path, Use::Read));
        if let Some(path) = confined.and_then(|confined| confined.lacks(&later)) {
            return send(link, out_of_reach(path).as_bytes());
        }
        match keys.load() {
            Ok(Pem { cert, key }) => {
                send(link, b"")?;
                send(link, &cert)?;
                send(link, &key)
            }
            Err(error) => send(link, error.to_string().as_bytes()),
        }
    }
}

/// Is the privileged process, where this is one; else nothing.
///
/// # Errors
/// Standard input is not the link to a server.
pub fn run() -> Option<io::Result<()>> {
    std::env::var_os(VARIABLE).filter(|value| value == OsStr::new("1"))?;
    Some(serve())
}

fn serve() -> io::Result<()> {
    let link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Caught and never looked at: a manager that ends all processes of a service at once ends the server.
    let _ignored = Signals::catch(&Signal::ALL)?;
    let task = Task::receive(&link)?;
    let own: Vec<_> = task.removed.iter().map(|path| (path, identity(path))).collect();
    let confined = task.confine();
    send(&link, b"")?;
    while receive(&link).is_ok() {
        task.answer(&link, confined.as_ref())?;
    }
    for (path, identity_then) in own {
        // Another server may have put its own there.
        if identity_then.is_some() && identity(path) == identity_then {
            let _ = remove_file(path);
        }
    }
    Ok(())
}

/// Device and inode.
/// Leaves every thread of this process the system calls of a server that serves, on whatever mechanism. The completion loop
/// enters its ring by the call of `uring-poll`.
fn confine_calls() -> Result<(), Unavailable> {
    let of_mechanisms = Mechanism::ALL.iter().flat_map(|mechanism| mechanism.system_calls());
    pollux_sys::sandbox::confine_calls(of_mechanisms.copied())
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()))
}

fn send(mut link: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    link.write_all(&len.to_le_bytes())?;
    link.write_all(bytes)
}

fn receive(mut link: &UnixStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    link.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > FRAME_BYTES_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len];
    link.read_exact(&mut bytes)?;
    Ok(bytes)
}

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
    /// The served folder, where one in its place would be out of reach.
    fixed: Option<PathBuf>,
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
        // What explains a ring that is refused is read while it can be.
        pollux_sys::ring::note_reasons();
        let mode = config.sandbox.mode;
        let parts = Vec::new();
        let lacking = Vec::new();
        let mut sandbox = Self { mode, files: None, has_privileged, parts, lacking, fixed: None };
        if sandbox.mode == SandboxMode::Off {
            return Ok(sandbox);
        }
        let privileges = pollux_sys::sandbox::refuse_privileges();
        sandbox.note("no new privileges", privileges.map(|()| "no new privileges".to_owned()))?;
        let (mut reach, fixed) = reach(config, settings, has_privileged);
        let monitoring = &config.monitoring;
        let logs = monitoring.access_log.iter().chain([&monitoring.error_log]);
        add_logs(&mut reach, logs);
        // A reload looks whether they have the user still, and needs them no more.
        let accounts = config.identity.iter().flat_map(|_| ACCOUNTS.map(Path::new));
        accounts.for_each(|path| reach.add(path, Use::ReadOne));
        removed.iter().for_each(|path| reach.add(path, Use::Remove));
        let files = pollux_sys::sandbox::confine_files(&reach);
        sandbox.files = files.as_ref().ok().cloned();
        sandbox.fixed = fixed.filter(|_| files.is_ok());
        sandbox.note("landlock", files.map(|confined| confined.to_string()))?;
        Ok(sandbox)
    }

    /// Forbids all threads the calls that no server makes that serves.
    ///
    /// # Errors
    /// As [`Sandbox::of_files`].
    pub(crate) fn forbid_calls(
        &mut self,
        driver: Driver,
        is_ring_restricted: bool,
    ) -> Result<(), ServerError> {
        if self.mode == SandboxMode::Off {
            return Ok(());
        }
        let calls = confine_calls();
        self.note("seccomp", calls.map(|()| "seccomp".to_owned()))?;
        if driver.facility() == Facility::Ring {
            let unavailable = || Unavailable { reason: "this kernel restricts none".to_owned() };
            let ring = is_ring_restricted.then(|| "ring restricted".to_owned());
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
        let fixed = self.fixed.iter().map(|folder| {
            let above = folder.parent().unwrap_or(folder).display();
            format!(
                "; a folder put in the place of {} needs a restart, or --sandbox-path {above} at the start",
                folder.display()
            )
        });
        std::iter::once(parts).chain(lacking).chain(fixed).collect()
    }

    /// The line of it among the facts of a server.
    pub(crate) fn fact(&self) -> (String, String) {
        ("sandbox".to_owned(), self.summary())
    }

    /// Whether a server configured so would reach what it needs: what it reads, and the log that it does not have
    /// open yet.
    ///
    /// # Errors
    /// What it would not reach, and what to do.
    pub(crate) fn admits(
        &self,
        config: &ServeConfig,
        new_log: Option<&LogTarget>,
    ) -> Result<(), String> {
        let Some(files) = &self.files else { return Ok(()) };
        // The file of the settings was read just now.
        let (read, _) = reach(config, None, self.has_privileged);
        if let Some(path) = files.lacks(&read) {
            return Err(out_of_reach(path));
        }
        let mut written = AllowedPaths::default();
        add_logs(&mut written, new_log.into_iter());
        match files.lacks(&written) {
            None => Ok(()),
            Some(path) => Err(format!(
                "the sandbox of the start does not let {} be written, only the folders of the logs that the \
                 server was started with; restart the server",
                path.display()
            )),
        }
    }
}

/// Adds the files of logs; a stream is open.
fn add_logs<'a>(reach: &mut AllowedPaths, logs: impl Iterator<Item = &'a LogTarget>) {
    for log in logs {
        if let LogTarget::File(path) = log.led_to() {
            reach.add(&path, Use::Write);
        }
    }
}

/// What is read after the start, and by a reload; and the served folder, where one that takes its
/// place is not among it, but should be.
fn reach(
    config: &ServeConfig,
    settings: Option<&Path>,
    has_privileged: bool,
) -> (AllowedPaths, Option<PathBuf>) {
    let mut reach = AllowedPaths::default();
    let mut fixed = None;
    let narrow = Narrow::from_config(&config.sandbox).unwrap_or_default();
    if let Answer::Files(files) = &config.answer {
        let is_known = |folder: &PathBuf| {
            let mut paths = narrow.paths.iter().filter_map(|path| path.canonicalize().ok());
            folder.parent().is_none_or(|above| paths.any(|path| above.starts_with(path)))
        };
        fixed = narrow.add(&mut reach, &files.root, Use::ReadBelow);
        fixed = fixed.filter(|folder| !is_known(folder));
    }
    let pages = config.extras.error_pages.iter().map(|(_, page)| page.as_path());
    let own = config.tls.iter().filter(|_| !has_privileged);
    let tls = own.flat_map(|keys| [keys.cert.as_path(), keys.key.as_path()]);
    for path in pages.chain(tls).chain(settings) {
        narrow.add(&mut reach, path, Use::Read);
    }
    for path in &config.sandbox.paths {
        reach.add(path, Use::ReadBelow);
    }
    (reach, fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_a_stream_leaves_no_device_to_write() {
        let reach_of = |log: &str| {
            let text = format!("reply = 1\naccess_log = {log:?}");
            let config = pollux_settings::Given::from_toml(&text, "test").read();
            let config: ServeConfig = config.expect("right");
            let mut reach = AllowedPaths::default();
            add_logs(&mut reach, config.monitoring.access_log.iter());
            reach
        };
        assert_eq!(reach_of("/dev/stdout"), reach_of("-"));
        assert_ne!(reach_of("/dev/null"), reach_of("-"));
    }

    #[test]
    fn a_task_arrives_as_it_was_sent() {
        let keys = Keys { cert: "/c".into(), key: "/k".into() };
        for keys in [None, Some(keys)] {
            let removed =
                vec![PathBuf::from("/run/a"), PathBuf::from(OsString::from_vec(vec![0xff]))];
            let narrow = Narrow { paths: vec!["/p".into()], is_exact: removed.len() == 1 };
            let task = Task { keys, removed, sandbox: Some(narrow) };
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            task.send(&ours).expect("sent");
            let received = Task::receive(&theirs).expect("received");
            assert_eq!((received.keys, received.removed), (task.keys, task.removed));
            assert_eq!(received.sandbox, task.sandbox);
        }
    }

    #[test]
    fn no_frame_makes_it_take_more_memory_than_it_may() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (&ours).write_all(&u32::MAX.to_le_bytes()).expect("sent");
        assert_eq!(receive(&theirs).expect_err("too long").kind(), ErrorKind::InvalidData);
    }
}
