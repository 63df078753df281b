//! The contract that every backend keeps, and that the conformance suite checks.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::{
    Backend, Counters, Error, Events, Interest, Mechanism, Registration, SignalMask, Token,
    Trigger, Waker,
};

/// Watches descriptors and says which became ready.
///
/// # Rules
/// * **One thread.** A poller is opened, used and dropped by one thread; only its [`Waker`]
///   travels. One that [`crate::Mechanism::open_for`] opened is `Send` and may go from thread to
///   thread. That is not so for all, because an io_uring instance is faster when the kernel knows
///   that one thread enters it (IORING_SETUP_SINGLE_ISSUER), and refuses all others then.
/// * **One process.** A child of `fork(2)` may drop a poller that it inherited, which leaves the
///   parent's as it is; everything else is [`Error::Inherited`], as its changes would be the
///   parent's and its waits would take the parent's events. A waker that it inherited wakes the
///   parent.
/// * **Delete before close.** A descriptor is deleted, or forgotten, before it is closed. What
///   happens otherwise differs by kernel interface: epoll watches the file on while a duplicate
///   lives, select and poll forget the number or watch the file that has it next, AIO and io_uring
///   keep the file open. No backend ever delivers an event of the closed file under a token of its
///   successor.
/// * **Generations.** Adding a descriptor that is still registered is an error when the token
///   is equal. With another generation it says that the file was closed and its number used
///   again: backends that can't see a close then replace the old registration.
/// * **Spurious events.** Edge registrations may report more often than the model (after an
///   overflow every registration is looked at again), never less, and never a condition that
///   did not hold when it was looked at. Where changes are deferred, every trigger may report
///   once what was read or written away since it held, so descriptors have to be non-blocking.
/// * **Fairness.** When more is ready than fits, successive waits serve all in turn.
/// * **Deferred errors.** Where changes ride with the next wait ([`Caps::deferred_changes`]), an
///   error of the kernel arrives there, as an event with [`crate::Readiness::ERROR`].
pub trait Poller {
    /// Starts to watch `fd`; events will carry `token`.
    ///
    /// # Errors
    /// [`Error::AlreadyRegistered`] (EEXIST), [`Error::NotOpen`] (EBADF), which may come later
    /// where changes are deferred, [`Error::NotPollable`] (EPERM) for regular files where [`Caps::files`] says so, [`Error::Unsupported`] for what [`Caps`] denies,
    /// [`Error::Limit`] at a bound of the backend, [`Error::System`] otherwise.
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error>;

    /// Replaces token and registration of `fd`, and looks at its readiness anew: an edge or
    /// oneshot registration whose condition holds is reported again.
    ///
    /// # Errors
    /// [`Error::NotRegistered`] (ENOENT), [`Error::Unsupported`] also for any change of an
    /// exclusive registration (`epoll_ctl(2)`: EINVAL), [`Error::System`] otherwise.
    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error>;

    /// Stops watching `fd`. No event of it is delivered by a later wait.
    ///
    /// # Errors
    /// [`Error::NotRegistered`] (ENOENT), [`Error::System`] otherwise.
    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error>;

    /// Stops watching `fd`, which the caller closes next and of which no duplicate is open
    /// anywhere: what [`Poller::delete`] does, without the system call where the kernel drops a
    /// registration at the last close by itself (`epoll(7)`, questions and answers).
    ///
    /// While the descriptor stays open nothing of it is delivered, but it can't be added again
    /// (EEXIST) and continues to end waits, with stale events that are counted.
    ///
    /// # Errors
    /// As [`Poller::delete`].
    fn forget(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.delete(fd)
    }

    /// Applies `changes` in order.
    ///
    /// # Errors
    /// [`Error::Batch`] with the index of the first change that failed; those before it stand,
    /// those after it were not tried.
    fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), Error> {
        for (index, change) in changes.iter().enumerate() {
            let done = match *change {
                Change::Add(fd, token, how) => self.add(fd, token, how),
                Change::Modify(fd, token, how) => self.modify(fd, token, how),
                Change::Delete(fd) => self.delete(fd),
            };
            done.map_err(|cause| Error::Batch { index, cause: Box::new(cause) })?;
        }
        Ok(())
    }

    /// Hands the kernel what was deferred, without waiting and without reporting anything: what it
    /// finds is reported by the next wait.
    ///
    /// On io_uring the kernel holds the file of a descriptor until the deletion is submitted: one
    /// that was deleted and closed stays open, and its peer sees no end, until the next wait or
    /// this. Everywhere else this does nothing. AIO submits deletions when they are made, and
    /// lets go of the file a moment later, in a thread of the kernel; its additions go with the
    /// next wait.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel takes no changes; they stay deferred.
    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The descriptor of the kernel object behind this poller, to be watched by another poller or
    /// loop: it is readable when a wait would find something. None where there is no such object
    /// (select, poll, AIO, sim) or it does not report reliably (io_uring).
    ///
    /// Only to be watched: reading, closing or changing it by other means breaks the poller.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Every descriptor that this poller holds, its waker's among them: what closes all that a program has open
    /// (`closefrom(3)`) passes them over. It may hold more after a wait than before.
    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.waker().fd().as_raw_fd()]
    }

    /// Waits until something is ready, a waker is used, a signal handler ran or `timeout` is
    /// over; fills `events` with what was found, nothing of an earlier wait stays in it. With
    /// epoll (and sim) it also ends, empty, when only stale events came ([`Counters`]).
    ///
    /// `None` waits for ever, zero only looks. The timeout counts nanoseconds on the monotonic
    /// clock, or [`Caps::timeout_step`]s; the kernel may add its timer slack (50 µs by default,
    /// `prctl(2)`) or a thousandth of the timeout, and epoll from one second on a millisecond.
    /// Where epoll counts in milliseconds, a timeout of more than 24 days ends then.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel refuses to wait; a signal is not an error, see
    /// [`Events::is_interrupted`].
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error>;

    /// The thread's signal mask while a wait blocks, from now on; `None`: as it is. The system call
    /// that blocks puts it in place and takes it back, so that no signal comes in between; what a
    /// wait finds without blocking it reports with the mask as it is.
    fn set_signal_mask(&mut self, mask: Option<SignalMask>);

    /// A handle that ends a wait from any thread and from signal handlers.
    fn waker(&self) -> Waker;

    /// What this backend can do on this kernel.
    fn caps(&self) -> &Caps;

    /// The counters of this poller; other threads may keep and read them while it runs.
    fn counters(&self) -> &Arc<Counters>;
}

/// One element of a batch of changes.
#[derive(Clone, Copy, Debug)]
pub enum Change<'fd> {
    /// See [`Poller::add`].
    Add(BorrowedFd<'fd>, Token, Registration),
    /// See [`Poller::modify`].
    Modify(BorrowedFd<'fd>, Token, Registration),
    /// See [`Poller::delete`].
    Delete(BorrowedFd<'fd>),
}

/// Which threads use a poller, never two at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Threads {
    /// The one that opens it makes all changes that reach the kernel at once, and waits; another one
    /// may make changes that wait in user space, and drop it.
    One,
    /// Any, one after the other. Costs io_uring the set-up that leaves completions to one thread.
    Several,
}

/// How many descriptors a poller is to watch, by which it takes memory. More are watched as well, at more cost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expected {
    /// At most [`Expected::FEW_MAX`]: io_uring takes an eighth of the locked memory (`RLIMIT_MEMLOCK`).
    Few,
    /// More.
    Many,
}

impl Expected {
    /// Each may complete four times before the completions of such a ring are full.
    pub const FEW_MAX: usize = 512;

    /// What `count` descriptors are.
    #[must_use]
    pub const fn of(count: usize) -> Self {
        if count <= Self::FEW_MAX { Self::Few } else { Self::Many }
    }
}

/// What happens to regular files and directories, which are always ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilePolicy {
    /// Refused with [`Error::NotPollable`], as `epoll_ctl(2)` does (EPERM).
    Refused,
    /// Accepted and reported as ready: the kernel interface knows only once it is armed.
    AlwaysReady,
}

/// The capabilities of one opened backend.
///
/// They are probed when a backend is opened. Callers choose by it; backends refuse by it ([`Caps::check`]), so
/// that what is printed and what is refused cannot differ.
///
/// ```
/// use pollux_poller::{Interest, Mechanism, Registration, Trigger};
///
/// let poller = Mechanism::Poll.open()?;
/// assert!(poller.caps().serves(Trigger::Level) && !poller.caps().edge);
/// let edge = Registration::new(Interest::READABLE, Trigger::Edge);
/// let refused = poller.caps().check(edge).expect_err("poll(2) keeps no memory of a condition");
/// assert_eq!(
///     refused.to_string(),
///     "poll can't do: edge trigger (epoll-et and uring-poll have it)",
/// );
/// # Ok::<(), pollux_poller::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Which backend this is.
    pub backend: Backend,
    /// [`Trigger::Level`] is served.
    pub level: bool,
    /// [`Trigger::Edge`] is served.
    pub edge: bool,
    /// [`Trigger::Oneshot`] is served.
    pub oneshot: bool,
    /// [`Registration::exclusive`] is served, without priority, rdhup and oneshot.
    pub exclusive: bool,
    /// [`Interest::RDHUP`] is served.
    pub rdhup: bool,
    /// Hang-up and error arrive as their own bits; otherwise as readable and writable.
    pub hangup: bool,
    /// What happens to regular files.
    pub files: FilePolicy,
    /// Changes wait in user space and reach the kernel with the next wait, many at a time.
    pub deferred_changes: bool,
    /// An armed registration keeps the open file alive after its descriptor is closed.
    pub holds_files: bool,
    /// The most descriptors that can be watched at once, where the interface has such a bound.
    pub fds_max: Option<usize>,
    /// Timeouts of less than a second are rounded up to multiples of this: a nanosecond, or a
    /// millisecond for epoll where `epoll_pwait2(2)` is refused.
    pub timeout_step: Duration,
    /// What was found at open, in words: ring flags, sizes, fallbacks.
    pub notes: Vec<String>,
}

/// What is refused where there is no edge, with the mechanisms that are named for it.
static NO_EDGE: LazyLock<String> = LazyLock::new(|| {
    let named = Mechanism::ALL.into_iter().filter(|known| known.trigger() == Trigger::Edge);
    let names: Vec<&str> = named.map(Mechanism::name).collect();
    format!("edge trigger ({} have it)", names.join(" and "))
});

impl Caps {
    /// Those of a backend that serves everything, passes each change to the kernel at once, refuses regular
    /// files and has no bound. A backend states in its own file what it does otherwise.
    #[must_use]
    pub fn complete(backend: Backend) -> Self {
        Self {
            backend,
            level: true,
            edge: true,
            oneshot: true,
            exclusive: true,
            rdhup: true,
            hangup: true,
            files: FilePolicy::Refused,
            deferred_changes: false,
            holds_files: false,
            fds_max: None,
            timeout_step: Duration::from_nanos(1),
            notes: Vec::new(),
        }
    }

    /// Whether `trigger` is served.
    #[must_use]
    pub fn serves(&self, trigger: Trigger) -> bool {
        match trigger {
            Trigger::Level => self.level,
            Trigger::Edge => self.edge,
            Trigger::Oneshot => self.oneshot,
        }
    }

    /// Refuses a registration that the backend can't honour.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the part that can't be served and the mechanisms that can.
    pub fn check(&self, how: Registration) -> Result<(), Error> {
        let refuse = |what: &'static str| Err(Error::Unsupported { backend: self.backend, what });
        if !self.serves(how.trigger) {
            return refuse(match how.trigger {
                Trigger::Level => "level trigger",
                Trigger::Edge => &NO_EDGE,
                Trigger::Oneshot => "oneshot trigger",
            });
        }
        if how.interest.contains(Interest::RDHUP) && !self.rdhup {
            return refuse("rdhup interest (every other backend has it)");
        }
        if !how.exclusive {
            return Ok(());
        }
        if !self.exclusive {
            return refuse("exclusive wake-ups (epoll and uring-poll have them)");
        }
        if how.trigger == Trigger::Oneshot {
            return refuse("exclusive together with oneshot (epoll_ctl(2): EINVAL)");
        }
        if how.interest.contains(Interest::PRIORITY) || how.interest.contains(Interest::RDHUP) {
            return refuse("exclusive together with priority or rdhup (epoll_ctl(2): EINVAL)");
        }
        Ok(())
    }

    /// Refuses to modify a registration that is exclusive, or to make one exclusive.
    ///
    /// # Errors
    /// [`Error::Unsupported`], as `epoll_ctl(2)` refuses it.
    pub fn check_modify(&self, from: Registration, to: Registration) -> Result<(), Error> {
        let what =
            "changing an exclusive registration, or to one (epoll_ctl(2): EINVAL): delete and add";
        if from.exclusive || to.exclusive {
            Err(Error::Unsupported { backend: self.backend, what })
        } else {
            Ok(())
        }
    }
}
