//! One loop of a group: turns, messages and the end in its thread, and the handle by which other threads reach it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use pollux_poller::Waker;

use crate::admission::{LoopBalancer, Message};
use crate::event_loop::EventLoop;
use crate::sockets::LoopListeners;
use crate::{
    CloseCause, Counters, CpuError, CpuList, Driver, Inbox, Limits, LoopError, Sender, Session,
    SharedDate, Undelivered,
};

/// Messages that wait for a loop. Connections that are handed over are most of them; with more
/// than this the acceptor keeps what comes.
const MESSAGES_MAX: usize = 4096;

/// What a loop's thread is given.
pub(crate) struct Setup {
    pub(crate) index: usize,
    pub(crate) driver: Driver,
    pub(crate) limits: Limits,
    pub(crate) cpus: Option<CpuList>,
    pub(crate) listeners: LoopListeners,
    /// Whether another loop hands connections over to this one.
    pub(crate) is_fed: bool,
    pub(crate) peers: Vec<(Sender<Message, Waker>, Arc<Counters>)>,
    pub(crate) date: Arc<SharedDate>,
}

impl Setup {
    /// Moves the calling thread to its CPU.
    pub(crate) fn pin(&self) -> Result<(), CpuError> {
        let Some(cpus) = &self.cpus else { return Ok(()) };
        cpus.pin(self.index).map(drop)
    }
}

/// A loop and its inbox.
pub(crate) struct Member<S: Session> {
    event_loop: EventLoop<S>,
    inbox: Inbox<Message>,
    mail: Vec<Message>,
    /// Another loop may still hand connections over.
    is_fed: bool,
    drain_by: Option<Instant>,
    is_stopped: bool,
}

impl<S: Session + 'static> Member<S> {
    pub(crate) fn new(
        mut event_loop: EventLoop<S>,
        setup: Setup,
    ) -> (Self, Sender<Message, Waker>) {
        let (inbox, sender) = Inbox::new(MESSAGES_MAX, event_loop.waker());
        for (listener, is_shared) in setup.listeners {
            event_loop.listen(listener, is_shared);
        }
        if !setup.peers.is_empty() {
            event_loop.hand_out(LoopBalancer::new(setup.peers, event_loop.counters()));
        }
        let is_fed = setup.is_fed;
        let mail = Vec::new();
        let drain_by = None;
        let is_stopped = false;
        (Self { event_loop, inbox, mail, is_fed, drain_by, is_stopped }, sender)
    }

    /// Turns until the group ends.
    pub(crate) fn run(mut self) -> Result<(), LoopError> {
        let outcome = self.turn_to_the_end();
        let cause =
            if self.drain_by.is_some() { CloseCause::Drained } else { CloseCause::LoopEnded };
        self.event_loop.close_all(cause);
        outcome
    }

    fn turn_to_the_end(&mut self) -> Result<(), LoopError> {
        while !self.is_over() || self.has_late_mail() {
            let time_left = self.drain_by.map(|end| end.saturating_duration_since(Instant::now()));
            if self.event_loop.turn(time_left)? {
                self.read_mail();
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let has_drained = |end: Instant| {
            let may_get_more = self.is_fed || self.event_loop.is_listening();
            let is_empty = self.event_loop.open_connections() == 0 && !may_get_more;
            is_empty || Instant::now() >= end
        };
        self.is_stopped || self.drain_by.is_some_and(has_drained)
    }

    /// Connections that were handed over just before the end are served, or at least closed
    /// and counted.
    fn has_late_mail(&mut self) -> bool {
        self.read_mail();
        !self.is_over()
    }

    fn read_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.inbox.drain(&mut mail);
        for message in mail.drain(..) {
            self.event_loop.count_message();
            match message {
                Message::Admit(socket) => self.event_loop.admit(socket),
                Message::Call(call) => call(&mut self.event_loop),
                Message::Describe(answer) => {
                    // A requester that has given up takes no answer.
                    let _ = answer.send(self.event_loop.describe());
                }
                Message::LastAdmitted => self.is_fed = false,
                Message::Drain(at_most) => {
                    // A second call may bring the end nearer, or put it off.
                    self.drain_by = Some(Instant::now() + at_most);
                    self.event_loop.drain();
                }
                Message::Stop => self.is_stopped = true,
            }
        }
        self.mail = mail;
    }
}

/// Why a call was not taken. It is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SubmitError {
    /// 4096 messages wait for the loop already: try again when it has had a turn.
    Full,
    /// The loop has ended.
    Ended,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the loop's inbox is full: try again when it has had a turn",
            Self::Ended => "the loop has ended",
        })
    }
}

impl std::error::Error for SubmitError {}

impl From<SubmitError> for std::io::Error {
    fn from(error: SubmitError) -> Self {
        Self::other(error)
    }
}

/// A handle of one loop of a [`Group`](crate::Group), for any thread; cheap to clone.
///
/// What the program could do with a loop of its own, it does in a call that the loop makes between two turns:
/// messages to what the sessions share, connects, adoptions, listeners and sources.
pub struct LoopHandle<S: Session> {
    sender: Sender<Message, Waker>,
    /// Calls take the loop; nothing of it is kept here.
    sessions: PhantomData<fn(&mut EventLoop<S>)>,
}

impl<S: Session + 'static> LoopHandle<S> {
    pub(crate) fn new(sender: Sender<Message, Waker>) -> Self {
        Self { sender, sessions: PhantomData }
    }

    /// Runs `call` with the loop, in its thread, after its current turn. Calls of one thread are
    /// made in their order.
    ///
    /// It must not block: all connections of the loop wait for it. A panic in it ends the loop. A loop
    /// that ends before it was made drops it.
    ///
    /// ```no_run
    /// # use pollux_engine::{ConnectTo, LoopHandle, Moment, Session};
    /// # fn f<S: Session<Shared = Vec<String>> + Send + 'static>(handle: LoopHandle<S>, to: ConnectTo, session: S) -> Result<(), pollux_engine::SubmitError> {
    /// handle.submit(|event_loop| event_loop.shared_mut().push("hello".to_owned()))?;
    /// handle.submit(move |event_loop| {
    ///     if let Err((_session, error)) = event_loop.connect(&to, session, Moment::NEVER) {
    ///         event_loop.shared_mut().push(error.to_string());
    ///     }
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SubmitError`]; the call is not made.
    pub fn submit(
        &self,
        call: impl FnOnce(&mut EventLoop<S>) + Send + 'static,
    ) -> Result<(), SubmitError> {
        let message = Message::Call(Box::new(move |event_loop| {
            call(event_loop.downcast_mut().expect("the group checked the session type"));
        }));
        self.sender.send(message).map_err(|undelivered| match undelivered {
            Undelivered::Full(_) => SubmitError::Full,
            Undelivered::Closed(_) => SubmitError::Ended,
        })
    }
}

impl<S: Session> Clone for LoopHandle<S> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), sessions: PhantomData }
    }
}

impl<S: Session> fmt::Debug for LoopHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoopHandle")
    }
}
