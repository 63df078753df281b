//! The threads that wait on an instance: one on its poller, with others queued behind it.
//!
//! ```text
//!            ┌─ Closed: a poller is opened ─┐                    ┌─► Free, or Closed where it failed or
//!  wait ─────┼─ Free: the poller is taken ──┴─► InUse: it polls ─┘   the instance is over; one of the queue
//!            └─ InUse: sleeps in the queue ──► posted: looks again   is posted
//!  change ───┬─ Free: applied to the poller at once
//!            └─ InUse: the thread that polls is interrupted, applies the change and polls again; a thread that
//!               removes something waits until that was done
//! ```
//! The lock is held for moments only, never while a thread sleeps. A thread that leaves posts to the next in
//! the queue, which finds what is left: also where it failed, ran out of time, or panicked. What is
//! waited for is a [`Subject`] and how is a [`Wait`]: those of an instance stand in `instance.rs`, and
//! `tests/loom_waiters.rs` takes in this file as it stands with a model of both. So nothing here may name
//! anything else of the crate.

use std::mem;
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};

/// How long a thread that removes something waits for the one that polls, which is awake within microseconds
/// unless it runs a signal handler or is stopped: nothing that this one holds may depend on it for ever.
const APPLIED_WITHIN: Duration = Duration::from_millis(200);

/// What threads wait for. All of it is called with the lock held.
pub(crate) trait Subject {
    /// What one thread waits on.
    type Poller;
    /// What the others sleep on.
    type Semaphore;
    type Error;

    /// Whether the subject is gone, so that no thread may wait on it.
    fn is_over(&self) -> bool;

    /// A poller for the calling thread: the spare one where it may be used here.
    fn poller(&mut self, spare: Option<Self::Poller>) -> Result<Self::Poller, Self::Error>;

    /// Applies to the poller every change that it does not have yet; behind it nothing is held of what was
    /// removed.
    fn apply(&mut self, poller: &mut Self::Poller) -> Result<(), Self::Error>;

    /// Ends the sleep of the thread that polls, which applies the changes.
    fn interrupt(&self);

    fn semaphore(&mut self) -> Result<Self::Semaphore, Self::Error>;

    /// Wakes one thread of the queue, which looks again.
    fn post(&self);
}

/// One wait of a thread. All but `deliver` is called without the lock.
pub(crate) trait Wait<S: Subject> {
    /// Sleeps until the semaphore is posted, and takes that post; `false`: the time is over.
    fn sleep_in_queue(&mut self, semaphore: S::Semaphore) -> Result<bool, S::Error>;

    /// Sleeps on the poller: until something is ready, it is interrupted, or the time is over.
    fn poll(&mut self, poller: &mut S::Poller) -> Result<(), S::Error>;

    /// Hands over what was found, which says how many; `None`: nothing, and the time is not over.
    fn deliver(&mut self, subject: &mut S, poller: &S::Poller) -> Result<Option<usize>, S::Error>;
}

/// A subject and the threads that wait on it.
pub(crate) struct Waiters<S: Subject> {
    state: Mutex<State<S>>,
    /// Notified when the thread that polls has applied what it did not have, or gave the poller back.
    applied: Condvar,
}

/// A subject whose lock is held.
pub(crate) type Locked<'a, S> = MutexGuard<'a, State<S>>;

pub(crate) struct State<S: Subject> {
    pub(crate) subject: S,
    poller: Slot<S::Poller>,
    /// Threads inside `wait`, and those of them that queue.
    waiting: usize,
    queued: usize,
    /// Changes that were left to the thread that polls, and how many of them it has applied.
    left: u64,
    applied: u64,
    /// Threads that wait for that.
    awaiting: usize,
    /// Why a change was refused that was applied behind a wait: the answer of the next one.
    refused: Option<S::Error>,
    /// How often this process was forked from: the threads that were counted before a fork are not in the child.
    forks: u64,
}

enum Slot<P> {
    /// No poller is open.
    Closed,
    Free(P),
    /// A thread polls.
    InUse,
}

/// A thread inside `wait`: what it has taken it gives back on every way out.
struct Waiter<'a, S: Subject> {
    waiters: &'a Waiters<S>,
    forks: u64,
    is_counted: bool,
    is_queued: bool,
    has_poller: bool,
}

impl<S: Subject> Waiters<S> {
    pub(crate) fn new(subject: S) -> Self {
        let state = State {
            subject,
            poller: Slot::Closed,
            waiting: 0,
            queued: 0,
            left: 0,
            applied: 0,
            awaiting: 0,
            refused: None,
            forks: 0,
        };
        Self { state: Mutex::new(state), applied: Condvar::new() }
    }

    /// Has the poller apply that something was removed. Where a thread polls, that is done when this comes back,
    /// unless that thread does not come to it in [`APPLIED_WITHIN`].
    pub(crate) fn removed<'a>(&'a self, mut state: Locked<'a, S>) -> Result<(), S::Error> {
        state.changed()?;
        if !state.is_left() {
            return Ok(());
        }
        let ticket = state.left;
        let end = Instant::now() + APPLIED_WITHIN;
        state.awaiting += 1;
        while state.is_left() && state.applied < ticket {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            let woken = self.applied.wait_timeout(state, rest);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        // None is counted in a child that a signal handler forked meanwhile.
        state.awaiting = state.awaiting.saturating_sub(1);
        Ok(())
    }

    /// A thread that panicked with the lock leaves a state that holds: see [`Waiter`] and [`State::take`].
    pub(crate) fn lock(&self) -> Locked<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, where no thread has the lock.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, S>> {
        self.state.try_lock().ok()
    }

    /// Waits as `wait` does, once no other thread polls; says how much was handed over. 0: the time or the
    /// subject is over.
    pub(crate) fn wait(&self, wait: &mut impl Wait<S>) -> Result<usize, S::Error> {
        // Dropped behind the lock, which it takes where it was not ended before.
        let mut waiter = Waiter::new(self);
        let mut state = self.lock();
        waiter.begin(&mut state);
        let outcome = loop {
            if state.subject.is_over() {
                break Ok(0);
            }
            match state.take() {
                Ok(Some(poller)) => return waiter.poll(state, poller, wait),
                Ok(None) => {}
                Err(refused) => break Err(refused),
            }
            let semaphore = match state.subject.semaphore() {
                Ok(semaphore) => semaphore,
                Err(refused) => break Err(refused),
            };
            waiter.enter_queue(&mut state);
            drop(state);
            let posted = wait.sleep_in_queue(semaphore);
            state = self.lock();
            waiter.leave_queue(&mut state);
            match posted {
                Ok(true) => {}
                Ok(false) => break Ok(0),
                Err(error) => break Err(error),
            }
        };
        waiter.end(&mut state, None);
        outcome
    }
}

impl<S: Subject> State<S> {
    /// Whether no thread is inside `wait`.
    pub(crate) fn is_unused(&self) -> bool {
        self.waiting == 0
    }

    /// How many threads are inside `wait`, and how many of them queue.
    #[cfg(test)]
    pub(crate) fn threads(&self) -> (usize, usize) {
        (self.waiting, self.queued)
    }

    /// Has the poller apply what changed: now, or by the thread that polls.
    pub(crate) fn changed(&mut self) -> Result<(), S::Error> {
        // Closed meanwhile: a poller that panicked in the middle of the changes is not used again.
        match mem::replace(&mut self.poller, Slot::Closed) {
            Slot::Free(mut poller) => {
                let applied = self.subject.apply(&mut poller);
                self.poller = Slot::Free(poller);
                applied
            }
            Slot::InUse => {
                self.poller = Slot::InUse;
                self.left += 1;
                self.subject.interrupt();
                Ok(())
            }
            Slot::Closed => Ok(()),
        }
    }

    /// Whether changes were left to a thread that polls and has not applied them.
    fn is_left(&self) -> bool {
        self.is_polled() && self.applied < self.left
    }

    /// Applies to the poller of a thread that polls what it does not have.
    fn catch_up(&mut self, poller: &mut S::Poller) -> Result<(), S::Error> {
        let outcome = self.subject.apply(poller);
        self.applied = self.left;
        outcome
    }

    /// The poller, unless none is open or a thread polls.
    pub(crate) fn free(&self) -> Option<&S::Poller> {
        match &self.poller {
            Slot::Free(poller) => Some(poller),
            Slot::Closed | Slot::InUse => None,
        }
    }

    /// Takes the poller out for good, unless none is open or a thread polls.
    pub(crate) fn take_free(&mut self) -> Option<S::Poller> {
        match mem::replace(&mut self.poller, Slot::Closed) {
            Slot::Free(poller) => Some(poller),
            other => {
                self.poller = other;
                None
            }
        }
    }

    /// Whether a thread polls.
    pub(crate) fn is_polled(&self) -> bool {
        matches!(self.poller, Slot::InUse)
    }

    /// Puts in a poller that the calling thread opened.
    pub(crate) fn put(&mut self, poller: S::Poller) {
        self.poller = Slot::Free(poller);
    }

    /// The subject is over: closes the poller, unless a thread polls, which closes it when it leaves.
    pub(crate) fn close(&mut self) {
        if let Slot::Free(_) = self.poller {
            self.poller = Slot::Closed;
        }
    }

    /// The subject is over, and its threads leave now: the one that polls and the first of the queue, which
    /// posts to the next.
    pub(crate) fn dismiss(&mut self) {
        self.close();
        self.subject.interrupt();
        if self.queued > 0 {
            self.subject.post();
        }
    }

    /// This is a child of `fork(2)`: the poller and the threads are its parent's.
    pub(crate) fn copied(&mut self) {
        self.poller = Slot::Closed;
        (self.waiting, self.queued, self.awaiting) = (0, 0, 0);
        self.forks += 1;
    }

    /// A poller for the calling thread; `None` when another one has it. Where that fails
    /// or panics there is none.
    fn take(&mut self) -> Result<Option<S::Poller>, S::Error> {
        let spare = match mem::replace(&mut self.poller, Slot::Closed) {
            Slot::InUse => {
                self.poller = Slot::InUse;
                return Ok(None);
            }
            Slot::Free(poller) => Some(poller),
            Slot::Closed => None,
        };
        let poller = self.subject.poller(spare)?;
        self.poller = Slot::InUse;
        Ok(Some(poller))
    }
}

impl<'a, S: Subject> Waiter<'a, S> {
    fn new(waiters: &'a Waiters<S>) -> Self {
        Self { waiters, forks: 0, is_counted: false, is_queued: false, has_poller: false }
    }

    fn begin(&mut self, state: &mut State<S>) {
        state.waiting += 1;
        (self.forks, self.is_counted) = (state.forks, true);
    }

    fn enter_queue(&mut self, state: &mut State<S>) {
        state.queued += 1;
        self.is_queued = true;
    }

    fn leave_queue(&mut self, state: &mut State<S>) {
        if mem::take(&mut self.is_queued) && state.forks == self.forks {
            state.queued -= 1;
        }
    }

    /// Waits on the poller that was taken, and gives it back.
    fn poll(
        mut self,
        mut state: Locked<'a, S>,
        mut poller: S::Poller,
        wait: &mut impl Wait<S>,
    ) -> Result<usize, S::Error> {
        self.has_poller = true;
        let outcome = loop {
            let applied = state.catch_up(&mut poller);
            if let Err(refused) = state.refused.take().map_or(applied, Err) {
                break Err(refused);
            }
            self.notify(&state);
            if state.subject.is_over() {
                break Ok(0);
            }
            drop(state);
            let waited = wait.poll(&mut poller);
            state = self.waiters.lock();
            match waited.and_then(|()| wait.deliver(&mut state.subject, &poller)) {
                Ok(Some(found)) => break Ok(found),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
        };
        if state.is_left() {
            state.refused = state.catch_up(&mut poller).err();
        }
        self.end(&mut state, Some(poller));
        outcome
    }

    /// Lets threads continue that wait for the thread that polls.
    fn notify(&self, state: &State<S>) {
        if state.awaiting > 0 {
            self.waiters.applied.notify_all();
        }
    }

    /// Gives back what was taken, with a poller that can be used again, and posts to the next.
    fn end(&mut self, state: &mut State<S>, poller: Option<S::Poller>) {
        self.leave_queue(state);
        // A child that a signal handler forked: none of what is counted there is this thread's.
        if !mem::take(&mut self.is_counted) || state.forks != self.forks {
            return;
        }
        state.waiting -= 1;
        if self.has_poller {
            let poller = poller.filter(|_| !state.subject.is_over());
            state.poller = poller.map_or(Slot::Closed, Slot::Free);
            self.notify(state);
        }
        // A post that was meant for a thread which leaves without looking is passed on as well.
        if state.queued > 0 && !matches!(state.poller, Slot::InUse) {
            state.subject.post();
        }
    }
}

impl<S: Subject> Drop for Waiter<'_, S> {
    /// After a panic only: the poller is gone with it.
    fn drop(&mut self) {
        // A model that loom gives up unwinds as well, where nothing can be locked any more.
        if self.is_counted && !cfg!(loom) {
            self.end(&mut self.waiters.lock(), None);
        }
    }
}
