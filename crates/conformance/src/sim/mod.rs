//! A simulated kernel with a virtual clock: the oracle of the conformance suite, and what lets a
//! loop be tested without a kernel.
//!
//! A [`World`] owns model objects (pipes, socket pairs, eventfds, message queues), a clock, a
//! script and the faults that are still to come. [`World::open`] gives a [`pollux_poller::Poller`] on it
//! that does what `epoll(7)` does, checked against the real one by `tests/model/against_epoll.rs`
//! and `tests/model/random_operations.rs`. It never sleeps and never asks the real kernel what is
//! ready: virtual time passes at once. One thread only; a [`pollux_poller::Waker`] may still travel.
//!
//! ```
//! use pollux_conformance::sim::World;
//! use pollux_poller::{Events, Interest, Registration, Token, Trigger};
//! use std::os::fd::AsFd;
//! use std::time::Duration;
//!
//! let world = World::new();
//! let mut poller = world.open();
//! let (reader, writer) = world.pipe();
//! let token = Token::new(1, 0);
//! poller.add(reader.as_fd(), token, Registration::new(Interest::READABLE, Trigger::Level))?;
//!
//! // A write in an hour of the virtual clock, which takes no real time.
//! world.at(Duration::from_secs(3600), move |world| {
//!     world.write(&writer, 5).expect("the pipe is empty");
//! });
//! let mut events = Events::with_capacity(8);
//! poller.wait(&mut events, None)?;
//! assert_eq!(world.now(), Duration::from_secs(3600));
//! assert_eq!(events.iter().next().map(|event| event.token), Some(token));
//! # Ok::<(), pollux_poller::Error>(())
//! ```
//!
//! # What the model leaves out
//! Blocking descriptors, listening and connecting sockets, changed buffer sizes, nested pollers,
//! regular files. A descriptor that is not of this world is refused like a regular file.

mod kernel;
mod object;
mod poller;
mod streams;
mod world;

use std::os::fd::RawFd;

pub use poller::BACKEND;
pub use rustix::io::Errno;
pub use world::{SimFd, World};

/// A thing that goes wrong, or comes at an awkward moment, on real kernels too.
///
/// Faults of one kind are kept in order; each serves one call of any poller of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScriptedFault {
    /// A signal handler runs while the next wait sleeps: it ends early and says so. As with
    /// `epoll_wait(2)`, a wait that finds something at once, or only looks, is not interrupted.
    Interrupt,
    /// The descriptor with this number is looked at again without a cause, at once: an edge
    /// registration reports again what already held.
    Spurious(RawFd),
    /// The next addition fails: `ENOSPC` (`max_user_watches`) or `ENOMEM`.
    RefuseAdd(Errno),
    /// Notifications were lost and every edge registration is looked at again, at once; each
    /// poller counts an overflow.
    Overflow,
    /// The next wait fails.
    WaitError(Errno),
}
