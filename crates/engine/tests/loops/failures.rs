//! What goes wrong in the life of a server (`docs/io-uring.md`), on every driver, and the errors that
//! report it.

use std::error::Error as _;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use pollux_engine::{
    Actions, AdoptError, CloseCause, ConnectError, Counter, CpuError, CpuList, Driver, DumpTimeout,
    Group, GroupConfig, GroupError, Limits, ListenAddress, Listeners, LoopError, Mechanism,
    NoSession, Session, SubmitError,
};
use pollux_testing::wait_until;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::puppet::{Call, Causes, Puppet, Stage, take};
use crate::server::{DEADLINE, Server, drivers, read, read_all};

#[test]
fn a_reset_in_the_middle_of_an_answer_ends_the_connection() {
    for driver in drivers() {
        let server = Server::of(driver);
        let mut peer = server.connect();
        peer.write_all(b"big 100000000\n").expect("written");
        read(&mut peer, 100_000);
        set_socket_linger(&peer, Some(Duration::ZERO)).expect("set");
        drop(peer);
        let counters = server.counters(0);
        wait_until("the end", || counters.closed(CloseCause::PeerReset) == 1);
        assert_eq!(server.talk(b"echo x\n"), b"hello\necho x\nbye\n", "{driver}");
    }
}

#[test]
fn a_number_that_is_closed_and_opened_at_once_is_another_connection() {
    for driver in drivers() {
        let server = Server::of(driver);
        for round in 0..200 {
            let line = format!("echo {round}\n");
            let mut peer = server.connect();
            peer.write_all(
                format!("{line}{}\n", ["close", "abort", "linger"][round % 3]).as_bytes(),
            )
            .expect("written");
            let answer = read_all(&mut peer);
            // What an abort leaves is a matter of luck, but never another's bytes.
            let whole = format!("hello\n{line}");
            assert!(whole.as_bytes().starts_with(&answer), "{driver}: {answer:?}");
            assert!(round % 3 == 1 || answer.len() == whole.len(), "{driver}: {answer:?}");
        }
        let counters = server.counters(0);
        wait_until("all ends", || counters.open() == 0);
        assert_eq!(counters.closed_total(), 200, "{driver}");
    }
}

#[test]
fn a_session_that_begins_while_the_loop_drains_is_reported_once() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        stage.event_loop.drain();
        let causes = Causes::default();
        let mut drains = 0;
        let (_, mut peer) = stage.adopt(Puppet::watched(&causes, move |call, actions| {
            match call {
                Call::Drain => {
                    drains += 1;
                    actions.send(&[b'0' + drains]);
                }
                Call::End => actions.close(),
                _ => {}
            }
            0
        }));
        stage.event_loop.drain();
        peer.shutdown(std::net::Shutdown::Write).expect("open");
        stage.turn_until("the end", |_| !causes.borrow().is_empty());
        let mut received = Vec::new();
        peer.set_nonblocking(false).expect("set");
        stage.event_loop.close_all(CloseCause::Drained);
        stage.turn();
        peer.read_to_end(&mut received).expect("ended");
        assert_eq!(received, b"1", "{driver}");
        stage.assert_balanced();
    }
}

#[test]
fn a_drain_with_a_full_backlog_ends_every_connection() {
    const WAITING: usize = 50;
    for driver in drivers() {
        let limits = Limits { accepts_per_turn: 4, ..Limits::default() };
        let mut stage = Stage::accepting(driver, limits, || {
            Puppet::new(|call, actions| {
                if call == Call::Drain {
                    actions.close();
                }
                0
            })
        });
        let address = stage.listen();
        let connect = |_| TcpStream::connect(&address).expect("connected");
        let peers: Vec<_> = (0..WAITING).map(connect).collect();
        stage.turn_until("some accepts", |stage| stage.count(Counter::Accepted) >= 8);
        assert!(stage.count(Counter::Accepted) < WAITING as u64, "{driver}: none waits");
        stage.event_loop.drain();
        stage.turn_until("all closes", |stage| stage.event_loop.open_connections() == 0);
        // The kernel ends some twenty requests in a turn, and with them the sockets they hold.
        (0..8).for_each(|_| stage.turn());
        for mut peer in peers {
            peer.set_read_timeout(Some(DEADLINE)).expect("set");
            assert!(read_all(&mut peer).is_empty(), "{driver}");
        }
        stage.assert_balanced();
        stage.assert_idle();
    }
}

/// Panics at the first byte.
struct Bomb;

impl Session for Bomb {
    type Shared = ();

    fn accepted((): &mut (), _: &mut Actions<'_>) -> Self {
        Self
    }

    fn on_bytes(&mut self, (): &mut (), _: &mut Actions<'_>, _: &[u8]) -> usize {
        panic!("on purpose")
    }

    fn on_end(&mut self, (): &mut (), _: &mut Actions<'_>) {}

    fn on_deadline(&mut self, (): &mut (), _: &mut Actions<'_>) {}

    fn on_shutdown(&mut self, (): &mut (), _: &mut Actions<'_>) {}
}

#[test]
fn a_loop_that_panicked_is_not_waited_for() {
    let config = GroupConfig {
        listen: vec!["127.0.0.1:0".parse().expect("an address")],
        driver: Driver::ALL[3],
        threads: 2,
        listeners: Listeners::Reuseport,
        cpus: None,
        delays_small_writes: false,
        limits: Limits::default(),
    };
    let started = Group::start::<Bomb, _, io::Error>(&config, |_| Ok(()));
    let group = started.expect("started");
    let ListenAddress::Tcp(address) = group.addresses()[0].clone() else { panic!("TCP") };
    let mut peer = TcpStream::connect(address).expect("connected");
    peer.write_all(b"x").expect("written");
    wait_until("the panic", || group.has_ended_loop());
    let lines = group.dumper().descriptors().expect("the other one answers");
    assert!(
        lines.iter().any(Vec::is_empty) && lines.iter().any(|lines| !lines.is_empty()),
        "{lines:?}"
    );
    group.abort();
    assert!(matches!(group.join(), Err(GroupError::Panicked)));
}

/// More input than a session takes: the peer is slowed down by its window and never cut, and
/// when the session gives up, the peer sees the end at once, whatever is still on its way.
#[test]
fn a_flood_for_a_session_that_takes_nothing_is_held_back_and_ends_at_its_word() {
    for driver in drivers() {
        let mut stage = Stage::accepting(driver, Limits::default(), || {
            Puppet::new(|call, actions| {
                match call {
                    // Used once in full, so that the next receive is a lasting one.
                    Call::Bytes(b"begin") => return 5,
                    Call::Bytes(_) => {
                        actions.pause_input();
                        actions.set_deadline(actions.now().at + Duration::from_millis(150));
                    }
                    Call::Deadline => actions.abort(),
                    _ => {}
                }
                0
            })
        });
        let address = stage.listen();
        let mut peer = TcpStream::connect(address).expect("connected");
        peer.write_all(b"begin").expect("room");
        stage.turn_until("the beginning", |stage| stage.count(Counter::BytesIn) == 5);
        peer.set_nonblocking(true).expect("set");
        let mut error = None;
        stage.turn_until("the end", |stage| {
            while error.is_none() {
                match peer.write(&[b'x'; 65_536]) {
                    Ok(_) => {}
                    Err(full) if full.kind() == ErrorKind::WouldBlock => break,
                    Err(other) => error = Some(other),
                }
            }
            assert!(stage.count(Counter::BytesIn) < 2 << 20, "{driver}: not held back");
            error.is_some()
        });
        let counters = stage.event_loop.counters();
        assert_eq!(counters.closed(CloseCause::Aborted), 1, "{driver}");
        stage.assert_balanced();
        stage.assert_idle();
    }
}

/// A lasting receive that is in the middle of many bytes when its connection is closed must not
/// keep the socket open.
#[test]
fn an_abort_in_the_middle_of_many_bytes_reaches_the_peer() {
    for driver in drivers() {
        let mut stage = Stage::accepting(driver, Limits::default(), || {
            let mut calls = 0;
            Puppet::new(move |call, actions| match call {
                Call::Bytes(input) => {
                    calls += 1;
                    match calls {
                        1 => {}
                        2 => {
                            actions.pause_input();
                            actions.set_deadline(actions.now().at + Duration::from_millis(20));
                        }
                        _ => actions.abort(),
                    }
                    input.len()
                }
                Call::Deadline => {
                    actions.resume_input();
                    0
                }
                _ => 0,
            })
        });
        let address = stage.listen();
        let mut peer = TcpStream::connect(address).expect("connected");
        for len in [5, 10] {
            peer.write_all(b"begin").expect("room");
            stage.turn_until("the beginning", |stage| stage.count(Counter::BytesIn) == len);
        }
        peer.write_all(&vec![b'x'; 400_000]).expect("room");
        peer.set_nonblocking(true).expect("set");
        stage.turn_until("the end", |_| match peer.read(&mut [0; 1]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        });
        stage.assert_idle();
        stage.assert_balanced();
    }
}

/// What is handed in and is not a stream that does not block comes back with the reason.
#[test]
fn a_datagram_socket_is_refused_and_not_read_short() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let (datagrams, _peer) = UnixDatagram::pair().expect("two descriptors");
        datagrams.set_nonblocking(true).expect("set");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("bound");
        udp.set_nonblocking(true).expect("set");
        let flags = SocketFlags::NONBLOCK;
        let (packets, _peer) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let (blocking, _peer) = UnixStream::pair().expect("two descriptors");
        let cases: [(OwnedFd, &str); 6] = [
            (datagrams.into(), "sends messages"),
            (udp.into(), "sends messages"),
            (packets, "sends messages"),
            (listener.into(), "listens"),
            (File::open("/dev/null").expect("there").into(), "not a socket"),
            (blocking.into(), "blocks"),
        ];
        for (descriptor, reason) in cases {
            let number = descriptor.as_raw_fd();
            let session = Puppet::whole(|call, _| panic!("called: {call:?}"));
            let Err((back, _, error)) = stage.event_loop.adopt(descriptor, session) else {
                panic!("{driver}: {reason}: adopted")
            };
            assert!(error.to_string().contains(reason), "{driver}: {error}");
            assert_eq!(back.as_raw_fd(), number);
        }
        assert_eq!(stage.event_loop.open_connections(), 0);
        stage.assert_balanced();
    }
}

/// Sends everything back.
fn echo() -> Puppet {
    Puppet::new(|call, actions| match call {
        Call::Bytes(input) => {
            actions.send(input);
            input.len()
        }
        _ => 0,
    })
}

#[test]
fn a_storm_of_new_connections_leaves_the_turn_to_the_live_ones() {
    const STORM: usize = 100;
    const SHARE: u32 = 4;
    const TURNS: u64 = 4;
    for driver in drivers() {
        let limits = Limits { accepts_per_turn: SHARE, ..Limits::default() };
        let mut stage = Stage::accepting(driver, limits, echo);
        let address = stage.listen();
        let (_, mut live) = stage.adopt(echo());
        live.write_all(b"x").expect("room");
        assert_eq!(stage.read(&mut live, 1), b"x");
        let connect = |_| TcpStream::connect(&address).expect("connected");
        let _storm: Vec<TcpStream> = (0..STORM).map(connect).collect();
        let completed = stage.count(Counter::Completions);
        // In the middle of it, again and again, a live one speaks.
        for round in 1..=3 {
            live.write_all(b"ping").expect("room");
            let mut received = Vec::new();
            for _ in 0..TURNS {
                stage.turn();
                take(&mut live, &mut received, 4);
            }
            assert_eq!(received, b"ping", "{driver}: not in {TURNS} turns");
            let accepted = stage.count(Counter::Accepted);
            let most = round * TURNS * u64::from(SHARE);
            assert!(accepted <= most, "{driver}: {accepted} were let in before it");
            // Nor did the kernel take them all for a loop that lets them in later.
            let came = stage.count(Counter::Completions) - completed;
            assert!(came <= most + round, "{driver}: {came} completions came before it");
        }
        stage.turn_until("the storm", |stage| stage.count(Counter::Accepted) == STORM as u64);
    }
}

#[test]
fn a_port_refuses_when_its_loop_drains() {
    for driver in drivers() {
        let mut stage = Stage::accepting(driver, Limits::default(), echo);
        let address = stage.listen();
        let _armed = TcpStream::connect(&address).expect("connected");
        stage.turn_until("the accept", |stage| stage.count(Counter::Accepted) == 1);
        (0..3).for_each(|_| stage.turn());
        stage.event_loop.drain();
        // The kernel ends armed requests in the next enter, those of AIO in a thread of its own.
        stage.turn_until("the refusal", |_| {
            let refused = TcpStream::connect(&address).err();
            refused.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
    }
}

/// A program may drop its loop at any time: sessions are notified, peers see the end.
#[test]
fn a_loop_that_is_dropped_with_everything_under_way_leaves_nothing_behind() {
    for driver in drivers() {
        let mut stage = Stage::accepting(driver, Limits::default(), echo);
        let address = stage.listen();
        let mut waiting = TcpStream::connect(&address).expect("connected");
        stage.turn_until("the accept", |stage| stage.count(Counter::Accepted) == 1);
        let (_, mut idle) = stage.adopt(echo());
        // Output that is not read, so that a send waits.
        let (stuck_id, mut stuck) = stage.adopt(Puppet::new(|call, actions| {
            if matches!(call, Call::Wake | Call::Drained) {
                actions.spare().fill(b'x');
                actions.advance(actions.room());
                actions.notify_when_sent();
            }
            0
        }));
        stage.event_loop.wake(stuck_id);
        (0..20).for_each(|_| stage.turn());
        // Queued and never submitted.
        idle.write_all(b"x").expect("room");
        drop(stage);
        for peer in [&mut idle, &mut stuck] {
            peer.set_nonblocking(false).expect("set");
            peer.set_read_timeout(Some(DEADLINE)).expect("set");
            assert!(ends(peer), "{driver}");
        }
        waiting.set_read_timeout(Some(DEADLINE)).expect("set");
        assert!(ends(&mut waiting), "{driver}");
        let refused = TcpStream::connect(&address).expect_err("no listener");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{driver}");
    }
}

/// Whether the stream of `peer` ends, behind whatever there is, or is reset.
fn ends(peer: &mut impl Read) -> bool {
    match peer.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn start(config: &GroupConfig) -> Result<Group, GroupError> {
    Group::start::<NoSession, _, io::Error>(config, |_| Ok(()))
}

#[test]
fn the_default_group_listens_on_a_port_that_the_kernel_chose() {
    let group = start(&GroupConfig::default()).expect("epoll is always there");
    let [ListenAddress::Tcp(address)] = group.addresses() else { panic!("one TCP address") };
    assert!(address.ip().is_loopback() && address.port() != 0, "{address}");
    group.abort();
    group.join().expect("ended");
}

#[test]
fn an_address_in_use_keeps_its_kind() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = ListenAddress::Tcp(taken.local_addr().expect("bound"));
    let config = GroupConfig { listen: vec![address], ..GroupConfig::default() };
    let error = io::Error::from(start(&config).err().expect("the port is taken"));
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    let inside = error.get_ref().and_then(|inside| inside.downcast_ref::<GroupError>());
    assert!(matches!(inside, Some(GroupError::Listen(_))), "{error:?}");
}

#[test]
fn a_mechanism_that_is_not_there_is_unsupported_and_says_why() {
    let mechanism = Driver::Completion.name();
    let reason = "the sysctl forbids it".to_owned();
    let cause = io::Error::from_raw_os_error(1);
    let error = LoopError::Unavailable { mechanism, reason, cause };
    assert_eq!(error.to_string(), "uring is not available here: the sysctl forbids it");
    assert!(error.source().is_some(), "the kernel's word is not lost");
    assert_eq!(io::Error::from(error).kind(), ErrorKind::Unsupported);
    let error = "nowhere".parse::<ListenAddress>().expect_err("no port");
    assert_eq!(io::Error::from(error).kind(), ErrorKind::InvalidInput);
    let error = ConnectError::LoopFull { connections_max: 1 };
    assert_eq!(io::Error::from(error).kind(), ErrorKind::Other);
}

#[test]
fn errors_of_the_engine_are_errors_of_io_with_a_kind() {
    let driver = "kqueue".parse::<Driver>().expect_err("no driver of Linux");
    let mechanism = "kqueue".parse::<Mechanism>().expect_err("no mechanism of Linux");
    let cpus = "first".parse::<CpuList>().expect_err("no number");
    let refused = || io::Error::from_raw_os_error(13);
    for (error, kind) in [
        (driver.into(), ErrorKind::InvalidInput),
        (mechanism.into(), ErrorKind::InvalidInput),
        (cpus.into(), ErrorKind::InvalidInput),
        (CpuError::System { call: "a call", cause: refused() }.into(), refused().kind()),
        (AdoptError::Blocks.into(), ErrorKind::InvalidInput),
        (AdoptError::System { call: "a call", cause: refused() }.into(), refused().kind()),
        (SubmitError::Full.into(), ErrorKind::Other),
        (DumpTimeout { loops: vec![0] }.into(), ErrorKind::TimedOut),
    ] {
        let error: io::Error = error;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.get_ref().is_some(), "{error}");
    }
}
