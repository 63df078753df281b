//! The life of one instance on a mechanism that is not the kernel's epoll, and its registrations.
//!
//! ```text
//!  new ──► begin ──► ctl, wait ──┬──► end: the last number was closed ──► begin
//!                                └──► become_kernels: another instance watches it
//! ```
//! Changes are noted in [`Registrations`] and applied to the poller by the thread that has it; which one
//! that is, is the subject of `waiters.rs`. When the instance is itself watched by another one it becomes an epoll of
//! the kernel's for good, as only the kernel notices a change then.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, sigset_t};
use pollux_poller::{
    AioPool, Error, Events, Expected, Facility, Mechanism, Poller, SignalMask, Threads, Waker,
};

use crate::kernel::{self, Identity, Kind};
use crate::registrations::{EXCLUSIVE, Registrations, Step, Wanted, is_impossible};
use crate::waiters::{self, Subject, Waiters};

/// The most room that a wait may offer (`epoll_wait(2)`: EINVAL beyond).
const ROOM_MAX: usize = c_int::MAX as usize / size_of::<epoll_event>();

/// The most registrations of which all are looked at before each of a thread's first waits: an `fstat(2)` for each.
const LOOKED_AT_MAX: usize = 64;

/// An epoll instance on another mechanism.
pub struct Instance {
    waiters: Waiters<Watched>,
}

/// An instance whose lock is held.
pub(crate) type Locked<'a> = waiters::Locked<'a, Watched>;

/// What an instance watches, and by what.
pub(crate) struct Watched {
    mechanism: Mechanism,
    /// Those of all instances.
    contexts: Arc<AioPool>,
    /// In the kernel epoll of this instance and of no other one: proves what a number names. None:
    /// it is not alive.
    tag: Option<OwnedFd>,
    /// What threads of the queue sleep on. Not the tag: a child has one of its own.
    semaphore: Option<OwnedFd>,
    /// What an eventfd is recognised by.
    anonymous: Option<Identity>,
    /// Numbers of the above, or of the poller, that were closed past the library and are of another instance by now.
    lost: Vec<RawFd>,
    registrations: Registrations,
    waker: Option<Waker>,
    has_waited: bool,
    /// The poller serves all threads; or is to, as a second one waits.
    is_shared: bool,
    /// The numbers of the poller, as far as they are known while a thread polls.
    held: Vec<RawFd>,
    /// All goes to the kernel's epoll.
    is_kernels: bool,
}

/// A poller with what belongs to it.
pub(crate) struct Opened {
    poller: Box<dyn Poller + Send>,
    events: Events,
    thread: ThreadId,
    threads: Threads,
    expected: Expected,
}

/// One wait as the program asked for it.
struct WaitArgs<'a> {
    room: &'a mut [MaybeUninit<epoll_event>],
    deadline: Deadline,
    mask: Option<&'a sigset_t>,
}

/// The end of one wait.
#[derive(Clone, Copy)]
enum Deadline {
    Never,
    At(Instant),
    Now,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an instance on {}", self.mechanism())
    }
}

impl Instance {
    /// One without registrations, which is not alive.
    pub(crate) fn new(mechanism: Mechanism, contexts: &Arc<AioPool>) -> Self {
        Self { waiters: Waiters::new(Watched::new(mechanism, contexts.clone())) }
    }

    /// Begins a life; `epoll`, which is empty but for the tag from now on, is its number.
    pub(crate) fn begin(&self, mechanism: Mechanism, epoll: RawFd) -> io::Result<()> {
        let mut state = self.lock();
        state.subject = Watched::new(mechanism, state.subject.contexts.clone());
        let tag = kernel::eventfd()?;
        kernel::ctl(epoll, libc::EPOLL_CTL_ADD, tag.as_raw_fd(), Some(NOTHING))?;
        state.subject.anonymous = kernel::identity(tag.as_raw_fd()).map(|(file, _)| file);
        (state.subject.tag, state.subject.semaphore) = (Some(tag), Some(kernel::eventfd()?));
        let subject = &state.subject;
        let opened = subject.opened(Threads::One, Expected::Few).map_err(|refused| {
            // Of `fs.aio-max-nr`, a bound of the whole system: epoll_create(2) has no EAGAIN.
            let is_at_bound = refused.raw_os_error() == Some(libc::EAGAIN);
            if is_at_bound { errno(libc::ENFILE) } else { refused }
        })?;
        state.subject.waker = Some(opened.poller.waker());
        state.subject.held = opened.poller.descriptors();
        state.put(opened);
        Ok(())
    }

    /// Ends this life, and the waits that are under way. Says whether there was one.
    pub(crate) fn end(&self) -> bool {
        let mut state = self.lock();
        let was_alive = state.subject.tag.is_some();
        state.disown();
        state.subject.registrations.clear();
        state.subject.tag = None;
        state.dismiss();
        state.subject.waker = None;
        if state.is_unused() {
            state.subject.semaphore = None;
        }
        // A thread that polls holds what was registered until it leaves. Nothing is refused here.
        let _ = self.waiters.removed(state);
        was_alive
    }

    /// Closes a ring unless a thread waits or changes something: a thread that continues opens another one. Of the
    /// others the kernel lets go with the process, and a context of AIO takes as long to give up as all of them together.
    pub(crate) fn ending(&self) {
        if let Some(mut state) = self.waiters.try_lock()
            && state.subject.mechanism.facility() == Facility::Ring
            && state.free().is_some()
        {
            state.renew();
        }
    }

    /// Whether nothing of an earlier life is left.
    pub(crate) fn is_vacant(&self) -> bool {
        let state = self.lock();
        state.subject.tag.is_none() && state.is_unused()
    }

    /// Whether `epoll` names this instance now.
    pub(crate) fn is_named_by(&self, epoll: RawFd) -> bool {
        self.tag()
            .is_some_and(|tag| kernel::ctl(epoll, libc::EPOLL_CTL_MOD, tag, Some(NOTHING)).is_ok())
    }

    /// What the kernel's epoll of this instance has, while it is alive.
    #[must_use]
    pub fn tag(&self) -> Option<RawFd> {
        self.lock().subject.tag.as_ref().map(OwnedFd::as_raw_fd)
    }

    /// How many descriptors the kernel's epoll behind `epoll` watches that were not registered here: past the C
    /// library, so that only the kernel sees when they are ready.
    #[must_use]
    pub fn registered_past(&self, epoll: RawFd) -> usize {
        // Locked meanwhile, as some are there for a moment to ask the kernel.
        let state = self.lock();
        let watched = &state.subject;
        let Some(tag) = watched.tag.as_ref().filter(|_| !watched.is_kernels) else { return 0 };
        let is_past =
            |fd: &RawFd| *fd != tag.as_raw_fd() && watched.registrations.get(*fd).is_none();
        kernel::watched_by(epoll).into_iter().filter(is_past).count()
    }

    /// Held around `fork(2)`.
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.waiters.lock()
    }

    /// What events come by.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        let state = self.lock();
        if state.subject.is_kernels { Mechanism::Epoll } else { state.subject.mechanism }
    }

    /// `epoll_ctl(2)` on this instance, which `epoll` names.
    ///
    /// # Errors
    /// Those of the system call; ENOSPC also at a bound of the mechanism.
    pub(crate) fn ctl(
        &self,
        epoll: RawFd,
        op: c_int,
        fd: RawFd,
        event: Option<epoll_event>,
    ) -> io::Result<()> {
        let mut state = self.lock();
        let ask_kernel = || kernel::ctl(epoll, op, fd, event);
        if state.subject.is_kernels {
            drop(state);
            return ask_kernel();
        }
        let Some((file, kind)) = kernel::identity(fd) else {
            return ask_kernel();
        };
        let mut there = state.subject.registrations.get(fd).copied();
        if there.is_some_and(|there| there.file != file) {
            // Closed without EPOLL_CTL_DEL, and the number given out again.
            state.subject.registrations.remove(fd);
            there = None;
            state.changed()?;
        }
        match (op, there, event) {
            (libc::EPOLL_CTL_ADD, None, Some(event)) => {
                let is_clear = kind == Kind::Pollable && !is_impossible(event.events);
                if !is_clear || kernel::is_path(fd) {
                    state.subject.ask_for(epoll, fd, event)?;
                }
                state.subject.registrations.add(fd, file, event.events, event.u64);
            }
            (libc::EPOLL_CTL_ADD, Some(_), Some(event)) => {
                let is_impossible = is_impossible(event.events);
                return Err(errno(if is_impossible { libc::EINVAL } else { libc::EEXIST }));
            }
            (libc::EPOLL_CTL_MOD, Some(there), Some(event)) => {
                if there.is_exclusive() || event.events & EXCLUSIVE != 0 {
                    return Err(errno(libc::EINVAL));
                }
                state.subject.registrations.modify(fd, event.events, event.u64);
            }
            (libc::EPOLL_CTL_DEL, Some(_), _) => {
                if kind == Kind::Unknown {
                    // Another instance, or nothing.
                    let _ = ask_kernel();
                }
                state.subject.registrations.remove(fd);
                return self.waiters.removed(state);
            }
            // Of a file that is not registered here the kernel's empty epoll says what is wrong.
            _ => return ask_kernel(),
        }
        state.changed()
    }

    /// `epoll_pwait2(2)` on this instance, which `epoll` names: waits until something of it is ready
    /// and returns how many events stand at the beginning of `room`. `None` waits for ever, zero only
    /// looks.
    ///
    /// # Errors
    /// EINVAL for no room or too much, EINTR after a signal, and those of opening the mechanism.
    pub fn wait(
        &self,
        epoll: RawFd,
        room: &mut [MaybeUninit<epoll_event>],
        timeout: Option<Duration>,
        mask: Option<&sigset_t>,
    ) -> io::Result<usize> {
        if room.is_empty() || room.len() > ROOM_MAX {
            return Err(errno(libc::EINVAL));
        }
        let deadline = Deadline::after(timeout);
        let found = self.waiters.wait(&mut WaitArgs { room: &mut *room, deadline, mask })?;
        if found == 0 && self.lock().subject.is_kernels {
            return kernel::wait(epoll, room, || deadline.remaining(), mask);
        }
        Ok(found)
    }

    /// The number `fd` is about to be closed, or to name another file. Says whether it was the tag's: the kernel's
    /// epoll needs the new one ([`Instance::tag_again`]).
    pub(crate) fn closing(&self, fd: RawFd) -> bool {
        let mut state = self.lock();
        let is_tag = state.subject.tag.as_ref().is_some_and(|tag| tag.as_raw_fd() == fd);
        if held(&state).contains(&fd) {
            state.loses(fd);
        }
        if state.subject.registrations.remove(fd) {
            // A deletion is never refused.
            let _ = self.waiters.removed(state);
        }
        is_tag
    }

    /// Puts a new tag into the kernel's epoll, which `epoll` names.
    pub(crate) fn tag_again(&self, epoll: RawFd) {
        if let Some(tag) = self.tag() {
            // Without memory for that, the instance is taken for closed.
            let _ = kernel::ctl(epoll, libc::EPOLL_CTL_ADD, tag, Some(NOTHING));
        }
    }

    /// Adds to `numbers` those that the library holds open for this instance beside the one that the program has.
    pub(crate) fn held(&self, numbers: &mut Vec<RawFd>) {
        numbers.extend(held(&self.lock()));
    }

    /// Adds the number of every registration to `numbers`.
    pub(crate) fn numbers(&self, numbers: &mut Vec<RawFd>) {
        numbers.extend(self.lock().subject.registrations.iter().map(|(fd, _)| fd));
    }

    /// Whether `fd` is registered here.
    pub(crate) fn watches(&self, fd: RawFd) -> bool {
        self.lock().subject.registrations.get(fd).is_some()
    }

    /// Whether something of this instance, which `epoll` names, was closed past the library: a number that is
    /// registered names another file, or none, or one that the library holds does. All are looked at, or, where there
    /// are more than a few, those that the last wait reported, which are the ones that a program closes as a rule.
    pub(crate) fn is_closed_past(&self, epoll: RawFd, is_whole: bool) -> bool {
        let state = self.lock();
        let watched = &state.subject;
        let Some(tag) = watched.tag.as_ref().filter(|_| !watched.is_kernels) else { return false };
        let is_another = |(fd, wanted): (RawFd, Wanted)| {
            kernel::identity(fd).is_none_or(|(file, _)| file != wanted.file)
        };
        if !is_whole && watched.registrations.len() > LOOKED_AT_MAX {
            return watched.registrations.reported().any(is_another);
        }
        kernel::ctl(epoll, libc::EPOLL_CTL_MOD, tag.as_raw_fd(), Some(NOTHING)).is_err()
            || held(&state).into_iter().any(|fd| watched.is_lost(fd))
            || watched.registrations.iter().any(is_another)
    }

    /// Another instance has just got `numbers`: those that this one holds were closed past the library. Says whether
    /// there are any.
    pub(crate) fn loses_to(&self, numbers: &[RawFd]) -> bool {
        let mut state = self.lock();
        if state.subject.tag.is_none() {
            return false;
        }
        let held = held(&state);
        let lost = numbers.iter().copied().filter(|fd| held.contains(fd));
        state.subject.lost.extend(lost);
        !state.subject.lost.is_empty()
    }

    /// Hands all registrations to the kernel's epoll that `epoll` names, where it still does, as numbers were closed
    /// past the library. `false`: the number names something else by now.
    pub(crate) fn become_kernels_where_closed(&self, epoll: RawFd) -> bool {
        let mut state = self.lock();
        let is_lost = state.disown();
        let Some(tag) = state.subject.tag.as_ref().map(OwnedFd::as_raw_fd) else { return false };
        // The tag was in the kernel's epoll, and left it where it was closed.
        let op = if is_lost { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_MOD };
        if kernel::ctl(epoll, op, tag, Some(NOTHING)).is_err() {
            return false;
        }
        drop(state);
        self.become_kernels(epoll).is_ok()
    }

    /// Hands all registrations to the kernel's epoll, which `epoll` names, for good.
    pub(crate) fn become_kernels(&self, epoll: RawFd) -> io::Result<()> {
        let mut state = self.lock();
        if mem::replace(&mut state.subject.is_kernels, true) {
            return Ok(());
        }
        state.subject.enter_all(epoll)?;
        state.subject.registrations.clear();
        state.dismiss();
        Ok(())
    }

    /// An epoll of the kernel's with all registrations; `None` where the instance is one already.
    pub(crate) fn as_kernels(&self) -> io::Result<Option<OwnedFd>> {
        let state = self.lock();
        if state.subject.is_kernels {
            return Ok(None);
        }
        let epoll = kernel::create(libc::EPOLL_CLOEXEC)?;
        state.subject.enter_all(epoll.as_raw_fd())?;
        Ok(Some(epoll))
    }

    /// Puts in a poller of a test, to which everything was applied.
    #[cfg(test)]
    pub(crate) fn replace_poller(&self, poller: Box<dyn Poller + Send>) {
        let mut state = self.lock();
        state.subject.waker = Some(poller.waker());
        state.subject.registrations.poller_is_new();
        let mut opened = Opened::with(poller, Threads::Several, Expected::Many);
        state.subject.apply(&mut opened).expect("nothing is refused");
        state.put(opened);
    }

    #[cfg(test)]
    pub(crate) fn threads(&self) -> (usize, usize) {
        self.lock().threads()
    }
}

impl Watched {
    fn new(mechanism: Mechanism, contexts: Arc<AioPool>) -> Self {
        Self {
            mechanism,
            contexts,
            tag: None,
            semaphore: None,
            anonymous: None,
            lost: Vec::new(),
            registrations: Registrations::new(),
            waker: None,
            has_waited: false,
            is_shared: false,
            held: Vec::new(),
            is_kernels: false,
        }
    }

    /// Asks the kernel whether `fd` may be added, which is kept there only if it is an epoll: so the
    /// kernel sees which instance watches which.
    fn ask_for(&self, epoll: RawFd, fd: RawFd, event: epoll_event) -> io::Result<()> {
        kernel::ctl(epoll, libc::EPOLL_CTL_ADD, fd, Some(event))?;
        let tag = self.tag.as_ref().map_or(-1, OwnedFd::as_raw_fd);
        let is_epoll = kernel::ctl(fd, libc::EPOLL_CTL_MOD, tag, Some(NOTHING))
            .is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT));
        if is_epoll {
            return kernel::ctl(epoll, libc::EPOLL_CTL_MOD, fd, Some(NOTHING));
        }
        kernel::ctl(epoll, libc::EPOLL_CTL_DEL, fd, None)
    }

    /// Enters every registration in the kernel's epoll that `epoll` names.
    fn enter_all(&self, epoll: RawFd) -> io::Result<()> {
        for (fd, wanted) in self.registrations.iter() {
            // Closed past the library, and the number may be another file's by now.
            if kernel::identity(fd).is_none_or(|(file, _)| file != wanted.file) {
                continue;
            }
            let events = if wanted.is_spent { libc::EPOLLONESHOT as u32 } else { wanted.events };
            let event = Some(epoll_event { events, u64: wanted.data });
            // Nested ones are there, to be modified; closed ones are gone.
            let added = kernel::ctl(epoll, libc::EPOLL_CTL_ADD, fd, event);
            if added.is_err_and(|error| error.raw_os_error() == Some(libc::EEXIST)) {
                kernel::ctl(epoll, libc::EPOLL_CTL_MOD, fd, event)?;
            }
        }
        Ok(())
    }

    fn opened(&self, threads: Threads, expected: Expected) -> io::Result<Opened> {
        let poller = self.mechanism.open_in_place_of_epoll(threads, expected, &self.contexts);
        Ok(Opened::with(poller.map_err(|refused| as_errno(&refused))?, threads, expected))
    }

    /// Whether a number that the library holds names none of the kernel's anonymous files, as all do that it holds, or
    /// one of another instance.
    fn is_lost(&self, fd: RawFd) -> bool {
        let is_another =
            |anonymous| kernel::identity(fd).is_none_or(|(file, _)| !file.is_beside(anonymous));
        self.lost.contains(&fd) || self.anonymous.is_some_and(is_another)
    }

    /// Another poller, to which nothing was applied.
    fn open(&mut self, threads: Threads) -> io::Result<Opened> {
        let expected = Expected::of(self.registrations.len());
        let opened = self.opened(threads, expected)?;
        self.waker = Some(opened.poller.waker());
        self.is_shared = threads == Threads::Several;
        self.held = opened.poller.descriptors();
        self.registrations.poller_is_new();
        Ok(opened)
    }

    /// Applies what is marked, and notes whether the poller had something that is no longer wanted.
    fn apply_marked(&mut self, opened: &mut Opened, has_removed: &mut bool) -> io::Result<()> {
        while let Some(fd) = self.registrations.next_marked() {
            let step = self.registrations.plan(fd, opened.poller.caps());
            *has_removed |= matches!(step, Step::Delete | Step::Replace(..));
            let outcome = opened.apply(fd, step);
            if self.mechanism == Mechanism::Aio && matches!(step, Step::Add(..) | Step::Replace(..))
            {
                // The first listener makes it open more.
                self.held = opened.poller.descriptors();
            }
            match outcome {
                Ok(()) => {}
                // Closed before the poller had it: it is gone, as in the kernel's epoll.
                Err(Error::NotOpen { .. }) => self.registrations.refused(fd),
                Err(refused) => {
                    self.registrations.refused(fd);
                    return Err(as_errno(&refused));
                }
            }
        }
        Ok(())
    }

    /// Writes what the poller found; says how many.
    fn deliver(&mut self, events: &Events, room: &mut [MaybeUninit<epoll_event>]) -> usize {
        self.registrations.begin_report();
        let mut found = 0;
        for event in events {
            if let Some((events, data)) = self.registrations.event(event.token, event.readiness) {
                room[found].write(epoll_event { events, u64: data });
                found += 1;
            }
        }
        found
    }
}

impl Subject for Watched {
    type Poller = Opened;
    /// Its number: open while threads wait.
    type Semaphore = RawFd;
    type Error = io::Error;

    fn is_over(&self) -> bool {
        self.is_kernels || self.tag.is_none()
    }

    fn poller(&mut self, spare: Option<Opened>) -> io::Result<Opened> {
        let had_waited = mem::replace(&mut self.has_waited, true);
        let threads = match spare {
            Some(opened) if opened.may_be_used_here() => return Ok(opened),
            // A second thread: the next poller serves all.
            Some(_) if had_waited => Threads::Several,
            Some(_) | None => Threads::One,
        };
        self.open(threads)
    }

    fn apply(&mut self, opened: &mut Opened) -> io::Result<()> {
        let mut has_removed = false;
        // A second thread waits: exchanged now, before this one has reported what the other ring would report
        // again. Where none can be opened this one stays, and the threads take turns.
        let is_for_one = self.is_shared && !opened.is_shared();
        let is_outgrown = opened.is_outgrown_by(self.registrations.len());
        if is_for_one || is_outgrown {
            let threads = if self.is_shared { Threads::Several } else { Threads::One };
            match self.open(threads) {
                Ok(anew) => *opened = anew,
                // It serves many as well, and another try would end alike.
                Err(_) => opened.expected = Expected::Many,
            }
        }
        let outcome = self.apply_marked(opened, &mut has_removed);
        if !has_removed {
            return outcome;
        }
        if opened.may_be_used_here() {
            // Refused only where the kernel has no memory: they stay with the poller until the next wait.
            let _ = opened.poller.flush();
        } else if let Ok(anew) = self.open(Threads::Several) {
            // What another thread armed on a fast ring this one cannot cancel: that ends with the ring.
            *opened = anew;
            return outcome.and(self.apply_marked(opened, &mut has_removed));
        }
        outcome
    }

    fn interrupt(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    fn semaphore(&mut self) -> io::Result<RawFd> {
        if !mem::replace(&mut self.is_shared, true) && self.mechanism.facility() == Facility::Ring {
            self.interrupt();
        }
        if let Some(semaphore) = &self.semaphore {
            return Ok(semaphore.as_raw_fd());
        }
        // A child of `fork(2)`, where the first try failed.
        Ok(self.semaphore.insert(kernel::eventfd()?).as_raw_fd())
    }

    fn post(&self) {
        if let Some(semaphore) = &self.semaphore {
            kernel::post(semaphore);
        }
    }
}

/// The numbers that the library holds open for an instance.
fn held(state: &waiters::State<Watched>) -> Vec<RawFd> {
    let Watched { tag, semaphore, held, .. } = &state.subject;
    let mut numbers: Vec<RawFd> = tag.iter().chain(semaphore).map(OwnedFd::as_raw_fd).collect();
    match state.free() {
        Some(opened) => numbers.extend(opened.poller.descriptors()),
        None if state.is_polled() => numbers.extend(held),
        None => {}
    }
    numbers
}

impl waiters::State<Watched> {
    /// A number that the library holds is about to name another file (`dup2(2)`): it is given up, and what it was
    /// for is made anew. A thread that polls continues to use it, and fails.
    fn loses(&mut self, fd: RawFd) {
        let is_lost =
            |held: &Option<OwnedFd>| held.as_ref().is_some_and(|held| held.as_raw_fd() == fd);
        for eventfd in [&mut self.subject.tag, &mut self.subject.semaphore] {
            if is_lost(eventfd)
                && let Ok(anew) = kernel::eventfd()
            {
                *eventfd = Some(anew);
                return;
            }
        }
        self.renew();
    }

    /// Leaves numbers that were closed past the library, and may be files of the program by now, as they are: nothing
    /// here closes, reads or writes them from now on. Says whether the tag was one of them. A thread that polls keeps
    /// its poller until it leaves.
    fn disown(&mut self) -> bool {
        let numbers = self.free().map(|opened| opened.poller.descriptors()).unwrap_or_default();
        if numbers.iter().any(|fd| self.subject.is_lost(*fd)) {
            // A poller closes all that it has: it is left, and what is still its own is closed here.
            mem::forget(self.take_free());
            mem::forget(self.subject.waker.take());
            numbers.into_iter().filter(|fd| !self.subject.is_lost(*fd)).for_each(kernel::close);
            self.subject.registrations.poller_is_new();
        }
        let is_lost = |subject: &Watched, held: &Option<OwnedFd>| {
            held.as_ref().is_some_and(|held| subject.is_lost(held.as_raw_fd()))
        };
        if is_lost(&self.subject, &self.subject.semaphore) {
            mem::forget(mem::replace(&mut self.subject.semaphore, kernel::eventfd().ok()));
        }
        let is_tag = is_lost(&self.subject, &self.subject.tag);
        if is_tag && let Ok(anew) = kernel::eventfd() {
            mem::forget(self.subject.tag.replace(anew));
        }
        self.subject.lost.clear();
        is_tag
    }

    /// Closes the poller, if no thread polls: the next wait opens another one.
    fn renew(&mut self) {
        self.close();
        self.subject.registrations.poller_is_new();
    }

    /// This is a child of `fork(2)`: the poller is its parent's, the registrations are a copy.
    pub(crate) fn inherited(&mut self) {
        if self.subject.tag.is_none() {
            return;
        }
        self.copied();
        self.subject.waker = None;
        self.subject.semaphore = kernel::eventfd().ok();
        self.subject.registrations.poller_is_new();
    }
}

impl waiters::Wait<Watched> for WaitArgs<'_> {
    fn sleep_in_queue(&mut self, semaphore: RawFd) -> io::Result<bool> {
        kernel::await_post(semaphore, self.deadline.remaining(), self.mask)
    }

    fn poll(&mut self, opened: &mut Opened) -> io::Result<()> {
        if opened.events.capacity() != self.room.len().min(Events::CAPACITY_MAX) {
            opened.events = Events::with_capacity(self.room.len());
        }
        opened.wait(self.deadline.remaining(), self.mask).map_err(|error| as_errno(&error))
    }

    fn deliver(&mut self, watched: &mut Watched, opened: &Opened) -> io::Result<Option<usize>> {
        let events = &opened.events;
        let found = if watched.is_kernels { 0 } else { watched.deliver(events, self.room) };
        if found > 0 {
            return Ok(Some(found));
        }
        if events.is_interrupted() {
            return Err(errno(libc::EINTR));
        }
        let is_over = events.is_empty() && !events.is_woken() && self.deadline.is_over();
        Ok(is_over.then_some(0))
    }
}

impl Opened {
    fn with(poller: Box<dyn Poller + Send>, threads: Threads, expected: Expected) -> Self {
        let events = Events::with_capacity(1);
        Self { poller, events, thread: thread::current().id(), threads, expected }
    }

    /// Whether it is a small ring, and of this thread, where `count` files are registered.
    fn is_outgrown_by(&self, count: usize) -> bool {
        self.expected == Expected::Few
            && Expected::of(count) == Expected::Many
            && self.poller.caps().backend.facility() == Facility::Ring
            && self.may_be_used_here()
    }

    /// A fast ring serves the thread that opened it.
    fn may_be_used_here(&self) -> bool {
        self.is_shared() || self.thread == thread::current().id()
    }

    fn is_shared(&self) -> bool {
        self.threads == Threads::Several || self.poller.caps().backend.facility() != Facility::Ring
    }

    fn apply(&mut self, fd: RawFd, step: Step) -> Result<(), Error> {
        // SAFETY: the number stays a number here: the poller names it to the kernel, which answers
        // EBADF when it is closed; nothing reads, writes or closes the file behind it.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        match step {
            Step::Add(token, how) => self.poller.add(fd, token, how),
            Step::Modify(token, how) => match self.poller.modify(fd, token, how) {
                // The poller found the number closed before, and it was opened again.
                Err(Error::NotRegistered { .. }) => self.poller.add(fd, token, how),
                outcome => outcome,
            },
            Step::Delete => self.delete(fd),
            Step::Replace(token, how) => {
                self.delete(fd)?;
                self.poller.add(fd, token, how)
            }
            Step::Nothing => Ok(()),
        }
    }

    /// What the poller itself dropped, because it was closed, is deleted.
    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        match self.poller.delete(fd) {
            Err(Error::NotRegistered { .. } | Error::NotOpen { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, mask: Option<&sigset_t>) -> Result<(), Error> {
        self.poller.set_signal_mask(mask.copied().map(SignalMask::from));
        self.poller.wait(&mut self.events, timeout)
    }
}

impl Deadline {
    fn after(timeout: Option<Duration>) -> Self {
        match timeout {
            None => Self::Never,
            Some(Duration::ZERO) => Self::Now,
            Some(timeout) => Instant::now().checked_add(timeout).map_or(Self::Never, Self::At),
        }
    }

    fn remaining(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::At(end) => Some(end.saturating_duration_since(Instant::now())),
            Self::Now => Some(Duration::ZERO),
        }
    }

    fn is_over(self) -> bool {
        self.remaining() == Some(Duration::ZERO)
    }
}

/// What the tag and nested instances are watched for in the kernel's epoll.
const NOTHING: epoll_event = epoll_event { events: 0, u64: 0 };

fn errno(number: c_int) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn as_errno(error: &Error) -> io::Error {
    errno(error.raw_os_error().unwrap_or(libc::EINVAL))
}
