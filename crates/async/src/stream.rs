//! Connections as streams of bytes, with the traits of tokio and of futures.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use pollux_engine::{AcceptedSocket, CloseCause, ConnectError, ConnectTo, ListenAddress, Moment};
use tokio::io::ReadBuf;

use crate::Handle;
use crate::connection::{Channel, Connection, INPUT_MAX, OUTPUT_MAX, Stage};
use crate::executor::Core;

/// A connection: TCP or unix, accepted or opened.
///
/// Reads and writes move bytes between the caller and two buffers; the loop fills and empties those.
/// `flush` waits until the kernel has all that was written, `shutdown` ends the output behind that.
///
/// ```
/// use pollux_async::{Driver, Limits, Runtime, Stream};
/// use std::os::unix::net::UnixStream;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let mut runtime = Runtime::open(Driver::default(), Limits::default())?;
/// let handle = runtime.handle();
/// let (one, other) = UnixStream::pair()?;
/// one.set_nonblocking(true)?;
/// other.set_nonblocking(true)?;
/// runtime.block_on(async {
///     let mut one = Stream::adopt(&handle, one.into());
///     let mut other = Stream::adopt(&handle, other.into());
///     one.write_all(b"ping").await?;
///     drop(one); // what was written still arrives
///     let mut received = String::new();
///     other.read_to_string(&mut received).await?;
///     assert_eq!(received, "ping");
///     Ok::<(), std::io::Error>(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Stream {
    channel: Rc<RefCell<Channel>>,
    core: Rc<Core>,
    peer: Option<ListenAddress>,
}

impl Stream {
    /// Most bytes that a stream holds in each direction: input that was not read, and output that the
    /// loop has not taken.
    pub const BUFFER_BYTES: usize = INPUT_MAX;

    /// Opens a connection. Without a [`Handle::timeout`] around it the kernel gives up after some
    /// minutes.
    ///
    /// # Errors
    /// What `connect(2)` says; the loop has as many connections as its limits allow.
    pub async fn connect(handle: &Handle, to: impl Into<ConnectTo>) -> io::Result<Self> {
        let to = to.into();
        let channel = Channel::new(Stage::Opening);
        let peer = Some(to.peer.clone());
        let stream = Self { channel, core: Rc::clone(&handle.0), peer };
        let begun = Rc::clone(&stream.channel);
        let core = Rc::clone(&stream.core);
        stream.core.request(move |event_loop| {
            let session = Connection(Rc::clone(&begun));
            match event_loop.connect(&to, session, Moment::NEVER) {
                Ok(id) => {
                    core.opened();
                    begun.borrow_mut().taken(id, &core);
                }
                Err((_, ConnectError::System { cause, .. })) => begun.borrow_mut().failed(cause),
                Err((_, other)) => begun.borrow_mut().failed(io::Error::other(other)),
            }
        });
        poll_fn(|context| stream.poll_open(context)).await?;
        Ok(stream)
    }

    /// Takes over a connected stream socket of any family, which has to be non-blocking. A socket that
    /// is something else fails the first read or write.
    #[must_use]
    pub fn adopt(handle: &Handle, socket: OwnedFd) -> Self {
        let stream = Self::opened(&handle.0, None);
        let begun = Rc::clone(&stream.channel);
        let core = Rc::clone(&handle.0);
        stream.core.request(move |event_loop| {
            match event_loop.adopt(socket, Connection(Rc::clone(&begun))) {
                Ok(id) => begun.borrow_mut().taken(id, &core),
                Err((_, _, error)) => {
                    core.closed();
                    let error = io::Error::new(io::ErrorKind::InvalidInput, error);
                    begun.borrow_mut().failed(error);
                }
            }
        });
        stream
    }

    pub(crate) fn accepted(core: &Rc<Core>, accepted: AcceptedSocket) -> Self {
        let stream = Self::opened(core, accepted.peer().map(ListenAddress::Tcp));
        core.adopt(accepted, Connection(Rc::clone(&stream.channel)));
        stream
    }

    /// Counted from now on, so that a burst of accepts keeps to the limit.
    fn opened(core: &Rc<Core>, peer: Option<ListenAddress>) -> Self {
        core.opened();
        Self { channel: Channel::new(Stage::Open), core: Rc::clone(core), peer }
    }

    /// The other end: what was connected to, or the address of an accepted TCP connection.
    #[must_use]
    pub fn peer(&self) -> Option<&ListenAddress> {
        self.peer.as_ref()
    }

    /// Ends the connection at once, so that a TCP peer gets an error and not an end. What was written
    /// and has not left is lost.
    pub fn reset(self) {
        self.channel.borrow_mut().wants_reset = true;
        // The session is called as the stream is dropped.
    }

    fn poll_open(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.core.has_ended() {
            return Poll::Ready(Err(runtime_ended()));
        }
        let mut channel = self.channel.borrow_mut();
        match &mut channel.stage {
            Stage::Opening => {
                channel.writer = Some(context.waker().clone());
                Poll::Pending
            }
            Stage::Failed(error) => Poll::Ready(Err(taken(error))),
            Stage::Open | Stage::Closed(_) => Poll::Ready(Ok(())),
        }
    }

    /// Bytes into `into`, which is not empty; 0 at the peer's end.
    fn poll_bytes(&self, context: &Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut channel = self.channel.borrow_mut();
        if !channel.input.is_empty() {
            return Poll::Ready(Ok(channel.read(into, &self.core)));
        }
        if channel.has_input_ended {
            return Poll::Ready(Ok(0));
        }
        match &mut channel.stage {
            Stage::Closed(CloseCause::PeerClosed) => Poll::Ready(Ok(0)),
            Stage::Closed(cause) => Poll::Ready(Err(closed(*cause))),
            Stage::Failed(error) => Poll::Ready(Err(taken(error))),
            Stage::Opening | Stage::Open if self.core.has_ended() => {
                Poll::Ready(Err(runtime_ended()))
            }
            Stage::Opening | Stage::Open => {
                channel.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Takes as much of `pieces` as fits.
    fn poll_take<'a>(
        &self,
        context: &Context<'_>,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Poll<io::Result<usize>> {
        let mut channel = self.channel.borrow_mut();
        if let Err(error) = self.check(&mut channel) {
            return Poll::Ready(Err(error));
        }
        if channel.wants_end {
            let what = "the output of this stream was ended";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, what)));
        }
        let mut pieces = pieces.filter(|piece| !piece.is_empty()).peekable();
        if pieces.peek().is_none() {
            return Poll::Ready(Ok(0));
        }
        let mut taken = 0;
        for piece in pieces {
            let len = piece.len().min(OUTPUT_MAX - channel.output.len());
            channel.output.push(&piece[..len]);
            taken += len;
            if len < piece.len() {
                break;
            }
        }
        if taken == 0 {
            channel.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        // While a piece is on its way, the session takes the next by itself.
        if !channel.is_sending {
            channel.call(&self.core);
        }
        Poll::Ready(Ok(taken))
    }

    fn poll_left(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let mut channel = self.channel.borrow_mut();
        if channel.output.is_empty() && !channel.is_sending {
            return Poll::Ready(Ok(()));
        }
        if let Err(error) = self.check(&mut channel) {
            return Poll::Ready(Err(error));
        }
        channel.writer = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_end(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let mut channel = self.channel.borrow_mut();
        if !std::mem::replace(&mut channel.wants_end, true) {
            channel.call(&self.core);
        }
        let has_left = channel.output.is_empty() && !channel.is_sending;
        if channel.is_output_ended && has_left {
            return Poll::Ready(Ok(()));
        }
        if let Err(error) = self.check(&mut channel) {
            return Poll::Ready(Err(error));
        }
        if has_left {
            // The session ends the output in this turn; a stream that is dropped now needs one call less.
            return Poll::Ready(Ok(()));
        }
        channel.writer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whether the connection still takes output.
    fn check(&self, channel: &mut Channel) -> io::Result<()> {
        match &mut channel.stage {
            Stage::Closed(cause) => Err(closed(*cause)),
            Stage::Failed(error) => Err(taken(error)),
            Stage::Opening | Stage::Open if self.core.has_ended() => Err(runtime_ended()),
            Stage::Opening | Stage::Open => Ok(()),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.channel.borrow_mut().dropped(&self.core);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channel = self.channel.borrow();
        let mut all = f.debug_struct("Stream");
        all.field("peer", &self.peer).field("stage", &channel.stage);
        all.field("input_bytes", &channel.input.len());
        all.field("output_bytes", &channel.output.len()).finish_non_exhaustive()
    }
}

fn runtime_ended() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the runtime of this stream has ended")
}

fn taken(error: &mut Option<io::Error>) -> io::Error {
    let again =
        || io::Error::new(io::ErrorKind::NotConnected, "the connection was not established");
    error.take().unwrap_or_else(again)
}

/// What a call on a connection that was closed for `cause` says.
fn closed(cause: CloseCause) -> io::Error {
    use io::ErrorKind;
    let (kind, what) = match cause {
        CloseCause::PeerClosed => (ErrorKind::BrokenPipe, "the peer closed the connection"),
        CloseCause::PeerReset => (ErrorKind::ConnectionReset, "the peer reset the connection"),
        CloseCause::SlowReader => {
            (ErrorKind::TimedOut, "the peer did not take its output fast enough")
        }
        CloseCause::LoopEnded | CloseCause::Drained => return runtime_ended(),
        _ => (ErrorKind::ConnectionAborted, "the connection was closed"),
    };
    io::Error::new(kind, what)
}

impl tokio::io::AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let read = self.poll_bytes(context, into.initialize_unfilled());
        read.map_ok(|len| into.advance(len))
    }
}

impl tokio::io::AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_take(context, std::iter::once(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_take(context, pieces.iter().map(|piece| &**piece))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_left(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_end(context)
    }
}

impl futures_io::AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_bytes(context, into)
    }
}

impl futures_io::AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_take(context, std::iter::once(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_take(context, pieces.iter().map(|piece| &**piece))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_left(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_end(context)
    }
}
