//! The calling side: one client for each thread that calls.
//!
//! Programs and the C interface use it. Where the pool has queues, it makes its own reply queue, sends to
//! those of services and never makes or removes those; where it has shared memory, requests and replies
//! are there. It has no thread of its own, so everything happens within its methods; between them replies
//! wait where they were put, in queues beyond a depth at the workers.
//!
//! | file | subject |
//! |---|---|
//! | `call` | a request and its reply in one: calls, the begin of a conversation |
//! | `receive` | replies: waited for, matched to their calls, kept or delivered |
//! | `send` | requests on their way out, and waiting for room |
//! | `successor` | the next manager, when this one ended |
//! | `out_calls` | which calls are out, and the replies that are kept for them |
//! | `queues` | messages by a reply queue and those of services |
//! | `mailbox` | messages as requests and replies in shared memory |
//! | `transport` | what either is to the rest |
//! | `poll_lock` | which thread of a process polls a full queue |
//! | `connection` | the connection to the manager, and its greeting |
//!
//! `send`, `receive` and `successor` call one another as methods of [`Client`]; else each uses only those below it.

mod call;
mod connection;
mod mailbox;
mod out_calls;
mod poll_lock;
mod queues;
mod receive;
mod send;
mod successor;
mod transport;

use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use std::time::Duration;

use crate::buffer::{Buffer, BufferType};
use crate::environment::{Environment, Group, TIMEOUT_MAX};
use crate::error::{Code, Error};
use crate::large::Outbox;
use crate::priority::{Asked, Priority};
use crate::queue::{Prefix, ServiceName, monotonic_ns};
use crate::wire::ClientAddress;
use connection::Connection;
use out_calls::Calls;
use successor::Successor;
use transport::Transport;

pub use connection::{ClientHello, GREETING_LEN_BYTES_MAX, KnownContext, Welcome};
pub use out_calls::DESCRIPTORS_MAX;
pub use receive::{Answer, CallError};

/// How long a client that ends waits for workers to take the payloads of its large requests.
const SHUTDOWN_NS: u64 = 1_000_000_000;

/// A client context: what `tpinit` makes and `tpterm` ends.
///
/// Dropping it removes its reply queue, if it has one, and ends the connection to the manager; calls that are out are cancelled.
/// While requests longer than a message were not taken yet, that waits for them, a second at most.
/// It may move to another thread, but is used by one at a time.
#[derive(Debug)]
pub struct Client {
    /// Before the connection, whose number is in its name: fields are dropped in this order.
    transport: Box<dyn Transport>,
    connection: Connection,
    successor: Successor,
    address: ClientAddress,
    prefix: Prefix,
    /// Whose members may be at the other end of a conversation.
    group: Option<Group>,
    /// The pool is that of another user, which cannot read a memfd of this process.
    is_guest: bool,
    calls: Calls,
    outbox: Outbox,
    /// A request on its way out.
    outgoing: Box<[u8]>,
    /// A reply that just came.
    incoming: Box<[u8]>,
    timeout: Duration,
    next_timeout: Option<Duration>,
    /// Of services that the configuration gives one.
    priorities: Vec<(ServiceName, Priority)>,
    next_priority: Option<Asked>,
    last_priority: Priority,
    urcode: i64,
    /// What came beside the data of the last reply.
    call_info: Option<Box<[u8]>>,
    counters: ClientCounters,
}

/// Counters of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientCounters {
    /// Requests that went out.
    pub sent: u64,
    /// Replies that were delivered, errors of services included.
    pub delivered: u64,
    /// Replies that came before they were asked for.
    pub kept: u64,
    /// Times that room for a request was waited for.
    pub waits_for_room: u64,
    /// Replies dropped because their call had been cancelled or was over.
    pub late: u64,
    /// Messages dropped because they were for an earlier owner of the queue's name.
    pub foreign: u64,
    /// Bytes dropped because they were not a message.
    pub malformed: u64,
    /// Changes to another manager, after the end of the one before it.
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
        let transport =
            successor::offered_transport(&prefix, &connection, &welcome, memory.as_ref())?;
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
            priorities: welcome.priorities(),
            next_priority: None,
            last_priority: Priority::USUAL,
            urcode: 0,
            call_info: None,
            counters: ClientCounters::default(),
        })
    }

    /// The value of the last delivered reply for `tpurcode`.
    #[must_use]
    pub fn urcode(&self) -> i64 {
        self.urcode
    }

    /// The fields that came beside the data of the last delivered reply, if some did: `tpgetcallinfo`.
    pub fn take_call_info(&mut self) -> Option<Box<[u8]>> {
        self.call_info.take()
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

    /// Says the priority of the next request; `None` takes that back: `tpsprio`.
    pub fn set_next_priority(&mut self, asked: Option<Asked>) {
        self.next_priority = asked;
    }

    /// That of the last request: `tpgprio`.
    #[must_use]
    pub fn last_priority(&self) -> Priority {
        self.last_priority
    }

    /// That of a request for `service`, which is the next.
    #[inline]
    fn take_priority(&mut self, service: &ServiceName) -> Priority {
        let known = self.priorities.iter().find(|(name, _)| name == service);
        let usual = known.map_or(Priority::USUAL, |(_, priority)| *priority);
        self.last_priority = usual.changed_by(self.next_priority.take());
        self.last_priority
    }

    /// The address of this context.
    #[must_use]
    pub fn address(&self) -> ClientAddress {
        self.address
    }

    /// Calls whose reply has not come.
    #[must_use]
    pub fn calls_out(&self) -> usize {
        self.calls.out()
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> ClientCounters {
        self.counters
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Requests without a reply may still be under way, and their payloads are here.
        self.outbox.finish(monotonic_ns() + SHUTDOWN_NS);
    }
}

/// When something that begins at `now_ns` has to be over, on the monotonic clock.
fn after(now_ns: u64, timeout: Duration) -> u64 {
    // Time-outs are a year at most, and the clock counts from the start of the machine.
    now_ns + timeout.as_nanos() as u64
}

fn late() -> Error {
    Error::new(Code::Time, "the time for the call is over")
}

fn interrupted() -> Error {
    Error::new(
        Code::GotSignal,
        "a signal came while the call waited; TPSIGRSTRT continues the wait",
    )
}

/// How a single call is to be made: a set of the flags of the specification, with the numbers of C.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CallFlags(u32);

impl CallFlags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// TPNOBLOCK: fail with TPEBLOCK instead of waiting for room in a queue, or, when a reply is
    /// asked for, instead of waiting for it.
    pub const NO_BLOCK: Self = Self(0x1);
    /// TPSIGRSTRT: continue to wait after a signal handler ran, instead of failing with TPGOTSIG.
    pub const SIGNAL_RESTART: Self = Self(0x2);
    /// TPNOREPLY: there is no reply and no descriptor.
    pub const NO_REPLY: Self = Self(0x4);
    /// TPNOTRAN: outside the transaction, which is an affair of the caller's.
    pub const NO_TRANSACTION: Self = Self(0x8);
    /// TPTRAN: within the caller's transaction, which the service sees in its flags. Programs do not give it: it is none of the
    /// flags that [`CallFlags::from_bits`] takes.
    pub const TRANSACTION: Self = Self(0x10);
    /// TPNOTIME: wait as long as it takes.
    pub const NO_TIME: Self = Self(0x20);
    /// TPGETANY: any reply will do.
    pub const ANY: Self = Self(0x80);
    /// TPNOCHANGE: the reply must have the type of the buffer that is there.
    pub const NO_CHANGE: Self = Self(0x100);

    const ALL: [(Self, &'static str); 7] = [
        (Self::NO_BLOCK, "TPNOBLOCK"),
        (Self::SIGNAL_RESTART, "TPSIGRSTRT"),
        (Self::NO_REPLY, "TPNOREPLY"),
        (Self::NO_TRANSACTION, "TPNOTRAN"),
        (Self::NO_TIME, "TPNOTIME"),
        (Self::ANY, "TPGETANY"),
        (Self::NO_CHANGE, "TPNOCHANGE"),
    ];

    /// The flags of a number as C programs write it; bits without a meaning for calls are left
    /// out.
    #[must_use]
    pub fn from_bits(bits: i64) -> Self {
        let known = Self::ALL.iter().fold(0, |bits, (flag, _)| bits | flag.0);
        Self((bits & i64::from(known)) as u32)
    }

    /// The number as C programs write it.
    #[must_use]
    pub const fn bits(self) -> i64 {
        self.0 as i64
    }

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These without `flags`.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

impl BitOr for CallFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for CallFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for CallFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = Self::ALL.iter().filter(|(flag, _)| self.contains(*flag));
        let names: Vec<_> = given.map(|(_, name)| *name).collect();
        f.write_str(&names.join("|"))
    }
}

/// A buffer to send, borrowed for the time of the call.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Its type; `None` when there is no buffer.
    pub buffer_type: Option<BufferType>,
    /// The size of the whole buffer, at least as long as `bytes`; the receiver makes room for it.
    pub buffer_size_bytes: usize,
    /// Whether the bytes are those of [`call_info::joined`](crate::call_info::joined).
    pub has_info: bool,
    /// The bytes that are sent.
    pub bytes: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// No buffer.
    pub const NONE: Outgoing<'static> =
        Outgoing { buffer_type: None, buffer_size_bytes: 0, has_info: false, bytes: &[] };

    /// The bytes of `buffer` that are sent: text with its NUL, fields as far as they are used, `len_bytes` of
    /// anything else.
    ///
    /// # Errors
    /// TPEINVAL when its content is not of its type, or shorter than `len_bytes`.
    pub fn of(buffer: &'a Buffer, len_bytes: usize) -> Result<Self, Error> {
        let used = buffer.used_len(len_bytes)?;
        Ok(Self {
            buffer_type: Some(buffer.buffer_type()),
            buffer_size_bytes: buffer.size(),
            has_info: false,
            bytes: &buffer.as_bytes()[..used],
        })
    }
}

/// Names a call that is out, within its client; positive, as in C.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Descriptor(i32);

impl Descriptor {
    /// The descriptor with this number; the client refuses one that names no call.
    #[must_use]
    pub const fn from_number(number: i32) -> Self {
        Self(number)
    }

    /// The number, as in C.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

/// Which reply is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// That to one call.
    One(Descriptor),
    /// Whatever comes first.
    Any,
}

/// A reply that is about to be delivered: what room has to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arriving {
    /// The type of the buffer; `None` when the service returned none.
    pub buffer_type: Option<BufferType>,
    /// The size of the buffer at the sender: what the receiver's should have at least.
    pub buffer_size_bytes: usize,
    /// Bytes that will be written.
    pub len_bytes: usize,
}

/// A reply that was delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// The call that it belongs to; used up now.
    pub descriptor: Descriptor,
    /// Whether the service returned TPFAIL: TPESVCFAIL, with the buffer.
    pub is_failure: bool,
    /// The first argument of `tpreturn`.
    pub rval: i32,
    /// The value of `tpreturn` for `tpurcode`.
    pub urcode: i64,
    /// Whether the caller's transaction can only abort, by what the service did.
    pub is_abort_only: bool,
    pub payload: Arriving,
}

/// Why no reply was delivered.
#[derive(Debug)]
pub struct ReplyError {
    /// The call that the error belongs to, where there is one: used up now, except after TPETIME,
    /// TPEBLOCK and TPGOTSIG.
    pub descriptor: Option<Descriptor>,
    pub error: Error,
}

impl ReplyError {
    /// The kind of error.
    #[must_use]
    pub fn code(&self) -> Code {
        self.error.code()
    }
}

impl From<ReplyError> for Error {
    fn from(failed: ReplyError) -> Self {
        failed.error
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for ReplyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_c_and_unknown_bits_are_left_out() {
        let flags = CallFlags::from_bits(0x1 | 0x100 | 0x4000);
        assert_eq!(flags, CallFlags::NO_BLOCK | CallFlags::NO_CHANGE);
        assert_eq!(flags.bits(), 0x101);
        assert!(!flags.contains(CallFlags::NO_TIME));
        assert_eq!(format!("{flags:?}"), "TPNOBLOCK|TPNOCHANGE");
        assert_eq!(CallFlags::from_bits(-1).without(CallFlags::NO_BLOCK).bits(), 0x1ae);
    }
}
