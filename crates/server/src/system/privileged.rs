//! A small process that keeps the rights of root where the server gives its own up (`--user`): it reads the
//! certificate and key anew for a reload, and removes PID file and sockets at the end.
//!
//! ```text
//!  server, as root ── starts it, sends it its paths ──► privileged process, in a sandbox of its own
//!  server, as user ── a byte ─────────────────────────► reads both files ── their bytes ──► server
//!  the server ends, however it does ── end of the link ──► removes what is still the server's, and ends
//! ```
//!
//! It takes no path from the server once that runs as its user: an attacker in the server can have the two
//! files read, as the server itself could before, and nothing else. Signals are for the server: this process
//! ends when the server does. The program is the same one started anew; `pollux serve` calls [`run`] first of all.

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

use pollux_engine::{Signal, Signals};
use pollux_sandbox::{Reach, Use};
use pollux_tls::{Keys, Pem, TlsError};

/// Set for the process, whose link is its standard input then.
const VARIABLE: &str = "POLLUX_SERVE_PRIVILEGED";
/// Its name in lists of processes.
const NAME: &str = "pollux-serve-privileged";
/// It reads two small files; one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest part of a message: a file of certificates, or a path.
const FRAME_BYTES_MAX: usize = 4 << 20;
/// Most files that it removes: as many as there are addresses, and a few.
const REMOVED_MAX: usize = crate::config::ADDRESSES_MAX + 8;

/// What the process is for.
#[derive(Debug, Default)]
pub(crate) struct Task {
    pub(crate) keys: Option<Keys>,
    /// Removed at the end, where the file is still the same.
    pub(crate) removed: Vec<PathBuf>,
    /// Whether it gives up what it does not need.
    pub(crate) is_confined: bool,
}

/// The server's side of the process.
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
        send(link, if self.is_confined { b"confined" } else { b"free" })?;
        let path = |keys: fn(&Keys) -> &PathBuf| {
            self.keys.as_ref().map_or(&b""[..], |each| keys(each).as_os_str().as_bytes())
        };
        send(link, path(|keys| &keys.cert))?;
        send(link, path(|keys| &keys.key))?;
        self.removed.iter().try_for_each(|path| send(link, path.as_os_str().as_bytes()))?;
        send(link, b"")
    }

    fn receive(link: &UnixStream) -> io::Result<Self> {
        let path = || receive(link).map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
        let is_confined = receive(link)? == b"confined";
        let (cert, key) = (path()?, path()?);
        let keys = (!cert.as_os_str().is_empty()).then_some(Keys { cert, key });
        let mut removed = Vec::new();
        loop {
            let next = path()?;
            if next.as_os_str().is_empty() || removed.len() == REMOVED_MAX {
                return Ok(Self { keys, removed, is_confined });
            }
            removed.push(next);
        }
    }

    /// Gives up what this task does not need. Where the kernel lacks a part the server has said so.
    fn confine(&self) {
        if !self.is_confined {
            return;
        }
        let mut reach = Reach::default();
        if let Some(keys) = &self.keys {
            reach.add(&keys.cert, Use::Read);
            reach.add(&keys.key, Use::Read);
        }
        self.removed.iter().for_each(|path| reach.add(path, Use::Remove));
        let _ = pollux_sandbox::refuse_privileges();
        let _ = pollux_sandbox::confine_files(&reach);
        let _ = pollux_sandbox::confine_calls();
    }

    fn answer(&self, link: &UnixStream) -> io::Result<()> {
        let Some(keys) = &self.keys else { return send(link, b"no certificate was named") };
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
    let _ignored = Signals::catch(&[Signal::Terminate, Signal::Interrupt, Signal::HangUp])?;
    let task = Task::receive(&link)?;
    let own: Vec<_> = task.removed.iter().map(|path| (path, identity(path))).collect();
    task.confine();
    send(&link, b"")?;
    while receive(&link).is_ok() {
        task.answer(&link)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_arrives_as_it_was_sent() {
        let keys = Keys { cert: "/c".into(), key: "/k".into() };
        for keys in [None, Some(keys)] {
            let removed =
                vec![PathBuf::from("/run/a"), PathBuf::from(OsString::from_vec(vec![0xff]))];
            let task = Task { keys, removed, is_confined: true };
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            task.send(&ours).expect("sent");
            let received = Task::receive(&theirs).expect("received");
            assert_eq!((received.keys, received.removed), (task.keys, task.removed));
            assert!(received.is_confined);
        }
    }

    #[test]
    fn no_frame_makes_it_take_more_memory_than_it_may() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (&ours).write_all(&u32::MAX.to_le_bytes()).expect("sent");
        assert_eq!(receive(&theirs).expect_err("too long").kind(), ErrorKind::InvalidData);
    }
}
