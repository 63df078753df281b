//! Futures on the event loops of pollux, with the I/O traits of tokio and of futures.
//!
//! A program that is written as futures runs on any mechanism that [`Driver`] names, io_uring by
//! completion included: a [`Runtime`] is one event loop of `pollux-engine` with an executor of
//! local tasks on it, owned by one thread. [`Stream`] has the traits `AsyncRead` and `AsyncWrite` of
//! both crates, so that hyper, and other crates that ask for these traits and not for `Send`, run on it
//! unchanged. Of tokio only the traits are used; no runtime of tokio is started.
//!
//! | for | use |
//! |---|---|
//! | a loop that runs a future | [`Runtime::block_on`] |
//! | tasks beside it | [`Handle::spawn`]; from other threads [`Remote::spawn`] |
//! | connections | [`Listener`], [`Stream::connect`], [`Stream::adopt`] |
//! | timers | [`Handle::sleep`], [`Handle::timeout`] |
//! | datagram sockets, signals, any other readable descriptor | [`Source`] |
//! | more cores | a `Runtime` in each thread, each with a listener that shares the port |
//!
//! ```
//! use pollux_async::{Driver, Limits, Listener, Runtime, Stream};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let mut runtime = Runtime::open(Driver::default(), Limits::default())?;
//! let handle = runtime.handle();
//! let echoed = runtime.block_on(async {
//!     let listener = Listener::bind(&handle, &"127.0.0.1:0".parse()?, false)?;
//!     let address = listener.address().clone();
//!     handle.spawn(async move {
//!         while let Ok(stream) = listener.accept().await {
//!             let (mut input, mut output) = tokio::io::split(stream);
//!             tokio::io::copy(&mut input, &mut output).await?;
//!         }
//!         Ok::<(), std::io::Error>(())
//!     })?;
//!
//!     let mut peer = Stream::connect(&handle, address).await?;
//!     peer.write_all(b"hello").await?;
//!     peer.shutdown().await?;
//!     let mut echoed = String::new();
//!     peer.read_to_string(&mut echoed).await?;
//!     Ok::<_, Box<dyn std::error::Error>>(echoed)
//! })??;
//! assert_eq!(echoed, "hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a loop does for a stream
//! * **Back-pressure** in both directions: a stream holds at most [`Stream::BUFFER_BYTES`] of input that
//!   was not read, then the loop stops reading; a write waits while as much of its output has not left.
//! * **The peer is watched**: one that takes nothing for [`Limits::write_timeout`] is closed, and the
//!   stream's calls fail with `TimedOut`.
//! * **Half-close**: a read gives 0 at the peer's end while writes continue; `shutdown` ends the output while
//!   reads continue.
//! * **A stream that is dropped** sends what was written to it and closes. Where input is left that was not read,
//!   which would make the kernel reset the connection and the peer lose the output, it ends its output first
//!   and drops what the peer still sends, within the limits [`Limits::linger_time`] and
//!   [`Limits::linger_bytes`]. [`Stream::reset`] ends it at once.
//! * **No input while output waits**: the loops read from a connection only while its output leaves. A
//!   protocol in which a peer sends without limit and reads nothing meanwhile stands still here,
//!   where independent directions would fill the memory of one side.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod connection;
mod executor;
mod runtime;
mod source;
mod stream;
mod tasks;
mod time;

pub use pollux_engine::{
    CloseCause, ConnectTo, Counter, Counters, Driver, Limits, ListenAddress, LoopError, Mechanism,
    Signal, Signals,
};
pub use runtime::{Handle, Remote, Runtime};
pub use source::{Listener, Source};
pub use stream::Stream;
pub use tasks::{JoinError, JoinHandle, SpawnError};
pub use time::{Elapsed, Sleep};
