//! What stands in buffers and messages: written, read back, damaged, and checked as the fuzz targets do: over random
//! inputs that look like what they read, and over their corpus.

#[path = "../../../../../fuzz/checks/expression.rs"]
mod expression;
#[path = "../../../../../fuzz/checks/field_table.rs"]
mod field_table;
#[path = "../../../../../fuzz/checks/message.rs"]
mod message;
#[path = "../../../../../fuzz/checks/printed.rs"]
mod printed;
#[path = "../../../../../fuzz/checks/ubf.rs"]
mod region;
mod ubf;
mod ubf_model;

use pollux_testing::replay;
use pollux_xatmi::buffer::BufferType;
use pollux_xatmi::error::Code;
use pollux_xatmi::priority::Priority;
use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::ubf::{FieldId, FieldType, Ubf, Value};
use pollux_xatmi::wire::{
    Body, ClientAddress, HEAD_LEN_BYTES_MAX, LargeRef, Malformed, Message, Payload, Reply, Request,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Fewer files than this mean that the corpus was not found.
const FILES_MIN: usize = 10;
/// As many messages.
const MESSAGES_MIN: usize = 20;

/// Pieces of texts, with `·` between them.
const TABLE_PARTS: &[&str] = &[
    "A·B_2·9·T_ACCNUM· ·  ·\t·\n·\n·\r\n·1·2·0·-1·33554431·99999999999999999999·string·long",
    "fml32·int·-·*base·*base 10\n·*base 33554431\n·# x\n·$·$#if 0\n·A 1 long\n",
    "B 2 double - x */\n·C 3 ubf\n·type 4 char\n·\u{e4}·\0",
];

const EXPRESSION_PARTS: &[&str] = &[
    "A·B[1]·F·G·U.F·U[0]·.·X·P·A[?]·F[?]·'7'·'·'J.*n'·\\·7·0·1e3·.5·9223372036854775807·(·)",
    "(·)·!·~·-·+·*·/·%·%%·!%·==·!=·<·<=·>·&&·||·^· ·=·\u{e4}",
];

const PRINTED_PARTS: &[&str] = &[
    "A·B·C·D·E·F·G·P·U·V·X·\t·\t·\t\t·\n·\n·\r\n·1·-7·1.5·nan·-nan·D\t-nan\n·-inf·0x1f·x·\\",
    "\\\\·\\0a·\\00·\\zz·#· ·((BFLDID32)1)·((BFLDID32)167773161)·((BFLDID32)0)·((BFLDID32)x)",
    "A\t1\n·F\ttext\n·U\t\n·\tF\tinner\n·\tU\t\n·\t\tF\tdeeper\n·G\t\n·\u{e4}",
];

fn soup(parts: &[&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let parts: Vec<_> = parts.iter().flat_map(|line| line.split('·')).collect();
    vec(select(parts), 0..16).prop_map(|parts| parts.concat().into_bytes())
}

/// Sound regions with buffers in them.
fn region() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || vec(any::<u8>(), 0..12);
    let field = (1..4i32, 0..7usize, any::<i64>(), bytes());
    vec((field, any::<bool>()), 0..8).prop_map(|list| {
        let mut fields = Ubf::with_size(0);
        for ((number, kind, whole, bytes), is_nested) in list {
            if is_nested && kind == 0 {
                let inner = fields.clone();
                fields.add(FieldId::new(FieldType::Ubf, number), inner.fields()).expect("not deep");
            }
            let id = FieldId::new(FieldType::ALL[kind], number);
            let value = if kind < 5 { Value::Long(whole) } else { Value::Carray(&bytes) };
            fields.add_as(id, value).expect("every value is converted");
        }
        fields.used_bytes().to_vec()
    })
}

/// Sound regions, some bytes of which were changed, cut off or added.
fn damaged_region() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 0..4);
    (region(), changes, 0..40usize, any::<bool>()).prop_map(
        |(mut region, changes, cut, is_longer)| {
            for (at, byte, is_bit) in changes {
                let at = at.index(region.len());
                region[at] = if is_bit { region[at] ^ (1 << (byte % 8)) } else { byte };
            }
            let len = if is_longer { region.len() + cut } else { region.len().saturating_sub(cut) };
            region.resize(len, 0x41);
            region
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn regions_hold(data in prop_oneof![region(), damaged_region(), vec(any::<u8>(), 0..200)]) {
        region::holds(&data);
    }

    #[test]
    fn every_start_of_a_region_holds(data in region()) {
        (0..data.len()).for_each(|len| region::holds(&data[..len]));
    }

    #[test]
    fn printed_texts_hold(data in soup(PRINTED_PARTS)) {
        printed::holds(&data);
    }

    #[test]
    fn expressions_hold(data in soup(EXPRESSION_PARTS)) {
        expression::holds(&data);
    }

    #[test]
    fn field_tables_hold(data in soup(TABLE_PARTS)) {
        field_table::holds(&data);
    }
}

#[test]
fn every_region_of_the_corpus_holds() {
    replay("ubf", FILES_MIN, region::holds);
}

#[test]
fn every_printed_text_of_the_corpus_holds() {
    replay("printed", FILES_MIN, printed::holds);
}

#[test]
fn every_field_table_of_the_corpus_holds() {
    replay("field_table", FILES_MIN, field_table::holds);
}

#[test]
fn every_expression_of_the_corpus_holds() {
    replay("expression", FILES_MIN, expression::holds);
}

/// A payload whose bytes are kept by the test.
#[derive(Clone, Debug)]
struct Data {
    buffer_type: Option<BufferType>,
    buffer_size_bytes: u64,
    has_info: bool,
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
        Payload { buffer_type, buffer_size_bytes, has_info: self.has_info, body }
    }
}

fn data() -> impl Strategy<Value = Data> {
    let large = (1..=u32::MAX, 0..=i32::MAX, any::<u64>(), 1..=1_u64 << 30)
        .prop_map(|(pid, fd, inode, len_bytes)| LargeRef { pid, fd, inode, len_bytes });
    let types = option::of(select(&BufferType::ALL[..]));
    (types, 0..=1_u64 << 30, any::<bool>(), vec(any::<u8>(), 0..300), option::of(large)).prop_map(
        |(buffer_type, buffer_size_bytes, has_info, bytes, large)| Data {
            buffer_type,
            buffer_size_bytes,
            has_info,
            bytes,
            large,
        },
    )
}

fn request() -> impl Strategy<Value = (Data, Request<'static>)> {
    let client = (any::<u32>(), any::<u32>(), any::<u64>())
        .prop_map(|(pid, context, nonce)| ClientAddress { pid, context, nonce });
    let numbers =
        (any::<u64>(), any::<i32>(), any::<u64>(), any::<bool>(), any::<bool>(), 1..=100_i64);
    (data(), client, numbers, "[!-+\\--.0-~]{1,30}").prop_map(|(data, client, numbers, name)| {
        let (call_id, cd, deadline_ns, is_without_reply, is_in_transaction, priority) = numbers;
        let service = ServiceName::new(&name).expect("a name");
        let payload = Payload::NONE;
        let request = Request {
            client,
            call_id,
            cd,
            deadline_ns,
            is_without_reply,
            is_in_transaction,
            priority: Priority::new(priority).expect("within the bounds"),
            service,
            payload,
        };
        (data, request)
    })
}

fn reply() -> impl Strategy<Value = (Data, Reply<'static>)> {
    let numbers = (any::<u64>(), any::<u64>(), any::<i32>(), any::<i64>(), any::<bool>());
    (data(), numbers, option::of(select(Code::ALL))).prop_map(|(data, numbers, error)| {
        let (nonce, call_id, rval, urcode, is_abort_only) = numbers;
        let payload = Payload::NONE;
        (data, Reply { nonce, call_id, error, rval, urcode, is_abort_only, payload })
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
        let _ = Request::decode_first(&[b"PXAT\x03\x01", &bytes[..]].concat());
        message::holds(&bytes);
        message::holds(&[b"PXAT\x03", &bytes[..]].concat());
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
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/message");
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
    assert!(files >= MESSAGES_MIN, "{files} files");
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
