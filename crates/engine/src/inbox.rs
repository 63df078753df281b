//! Messages from other threads to the thread that owns a loop.
//!
//! ```text
//!  any thread:   lock { put the message in, set `has_mail` } → wake the owner
//!  owner:        woken → `has_mail`? → lock { swap the full vector for an empty one, clear it }
//! ```
//!
//! An owner without mail reads one flag and takes no lock. Wakes are merged by the waker, so
//! a batch rings once; it must be one of the owner's loop, which reads it after each wait.
//! The wake comes last: one before the message would find an empty box and leave the message
//! to the next.
//!
//! `tests/loom_threads.rs` takes in this file as it stands and shows on all interleavings that no
//! message stays behind; so nothing here may name anything else of the crate.

use std::fmt;
use std::sync::Arc;

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

/// What ends the owner's wait: the waker of its loop, or a model of one.
pub trait Wake {
    /// Ends the current or the next wait; wakes that were not received yet are one.
    fn wake(&self);
}

impl Wake for pollux_poller::Waker {
    fn wake(&self) {
        self.wake();
    }
}

/// Why a message was not taken; it comes back in this.
#[derive(Debug, PartialEq, Eq)]
pub enum Undelivered<T> {
    /// As many as the inbox holds have not been read yet.
    Full(T),
    /// The owner is gone.
    Closed(T),
}

impl<T> Undelivered<T> {
    /// The message.
    pub fn into_message(self) -> T {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
        }
    }
}

impl<T> fmt::Display for Undelivered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the loop's inbox is full: try again when it has had a turn",
            Self::Closed(_) => "the loop has ended",
        })
    }
}

impl<T: fmt::Debug> std::error::Error for Undelivered<T> {}

#[derive(Debug)]
struct Shared<T> {
    /// Whether `mail` holds something; written under its lock only.
    has_mail: AtomicBool,
    mail: Mutex<Mail<T>>,
    messages_max: usize,
}

#[derive(Debug)]
struct Mail<T> {
    messages: Vec<T>,
    is_closed: bool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Mail<T>> {
        self.mail.lock().expect("nothing under the lock can panic")
    }
}

/// The owner's end. Dropping it closes the inbox and drops the messages that are in it.
#[derive(Debug)]
pub struct Inbox<T>(Arc<Shared<T>>);

/// The end of any other thread; clones lead to the same inbox.
#[derive(Debug)]
pub struct Sender<T, W> {
    shared: Arc<Shared<T>>,
    waker: W,
}

impl<T> Inbox<T> {
    /// An inbox for up to `messages_max` messages, whose senders wake the owner by `waker`.
    ///
    /// # Panics
    /// When `messages_max` is zero.
    pub fn new<W: Wake>(messages_max: usize, waker: W) -> (Self, Sender<T, W>) {
        assert!(messages_max > 0, "an inbox holds at least one message");
        let mail = Mutex::new(Mail { messages: Vec::new(), is_closed: false });
        let shared = Arc::new(Shared { has_mail: AtomicBool::new(false), mail, messages_max });
        (Self(Arc::clone(&shared)), Sender { shared, waker })
    }

    /// Takes all messages, in the order in which they were sent. What `into` is made of becomes
    /// the room for the next ones, so two vectors serve for ever.
    ///
    /// # Panics
    /// When `into` is not empty.
    pub fn drain(&mut self, into: &mut Vec<T>) {
        assert!(into.is_empty(), "messages of the last turn were not handled");
        if !self.0.has_mail.load(Ordering::Acquire) {
            return;
        }
        let mut mail = self.0.lock();
        std::mem::swap(&mut mail.messages, into);
        self.0.has_mail.store(false, Ordering::Relaxed);
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        let mut mail = self.0.lock();
        mail.is_closed = true;
        let left = std::mem::take(&mut mail.messages);
        // Dropping a message may do anything, also send; so not under the lock.
        drop(mail);
        drop(left);
    }
}

impl<T, W: Wake> Sender<T, W> {
    /// Sends `message` and wakes the owner.
    ///
    /// # Errors
    /// [`Undelivered`] with the message when the inbox is full or its owner is gone.
    pub fn send(&self, message: T) -> Result<(), Undelivered<T>> {
        let mut mail = self.shared.lock();
        if mail.is_closed {
            return Err(Undelivered::Closed(message));
        }
        if mail.messages.len() == self.shared.messages_max {
            return Err(Undelivered::Full(message));
        }
        mail.messages.push(message);
        self.shared.has_mail.store(true, Ordering::Release);
        drop(mail);
        self.waker.wake();
        Ok(())
    }
}

impl<T, W: Clone> Clone for Sender<T, W> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), waker: self.waker.clone() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use pollux_poller::{Events, Mechanism};

    /// A waker that only counts.
    #[derive(Clone, Debug, Default)]
    struct Count(Rc<Cell<u32>>);

    impl Wake for Count {
        fn wake(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn a_full_inbox_gives_the_message_back_and_does_not_wake() {
        let wakes = Count::default();
        let (mut inbox, sender) = Inbox::new(2, wakes.clone());
        assert_eq!([sender.send("a"), sender.send("b")], [Ok(()), Ok(())]);
        assert_eq!(sender.send("c"), Err(Undelivered::Full("c")));
        assert_eq!(wakes.0.get(), 2);

        let mut messages = Vec::new();
        inbox.drain(&mut messages);
        assert_eq!(messages, ["a", "b"]);
        messages.clear();
        assert_eq!(sender.clone().send("c"), Ok(()));
        inbox.drain(&mut messages);
        assert_eq!(messages, ["c"]);
    }

    #[test]
    fn a_closed_inbox_drops_what_it_holds_and_gives_the_rest_back() {
        let message = Rc::new(());
        let (inbox, sender) = Inbox::new(9, Count::default());
        sender.send(Rc::clone(&message)).expect("there is room");
        drop(inbox);
        assert_eq!(Rc::strong_count(&message), 1);
        let refused = sender.send(message).expect_err("the owner is gone");
        assert_eq!(refused.to_string(), "the loop has ended");
        assert_eq!(Rc::strong_count(&refused.into_message()), 1);
    }

    #[test]
    fn two_vectors_serve_for_ever() {
        let (mut inbox, sender) = Inbox::new(64, Count::default());
        let mut messages = Vec::new();
        let mut rooms = std::collections::BTreeSet::new();
        for round in 0..100 {
            (0..64).for_each(|i| sender.send(round + i).expect("there is room"));
            inbox.drain(&mut messages);
            if round >= 2 {
                rooms.insert(messages.as_ptr());
            }
            messages.clear();
        }
        assert!(rooms.len() <= 2, "{} vectors", rooms.len());
    }

    #[test]
    fn every_message_of_four_threads_reaches_a_waiting_poller_in_order() {
        const EACH: u32 = 5_000;
        let mut poller = Mechanism::Epoll.open().expect("epoll is everywhere");
        let (inbox, sender) = Inbox::new(16, poller.waker());
        let mut events = Events::with_capacity(4);
        let mut next = [0; 4];
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let sender = sender.clone();
                scope.spawn(move || {
                    for number in 0..EACH {
                        while let Err(Undelivered::Full(_)) = sender.send((thread, number)) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            // Closed when an assert below fails, which ends the senders.
            let mut inbox = inbox;
            let mut messages = Vec::new();
            while next != [EACH; 4] {
                poller.wait(&mut events, Some(Duration::from_secs(60))).expect("epoll waits");
                assert!(!events.is_empty() || events.is_woken(), "a wake was lost at {next:?}");
                inbox.drain(&mut messages);
                for (thread, number) in messages.drain(..) {
                    assert_eq!(next[thread], number);
                    next[thread] += 1;
                }
            }
        });
    }
}
