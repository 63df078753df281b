//! What threads share, over all interleavings.
//!
//! * An inbox with two senders and its owner (`src/inbox.rs`): no message stays behind. Wakes merge in the model of a
//!   waker (the real one has its own model in the poller's tests). A message that stays behind shows as an owner that
//!   sleeps for ever, which loom reports.
//! * Loops that take a connection from each other (`src/takeover.rs`): never two act on its socket. A number stands in
//!   the place of the socket: a loop that may act adds one to it in two steps, so two that act at once, or one that does
//!   not see what the owner before it did, lose a count.
//!
//! Both files are taken in as they stand. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-engine --test loom_threads --release`.
#![cfg(loom)]

#[path = "../src/inbox.rs"]
pub mod inbox;
#[path = "../src/takeover.rs"]
pub mod takeover;

use std::mem::ManuallyDrop;
use std::sync::Arc;

use inbox::{Inbox, Sender, Undelivered, Wake};
use loom::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use takeover::{Claim, SharedSocket};

/// How often loom may take the processor from a thread that could run; without a bound a run
/// takes hours.
const INBOX_PREEMPTIONS_MAX: usize = 3;
const TAKEOVER_PREEMPTIONS_MAX: usize = 4;

fn explore(preemptions_max: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions_max);
    model.check(run);
}

/// Ends the owner's wait.
#[derive(Clone)]
struct ModelWaker(Arc<(Mutex<bool>, Condvar)>);

impl Wake for ModelWaker {
    fn wake(&self) {
        *self.0.0.lock().expect("no thread panics with it") = true;
        self.0.1.notify_one();
    }
}

impl ModelWaker {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(false), Condvar::new())))
    }

    fn wait(&self) {
        let mut is_rung = self.0.0.lock().expect("no thread panics with it");
        while !*is_rung {
            is_rung = self.0.1.wait(is_rung).expect("no thread panics with it");
        }
        *is_rung = false;
    }
}

/// A waker that does nothing, for senders that wake by themselves.
#[derive(Clone)]
struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

type Turn = fn(&ModelWaker, &mut Inbox<u32>, &mut Vec<u32>);

/// Two threads send three messages; the owner takes turns until it has all.
fn run<W>(waker_of: fn(&ModelWaker) -> W, send: fn(&ModelWaker, &Sender<u32, W>, u32), turn: Turn)
where
    W: Wake + Clone + Send + 'static,
{
    let waker = ModelWaker::new();
    let (inbox, sender) = Inbox::new(3, waker_of(&waker));
    // Closing takes the lock, which loom does not allow while it reports what it found.
    let mut inbox = ManuallyDrop::new(inbox);
    let threads = [vec![1, 2], vec![3]].map(|messages| {
        let waker = waker.clone();
        let sender = sender.clone();
        thread::spawn(move || {
            for message in messages {
                send(&waker, &sender, message);
            }
        })
    });
    let mut got = Vec::new();
    let mut messages = Vec::new();
    while got.len() < 3 {
        turn(&waker, &mut inbox, &mut messages);
        got.append(&mut messages);
    }
    got.retain(|message| *message != 3);
    assert_eq!(got, [1, 2], "those of one sender come in order, once");
    threads.into_iter().for_each(|thread| thread.join().expect("senders do not panic"));
}

/// Whether loom finds an interleaving in which the owner sleeps for ever.
fn leaves_a_message(run: impl Fn() + Sync + Send + std::panic::UnwindSafe + 'static) -> bool {
    let Err(panic) = std::panic::catch_unwind(|| explore(INBOX_PREEMPTIONS_MAX, run)) else {
        return false;
    };
    let reason = panic.downcast_ref::<String>().expect("loom panics with a message");
    assert!(reason.contains("deadlock"), "failed in another way: {reason}");
    true
}

/// As threads use it: the inbox wakes the owner.
fn send(_bell: &ModelWaker, sender: &Sender<u32, ModelWaker>, message: u32) {
    sender.send(message).expect("there is room for all");
}

fn turn(waker: &ModelWaker, inbox: &mut Inbox<u32>, messages: &mut Vec<u32>) {
    waker.wait();
    inbox.drain(messages);
}

#[test]
fn no_message_stays_behind() {
    explore(INBOX_PREEMPTIONS_MAX, || run(ModelWaker::clone, send, turn));
}

#[test]
fn an_owner_may_look_before_it_waits() {
    let looks_first: Turn = |waker, inbox, messages| {
        inbox.drain(messages);
        if messages.is_empty() {
            turn(waker, inbox, messages);
        }
    };
    explore(INBOX_PREEMPTIONS_MAX, move || run(ModelWaker::clone, send, looks_first));
}

#[test]
fn looking_only_before_the_wait_would_leave_a_message() {
    let looks_too_early: Turn = |waker, inbox, messages| {
        inbox.drain(messages);
        waker.wait();
    };
    assert!(leaves_a_message(move || run(ModelWaker::clone, send, looks_too_early)));
}

#[test]
fn waking_before_the_message_is_in_would_leave_it() {
    let wakes_too_early = |waker: &ModelWaker, sender: &Sender<u32, Silent>, message: u32| {
        waker.wake();
        sender.send(message).expect("there is room for all");
    };
    assert!(leaves_a_message(move || run(|_| Silent, wakes_too_early, turn)));
}

/// The message of a sender that meets the end of the owner is dropped once, or comes back.
#[test]
fn an_inbox_that_closes_loses_no_message() {
    explore(INBOX_PREEMPTIONS_MAX, || {
        let (inbox, sender) = Inbox::new(1, Silent);
        let message = Arc::new(());
        let sent = Arc::clone(&message);
        let sending = thread::spawn(move || sender.send(sent).err().map(Undelivered::into_message));
        drop(inbox);
        let came_back = sending.join().expect("senders do not panic");
        assert_eq!(Arc::strong_count(&message), 1 + usize::from(came_back.is_some()));
    });
}

/// How often loops have acted, in the place of what they act on.
type Socket = SharedSocket<AtomicU32>;

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
        socket.release(by);
    }
    claim != Claim::Lost
}

fn take(socket: &Socket, by: u32) -> bool {
    let is_taken = socket.take(by);
    if is_taken {
        act(socket);
        socket.release(by);
    }
    is_taken
}

#[test]
fn an_event_of_the_old_owner_and_two_takers_never_act_at_once() {
    explore(TAKEOVER_PREEMPTIONS_MAX, || {
        let socket = Arc::new(Socket::new(AtomicU32::new(0), 0));
        socket.release(0);
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
    explore(TAKEOVER_PREEMPTIONS_MAX, || {
        let socket = Arc::new(Socket::new(AtomicU32::new(0), 0));
        socket.release(0);
        let other = Arc::clone(&socket);
        let thread = thread::spawn(move || take(&other, 1));
        let came_back = take(&socket, 0);
        let was_taken = thread.join().expect("takers do not panic");
        // The event of the loop that had it last counts: what the other one finds is dropped.
        let mine = event(&socket, 0);
        let theirs = event(&socket, 1);
        assert!(came_back || was_taken);
        assert!(mine != theirs, "one of them has it");
        assert_eq!((socket.is_last_owner(0), socket.is_last_owner(1)), (mine, theirs));
    });
}

/// One loop sends a connection to the loop that had it before, while that one has an event of it: until
/// the message is read, the connection has no owner.
#[test]
fn a_connection_on_its_way_back_is_not_the_old_owners_yet() {
    explore(TAKEOVER_PREEMPTIONS_MAX, || {
        let socket = Arc::new(Socket::new(AtomicU32::new(0), 0));
        socket.release(0);
        assert!(socket.take(1), "put down");
        let is_reported = Arc::new(AtomicBool::new(false));
        let other = Arc::clone(&socket);
        let reports = Arc::clone(&is_reported);
        let thread = thread::spawn(move || {
            act(&other);
            other.release(1);
            assert!(other.start_transfer(), "no other loop wants it");
            reports.store(true, Release);
        });
        assert_eq!(socket.claim(0), Claim::Lost, "an event of what it does not know to be its own");
        let has_arrived = is_reported.load(Acquire);
        if has_arrived {
            socket.receive(0);
            assert_eq!(act(&socket), 2, "what the sender did is seen");
        }
        thread.join().expect("the sender does not panic");
        assert_eq!(socket.is_last_owner(0), has_arrived);
    });
}

/// The model can fail: a owner that acts after it has put the connection down.
#[test]
fn to_act_after_putting_down_would_be_found() {
    let late = || {
        let socket = Arc::new(Socket::new(AtomicU32::new(0), 0));
        let other = Arc::clone(&socket);
        let thread = thread::spawn(move || take(&other, 1));
        socket.release(0);
        act(&socket);
        let acts = 1 + u32::from(thread.join().expect("takers do not panic"));
        assert_eq!(socket.socket().load(Relaxed), acts, "an act was lost");
    };
    let found = std::panic::catch_unwind(|| explore(TAKEOVER_PREEMPTIONS_MAX, late));
    let reason = found.expect_err("an interleaving in which both act at once");
    let reason = reason.downcast_ref::<String>().expect("a message");
    assert!(reason.contains("an act was lost"), "failed in another way: {reason}");
}
