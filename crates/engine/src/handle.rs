//! How other threads reach a loop of a group: the handle that sends calls through its inbox.

use std::fmt;
use std::marker::PhantomData;

use pollux_poller::Waker;

use crate::event_loop::EventLoop;
use crate::hand_out::Message;
use crate::{Sender, Session, Undelivered};

/// Why a call was not taken. It is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TellError {
    /// 4096 messages wait for the loop already: try again when it has had a turn.
    Full,
    /// The loop has ended.
    Ended,
}

impl fmt::Display for TellError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the loop's inbox is full: try again when it has had a turn",
            Self::Ended => "the loop has ended",
        })
    }
}

impl std::error::Error for TellError {}

impl From<TellError> for std::io::Error {
    fn from(error: TellError) -> Self {
        Self::other(error)
    }
}

/// A way to one loop of a [`Group`](crate::Group), for any thread; cheap to clone.
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

    /// Has `call` made with the loop, in its thread, after its current turn. Calls of one thread are
    /// made in their order.
    ///
    /// It must not block: all connections of the loop wait for it. A panic in it ends the loop. A loop
    /// that ends before it was made drops it.
    ///
    /// ```no_run
    /// # use pollux_engine::{ConnectTo, LoopHandle, Moment, Session};
    /// # fn f<S: Session<Shared = Vec<String>> + Send + 'static>(handle: LoopHandle<S>, to: ConnectTo, session: S) -> Result<(), pollux_engine::TellError> {
    /// handle.tell(|event_loop| event_loop.shared().push("hello".to_owned()))?;
    /// handle.tell(move |event_loop| {
    ///     if let Err((_session, error)) = event_loop.connect(&to, session, Moment::NEVER) {
    ///         event_loop.shared().push(error.to_string());
    ///     }
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TellError`]; the call is not made.
    pub fn tell(
        &self,
        call: impl FnOnce(&mut EventLoop<S>) + Send + 'static,
    ) -> Result<(), TellError> {
        let message = Message::Call(Box::new(move |event_loop| {
            call(event_loop.downcast_mut().expect("the group checked the session type"));
        }));
        self.sender.send(message).map_err(|undelivered| match undelivered {
            Undelivered::Full(_) => TellError::Full,
            Undelivered::Closed(_) => TellError::Ended,
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
