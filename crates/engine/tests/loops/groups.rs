//! Groups of several loops, on every driver and listener strategy: how they share listeners, what follows when one group
//! takes over the sockets of another, and calls into their loops from outside: messages, connects, adoptions.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_engine::{
    Actions, ConnectTo, Counter, Driver, EventLoop, Group, GroupConfig, GroupError, Limits,
    ListenAddress, Listener, Listeners, Moment, NoSession, Session, Sockets, SubmitError,
};
use pollux_testing::wait_until;

use crate::puppet::{Call, Puppet, Stage};
use crate::server::{DEADLINE, Lines, Server, Shared, drivers, file, read};

const CONNECTIONS: usize = 40;

#[test]
fn every_strategy_serves_every_connection() {
    for driver in drivers() {
        for strategy in Listeners::ALL {
            let server = Server::start(driver, 3, strategy, |_| {}).expect("started");
            let mut peers: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
            for peer in &mut peers {
                assert_eq!(read(peer, 6), b"hello\n", "{driver} {strategy}");
            }
            let open = |index| server.counters(index).open();
            // A loop that hands one out may count it as gone after another one has greeted it.
            wait_until(format_args!("{driver} {strategy}: each is open in one loop"), || {
                (0..3).map(open).sum::<u64>() == CONNECTIONS as u64
            });
            if strategy == Listeners::Single {
                let handed = server.counters(0).value(Counter::HandedOut);
                assert!(handed > 0, "{driver}: the first loop kept everything");
                assert!((0..3).all(|index| open(index) > 0), "{driver}: a loop got nothing");
            }
            let lines = server.group().dumper().descriptors().expect("all loops answer");
            let connections: usize = lines.iter().map(Vec::len).sum();
            assert!(connections >= CONNECTIONS, "{driver} {strategy}: {lines:?}");
            drop(peers);
            wait_until("all closed", || (0..3).all(|index| open(index) == 0));
        }
    }
}

/// Peers that were greeted, as many as there is room for.
fn greeted(server: &Server, count: usize, what: &str) -> Vec<TcpStream> {
    let mut peers: Vec<_> = (0..count).map(|_| server.connect()).collect();
    for peer in &mut peers {
        assert_eq!(read(peer, 6), b"hello\n", "{what}");
    }
    peers
}

#[test]
fn a_full_loop_leaves_connections_to_those_with_capacity() {
    for driver in drivers() {
        for strategy in [Listeners::Exclusive, Listeners::Single] {
            let what = format!("{driver} {strategy}");
            let server = Server::start(driver, 2, strategy, |limits| {
                limits.connections_max = 8;
                limits.accept_pause = Duration::from_millis(2);
            });
            let server = server.expect("started");
            let mut peers = greeted(&server, 8, &what);
            let open = |index| server.counters(index).open();
            assert_eq!([open(0), open(1)], [4, 4], "{what}");
            for _ in 0..8 {
                drop(peers.remove(0));
                wait_until("a close", || open(0) + open(1) == 7);
                // Either loop is full now; the other one takes the next connection.
                peers.extend(greeted(&server, 1, &what));
            }
            wait_until("all counted", || open(0) + open(1) == 8);
        }
    }
}

/// Two loops with four places each, behind one TCP port and one unix socket.
fn behind_two_addresses(driver: Driver, listeners: Listeners) -> Server {
    let name = format!("pollux-threads-{}-{driver}-{listeners}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let any = "127.0.0.1:0".parse().expect("an address");
    let accept_pause = Duration::from_millis(2);
    let limits = Limits { connections_max: 8, accept_pause, ..Limits::default() };
    let listen = vec![any, ListenAddress::Unix(path)];
    let cpus = None;
    let delays_small_writes = false;
    let config =
        GroupConfig { listen, driver, threads: 2, listeners, cpus, delays_small_writes, limits };
    let shared = |_| Ok(Shared { file: file(), causes: Vec::new() });
    let group = Group::start::<Lines, _, io::Error>(&config, shared).expect("started");
    Server { group: Some(group) }
}

/// A peer by the unix socket.
fn unix_peer(server: &Server) -> UnixStream {
    let ListenAddress::Unix(path) = &server.group().addresses()[1] else { panic!("a path") };
    let peer = UnixStream::connect(path).expect("connected");
    peer.set_read_timeout(Some(DEADLINE)).expect("set");
    peer
}

fn greet(mut peer: impl Read, what: &str) {
    let mut greeting = [0; 6];
    peer.read_exact(&mut greeting).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(&greeting, b"hello\n", "{what}");
}

/// Also where each loop has a TCP listener of its own, a unix socket is shared by all.
#[test]
fn a_unix_socket_of_many_loops_leaves_connections_to_those_with_capacity() {
    for driver in drivers() {
        for strategy in [Listeners::Reuseport, Listeners::Exclusive] {
            let what = format!("{driver} {strategy}");
            let server = behind_two_addresses(driver, strategy);
            let open = |index| server.counters(index).open();
            for _ in 0..5 {
                let peers: Vec<UnixStream> = (0..8).map(|_| unix_peer(&server)).collect();
                peers.iter().for_each(|peer| greet(peer, &what));
                assert_eq!([open(0), open(1)], [4, 4], "{what}");
                drop(peers);
                wait_until("all closes", || open(0) + open(1) == 0);
            }
        }
    }
}

/// A loop that takes one connection, and does nothing with it.
fn loop_for_one(driver: Driver, listener: Listener) -> Stage {
    let limits = Limits { connections_max: 1, ..Limits::default() };
    let mut stage = Stage::accepting(driver, limits, || Puppet::new(|_, _| 0));
    stage.event_loop.listen(listener, true);
    (0..3).for_each(|_| stage.turn());
    stage
}

/// The kernel wakes one of the loops. One that has just become full must not be that one, even
/// though it has not had the time to say so.
#[test]
fn a_loop_that_became_full_in_this_turn_wastes_no_wake_up() {
    for driver in drivers() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(&any, false).expect("opened");
        let address = listener.address().to_string();
        let second = listener.duplicate().expect("a descriptor is left");
        let mut stages = [listener, second].map(|listener| loop_for_one(driver, listener));
        let _first = TcpStream::connect(&address).expect("connected");
        let is_full = |stage: &Stage| stage.event_loop.open_connections() == 1;
        let end = Instant::now() + DEADLINE;
        let full = loop {
            assert!(Instant::now() < end, "{driver}: the first connection is not taken");
            stages.iter_mut().for_each(Stage::turn);
            if let Some(full) = stages.iter().position(is_full) {
                break full;
            }
        };
        let _second = TcpStream::connect(&address).expect("connected");
        let other = &mut stages[1 - full];
        other.turn_until("the second connection", |stage| stage.count(Counter::Accepted) == 1);
    }
}

/// A session of the full loop connects to its other listener, which is about to be let go.
#[test]
fn a_wake_up_that_came_before_the_loop_became_full_is_not_lost() {
    for driver in drivers() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let open = || Listener::open(&any, false).expect("opened");
        let listeners = [open(), open()];
        let addresses = listeners.each_ref().map(|listener| listener.address().to_string());
        let late: Rc<RefCell<Vec<TcpStream>>> = Rc::default();
        let mut stages = [0, 1].map(|number| {
            let address = addresses[1].clone();
            let late = Rc::clone(&late);
            let limits = Limits { connections_max: 2, ..Limits::default() };
            let mut stage = Stage::accepting(driver, limits, move || {
                let address = address.clone();
                let late = Rc::clone(&late);
                Puppet::new(move |call, _| {
                    if call == Call::Accepted && number == 0 && late.borrow().is_empty() {
                        late.borrow_mut().push(TcpStream::connect(&address).expect("connected"));
                    }
                    0
                })
            });
            for listener in &listeners {
                let same = listener.duplicate().expect("a descriptor is left");
                stage.event_loop.listen(same, true);
            }
            (0..3).for_each(|_| stage.turn());
            stage
        });
        let _early = [(); 2].map(|()| TcpStream::connect(&addresses[0]).expect("connected"));
        stages[0].turn();
        let accepted = Cell::new(0);
        let end = Instant::now() + DEADLINE;
        while accepted.get() < 2 + late.borrow().len() {
            assert!(Instant::now() < end, "{driver}: {} of three were let in", accepted.get());
            stages.iter_mut().for_each(Stage::turn);
            let each = stages.iter().map(|stage| stage.count(Counter::Accepted) as usize);
            accepted.set(each.sum());
        }
    }
}

/// Groups that follow one another.
const GROUPS: u64 = 8;

fn start(driver: Driver, listeners: Listeners, threads: usize, sockets: &Sockets) -> Group {
    let config = GroupConfig {
        listen: Vec::new(),
        driver,
        threads,
        listeners,
        cpus: None,
        delays_small_writes: false,
        limits: Limits::default(),
    };
    let shared = |_| Ok::<_, io::Error>(Shared { file: file(), causes: Vec::new() });
    let sockets = sockets.duplicate().expect("descriptors are left");
    Group::start_on::<Lines, _, _>(&config, sockets, shared).expect("started")
}

/// Connects again and again until it is over; each time there has to be a greeting.
fn is_greeted(to: SocketAddr, is_over: &Arc<AtomicBool>, count: &Arc<AtomicU64>) -> JoinHandle<()> {
    let is_over = Arc::clone(is_over);
    let count = Arc::clone(count);
    std::thread::spawn(move || {
        while !is_over.load(SeqCst) {
            let mut peer = TcpStream::connect(to).expect("the sockets are open all the time");
            peer.set_read_timeout(Some(DEADLINE)).expect("set");
            let mut greeting = [0; 6];
            peer.read_exact(&mut greeting).expect("greeted by one of both");
            assert_eq!(&greeting, b"hello\n");
            count.fetch_add(1, SeqCst);
        }
    })
}

#[test]
fn no_client_is_lost_while_one_group_takes_the_sockets_over_from_another() {
    for driver in drivers() {
        for listeners in [Listeners::Reuseport, Listeners::Exclusive, Listeners::Single] {
            let any: [ListenAddress; 1] = ["127.0.0.1:0".parse().expect("an address")];
            let sockets = Sockets::open(&any, listeners, 2).expect("opened");
            let ListenAddress::Tcp(address) = sockets.addresses()[0].clone() else { panic!("TCP") };
            let is_over = Arc::<AtomicBool>::default();
            let count = Arc::<AtomicU64>::default();
            let mut group = start(driver, listeners, 2, &sockets);
            let peers: Vec<_> = (0..4).map(|_| is_greeted(address, &is_over, &count)).collect();
            for number in 1..=GROUPS {
                let before = count.load(SeqCst);
                wait_until("a connection", || {
                    count.load(SeqCst) > before + 5 || peers.iter().any(JoinHandle::is_finished)
                });
                // With other numbers of threads than there are sockets, too.
                let next = start(driver, listeners, 1 + number as usize % 3, &sockets);
                let old = std::mem::replace(&mut group, next);
                old.drain(Duration::from_secs(10));
                old.join().expect("it drains");
            }
            is_over.store(true, SeqCst);
            for peer in peers {
                let ended = peer.join();
                assert!(ended.is_ok(), "{driver} {listeners}: a connection was lost");
            }
            group.abort();
            group.join().expect("ended");
        }
    }
}

/// Sends everything back, and says what was said to its loop first.
struct Echo;

impl Session for Echo {
    type Shared = String;

    fn accepted(said: &mut String, actions: &mut Actions<'_>) -> Self {
        actions.send(said.as_bytes());
        Self
    }

    fn connected(&mut self, said: &mut String, actions: &mut Actions<'_>) {
        actions.send(said.as_bytes());
    }

    fn on_bytes(&mut self, _: &mut String, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        actions.send(input);
        input.len()
    }
}

/// As where its mechanism is refused, and the next one is tried at the same address.
#[test]
fn a_group_that_could_not_start_leaves_its_addresses_free() {
    let free = TcpListener::bind("127.0.0.99:0").and_then(|free| free.local_addr()).expect("free");
    for strategy in Listeners::ALL {
        let config = GroupConfig {
            listen: vec![free.into()],
            listeners: strategy,
            threads: 2,
            ..GroupConfig::default()
        };
        for turn in 0..100 {
            let refused = Group::start::<Echo, _, _>(&config, |_| Err(io::Error::other("refused")));
            assert!(matches!(refused, Err(GroupError::Shared(_))), "{strategy}");
            TcpListener::bind(free).unwrap_or_else(|error| panic!("{strategy} {turn}: {error}"));
        }
    }
}

/// A running group of two loops on each driver that is there.
fn on_each(test: impl Fn(Driver, &Group)) {
    for driver in Driver::ALL {
        let config = GroupConfig { driver, threads: 2, ..GroupConfig::default() };
        let started = Group::start::<Echo, _, io::Error>(&config, |index| Ok(index.to_string()));
        let group = match started {
            Ok(group) => group,
            Err(GroupError::Loop(reason)) => {
                pollux_testing::skip(format_args!("{driver}: {reason}"));
                continue;
            }
            Err(other) => panic!("{driver}: {other}"),
        };
        test(driver, &group);
        let last = group.handle::<Echo>(0);
        let loops = group;
        loops.abort();
        loops.join().expect("ended");
        assert_eq!(last.submit(|_| ()), Err(SubmitError::Ended), "{driver}");
    }
}

fn text(mut peer: impl Read, len: usize) -> String {
    let mut bytes = vec![0; len];
    peer.read_exact(&mut bytes).expect("in time");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn calls_of_one_thread_are_made_in_their_order_in_the_loops_thread() {
    on_each(|driver, group| {
        for index in 0..2 {
            let handle = group.handle::<Echo>(index);
            let (answer, answers) = mpsc::channel();
            let sending = std::thread::spawn(move || {
                for number in 0..100 {
                    let answer = answer.clone();
                    let call = move |event_loop: &mut EventLoop<Echo>| {
                        event_loop.shared_mut().push('.');
                        let name = std::thread::current().name().map(str::to_owned);
                        answer.send((number, event_loop.shared().clone(), name)).expect("received");
                    };
                    handle.submit(call).expect("room for a hundred");
                }
            });
            sending.join().expect("sent");
            for expected in 0..100 {
                let (number, said, name) = answers.recv_timeout(DEADLINE).expect("in time");
                assert_eq!(number, expected, "{driver}");
                assert_eq!(said, format!("{index}{}", ".".repeat(expected + 1)), "{driver}");
                assert_eq!(name, Some(format!("pollux-{index}")), "{driver}");
            }
        }
    });
}

#[test]
fn a_loop_connects_when_it_is_distinguished_from_outside() {
    on_each(|driver, group| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = ConnectTo::from(listener.local_addr().expect("bound"));
        let call = move |event_loop: &mut EventLoop<Echo>| {
            assert!(event_loop.connect(&to, Echo, Moment::NEVER).is_ok(), "a socket is left");
        };
        group.handle::<Echo>(1).submit(call).expect("room");
        let (mut peer, _) = listener.accept().expect("connected");
        peer.set_read_timeout(Some(DEADLINE)).expect("set");
        peer.write_all(b"ping").expect("room");
        assert_eq!(text(&peer, 5), "1ping", "{driver}");
    });
}

#[test]
fn a_loop_adopts_what_it_is_handed_from_outside() {
    on_each(|driver, group| {
        let (ours, mut peer) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        peer.set_read_timeout(Some(DEADLINE)).expect("set");
        let call = move |event_loop: &mut EventLoop<Echo>| {
            assert!(event_loop.adopt(ours.into(), Echo).is_ok(), "a stream");
        };
        group.handle::<Echo>(0).submit(call).expect("room");
        peer.write_all(b"ping").expect("room");
        assert_eq!(text(&peer, 4), "ping", "{driver}");
        // Those that the loops accept stay open beside it.
        let ListenAddress::Tcp(address) = &group.addresses()[0] else { panic!("TCP") };
        let accepted = TcpStream::connect(address).expect("connected");
        accepted.set_read_timeout(Some(DEADLINE)).expect("set");
        assert!(["0", "1"].contains(&&*text(&accepted, 1)), "{driver}");
    });
}

#[test]
fn a_loop_that_is_busy_takes_no_more_than_its_inbox_holds() {
    let config = GroupConfig::default();
    let group = Group::start::<Echo, _, io::Error>(&config, |_| Ok(String::new()));
    let group = group.expect("epoll is always there");
    let handle = group.handle::<Echo>(0);
    let (release, released) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    let busy = move |_: &mut EventLoop<Echo>| {
        begin.send(()).expect("received");
        released.recv().expect("released");
    };
    handle.submit(busy).expect("room");
    begun.recv_timeout(DEADLINE).expect("in time");
    let taken = (0..5000).take_while(|_| handle.submit(|_| ()).is_ok()).count();
    assert_eq!(taken, 4096);
    assert_eq!(handle.submit(|_| ()), Err(SubmitError::Full));
    let unasked = group.dumper().descriptors().expect_err("the question is not taken");
    assert_eq!(unasked.to_string(), "loops [0] did not answer in time");
    release.send(()).expect("received");
    group.abort();
}

#[test]
#[should_panic(expected = "the group runs other sessions")]
fn a_handle_for_other_sessions_is_a_mistake() {
    let group = Group::start::<Echo, _, io::Error>(&GroupConfig::default(), |_| Ok(String::new()));
    let _ = group.expect("epoll is always there").handle::<NoSession>(0);
}
