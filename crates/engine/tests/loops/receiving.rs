//! What many connections send at once reaches the session of each, whole and in order, on every driver.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use pollux_engine::{Counter, Driver, Limits};

use crate::peer::drivers;
use crate::puppet::{Call, Puppet, Stage};

/// More than a loop receives from before it calls the sessions.
const CONNECTIONS: usize = 70;
/// Around what one of many connections is received at first, and beyond what one receive takes.
const SIZES: [usize; 7] = [1, 100, 2111, 2112, 2113, 5000, 100_000];

/// Keeps all that comes.
fn keeper(kept: &Rc<RefCell<Vec<u8>>>) -> Puppet {
    let kept = Rc::clone(kept);
    Puppet::new(move |call, _| match call {
        Call::Bytes(input) => {
            kept.borrow_mut().extend_from_slice(input);
            input.len()
        }
        _ => 0,
    })
}

fn message(of: usize, round: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + of * 31 + round * 13) as u8).collect()
}

#[test]
fn what_many_connections_send_at_once_reaches_each_session_whole() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let kept: Vec<Rc<RefCell<Vec<u8>>>> = (0..CONNECTIONS).map(|_| Rc::default()).collect();
        let mut peers: Vec<_> = kept.iter().map(|kept| stage.adopt(keeper(kept)).1).collect();
        let mut sent = vec![Vec::new(); CONNECTIONS];
        for round in 0..2 * SIZES.len() {
            for (at, peer) in peers.iter_mut().enumerate() {
                let message = message(at, round, SIZES[(at + round) % SIZES.len()]);
                peer.write_all(&message).expect("the socket takes it");
                sent[at].extend(message);
            }
            stage.turn_until("all of it", |_| {
                kept.iter().zip(&sent).all(|(kept, sent)| kept.borrow().len() >= sent.len())
            });
        }
        for (at, (kept, sent)) in kept.iter().zip(&sent).enumerate() {
            assert!(*kept.borrow() == *sent, "{driver}: the bytes of connection {at} differ");
        }
        stage.assert_idle();
    }
}

#[test]
fn a_small_message_is_one_receive_and_a_connection_of_large_ones_has_no_more() {
    for driver in drivers() {
        let Driver::Readiness(_) = driver else { continue };
        let mut stage = Stage::open(driver, Limits::default());
        let kept = Rc::<RefCell<Vec<u8>>>::default();
        let (_, mut peer) = stage.adopt(keeper(&kept));
        let mut receives = |len: usize| {
            let (before, had) = (stage.count(Counter::Receives), kept.borrow().len());
            peer.write_all(&vec![b'x'; len]).expect("the socket takes it");
            stage.turn_until("all of it", |_| kept.borrow().len() == had + len);
            stage.count(Counter::Receives) - before
        };
        assert_eq!(receives(100), 1, "{driver}");
        // It was not known that it is large.
        assert!(receives(10_000) > 1, "{driver}");
        assert_eq!((receives(10_000), receives(10_000)), (1, 1), "{driver}");
        assert_eq!((receives(100), receives(100)), (1, 1), "{driver}");
    }
}
