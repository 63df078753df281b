//! What requests and replies have in common: the first 56 bytes, and the payload that they tell of.
//!
//! The two kinds of the module above use it. Nothing here knows what is between head and payload.

use super::{Body, LargeRef, Malformed, PAYLOAD_LEN_BYTES_MAX, Payload, REPLY_FIXED};
use crate::buffer::BufferType;

/// Nobody waits for a reply.
pub(super) const BIT_NO_REPLY: u8 = 2;

const MAGIC: [u8; 4] = *b"PXAT";
const VERSION: u8 = 2;
const BIT_LARGE: u8 = 1;

/// What both kinds begin with, but for the payload and its place.
pub(super) struct Common {
    pub(super) kind: u8,
    pub(super) bits: u8,
    pub(super) call_id: u64,
    pub(super) nonce: u64,
}

impl Common {
    pub(super) fn encode(&self, payload: &Payload<'_>, head: &mut [u8]) {
        let (large_bit, large) = match payload.body {
            Body::Inline(_) => (0, LargeRef { pid: 0, fd: 0, inode: 0, len_bytes: 0 }),
            Body::Large(large) => (BIT_LARGE, large),
        };
        put(head, 0, MAGIC);
        put(head, 4, [VERSION, self.kind, tag_of(payload.buffer_type), self.bits | large_bit]);
        put(head, 8, payload.len_bytes().to_le_bytes());
        put(head, 16, payload.buffer_size_bytes.to_le_bytes());
        put(head, 24, self.call_id.to_le_bytes());
        put(head, 32, self.nonce.to_le_bytes());
        put(head, 40, large.pid.to_le_bytes());
        put(head, 44, large.fd.to_le_bytes());
        put(head, 48, large.inode.to_le_bytes());
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let head = bytes.first_chunk::<REPLY_FIXED>().ok_or(Malformed::Short)?;
        let [version, kind, _, bits] = take::<4>(head, 4);
        if take(head, 0) != MAGIC || version != VERSION {
            return Err(Malformed::Foreign);
        }
        if bits & !(BIT_LARGE | BIT_NO_REPLY) != 0 {
            return Err(Malformed::Reserved);
        }
        let call_id = u64::from_le_bytes(take(head, 24));
        Ok(Self { kind, bits, call_id, nonce: u64::from_le_bytes(take(head, 32)) })
    }
}

/// Bytes of the payload that stand in the message itself, by what its head claims.
pub(super) fn inline_len_bytes(head: &[u8]) -> u64 {
    if head[7] & BIT_LARGE != 0 { 0 } else { u64::from_le_bytes(take(head, 8)) }
}

/// Reads the payload whose head is `head`, and whose bytes, if it is not large, are `rest`.
pub(super) fn decode_payload<'a>(head: &[u8], rest: &'a [u8]) -> Result<Payload<'a>, Malformed> {
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
    let body = match is_large {
        true if large.fd < 0 || large.pid == 0 || len_bytes == 0 => return Err(Malformed::Large),
        true => Body::Large(large),
        false if (large.pid, large.fd, large.inode) != (0, 0, 0) => {
            return Err(Malformed::Reserved);
        }
        false => Body::Inline(rest),
    };
    Ok(Payload { buffer_type, buffer_size_bytes, body })
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
    }
}

/// The type behind a tag, `Some(None)` for no buffer.
fn type_of(tag: u8) -> Option<Option<BufferType>> {
    let all = BufferType::ALL.into_iter().map(Some);
    std::iter::once(None).chain(all).find(|buffer_type| tag_of(*buffer_type) == tag)
}

/// Copies an inline payload to the start of `out`; the bytes written, `None` if it does not fit.
pub(super) fn put_inline(payload: &Payload<'_>, out: &mut [u8]) -> Option<usize> {
    let Body::Inline(bytes) = payload.body else { return Some(0) };
    out.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}

pub(super) fn put<const N: usize>(head: &mut [u8], at: usize, bytes: [u8; N]) {
    head[at..at + N].copy_from_slice(&bytes);
}

/// `N` bytes of a head, whose length the caller has made sure of.
pub(super) fn take<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[at..at + N]);
    bytes
}
