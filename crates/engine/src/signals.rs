//! Signals as a source, or waited for by a thread.

use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pollux_poller::{Events, Interest, Mechanism, Poller, Registration, Token, Trigger, Waker};
use signal_hook::{SigId, consts, flag, low_level};

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
    /// SIGQUIT.
    Quit,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Terminate, Self::Interrupt, Self::HangUp, Self::Quit, Self::User1, Self::User2];

    /// The name as in `signal(7)`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
            Self::HangUp => "SIGHUP",
            Self::Quit => "SIGQUIT",
            Self::User1 => "SIGUSR1",
            Self::User2 => "SIGUSR2",
        }
    }

    /// The number as in `signal(7)`.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Terminate => consts::SIGTERM,
            Self::Interrupt => consts::SIGINT,
            Self::HangUp => consts::SIGHUP,
            Self::Quit => consts::SIGQUIT,
            Self::User1 => consts::SIGUSR1,
            Self::User2 => consts::SIGUSR2,
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
/// Several in one process each get every signal. When one is dropped, a signal that no
/// other one catches is ignored; what it did before is not restored.
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
    /// Copied for each signal.
    handler_end: UnixStream,
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
        let caught = Vec::new();
        let actions = Vec::new();
        let mut all = Self { caught, actions, bytes, handler_end, poller, events };
        all.catch_too(signals)?;
        Ok(all)
    }

    /// Catches these as well from now on: a server wants to miss no SIGHUP from its first moment on, and to be
    /// ended by SIGTERM without a word as long as it has nothing to end.
    ///
    /// # Errors
    /// No descriptor is left (EMFILE, ENFILE).
    pub fn catch_too(&mut self, signals: &[Signal]) -> io::Result<()> {
        signals.iter().try_for_each(|signal| self.add(*signal))
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

    fn add(&mut self, signal: Signal) -> io::Result<()> {
        let has_come = Arc::new(AtomicBool::new(false));
        let number = signal.number();
        // Handlers call their actions in this order: the flag is set when the byte arrives.
        let set_flag = flag::register(number, Arc::clone(&has_come));
        self.actions.push(set_flag.map_err(system("sigaction"))?);
        let end = self.handler_end.try_clone().map_err(system("fcntl F_DUPFD_CLOEXEC"))?;
        let write_byte = low_level::pipe::register(number, end);
        self.actions.push(write_byte.map_err(system("sigaction"))?);
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
