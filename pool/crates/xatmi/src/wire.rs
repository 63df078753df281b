//! The bytes of requests and replies on the queues.
//!
//! Clients, workers and the manager (which answers for the dead) write and read them. Pure: no
//! queue, no descriptor, no clock. Decoding is total: whatever the bytes are, the result is a
//! message or the first thing that is wrong with it, never a panic.
//!
//! ```text
//!  all numbers little endian
//!   0 magic "PXAT"   4 version  5 kind  6 type  7 bits: 0 large, 1 no reply, 2 transaction, 3 info
//!   8 payload_len   16 buffer_size   24 call_id   32 nonce      (u64 each)
//!  40 large pid     44 large fd      48 large inode             (0 when not large)
//!     request                             reply
//!  56 client pid    60 client context   56 error   60 rval
//!  64 deadline_ns                       64 urcode
//!  72 cd   76 name_len                  72 payload
//!  77 priority  78 zero (2)
//!  80 name, payload
//! ```

use std::fmt;

use crate::buffer::BufferType;
use crate::error::Code;
use crate::priority::Priority;
use crate::queue::ServiceName;

/// The longest head, the longest name included.
pub const HEAD_LEN_BYTES_MAX: usize = REQUEST_FIXED + ServiceName::LEN_BYTES_MAX;
/// The longest payload and the largest buffer that a message may name: a receiver never reserves more
/// because of a length that it was sent.
pub const PAYLOAD_LEN_BYTES_MAX: u64 = 1 << 30;

const MAGIC: [u8; 4] = *b"PXAT";
const VERSION: u8 = 3;
const BIT_LARGE: u8 = 1;
/// The caller does not wait for a reply.
const BIT_NO_REPLY: u8 = 2;
/// Of a request: it belongs to a transaction. Of a reply: that can only abort.
const BIT_TRANSACTION: u8 = 4;
/// Fields of tpsetcallinfo are behind the data.
const BIT_INFO: u8 = 8;
const KIND_REQUEST: u8 = 1;
const KIND_REPLY: u8 = 2;
const REQUEST_FIXED: usize = 80;
const REPLY_FIXED: usize = 72;

/// Names a client context: what a reply is sent to, and what makes it sure that it is the right
/// one even if process and context numbers were used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientAddress {
    /// The client's process.
    pub pid: u32,
    /// The context within that process.
    pub context: u32,
    /// A random number of the context.
    pub nonce: u64,
}

/// Where the payload of a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// In the message.
    Inline(&'a [u8]),
    /// In a memfd of the sender.
    Large(LargeRef),
}

/// Names a payload in a memfd of another process; see [`large`](crate::large).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargeRef {
    /// The process that holds it.
    pub pid: u32,
    /// The number of the descriptor there.
    pub fd: i32,
    /// The inode of the memfd, as numbers of processes and descriptors are used again.
    pub inode: u64,
    /// Bytes of the payload.
    pub len_bytes: u64,
}

/// A typed payload under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payload<'a> {
    /// The type of the buffer; `None` when there is no buffer.
    pub buffer_type: Option<BufferType>,
    /// The size of the sender's buffer: the receiver makes room for this or the payload,
    /// whichever is more.
    pub buffer_size_bytes: u64,
    /// Whether the bytes are those of [`call_info::joined`](crate::call_info::joined).
    pub has_info: bool,
    /// The bytes, or where they are.
    pub body: Body<'a>,
}

impl Payload<'_> {
    /// No buffer.
    pub const NONE: Payload<'static> = Payload {
        buffer_type: None,
        buffer_size_bytes: 0,
        has_info: false,
        body: Body::Inline(&[]),
    };

    /// Bytes of the payload, wherever they are.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match self.body {
            Body::Inline(bytes) => bytes.len() as u64,
            Body::Large(large) => large.len_bytes,
        }
    }
}

/// A request for a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The caller; the reply goes there.
    pub client: ClientAddress,
    /// The caller's number of this call.
    pub call_id: u64,
    /// The caller's descriptor, which the service sees.
    pub cd: i32,
    /// When the caller stops waiting, in nanoseconds of the monotonic clock; 0 for never.
    pub deadline_ns: u64,
    /// Whether the caller does not wait for a reply.
    pub is_without_reply: bool,
    /// Whether it belongs to a transaction of the caller.
    pub is_in_transaction: bool,
    pub priority: Priority,
    /// The service that is asked for.
    pub service: ServiceName,
    pub payload: Payload<'a>,
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// The nonce of the context that asked.
    pub nonce: u64,
    /// The caller's number of this call.
    pub call_id: u64,
    /// `None` when the service returned TPSUCCESS. Only TPESVCFAIL comes with data.
    pub error: Option<Code>,
    /// The first argument of `tpreturn`.
    pub rval: i32,
    /// The value of `tpreturn` for the caller's `tpurcode`.
    pub urcode: i64,
    /// Whether the transaction that the request belonged to can only abort, by what the service did.
    pub is_abort_only: bool,
    pub payload: Payload<'a>,
}

/// A message of either kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    Request(Request<'a>),
    Reply(Reply<'a>),
}

/// Why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Malformed {
    /// Shorter than a head.
    Short,
    /// Another magic number or version: not ours.
    Foreign,
    /// Neither a request nor a reply, or not the kind that belongs on this queue.
    Kind,
    /// An unknown type of buffer, or data without a type.
    Tag,
    /// A bit or a byte that has no meaning is set.
    Reserved,
    /// Lengths that contradict each other or the limits.
    Length,
    /// Not the name of a service.
    Service,
    /// Not a priority.
    Priority,
    /// An error number that does not exist.
    Error,
    /// A descriptor that cannot be one.
    Large,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the message is shorter than its head",
            Self::Foreign => "the message has another magic number or version",
            Self::Kind => "the message is not of a kind that belongs on this queue",
            Self::Tag => "the message has an unknown type of buffer, or data without a type",
            Self::Reserved => "the message has a bit set that has no meaning",
            Self::Length => "the lengths in the message contradict each other or the limits",
            Self::Service => "the message does not name a service",
            Self::Priority => "the message has a priority that is none",
            Self::Error => "the message carries an error number that does not exist",
            Self::Large => "the message names a descriptor that cannot be one",
        })
    }
}

impl std::error::Error for Malformed {}

impl<'a> Message<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// The first thing that is wrong with the bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match Common::decode(bytes)?.kind {
            KIND_REQUEST => Request::decode(bytes).map(Self::Request),
            KIND_REPLY => Reply::decode(bytes).map(Self::Reply),
            _ => Err(Malformed::Kind),
        }
    }
}

impl<'a> Request<'a> {
    /// Bytes of the whole message with a payload of `payload_len_bytes` in it.
    #[must_use]
    pub fn len_bytes(service: &ServiceName, payload_len_bytes: usize) -> usize {
        REQUEST_FIXED + service.as_str().len() + payload_len_bytes
    }

    /// Writes the message to the start of `out` and returns its length; `None` when `out` is too
    /// short, so that the payload has to go into a memfd.
    #[must_use]
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        let name = self.service.as_str().as_bytes();
        let bits =
            bit(self.is_without_reply, BIT_NO_REPLY) | bit(self.is_in_transaction, BIT_TRANSACTION);
        let common =
            Common { kind: KIND_REQUEST, bits, call_id: self.call_id, nonce: self.client.nonce };
        let (head, rest) = out.split_first_chunk_mut::<REQUEST_FIXED>()?;
        common.encode(&self.payload, head);
        put(head, 56, self.client.pid.to_le_bytes());
        put(head, 60, self.client.context.to_le_bytes());
        put(head, 64, self.deadline_ns.to_le_bytes());
        put(head, 72, self.cd.to_le_bytes());
        put(head, 76, [name.len() as u8, self.priority.number(), 0, 0]);
        let (out, rest) = rest.split_at_mut_checked(name.len())?;
        out.copy_from_slice(name);
        Some(REQUEST_FIXED + name.len() + put_inline(&self.payload, rest)?)
    }

    /// Reads a request.
    ///
    /// # Errors
    /// The first thing that is wrong with the bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let common = Common::decode(bytes)?;
        if common.kind != KIND_REQUEST {
            return Err(Malformed::Kind);
        }
        let (head, rest) = bytes.split_first_chunk::<REQUEST_FIXED>().ok_or(Malformed::Short)?;
        let [name_len, priority, 0, 0] = take::<4>(head, 76) else {
            return Err(Malformed::Reserved);
        };
        let priority = Priority::new(priority.into()).ok_or(Malformed::Priority)?;
        let (name, rest) = rest.split_at_checked(usize::from(name_len)).ok_or(Malformed::Length)?;
        let service = str::from_utf8(name).ok().and_then(ServiceName::new);
        let client = ClientAddress {
            pid: u32::from_le_bytes(take(head, 56)),
            context: u32::from_le_bytes(take(head, 60)),
            nonce: common.nonce,
        };
        Ok(Self {
            client,
            call_id: common.call_id,
            deadline_ns: u64::from_le_bytes(take(head, 64)),
            cd: i32::from_le_bytes(take(head, 72)),
            is_without_reply: common.bits & BIT_NO_REPLY != 0,
            is_in_transaction: common.bits & BIT_TRANSACTION != 0,
            priority,
            service: service.ok_or(Malformed::Service)?,
            payload: decode_payload(head, rest)?,
        })
    }

    /// Reads a request from the beginning of `bytes`, behind which anything may stand.
    ///
    /// # Errors
    /// As [`Request::decode`].
    pub fn decode_first(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let head = bytes.first_chunk::<REQUEST_FIXED>().ok_or(Malformed::Short)?;
        let payload_len = usize::try_from(inline_len_bytes(head));
        let len = (REQUEST_FIXED + usize::from(head[76]))
            .checked_add(payload_len.map_err(|_| Malformed::Length)?);
        Self::decode(len.and_then(|len| bytes.get(..len)).ok_or(Malformed::Length)?)
    }
}

impl<'a> Reply<'a> {
    /// Bytes of the whole message with a payload of `payload_len_bytes` in it.
    #[must_use]
    pub const fn len_bytes(payload_len_bytes: usize) -> usize {
        REPLY_FIXED + payload_len_bytes
    }

    /// A reply without data that carries an error.
    #[must_use]
    pub fn failing(nonce: u64, call_id: u64, error: Code) -> Self {
        let rval = 0;
        let urcode = 0;
        let is_abort_only = false;
        let payload = Payload::NONE;
        Self { nonce, call_id, error: Some(error), rval, urcode, is_abort_only, payload }
    }

    /// Writes the message to the start of `out` and returns its length; `None` when `out` is too
    /// short, so that the payload has to go into a memfd.
    #[must_use]
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        let bits = bit(self.is_abort_only, BIT_TRANSACTION);
        let common = Common { kind: KIND_REPLY, bits, call_id: self.call_id, nonce: self.nonce };
        let (head, rest) = out.split_first_chunk_mut::<REPLY_FIXED>()?;
        common.encode(&self.payload, head);
        put(head, 56, self.error.map_or(0, Code::number).to_le_bytes());
        put(head, 60, self.rval.to_le_bytes());
        put(head, 64, self.urcode.to_le_bytes());
        Some(REPLY_FIXED + put_inline(&self.payload, rest)?)
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// The first thing that is wrong with the bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let common = Common::decode(bytes)?;
        if common.kind != KIND_REPLY {
            return Err(Malformed::Kind);
        }
        if common.bits & BIT_NO_REPLY != 0 {
            return Err(Malformed::Reserved);
        }
        let (head, rest) = bytes.split_first_chunk::<REPLY_FIXED>().ok_or(Malformed::Short)?;
        let error = match i32::from_le_bytes(take(head, 56)) {
            0 => None,
            number => Some(Code::from_number(number).ok_or(Malformed::Error)?),
        };
        Ok(Self {
            nonce: common.nonce,
            call_id: common.call_id,
            error,
            rval: i32::from_le_bytes(take(head, 60)),
            urcode: i64::from_le_bytes(take(head, 64)),
            is_abort_only: common.bits & BIT_TRANSACTION != 0,
            payload: decode_payload(head, rest)?,
        })
    }
}

/// The first 56 bytes of both kinds, without those of the payload.
struct Common {
    kind: u8,
    bits: u8,
    call_id: u64,
    nonce: u64,
}

impl Common {
    fn encode(&self, payload: &Payload<'_>, head: &mut [u8]) {
        let (large_bit, large) = match payload.body {
            Body::Inline(_) => (0, LargeRef { pid: 0, fd: 0, inode: 0, len_bytes: 0 }),
            Body::Large(large) => (BIT_LARGE, large),
        };
        put(head, 0, MAGIC);
        let bits = self.bits | large_bit | bit(payload.has_info, BIT_INFO);
        put(head, 4, [VERSION, self.kind, tag_of(payload.buffer_type), bits]);
        put(head, 8, payload.len_bytes().to_le_bytes());
        put(head, 16, payload.buffer_size_bytes.to_le_bytes());
        put(head, 24, self.call_id.to_le_bytes());
        put(head, 32, self.nonce.to_le_bytes());
        put(head, 40, large.pid.to_le_bytes());
        put(head, 44, large.fd.to_le_bytes());
        put(head, 48, large.inode.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let head = bytes.first_chunk::<REPLY_FIXED>().ok_or(Malformed::Short)?;
        let [version, kind, _, bits] = take::<4>(head, 4);
        if take(head, 0) != MAGIC || version != VERSION {
            return Err(Malformed::Foreign);
        }
        if bits & !(BIT_LARGE | BIT_NO_REPLY | BIT_TRANSACTION | BIT_INFO) != 0 {
            return Err(Malformed::Reserved);
        }
        let call_id = u64::from_le_bytes(take(head, 24));
        Ok(Self { kind, bits, call_id, nonce: u64::from_le_bytes(take(head, 32)) })
    }
}

fn bit(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

/// Bytes of the payload that stand in the message itself, by what its head claims.
fn inline_len_bytes(head: &[u8]) -> u64 {
    if head[7] & BIT_LARGE != 0 { 0 } else { u64::from_le_bytes(take(head, 8)) }
}

/// Reads the payload whose head is `head`, and whose bytes, if it is not large, are `rest`.
fn decode_payload<'a>(head: &[u8], rest: &'a [u8]) -> Result<Payload<'a>, Malformed> {
    let [_, _, tag, bits] = take::<4>(head, 4);
    let buffer_type = type_of(tag).ok_or(Malformed::Tag)?;
    let len_bytes = u64::from_le_bytes(take(head, 8));
    let buffer_size_bytes = u64::from_le_bytes(take(head, 16));
    if len_bytes.max(buffer_size_bytes) > PAYLOAD_LEN_BYTES_MAX {
        return Err(Malformed::Length);
    }
    let large = LargeRef {
        pid: u32::from_le_bytes(take(head, 40)),
        fd: i32::from_le_bytes(take(head, 44)),
        inode: u64::from_le_bytes(take(head, 48)),
        len_bytes,
    };
    let is_large = bits & BIT_LARGE != 0;
    let inline_len = if is_large { 0 } else { len_bytes };
    if rest.len() as u64 != inline_len {
        return Err(Malformed::Length);
    }
    if buffer_type.is_none() && (len_bytes, buffer_size_bytes) != (0, 0) {
        return Err(Malformed::Tag);
    }
    let body = if is_large {
        if large.fd < 0 || large.pid == 0 || len_bytes == 0 {
            return Err(Malformed::Large);
        }
        Body::Large(large)
    } else {
        if (large.pid, large.fd, large.inode) != (0, 0, 0) {
            return Err(Malformed::Reserved);
        }
        Body::Inline(rest)
    };
    let has_info = bits & BIT_INFO != 0;
    Ok(Payload { buffer_type, buffer_size_bytes, has_info, body })
}

fn tag_of(buffer_type: Option<BufferType>) -> u8 {
    match buffer_type {
        // The latter is never sent.
        None | Some(BufferType::Init) => 0,
        Some(BufferType::Ubf) => 1,
        Some(BufferType::String) => 2,
        Some(BufferType::Carray) => 3,
        Some(BufferType::Json) => 4,
        Some(BufferType::XOctet) => 5,
        Some(BufferType::View) => 6,
        Some(BufferType::XCType) => 7,
        Some(BufferType::XCommon) => 8,
    }
}

/// The type behind a tag, `Some(None)` for no buffer.
fn type_of(tag: u8) -> Option<Option<BufferType>> {
    let all = BufferType::ALL.into_iter().map(Some);
    std::iter::once(None).chain(all).find(|buffer_type| tag_of(*buffer_type) == tag)
}

/// Copies an inline payload to the start of `out`; the bytes written, `None` if it does not fit.
fn put_inline(payload: &Payload<'_>, out: &mut [u8]) -> Option<usize> {
    let Body::Inline(bytes) = payload.body else { return Some(0) };
    out.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}

fn put<const N: usize>(head: &mut [u8], at: usize, bytes: [u8; N]) {
    head[at..at + N].copy_from_slice(&bytes);
}

/// `N` bytes of a head, whose length the caller has made sure of.
fn take<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[at..at + N]);
    bytes
}
