//! What a loop's thread shares with its tasks and streams: the executor's state.
//!
//! Tasks run inside a turn of the loop, where it asks its sessions for commands, between the calls for
//! what arrived and the calls of the sessions that were woken. So what a task writes leaves in the
//! turn in which its input came. The future of `block_on` is polled between two turns, and followed by
//! such a round without a wait. What needs the loop itself (to adopt what another program accepted, to
//! connect, to watch) is a request that the runtime carries out between two turns.
//!
//! ```text
//!  turn:  wait ► on_bytes … wake tasks ► commands: adopt, run tasks ► on_wake: send what they wrote
//!                                                    └── again, while it leaves commands ──┘
//!  then:  future of block_on ► requests: adopt, connect, watch, unwatch ► commands …
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use pollux_engine::{AcceptedSocket, Command, ConnectionId, EventLoop, Limits, Moment};

use crate::connection::Connection;
use crate::tasks::{Ready, TaskWaker, Tasks};
use crate::time::Timers;

/// Times in a row that tasks are run which others woke meanwhile, before the loop looks at its
/// connections again.
const ROUNDS_MAX: u32 = 16;

/// What a task requests of the loop.
pub(crate) type Request = Box<dyn FnOnce(&mut EventLoop<Connection>)>;

pub(crate) struct Core {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) timers: Rc<RefCell<Timers>>,
    /// The future of `block_on`.
    pub(crate) main: Arc<TaskWaker>,
    requests: RefCell<Vec<Request>>,
    /// Accepted connections that the loop does not have yet.
    adoptions: RefCell<VecDeque<(AcceptedSocket, Connection)>>,
    /// Connections whose streams want something of their session.
    calls: RefCell<Vec<ConnectionId>>,
    rounds_left: Cell<u32>,
    limits: Limits,
    accepts_left: Cell<u32>,
    open: Cell<u32>,
    /// Tasks that wait until one more connection may be open.
    vacancy: Waiters,
    /// Connections whose stream was dropped before its output had left.
    pub(crate) leaving: Cell<u32>,
    has_ended: Cell<bool>,
}

impl Core {
    pub(crate) fn new(limits: Limits) -> Rc<Self> {
        let ready = Arc::new(Ready::new());
        Rc::new(Self {
            main: TaskWaker::of_main(Arc::clone(&ready)),
            tasks: Rc::new(Tasks::new(ready)),
            timers: Rc::default(),
            requests: RefCell::default(),
            adoptions: RefCell::default(),
            calls: RefCell::default(),
            rounds_left: Cell::new(ROUNDS_MAX),
            accepts_left: Cell::new(limits.accepts_per_turn),
            limits,
            open: Cell::new(0),
            vacancy: Waiters::default(),
            leaving: Cell::new(0),
            has_ended: Cell::new(false),
        })
    }

    /// Has `request` carried out between this turn and the next. After the end it is dropped.
    pub(crate) fn request(&self, request: impl FnOnce(&mut EventLoop<Connection>) + 'static) {
        if !self.has_ended() {
            self.requests.borrow_mut().push(Box::new(request));
        }
    }

    /// Carries out what was requested, and what that requests.
    pub(crate) fn run_requests(&self, event_loop: &mut EventLoop<Connection>) {
        loop {
            let requests = std::mem::take(&mut *self.requests.borrow_mut());
            if requests.is_empty() {
                return;
            }
            for request in requests {
                request(event_loop);
            }
        }
    }

    /// Gives an accepted connection to the loop, in this turn or before the next wait.
    pub(crate) fn adopt(&self, accepted: AcceptedSocket, session: Connection) {
        self.adoptions.borrow_mut().push_back((accepted, session));
    }

    /// Whether there are commands that no turn has to wait for.
    pub(crate) fn has_commands(&self) -> bool {
        !self.adoptions.borrow().is_empty() || !self.calls.borrow().is_empty()
    }

    /// Has the session of a connection called in this turn, or the next one.
    pub(crate) fn call(&self, connection: ConnectionId) {
        self.calls.borrow_mut().push(connection);
    }

    /// A new phase of a turn: tasks have their share again.
    pub(crate) fn begin_phase(&self) {
        self.rounds_left.set(ROUNDS_MAX);
        self.accepts_left.set(self.limits.accepts_per_turn);
    }

    /// Runs tasks, then says which connection to adopt or which session to call, until there is nothing more to do.
    /// What was accepted comes before tasks, so that those that serve it find what its peer has sent.
    pub(crate) fn next_command(&self) -> Option<Command<Connection>> {
        if self.adoptions.borrow().is_empty() {
            self.run_tasks();
        }
        let adoption = self.adoptions.borrow_mut().pop_front();
        if let Some((accepted, session)) = adoption {
            return Some(Command::Adopt { accepted, session });
        }
        let call = self.calls.borrow_mut().pop();
        call.map(Command::Wake)
    }

    fn run_tasks(&self) {
        while self.rounds_left.get() > 0 {
            self.expire_timers();
            if !self.tasks.run_ready() {
                return;
            }
            self.rounds_left.set(self.rounds_left.get() - 1);
        }
    }

    fn expire_timers(&self) {
        loop {
            let due = self.timers.borrow_mut().take_due();
            let Some(waker) = due else { return };
            waker.wake();
        }
    }

    /// When the loop has to end its wait at the latest.
    pub(crate) fn next_command_at(&self) -> Moment {
        let has_work = self.tasks.has_ready()
            || self.main.is_queued()
            || !self.requests.borrow().is_empty()
            || self.has_commands();
        if has_work { Moment::from_nanos(0) } else { self.timers.borrow().earliest() }
    }

    pub(crate) fn opened(&self) {
        self.open.set(self.open.get() + 1);
    }

    pub(crate) fn closed(&self) {
        self.open.set(self.open.get() - 1);
        self.vacancy.wake();
    }

    /// Whether a connection may be accepted now; if not, `waker` is woken when that may have changed.
    pub(crate) fn may_accept(&self, waker: &Waker) -> bool {
        if self.open.get() >= self.limits.connections_max {
            self.vacancy.add(waker);
            return false;
        }
        let left = self.accepts_left.get();
        if left == 0 {
            // The others have their turn first.
            waker.wake_by_ref();
            return false;
        }
        self.accepts_left.set(left - 1);
        true
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Drops all tasks; nothing new is taken from now on.
    pub(crate) fn end(&self) {
        self.has_ended.set(true);
        self.tasks.clear();
        // What is requested now are ends of what the tasks had.
        drop(std::mem::take(&mut *self.requests.borrow_mut()));
    }
}

/// Tasks that wait for the same thing.
#[derive(Default)]
pub(crate) struct Waiters(RefCell<Vec<Waker>>);

impl Waiters {
    /// Has the task woken with the others, once.
    pub(crate) fn add(&self, waker: &Waker) {
        let mut waiting = self.0.borrow_mut();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    /// Wakes all; says whether there were any.
    pub(crate) fn wake(&self) -> bool {
        // Not borrowed meanwhile: a waker may be another program's code.
        let mut waiting = self.0.take();
        let has_waited = !waiting.is_empty();
        waiting.drain(..).for_each(Waker::wake);
        let mut added = self.0.borrow_mut();
        if added.is_empty() {
            // For its memory.
            *added = waiting;
        }
        has_waited
    }
}
