//! The service manager that started this process: it is notified of the state (`sd_notify(3)`), and of life where it has a
//! watchdog.
//!
//! Servers and the manager of a pool call it. One that cannot be reached is as none.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use pollux_sys::clock;

/// The variable with the address of its socket.
pub const NOTIFY_VARIABLE: &str = "NOTIFY_SOCKET";

/// Messages in the time of a watchdog: one that is late or left out ends nothing.
const WATCHDOG_PARTS: u32 = 4;
/// Shortest time between two of them, however short that of the watchdog is.
const ALIVE_EVERY_MIN: Duration = Duration::from_millis(10);

/// The state of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceState {
    /// It serves, with the settings that it read last.
    Ready,
    /// It reads its settings again.
    Reloading,
    /// It ends.
    Stopping,
    /// It works: for the watchdog.
    Alive,
}

/// The service manager; none where `NOTIFY_SOCKET` is not set.
#[derive(Debug)]
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names.
    #[must_use]
    pub fn of_environment() -> Self {
        let text = |name| std::env::var(name).ok();
        let watchdog = watchdog(text("WATCHDOG_PID"), text("WATCHDOG_USEC"), std::process::id());
        Self { watchdog, ..Self::at(std::env::var_os(NOTIFY_VARIABLE)) }
    }

    /// Whether it can be notified.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// How often it expects [`ServiceState::Alive`]; never without a watchdog.
    #[must_use]
    pub fn alive_every(&self) -> Option<Duration> {
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

    /// Notifies it of a state.
    pub fn notify(&self, state: ServiceState) {
        let text = match state {
            ServiceState::Ready => "READY=1".to_owned(),
            ServiceState::Stopping => "STOPPING=1".to_owned(),
            ServiceState::Alive => "WATCHDOG=1".to_owned(),
            ServiceState::Reloading => {
                let now_us = clock::monotonic().as_micros();
                format!("RELOADING=1\nMONOTONIC_USEC={now_us}")
            }
        };
        self.send(&text);
    }

    /// Says what the process is doing, in words that the status of the service shows.
    pub fn say(&self, words: &str) {
        self.send(&format!("STATUS={}", words.replace('\n', "; ")));
    }

    fn send(&self, text: &str) {
        // As above.
        let _ = self.socket.as_ref().map(|socket| socket.send(text.as_bytes()));
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
    fn a_manager_is_notified_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).expect("bound");
        let name = format!("pollux-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let by_name = UnixDatagram::bind_addr(&address).expect("bound");
        for (socket, at) in [(by_path, path.into_os_string()), (by_name, format!("@{name}").into())]
        {
            let manager = ServiceManager::at(Some(at));
            let mut message = [0; 100];
            for (state, begins) in [
                (ServiceState::Ready, "READY=1"),
                (ServiceState::Reloading, "RELOADING=1\nMONOTONIC_USEC="),
                (ServiceState::Stopping, "STOPPING=1"),
                (ServiceState::Alive, "WATCHDOG=1"),
            ] {
                manager.notify(state);
                let len = socket.recv(&mut message).expect("notified");
                assert!(message[..len].starts_with(begins.as_bytes()));
            }
            manager.say("one\ntwo");
            let len = socket.recv(&mut message).expect("notified");
            assert_eq!(&message[..len], b"STATUS=one; two");
        }
        ServiceManager::at(None).notify(ServiceState::Ready);
        ServiceManager::at(Some("neither".into())).notify(ServiceState::Ready);
        ServiceManager::at(Some(folder.path().join("missing").into())).notify(ServiceState::Ready);
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
        let unreachable =
            ServiceManager { watchdog: Some(Duration::from_secs(1)), ..ServiceManager::at(None) };
        assert_eq!(unreachable.alive_every(), None);
    }
}
