//! What a loop watches beside connections and listeners: any descriptor that becomes readable, timers and
//! signals among them.
//!
//! A datagram socket, a timerfd, a pidfd, an inotify instance, [`Signals`](crate::Signals), another
//! poller. The loop says when a source is readable and leaves the reading to the program, so one
//! way serves all of them: level-triggered registrations of the poller, or poll requests on
//! io_uring, each armed again when the program has answered. [`crate::EventLoop::watch`] is the way
//! in; the two loops call this.

use std::fmt;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pollux_poller::{Events, Interest, Mechanism, Poller, Registration, Token, Trigger, Waker};
use rustix::fs::{FileType, fstat};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use signal_hook::{SigId, consts, flag, low_level};

use crate::Now;

/// Most sources of one loop: they are found by bisection and meant for the few things that a
/// program has one of, not for connections.
pub(crate) const SOURCES_MAX: usize = 1024;

/// Names one source of one loop; never used again for another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub(crate) u32);

impl fmt::Debug for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "source {}", self.0)
    }
}

/// A descriptor with what is called when it is readable.
trait Source<Shared> {
    fn fd(&self) -> BorrowedFd<'_>;
    fn readable(&mut self, shared: &mut Shared, now: Now) -> ControlFlow<()>;
}

struct Watched<T, F> {
    source: T,
    on_readable: F,
}

impl<Shared, T, F> Source<Shared> for Watched<T, F>
where
    T: AsFd,
    F: FnMut(&mut T, &mut Shared, Now) -> ControlFlow<()>,
{
    fn fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }

    fn readable(&mut self, shared: &mut Shared, now: Now) -> ControlFlow<()> {
        (self.on_readable)(&mut self.source, shared, now)
    }
}

/// The sources of one loop, by rising number.
pub(crate) struct Sources<Shared> {
    list: Vec<(u32, Box<dyn Source<Shared>>)>,
    next: u32,
}

impl<Shared> Sources<Shared> {
    pub(crate) fn new() -> Self {
        Self { list: Vec::new(), next: 0 }
    }

    /// Takes a source in.
    ///
    /// # Errors
    /// A regular file or a directory, which some mechanisms refuse and others call ready for ever;
    /// more than [`SOURCES_MAX`]; numbers up to `numbers_max` used up.
    pub(crate) fn insert<T, F>(
        &mut self,
        source: T,
        on_readable: F,
        numbers_max: u32,
    ) -> io::Result<SourceId>
    where
        T: AsFd + 'static,
        F: FnMut(&mut T, &mut Shared, Now) -> ControlFlow<()> + 'static,
    {
        let kind = FileType::from_raw_mode(fstat(&source)?.st_mode);
        if matches!(kind, FileType::RegularFile | FileType::Directory) {
            let what = "a regular file or directory is always readable: it cannot be watched";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if self.list.len() >= SOURCES_MAX || self.next >= numbers_max {
            let what = format!("a loop watches at most {SOURCES_MAX} sources");
            return Err(io::Error::other(what));
        }
        let number = self.next;
        self.next += 1;
        self.list.push((number, Box::new(Watched { source, on_readable })));
        Ok(SourceId(number))
    }

    /// The descriptor of a source that is still there.
    pub(crate) fn fd(&self, id: SourceId) -> Option<BorrowedFd<'_>> {
        self.position(id).map(|index| self.list[index].1.fd())
    }

    /// Lets the program answer; says whether the source is watched on. None when it is gone.
    pub(crate) fn readable(
        &mut self,
        id: SourceId,
        shared: &mut Shared,
        now: Now,
    ) -> Option<ControlFlow<()>> {
        let index = self.position(id)?;
        Some(self.list[index].1.readable(shared, now))
    }

    /// Takes a source out and closes it, if nobody else has it.
    pub(crate) fn remove(&mut self, id: SourceId) {
        if let Some(index) = self.position(id) {
            self.list.remove(index);
        }
    }

    fn position(&self, id: SourceId) -> Option<usize> {
        self.list.binary_search_by_key(&id.0, |(number, _)| *number).ok()
    }
}

/// A timer as a source: readable once its time has come (`timerfd_create(2)`, CLOCK_MONOTONIC).
///
/// [`EventLoop::after`](crate::EventLoop::after) and [`EventLoop::every`](crate::EventLoop::every)
/// watch one for you.
///
/// ```
/// use pollux_engine::Timer;
/// use std::time::Duration;
///
/// let timer = Timer::after(Duration::from_secs(3600))?;
/// assert_eq!(timer.take(), 0, "not yet");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that fires once, `time` from now. A time of zero counts as a nanosecond.
    ///
    /// # Errors
    /// No descriptor is left (EMFILE, ENFILE).
    pub fn after(time: Duration) -> io::Result<Self> {
        Self::new(time, Duration::ZERO)
    }

    /// A timer that fires each `period`, for the first time one period from now.
    ///
    /// # Errors
    /// As [`Timer::after`].
    ///
    /// # Panics
    /// When `period` is zero.
    pub fn every(period: Duration) -> io::Result<Self> {
        assert!(!period.is_zero(), "a period is longer than nothing");
        Self::new(period, period)
    }

    /// How often the timer fired since this was asked last; it is readable again when it fires next.
    #[must_use]
    pub fn take(&self) -> u64 {
        let mut fired = [0; 8];
        // EAGAIN: it has not fired.
        rustix::io::read(&self.0, &mut fired).map_or(0, |_| u64::from_ne_bytes(fired))
    }

    fn new(first: Duration, period: Duration) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // Zero would switch it off.
        let it_value = timespec(first.max(Duration::from_nanos(1)));
        let setting = Itimerspec { it_interval: timespec(period), it_value };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &setting)?;
        Ok(Self(timer))
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A time that the kernel's clock cannot count never comes.
fn timespec(time: Duration) -> Timespec {
    let tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// A signal that servers are controlled with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
    /// SIGHUP.
    HangUp,
    /// SIGUSR1.
    User1,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Terminate, Self::Interrupt, Self::HangUp, Self::User1];

    /// The name as in `signal(7)`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
            Self::HangUp => "SIGHUP",
            Self::User1 => "SIGUSR1",
        }
    }

    /// The number as in `signal(7)`.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Terminate => consts::SIGTERM,
            Self::Interrupt => consts::SIGINT,
            Self::HangUp => consts::SIGHUP,
            Self::User1 => consts::SIGUSR1,
        }
    }
}

/// One caught signal: set by the handler, taken by the owner.
#[derive(Debug)]
struct Caught {
    signal: Signal,
    has_come: Arc<AtomicBool>,
}

/// The signals that were caught. Made, waited for and dropped by one thread.
///
/// ```
/// use pollux_engine::{Signal, Signals};
/// use std::time::Duration;
///
/// let mut signals = Signals::catch(&[Signal::HangUp])?;
/// assert_eq!(signals.wait(Some(Duration::ZERO))?, None);
/// signal_hook::low_level::raise(Signal::HangUp.number())?;
/// assert_eq!(signals.wait(None)?, Some(Signal::HangUp));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A loop watches it as any other source: [`EventLoop`](crate::EventLoop) shows how.
///
/// Several in one process each get every signal. When one is dropped, a signal that nobody
/// else catches is ignored; what it did before is not restored.
///
/// A handler that runs between the last look at a flag and the sleep is the classic way to lose a signal until
/// the next timeout. Here the handler sets a flag and writes to a socket pair that the wait watches, so a signal
/// before, between or during the wait ends it.
///
/// ```text
///  handler:  set the flag of the signal → write a byte (a full socket is readable as it is)
///  owner:    take the bytes → take a flag; none set? → sleep until there are bytes → …
/// ```
///
/// The kernel may run a handler on any thread; the loops' waits end early then, with nothing to do. What a
/// signal means is for the caller: nothing here ends a process.
pub struct Signals {
    caught: Vec<Caught>,
    /// What the handlers call, to take it away again.
    actions: Vec<SigId>,
    bytes: UnixStream,
    poller: Box<dyn Poller>,
    events: Events,
}

impl Signals {
    /// Catches `signals` from now on, on whichever thread they arrive.
    ///
    /// # Errors
    /// No descriptor is left (EMFILE, ENFILE).
    pub fn catch(signals: &[Signal]) -> io::Result<Self> {
        let (bytes, handler_end) = UnixStream::pair().map_err(system("socketpair"))?;
        bytes.set_nonblocking(true).map_err(system("ioctl FIONBIO"))?;
        let mut poller = Mechanism::Poll.open()?;
        let readable = Registration::new(Interest::READABLE, Trigger::Level);
        poller.add(bytes.as_fd(), Token::new(0, 0), readable)?;
        let events = Events::with_capacity(1);
        let mut all = Self { caught: Vec::new(), actions: Vec::new(), bytes, poller, events };
        for signal in signals {
            all.add(*signal, &handler_end)?;
        }
        Ok(all)
    }

    /// Waits for a signal. None when `timeout` is over or the waker was used, whichever came
    /// first: the caller looks at what it shares with other threads after each return. `None`
    /// as timeout waits for ever. A signal that came before the call counts; one that came
    /// several times since it was last returned is returned once.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        // A moment beyond what the clock can count never comes.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(signal) = self.take() {
                return Ok(Some(signal));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            self.poller.wait(&mut self.events, left)?;
            let is_over = self.events.is_empty() && left == Some(Duration::ZERO);
            if self.events.is_woken() || is_over {
                return Ok(self.take());
            }
        }
    }

    /// A signal that has come, without waiting.
    ///
    /// A loop that watches [`Signals::fd`] calls this until there is none.
    pub fn take(&self) -> Option<Signal> {
        // Before the flags, or the byte of a flag that is set in between would be lost. What
        // does not fit the buffer is found by the next call; the only error is EAGAIN.
        let _ = (&self.bytes).read(&mut [0; 256]);
        let come = self.caught.iter().find(|caught| caught.has_come.swap(false, Ordering::SeqCst));
        come.map(|caught| caught.signal)
    }

    /// Ends the current or the next wait, from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// What a loop can watch instead of calling [`Signals::wait`]: readable, level-triggered,
    /// when [`Signals::take`] may find something.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bytes.as_fd()
    }

    fn add(&mut self, signal: Signal, handler_end: &UnixStream) -> io::Result<()> {
        let has_come = Arc::new(AtomicBool::new(false));
        let number = signal.number();
        // Handlers call their actions in this order: the flag is set when the byte arrives.
        let sets_flag = flag::register(number, Arc::clone(&has_come));
        self.actions.push(sets_flag.map_err(system("sigaction"))?);
        let end = handler_end.try_clone().map_err(system("fcntl F_DUPFD_CLOEXEC"))?;
        let writes_byte = low_level::pipe::register(number, end);
        self.actions.push(writes_byte.map_err(system("sigaction"))?);
        self.caught.push(Caught { signal, has_come });
        Ok(())
    }
}

/// As [`Signals::fd`].
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for action in self.actions.drain(..) {
            low_level::unregister(action);
        }
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").field("caught", &self.caught).finish_non_exhaustive()
    }
}

fn system(call: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |cause| pollux_poller::Error::System { call, cause }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::sync::Arc;

    #[test]
    fn there_are_at_most_so_many_and_numbers_are_not_used_again() {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let mut sources = Sources::<()>::new();
        let insert = |sources: &mut Sources<()>| {
            let again = Arc::clone(&socket);
            sources.insert(again, |_, (), _| ControlFlow::Continue(()), u32::MAX)
        };
        for number in 0..SOURCES_MAX as u32 {
            assert_eq!(insert(&mut sources).expect("room"), SourceId(number));
        }
        let refused = insert(&mut sources).expect_err("one too many");
        assert!(refused.to_string().contains("1024 sources"), "{refused}");
        sources.remove(SourceId(500));
        assert!(sources.readable(SourceId(500), &mut (), Now::default()).is_none());
        assert!(sources.fd(SourceId(501)).is_some(), "the others stay");
        assert_eq!(insert(&mut sources).expect("room"), SourceId(SOURCES_MAX as u32));
    }

    #[test]
    fn a_timer_far_beyond_what_the_clock_counts_does_not_fire() {
        let timer = Timer::after(Duration::MAX).expect("a descriptor is left");
        assert_eq!(timer.take(), 0);
    }
}
