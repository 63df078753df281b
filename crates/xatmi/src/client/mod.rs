//! The calling side: one client for each thread that calls.
//!
//! Programs and the C interface use it. Where the pool has queues, it makes its own reply queue, sends to
//! those of services and never makes or removes those; where it has shared memory, requests and replies
//! are there. It has no thread of its own, so everything happens within its methods; between them replies
//! wait where they were put, in queues beyond a depth at the workers.
//!
//! | file | subject |
//! |---|---|
//! | `flags` | how a single call is to be made |
//! | `outcome` | what goes into a call and what comes out |
//! | `typed` | calls with a [`Buffer`](crate::buffer::Buffer) each way |
//! | `send` | requests on their way out, and waiting for room |
//! | `poll_lock` | one thread of a process polls for room in a queue |
//! | `receive` | replies: waited for, matched, kept, delivered |
//! | `calls` | which calls are out |
//! | `transport`, `mailbox` | the two ways to the workers: queues, or requests in shared memory |
//! | `connection`, `greeting` | the first words with the manager |
//! | `successor` | the next manager, when this one ended |

mod calls;
mod connection;
mod flags;
mod greeting;
mod mailbox;
mod outcome;
mod poll_lock;
mod receive;
mod send;
mod successor;
mod transport;
mod typed;

use std::time::Duration;

pub use self::calls::DESCRIPTORS_MAX;
pub use self::flags::CallFlags;
pub use self::greeting::{ClientHello, GREETING_LEN_BYTES_MAX, KnownContext, Welcome};
pub use self::outcome::{Arrived, Arriving, Descriptor, Outgoing, ReplyError, Which};
pub use self::typed::{Answer, CallError};

use self::calls::Calls;
use self::connection::Connection;
use self::successor::Successor;
use self::transport::Transport;
use crate::access::Group;
use crate::clock::monotonic_ns;
use crate::environment::{Environment, TIMEOUT_MAX};
use crate::error::{Code, Error};
use crate::large::Outbox;
use crate::queue::Prefix;
use crate::wire::ClientAddress;

/// How long a client that ends waits for workers to take the payloads of its large requests.
const SHUTDOWN_NS: u64 = 1_000_000_000;

/// A client context: what `tpinit` makes and `tpterm` ends.
///
/// Dropping it removes its reply queue, if it has one, and tells the manager; calls that are out are cancelled.
/// While requests longer than a message were not taken yet, that waits for them, a second at most.
/// It may move to another thread, but is used by one at a time.
#[derive(Debug)]
pub struct Client {
    /// Before the connection, whose number is in its name: fields are dropped in this order.
    transport: Transport,
    connection: Connection,
    successor: Successor,
    address: ClientAddress,
    prefix: Prefix,
    /// Whose members may be at the other end of a conversation.
    group: Option<Group>,
    /// The pool is that of another user, who cannot read a memfd of this process.
    is_guest: bool,
    calls: Calls,
    outbox: Outbox,
    /// A request on its way out.
    outgoing: Box<[u8]>,
    /// A reply that just came.
    incoming: Box<[u8]>,
    timeout: Duration,
    next_timeout: Option<Duration>,
    urcode: i64,
    counters: ClientCounters,
}

/// What a client has done and dropped so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientCounters {
    /// Requests that went into a queue.
    pub sent: u64,
    /// Replies that were delivered, errors of services included.
    pub delivered: u64,
    /// Replies that came before they were asked for.
    pub kept: u64,
    /// Times that a full queue was waited for.
    pub waits_for_room: u64,
    /// Replies dropped because their call had been cancelled or was over.
    pub late: u64,
    /// Messages dropped because they were for an earlier owner of the queue's name.
    pub foreign: u64,
    /// Messages dropped because they were none.
    pub malformed: u64,
    /// Times that another manager was come to, after the end of the one before it.
    pub managers_followed: u64,
}

impl Client {
    /// Joins the pool of this environment.
    ///
    /// # Errors
    /// TPESYSTEM when no pool runs there or its manager does not answer; TPEPERM when it is that of
    /// another user and not open to a group of this one; TPEOS when there is no
    /// descriptor or no room in the limits for a reply queue.
    pub fn open(environment: &Environment) -> Result<Self, Error> {
        let prefix = environment.prefix.clone();
        let connection = Connection::open(&prefix, environment.group.as_ref())?;
        let (welcome, memory) = connection.greet(&prefix)?;
        let address = connection.address();
        let transport = Transport::open(&prefix, &connection, &welcome, memory.as_ref())?;
        let scratch = vec![0; transport.message_len_bytes()].into_boxed_slice();
        let pools = Duration::from_secs(welcome.timeout_s.into());
        Ok(Self {
            transport,
            is_guest: connection.is_guest(),
            connection,
            successor: Successor::default(),
            address,
            prefix,
            group: environment.group.clone(),
            calls: Calls::default(),
            outbox: Outbox::default(),
            outgoing: scratch.clone(),
            incoming: scratch,
            timeout: environment.timeout.unwrap_or(pools).min(TIMEOUT_MAX),
            next_timeout: None,
            urcode: 0,
            counters: ClientCounters::default(),
        })
    }

    /// Sends a request and waits for its reply, which is written to the memory that `room` gives
    /// for it: `tpcall`.
    ///
    /// `room` is asked once, when the reply is there, and must give exactly as many bytes as it
    /// is told. The call is over afterwards, whatever came of it. TPNOBLOCK forbids to wait for
    /// room in the queue only; TPNOREPLY and TPGETANY have no meaning here.
    ///
    /// # Errors
    /// Those of [`send_request`](Self::send_request), of
    /// [`wait_reply`](Self::wait_reply) and of `room`.
    pub fn call_into<'b>(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
        room: impl FnOnce(&Arriving) -> Result<&'b mut [u8], Error>,
    ) -> Result<Arrived, Error> {
        let sending = flags.without(CallFlags::NO_REPLY);
        let call_id = self.send_call(service, request, sending, true)?;
        let deadline_ns = self.calls.get_mut(call_id).map_or(0, |slot| slot.deadline_ns);
        let waiting = flags.without(CallFlags::NO_BLOCK);
        let arrived = self.wait_until(Some(call_id), deadline_ns, waiting, room);
        if arrived.is_err() {
            self.give_up(call_id);
        }
        arrived.map_err(Error::from)
    }

    /// Gives up a call: its reply, if one comes, is dropped. The service is not told: `tpcancel`.
    ///
    /// # Errors
    /// TPEBADDESC when no such call is out.
    pub fn cancel(&mut self, descriptor: Descriptor) -> Result<(), Error> {
        let call_id = self.calls.find(descriptor).ok_or_else(|| unknown(descriptor))?;
        self.give_up(call_id);
        Ok(())
    }

    fn give_up(&mut self, call_id: u64) {
        self.calls.close(call_id);
        if let Some(len) = self.transport.give_up(call_id, &mut self.incoming) {
            self.drop_late(len);
        }
    }

    /// What the service of the last delivered reply gave for it: `tpurcode`.
    #[must_use]
    pub fn urcode(&self) -> i64 {
        self.urcode
    }

    /// How long a call may take where it is not said for the call.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sets how long calls may take from now on, a year at most.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout.min(TIMEOUT_MAX);
    }

    /// Sets how long the next call, request or wait for a reply may take; `None` takes that back:
    /// `tpsblktime` with TPBLK_NEXT.
    pub fn set_next_timeout(&mut self, timeout: Option<Duration>) {
        self.next_timeout = timeout.map(|timeout| timeout.min(TIMEOUT_MAX));
    }

    /// Who this context is.
    #[must_use]
    pub fn address(&self) -> ClientAddress {
        self.address
    }

    /// Calls whose reply has not come.
    #[must_use]
    pub fn calls_out(&self) -> usize {
        self.calls.out()
    }

    /// What was done and dropped so far.
    #[must_use]
    pub fn counters(&self) -> ClientCounters {
        self.counters
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Requests that nobody waits for may still be under way, and their payloads are here.
        self.outbox.finish(monotonic_ns() + SHUTDOWN_NS);
    }
}

/// When something that begins at `now_ns` has to be over, on the monotonic clock.
fn after(now_ns: u64, timeout: Duration) -> u64 {
    // Time-outs are a year at most, and the clock counts from the start of the machine.
    now_ns + timeout.as_nanos() as u64
}

fn unknown(descriptor: Descriptor) -> Error {
    let detail = format!("no call with the descriptor {} is out", descriptor.number());
    Error::new(Code::BadDescriptor, detail)
}

fn late() -> Error {
    Error::new(Code::Time, "the time for the call is over")
}

fn interrupted() -> Error {
    Error::new(Code::GotSignal, "a signal came while the call waited; TPSIGRSTRT goes on waiting")
}
