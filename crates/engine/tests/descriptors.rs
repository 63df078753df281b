//! What depends on the numbers of descriptors that a process has. On every driver:
//! * none is left for a connection: the listener pauses, the loop sleeps meanwhile, and continues by itself, at once when
//!   connections of its own have closed; a connect gives its session back;
//! * a thousand connects at once, each from the source that it was given;
//! * a number that is closed and opened again within one turn is another descriptor.
//!
//! Alone in its binary: the limit is that of the process, no other test may take a number in between, and numbers beyond
//! what `select` can watch would be in the way.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pollux_engine::{
    Actions, ConnectError, ConnectTo, Counter, Counters, Driver, EventLoop, FdTable, Limits,
    ListenAddress, Listener, Moment, Ready, Session, Watch,
};
use pollux_poller::{Backend, Error, Events, Mechanism, Poller, Token};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{Resource, getrlimit, setrlimit};

const DEADLINE: Duration = Duration::from_secs(60);

/// One test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets numbers of descriptors be lower than `current`.
fn limit_descriptors(current: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(current);
    setrlimit(Resource::Nofile, limit).expect("within the hard limit");
}

/// Greets.
struct Greeter;

impl Session for Greeter {
    type Shared = ();

    fn accepted((): &mut (), actions: &mut Actions<'_>) -> Self {
        actions.send(b"hello");
        Self
    }

    fn on_bytes(&mut self, (): &mut (), _: &mut Actions<'_>, input: &[u8]) -> usize {
        input.len()
    }
    fn on_shutdown(&mut self, (): &mut (), _: &mut Actions<'_>) {}
}

/// Takes every descriptor that is left.
fn exhaust() -> Vec<OwnedFd> {
    let one = std::fs::File::open("/dev/null").expect("one is left");
    let more = || fcntl_dupfd_cloexec(&one, 0).ok();
    let mut taken: Vec<OwnedFd> = std::iter::from_fn(more).collect();
    taken.push(one.into());
    taken
}

fn turn_until(event_loop: &mut EventLoop<Greeter>, what: &str, is_done: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_done() {
        assert!(Instant::now() < end, "{what} did not happen in time");
        event_loop.turn(Some(Duration::from_millis(200))).expect("turned");
    }
}

fn assert_connect_gives_back(event_loop: &mut EventLoop<Greeter>, to: &ConnectTo) {
    let Err((Greeter, error)) = event_loop.connect(to, Greeter, Moment::NEVER) else {
        panic!("no descriptor was left")
    };
    let ConnectError::System { call: "socket", cause, .. } = &error else { panic!("{error}") };
    assert_eq!(cause.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
}

#[test]
fn without_descriptors_a_listener_pauses_a_connect_fails_and_both_proceed() {
    let _turn = alone();
    // Few enough for `select`, and to take them all fast.
    limit_descriptors(128);
    for driver in Driver::ALL {
        let limits = Limits { accept_pause: Duration::from_millis(20), ..Limits::default() };
        let Ok(mut event_loop) = EventLoop::<Greeter>::open(driver, (), limits) else {
            pollux_testing::skip(format_args!("{driver} is missing"));
            continue;
        };
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(&any, false).expect("opened");
        let address = listener.address().to_string();
        let to = ConnectTo { peer: listener.address().clone(), source: None };
        event_loop.listen(listener, false);
        let counters = event_loop.counters();
        let mut peer = TcpStream::connect(address).expect("connected");
        let taken = exhaust();
        turn_until(&mut event_loop, "the pause", || counters.value(Counter::AcceptPauses) >= 3);
        // Each pause is a few turns, not a spin.
        let turns = counters.value(Counter::Turns);
        assert!(turns < 30, "{driver}: {turns} turns");
        assert_connect_gives_back(&mut event_loop, &to);
        drop(taken);
        turn_until(&mut event_loop, "the accept", || counters.value(Counter::Accepted) == 1);
        let mut greeting = [0; 5];
        event_loop.turn(Some(Duration::ZERO)).expect("turned");
        peer.read_exact(&mut greeting).expect("greeted");
        assert_eq!(&greeting, b"hello", "{driver}");
        assert_eq!((event_loop.open_connections(), counters.open()), (1, 1));
        event_loop.connect(&to, Greeter, Moment::NEVER).map_err(|(_, error)| error).expect("begun");
        turn_until(&mut event_loop, "its accept", || counters.value(Counter::Accepted) == 2);
    }
}

/// 300 clients that came and went while 40 descriptors are left: the loop takes them in as many
/// rounds as that needs, and none of the rounds waits for the pause to be over.
#[test]
fn a_listener_without_descriptors_continues_when_a_connection_of_its_own_has_closed() {
    const GONE: usize = 300;
    const LEFT: u64 = 40;
    let _turn = alone();
    for driver in Driver::ALL {
        limit_descriptors(1024);
        // Longer than the test may take.
        let limits = Limits { accept_pause: 60 * DEADLINE, ..Limits::default() };
        let Ok(mut event_loop) = EventLoop::<Greeter>::open(driver, (), limits) else {
            pollux_testing::skip(format_args!("{driver} is missing"));
            continue;
        };
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(&any, false).expect("opened");
        let address = listener.address().to_string();
        event_loop.listen(listener, false);
        let counters = event_loop.counters();
        let connect = || TcpStream::connect(&address).expect("connected");
        let gone: Vec<TcpStream> = (0..GONE).map(|_| connect()).collect();
        gone.iter().for_each(|peer| peer.shutdown(Shutdown::Write).expect("connected"));
        let mut fresh = connect();
        let highest = fresh.as_raw_fd() as u64;
        limit_descriptors(highest + 1 + LEFT);
        let name = format!("{driver}: the end of all that are gone");
        turn_until(&mut event_loop, &name, || counters.closed_total() == GONE as u64);
        turn_until(&mut event_loop, "the accept", || counters.open() == 1);
        event_loop.turn(Some(Duration::ZERO)).expect("turned");
        let mut greeting = [0; 5];
        fresh.read_exact(&mut greeting).expect("greeted");
        assert_eq!(&greeting, b"hello", "{driver}");
        assert!(counters.value(Counter::AcceptPauses) > 0, "{driver}: descriptors never ran out");
    }
}

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
    let family = AddressFamily::INET;
    let flags = SocketFlags::CLOEXEC;
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
    let _turn = alone();
    limit_descriptors(getrlimit(Resource::Nofile).maximum.map_or(2048, |most| most.min(2048)));
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

#[test]
fn a_number_closed_and_opened_again_within_the_turn_is_registered_anew() {
    let _turn = alone();
    for mechanism in Mechanism::ALL {
        match mechanism.open() {
            Ok(poller) => reuse(mechanism, poller),
            Err(error @ Error::Unavailable { .. }) => pollux_testing::skip(error),
            Err(error) => panic!("{mechanism}: {error}"),
        }
    }
}

fn reuse(mechanism: Mechanism, mut poller: Box<dyn Poller>) {
    let mut table: FdTable<OwnedFd> = FdTable::new(8);
    let watch = Watch::Connection(mechanism.trigger());
    let (ours, _theirs) = UnixStream::pair().expect("two descriptors");
    let number = ours.as_raw_fd();
    let first = table.insert(ours.into(), watch).expect("room");
    table.want_read(first);
    apply(&mut table, &mut *poller);
    wait(&mut table, &mut *poller, Duration::ZERO);

    // Within one turn: closed, its number opened, and the same interest again.
    table.stop_read(first);
    drop(table.remove(first, &mut *poller).expect("the poller lets go").expect("live"));
    let (successor, mut peer) = UnixStream::pair().expect("two descriptors");
    let reused = if successor.as_raw_fd() == number {
        OwnedFd::from(successor)
    } else {
        fcntl_dupfd_cloexec(&successor, number).expect("the number is free")
    };
    assert_eq!(reused.as_raw_fd(), number);
    let second = table.insert(reused, watch).expect("room");
    assert_eq!((second.slot(), second == first), (first.slot(), false));
    table.want_read(second);
    let calls_before = poller.counters().snapshot().system_calls;
    apply(&mut table, &mut *poller);
    if mechanism.backend() == Backend::Epoll {
        let calls = poller.counters().snapshot().system_calls - calls_before;
        assert_eq!(calls, 1, "{mechanism}: one addition");
    }

    peer.write_all(b"x").expect("room");
    let seen = wait(&mut table, &mut *poller, DEADLINE);
    let read = Ready { read: true, ..Ready::NOTHING };
    assert_eq!(seen, [(second, Some(read))], "{mechanism}");
    assert_eq!(poller.counters().snapshot().closed_without_delete, 0, "{mechanism}");
}

fn apply(table: &mut FdTable<OwnedFd>, poller: &mut dyn Poller) {
    let mut refused = Vec::new();
    table.apply(poller, &Counters::default(), &mut refused);
    assert!(refused.is_empty(), "{refused:?}");
}

/// What one wait brings; an edge may report room to write before it reports data.
fn wait(
    table: &mut FdTable<OwnedFd>,
    poller: &mut dyn Poller,
    timeout: Duration,
) -> Vec<(Token, Option<Ready>)> {
    let mut events = Events::with_capacity(8);
    poller.wait(&mut events, Some(timeout)).expect("wait");
    events.iter().map(|event| (event.token, table.reported(event.token, event.readiness))).collect()
}
