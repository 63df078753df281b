//! Local tasks: futures of one thread, polled when they were woken.
//!
//! A task's waker may be used by any thread. It puts the task's identifier into one queue, once until the
//! task runs, and ends the loop's wait when the thread is another one; in the loop's own thread
//! the loop checks the queue before it waits.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;

/// Most tasks of one runtime: a connection needs one or two.
const TASKS_MAX: usize = 1 << 20;

/// A slot of the list of tasks, with the number of its use, so that a late wake finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskId {
    slot: u32,
    generation: u32,
}

/// Tasks that were woken and have not run since.
#[derive(Debug)]
pub(crate) struct Ready {
    queue: Mutex<Vec<TaskId>>,
    owner: ThreadId,
    waker: OnceLock<pollux_engine::Waker>,
}

impl Ready {
    pub(crate) fn new() -> Self {
        let owner = std::thread::current().id();
        Self { queue: Mutex::default(), owner, waker: OnceLock::new() }
    }

    /// The loop is there: this ends its wait.
    pub(crate) fn set_waker(&self, waker: pollux_engine::Waker) {
        self.waker.get_or_init(|| waker);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TaskId>> {
        self.queue.lock().expect("nothing under the lock can panic")
    }

    fn wake_loop(&self) {
        if std::thread::current().id() != self.owner
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }
}

/// What wakes one task.
#[derive(Debug)]
pub(crate) struct TaskWaker {
    /// None for the future of `block_on`, which has no place in the list.
    task: Option<TaskId>,
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

impl TaskWaker {
    pub(crate) fn of_main(ready: Arc<Ready>) -> Arc<Self> {
        Arc::new(Self { task: None, is_queued: AtomicBool::new(false), ready })
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.is_queued.load(Ordering::Acquire)
    }

    /// Whether it was woken; not any more afterwards.
    pub(crate) fn take(&self) -> bool {
        self.is_queued.swap(false, Ordering::AcqRel)
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(task) = self.task {
            self.ready.lock().push(task);
        }
        self.ready.wake_loop();
    }
}

type Local = Pin<Box<dyn Future<Output = ()>>>;

enum State {
    Free,
    Idle(Local, Arc<TaskWaker>),
    /// Its future is being polled, and then dropped if it was aborted meanwhile.
    Running {
        is_aborted: bool,
    },
}

struct Slot {
    generation: u32,
    state: State,
}

/// The tasks of a runtime.
pub(crate) struct Tasks {
    ready: Arc<Ready>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    /// Empty between two rounds; kept for its memory.
    round: RefCell<Vec<TaskId>>,
    panicked: Cell<u64>,
}

impl Tasks {
    pub(crate) fn new(ready: Arc<Ready>) -> Self {
        let slots = RefCell::default();
        let free = RefCell::default();
        let round = RefCell::default();
        Self { ready, slots, free, round, panicked: Cell::new(0) }
    }

    pub(crate) fn ready(&self) -> &Arc<Ready> {
        &self.ready
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.lock().is_empty()
    }

    pub(crate) fn panicked(&self) -> u64 {
        self.panicked.get()
    }

    fn insert(&self, future: Local) -> Result<TaskId, SpawnError> {
        let mut slots = self.slots.borrow_mut();
        let slot = match self.free.borrow_mut().pop() {
            Some(slot) => slot,
            None if slots.len() >= TASKS_MAX => return Err(SpawnError::Full),
            None => {
                slots.push(Slot { generation: 0, state: State::Free });
                (slots.len() - 1) as u32
            }
        };
        let place = &mut slots[slot as usize];
        let id = TaskId { slot, generation: place.generation };
        let ready = Arc::clone(&self.ready);
        let waker =
            Arc::new(TaskWaker { task: Some(id), is_queued: AtomicBool::new(false), ready });
        place.state = State::Idle(future, Arc::clone(&waker));
        drop(slots);
        waker.wake();
        Ok(id)
    }

    /// Polls the tasks that are ready now, each once; says whether there were any.
    pub(crate) fn run_ready(&self) -> bool {
        let mut round = std::mem::take(&mut *self.round.borrow_mut());
        std::mem::swap(&mut *self.ready.lock(), &mut round);
        let has_run = !round.is_empty();
        round.drain(..).for_each(|task| self.run(task));
        *self.round.borrow_mut() = round;
        has_run
    }

    fn run(&self, task: TaskId) {
        let taken =
            self.with(task, |state| std::mem::replace(state, State::Running { is_aborted: false }));
        let Some(State::Idle(mut future, waker)) = taken else { return };
        // Before it runs: a wake from here on is a new one.
        waker.take();
        let standard = Waker::from(Arc::clone(&waker));
        let is_done = future.as_mut().poll(&mut Context::from_waker(&standard)).is_ready();
        let is_aborted =
            self.with(task, |state| matches!(state, State::Running { is_aborted: true }));
        if is_done || is_aborted == Some(true) {
            self.free(task);
            drop(future);
        } else {
            self.with(task, |state| *state = State::Idle(future, waker));
        }
    }

    fn with<R>(&self, task: TaskId, act: impl FnOnce(&mut State) -> R) -> Option<R> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(task.slot as usize)?;
        (slot.generation == task.generation).then(|| act(&mut slot.state))
    }

    /// Frees the slot; gives what was in it back, to be dropped where nothing is borrowed.
    fn free(&self, task: TaskId) -> State {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[task.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.borrow_mut().push(task.slot);
        std::mem::replace(&mut slot.state, State::Free)
    }

    fn abort(&self, task: TaskId) {
        let is_idle = self.with(task, |state| match state {
            State::Idle(..) => true,
            State::Running { is_aborted } => {
                *is_aborted = true;
                false
            }
            State::Free => false,
        });
        if is_idle == Some(true) {
            drop(self.free(task));
        }
    }

    /// Drops all tasks.
    pub(crate) fn clear(&self) {
        for slot in 0.. {
            let task = match self.slots.borrow().get(slot as usize) {
                Some(found) => TaskId { slot, generation: found.generation },
                None => return,
            };
            self.abort(task);
        }
    }
}

/// Why a task was not taken; its future is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SpawnError {
    /// The runtime has a million tasks; from other threads: 4096 are on their way already.
    Full,
    /// The runtime has ended.
    Ended,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the runtime takes no more tasks before some have ended",
            Self::Ended => "the runtime has ended",
        })
    }
}

impl std::error::Error for SpawnError {}

impl From<SpawnError> for std::io::Error {
    fn from(error: SpawnError) -> Self {
        Self::other(error)
    }
}

/// Why a task gave no result.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// It panicked with this message. The other tasks and the loop continue.
    Panicked(String),
    /// It was aborted, or the runtime ended.
    Aborted,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(message) => write!(f, "the task panicked: {message}"),
            Self::Aborted => f.write_str("the task was aborted"),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for std::io::Error {
    fn from(error: JoinError) -> Self {
        Self::other(error)
    }
}

/// What a panic said; `panic!` panics with text.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

enum Outcome<T> {
    Pending(Option<Waker>),
    Done(Result<T, JoinError>),
    Taken,
}

/// The end of a task, as a future. A task continues when its handle is dropped.
pub struct JoinHandle<T> {
    outcome: Rc<RefCell<Outcome<T>>>,
    task: TaskId,
    tasks: Weak<Tasks>,
}

impl<T> JoinHandle<T> {
    /// Drops the task's future: at once, or when the poll that runs has returned.
    pub fn abort(&self) {
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.abort(self.task);
        }
    }

    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        !matches!(*self.outcome.borrow(), Outcome::Pending(_))
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.outcome.borrow_mut();
        if let Outcome::Pending(waker) = &mut *outcome {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match std::mem::replace(&mut *outcome, Outcome::Taken) {
            Outcome::Done(result) => Poll::Ready(result),
            _ => panic!("a task's result was asked for twice"),
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

/// Reports the end of a task, also when its future is dropped before.
struct Report<T>(Rc<RefCell<Outcome<T>>>);

impl<T> Report<T> {
    fn set(&self, result: Result<T, JoinError>) {
        let before = std::mem::replace(&mut *self.0.borrow_mut(), Outcome::Done(result));
        if let Outcome::Pending(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Report<T> {
    fn drop(&mut self) {
        if matches!(*self.0.borrow(), Outcome::Pending(_)) {
            self.set(Err(JoinError::Aborted));
        }
    }
}

/// Runs `future` as one of `tasks`.
pub(crate) fn spawn<F>(tasks: &Rc<Tasks>, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let outcome = Rc::new(RefCell::new(Outcome::Pending(None)));
    let report = Report(Rc::clone(&outcome));
    let weak = Rc::downgrade(tasks);
    let counted = Weak::clone(&weak);
    let task = tasks.insert(Box::pin(async move {
        let mut future = pin!(future);
        // After a panic the future is not polled again.
        let caught = std::future::poll_fn(|context| {
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
                Ok(poll) => poll.map(Ok),
                Err(panic) => Poll::Ready(Err(JoinError::Panicked(message_of(&*panic)))),
            }
        });
        let result = caught.await;
        if result.is_err()
            && let Some(tasks) = counted.upgrade()
        {
            tasks.panicked.set(tasks.panicked.get() + 1);
        }
        report.set(result);
    }))?;
    Ok(JoinHandle { outcome, task, tasks: weak })
}
