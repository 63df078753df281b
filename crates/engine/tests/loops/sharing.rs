//! Listeners that several loops share: the loop with capacity takes the next connection, and none
//! takes more than that. On every driver.

use std::cell::{Cell, RefCell};
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pollux_engine::{
    Counter, Driver, Group, GroupConfig, Limits, ListenAddress, Listener, Listeners,
};
use pollux_testing::wait_until;

use crate::lines::{Lines, Shared};
use crate::peer::{DEADLINE, Server, drivers, file};
use crate::puppet::{Call, Puppet, Stage};

/// Two loops with four places each, behind one TCP port and one unix socket.
fn behind_two_addresses(driver: Driver, listeners: Listeners) -> Server {
    let name = format!("pollux-threads-{}-{driver}-{listeners}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let any = "127.0.0.1:0".parse().expect("an address");
    let accept_pause = Duration::from_millis(2);
    let limits = Limits { connections_max: 8, accept_pause, ..Limits::default() };
    let listen = vec![any, ListenAddress::Unix(path)];
    let (cpus, delays_small_writes) = (None, false);
    let config =
        GroupConfig { listen, driver, threads: 2, listeners, cpus, delays_small_writes, limits };
    let shared = |_| Ok(Shared { file: file(), causes: Vec::new() });
    let group = Group::start::<Lines, _, std::io::Error>(&config, shared).expect("started");
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

/// Also where each loop has a TCP listener of its own, a unix socket is everybody's.
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
            assert!(Instant::now() < end, "{driver}: nobody takes the first connection");
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
            let (address, late) = (addresses[1].clone(), Rc::clone(&late));
            let limits = Limits { connections_max: 2, ..Limits::default() };
            let mut stage = Stage::accepting(driver, limits, move || {
                let (address, late) = (address.clone(), Rc::clone(&late));
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
