//! Messages: written and read back, and other bytes are refused without a panic.

use pollux_xatmi::buffer::BufferType;
use pollux_xatmi::error::Code;
use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::wire::{
    Body, ClientAddress, HEAD_LEN_BYTES_MAX, LargeRef, Malformed, Message, Payload, Reply, Request,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

#[path = "../../../../fuzz/checks/message.rs"]
mod message;

/// Fewer files than this mean that the corpus was not found.
const FILES_MIN: usize = 20;

/// A payload whose bytes are kept by the test.
#[derive(Clone, Debug)]
struct Data {
    buffer_type: Option<BufferType>,
    buffer_size_bytes: u64,
    bytes: Vec<u8>,
    large: Option<LargeRef>,
}

impl Data {
    fn payload(&self) -> Payload<'_> {
        if self.buffer_type.is_none() {
            return Payload::NONE;
        }
        let body = self.large.map_or(Body::Inline(&self.bytes), Body::Large);
        let Self { buffer_type, buffer_size_bytes, .. } = *self;
        Payload { buffer_type, buffer_size_bytes, body }
    }
}

fn data() -> impl Strategy<Value = Data> {
    let large = (1..=u32::MAX, 0..=i32::MAX, any::<u64>(), 1..=1_u64 << 30)
        .prop_map(|(pid, fd, inode, len_bytes)| LargeRef { pid, fd, inode, len_bytes });
    let types = option::of(select(&BufferType::ALL[..]));
    (types, 0..=1_u64 << 30, vec(any::<u8>(), 0..300), option::of(large)).prop_map(
        |(buffer_type, buffer_size_bytes, bytes, large)| Data {
            buffer_type,
            buffer_size_bytes,
            bytes,
            large,
        },
    )
}

fn request() -> impl Strategy<Value = (Data, Request<'static>)> {
    let client = (any::<u32>(), any::<u32>(), any::<u64>())
        .prop_map(|(pid, context, nonce)| ClientAddress { pid, context, nonce });
    let numbers = (any::<u64>(), any::<i32>(), any::<u64>(), any::<bool>());
    (data(), client, numbers, "[!-+\\--.0-~]{1,30}").prop_map(|(data, client, numbers, name)| {
        let (call_id, cd, deadline_ns, is_without_reply) = numbers;
        let service = ServiceName::new(&name).expect("a name");
        let payload = Payload::NONE;
        let request =
            Request { client, call_id, cd, deadline_ns, is_without_reply, service, payload };
        (data, request)
    })
}

fn reply() -> impl Strategy<Value = (Data, Reply<'static>)> {
    let numbers = (any::<u64>(), any::<u64>(), any::<i32>(), any::<i64>());
    (data(), numbers, option::of(select(Code::ALL))).prop_map(|(data, numbers, error)| {
        let (nonce, call_id, rval, urcode) = numbers;
        (data, Reply { nonce, call_id, error, rval, urcode, payload: Payload::NONE })
    })
}

proptest! {
    #[test]
    fn a_request_is_read_as_it_was_written((data, request) in request()) {
        let request = Request { payload: data.payload(), ..request };
        let mut out = [0; 1024];
        let len = request.encode(&mut out).expect("it fits");
        prop_assert_eq!(Message::decode(&out[..len]), Ok(Message::Request(request)));
        // Whatever stands behind it.
        out[len..].fill(0xa5);
        prop_assert_eq!(Request::decode_first(&out), Ok(request));
        prop_assert_eq!(Request::decode_first(&out[..len - 1]), Err(Malformed::Length));
        prop_assert_eq!(Reply::decode(&out[..len]), Err(Malformed::Kind));
        message::holds(&out[..len]);
    }

    #[test]
    fn a_reply_is_read_as_it_was_written((data, reply) in reply()) {
        let reply = Reply { payload: data.payload(), ..reply };
        let mut out = [0; 1024];
        let len = reply.encode(&mut out).expect("it fits");
        prop_assert_eq!(Message::decode(&out[..len]), Ok(Message::Reply(reply)));
        prop_assert_eq!(Request::decode(&out[..len]), Err(Malformed::Kind));
        message::holds(&out[..len]);
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Request::decode_first(&[b"PXAT\x02\x01", &bytes[..]].concat());
        message::holds(&bytes);
        message::holds(&[b"PXAT\x02", &bytes[..]].concat());
    }

    #[test]
    fn a_message_with_changed_bytes_does_not_panic(
        (data, request) in request(),
        changes in vec((0..HEAD_LEN_BYTES_MAX, select(&[0, 1, 2, 3, 0x7f, 0x80, 0xff][..])), 1..4),
    ) {
        let mut out = [0; 1024];
        let request = Request { payload: data.payload(), ..request };
        let len = request.encode(&mut out).expect("it fits");
        for (at, byte) in changes {
            out[at % len] = byte;
        }
        message::holds(&out[..len]);
    }
}

#[test]
fn every_message_of_the_corpus_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/message");
    let mut taken = Vec::new();
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus is part of the repository") {
        let entry = entry.expect("readable");
        let bytes = std::fs::read(entry.path()).expect("readable");
        message::holds(&bytes);
        files += 1;
        if Message::decode(&bytes).is_ok() {
            taken.push(entry.file_name().into_string().expect("text"));
        }
    }
    assert!(files >= FILES_MIN, "{files} files");
    taken.sort();
    let sound = [
        "reply",
        "reply-failed",
        "reply-large",
        "reply-service-died",
        "request",
        "request-fields",
        "request-large",
        "request-longest-name",
        "request-without-buffer",
        "request-without-reply",
    ];
    assert_eq!(taken, sound, "all others are damaged");
}

#[test]
fn a_head_leaves_room_in_the_shortest_message() {
    let shortest = pollux_xatmi::environment::MESSAGE_LEN_BYTES_MIN as usize;
    assert!(HEAD_LEN_BYTES_MAX <= 128 && HEAD_LEN_BYTES_MAX * 2 <= shortest);
}
