//! Any readable descriptor: datagram sockets, signals, pidfds, timers, and the listener, a source of
//! connections.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::{fmt, io};

use pollux_engine::{ListenAddress, ListenError, SourceId};

use crate::executor::{Core, Waiters};
use crate::{Handle, Stream};

struct State<T> {
    source: T,
    /// The loop watches it, or was asked to.
    is_watched: Cell<bool>,
    /// Known while the loop watches it.
    id: Cell<Option<SourceId>>,
    failure: RefCell<Option<io::Error>>,
    waiting: Waiters,
}

/// What the loop watches.
struct Watched<T>(Rc<State<T>>);

impl<T: AsFd> AsFd for Watched<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.source.as_fd()
    }
}

/// A descriptor whose calls wait until it is readable. It has to be non-blocking, and anything but a
/// regular file.
///
/// A loop watches 1024 of them, listeners included.
///
/// ```
/// use pollux_async::{Driver, Limits, Runtime, Source};
/// use std::net::UdpSocket;
///
/// let mut runtime = Runtime::open(Driver::default(), Limits::default())?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// socket.set_nonblocking(true)?;
/// UdpSocket::bind("127.0.0.1:0")?.send_to(b"ping", socket.local_addr()?)?;
/// let source = Source::new(&runtime.handle(), socket);
/// let mut datagram = [0; 1500];
/// let (len, _from) =
///     runtime.block_on(source.when_readable(|socket| socket.recv_from(&mut datagram)))??;
/// assert_eq!(&datagram[..len], b"ping");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Source<T: AsFd + 'static> {
    state: Rc<State<T>>,
    core: Rc<Core>,
}

impl<T: AsFd + 'static> Source<T> {
    /// A source of the runtime of `handle`; it is watched while a call waits for it.
    #[must_use]
    pub fn new(handle: &Handle, source: T) -> Self {
        Self::of(&handle.0, source)
    }

    fn of(core: &Rc<Core>, source: T) -> Self {
        let state = State {
            source,
            is_watched: Cell::new(false),
            id: Cell::new(None),
            failure: RefCell::default(),
            waiting: Waiters::default(),
        };
        Self { state: Rc::new(state), core: Rc::clone(core) }
    }

    /// The descriptor, for calls that do not wait.
    #[must_use]
    pub fn get_ref(&self) -> &T {
        &self.state.source
    }

    /// Makes `call`, and again when the source is readable, until it returns anything but `WouldBlock`.
    /// Several tasks may wait; all are woken.
    ///
    /// # Errors
    /// The error of `call`; the loop's where it cannot watch the descriptor.
    pub async fn when_readable<R>(
        &self,
        mut call: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        poll_fn(|context| self.poll_with(context, &mut call)).await
    }

    /// As [`Source::when_readable`], for futures that are written by hand.
    ///
    /// # Errors
    /// As [`Source::when_readable`].
    pub fn poll_with<R>(
        &self,
        context: &Context<'_>,
        mut call: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        if let Some(error) = self.state.failure.borrow_mut().take() {
            return Poll::Ready(Err(error));
        }
        loop {
            match call(&self.state.source) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return Poll::Ready(outcome),
            }
        }
        if self.core.has_ended() {
            return Poll::Ready(Err(io::Error::other("the runtime of this source has ended")));
        }
        self.state.waiting.add(context.waker());
        self.watch();
        Poll::Pending
    }

    fn watch(&self) {
        if self.state.is_watched.replace(true) {
            return;
        }
        let state = Rc::clone(&self.state);
        self.core.request(move |event_loop| {
            let watched = event_loop.watch(Watched(Rc::clone(&state)), |watched, _, _| {
                if watched.0.waiting.wake() {
                    return ControlFlow::Continue(());
                }
                // Readable, and no task waits: it is watched again when one does.
                watched.0.is_watched.set(false);
                watched.0.id.set(None);
                ControlFlow::Break(())
            });
            match watched {
                Ok(id) => state.id.set(Some(id)),
                Err(error) => {
                    state.is_watched.set(false);
                    *state.failure.borrow_mut() = Some(error);
                    state.waiting.wake();
                }
            }
        });
    }
}

impl<T: AsFd + 'static> Drop for Source<T> {
    fn drop(&mut self) {
        if self.state.is_watched.get() {
            let state = Rc::clone(&self.state);
            self.core.request(move |event_loop| {
                if let Some(id) = state.id.take() {
                    event_loop.unwatch(id);
                }
            });
        }
    }
}

impl<T: AsFd + fmt::Debug + 'static> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.state.source).finish()
    }
}

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
