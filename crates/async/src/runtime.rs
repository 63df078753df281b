//! One loop, with tasks on it, in one thread.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pollux_engine::{
    CloseCause, Counters, Driver, EventLoop, Inbox, Limits, LoopError, Sender, Undelivered,
};

use crate::connection::{Connection, Shared};
use crate::executor::Core;
use crate::tasks::{self, JoinHandle, SpawnError};
use crate::time::{Elapsed, Sleep};

/// How long the end of a runtime waits for output of streams that were dropped.
const END_TIME: Duration = Duration::from_secs(1);

/// Tasks of other threads that are on their way.
const MESSAGES_MAX: usize = 4096;

type Message = Box<dyn FnOnce(&Handle) + Send>;

/// An event loop that runs futures. Opened, used and dropped by one thread.
///
/// Dropping it drops all tasks and closes all connections; what was written to streams is sent first,
/// for up to a second.
///
/// ```
/// use pollux_async::{Driver, Limits, Runtime};
/// use std::time::Duration;
///
/// let mut runtime = Runtime::open(Driver::default(), Limits::default())?;
/// let handle = runtime.handle();
/// let sum = runtime.block_on(async {
///     let one = handle.spawn(async { 1 })?;
///     let timers = handle.clone();
///     let two = handle.spawn(async move {
///         timers.sleep(Duration::from_millis(5)).await;
///         2
///     })?;
///     Ok::<i32, Box<dyn std::error::Error>>(one.await? + two.await?)
/// })??;
/// assert_eq!(sum, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Runtime {
    event_loop: EventLoop<Connection>,
    handle: Handle,
    inbox: Inbox<Message>,
    /// Empty between two turns; kept for its memory.
    messages: Vec<Message>,
    remote: Remote,
}

impl Runtime {
    /// Opens a loop on `driver`.
    ///
    /// # Errors
    /// [`LoopError`] says why the driver is not available here.
    pub fn open(driver: Driver, limits: Limits) -> Result<Self, LoopError> {
        let core = Core::new(limits.clone());
        let event_loop = EventLoop::open(driver, Shared(Rc::clone(&core)), limits)?;
        let (inbox, sender) = Inbox::new(MESSAGES_MAX, event_loop.waker());
        let handle = Handle(core);
        let remote = Remote(sender);
        Ok(Self { event_loop, handle, inbox, messages: Vec::new(), remote })
    }

    /// What tasks, streams and timers are made with.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The way for other threads to start tasks.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// What the loop did: connections, bytes, turns. Readable from any thread while it runs.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.event_loop.counters()
    }

    /// Runs the loop until `future` is done. Other tasks run meanwhile; they are not polled between calls of `block_on`.
    ///
    /// # Errors
    /// [`LoopError`] when the kernel refuses to wait.
    pub fn block_on<F: Future>(&mut self, future: F) -> Result<F::Output, LoopError> {
        let core = Rc::clone(&self.handle.0);
        let mut future = pin!(future);
        let waker = Waker::from(Arc::clone(&core.main));
        waker.wake_by_ref();
        loop {
            if core.main.take()
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Ok(output);
            }
            core.run_requests(&mut self.event_loop);
            if core.has_commands() {
                self.event_loop.run_commands();
            }
            self.event_loop.turn(None)?;
            self.read_messages();
            core.run_requests(&mut self.event_loop);
        }
    }

    fn read_messages(&mut self) {
        self.inbox.drain(&mut self.messages);
        for message in self.messages.drain(..) {
            message(&self.handle);
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let core = Rc::clone(&self.handle.0);
        core.run_requests(&mut self.event_loop);
        core.end();
        let end = Instant::now() + END_TIME;
        while core.leaving.get() > 0 || core.has_commands() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.event_loop.turn(Some(left)).is_err() {
                break;
            }
        }
        // Their streams are dropped and the kernel has their output: an end, not a reset.
        self.event_loop.close_all(CloseCause::Session);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.event_loop.open_connections();
        f.debug_struct("Runtime").field("open_connections", &open).finish_non_exhaustive()
    }
}

/// A runtime, for its own thread: cheap to clone. It does not keep the runtime alive.
#[derive(Clone)]
pub struct Handle(pub(crate) Rc<Core>);

impl Handle {
    /// Runs `future` beside the others. It is polled first in the next turn.
    ///
    /// A panic in it ends this task alone: see [`JoinError`](crate::JoinError).
    ///
    /// # Errors
    /// [`SpawnError`]; the future is dropped.
    pub fn spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        if self.0.has_ended() {
            return Err(SpawnError::Ended);
        }
        tasks::spawn(&self.0.tasks, future)
    }

    /// Waits for `time` from now on.
    #[must_use]
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep::new(Rc::clone(&self.0.timers), time)
    }

    /// What `future` gives, within `time` from now on; then it is dropped.
    ///
    /// # Errors
    /// [`Elapsed`] when the time is over first.
    pub async fn timeout<F: Future>(
        &self,
        time: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut sleep = pin!(self.sleep(time));
        std::future::poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            sleep.as_mut().poll(context).map(|()| Err(Elapsed))
        })
        .await
    }

    /// Tasks that panicked since the runtime was opened.
    #[must_use]
    pub fn panicked_tasks(&self) -> u64 {
        self.0.tasks.panicked()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

/// A runtime, for other threads: cheap to clone.
///
/// ```
/// use pollux_async::{Driver, Limits, Runtime};
///
/// let mut runtime = Runtime::open(Driver::default(), Limits::default())?;
/// let remote = runtime.remote();
/// let (sender, receiver) = tokio::sync::oneshot::channel();
/// let thread = std::thread::spawn(move || {
///     remote.spawn(|handle| {
///         let _handle = handle.clone(); // for streams and timers of the task
///         async move { drop(sender.send("from another thread")) }
///     })
/// });
/// assert_eq!(runtime.block_on(receiver)??, "from another thread");
/// thread.join().expect("it does not panic")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Remote(Sender<Message, pollux_engine::Waker>);

impl Remote {
    /// Has `make` called in the runtime's thread, after its current turn, and runs the future that it
    /// gives as a task. The future may hold what is not `Send`; what `make` itself holds is sent.
    ///
    /// # Errors
    /// [`SpawnError`]; nothing is called. A runtime that ends before, or that has its most tasks,
    /// drops the future.
    pub fn spawn<F>(
        &self,
        make: impl FnOnce(&Handle) -> F + Send + 'static,
    ) -> Result<(), SpawnError>
    where
        F: Future<Output = ()> + 'static,
    {
        let message: Message = Box::new(move |handle| {
            let future = make(handle);
            // Full, or ended: the future is dropped, as said above.
            let _ = handle.spawn(future);
        });
        self.0.send(message).map_err(|undelivered| match undelivered {
            Undelivered::Full(_) => SpawnError::Full,
            Undelivered::Closed(_) => SpawnError::Ended,
        })
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote")
    }
}
