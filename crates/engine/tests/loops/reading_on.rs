//! Sessions that are read from while their output waits, on every driver.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;

use pollux_engine::{Actions, CloseCause, Limits};

use crate::puppet::{Call, Puppet, Stage};
use crate::server::drivers;

/// More than the buffers of a connection hold.
const LONG_BYTES: usize = 24 << 20;

/// A connection of this machine whose other end is a session.
fn adopt(stage: &mut Stage, session: Puppet) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (ours, _) = listener.accept().expect("accepted");
    ours.set_nonblocking(true).expect("set");
    stage.event_loop.adopt(ours.into(), session).map_err(|(.., error)| error).expect("adopted");
    peer
}

/// Sends a piece of the rest, and asks to be called for the next one.
fn send_more(left: &Cell<usize>, actions: &mut Actions<'_>) {
    let len = left.get().min(actions.room());
    actions.spare()[..len].fill(b'x');
    actions.advance(len);
    left.set(left.get() - len);
    if left.get() > 0 {
        actions.notify_when_sent();
    }
}

/// Sends `LONG_BYTES` from its first input on; what comes stands in `came`, and what it saw of waiting output in `waited`.
fn talker(
    came: &Rc<RefCell<Vec<u8>>>,
    causes: &Rc<RefCell<Vec<CloseCause>>>,
    waited: &Rc<Cell<u64>>,
) -> Puppet {
    let came = Rc::clone(came);
    let waited = Rc::clone(waited);
    let left = Cell::new(LONG_BYTES);
    Puppet::watched(causes, move |call, actions| {
        match call {
            Call::Bytes(input) => {
                waited.set(waited.get().max(actions.waiting_bytes()));
                assert!(actions.is_output_waiting() || actions.waiting_bytes() == 0);
                came.borrow_mut().extend_from_slice(input);
                match input {
                    b"go" => {
                        actions.read_on();
                        send_more(&left, actions);
                    }
                    b"wait" => actions.read_in_turn(),
                    _ => {}
                }
                return input.len();
            }
            Call::Drained => send_more(&left, actions),
            Call::End => actions.abort(),
            _ => {}
        }
        0
    })
}

#[test]
fn input_comes_while_output_waits_until_the_session_reads_in_turn_again() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let (came, causes, waited) = <(Rc<RefCell<Vec<u8>>>, _, Rc<Cell<u64>>)>::default();
        let mut peer = adopt(&mut stage, talker(&came, &causes, &waited));
        peer.write_all(b"go").expect("room");
        stage.turn_until("the first word", |_| came.borrow().len() == 2);
        // Nothing is read here, so that the output waits from now on.
        for word in [&b"one"[..], b"two"] {
            let before = came.borrow().len();
            peer.write_all(word).expect("room");
            stage.turn_until("what comes meanwhile", |_| came.borrow().len() > before);
        }
        assert_eq!(came.borrow().as_slice(), b"goonetwo", "{driver}");
        assert!((1..1 << 20).contains(&waited.get()), "{driver}: {} bytes", waited.get());
        stage.assert_idle();
        peer.write_all(b"wait").expect("room");
        stage.turn_until("the last word", |_| came.borrow().ends_with(b"wait"));
        peer.write_all(b"late").expect("room");
        for _ in 0..20 {
            stage.turn();
        }
        assert!(!came.borrow().ends_with(b"late"), "{driver}: read though it does not read");
        let reader = std::thread::spawn(move || {
            let mut read = 0;
            let mut piece = vec![0; 1 << 20];
            while read < LONG_BYTES {
                read += peer.read(&mut piece).expect("output");
            }
            peer
        });
        stage.turn_until("what waited in the socket", |_| came.borrow().ends_with(b"late"));
        stage.turn_until("the reader", |_| reader.is_finished());
        drop(reader.join().expect("it read"));
        stage.turn_until("the end", |_| !causes.borrow().is_empty());
        stage.assert_balanced();
    }
}

#[test]
fn what_came_before_the_peer_reset_the_connection_is_shown() {
    for driver in drivers() {
        for reads_all in [false, true] {
            let mut stage = Stage::open(driver, Limits::default());
            let (came, causes, waited) = <(Rc<RefCell<Vec<u8>>>, _, Rc<Cell<u64>>)>::default();
            let mut peer = adopt(&mut stage, talker(&came, &causes, &waited));
            peer.write_all(b"go").expect("room");
            stage.turn_until("the first word", |_| came.borrow().len() == 2);
            let mut some = vec![0; 1 << 20];
            if reads_all {
                // There is room in the socket again when the reset comes.
                while peer.read(&mut some).expect("output") > 1 << 18 {}
            }
            peer.write_all(b"no").expect("room");
            // With unread input this is a reset.
            drop(peer);
            stage.turn_until("the end", |_| !causes.borrow().is_empty());
            assert_eq!(came.borrow().as_slice(), b"gono", "{driver}");
            assert_eq!(causes.borrow().as_slice(), [CloseCause::PeerReset], "{driver}");
            stage.assert_balanced();
        }
    }
}

#[test]
fn an_end_is_seen_while_output_waits() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let (came, causes, waited) = <(Rc<RefCell<Vec<u8>>>, _, Rc<Cell<u64>>)>::default();
        let mut peer = adopt(&mut stage, talker(&came, &causes, &waited));
        peer.write_all(b"go").expect("room");
        stage.turn_until("the first word", |_| came.borrow().len() == 2);
        peer.shutdown(std::net::Shutdown::Write).expect("connected");
        stage.turn_until("the end", |_| !causes.borrow().is_empty());
        assert_eq!(causes.borrow().as_slice(), [CloseCause::Aborted], "{driver}");
        stage.assert_balanced();
    }
}
