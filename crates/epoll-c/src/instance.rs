//! One instance on a mechanism that is not the kernel's epoll: its registrations, and the seat that
//! one thread waits on.
//!
//! ```text
//!  ctl ──► Registrations ──► poller, when the seat is free         wait ──► takes the seat, waits
//!              └──────────► wakes who sits: it tells the poller      └────► taken: queues at the bell
//! ```
//! The lock is held for moments only, never while anybody waits. Who leaves the seat rings for the
//! next in the queue, which finds what is left. When the instance is itself watched by another one it
//! becomes an epoll of the kernel's for good, as only the kernel can tell of a change then.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, sigset_t};
use pollux_poller::{Backend, Error, Events, Mechanism, Poller, SignalMask, Threads, Waker};

use crate::kernel::{self, Kind};
use crate::registrations::{EXCLUSIVE, Registrations, Step, is_impossible};

/// The most room that a wait may offer (`epoll_wait(2)`: EINVAL beyond).
const ROOM_MAX: usize = c_int::MAX as usize / size_of::<epoll_event>();

/// An epoll instance on another mechanism.
#[derive(Debug)]
pub struct Instance {
    state: Mutex<State>,
}

pub(crate) struct State {
    mechanism: Mechanism,
    /// In the kernel epoll of this instance and of no other one: proves what a number names.
    tag: Option<OwnedFd>,
    /// Rung for threads that queue. Not the tag's: a child has one of its own.
    bell: Option<OwnedFd>,
    registrations: Registrations,
    seat: Seat,
    waker: Option<Waker>,
    /// Threads inside `wait`, and those of them that queue.
    users: usize,
    queued: usize,
    has_waited: bool,
    /// All goes to the kernel's epoll.
    is_kernels: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with {} users", self.mechanism, self.users)
    }
}

enum Seat {
    /// No poller is open.
    Empty,
    Free(Opened),
    Taken,
}

struct Opened {
    poller: Box<dyn Poller + Send>,
    events: Events,
    thread: ThreadId,
    threads: Threads,
}

/// The end of one wait.
#[derive(Clone, Copy)]
enum Deadline {
    Never,
    At(Instant),
    Now,
}

impl Instance {
    /// One without registrations; its number is `epoll`, which is empty but for the tag from now on.
    pub(crate) fn new(mechanism: Mechanism) -> Self {
        Self { state: Mutex::new(State::new(mechanism)) }
    }

    /// Begins a life: as `new`, in the place of one that is over.
    pub(crate) fn begin(&self, mechanism: Mechanism, epoll: RawFd) -> io::Result<()> {
        let mut state = self.lock();
        *state = State::new(mechanism);
        let tag = kernel::eventfd()?;
        kernel::ctl(epoll, libc::EPOLL_CTL_ADD, tag.as_raw_fd(), Some(NOTHING))?;
        (state.tag, state.bell) = (Some(tag), Some(kernel::eventfd()?));
        let opened = Opened::open(mechanism, Threads::One)?;
        state.waker = Some(opened.poller.waker());
        state.seat = Seat::Free(opened);
        Ok(())
    }

    /// Ends this life: all is closed but what a thread that waits still holds. Says whether there was
    /// one.
    pub(crate) fn end(&self) -> bool {
        let mut state = self.lock();
        let was_alive = state.tag.is_some();
        state.registrations.clear();
        (state.tag, state.waker) = (None, None);
        if state.users == 0 {
            state.bell = None;
        }
        if let Seat::Free(_) = state.seat {
            state.seat = Seat::Empty;
        }
        was_alive
    }

    /// Whether nothing of an earlier life is left.
    pub(crate) fn is_vacant(&self) -> bool {
        let state = self.lock();
        state.tag.is_none() && state.users == 0
    }

    /// Whether `epoll` names this instance now.
    pub(crate) fn is_named_by(&self, epoll: RawFd) -> bool {
        let tag = self.lock().tag.as_ref().map(OwnedFd::as_raw_fd);
        tag.is_some_and(|tag| kernel::ctl(epoll, libc::EPOLL_CTL_MOD, tag, Some(NOTHING)).is_ok())
    }

    /// Held around `fork(2)`.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What events come by.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        let state = self.lock();
        if state.is_kernels { Mechanism::Epoll } else { state.mechanism }
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
        if state.is_kernels {
            drop(state);
            return ask_kernel();
        }
        let Some((file, kind)) = kernel::identity(fd) else {
            return ask_kernel();
        };
        let mut there = state.registrations.get(fd).copied();
        if there.is_some_and(|there| there.file != file) {
            // Closed without EPOLL_CTL_DEL, and the number given out again.
            state.registrations.remove(fd);
            there = None;
            state.tell()?;
        }
        match (op, there, event) {
            (libc::EPOLL_CTL_ADD, None, Some(event)) => {
                let is_clear = kind == Kind::Pollable && !is_impossible(event.events);
                if !is_clear || kernel::is_path(fd) {
                    state.ask_for(epoll, fd, event)?;
                }
                state.registrations.add(fd, file, event.events, event.u64);
            }
            (libc::EPOLL_CTL_ADD, Some(_), Some(event)) => {
                let is_impossible = is_impossible(event.events);
                return Err(errno(if is_impossible { libc::EINVAL } else { libc::EEXIST }));
            }
            (libc::EPOLL_CTL_MOD, Some(there), Some(event)) => {
                if there.is_exclusive() || event.events & EXCLUSIVE != 0 {
                    return Err(errno(libc::EINVAL));
                }
                state.registrations.modify(fd, event.events, event.u64);
            }
            (libc::EPOLL_CTL_DEL, Some(_), _) => {
                if kind == Kind::Unknown {
                    // Another instance, or nothing.
                    let _ = ask_kernel();
                }
                state.registrations.remove(fd);
            }
            // Of a file that is not registered here the kernel's empty epoll says what is wrong.
            _ => return ask_kernel(),
        }
        state.tell()
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
        self.lock().users += 1;
        let found = self.wait_inside(room, deadline, mask);
        let mut state = self.lock();
        state.users -= 1;
        let is_kernels = state.is_kernels;
        drop(state);
        match found {
            Ok(0) if is_kernels => kernel::wait(epoll, room, deadline.remaining(), mask),
            found => found,
        }
    }

    fn wait_inside(
        &self,
        room: &mut [MaybeUninit<epoll_event>],
        deadline: Deadline,
        mask: Option<&sigset_t>,
    ) -> io::Result<usize> {
        loop {
            let mut state = self.lock();
            if state.is_kernels || state.tag.is_none() {
                return Ok(0);
            }
            if let Some(opened) = state.take_seat()? {
                drop(state);
                return self.sit(opened, room, deadline, mask);
            }
            if !self.queue(state, deadline, mask)? {
                return Ok(0);
            }
        }
    }

    /// Waits for the seat; `false` when the time is over.
    fn queue(
        &self,
        mut state: MutexGuard<'_, State>,
        deadline: Deadline,
        mask: Option<&sigset_t>,
    ) -> io::Result<bool> {
        state.queued += 1;
        // The number stays open while there are users.
        let bell = state.bell.as_ref().map(OwnedFd::as_raw_fd).expect("open while there are users");
        drop(state);
        let rung = kernel::await_ring(bell, deadline.remaining(), mask);
        let mut state = self.lock();
        state.queued -= 1;
        if !matches!(rung, Ok(true)) && matches!(state.seat, Seat::Free(_) | Seat::Empty) {
            // Perhaps the ring was for us: somebody else takes it.
            state.ring();
        }
        rung
    }

    /// Waits on the seat and leaves it.
    fn sit(
        &self,
        mut opened: Opened,
        room: &mut [MaybeUninit<epoll_event>],
        deadline: Deadline,
        mask: Option<&sigset_t>,
    ) -> io::Result<usize> {
        if opened.events.capacity() != room.len().min(Events::CAPACITY_MAX) {
            opened.events = Events::with_capacity(room.len());
        }
        let mut state = self.lock();
        let outcome = loop {
            if let Err(refused) = state.tell_all(&mut opened) {
                break Err(refused);
            }
            if state.is_kernels || state.tag.is_none() {
                break Ok(0);
            }
            drop(state);
            let waited = opened.wait(deadline.remaining(), mask);
            state = self.lock();
            if let Err(error) = waited {
                break Err(as_errno(&error));
            }
            let found = if state.is_kernels { 0 } else { state.deliver(&opened.events, room) };
            if found > 0 {
                break Ok(found);
            }
            if opened.events.is_interrupted() {
                break Err(errno(libc::EINTR));
            }
            let is_over = opened.events.is_empty() && !opened.events.is_woken();
            if is_over && deadline.is_over() {
                break Ok(0);
            }
        };
        state.leave_seat(opened);
        outcome
    }

    /// The number `fd` is about to be closed, or to name another file.
    pub(crate) fn closing(&self, fd: RawFd) {
        let mut state = self.lock();
        if state.registrations.remove(fd) {
            // A deletion is never refused.
            let _ = state.tell();
        }
    }

    /// Adds the number of every registration to `numbers`.
    pub(crate) fn numbers(&self, numbers: &mut Vec<RawFd>) {
        numbers.extend(self.lock().registrations.iter().map(|(fd, _)| fd));
    }

    /// Hands all registrations to the kernel's epoll, which `epoll` names, for good.
    pub(crate) fn become_kernels(&self, epoll: RawFd) -> io::Result<()> {
        let mut state = self.lock();
        if mem::replace(&mut state.is_kernels, true) {
            return Ok(());
        }
        for (fd, wanted) in state.registrations.iter() {
            let events = if wanted.is_spent { libc::EPOLLONESHOT as u32 } else { wanted.events };
            let event = Some(epoll_event { events, u64: wanted.data });
            // Nested ones are there, to be modified; closed ones are gone.
            let added = kernel::ctl(epoll, libc::EPOLL_CTL_ADD, fd, event);
            if added.is_err_and(|error| error.raw_os_error() == Some(libc::EEXIST)) {
                kernel::ctl(epoll, libc::EPOLL_CTL_MOD, fd, event)?;
            }
        }
        state.registrations.clear();
        if let Seat::Free(_) = state.seat {
            state.seat = Seat::Empty;
        }
        if let Some(waker) = &state.waker {
            waker.wake();
        }
        for _ in 0..state.queued {
            state.ring();
        }
        Ok(())
    }
}

impl State {
    fn new(mechanism: Mechanism) -> Self {
        Self {
            mechanism,
            tag: None,
            bell: None,
            registrations: Registrations::new(),
            seat: Seat::Empty,
            waker: None,
            users: 0,
            queued: 0,
            has_waited: false,
            is_kernels: false,
        }
    }

    /// This is a child of `fork(2)`: the poller is its parent's, the registrations are a copy.
    pub(crate) fn inherited(&mut self) {
        if self.tag.is_none() {
            return;
        }
        // What another thread held is lost with that thread.
        self.seat = Seat::Empty;
        (self.users, self.queued, self.waker) = (0, 0, None);
        self.bell = kernel::eventfd().ok();
        self.registrations.poller_is_new();
    }

    /// Asks the kernel whether `fd` may be added, which is kept there only if it is an epoll: so the
    /// kernel sees who watches whom.
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

    /// Has the poller told of what changed: now, or by who waits.
    fn tell(&mut self) -> io::Result<()> {
        match mem::replace(&mut self.seat, Seat::Taken) {
            Seat::Free(mut opened) => {
                let told = self.tell_all(&mut opened);
                self.seat = Seat::Free(opened);
                told
            }
            Seat::Taken => {
                if let Some(waker) = &self.waker {
                    waker.wake();
                }
                Ok(())
            }
            Seat::Empty => {
                self.seat = Seat::Empty;
                Ok(())
            }
        }
    }

    /// Tells the poller of every change that it has not heard of.
    fn tell_all(&mut self, opened: &mut Opened) -> io::Result<()> {
        while let Some(fd) = self.registrations.next_marked() {
            let step = self.registrations.plan(fd, opened.poller.caps());
            match opened.tell(fd, step) {
                // Closed before the poller heard of it: it is gone, as in the kernel's epoll.
                Ok(()) => {}
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
        let mut found = 0;
        for event in events {
            if let Some((events, data)) = self.registrations.event(event.token, event.readiness) {
                room[found].write(epoll_event { events, u64: data });
                found += 1;
            }
        }
        found
    }

    /// The poller, opened anew where this thread may not use the one that there is; `None` when
    /// another thread has it.
    fn take_seat(&mut self) -> io::Result<Option<Opened>> {
        let had_waited = mem::replace(&mut self.has_waited, true);
        let threads = match mem::replace(&mut self.seat, Seat::Taken) {
            Seat::Taken => return Ok(None),
            Seat::Free(opened) if opened.may_be_used_here() => return Ok(Some(opened)),
            // A second thread: the next poller serves all.
            Seat::Free(_) if had_waited => Threads::Several,
            Seat::Free(_) | Seat::Empty => Threads::One,
        };
        match Opened::open(self.mechanism, threads) {
            Ok(opened) => {
                self.waker = Some(opened.poller.waker());
                self.registrations.poller_is_new();
                Ok(Some(opened))
            }
            Err(refused) => {
                self.seat = Seat::Empty;
                Err(refused)
            }
        }
    }

    fn leave_seat(&mut self, opened: Opened) {
        let is_over = self.is_kernels || self.tag.is_none();
        self.seat = if is_over { Seat::Empty } else { Seat::Free(opened) };
        self.ring();
    }

    /// For one of those who queue.
    fn ring(&self) {
        if self.queued > 0
            && let Some(bell) = &self.bell
        {
            kernel::ring(bell);
        }
    }
}

impl Opened {
    fn open(mechanism: Mechanism, threads: Threads) -> io::Result<Self> {
        let poller = mechanism.open_for(threads).map_err(|refused| as_errno(&refused))?;
        let events = Events::with_capacity(1);
        Ok(Self { poller, events, thread: thread::current().id(), threads })
    }

    /// A fast ring serves the thread that opened it.
    fn may_be_used_here(&self) -> bool {
        self.poller.caps().backend != Backend::Uring
            || self.threads == Threads::Several
            || self.thread == thread::current().id()
    }

    fn tell(&mut self, fd: RawFd, step: Step) -> Result<(), Error> {
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
