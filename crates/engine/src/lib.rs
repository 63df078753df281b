//! Event loops for Linux servers: one set of sessions, two loops that run them.
//!
//! A [`Session`] is a protocol's state machine for one connection: the loop calls it with input, at the
//! end of input, when output has drained and at a deadline, and it replies through [`Actions`]. It never sees a descriptor, a
//! poller, a ring or a clock. The *readiness loop* drives sessions over any poller, the
//! *completion loop* over io_uring; a session cannot tell which one runs it, and the tests run
//! every session on every loop and require the same bytes.
//!
//! One thread owns one loop. Other threads send it messages: to a loop of a group
//! with [`LoopHandle::submit`], to any other loop through an [`Inbox`].
//!
//! The types to begin with: [`Session`], [`Actions`], [`EventLoop`] (one loop, turned by the program),
//! [`Group`] (a loop in each thread), [`Driver`] (the mechanism). `examples/` has whole programs:
//! `server` (echo over TCP and UDP, a timer, signals), `chat` (over TCP or a Unix socket), `proxy` (with
//! [`Relay`]), `client` (of many peers).
//!
//! ```
//! use pollux_engine::{Actions, Group, GroupConfig, ListenAddress, Session};
//! use std::io::{Read, Write};
//! use std::net::{Shutdown, TcpStream};
//! use std::time::Duration;
//!
//! struct Echo;
//!
//! impl Session for Echo {
//!     type Shared = ();
//!
//!     fn accepted(_: &mut (), _: &mut Actions<'_>) -> Self {
//!         Self
//!     }
//!
//!     fn on_bytes(&mut self, _: &mut (), actions: &mut Actions<'_>, input: &[u8]) -> usize {
//!         let len = input.len().min(actions.room());
//!         actions.send(&input[..len]);
//!         actions.notify_when_sent();
//!         len
//!     }
//! }
//!
//! let config = GroupConfig { threads: 2, ..GroupConfig::default() };
//! let group = Group::start::<Echo, _, std::io::Error>(&config, |_loop_index| Ok(()))?;
//! let ListenAddress::Tcp(address) = &group.addresses()[0] else { unreachable!("the default is TCP") };
//!
//! let mut peer = TcpStream::connect(address)?;
//! peer.write_all(b"hello")?;
//! peer.shutdown(Shutdown::Write)?;
//! let mut echoed = String::new();
//! peer.read_to_string(&mut echoed)?;
//! assert_eq!(echoed, "hello");
//!
//! group.drain(Duration::from_secs(5));
//! group.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod actions;
mod address;
mod admission;
mod affinity;
mod clock;
mod completion;
mod connecting;
mod conversation;
mod counters;
mod driver;
mod event_loop;
mod fd_table;
mod flow;
mod group;
mod inbox;
mod limits;
mod listener;
mod member;
mod output;
mod pipe;
mod readiness;
mod rehearsal;
mod relay;
mod session;
mod signals;
mod sockets;
mod sources;
mod takeover;
mod timerfd;
mod timers;
mod trimming;
mod turn;

pub use actions::{Actions, DeferredClose, FileRange};
pub use address::{Address, look_up};
pub use affinity::{CpuError, CpuList};
pub use clock::{Moment, Now, SharedDate};
pub use connecting::{ConnectError, ConnectTo};
pub use counters::{CloseCause, Counter, Counters};
pub use driver::{Driver, Started};
pub use event_loop::{AdoptError, EventLoop};
pub use fd_table::{FdTable, Ready, Watch};
pub use group::{DumpTimeout, Dumper, Group, GroupConfig, GroupError, LoopView};
pub use inbox::{Inbox, Sender, Undelivered, Wake};
pub use limits::Limits;
pub use listener::{AcceptedSocket, ListenError, Listener};
pub use member::{LoopHandle, SubmitError};
pub use pipe::{Pipe, SplicedIn};
pub use pollux_poller::{Counters as PollerCounters, Mechanism, Waker};
pub use rehearsal::Rehearsal;
pub use relay::Relay;
pub use session::{Command, ConnectionId, NoSession, Session};
pub use signals::{Signal, Signals};
pub use sockets::{ListenAddress, Listeners, Sockets};
pub use sources::SourceId;
pub use takeover::{Claim, SharedSocket};
pub use timerfd::Timer;
pub use turn::LoopError;
