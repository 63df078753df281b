//! Event loops for Linux servers: one set of sessions, two loops that run them.
//!
//! A [`Session`] is a protocol's state machine for one connection: it is given bytes, an end, a
//! drained output or a deadline, and answers with [`Actions`]. It never sees a descriptor, a
//! poller, a ring or a clock. The *readiness loop* drives sessions over any poller, the
//! *completion loop* over io_uring; a session cannot tell which one runs it, and the tests run
//! every session on every loop and require the same bytes.
//!
//! One thread owns one loop. Other threads reach it by its inbox and its waker.
#![forbid(unsafe_code)]

mod actions;
mod admission;
mod adopting;
mod affinity;
mod alarm;
mod clock;
mod completion;
mod connecting;
mod conversation;
mod counters;
mod driver;
mod ending;
mod errand;
mod event_loop;
mod fd_table;
mod flow;
mod group;
mod hand_out;
mod handle;
mod inbox;
mod isolation;
mod limits;
mod listener;
mod member;
mod moment;
mod output;
mod pipe;
mod readiness;
mod rehearsal;
mod session;
mod signals;
mod sockets;
mod sources;
mod takeover;
mod timers;

pub use actions::{Actions, FileRange, HeldEnding};
pub use adopting::AdoptError;
pub use affinity::{CpuError, CpuList};
pub use clock::{SHARED_DATE_STEP, SharedDate};
pub use connecting::{ConnectError, ConnectTo};
pub use counters::{CloseCause, Counter, Counters};
pub use driver::{Driver, UnknownDriver};
pub use errand::Errand;
pub use event_loop::{EventLoop, LoopError};
pub use fd_table::{DirectionSnapshot, Due, FdSnapshot, FdTable, Watch};
pub use group::{Group, GroupConfig, GroupError, Listeners, Look, LoopView};
pub use handle::{LoopHandle, TellError};
pub use inbox::{Inbox, Sender, Undelivered, Wake};
pub use isolation::{Isolation, StillRunning};
pub use limits::Limits;
pub use listener::{ListenAddress, ListenError, Listener};
pub use moment::{Moment, Now};
pub use pipe::{Pipe, SplicedIn};
pub use rehearsal::Rehearsal;
pub use session::{ConnectionId, Session};
pub use signals::{Signal, Signals};
pub use sockets::Sockets;
pub use sources::{SourceId, Timer};
pub use takeover::{Claim, SharedSocket};
