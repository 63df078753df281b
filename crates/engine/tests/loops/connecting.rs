//! Connections to a peer, on every driver: how they are established, fail and are given up; those that sessions have
//! their loop open by commands, from where there are no `Actions`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use pollux_engine::{
    Actions, CloseCause, Command, ConnectError, ConnectTo, ConnectionId, Counter, Driver,
    EventLoop, Limits, ListenAddress, Listener, Moment, Session,
};
use pollux_testing::Refusing;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use crate::puppet::{Call, Puppet, Stage};
use crate::server::drivers;

/// The calls of a session, in order; bytes count, ends and closings in words.
type Story = Rc<RefCell<Vec<String>>>;

/// Says `greeting` when it is connected, records its calls, and closes at the peer's end.
fn teller(story: &Story, greeting: &'static [u8]) -> Puppet {
    let story = Rc::clone(story);
    Puppet::whole(move |call, actions| {
        let mut story = story.borrow_mut();
        match (call, actions) {
            (Call::Bytes(input), _) => {
                story.push(String::from_utf8_lossy(input).into_owned());
                return input.len();
            }
            (Call::Connected, Some(actions)) => actions.send(greeting),
            (Call::Deadline, Some(actions)) => actions.abort(),
            (Call::End | Call::Drain | Call::Wake, Some(actions)) => actions.close(),
            _ => {}
        }
        story.push(format!("{call:?}"));
        0
    })
}

fn to(peer: SocketAddr) -> ConnectTo {
    ConnectTo { peer: ListenAddress::Tcp(peer), source: None }
}

fn connect(stage: &mut Stage, to: &ConnectTo, session: Puppet) -> ConnectionId {
    let begun = stage.event_loop.connect(to, session, Moment::NEVER);
    begun.unwrap_or_else(|(_, error)| panic!("{}: {error:?}", stage.driver))
}

fn any_port() -> (TcpListener, ConnectTo) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let to = to(listener.local_addr().expect("bound"));
    (listener, to)
}

fn ends(stage: &mut Stage, story: &Story) -> String {
    stage.turn_until("the end", |_| {
        story.borrow().last().is_some_and(|last| last.starts_with("Closed"))
    });
    stage.assert_balanced();
    story.borrow().join(" ")
}

/// A path of our own for a unix socket, removed at the end.
struct Path(PathBuf);

impl Path {
    fn new(name: &str, driver: Driver) -> Self {
        let name = format!("pollux-connect-{name}-{driver}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn to(&self) -> ConnectTo {
        ConnectTo { peer: ListenAddress::Unix(self.0.clone()), source: None }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Sends back what comes.
fn echo() -> Puppet {
    Puppet::new(|call, actions| match call {
        Call::Bytes(input) => {
            actions.send(input);
            input.len()
        }
        Call::End | Call::Drain => {
            actions.close();
            0
        }
        _ => 0,
    })
}

#[test]
fn a_client_and_its_server_share_a_loop() {
    for driver in drivers() {
        let path = Path::new("echo", driver);
        for address in ["127.0.0.1:0".parse().expect("an address"), path.to().peer] {
            let mut stage = Stage::accepting(driver, Limits::default(), echo);
            let listener = Listener::open(&address, false).expect("opened");
            let to = ConnectTo { peer: listener.address().clone(), source: None };
            stage.event_loop.listen(listener, false);
            let story = Story::default();
            let id = connect(&mut stage, &to, teller(&story, b"hello"));
            assert!(story.borrow().is_empty(), "{driver}: not within the call");
            stage.turn_until("the echo", |_| story.borrow().len() == 2);
            stage.assert_idle();
            stage.event_loop.wake(id);
            assert_eq!(ends(&mut stage, &story), "Connected hello Wake Closed(Session)");
            stage.turn_until("both ends", |stage| stage.event_loop.open_connections() == 0);
            assert_eq!(stage.count(Counter::Connects), 1);
        }
    }
}

#[test]
fn a_closed_port_refuses() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let nobody = Refusing::bind();
        let to = to(nobody.address());
        let story = Story::default();
        connect(&mut stage, &to, teller(&story, b""));
        let reported = ends(&mut stage, &story);
        assert_eq!(reported, "ConnectFailed(ConnectionRefused) Closed(ConnectFailed)", "{driver}");
        assert_eq!(stage.event_loop.open_connections(), 0);
        stage.assert_idle();
    }
}

#[test]
fn a_unix_socket_without_a_server_gives_the_session_back() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let path = Path::new("refuse", driver);
        let listener = UnixListener::bind(&path.0).expect("a free path");
        listen(&listener, 0).expect("listens");
        let story = Story::default();
        let filler = connect(&mut stage, &path.to(), teller(&story, b""));
        assert_eq!(refusal(&mut stage, &path.to()), ("connect", ErrorKind::WouldBlock));
        drop(listener);
        assert_eq!(refusal(&mut stage, &path.to()), ("connect", ErrorKind::ConnectionRefused));
        assert_eq!(stage.count(Counter::Connects), 1, "{driver}");
        stage.event_loop.wake(filler);
        ends(&mut stage, &story);
    }
}

#[test]
fn a_source_that_is_not_ours_gives_the_session_back() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let (_listener, mut to) = any_port();
        // Kept for documents (RFC 5737): no machine has it.
        to.source = Some(Ipv4Addr::new(192, 0, 2, 1).into());
        assert_eq!(refusal(&mut stage, &to), ("bind", ErrorKind::AddrNotAvailable), "{driver}");
        to.peer = ListenAddress::Unix("nowhere".into());
        assert_eq!(refusal(&mut stage, &to).0, "setsockopt", "{driver}");
    }
}

/// The call that refuses a connection at once, and why; the session comes back uncalled.
fn refusal(stage: &mut Stage, to: &ConnectTo) -> (&'static str, ErrorKind) {
    let story = Story::default();
    let refused = stage.event_loop.connect(to, teller(&story, b""), Moment::NEVER);
    let Err((_session, ConnectError::System { call, cause, .. })) = refused else {
        panic!("{}: refused at once", stage.driver)
    };
    assert!(story.borrow().is_empty(), "{}", stage.driver);
    (call, cause.kind())
}

/// A listener whose backlog is full, and what fills it.
fn full_backlog() -> (OwnedFd, Vec<OwnedFd>, ConnectTo) {
    let open = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket")
    };
    let listener = open();
    bind(&listener, &SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).expect("bound");
    listen(&listener, 0).expect("listens");
    let bound = rustix::net::getsockname(&listener).expect("bound");
    let address = SocketAddr::try_from(bound).expect("of the internet family");
    let fill = |_| {
        let socket = open();
        let _ = rustix::net::connect(&socket, &address);
        socket
    };
    let fillers = (0..4).map(fill).collect();
    (listener, fillers, to(address))
}

#[test]
fn a_connect_without_an_answer_ends_at_its_deadline() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let (_listener, _fillers, to) = full_backlog();
        let story = Story::default();
        let deadline = stage.event_loop.now().at + Duration::from_millis(30);
        let begun = stage.event_loop.connect(&to, teller(&story, b""), deadline);
        begun.map_err(|(_, error)| error).expect("begun");
        assert_eq!(ends(&mut stage, &story), "Deadline Closed(Aborted)", "{driver}");
        stage.assert_idle();
    }
}

#[test]
fn a_connect_is_given_up_by_a_word_a_drain_or_the_end_of_the_loop() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let (_listener, _fillers, to) = full_backlog();
        let [woken, drained, late, cut] = [(); 4].map(|()| Story::default());
        let id = connect(&mut stage, &to, teller(&woken, b""));
        stage.turn();
        stage.event_loop.wake(id);
        assert_eq!(ends(&mut stage, &woken), "Wake Closed(Session)", "{driver}");
        connect(&mut stage, &to, teller(&drained, b""));
        stage.turn();
        stage.event_loop.drain();
        assert_eq!(ends(&mut stage, &drained), "Drain Closed(Session)", "{driver}");
        connect(&mut stage, &to, teller(&late, b""));
        assert_eq!(ends(&mut stage, &late), "Drain Closed(Session)", "{driver}");
        stage.assert_idle();

        let mut stage = Stage::open(driver, Limits::default());
        connect(&mut stage, &to, teller(&cut, b""));
        stage.turn();
        stage.event_loop.close_all(CloseCause::LoopEnded);
        assert_eq!(ends(&mut stage, &cut), "Closed(LoopEnded)", "{driver}");
        connect(&mut stage, &to, teller(&cut, b""));
        stage.turn();
        drop(stage);
        assert_eq!(Rc::strong_count(&cut), 1, "{driver}: the session is gone with its loop");
    }
}

#[test]
fn output_from_before_the_connection_leaves_first() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let (listener, to) = any_port();
        let story = Story::default();
        let kept = Rc::clone(&story);
        let session = Puppet::whole(move |call, actions| {
            match (call, actions) {
                (Call::Drain, Some(actions)) => actions.send(b"early "),
                (Call::Connected, Some(actions)) => {
                    actions.send(b"late");
                    actions.close();
                }
                _ => {}
            }
            kept.borrow_mut().push(format!("{call:?}"));
            0
        });
        connect(&mut stage, &to, session);
        stage.event_loop.drain();
        assert_eq!(ends(&mut stage, &story), "Drain Connected Closed(Session)", "{driver}");
        stage.turn();
        let (mut peer, _) = listener.accept().expect("it came");
        let mut text = String::new();
        peer.read_to_string(&mut text).expect("it ends");
        assert_eq!(text, "early late", "{driver}");
    }
}

#[test]
fn a_server_that_talks_first_or_closes_at_once_is_received() {
    for driver in drivers() {
        let path = Path::new("first", driver);
        let unix = UnixListener::bind(&path.0).expect("a free path");
        let (tcp, to_tcp) = any_port();
        for (text, reported) in [
            (&b"welcome"[..], "Connected welcome End Closed(PeerClosed)"),
            (b"", "Connected End Closed(PeerClosed)"),
        ] {
            for is_early in [true, false] {
                for (is_unix, to) in [(false, &to_tcp), (true, &path.to())] {
                    let mut stage = Stage::open(driver, Limits::default());
                    let story = Story::default();
                    connect(&mut stage, to, teller(&story, b""));
                    if !is_early {
                        stage.turn_until("the connection", |_| !story.borrow().is_empty());
                    }
                    let mut peer: Box<dyn Write> = if is_unix {
                        Box::new(unix.accept().expect("it came").0)
                    } else {
                        Box::new(tcp.accept().expect("it came").0)
                    };
                    peer.write_all(text).expect("room");
                    drop(peer);
                    assert_eq!(ends(&mut stage, &story), reported, "{driver} early {is_early}");
                }
            }
        }
    }
}

#[test]
fn at_the_limit_the_session_comes_back() {
    for driver in drivers() {
        let limits = Limits { connections_max: 2, ..Limits::default() };
        let mut stage = Stage::open(driver, limits);
        let (_listener, to) = any_port();
        let story = Story::default();
        let first = connect(&mut stage, &to, teller(&story, b""));
        connect(&mut stage, &to, Puppet::new(|_, _| 0));
        let third = stage.event_loop.connect(&to, Puppet::new(|_, _| 0), Moment::NEVER);
        let Err((session, ConnectError::LoopFull { connections_max: 2 })) = third else {
            panic!("{driver}: it was full")
        };
        stage.event_loop.wake(first);
        ends(&mut stage, &story);
        connect(&mut stage, &to, session);
    }
}

/// What the sessions of a loop share that have it open connections by commands.
#[derive(Default)]
struct Shared {
    commands: VecDeque<Command<Opener>>,
    reported: Vec<String>,
    front: Option<ConnectionId>,
    to: Option<ConnectTo>,
}

/// Opens a connection for what it accepted, and passes on how that one ended.
enum Opener {
    Front,
    Back,
}

impl Session for Opener {
    type Shared = Shared;

    fn next_command(shared: &mut Shared) -> Option<Command<Self>> {
        shared.commands.pop_front()
    }

    fn accepted(shared: &mut Shared, actions: &mut Actions<'_>) -> Self {
        shared.front = Some(actions.id());
        let to = shared.to.clone().expect("set by the test");
        let deadline = Moment::NEVER;
        shared.commands.push_back(Command::Connect { to, session: Self::Back, deadline });
        Self::Front
    }

    fn connected(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.reported.push("connected".to_owned());
        actions.close();
    }

    fn connect_failed(&mut self, shared: &mut Shared, error: std::io::Error) {
        shared.reported.push(format!("{:?}", error.kind()));
    }

    fn on_bytes(&mut self, _: &mut Shared, _: &mut Actions<'_>, input: &[u8]) -> usize {
        input.len()
    }
    fn on_wake(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        actions.send(b"over");
        actions.close();
    }

    fn on_shutdown(&mut self, _: &mut Shared, _: &mut Actions<'_>) {}

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        if let (Self::Back, Some(front)) = (self, shared.front) {
            shared.reported.push(cause.name().to_owned());
            shared.commands.push_back(Command::Wake(front));
        }
    }
}

/// What a session of `to` reported, and what the client beside it read.
fn play(driver: Driver, to: ConnectTo, limits: Limits) -> (Vec<String>, String) {
    let address = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::open(&address, false).expect("a free port");
    let ListenAddress::Tcp(front) = listener.address().clone() else { panic!("TCP") };
    let shared = Shared { to: Some(to), ..Shared::default() };
    let mut event_loop = EventLoop::<Opener>::open(driver, shared, limits).expect("there");
    event_loop.listen(listener, false);
    let mut client = TcpStream::connect(front).expect("connected");
    while event_loop.counters().closed_total() < 2 {
        event_loop.turn(Some(Duration::from_secs(30))).expect("turned");
        let reported = &event_loop.shared().reported;
        if reported.iter().any(|word| word == "connect_failed")
            && event_loop.open_connections() == 0
        {
            break;
        }
    }
    let reported = std::mem::take(&mut event_loop.shared_mut().reported);
    // Requests of a closed socket that are not submitted yet go out now.
    drop(event_loop);
    let mut read = String::new();
    client.read_to_string(&mut read).expect("text");
    (reported, read)
}

#[test]
fn a_session_has_its_loop_open_a_connection_and_is_woken_when_that_one_ends() {
    for driver in drivers() {
        let (peer, to) = any_port();
        let (reported, read) = play(driver, to, Limits::default());
        assert_eq!((reported.join(" "), read), ("connected session".to_owned(), "over".to_owned()));
        drop(peer);
    }
}

#[test]
fn a_connect_that_fails_at_once_is_reported_like_one_that_fails_later() {
    for driver in drivers() {
        let path = std::env::temp_dir().join("pollux-command-nowhere");
        let nowhere = ConnectTo { peer: ListenAddress::Unix(path), source: None };
        let nobody = Refusing::bind();
        let closed = to(nobody.address());
        let (_peer, there) = any_port();
        for (to, limits, word) in [
            (nowhere, Limits::default(), "NotFound"),
            (closed, Limits::default(), "ConnectionRefused"),
            (there, Limits { connects_max: Some(0), ..Limits::default() }, "Other"),
        ] {
            let (reported, read) = play(driver, to, limits);
            assert_eq!(reported, [word, "connect_failed"], "{driver}");
            assert_eq!(read, "over", "{driver}");
        }
    }
}

#[test]
fn connections_to_peers_have_a_limit_of_their_own() {
    for driver in drivers() {
        let (_peer, to) = any_port();
        let limits = Limits { connections_max: 1, connects_max: Some(1), ..Limits::default() };
        let (reported, _) = play(driver, to, limits);
        assert_eq!(reported, ["connected", "session"], "{driver}");
    }
}
