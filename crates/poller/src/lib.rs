//! One readiness contract over every event mechanism of Linux.
//!
//! A [`Poller`] watches file descriptors and says which of them became ready. The mechanisms
//! behind it (`select`, `poll`, Linux AIO poll, `epoll`, io_uring used as a readiness poller)
//! are chosen at run time, by name or by capability, and pass one conformance suite. Where the
//! kernel interfaces differ, the difference is declared with its reason (`docs/reference/poller-differences.md`
//! of the repository) and checked by that suite; no backend hides it. [`Caps`] says what an opened
//! poller can do.
//!
//! This crate never reads from or writes to a watched
//! descriptor, never closes one and never spawns a thread. What a loop on it does by itself:
//!
//! | for | a loop |
//! |---|---|
//! | a descriptor | sets it to non-blocking, adds it with [`Mechanism::trigger`], deletes it before it closes it |
//! | an event | reads, or writes, until `WouldBlock`: an edge is reported once |
//! | output that does not fit | modifies to [`Interest::WRITABLE`], and back when it has left; with an edge, registers both for life |
//! | [`Trigger::Oneshot`] | modifies after each event, also with the same interest |
//! | a timer | passes the time that is left as the timeout of [`Poller::wait`], or watches a `timerfd_create(2)` descriptor |
//! | a signal | watches a `signalfd(2)` descriptor or a pipe that a handler writes to; a handler may also use a [`Waker`] |
//! | another thread | gives it a [`Waker`]; [`Events::is_woken`] says that it was used |
//!
//! `pollux-engine` is such a loop, with connections, timers and signals.
//!
//! ```
//! use pollux_poller::{Events, Interest, Mechanism, Registration, Token, Trigger};
//! use std::io::Write;
//! use std::os::fd::AsFd;
//!
//! let mut poller = Mechanism::Epoll.open()?;
//! let (mut ours, theirs) = std::os::unix::net::UnixStream::pair()?;
//! let token = Token::new(7, 0);
//! poller.add(theirs.as_fd(), token, Registration::new(Interest::READABLE, Trigger::Level))?;
//! ours.write_all(b"x")?;
//!
//! let mut events = Events::with_capacity(64);
//! poller.wait(&mut events, None)?;
//! assert_eq!(events.iter().next().map(|event| event.token), Some(token));
//! poller.delete(theirs.as_fd())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod aio;
mod backend_base;
mod conditions;
mod contract;
mod counters;
mod epoll;
mod epoll_beside;
mod error;
mod events;
mod mechanism;
mod opening;
mod poll;
mod select;
mod table;
mod uring_changes;
mod uring_poll;
mod uring_ring;
mod waker;

pub use aio::{AioPool, AioPoolCounts};
pub use conditions::{Interest, Readiness, Registration, Trigger};
pub use contract::{Caps, Change, Expected, FilePolicy, Poller, Threads};
pub use counters::{Count, Counters, CountersSnapshot, HISTOGRAM_BUCKETS};
pub use error::Error;
pub use events::{Event, Events, Token};
pub use mechanism::{Backend, Facility, Keeps, Mechanism, UnknownMechanism};
pub use pollux_sys::poll_select::SignalMask;
pub use waker::Waker;
