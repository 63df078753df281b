//! A thousand connects at once, each from the source that it was given. On every driver.
//!
//! Alone in its binary: it needs more descriptors than a process may have by default, and
//! numbers beyond what `select` can watch would be in the way of other tests.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pollux_engine::{
    Actions, ConnectTo, Counter, Driver, EventLoop, Limits, ListenAddress, Moment, Session,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{Resource, getrlimit, setrlimit};

const DEADLINE: Duration = Duration::from_secs(20);
const SOURCES: [IpAddr; 4] = [source(2), source(3), source(4), source(5)];
const EACH: usize = 250;
/// `select` ends at descriptor 1,024.
const EACH_OF_SELECT: usize = 200;

const fn source(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

/// Counts itself when its connection is there.
struct Counted;

impl Session for Counted {
    type Shared = Rc<Cell<usize>>;

    fn accepted(_: &mut Self::Shared, _: &mut Actions<'_>) -> Self {
        Self
    }

    fn connected(&mut self, shared: &mut Self::Shared, _: &mut Actions<'_>) {
        shared.set(shared.get() + 1);
    }

    fn on_bytes(&mut self, _: &mut Self::Shared, _: &mut Actions<'_>, input: &[u8]) -> usize {
        input.len()
    }

    fn on_deadline(&mut self, _: &mut Self::Shared, actions: &mut Actions<'_>) {
        actions.abort();
    }
}

/// A listener that lets all of them wait.
fn listener() -> (TcpListener, SocketAddr) {
    let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
    let socket = socket_with(family, SocketType::STREAM, flags, None).expect("a socket");
    bind(&socket, &SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).expect("bound");
    listen(&socket, 2048).expect("listens");
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

/// Accepts `count` connections and says how many came from where.
fn sources(listener: &TcpListener, count: usize) -> BTreeMap<IpAddr, usize> {
    let mut seen = BTreeMap::new();
    for _ in 0..count {
        let (peer, _) = listener.accept().expect("it waits");
        let from = peer.peer_addr().expect("connected");
        *seen.entry(from.ip()).or_default() += 1;
    }
    seen
}

#[test]
fn a_thousand_connects_at_once_come_from_their_sources() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum.map_or(Some(2048), |most| Some(most.min(2048)));
    setrlimit(Resource::Nofile, limit).expect("within the hard limit");
    for driver in Driver::ALL {
        let connected = Rc::default();
        let shared = Rc::clone(&connected);
        let Ok(mut event_loop) = EventLoop::<Counted>::open(driver, shared, Limits::default())
        else {
            pollux_testing::skip(format_args!("{driver} is missing"));
            continue;
        };
        let each = if driver.name() == "select" { EACH_OF_SELECT } else { EACH };
        let all = each * SOURCES.len();
        let (listener, address) = listener();
        let peer = ListenAddress::Tcp(address);
        for source in SOURCES.into_iter().cycle().take(all) {
            let to = ConnectTo { peer: peer.clone(), source: Some(source) };
            let begun = event_loop.connect(&to, Counted, Moment::NEVER);
            begun.map_err(|(_, error)| error).expect("begun");
        }
        let end = Instant::now() + DEADLINE;
        while connected.get() < all {
            assert!(Instant::now() < end, "{driver}: {} of {all}", connected.get());
            event_loop.turn(Some(Duration::from_millis(1))).expect("turned");
        }
        let wanted = SOURCES.map(|source| (source, each));
        assert_eq!(sources(&listener, all), BTreeMap::from(wanted), "{driver}");
        let counters = event_loop.counters();
        assert_eq!(counters.value(Counter::Connects), all as u64);
        assert_eq!((counters.closed_total(), counters.open()), (0, all as u64), "{driver}");
    }
}
