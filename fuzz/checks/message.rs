//! What holds for the reader of messages on the queues of a pool.
//!
//! The fuzz target and the tests of the wire call it. It panics when something does not hold.
#![cfg_attr(fuzzing, no_main)]

use pollux_xatmi::wire::{HEAD_LEN_BYTES_MAX, Message, PAYLOAD_LEN_BYTES_MAX, Payload, Request};

/// Reads the bytes as a message. What is taken is written again to the same bytes, fits its
/// length exactly, and stays within the bounds that a receiver makes room by. Behind a request in
/// memory that survives its worker anything may stand.
pub(crate) fn holds(data: &[u8]) {
    let first = Request::decode_first(data);
    let Ok(message) = Message::decode(data) else { return };
    match message {
        Message::Request(request) => assert_eq!(first, Ok(request)),
        Message::Reply(_) => assert!(first.is_err()),
    }
    let payload = payload_of(&message);
    assert!(payload.len_bytes() <= PAYLOAD_LEN_BYTES_MAX);
    assert!(payload.buffer_size_bytes <= PAYLOAD_LEN_BYTES_MAX);
    assert!(payload.buffer_type.is_some() || payload.len_bytes() == 0);

    let mut again = vec![0xff; data.len()];
    assert_eq!(encode(&message, &mut again), Some(data.len()));
    assert_eq!(again, data, "one way to write it");
    assert_eq!(encode(&message, &mut again[1..]), None, "one byte less is too short");

    let cuts = (0..data.len().min(HEAD_LEN_BYTES_MAX)).chain([data.len() - 1]);
    for cut in cuts {
        assert!(Message::decode(&data[..cut]).is_err(), "cut at {cut}");
    }
    let longer = [data, &[0]].concat();
    assert!(Message::decode(&longer).is_err(), "a byte behind the end");
}

fn payload_of<'a>(message: &Message<'a>) -> Payload<'a> {
    match message {
        Message::Request(request) => request.payload,
        Message::Reply(reply) => reply.payload,
    }
}

fn encode(message: &Message<'_>, out: &mut [u8]) -> Option<usize> {
    match message {
        Message::Request(request) => request.encode(out),
        Message::Reply(reply) => reply.encode(out),
    }
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
