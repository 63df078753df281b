//! Tells a service manager how far the server is (`sd_notify(3)`).

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// How far a server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It takes connections, with the settings that it was told last.
    Ready,
    /// It reads its settings again.
    Reloading,
    /// It ends.
    Stopping,
}

/// The one who wants to know; nobody where `NOTIFY_SOCKET` is not set.
#[derive(Debug)]
pub(crate) struct Manager(Option<UnixDatagram>);

impl Manager {
    pub(crate) fn of_environment() -> Self {
        Self::at(std::env::var_os("NOTIFY_SOCKET"))
    }

    /// At this path, or with `@` at this abstract name. One that can't be told is as none: a server
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
            Ok::<_, std::io::Error>(socket)
        };
        Self(address.and_then(|address| connect(address).ok()))
    }

    pub(crate) fn tell(&self, state: State) {
        let Some(socket) = &self.0 else { return };
        let text = match state {
            State::Ready => "READY=1".to_owned(),
            State::Stopping => "STOPPING=1".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).expect("bound");
        let name = format!("pollux-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let by_name = UnixDatagram::bind_addr(&address).expect("bound");
        for (socket, at) in [(by_path, path.into_os_string()), (by_name, format!("@{name}").into())]
        {
            let manager = Manager::at(Some(at));
            let mut told = [0; 100];
            for (state, begins) in [
                (State::Ready, "READY=1"),
                (State::Reloading, "RELOADING=1\nMONOTONIC_USEC="),
                (State::Stopping, "STOPPING=1"),
            ] {
                manager.tell(state);
                let len = socket.recv(&mut told).expect("told");
                assert!(told[..len].starts_with(begins.as_bytes()));
            }
        }
        Manager::at(None).tell(State::Ready);
        Manager::at(Some("neither".into())).tell(State::Ready);
        Manager::at(Some(folder.path().join("nobody").into())).tell(State::Ready);
    }
}
