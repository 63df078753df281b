//! Everything that a proxy listens on, apart from what takes the connections: opened once, and kept
//! as long as the settings name the address, so that no client is refused while workers
//! come and go.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use pollux_engine::{ListenAddress, Listeners, Sockets};
use pollux_sys::process;

use super::start::{CONTROL, Endpoints, STATS, close_to_others, explained_open, open_to_others};
use crate::ServerError;
use crate::proxy::ProxyConfig;

/// What comes by a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Clients,
    Stats,
    Control,
}

impl Part {
    const ALL: [Self; 3] = [Self::Clients, Self::Stats, Self::Control];

    const fn letter(self) -> char {
        match self {
            Self::Clients => 'c',
            Self::Stats => 's',
            Self::Control => 'k',
        }
    }
}

/// The sockets of one address of the settings.
#[derive(Debug)]
struct Bound {
    part: Part,
    /// As it was configured: port 0 is kept apart from the port that the kernel chose.
    address: ListenAddress,
    sockets: Sockets,
}

/// The sockets of a proxy.
#[derive(Debug, Default)]
pub struct ProxySockets {
    all: Vec<Bound>,
}

impl ProxySockets {
    /// Opens what the settings name.
    ///
    /// # Errors
    /// [`ServerError::Listen`], or the control socket could not be closed to others.
    pub fn open(config: &ProxyConfig) -> Result<Self, ServerError> {
        Self::default().changed_to(config)
    }

    /// The sockets that these settings name: those that are here, and new ones for other addresses.
    ///
    /// # Errors
    /// As [`ProxySockets::open`].
    pub fn changed_to(&self, config: &ProxyConfig) -> Result<Self, ServerError> {
        let clients = config.listen().into_iter().map(|address| (Part::Clients, address));
        let stats = config.monitoring.stats.clone().map(|address| (Part::Stats, address));
        let control = config.monitoring.control.clone();
        let control = control.map(|path| (Part::Control, ListenAddress::Unix(path)));
        let mut here: Vec<&Bound> = self.all.iter().collect();
        let mut all: Vec<Bound> = Vec::new();
        let mut opened = OpenedPaths::default();
        for (part, address) in clients.chain(stats).chain(control) {
            let is_it = |bound: &&Bound| bound.part == part && bound.address == address;
            let sockets = match here.iter().position(is_it) {
                Some(at) => {
                    let sockets = here.remove(at).sockets.duplicate().map_err(no_descriptor)?;
                    // One whose path was taken away has nothing to permit.
                    if sockets.paths().iter().all(|path| path.exists()) {
                        permit(part, &sockets, config)?;
                    }
                    sockets
                }
                None => {
                    let sockets = open(part, &address, config)?;
                    opened.0.extend(sockets.paths());
                    permit(part, &sockets, config)?;
                    sockets
                }
            };
            all.push(Bound { part, address, sockets });
        }
        opened.0.clear();
        Ok(Self { all })
    }

    /// Where clients come, with the ports that the kernel chose.
    #[must_use]
    pub fn addresses(&self) -> Vec<ListenAddress> {
        self.of(Part::Clients).flat_map(|bound| bound.sockets.addresses()).collect()
    }

    /// The same open sockets once more, by what they are for.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn divided(&self) -> Result<(Sockets, Endpoints), ServerError> {
        let of = |part| {
            let mut found: Option<Sockets> = None;
            for bound in self.of(part) {
                let sockets = bound.sockets.duplicate()?;
                match &mut found {
                    Some(found) => found.append(sockets),
                    None => found = Some(sockets),
                }
            }
            Ok::<_, io::Error>(found)
        };
        let clients = of(Part::Clients).map_err(no_descriptor)?;
        let stats = of(Part::Stats).map_err(no_descriptor)?;
        let control = of(Part::Control).map_err(no_descriptor)?;
        Ok((clients.expect("settings name an address"), Endpoints { stats, control }))
    }

    /// Paths of unix sockets, which are removed at the end.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.all.iter().flat_map(|bound| bound.sockets.paths()).collect()
    }

    /// Descriptors for a child that is about to be started, open in it as well, and the text that
    /// names them there. They are to be dropped once it was started.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn for_child(&self) -> io::Result<(Vec<OwnedFd>, String)> {
        let mut copies = Vec::new();
        let mut words = Vec::new();
        for bound in &self.all {
            let mut numbers = Vec::new();
            for fd in bound.sockets.descriptors().flatten() {
                let copy = left_open(fd)?;
                numbers.push(copy.as_raw_fd().to_string());
                copies.push(copy);
            }
            words.push(format!("{}{}", bound.part.letter(), numbers.join(",")));
        }
        Ok((copies, words.join(";")))
    }

    /// What a parent left open for this process and named so.
    ///
    /// # Errors
    /// The text names no such sockets.
    pub(crate) fn inherited(text: &str) -> io::Result<Self> {
        let wrong = || io::Error::other(format!("sockets \"{text}\""));
        let mut all = Vec::new();
        for word in text.split(';') {
            let letter = word.chars().next().ok_or_else(wrong)?;
            let part = Part::ALL.into_iter().find(|part| part.letter() == letter);
            let numbers = word[letter.len_utf8()..].split(',').map(|number| {
                let number: RawFd = number.parse().map_err(|_| wrong())?;
                process::take_inherited(number)
            });
            let sockets = Sockets::inherited(vec![numbers.collect::<io::Result<_>>()?])?;
            let address = sockets.addresses().remove(0);
            all.push(Bound { part: part.ok_or_else(wrong)?, address, sockets });
        }
        Ok(Self { all })
    }

    fn of(&self, part: Part) -> impl Iterator<Item = &Bound> {
        self.all.iter().filter(move |bound| bound.part == part)
    }
}

/// A duplicate that stays open in children.
///
/// # Errors
/// EMFILE.
pub(crate) fn left_open(fd: impl AsFd) -> io::Result<OwnedFd> {
    let copy = fd.as_fd().try_clone_to_owned()?;
    rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty())?;
    Ok(copy)
}

fn no_descriptor(cause: io::Error) -> ServerError {
    ServerError::Descriptors { cause }
}

fn open(part: Part, address: &ListenAddress, config: &ProxyConfig) -> Result<Sockets, ServerError> {
    let address = std::slice::from_ref(address);
    let (opened, name, flag) = match part {
        Part::Clients => {
            let (how, threads) = (config.loops.listeners, config.loops.threads);
            (Sockets::open(address, how, threads), "proxy", "--listen")
        }
        Part::Stats => (Sockets::open(address, Listeners::Exclusive, 1), STATS, "--stats"),
        Part::Control => (Sockets::open(address, Listeners::Exclusive, 1), CONTROL, "--control"),
    };
    opened.map_err(|cause| explained_open(name, flag, cause))
}

/// Lets those connect to unix sockets that the settings name.
fn permit(part: Part, sockets: &Sockets, config: &ProxyConfig) -> Result<(), ServerError> {
    match part {
        Part::Control => sockets.paths().iter().try_for_each(|path| close_to_others(path)),
        Part::Clients | Part::Stats => open_to_others(&sockets.paths(), &config.sockets),
    }
}

/// Paths that were made on the way to settings that cannot be obtained.
#[derive(Default)]
struct OpenedPaths(Vec<PathBuf>);

impl Drop for OpenedPaths {
    fn drop(&mut self) {
        for path in &self.0 {
            // Ours: it was made a moment ago.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    fn config(listen: &[&str]) -> ProxyConfig {
        let listen = listen.iter().map(|text| text.parse().expect("an address")).collect();
        ProxyConfig::new(listen, vec!["127.0.0.1:1".parse().expect("an address")])
    }

    #[test]
    fn addresses_that_stay_keep_their_sockets_and_others_come_and_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.sock");
        let unix = format!("unix:{}", path.display());
        let first = ProxySockets::open(&config(&["127.0.0.1:0", &unix])).expect("opened");
        let mut settings = config(&["127.0.0.1:0", "127.0.0.1:0"]);
        settings.monitoring.control = Some(folder.path().join("k.sock"));
        let second = first.changed_to(&settings).expect("opened");
        assert_eq!(second.addresses()[0], first.addresses()[0]);
        assert_ne!(second.addresses()[1], first.addresses()[0]);
        assert_eq!(second.paths(), [folder.path().join("k.sock")]);
        assert_eq!(first.paths(), [path]);

        let (copies, text) = second.for_child().expect("descriptors are left");
        assert_eq!(copies.len(), 3);
        // A child has them by their numbers alone.
        let _: Vec<_> = copies.into_iter().map(IntoRawFd::into_raw_fd).collect();
        let here = ProxySockets::inherited(&text).expect("left open by us");
        assert_eq!(here.addresses(), second.addresses());
        let (clients, endpoints) = here.divided().expect("descriptors are left");
        assert_eq!(clients.addresses().len(), 2);
        assert!(endpoints.control.is_some() && endpoints.stats.is_none());
        ProxySockets::inherited(&text).expect_err("they were taken");
        for wrong in ["", "c", "x3", "c-1", "c9999"] {
            ProxySockets::inherited(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn clients_of_other_users_may_connect_to_unix_sockets_but_not_to_that_for_commands() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| at(name).metadata().expect("there").permissions().mode() & 0o7777;
        let mut settings = config(&[&format!("unix:{}", at("p").display())]);
        settings.monitoring.stats = Some(ListenAddress::Unix(at("s")));
        settings.monitoring.control = Some(at("k"));
        let first = ProxySockets::open(&settings).expect("opened");
        assert_eq!(["p", "s", "k"].map(mode), [0o666, 0o666, 0o600]);
        settings.sockets.mode = 0o660;
        let second = first.changed_to(&settings).expect("kept");
        assert_eq!(["p", "s", "k"].map(mode), [0o660, 0o660, 0o600]);
        // One that somebody has removed keeps no new settings out.
        std::fs::remove_file(at("p")).expect("removed");
        second.changed_to(&settings).expect("kept");
    }

    #[test]
    fn settings_whose_address_is_taken_leave_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.sock");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let taken = taken.local_addr().map(|address| (taken, address)).expect("bound");
        let settings = config(&[&format!("unix:{}", path.display()), &taken.1.to_string()]);
        let message = ProxySockets::open(&settings).expect_err("in use").to_string();
        assert!(message.contains("is in use"), "{message}");
        assert!(!path.exists());
    }
}
