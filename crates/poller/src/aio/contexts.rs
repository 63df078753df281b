//! Contexts of AIO: how large they are, why there is none, and the pool of those that are used again.
//!
//! Giving a context up takes 30 to 40 ms, as `io_destroy(2)` waits for a grace period of the kernel (RCU); to cancel
//! what is in flight, and to wait for the end of that, takes microseconds. So a poller that stands in for the epoll of
//! a program, which may open and close many, gives its context back to a pool ([`AioPool`]), where it lies with nothing
//! in flight, or about to, until the next one takes it. Contexts count against `fs.aio-max-nr`, which all processes
//! share: the pool is bounded, and empties itself before that limit refuses anything.
//!
//! ```text
//!  io_setup ──► lent ──dropped──► cancelled and kept ──► drained ──► lent
//!                 └─ no pool, too large, no room, another process ──► io_destroy
//! ```

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollux_sys::aio::AioContext;
use rustix::io::Errno;

use crate::{Backend, Error};

/// Up to here a context grows to four times its size, as each larger one has its price; beyond it doubles. Larger ones
/// are not kept: to cancel what they have in flight may take as long as to give them up.
const SLOTS_FEW: usize = 1024;

/// The smallest context worth opening with when the system is nearly at its limit.
const SLOTS_MIN: u32 = 64;

/// Slots of all contexts that a pool keeps: an eighth of what all processes have together (`fs.aio-max-nr`: 65,536).
const SLOTS_KEPT_MAX: usize = 8192;

/// How long a context may take to be rid of what was cancelled, which a worker of the kernel does at once.
const DRAINED_WITHIN: Duration = Duration::from_millis(100);

/// AIO contexts that pollers gave back, for later ones of the same process.
///
/// Any thread may use it, and a child of `fork(2)`: what lies there is its parent's, and is dropped.
#[derive(Debug)]
pub struct AioPool {
    kept: Mutex<Vec<AioContext>>,
    kept_max: usize,
    opened: AtomicU64,
    reused: AtomicU64,
    given_up: AtomicU64,
}

/// What a pool did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AioPoolCounts {
    /// Contexts that were made (`io_setup(2)`).
    pub opened: u64,
    /// Contexts that were taken from the pool.
    pub reused: u64,
    /// Contexts that were given up (`io_destroy(2)`, 30 to 40 ms each).
    pub given_up: u64,
}

/// A context that goes back to the pool from which it came, if there is one.
pub(super) struct Lent {
    /// There until it is dropped.
    context: Option<AioContext>,
    pool: Option<Arc<AioPool>>,
}

impl Default for AioPool {
    fn default() -> Self {
        Self::of_slots(SLOTS_KEPT_MAX)
    }
}

impl AioPool {
    /// One that keeps contexts of `kept_max` slots in all.
    pub(super) fn of_slots(kept_max: usize) -> Self {
        let (opened, reused, given_up) = Default::default();
        Self { kept: Mutex::default(), kept_max, opened, reused, given_up }
    }

    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> AioPoolCounts {
        let [opened, reused, given_up] =
            [&self.opened, &self.reused, &self.given_up].map(|count| count.load(Relaxed));
        AioPoolCounts { opened, reused, given_up }
    }

    /// A context of `slots` that is as a new one. None also where another thread is at the pool, which may be one
    /// that this process does not have since it was forked.
    fn take(&self, slots: u32) -> Option<AioContext> {
        let mut context = {
            let mut kept = self.kept.try_lock().ok()?;
            kept.retain(AioContext::is_here);
            let place = kept.iter().position(|one| one.capacity() == slots as usize)?;
            // The oldest, which has had the most time.
            kept.remove(place)
        };
        // Refused in a child that has the number of its parent, in a namespace of its own.
        match context.check_calls().and_then(|()| context.drain(DRAINED_WITHIN)) {
            Ok(true) => {
                self.reused.fetch_add(1, Relaxed);
                Some(context)
            }
            // A signal: it is as good next time.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.keep(context);
                None
            }
            Ok(false) | Err(_) => {
                self.given_up.fetch_add(1, Relaxed);
                None
            }
        }
    }

    /// Takes a context back.
    fn give(&self, mut context: AioContext) {
        if !context.is_here() {
            return;
        }
        if context.capacity() <= SLOTS_FEW && context.cancel_all().is_ok() {
            self.keep(context);
        } else {
            self.given_up.fetch_add(1, Relaxed);
        }
    }

    fn keep(&self, context: AioContext) {
        if let Ok(mut kept) = self.kept.try_lock() {
            let slots: usize = kept.iter().map(AioContext::capacity).sum();
            if slots + context.capacity() <= self.kept_max {
                kept.push(context);
                return;
            }
        }
        self.given_up.fetch_add(1, Relaxed);
    }

    /// Gives up all that is kept; says whether there was any.
    fn empty(&self) -> bool {
        let all = self.kept.try_lock().map(|mut kept| std::mem::take(&mut *kept));
        let all = all.unwrap_or_default();
        self.given_up.fetch_add(all.len() as u64, Relaxed);
        !all.is_empty()
    }
}

impl Lent {
    /// A context of `slots`, or of half as many and so on where the system gives no more.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where there is no AIO, or not even the smallest context.
    pub(super) fn open(slots: u32, pool: Option<&Arc<AioPool>>) -> Result<Self, Error> {
        let mut wanted = slots;
        loop {
            match Self::of(wanted, pool) {
                Ok(mut context) => {
                    context.check_calls().map_err(forbidden)?;
                    return Ok(context);
                }
                Err(cause) if is_system_limit(&cause) && wanted / 2 >= SLOTS_MIN => wanted /= 2,
                Err(cause) => return Err(unavailable(cause)),
            }
        }
    }

    /// A further context, of `slots`.
    ///
    /// # Errors
    /// [`Error::Limit`] at `fs.aio-max-nr`; [`Error::System`] otherwise.
    pub(super) fn another(&self, slots: usize) -> Result<Self, Error> {
        let value = self.capacity();
        let slots = u32::try_from(slots).map_err(|_| limit(value))?;
        Self::of(slots, self.pool.as_ref()).map_err(|cause| {
            if is_system_limit(&cause) {
                limit(value)
            } else {
                Error::System { call: "io_setup", cause }
            }
        })
    }

    /// A further context, of the size that follows that of this one.
    ///
    /// # Errors
    /// As [`Lent::another`].
    pub(super) fn larger(&self) -> Result<Self, Error> {
        self.another(larger(self.capacity()))
    }

    fn of(slots: u32, pool: Option<&Arc<AioPool>>) -> io::Result<Self> {
        let Some(pool) = pool else {
            return Ok(Self { context: Some(AioContext::new(slots)?), pool: None });
        };
        let context = match pool.take(slots) {
            Some(context) => context,
            None => {
                let context = match AioContext::new(slots) {
                    // What is kept counts as well.
                    Err(cause) if is_system_limit(&cause) && pool.empty() => AioContext::new(slots),
                    outcome => outcome,
                }?;
                pool.opened.fetch_add(1, Relaxed);
                context
            }
        };
        Ok(Self { context: Some(context), pool: Some(pool.clone()) })
    }
}

impl Deref for Lent {
    type Target = AioContext;

    fn deref(&self) -> &AioContext {
        self.context.as_ref().expect("there until it is dropped")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut AioContext {
        self.context.as_mut().expect("there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(context), Some(pool)) = (self.context.take(), &self.pool) {
            pool.give(context);
        }
    }
}

/// The size that follows.
pub(super) fn larger(slots: usize) -> usize {
    slots * if slots < SLOTS_FEW { 4 } else { 2 }
}

/// EAGAIN: `fs.aio-max-nr`, or no request left in the context. ENOMEM is treated alike.
pub(super) fn is_system_limit(cause: &io::Error) -> bool {
    matches!(Errno::from_io_error(cause), Some(Errno::AGAIN | Errno::NOMEM))
}

fn limit(value: usize) -> Error {
    Error::Limit { name: "AIO polls (raise fs.aio-max-nr)", value }
}

fn unavailable(cause: io::Error) -> Error {
    let reason = match Errno::from_io_error(&cause) {
        Some(Errno::NOSYS) => "the kernel was built without AIO (CONFIG_AIO)",
        Some(Errno::AGAIN) => "fs.aio-max-nr is used up: raise it",
        _ => "io_setup failed",
    };
    Error::Unavailable { backend: Backend::Aio, reason: reason.to_owned(), cause }
}

fn forbidden(cause: io::Error) -> Error {
    let reason = "io_submit, io_getevents or io_cancel is refused: by a seccomp filter, whose profile has to \
                  allow them, or by a kernel or sandbox that lacks them";
    Error::Unavailable { backend: Backend::Aio, reason: reason.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aio::Aio;
    use crate::epoll_beside::Release;
    use crate::{Events, Interest, Poller, Registration, Token, Trigger};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const LEVEL: Registration = Registration::new(Interest::READABLE, Trigger::Level);
    const NOW: Option<Duration> = Some(Duration::ZERO);

    fn opened(pool: &Arc<AioPool>) -> Aio {
        Aio::open(Release::AtOnce, Some(pool)).expect("AIO")
    }

    fn wait(aio: &mut Aio, timeout: Option<Duration>) -> Vec<Token> {
        let mut events = Events::with_capacity(8);
        aio.wait(&mut events, timeout).expect("a wait");
        events.iter().map(|event| event.token).collect()
    }

    #[test]
    fn a_program_that_opens_and_closes_a_hundred_pollers_makes_one_context() {
        let pool = Arc::default();
        for round in 0..100 {
            let mut aio = opened(&pool);
            let (ours, mut peer) = UnixStream::pair().expect("a pair");
            aio.add(ours.as_fd(), Token::new(1, round), LEVEL).expect("vacant");
            assert!(wait(&mut aio, NOW).is_empty(), "in round {round}");
            peer.write_all(b"x").expect("room");
            assert_eq!(wait(&mut aio, None), [Token::new(1, round)]);
        }
        assert_eq!(pool.counts(), AioPoolCounts { opened: 1, reused: 99, given_up: 0 });
    }

    #[test]
    fn as_many_as_were_open_together_are_used_again_up_to_the_bound() {
        let pool = Arc::new(AioPool::of_slots(10 * 64));
        for _ in 0..3 {
            let open: Vec<Aio> = (0..11).map(|_| opened(&pool)).collect();
            drop(open);
        }
        assert_eq!(pool.counts(), AioPoolCounts { opened: 13, reused: 20, given_up: 3 });
    }

    #[test]
    fn nothing_of_an_earlier_poller_is_reported_by_the_next_one() {
        let pool = Arc::default();
        let pairs: Vec<_> = (0..40).map(|_| UnixStream::pair().expect("a pair")).collect();
        let mut aio = opened(&pool);
        for (slot, (ours, _)) in (0..).zip(&pairs) {
            aio.add(ours.as_fd(), Token::new(slot, 0), LEVEL).expect("vacant");
        }
        assert!(wait(&mut aio, NOW).is_empty());
        // These complete, and are not read; the others are in flight.
        for (_, mut peer) in pairs.iter().take(20).map(|(ours, peer)| (ours, peer)) {
            peer.write_all(b"x").expect("room");
        }
        aio.waker().wake();
        drop(aio);
        let mut aio = opened(&pool);
        for (slot, (ours, _)) in (0..).zip(&pairs).skip(20) {
            aio.add(ours.as_fd(), Token::new(slot, 0), LEVEL).expect("vacant");
        }
        let mut events = Events::with_capacity(8);
        aio.wait(&mut events, Some(Duration::from_millis(20))).expect("a wait");
        assert!(events.is_empty() && !events.is_woken(), "{events:?}");
        (&pairs[30].1).write_all(b"x").expect("room");
        assert_eq!(wait(&mut aio, None), [Token::new(30, 0)]);
        assert_eq!(aio.counters().snapshot().stale_events, 0);
        assert_eq!(pool.counts().reused, 1);
    }

    #[test]
    fn growing_takes_and_gives_back_as_well() {
        let pool = Arc::default();
        for _ in 0..2 {
            let mut aio = opened(&pool);
            let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().expect("a pair")).collect();
            for (slot, (ours, _)) in (0..).zip(&pairs) {
                aio.add(ours.as_fd(), Token::new(slot, 0), LEVEL).expect("vacant");
            }
            assert_eq!(aio.context.capacity(), 256);
            (&pairs[99].1).write_all(b"x").expect("room");
            assert_eq!(wait(&mut aio, None), [Token::new(99, 0)]);
        }
        assert_eq!(pool.counts(), AioPoolCounts { opened: 2, reused: 2, given_up: 0 });
    }

    #[test]
    fn a_size_that_the_kernel_can_not_count_is_unavailable_with_its_words() {
        let error = Lent::open(1 << 30, None).map(drop).expect_err("io_setup: EINVAL");
        assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        assert!(error.to_string().contains("io_setup"), "{error}");
    }
}
