//! The system around a server: sockets that a manager opened, notifications of the manager, the id of the
//! process in a file, the user that it continues as, and the process that keeps the rights of before.
//!
//! The command line and the thread that waits for signals call it; loops never do.

mod pid_file;
pub mod privileges;

pub(crate) use pid_file::PidFile;
pub use privileges::Identity;
pub(crate) use privileges::{ACCOUNTS, Privileged};

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use pollux_engine::Sockets;
use pollux_sys::process;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::time::{ClockId, clock_gettime};

/// That a file could be made or removed here, as far as permissions say.
pub(crate) fn is_folder_writable(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let (folder, access) = (folder.unwrap_or(".".as_ref()), Access::WRITE_OK | Access::EXEC_OK);
    accessat(CWD, folder, access, AtFlags::EACCESS)?;
    Ok(())
}

/// Most addresses of a server; each costs a descriptor in each loop.
pub(crate) const ADDRESSES_MAX: usize = 64;
/// The first descriptor that a manager passes.
const FIRST: i32 = 3;
/// Most of them: as many as there are addresses.
const SOCKETS_MAX: i32 = ADDRESSES_MAX as i32;

/// The sockets that were passed to this process, by `LISTEN_PID` and `LISTEN_FDS`; none where they are
/// another's or were not set.
///
/// # Errors
/// They are set and no numbers, or one of what they name is not a socket that listens.
pub fn sockets() -> io::Result<Option<Sockets>> {
    let variable = |name| std::env::var(name).ok();
    passed(variable("LISTEN_PID"), variable("LISTEN_FDS"), std::process::id())
}

fn passed(pid: Option<String>, fds: Option<String>, own: u32) -> io::Result<Option<Sockets>> {
    let (Some(pid), Some(fds)) = (pid, fds) else { return Ok(None) };
    if pid != own.to_string() {
        return Ok(None);
    }
    let wrong = |why: &str| io::Error::other(format!("LISTEN_FDS={fds}: {why}"));
    let number: i32 = fds.parse().map_err(|_| wrong("expected a number"))?;
    if !(1..=SOCKETS_MAX).contains(&number) {
        return Err(wrong(&format!("expected 1 to {SOCKETS_MAX}")));
    }
    // Taken and not duplicated: a duplicate would have the next number, and pass for one that was passed.
    let mut sockets = Sockets::inherited(Vec::new())?;
    for fd in FIRST..FIRST + number {
        let one =
            process::take_inherited(fd).and_then(|fd: OwnedFd| Sockets::inherited(vec![vec![fd]]));
        sockets.append(one.map_err(|error| {
            let last = FIRST + number - 1;
            wrong(&format!(
                "descriptor {fd} is not a socket that listens ({error}); expected one at each number from \
                 {FIRST} to {last}"
            ))
        })?);
    }
    Ok(Some(sockets))
}

/// The state of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It takes connections, with the settings that it read last.
    Ready,
    /// It reads its settings again.
    Reloading,
    /// It ends.
    Stopping,
    /// It works: for the watchdog.
    Alive,
}

/// Messages in the time of a watchdog: one that is late or left out ends nothing.
const WATCHDOG_PARTS: u32 = 4;
/// Shortest time between two of them, however short that of the watchdog is.
const ALIVE_EVERY_MIN: Duration = Duration::from_millis(10);

/// The service manager; none where `NOTIFY_SOCKET` is not set.
#[derive(Debug)]
pub(crate) struct Manager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Manager {
    pub(crate) fn of_environment() -> Self {
        let text = |name| std::env::var(name).ok();
        let watchdog = watchdog(text("WATCHDOG_PID"), text("WATCHDOG_USEC"), std::process::id());
        Self { watchdog, ..Self::at(std::env::var_os("NOTIFY_SOCKET")) }
    }

    /// How often it expects [`State::Alive`]; never without a watchdog.
    pub(crate) fn alive_every(&self) -> Option<Duration> {
        self.watchdog
            .filter(|_| self.socket.is_some())
            .map(|time| (time / WATCHDOG_PARTS).max(ALIVE_EVERY_MIN))
    }

    /// At this path, or with `@` at this abstract name. One that can't be reached is as none: a server
    /// does not end for it, and the manager's own time limit says so.
    fn at(name: Option<OsString>) -> Self {
        let address = name.and_then(|name| match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok(),
            [b'/', ..] => SocketAddr::from_pathname(&name).ok(),
            _ => None,
        });
        // Connected at once: a sandbox allows no new way out.
        let connect = |address| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.connect_addr(&address)?;
            Ok::<_, io::Error>(socket)
        };
        Self { socket: address.and_then(|address| connect(address).ok()), watchdog: None }
    }

    pub(crate) fn notify(&self, state: State) {
        let Some(socket) = &self.socket else { return };
        let text = match state {
            State::Ready => "READY=1".to_owned(),
            State::Stopping => "STOPPING=1".to_owned(),
            State::Alive => "WATCHDOG=1".to_owned(),
            State::Reloading => {
                let now = clock_gettime(ClockId::Monotonic);
                let now_us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
                format!("RELOADING=1\nMONOTONIC_USEC={now_us}")
            }
        };
        // As above.
        let _ = socket.send(text.as_bytes());
    }
}

/// The time within which a watchdog expects a message of the process `own` (`sd_watchdog_enabled(3)`).
fn watchdog(pid: Option<String>, usec: Option<String>, own: u32) -> Option<Duration> {
    let is_meant = pid.is_none_or(|pid| pid == own.to_string());
    let usec: u64 = usec.filter(|_| is_meant)?.parse().ok()?;
    (usec > 0).then(|| Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_another_process_mean_nothing_and_wrong_ones_are_refused() {
        let of = |pid: &str, fds: &str| passed(Some(pid.into()), Some(fds.into()), 7);
        assert!(of("8", "1").expect("another's").is_none());
        assert!(passed(None, Some("1".into()), 7).expect("half of it").is_none());
        for (fds, message) in
            [("", "expected a number"), ("0", "expected 1 to 64"), ("99", "expected 1 to 64")]
        {
            let error = of("7", fds).expect_err(fds).to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_manager_is_notified_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).expect("bound");
        let name = format!("pollux-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let by_name = UnixDatagram::bind_addr(&address).expect("bound");
        for (socket, at) in [(by_path, path.into_os_string()), (by_name, format!("@{name}").into())]
        {
            let manager = Manager::at(Some(at));
            let mut message = [0; 100];
            for (state, begins) in [
                (State::Ready, "READY=1"),
                (State::Reloading, "RELOADING=1\nMONOTONIC_USEC="),
                (State::Stopping, "STOPPING=1"),
                (State::Alive, "WATCHDOG=1"),
            ] {
                manager.notify(state);
                let len = socket.recv(&mut message).expect("notified");
                assert!(message[..len].starts_with(begins.as_bytes()));
            }
        }
        Manager::at(None).notify(State::Ready);
        Manager::at(Some("neither".into())).notify(State::Ready);
        Manager::at(Some(folder.path().join("nobody").into())).notify(State::Ready);
    }

    #[test]
    fn a_watchdog_is_one_for_this_process_with_a_time() {
        let of = |pid: Option<&str>, usec: Option<&str>| {
            watchdog(pid.map(str::to_owned), usec.map(str::to_owned), 7)
        };
        assert_eq!(of(None, Some("2000000")), Some(Duration::from_secs(2)));
        assert_eq!(of(Some("7"), Some("1")), Some(Duration::from_micros(1)));
        let none = [
            (Some("8"), Some("1")),
            (None, None),
            (None, Some("0")),
            (None, Some("soon")),
            (None, Some("")),
        ];
        assert!(none.into_iter().all(|(pid, usec)| of(pid, usec).is_none()));
        let unreachable = Manager { watchdog: Some(Duration::from_secs(1)), ..Manager::at(None) };
        assert_eq!(unreachable.alive_every(), None);
    }
}
