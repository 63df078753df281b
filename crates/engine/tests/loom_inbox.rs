//! Every interleaving of two senders and the owner of an inbox: no message stays behind.
//!
//! Checks `src/inbox.rs`, which is taken in as it stands, on a model of a waker that merges
//! wakes (the real one has its own model in the poller's tests). A message that stays behind
//! shows as an owner that sleeps for ever, which loom reports. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-engine --test loom_inbox --release`.
#![cfg(loom)]

#[path = "../src/inbox.rs"]
pub mod inbox;

use inbox::{Inbox, Sender, Undelivered, Wake};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::mem::ManuallyDrop;
use std::sync::Arc;

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

/// How often loom may take the processor from a thread that could run; without a bound a run
/// takes hours.
const PREEMPTIONS_MAX: usize = 3;

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
        let (waker, sender) = (waker.clone(), sender.clone());
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

fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(run);
}

/// Whether loom finds an interleaving in which the owner sleeps for ever.
fn leaves_a_message(run: impl Fn() + Sync + Send + std::panic::UnwindSafe + 'static) -> bool {
    let Err(panic) = std::panic::catch_unwind(|| explore(run)) else { return false };
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
    explore(|| run(ModelWaker::clone, send, turn));
}

#[test]
fn an_owner_may_look_before_it_waits() {
    let looks_first: Turn = |waker, inbox, messages| {
        inbox.drain(messages);
        if messages.is_empty() {
            turn(waker, inbox, messages);
        }
    };
    explore(move || run(ModelWaker::clone, send, looks_first));
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
    explore(|| {
        let (inbox, sender) = Inbox::new(1, Silent);
        let message = Arc::new(());
        let sent = Arc::clone(&message);
        let sending = thread::spawn(move || sender.send(sent).err().map(Undelivered::into_message));
        drop(inbox);
        let came_back = sending.join().expect("senders do not panic");
        assert_eq!(Arc::strong_count(&message), 1 + usize::from(came_back.is_some()));
    });
}
