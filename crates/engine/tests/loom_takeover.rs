//! Every interleaving of loops that take a connection from each other: never two act on its socket.
//!
//! Checks `src/takeover.rs`, which is taken in as it stands, with a number in the place of the socket:
//! a loop that may act adds one to it in two steps, so two that act at once, or one that does not see what
//! the owner before it did, lose a count. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-engine --test loom_takeover --release`.
#![cfg(loom)]

#[path = "../src/takeover.rs"]
pub mod takeover;

use loom::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use loom::thread;
use std::sync::Arc;
use takeover::{Claim, SharedSocket};

/// How often loops have acted, in the place of what they act on.
type Socket = SharedSocket<AtomicU32>;

/// How often loom may take the processor from a thread that could run.
const PREEMPTIONS_MAX: usize = 4;

fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(run);
}

/// The owner acts.
fn act(socket: &Socket) -> u32 {
    let count = socket.socket().load(Relaxed) + 1;
    socket.socket().store(count, Relaxed);
    count
}

/// A former owner's event: it acts only if the connection is still its own.
fn event(socket: &Socket, by: u32) -> bool {
    let claim = socket.claim(by);
    if claim != Claim::Lost {
        act(socket);
    }
    if claim == Claim::Regained {
        socket.put_down(by);
    }
    claim != Claim::Lost
}

fn take(socket: &Socket, by: u32) -> bool {
    let is_taken = socket.take(by);
    if is_taken {
        act(socket);
        socket.put_down(by);
    }
    is_taken
}

#[test]
fn an_event_of_the_old_owner_and_two_takers_never_act_at_once() {
    explore(|| {
        let socket = Arc::new(Socket::new(AtomicU32::new(0), 0));
        socket.put_down(0);
        let threads = [1, 2].map(|by| {
            let socket = Arc::clone(&socket);
            thread::spawn(move || take(&socket, by))
        });
        let has_acted = event(&socket, 0);
        let taken = threads.map(|thread| thread.join().expect("takers do not panic"));
        let acts = [has_acted, taken[0], taken[1]].iter().filter(|is_so| **is_so).count() as u32;
        assert!(socket.take(7), "no loop owns it any more");
        assert_eq!(act(&socket), acts + 1, "each that acted is seen, and no other");
    });
}

#[test]
fn a_connection_that_comes_back_is_again_its_old_owners() {
    explore(|| {
        let socket = Arc::new(Socket::new(AtomicU32::new(0), 0));
        socket.put_down(0);
        let other = Arc::clone(&socket);
        let thread = thread::spawn(move || take(&other, 1));
        let came_back = take(&socket, 0);
        let was_taken = thread.join().expect("takers do not panic");
        // The event of the loop that had it last counts: what the other one finds is dropped.
        let (mine, theirs) = (event(&socket, 0), event(&socket, 1));
        assert!(came_back || was_taken);
        assert!(mine != theirs, "one of them has it");
        assert_eq!((socket.is_with(0), socket.is_with(1)), (mine, theirs));
    });
}

/// One loop sends a connection to the loop that had it before, while that one has an event of it: until
/// the message is read, the connection has no owner.
#[test]
fn a_connection_on_its_way_back_is_not_the_old_owners_yet() {
    explore(|| {
        let socket = Arc::new(Socket::new(AtomicU32::new(0), 0));
        socket.put_down(0);
        assert!(socket.take(1), "put down");
        let is_reported = Arc::new(AtomicBool::new(false));
        let (other, reports) = (Arc::clone(&socket), Arc::clone(&is_reported));
        let thread = thread::spawn(move || {
            act(&other);
            other.put_down(1);
            assert!(other.send_off(), "no other loop wants it");
            reports.store(true, Release);
        });
        assert_eq!(socket.claim(0), Claim::Lost, "an event of what it does not know to be its own");
        let has_arrived = is_reported.load(Acquire);
        if has_arrived {
            socket.receive(0);
            assert_eq!(act(&socket), 2, "what the sender did is seen");
        }
        thread.join().expect("the sender does not panic");
        assert_eq!(socket.is_with(0), has_arrived);
    });
}

/// The model can fail: a owner that acts after it has put the connection down.
#[test]
fn to_act_after_putting_down_would_be_found() {
    let late = || {
        let socket = Arc::new(Socket::new(AtomicU32::new(0), 0));
        let other = Arc::clone(&socket);
        let thread = thread::spawn(move || take(&other, 1));
        socket.put_down(0);
        act(&socket);
        let acts = 1 + u32::from(thread.join().expect("takers do not panic"));
        assert_eq!(socket.socket().load(Relaxed), acts, "an act was lost");
    };
    let found = std::panic::catch_unwind(|| explore(late));
    let reason = found.expect_err("an interleaving in which both act at once");
    let reason = reason.downcast_ref::<String>().expect("a message");
    assert!(reason.contains("an act was lost"), "failed in another way: {reason}");
}
