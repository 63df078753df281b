//! Who may wait on an instance: one thread at a time, with others queued behind it.
//!
//! ```text
//!            ┌─ Empty: a poller is opened ─┐                    ┌─► Free, or Empty where it failed or
//!  wait ─────┼─ Free: the poller is taken ─┴─► Taken: it waits ─┘   the instance is over; the bell rings
//!            └─ Taken: queues at the bell ──► rung: looks again
//!  change ───┬─ Free: the poller is told at once
//!            └─ Taken: who waits is woken, tells the poller and waits on
//! ```
//! The lock is held for moments only, never while anybody waits. Whoever goes rings for the next in the
//! queue, which finds what is left: also where it failed, was no longer patient, or panicked. What is
//! waited for is a [`Subject`] and how is a [`Wait`]: those of an instance stand in `instance.rs`, and
//! `tests/loom_seat.rs` takes in this file as it stands with a model of both. So nothing here may name
//! anything else of the crate.

use std::mem;
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

/// What threads wait for. All of it is called with the lock held.
pub(crate) trait Subject {
    /// What one thread waits on.
    type Poller;
    /// Where the others queue.
    type Bell;
    type Error;

    /// Whether nobody shall wait here any more.
    fn is_over(&self) -> bool;

    /// A poller for the calling thread: the spare one where it may be used here.
    fn poller(&mut self, spare: Option<Self::Poller>) -> Result<Self::Poller, Self::Error>;

    /// Tells the poller of every change that it has not heard of.
    fn tell(&mut self, poller: &mut Self::Poller) -> Result<(), Self::Error>;

    /// Lets the thread that waits on the poller look at the changes.
    fn wake(&self);

    fn bell(&mut self) -> Result<Self::Bell, Self::Error>;

    /// Lets one of those who queue look again.
    fn ring(&self);
}

/// One wait of a thread. All but `deliver` is called without the lock.
pub(crate) trait Wait<S: Subject> {
    /// Sleeps until the bell rings, and takes that ring; `false`: the time is over.
    fn queue(&mut self, bell: S::Bell) -> Result<bool, S::Error>;

    /// Sleeps on the poller: until something is ready, it is woken, or the time is over.
    fn sit(&mut self, poller: &mut S::Poller) -> Result<(), S::Error>;

    /// Hands over what was found, which says how many; `None`: nothing, and the time is not over.
    fn deliver(&mut self, subject: &mut S, poller: &S::Poller) -> Result<Option<usize>, S::Error>;
}

/// A subject and who waits for it.
pub(crate) struct Seat<S: Subject> {
    state: Mutex<State<S>>,
}

/// A seat whose lock is held.
pub(crate) type Locked<'a, S> = MutexGuard<'a, State<S>>;

pub(crate) struct State<S: Subject> {
    pub(crate) subject: S,
    place: Place<S::Poller>,
    /// Threads inside `wait`, and those of them that queue.
    users: usize,
    queued: usize,
    /// Tells this process from the one that it is a copy of: threads that were counted there are not here.
    copies: u64,
}

enum Place<P> {
    /// No poller is open.
    Empty,
    Free(P),
    Taken,
}

/// A thread inside `wait`: what it has taken it gives back on every way out.
struct Visit<'a, S: Subject> {
    seat: &'a Seat<S>,
    copies: u64,
    is_counted: bool,
    is_queued: bool,
    has_seat: bool,
}

impl<S: Subject> Seat<S> {
    pub(crate) fn new(subject: S) -> Self {
        let (place, copies) = (Place::Empty, 0);
        Self { state: Mutex::new(State { subject, place, users: 0, queued: 0, copies }) }
    }

    /// A thread that panicked with the lock leaves a state that holds: see [`Visit`] and [`State::take`].
    pub(crate) fn lock(&self) -> Locked<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as `wait` does, once nobody else sits; says how much was handed over. 0: the time or the
    /// subject is over.
    pub(crate) fn wait(&self, wait: &mut impl Wait<S>) -> Result<usize, S::Error> {
        // Dropped behind the lock, which it takes where it was not ended before.
        let mut visit = Visit::new(self);
        let mut state = self.lock();
        visit.begin(&mut state);
        let outcome = loop {
            if state.subject.is_over() {
                break Ok(0);
            }
            match state.take() {
                Ok(Some(poller)) => return visit.sit(state, poller, wait),
                Ok(None) => {}
                Err(refused) => break Err(refused),
            }
            let bell = match state.subject.bell() {
                Ok(bell) => bell,
                Err(refused) => break Err(refused),
            };
            visit.queue(&mut state);
            drop(state);
            let rung = wait.queue(bell);
            state = self.lock();
            visit.leave_queue(&mut state);
            match rung {
                Ok(true) => {}
                Ok(false) => break Ok(0),
                Err(error) => break Err(error),
            }
        };
        visit.end(&mut state, None);
        outcome
    }
}

impl<S: Subject> State<S> {
    /// Whether no thread is inside `wait`.
    pub(crate) fn is_unused(&self) -> bool {
        self.users == 0
    }

    /// How many threads are inside `wait`, and how many of them queue.
    #[cfg(test)]
    pub(crate) fn threads(&self) -> (usize, usize) {
        (self.users, self.queued)
    }

    /// Has the poller told of what changed: now, or by who sits.
    pub(crate) fn changed(&mut self) -> Result<(), S::Error> {
        // Empty meanwhile: a poller that was told of half when it panicked is not used again.
        match mem::replace(&mut self.place, Place::Empty) {
            Place::Free(mut poller) => {
                let told = self.subject.tell(&mut poller);
                self.place = Place::Free(poller);
                told
            }
            Place::Taken => {
                self.place = Place::Taken;
                self.subject.wake();
                Ok(())
            }
            Place::Empty => Ok(()),
        }
    }

    /// Puts a poller on the seat that was opened elsewhere, by the calling thread.
    pub(crate) fn place(&mut self, poller: S::Poller) {
        self.place = Place::Free(poller);
    }

    /// The subject is over: closes the poller, unless a thread waits on it, which does that when it goes.
    pub(crate) fn vacate(&mut self) {
        if let Place::Free(_) = self.place {
            self.place = Place::Empty;
        }
    }

    /// The subject is over, and who waits or queues goes now: one of each is called, who passes it on.
    pub(crate) fn clear_out(&mut self) {
        self.vacate();
        self.subject.wake();
        if self.queued > 0 {
            self.subject.ring();
        }
    }

    /// This is a child of `fork(2)`: the poller and the threads are its parent's.
    pub(crate) fn copied(&mut self) {
        self.place = Place::Empty;
        (self.users, self.queued) = (0, 0);
        self.copies += 1;
    }

    /// A poller for the calling thread; `None` when another one has it. Where that fails or panics the seat is empty.
    fn take(&mut self) -> Result<Option<S::Poller>, S::Error> {
        let spare = match mem::replace(&mut self.place, Place::Empty) {
            Place::Taken => {
                self.place = Place::Taken;
                return Ok(None);
            }
            Place::Free(poller) => Some(poller),
            Place::Empty => None,
        };
        let poller = self.subject.poller(spare)?;
        self.place = Place::Taken;
        Ok(Some(poller))
    }
}

impl<'a, S: Subject> Visit<'a, S> {
    fn new(seat: &'a Seat<S>) -> Self {
        Self { seat, copies: 0, is_counted: false, is_queued: false, has_seat: false }
    }

    fn begin(&mut self, state: &mut State<S>) {
        state.users += 1;
        (self.copies, self.is_counted) = (state.copies, true);
    }

    fn queue(&mut self, state: &mut State<S>) {
        state.queued += 1;
        self.is_queued = true;
    }

    fn leave_queue(&mut self, state: &mut State<S>) {
        if mem::take(&mut self.is_queued) && state.copies == self.copies {
            state.queued -= 1;
        }
    }

    /// Waits on the poller that was taken, and leaves it.
    fn sit(
        mut self,
        mut state: Locked<'a, S>,
        mut poller: S::Poller,
        wait: &mut impl Wait<S>,
    ) -> Result<usize, S::Error> {
        self.has_seat = true;
        let outcome = loop {
            if let Err(refused) = state.subject.tell(&mut poller) {
                break Err(refused);
            }
            if state.subject.is_over() {
                break Ok(0);
            }
            drop(state);
            let waited = wait.sit(&mut poller);
            state = self.seat.lock();
            match waited.and_then(|()| wait.deliver(&mut state.subject, &poller)) {
                Ok(Some(found)) => break Ok(found),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
        };
        self.end(&mut state, Some(poller));
        outcome
    }

    /// Gives back what was taken, with a poller that can be used again, and rings for the next.
    fn end(&mut self, state: &mut State<S>, poller: Option<S::Poller>) {
        self.leave_queue(state);
        // A copy of the process that a signal handler made: nothing of it is this thread's.
        if !mem::take(&mut self.is_counted) || state.copies != self.copies {
            return;
        }
        state.users -= 1;
        if self.has_seat {
            let poller = poller.filter(|_| !state.subject.is_over());
            state.place = poller.map_or(Place::Empty, Place::Free);
        }
        // A ring that was meant for a thread which goes without looking is passed on as well.
        if state.queued > 0 && !matches!(state.place, Place::Taken) {
            state.subject.ring();
        }
    }
}

impl<S: Subject> Drop for Visit<'_, S> {
    /// After a panic only: the poller is gone with it.
    fn drop(&mut self) {
        // A model that loom gives up unwinds as well, where nothing can be locked any more.
        if self.is_counted && !cfg!(loom) {
            self.end(&mut self.seat.lock(), None);
        }
    }
}
