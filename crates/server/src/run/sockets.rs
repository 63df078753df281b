//! Where servers listen: names and addresses, opened. Everything that a proxy listens on, apart from what takes the connections: opened once, and kept
//! as long as the settings name the address, so that no client is refused while workers
//! come and go.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::slice::from_ref;

use pollux_engine::{Address, ListenAddress, ListenError, Listener, Listeners, Sockets};
use pollux_sys::process;
use rustix::io::Errno;

use crate::ServerError;
use crate::config::ProxyConfig;
use crate::run::start::{
    CONTROL, Endpoints, STATS, close_to_others, explained_open, open_to_others,
};

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

/// The sockets of one address of the settings, which has several where it is a name.
#[derive(Debug)]
struct Bound {
    part: Part,
    /// As it was configured: port 0 is kept apart from the port that the kernel chose.
    address: Address,
    sockets: Sockets,
    /// A service manager has opened them, whose they are to remove and to open to others.
    is_passed: bool,
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

    /// Sockets that a service manager has passed, each in the place of the address of the settings that it listens on; where
    /// the settings have one address alone, in the place of that.
    ///
    /// # Errors
    /// One that has no place, in words, or no descriptor is left.
    pub fn passed(passed: &Sockets, config: &ProxyConfig) -> Result<Self, String> {
        let listed = config.listen();
        let is_at = |listed: &Address, address: &ListenAddress| match (listed, address) {
            (Address::Known(ListenAddress::Tcp(one)), ListenAddress::Tcp(two)) => {
                (one.ip().to_canonical(), one.port()) == (two.ip().to_canonical(), two.port())
            }
            (Address::Known(one), two) => one == two,
            (Address::Name { .. }, _) => false,
        };
        let mut all: Vec<Bound> = Vec::new();
        for (address, sockets) in passed.addresses().into_iter().zip(passed.descriptors()) {
            let place = match &listed[..] {
                [only] => Some(only),
                several => several.iter().find(|listed| is_at(listed, &address)),
            };
            let place = place.ok_or_else(|| {
                format!("LISTEN_FDS passes a socket at {address}, which no listen of the settings names; expected its address there")
            })?;
            let copies = sockets.into_iter().map(|fd| fd.try_clone_to_owned());
            let copies = copies
                .collect::<io::Result<Vec<_>>>()
                .and_then(|copies| Sockets::inherited(vec![copies]));
            let sockets = copies.map_err(|error| error.to_string())?;
            match all.iter_mut().find(|bound| bound.address == *place) {
                Some(bound) => bound.sockets.append(sockets),
                None => all.push(Bound {
                    part: Part::Clients,
                    address: place.clone(),
                    sockets,
                    is_passed: true,
                }),
            }
        }
        Ok(Self { all })
    }

    /// The sockets that these settings name: those that are here, and new ones for other addresses.
    ///
    /// # Errors
    /// As [`ProxySockets::open`].
    pub fn changed_to(&self, config: &ProxyConfig) -> Result<Self, ServerError> {
        let mut here: Vec<&Bound> = self.all.iter().collect();
        let mut all: Vec<Bound> = Vec::new();
        let mut opened = OpenedPaths::default();
        // A name that is in the settings already is not looked up again: it keeps its sockets.
        for (part, address) in listed(config) {
            let is_it = |bound: &&Bound| bound.part == part && bound.address == address;
            let (sockets, is_passed) = match here.iter().position(is_it) {
                Some(at) => {
                    let bound = here.remove(at);
                    let sockets = bound.sockets.duplicate().map_err(no_descriptor)?;
                    // One whose path was taken away has nothing to permit.
                    if !bound.is_passed && sockets.paths().iter().all(|path| path.exists()) {
                        permit(part, &sockets, config)?;
                    }
                    (sockets, bound.is_passed)
                }
                None => {
                    let sockets = open(part, &address, config)?;
                    opened.0.extend(sockets.paths());
                    permit(part, &sockets, config)?;
                    (sockets, false)
                }
            };
            all.push(Bound { part, address, sockets, is_passed });
        }
        opened.0.clear();
        Ok(Self { all })
    }

    /// Where clients come, with the ports that the kernel chose.
    #[must_use]
    pub fn addresses(&self) -> Vec<ListenAddress> {
        self.with_places().into_iter().map(|(address, _)| address).collect()
    }

    /// Where clients come, each with the place of what it was in the settings.
    pub(crate) fn with_places(&self) -> Vec<(ListenAddress, usize)> {
        let all = self.for_part(Part::Clients).enumerate();
        let of = |(place, bound): (usize, &Bound)| {
            bound
                .sockets
                .addresses()
                .into_iter()
                .map(move |address| (address, place))
                .collect::<Vec<_>>()
        };
        all.flat_map(of).collect()
    }

    /// The same open sockets once more, by what they are for.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn divided(&self) -> Result<(Sockets, Endpoints), ServerError> {
        let of = |part| {
            let mut found: Option<Sockets> = None;
            for bound in self.for_part(part) {
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
        let own = self.all.iter().filter(|bound| !bound.is_passed);
        own.flat_map(|bound| bound.sockets.paths()).collect()
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
            let mut of_addresses = Vec::new();
            for sockets in bound.sockets.descriptors() {
                let mut numbers = Vec::new();
                for fd in sockets {
                    let copy = left_open(fd)?;
                    numbers.push(copy.as_raw_fd().to_string());
                    copies.push(copy);
                }
                of_addresses.push(numbers.join(","));
            }
            words.push(format!("{}{}", bound.part.letter(), of_addresses.join("+")));
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
            let take = |number: &str| {
                let number: RawFd = number.parse().map_err(|_| wrong())?;
                process::take_inherited(number)
            };
            let of_addresses = word[letter.len_utf8()..].split('+');
            let each = of_addresses.map(|numbers| numbers.split(',').map(take).collect());
            let sockets = Sockets::inherited(each.collect::<io::Result<_>>()?)?;
            let address = sockets.addresses().remove(0).into();
            let part = part.ok_or_else(wrong)?;
            all.push(Bound { part, address, sockets, is_passed: false });
        }
        Ok(Self { all })
    }

    /// For each address whether a service manager has opened its sockets.
    pub(crate) fn are_passed(&self) -> Vec<bool> {
        self.all.iter().map(|bound| bound.is_passed).collect()
    }

    /// What [`ProxySockets::inherited`] gave, with the addresses of the settings that they were opened for, in their order, and
    /// with what [`ProxySockets::are_passed`] said.
    ///
    /// # Errors
    /// They are not those of these settings.
    pub(crate) fn of_settings(
        mut self,
        config: &ProxyConfig,
        are_passed: &[bool],
    ) -> io::Result<Self> {
        let listed = listed(config);
        let parts: Vec<Part> = self.all.iter().map(|bound| bound.part).collect();
        let is_so = listed.iter().map(|(part, _)| *part).eq(parts);
        if !is_so || are_passed.len() != listed.len() {
            return Err(io::Error::other("the sockets are not those of the settings"));
        }
        for ((bound, (_, address)), is_passed) in self.all.iter_mut().zip(listed).zip(are_passed) {
            (bound.address, bound.is_passed) = (address, *is_passed);
        }
        Ok(self)
    }

    fn for_part(&self, part: Part) -> impl Iterator<Item = &Bound> {
        self.all.iter().filter(move |bound| bound.part == part)
    }
}

/// All addresses of the settings, in the order in which their sockets are kept.
fn listed(config: &ProxyConfig) -> Vec<(Part, Address)> {
    let clients = config.listen().into_iter().map(|address| (Part::Clients, address));
    let stats = config.monitoring.stats.clone().map(|address| (Part::Stats, address));
    let control = config.monitoring.control.clone();
    let control = control.map(|path| (Part::Control, ListenAddress::Unix(path).into()));
    clients.chain(stats).chain(control).collect()
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

fn open(part: Part, address: &Address, config: &ProxyConfig) -> Result<Sockets, ServerError> {
    let (opened, name, flag) = match part {
        Part::Clients => {
            let how = config.loops.listeners;
            let threads = config.loops.threads;
            (open_all(address, how, threads), "proxy", "--listen")
        }
        Part::Stats => (open_all(address, Listeners::Exclusive, 1), STATS, "--stats"),
        Part::Control => (open_all(address, Listeners::Exclusive, 1), CONTROL, "--control"),
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

/// How often a port that the kernel chose for the first address of a name may be taken on another one.
const SAME_PORT_TRIES: usize = 16;

/// Opens an address of the settings: of a name all that it has on this machine, with one port.
///
/// # Errors
/// As [`Sockets::open`]; the name can't be looked up, or has no address here.
pub(crate) fn open_all(
    address: &Address,
    listeners: Listeners,
    threads: usize,
) -> Result<Sockets, ListenError> {
    let all = looked_up(address)?;
    let is_any_port = matches!(address, Address::Name { port: 0, .. });
    let mut tries = 0;
    loop {
        let opened = open_each(&all, |each| Sockets::open(from_ref(each), listeners, threads));
        tries += 1;
        let is_taken = matches!(&opened, Err(error) if errno(error) == Some(Errno::ADDRINUSE));
        if !(is_any_port && is_taken && tries < SAME_PORT_TRIES) {
            return opened;
        }
    }
}

/// Opens all addresses of a list, as [`open_all`] does each.
///
/// # Errors
/// As there.
pub(crate) fn open_listed(
    addresses: &[Address],
    listeners: Listeners,
    threads: usize,
) -> Result<Sockets, ListenError> {
    let mut all = Sockets::open(&[], listeners, threads)?;
    for address in addresses {
        all.append(open_all(address, listeners, threads)?);
    }
    Ok(all)
}

/// Whether [`open_all`] would work, and no server listens there, as [`Listener::check`] says it of one address.
///
/// # Errors
/// As there.
pub(crate) fn check_all(address: &Address) -> Result<bool, ListenError> {
    let mut not_here = None;
    let mut is_free = None;
    for each in looked_up(address)? {
        match Listener::check(&each) {
            Ok(this) => is_free = Some(this && is_free.unwrap_or(true)),
            Err(error) if is_not_here(&error) => not_here = Some(error),
            Err(error) => return Err(error),
        }
    }
    match (is_free, not_here) {
        (None, Some(error)) => Err(error),
        (is_free, _) => Ok(is_free.unwrap_or(true)),
    }
}

/// What an address of the settings is now.
///
/// # Errors
/// The name can't be looked up.
pub(super) fn looked_up(address: &Address) -> Result<Vec<ListenAddress>, ListenError> {
    address.look_up().map_err(|error| {
        let text = address.to_string();
        let host = text.rsplit_once(':').map_or(text.as_str(), |(host, _)| host);
        let why = format!("\"{host}\" can't be looked up: {error}");
        ListenError::Address { text, why }
    })
}

/// Opens these addresses; those of several that the machine lacks are left out, as where `localhost` is `::1` as well and
/// the kernel has no IPv6.
fn open_each(
    all: &[ListenAddress],
    open: impl Fn(&ListenAddress) -> Result<Sockets, ListenError>,
) -> Result<Sockets, ListenError> {
    let (mut opened, mut not_here): (Option<Sockets>, _) = (None, None);
    let mut port = None;
    for address in all {
        let address = match (address, port) {
            (ListenAddress::Tcp(tcp), Some(port)) => SocketAddr::new(tcp.ip(), port).into(),
            _ => address.clone(),
        };
        match open(&address) {
            Ok(sockets) => {
                if let Some(ListenAddress::Tcp(tcp)) = sockets.addresses().first() {
                    port = Some(tcp.port());
                }
                match &mut opened {
                    Some(opened) => opened.append(sockets),
                    None => opened = Some(sockets),
                }
            }
            Err(error) if is_not_here(&error) => not_here = Some(error),
            Err(error) => return Err(error),
        }
    }
    opened.ok_or_else(|| not_here.expect("an address has one at least"))
}

fn errno(error: &ListenError) -> Option<Errno> {
    match error {
        ListenError::System { cause, .. } => Errno::from_io_error(cause),
        _ => None,
    }
}

/// The machine has no such address.
fn is_not_here(error: &ListenError) -> bool {
    matches!(errno(error), Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
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
        ProxyConfig::new(listen, vec!["127.0.0.1:1".parse::<Address>().expect("an address")])
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
        settings.monitoring.stats = Some(ListenAddress::Unix(at("s")).into());
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
    fn a_name_is_listened_on_at_all_its_addresses_with_one_port_and_a_worker_gets_them_in_order() {
        let of_host: Vec<_> = pollux_engine::look_up("localhost").expect("every machine has it");
        let first = ProxySockets::open(&config(&["localhost:0", "127.0.0.2:0"])).expect("opened");
        let places = first.with_places();
        let named: Vec<_> = places.iter().filter(|(_, place)| *place == 0).collect();
        assert!((1..=of_host.len()).contains(&named.len()), "{places:?}");
        let port = |address: &ListenAddress| match address {
            ListenAddress::Tcp(tcp) => tcp.port(),
            ListenAddress::Unix(_) => 0,
        };
        assert!(named.iter().all(|(address, _)| port(address) == port(&named[0].0)), "{places:?}");
        assert_eq!(places.last().expect("two").1, 1);
        let (copies, text) = first.for_child().expect("descriptors are left");
        let _: Vec<_> = copies.into_iter().map(IntoRawFd::into_raw_fd).collect();
        let here = ProxySockets::inherited(&text).expect("left open by us");
        assert_eq!(here.with_places(), places);
        // A reload asks no name server for what is open.
        let again = first.changed_to(&config(&["localhost:0"])).expect("opened");
        assert_eq!(again.with_places().len(), named.len());
    }

    #[test]
    fn addresses_of_a_name_that_the_machine_lacks_are_left_out_of_several() {
        let all: Vec<ListenAddress> = ["192.0.2.7:0", "127.0.0.1:0", "192.0.2.8:0"]
            .map(|text| text.parse().expect("an address"))
            .into();
        let open = |each: &ListenAddress| Sockets::open(from_ref(each), Listeners::Exclusive, 1);
        assert_eq!(open_each(&all, open).expect("one is here").addresses().len(), 1);
        let error = open_each(&all[..1], open).expect_err("none is here");
        assert!(is_not_here(&error), "{error}");
        let unknown = "pollux.invalid:80".parse().expect("a name");
        let error = open_all(&unknown, Listeners::Exclusive, 1).expect_err("RFC 6761 6.4");
        assert!(error.to_string().contains("\"pollux.invalid\" can't be looked up"), "{error}");
        check_all(&unknown).expect_err("as well");
        check_all(&"localhost:0".parse().expect("a name")).expect("here");
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
