//! The world: descriptors, clock, script and faults, as tests handle them.
//!
//! Tests and the simulated poller call it. It holds no rule of readiness: those are in
//! `kernel.rs` and the objects.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::sim::ScriptedFault;
use crate::sim::kernel::{FileId, Kernel, PollerId};
use crate::sim::object::{Eventfd, Object, Queue};
use crate::sim::poller::SimPoller;
use crate::sim::streams::{Pair, Pipe};
use pollux_poller::Poller;

/// A simulated kernel. Clones are handles of the same world.
#[derive(Clone, Default)]
pub struct World(Rc<RefCell<State>>);

/// A simulated descriptor: it has a number of its own and can be borrowed, and names one side of
/// a model object. Dropping it closes it.
pub struct SimFd {
    placeholder: OwnedFd,
    file: FileId,
    world: Weak<RefCell<State>>,
}

type Action = Box<dyn FnOnce(&World)>;

/// What a world consists of; the poller takes its turns on it.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) kernel: Kernel,
    pub(crate) clock: Duration,
    /// By time, and for equal times in the order in which they were scripted.
    script: BTreeMap<(Duration, u64), Action>,
    scripted: u64,
    interrupts: usize,
    refusals: VecDeque<Errno>,
    wait_errors: VecDeque<Errno>,
    /// How often the world lost notifications so far.
    pub(crate) overflows: u64,
}

/// Making things.
///
/// # Panics
/// Where the process has no descriptor left for a placeholder or a waker.
impl World {
    /// An empty world at time zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A poller on this world; several may watch the same descriptors.
    #[must_use]
    pub fn open(&self) -> Box<dyn Poller> {
        Box::new(SimPoller::open(self.clone()).expect("a descriptor is left for the waker"))
    }

    /// The reading and the writing end of a pipe with the default size of 16 pages.
    #[must_use]
    pub fn pipe(&self) -> (SimFd, SimFd) {
        self.pair(Box::new(Pipe::new()))
    }

    /// Two connected stream sockets with the default buffer sizes.
    #[must_use]
    pub fn socketpair(&self) -> (SimFd, SimFd) {
        self.pair(Box::new(Pair::default()))
    }

    /// A counter: every write of 8 bytes adds one, a read takes all.
    #[must_use]
    pub fn eventfd(&self) -> SimFd {
        self.single(Box::new(Eventfd::default()))
    }

    /// A message queue for up to `capacity_messages`; each write is a message and each read
    /// takes one.
    ///
    /// # Panics
    /// When the capacity is zero.
    #[must_use]
    pub fn queue(&self, capacity_messages: usize) -> SimFd {
        self.single(Box::new(Queue::new(capacity_messages)))
    }

    /// Another descriptor of the same open file (`dup(2)`).
    #[must_use]
    pub fn dup(&self, fd: &SimFd) -> SimFd {
        self.descriptor(self.file(fd))
    }

    /// Closes a descriptor; so does dropping it.
    pub fn close(&self, fd: SimFd) {
        self.file(&fd);
        drop(fd);
    }

    fn pair(&self, object: Box<dyn Object>) -> (SimFd, SimFd) {
        let [a, b] = self.state().kernel.create(object);
        (self.descriptor(a), self.descriptor(b))
    }

    fn single(&self, object: Box<dyn Object>) -> SimFd {
        let [only, _] = self.state().kernel.create(object);
        self.descriptor(only)
    }

    fn descriptor(&self, file: FileId) -> SimFd {
        let placeholder = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let placeholder = placeholder.expect("a descriptor is left for a placeholder");
        self.state().kernel.install(placeholder.as_raw_fd(), file);
        SimFd { placeholder, file, world: Rc::downgrade(&self.0) }
    }
}

/// What happens to descriptors. None of these blocks.
///
/// # Panics
/// When the descriptor belongs to another world.
impl World {
    /// Writes `len_bytes` bytes without content and returns how many were taken.
    ///
    /// # Errors
    /// `EAGAIN` when nothing fits, `EPIPE` when the reading end is closed, `ECONNRESET` for a
    /// pending error of a socket, `EINVAL` for other than 8 bytes to an eventfd, `EBADF` at the
    /// reading end of a pipe.
    pub fn write(&self, fd: &SimFd, len_bytes: usize) -> Result<usize, Errno> {
        let file = self.file(fd);
        self.state().kernel.write(file, len_bytes)
    }

    /// Takes up to `len_bytes` bytes and returns how many there were; 0 is the end.
    ///
    /// # Errors
    /// `EAGAIN` when nothing is there, `ECONNRESET` for a pending error of a socket, `EMSGSIZE`
    /// for a longer message at the front of a queue, `EINVAL` for less than 8 bytes from an
    /// eventfd, `EBADF` at the writing end of a pipe.
    pub fn read(&self, fd: &SimFd, len_bytes: usize) -> Result<usize, Errno> {
        let file = self.file(fd);
        self.state().kernel.read(file, len_bytes)
    }

    /// `shutdown(2)` of the writing half of a socket.
    ///
    /// # Panics
    /// When `fd` is not a socket.
    pub fn shutdown_write(&self, fd: &SimFd) {
        let file = self.file(fd);
        self.state().kernel.change_socket(file, Pair::shutdown_write);
    }

    /// Leaves an error (`ECONNRESET`) pending on a socket until a read or write takes it.
    ///
    /// # Panics
    /// When `fd` is not a socket.
    pub fn set_error(&self, fd: &SimFd) {
        let file = self.file(fd);
        self.state().kernel.change_socket(file, Pair::set_error);
    }

    /// Lets urgent data lie in front of a socket, or takes it away.
    ///
    /// # Panics
    /// When `fd` is not a socket.
    pub fn set_priority(&self, fd: &SimFd, is_present: bool) {
        let file = self.file(fd);
        self.state().kernel.change_socket(file, |pair, side, wakes| {
            pair.set_priority(side, is_present, wakes);
        });
    }

    fn file(&self, fd: &SimFd) -> FileId {
        let is_ours = fd.world.ptr_eq(&Rc::downgrade(&self.0));
        assert!(is_ours, "{fd:?} belongs to another world");
        fd.file
    }
}

/// Time and trouble.
impl World {
    /// The virtual time. Only waits move it.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.state().clock
    }

    /// Has `action` run when a wait reaches the virtual time `moment`, or at the start of the
    /// next wait where that has passed. Actions at equal times run in the order of their calls.
    pub fn at(&self, moment: Duration, action: impl FnOnce(&Self) + 'static) {
        let mut state = self.state();
        state.scripted += 1;
        let order = state.scripted;
        state.script.insert((moment, order), Box::new(action));
    }

    /// Lets `fault` happen.
    ///
    /// # Panics
    /// For [`ScriptedFault::Spurious`] on a number that no descriptor of this world has.
    pub fn fault(&self, fault: ScriptedFault) {
        let mut state = self.state();
        match fault {
            ScriptedFault::Interrupt => state.interrupts += 1,
            ScriptedFault::RefuseAdd(errno) => state.refusals.push_back(errno),
            ScriptedFault::WaitError(errno) => state.wait_errors.push_back(errno),
            ScriptedFault::Spurious(fd) => {
                let file = state.kernel.file(fd);
                state.kernel.wake_for_nothing(file.expect("the number of a SimFd"));
            }
            ScriptedFault::Overflow => {
                state.overflows += 1;
                state.kernel.wake_all_edges();
            }
        }
    }

    /// Runs the actions whose time has come, and those that they script for a time that has.
    pub(crate) fn run_due(&self) {
        for _ in 0..crate::sim::poller::STEPS_MAX {
            let action = self.state().pop_due();
            match action {
                Some(action) => action(self),
                None => return,
            }
        }
        panic!("the script never leaves {:?}: does an action repeat itself?", self.now());
    }

    pub(crate) fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }
}

impl State {
    /// The moment until which a sleep lasts: the next scripted one, at most `deadline`.
    pub(crate) fn next_moment(&self, deadline: Option<Duration>) -> Option<Duration> {
        let scripted = self.script.keys().next().map(|(moment, _)| *moment);
        scripted.into_iter().chain(deadline).min()
    }

    /// Moves the clock on while `sleeper` sleeps.
    pub(crate) fn pass_to(&mut self, moment: Duration, sleeper: PollerId) {
        self.clock = self.clock.max(moment);
        self.kernel.set_waiting(sleeper, true);
    }

    pub(crate) fn take_interrupt(&mut self) -> bool {
        let is_pending = self.interrupts > 0;
        self.interrupts -= usize::from(is_pending);
        is_pending
    }

    pub(crate) fn take_refusal(&mut self) -> Option<Errno> {
        self.refusals.pop_front()
    }

    pub(crate) fn take_wait_error(&mut self) -> Option<Errno> {
        self.wait_errors.pop_front()
    }

    fn pop_due(&mut self) -> Option<Action> {
        let first = self.script.first_entry()?;
        (first.key().0 <= self.clock).then(|| first.remove())
    }
}

impl AsFd for SimFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.placeholder.as_fd()
    }
}

impl Drop for SimFd {
    fn drop(&mut self) {
        // In a world that is gone the number is not used any more.
        if let Some(state) = self.world.upgrade() {
            state.borrow_mut().kernel.close(self.placeholder.as_raw_fd());
        }
    }
}

impl fmt::Debug for SimFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFd({})", self.placeholder.as_raw_fd())
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World(at {:?})", self.now())
    }
}
