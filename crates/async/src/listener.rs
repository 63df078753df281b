//! Where connections come from.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::{fmt, io};

use pollux_engine::{ListenAddress, ListenError};

use crate::executor::Core;
use crate::source::Source;
use crate::{Handle, Stream};

/// A socket that takes connections, TCP or unix. Dropping it closes it.
///
/// Connections wait in the kernel's queue until they are accepted. No more are accepted than
/// [`Limits::connections_max`](crate::Limits::connections_max) allows to be open at once, and
/// [`Limits::accepts_per_turn`](crate::Limits::accepts_per_turn) before the tasks of others run.
///
/// ```
/// use pollux_async::{Driver, Limits, Listener, Runtime, Stream};
///
/// let mut runtime = Runtime::open(Driver::default(), Limits::default())?;
/// let handle = runtime.handle();
/// runtime.block_on(async {
///     let listener = Listener::bind(&handle, &"127.0.0.1:0".parse()?, false)?;
///     let peer = Stream::connect(&handle, listener.address().clone()).await?;
///     let accepted = listener.accept().await?;
///     assert_eq!(peer.peer(), Some(listener.address()));
///     assert!(accepted.peer().is_some());
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Listener {
    socket: Source<pollux_engine::Listener>,
    core: Rc<Core>,
}

impl Listener {
    /// Binds and listens. `shares_port` sets SO_REUSEPORT, for a listener in each of several threads.
    ///
    /// # Errors
    /// [`ListenError`] says what stands in the way.
    pub fn bind(
        handle: &Handle,
        address: &ListenAddress,
        shares_port: bool,
    ) -> Result<Self, ListenError> {
        let socket = pollux_engine::Listener::open(address, shares_port)?;
        Ok(Self { socket: Source::of(&handle.0, socket), core: Rc::clone(&handle.0) })
    }

    /// Where it listens, with the port that the kernel chose.
    #[must_use]
    pub fn address(&self) -> &ListenAddress {
        self.socket.get_ref().address()
    }

    /// The next connection.
    ///
    /// # Errors
    /// What `accept(2)` says of this process: EMFILE, ENFILE, ENOBUFS, ENOMEM. The listener is as before,
    /// and a server waits a moment before it tries again. A connection that its peer gave up meanwhile
    /// is not an error.
    pub async fn accept(&self) -> io::Result<Stream> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// As [`Listener::accept`], for futures that are written by hand.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn poll_accept(&self, context: &Context<'_>) -> Poll<io::Result<Stream>> {
        if !self.core.may_accept(context.waker()) {
            return Poll::Pending;
        }
        let accepted = ready!(self.socket.poll_with(context, pollux_engine::Listener::accept))?;
        Poll::Ready(Ok(Stream::accepted(&self.core, accepted)))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.get_ref().fmt(f)
    }
}
