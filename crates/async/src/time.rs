//! Time for tasks: what sleeps until a moment, and what was not done in time.
//!
//! The executor wakes what is due before it runs tasks, and has the loop's wait end at the earliest moment.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{fmt, io};

use pollux_engine::Moment;
use rustix::time::{ClockId, clock_gettime};

/// What waits for a moment, by moment: the earliest one ends the wait of the loop. As many entries as there are
/// [`Sleep`]s.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    waiting: BTreeMap<(Moment, u64), Waker>,
    next: u64,
}

impl Timers {
    pub(crate) fn earliest(&self) -> Moment {
        self.waiting.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at)
    }

    /// What to wake next of that which is due.
    pub(crate) fn take_due(&mut self) -> Option<Waker> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= now()).then(|| first.remove())
    }
}

/// The clock of [`Moment`]s, as of now.
fn now() -> Moment {
    let read = clock_gettime(ClockId::Monotonic);
    let time = Duration::new(read.tv_sec.unsigned_abs(), read.tv_nsec as u32);
    Moment::from_nanos(0) + time
}

/// Done once its time has passed: up to a millisecond late, never early.
///
/// Made by [`Handle::sleep`](crate::Handle::sleep); the time runs from then on.
pub struct Sleep {
    timers: Rc<RefCell<Timers>>,
    at: Moment,
    /// Its number among the timers, once it waits.
    number: Option<u64>,
}

impl Sleep {
    pub(crate) fn new(timers: Rc<RefCell<Timers>>, time: Duration) -> Self {
        Self { timers, at: now() + time, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now() >= self.at {
            return Poll::Ready(());
        }
        let shared = Rc::clone(&self.timers);
        let at = self.at;
        let mut timers = shared.borrow_mut();
        let number = *self.number.get_or_insert_with(|| {
            timers.next += 1;
            timers.next
        });
        let before = timers.waiting.insert((at, number), context.waker().clone());
        drop(timers);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.timers.borrow_mut().waiting.remove(&(self.at, number));
            drop(waker);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("at", &self.at).finish()
    }
}

/// The time of [`Handle::timeout`](crate::Handle::timeout) was over before its future was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was over")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(io::ErrorKind::TimedOut, elapsed)
    }
}
