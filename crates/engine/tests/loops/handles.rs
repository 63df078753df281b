//! Calls from outside into the loops of a group: messages, connects, adoptions. On every driver.
//!
//! A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set
//! that is a failure.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use pollux_engine::{
    Actions, ConnectTo, Driver, Group, GroupConfig, GroupError, ListenAddress, Moment, NoSession,
    Session, TellError,
};

const DEADLINE: Duration = Duration::from_secs(20);

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
        let (last, loops) = (group.handle::<Echo>(0), group);
        loops.abort();
        loops.join().expect("ended");
        assert_eq!(last.tell(|_| ()), Err(TellError::Ended), "{driver}");
    }
}

fn read(mut peer: impl Read, len: usize) -> String {
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
                    let call = move |event_loop: &mut pollux_engine::EventLoop<Echo>| {
                        event_loop.shared().push('.');
                        let name = std::thread::current().name().map(str::to_owned);
                        answer.send((number, event_loop.shared().clone(), name)).expect("received");
                    };
                    handle.tell(call).expect("room for a hundred");
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
        let call = move |event_loop: &mut pollux_engine::EventLoop<Echo>| {
            assert!(event_loop.connect(&to, Echo, Moment::NEVER).is_ok(), "a socket is left");
        };
        group.handle::<Echo>(1).tell(call).expect("room");
        let (mut peer, _) = listener.accept().expect("connected");
        peer.set_read_timeout(Some(DEADLINE)).expect("set");
        peer.write_all(b"ping").expect("room");
        assert_eq!(read(&peer, 5), "1ping", "{driver}");
    });
}

#[test]
fn a_loop_adopts_what_it_is_handed_from_outside() {
    on_each(|driver, group| {
        let (ours, mut peer) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        peer.set_read_timeout(Some(DEADLINE)).expect("set");
        let call = move |event_loop: &mut pollux_engine::EventLoop<Echo>| {
            assert!(event_loop.adopt(ours.into(), Echo).is_ok(), "a stream");
        };
        group.handle::<Echo>(0).tell(call).expect("room");
        peer.write_all(b"ping").expect("room");
        assert_eq!(read(&peer, 4), "ping", "{driver}");
        // Those that the loops accept stay open beside it.
        let ListenAddress::Tcp(address) = &group.addresses()[0] else { panic!("TCP") };
        let accepted = TcpStream::connect(address).expect("connected");
        accepted.set_read_timeout(Some(DEADLINE)).expect("set");
        assert!(["0", "1"].contains(&&*read(&accepted, 1)), "{driver}");
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
    let busy = move |_: &mut pollux_engine::EventLoop<Echo>| {
        begin.send(()).expect("received");
        released.recv().expect("released");
    };
    handle.tell(busy).expect("room");
    begun.recv_timeout(DEADLINE).expect("in time");
    let taken = (0..5000).take_while(|_| handle.tell(|_| ()).is_ok()).count();
    assert_eq!(taken, 4096);
    assert_eq!(handle.tell(|_| ()), Err(TellError::Full));
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
