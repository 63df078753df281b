//! Fields to a block, so that what repeats takes a byte: the first answer on a connection fills the table, later ones
//! refer to it.
//!
//! Fields that are different in most answers (lengths, tags, dates of files) would push out what repeats. They are
//! inserted only when the same value comes again soon; what is secret is never inserted, and says so to every hop.
//!
//! What is secret is known by its name, or was sent as never indexed by the peer whose message is passed on.

use crate::h2::hpack::tables::{
    ENTRY_BYTES, FIRST_DYNAMIC, TABLE_BYTES_MAX, Table, static_field, static_name,
};
use crate::h2::hpack::{huffman, integer};
use crate::h2::output::Output;

/// The sending side of one direction.
#[derive(Default, Debug)]
pub(crate) struct Encoder {
    table: Table,
    /// The least table size that the peer asked for since the last block, where that must be said.
    least_size: Option<usize>,
    /// Fields that were sent and not inserted, by their hashes; the oldest is at `next`.
    seen: Option<Box<[u32; SEEN]>>,
    next: u8,
    /// How many were noted there.
    noted: u64,
}

/// How many fields that change are remembered.
const SEEN: usize = 16;

/// Larger fields would push out too much.
const INSERTED_BYTES_MAX: usize = TABLE_BYTES_MAX / 4;

/// What becomes of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Indexing {
    /// Inserted at once.
    Always,
    /// Inserted when it comes again.
    OnceRepeated,
    /// Never, here and at every later hop.
    Never,
}

fn indexing(name: &[u8]) -> Indexing {
    match name {
        // An upstream connection is shared by clients, who must not find out each other's by what a block weighs (RFC 7541 7.1).
        b"cookie" | b"set-cookie" | b"authorization" | b"proxy-authorization" => Indexing::Never,
        b":path" | b"age" | b"content-length" | b"content-range" | b"etag" | b"if-match"
        | b"if-modified-since" | b"if-none-match" | b"last-modified" | b"location" | b"range" => {
            Indexing::OnceRepeated
        }
        _ => Indexing::Always,
    }
}

impl Encoder {
    /// The peer allows a table of this size.
    pub(crate) fn resize(&mut self, size: usize) {
        let size = size.min(TABLE_BYTES_MAX);
        if size == self.table.size_max() {
            return;
        }
        self.table.resize(size);
        self.least_size = Some(self.least_size.map_or(size, |least| least.min(size)));
    }

    /// What stays when all memory is given back: the largest size of the table, which is empty then, and what the next block
    /// has to say of it.
    pub(crate) fn rest(self) -> (usize, Option<usize>) {
        let least_size = if self.table.len() == 0 { self.least_size } else { Some(0) };
        (self.table.size_max(), least_size)
    }

    /// One that has given its memory back.
    pub(crate) fn rested(size_max: usize, least_size: Option<usize>) -> Self {
        Self { table: Table::unpacked(size_max, &[]), least_size, ..Self::default() }
    }

    /// How often something changed that a block depends on: as long as that is the same, so are the blocks of equal fields.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.table.changes() + self.noted
    }

    /// Whether the next block has to say a new size of the table.
    #[inline]
    pub(crate) fn has_new_size(&self) -> bool {
        self.least_size.is_some()
    }

    /// Begins a block.
    pub(crate) fn begin(&mut self, out: &mut Output<'_>) {
        let Some(least) = self.least_size.take() else { return };
        let size = self.table.size_max();
        if least < size {
            integer::write(out, 0x20, 5, least);
        }
        integer::write(out, 0x20, 5, size);
    }

    /// Adds a field that is put into no table, here and at every later hop; its name is in lower case.
    pub(crate) fn never_indexed(&mut self, out: &mut Output<'_>, name: &[u8], value: &[u8]) {
        self.literal(out, name, value, (0x10, 4));
    }

    /// Adds a field; its name is in lower case.
    pub(crate) fn field(&mut self, out: &mut Output<'_>, name: &[u8], value: &[u8]) {
        if let Some(index) = static_field(name, value) {
            return integer::write(out, 0x80, 7, index);
        }
        let hash = hash(name, value);
        if let Some(place) = self.table.find(hash, name, value) {
            return integer::write(out, 0x80, 7, FIRST_DYNAMIC + place);
        }
        let is_small = name.len() + value.len() + ENTRY_BYTES <= INSERTED_BYTES_MAX;
        let (first, bits) = match indexing(name) {
            Indexing::Never => (0x10, 4),
            Indexing::OnceRepeated if !self.was_seen(hash) => (0x00, 4),
            _ if is_small && self.table.size_max() > 0 => (0x40, 6),
            _ => (0x00, 4),
        };
        self.literal(out, name, value, (first, bits));
        if first == 0x40 {
            self.table.insert(name, value, hash);
        }
    }

    fn literal(&self, out: &mut Output<'_>, name: &[u8], value: &[u8], (first, bits): (u8, u32)) {
        let known = static_name(name);
        let known = known.or_else(|| Some(FIRST_DYNAMIC + self.table.find_name(name)?));
        integer::write(out, first, bits, known.unwrap_or(0));
        if known.is_none() {
            string(out, name);
        }
        string(out, value);
    }

    /// Whether this field was sent not long ago; it was from now on.
    fn was_seen(&mut self, hash: u32) -> bool {
        let seen = self.seen.get_or_insert_default();
        if seen.contains(&hash) {
            return true;
        }
        seen[usize::from(self.next)] = hash;
        self.noted += 1;
        self.next = (self.next + 1) % SEEN as u8;
        false
    }
}

/// `:path` as it stands in a block of every connection: it is put into no table.
#[must_use]
pub fn path_block(path: &[u8]) -> Vec<u8> {
    // The name, and how long the value is.
    const HEAD_BYTES: usize = 8;
    const NAME: &[u8] = b":path";
    let mut room = vec![0; path.len() + HEAD_BYTES];
    let mut out = Output::new(&mut room);
    if let Some(index) = static_field(NAME, path) {
        integer::write(&mut out, 0x80, 7, index);
    } else {
        integer::write(&mut out, 0x00, 4, static_name(NAME).expect("it is in the static table"));
        string(&mut out, path);
    }
    let len = out.len();
    room.truncate(len);
    room
}

/// Writes a string in the shorter of both forms.
fn string(out: &mut Output<'_>, text: &[u8]) {
    let len = huffman::encoded_len(text);
    if len < text.len() {
        integer::write(out, 0x80, 7, len);
        huffman::encode(text, out);
    } else {
        integer::write(out, 0, 7, text.len());
        out.put(text);
    }
}

/// A hash of a field: equal ones are compared byte by byte before they are believed.
fn hash(name: &[u8], value: &[u8]) -> u32 {
    let bytes = name.iter().chain([&b':']).chain(value);
    bytes.fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::hpack::decode::{Decoder, Strings};

    fn encode(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut room = [0; 4096];
        let mut out = Output::new(&mut room);
        encoder.begin(&mut out);
        for (name, value) in fields {
            encoder.field(&mut out, name.as_bytes(), value.as_bytes());
        }
        assert!(!out.is_short());
        out.bytes().to_vec()
    }

    fn decode(decoder: &mut Decoder, block: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let decoded = decoder.decode(block, &mut Strings::default(), |field| {
            fields.push((text(field.name), text(field.value)));
        });
        decoded.expect("sound");
        fields
    }

    const ANSWER: [(&str, &str); 8] = [
        (":status", "200"),
        ("server", "pollux"),
        ("date", "Thu, 26 Nov 2026 12:00:00 GMT"),
        ("content-type", "text/html; charset=utf-8"),
        ("content-length", "1234"),
        ("last-modified", "Thu, 26 Nov 2026 11:00:00 GMT"),
        ("etag", "\"1234567890abcdef\""),
        ("x-own", "some words"),
    ];

    #[test]
    fn a_repeated_answer_takes_a_byte_for_each_field() {
        let mut encoder = Encoder::default();
        let mut decoder = Decoder::default();
        let mut lens = Vec::new();
        for _ in 0..4 {
            let block = encode(&mut encoder, &ANSWER);
            let fields = decode(&mut decoder, &block);
            assert!(fields.iter().map(|(name, value)| (&**name, &**value)).eq(ANSWER));
            lens.push(block.len());
        }
        assert_eq!(lens[2..], [ANSWER.len(); 2], "{lens:?}");
    }

    #[test]
    fn what_changes_each_time_does_not_push_out_what_repeats() {
        let mut encoder = Encoder::default();
        encode(&mut encoder, &ANSWER[..4]);
        for number in 0..1000 {
            let etag = format!("\"{number}\"");
            encode(&mut encoder, &[("etag", &etag), ("content-length", &number.to_string())]);
        }
        assert_eq!(encode(&mut encoder, &ANSWER[..4]).len(), 4);
    }

    #[test]
    fn secrets_are_never_indexed() {
        let mut encoder = Encoder::default();
        for field in [
            ("set-cookie", "a=b"),
            ("authorization", "Basic x"),
            ("cookie", "long=enough-to-hold-a-session"),
        ] {
            for _ in 0..3 {
                assert_eq!(encode(&mut encoder, &[field])[0] & 0xf0, 0x10, "{field:?}");
            }
        }
        assert_eq!(encoder.changes(), 0);
    }

    #[test]
    fn a_smaller_table_is_announced_before_the_next_field() {
        let mut encoder = Encoder::default();
        let mut decoder = Decoder::default();
        decode(&mut decoder, &encode(&mut encoder, &ANSWER));
        encoder.resize(0);
        encoder.resize(100);
        let block = encode(&mut encoder, &ANSWER);
        assert_eq!(block[..3], [0x20, 0x3f, 69]);
        assert_eq!(decode(&mut decoder, &block).len(), ANSWER.len());
        encoder.resize(0);
        let block = encode(&mut encoder, &ANSWER);
        assert_eq!(block[0], 0x20);
        assert_eq!(decode(&mut decoder, &block).len(), ANSWER.len());
        assert_eq!(encode(&mut encoder, &ANSWER)[0], 0x88);
    }
}
