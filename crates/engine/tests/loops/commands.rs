//! Commands of sessions to their loop: connections to open, and sessions to wake, from where there are no
//! `Actions`. On every driver.

use std::collections::VecDeque;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use pollux_engine::{
    Actions, CloseCause, Command, ConnectTo, ConnectionId, Driver, EventLoop, Limits,
    ListenAddress, Listener, Moment, Session,
};

use crate::peer::drivers;

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

    fn on_drain(&mut self, _: &mut Shared, _: &mut Actions<'_>) {}

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        if let (Self::Back, Some(front)) = (self, shared.front) {
            shared.reported.push(cause.name().to_owned());
            shared.commands.push_back(Command::Wake(front));
        }
    }
}

fn any_port() -> (TcpListener, ConnectTo) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let peer = ListenAddress::Tcp(listener.local_addr().expect("bound"));
    (listener, ConnectTo { peer, source: None })
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
    let reported = std::mem::take(&mut event_loop.shared().reported);
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
        let (gone, closed) = any_port();
        drop(gone);
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
