//! A field block to its fields (RFC 7541 3, 6).

use crate::h2::error::Fault;
use crate::h2::hpack::tables::{FIRST_DYNAMIC, STATIC, TABLE_BYTES_MAX, Table};
use crate::h2::hpack::{huffman, integer};

/// One field of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockField<'f> {
    pub(crate) name: &'f [u8],
    pub(crate) value: &'f [u8],
    /// It is to be put into no table, here and at every later hop (RFC 7541 6.2.3).
    pub(crate) is_never_indexed: bool,
}

impl<'f> BlockField<'f> {
    /// One that may be put into tables.
    pub(crate) fn new(name: &'f [u8], value: &'f [u8]) -> Self {
        Self { name, value, is_never_indexed: false }
    }
}

/// Where strings are put that have to be decoded, or outlive a change of the table.
#[derive(Default, Debug)]
pub(crate) struct Strings {
    name: Vec<u8>,
    value: Vec<u8>,
}

/// The receiving side of one direction.
#[derive(Default, Debug)]
pub(crate) struct Decoder {
    pub(crate) table: Table,
}

const INDEX: Fault = Fault::hpack("an index beyond both tables", "RFC 7541 2.3.3");
const CUT: Fault = Fault::hpack("a field block ends inside a string", "RFC 7541 5.2");
const LATE: Fault = Fault::hpack("a table size update behind the start of a block", "RFC 7541 4.2");
const LARGE: Fault = Fault::hpack("a table size update beyond the limit", "RFC 7541 6.3");
const MANY: Fault = Fault::hpack("more than two table size updates in a block", "RFC 7541 4.2");

/// Least and final size: more updates say nothing (RFC 7541 4.2).
const UPDATES_MAX: u32 = 2;

impl Decoder {
    /// How often its table was changed: as long as that is the same, equal blocks say the same.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// Gives each field of the block to `take`, in order. After an error the connection is over.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        strings: &mut Strings,
        mut take: impl FnMut(BlockField<'_>),
    ) -> Result<(), Fault> {
        let mut at = 0;
        let mut updates = 0;
        let mut has_fields = false;
        while let Some(&first) = block.get(at) {
            if first & 0xe0 == 0x20 {
                let size = integer::read(block, &mut at, 5)?;
                updates += 1;
                match (has_fields, updates) {
                    (true, _) => return Err(LATE),
                    (_, UPDATES_MAX..) if updates > UPDATES_MAX => return Err(MANY),
                    _ if size > TABLE_BYTES_MAX => return Err(LARGE),
                    _ => self.table.resize(size),
                }
                continue;
            }
            has_fields = true;
            if first & 0x80 != 0 {
                let (name, value) = entry(&self.table, integer::read(block, &mut at, 7)?)?;
                take(BlockField::new(name, value));
                continue;
            }
            if first & 0x40 != 0 {
                let name = match integer::read(block, &mut at, 6)? {
                    0 => string(block, &mut at, &mut strings.name)?,
                    index if index < FIRST_DYNAMIC => STATIC[index - 1].0.as_bytes(),
                    index => {
                        // Its entry may be evicted by the new one.
                        strings.name.clear();
                        strings.name.extend_from_slice(entry(&self.table, index)?.0);
                        &strings.name
                    }
                };
                let value = string(block, &mut at, &mut strings.value)?;
                take(BlockField::new(name, value));
                self.table.insert(name, value, 0);
                continue;
            }
            let name = match integer::read(block, &mut at, 4)? {
                0 => string(block, &mut at, &mut strings.name)?,
                index => entry(&self.table, index)?.0,
            };
            let value = string(block, &mut at, &mut strings.value)?;
            take(BlockField { name, value, is_never_indexed: first & 0x10 != 0 });
        }
        Ok(())
    }
}

#[inline]
fn entry(table: &Table, index: usize) -> Result<(&[u8], &[u8]), Fault> {
    match index {
        0 => Err(INDEX),
        1..FIRST_DYNAMIC => {
            let (name, value) = STATIC[index - 1];
            Ok((name.as_bytes(), value.as_bytes()))
        }
        _ => table.get(index - FIRST_DYNAMIC).ok_or(INDEX),
    }
}

/// Reads a string; one in Huffman code is decoded into `room`.
#[inline]
fn string<'s>(block: &'s [u8], at: &mut usize, room: &'s mut Vec<u8>) -> Result<&'s [u8], Fault> {
    let is_huffman = block.get(*at).is_some_and(|byte| byte & 0x80 != 0);
    let len = integer::read(block, at, 7)?;
    let text = block.get(*at..).and_then(|rest| rest.get(..len)).ok_or(CUT)?;
    *at += len;
    if !is_huffman {
        return Ok(text);
    }
    room.clear();
    huffman::decode(text, room)?;
    Ok(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<String, Fault> {
        let mut lines = String::new();
        decoder.decode(block, &mut Strings::default(), |field| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            lines += &format!("{}: {}|", text(field.name), text(field.value));
        })?;
        Ok(lines)
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let byte = |pair: &[u8]| {
            let pair = str::from_utf8(pair).expect("digits");
            u8::from_str_radix(pair, 16).expect("hex")
        };
        digits.chunks(2).map(byte).collect()
    }

    /// RFC 7541 C.3 and C.4: three requests, without and with Huffman.
    #[test]
    fn requests_of_the_standard_are_read() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let huffman = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        let expected = [
            ":method: GET|:scheme: http|:path: /|:authority: www.example.com|",
            ":method: GET|:scheme: http|:path: /|:authority: www.example.com|cache-control: no-cache|",
            ":method: GET|:scheme: https|:path: /index.html|:authority: www.example.com|\
             custom-key: custom-value|",
        ];
        for blocks in [plain, huffman] {
            let mut decoder = Decoder::default();
            for (block, expected) in blocks.iter().zip(expected) {
                assert_eq!(decode(&mut decoder, &bytes(block)).as_deref(), Ok(expected));
            }
            assert_eq!(decoder.table.size(), 164);
        }
    }

    /// RFC 7541 C.5 and C.6: answers with a table of 256 bytes, which evicts.
    #[test]
    fn answers_of_the_standard_are_read_and_evict() {
        let plain = [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 \
             2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 \
             6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d \
             54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 \
             5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e \
             3d31",
        ];
        let huffman = [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
             2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab \
             77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f \
             9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ];
        let expected = [
            ":status: 302|cache-control: private|date: Mon, 21 Oct 2013 20:13:21 GMT|\
             location: https://www.example.com|",
            ":status: 307|cache-control: private|date: Mon, 21 Oct 2013 20:13:21 GMT|\
             location: https://www.example.com|",
            ":status: 200|cache-control: private|date: Mon, 21 Oct 2013 20:13:22 GMT|\
             location: https://www.example.com|content-encoding: gzip|\
             set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1|",
        ];
        for blocks in [plain, huffman] {
            let mut decoder = Decoder::default();
            decoder.table.resize(256);
            for (block, expected) in blocks.iter().zip(expected) {
                assert_eq!(decode(&mut decoder, &bytes(block)).as_deref(), Ok(expected));
            }
            assert_eq!((decoder.table.size(), decoder.table.len()), (215, 3));
        }
    }

    #[test]
    fn blocks_that_are_not_sound_end_the_connection() {
        for (block, fault) in [
            (&[0x80][..], INDEX),
            (&[0xbe], INDEX),
            (&[0xff, 0x80, 0x01], INDEX),
            (&[0x7f, 0x00, 0x00], INDEX),
            (&[0x82, 0x20], LATE),
            (&[0x3f, 0xe2, 0x1f], LARGE),
            (&[0x20, 0x20, 0x20], MANY),
            (&[0x40, 0x05, b'a'], CUT),
            (&[0x40, 0x01, b'a'], integer::read(&[], &mut 0, 7).expect_err("cut")),
        ] {
            assert_eq!(decode(&mut Decoder::default(), block), Err(fault), "{block:x?}");
        }
        assert_eq!(decode(&mut Decoder::default(), &[0x3f, 0xe1, 0x1f, 0x20]), Ok(String::new()));
    }

    #[test]
    fn a_name_of_an_entry_that_is_evicted_by_its_own_field_is_kept() {
        let mut decoder = Decoder::default();
        decoder.table.resize(40);
        // `a: 123`, then its name with another value, for which it has to leave.
        assert_eq!(decode(&mut decoder, b"\x40\x01a\x03123").as_deref(), Ok("a: 123|"));
        assert_eq!(decode(&mut decoder, b"\x7e\x04abcd\xbe").as_deref(), Ok("a: abcd|a: abcd|"));
    }
}
