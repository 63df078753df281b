//! The Huffman code of RFC 7541 B, both ways.
//!
//! The code is canonical: among codes of one length the symbols ascend, and longer codes follow. So the lengths say it
//! all; codes and tables are made from them by the compiler.

use crate::h2::error::Fault;
use crate::h2::output::Output;

/// Bits of the code of each byte, and of the end of a string, which must not occur.
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const SYMBOLS: usize = 257;
const BITS_MAX: usize = 30;
const END_OF_STRING: u16 = 256;

/// Bits of the code that one look-up settles: all symbols of text, but for a few.
const FAST_BITS: u32 = 9;

/// The code as tables.
struct Code {
    of: [u32; SYMBOLS],
    /// The symbols by the length of their code, then by number.
    sorted: [u16; SYMBOLS],
    /// Where the symbols of each length begin in `sorted`.
    starts: [u16; BITS_MAX + 1],
    /// The first code of each length.
    firsts: [u32; BITS_MAX + 1],
    /// The first code that is longer, in 30 bits from the left.
    ends: [u32; BITS_MAX + 1],
    /// The symbol that the first bits name, and its length; 0 where they are part of a longer code.
    fast: [(u8, u8); 1 << FAST_BITS],
}

static CODE: Code = Code::new();

impl Code {
    const fn new() -> Self {
        let mut code = Self {
            of: [0; SYMBOLS],
            sorted: [0; SYMBOLS],
            starts: [0; BITS_MAX + 1],
            firsts: [0; BITS_MAX + 1],
            ends: [0; BITS_MAX + 1],
            fast: [(0, 0); 1 << FAST_BITS],
        };
        let mut next = 0_u32;
        let mut place = 0;
        let mut bits = 1;
        while bits <= BITS_MAX {
            next <<= 1;
            code.firsts[bits] = next;
            code.starts[bits] = place as u16;
            let mut symbol = 0;
            while symbol < SYMBOLS {
                if LENGTHS[symbol] as usize == bits {
                    code.of[symbol] = next;
                    code.sorted[place] = symbol as u16;
                    if bits <= FAST_BITS as usize {
                        let spare = FAST_BITS as usize - bits;
                        let mut low = 0;
                        while low < 1 << spare {
                            let index = ((next as usize) << spare) | low;
                            code.fast[index] = (symbol as u8, bits as u8);
                            low += 1;
                        }
                    }
                    next += 1;
                    place += 1;
                }
                symbol += 1;
            }
            code.ends[bits] = next << (BITS_MAX - bits);
            bits += 1;
        }
        code
    }

    /// The symbol that 30 bits begin with, and its length, of those that `fast` does not know.
    #[cold]
    fn long(&self, code: u32) -> (u16, usize) {
        let mut bits = FAST_BITS as usize + 1;
        while bits < BITS_MAX && code >= self.ends[bits] {
            bits += 1;
        }
        let behind = (code >> (BITS_MAX - bits)) - self.firsts[bits];
        (self.sorted[usize::from(self.starts[bits]) + behind as usize], bits)
    }
}

const PADDING: Fault =
    Fault::hpack("a Huffman string is not padded by fewer than eight ones", "RFC 7541 5.2");
const END: Fault = Fault::hpack("a Huffman string holds the end of a string", "RFC 7541 5.2");

/// Appends what the string says to `out`: at most 8/5 of its length.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    out.reserve(text.len() * 8 / 5 + 1);
    // The bits that are next, from the left, and how many of them there are.
    let mut bits = 0_u64;
    let mut count = 0_u32;
    let mut bytes = text.iter();
    loop {
        while count <= 56 {
            let Some(&byte) = bytes.next() else { break };
            bits |= u64::from(byte) << (56 - count);
            count += 8;
        }
        if count == 0 {
            return Ok(());
        }
        let (symbol, len) = match CODE.fast[(bits >> (64 - FAST_BITS)) as usize] {
            (symbol, len @ 1..) => (u16::from(symbol), u32::from(len)),
            _ => {
                let (symbol, len) = CODE.long((bits >> (64 - BITS_MAX)) as u32);
                (symbol, len as u32)
            }
        };
        if len > count {
            // No code is as short as what is left, so that it can only be padding.
            let is_padding = count < 8 && bits >> (64 - count) == (1 << count) - 1;
            return if is_padding { Ok(()) } else { Err(PADDING) };
        }
        if symbol == END_OF_STRING {
            return Err(END);
        }
        out.push(symbol as u8);
        bits <<= len;
        count -= len;
    }
}

/// How many bytes the text takes in this code.
#[inline]
pub(crate) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Writes the text in this code.
pub(crate) fn encode(text: &[u8], out: &mut Output<'_>) {
    let mut bits = 0_u64;
    let mut count = 0_u32;
    for &byte in text {
        let len = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << len | u64::from(CODE.of[usize::from(byte)]);
        count += len;
        while count >= 8 {
            count -= 8;
            out.put(&[(bits >> count) as u8]);
        }
    }
    if count > 0 {
        let spare = 8 - count;
        out.put(&[(bits << spare) as u8 | ((1 << spare) - 1) as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut room = vec![0; text.len() * 4 + 8];
        let mut out = Output::new(&mut room);
        encode(text, &mut out);
        assert_eq!(out.len(), encoded_len(text));
        out.bytes().to_vec()
    }

    fn decoded(text: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        decode(text, &mut out).map(|()| out)
    }

    /// RFC 7541 C.4 to C.6.
    #[test]
    fn the_examples_of_the_standard_go_both_ways() {
        for (text, wire) in [
            (&b"www.example.com"[..], &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..]),
            (b"no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
            (b"custom-value", b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf"),
            (b"302", b"\x64\x02"),
            (b"private", b"\xae\xc3\x77\x1a\x4b"),
        ] {
            assert_eq!(encoded(text), wire);
            assert_eq!(decoded(wire), Ok(text.to_vec()));
        }
    }

    #[test]
    fn every_byte_goes_both_ways_alone_and_among_others() {
        for byte in 0..=u8::MAX {
            for text in [vec![byte], vec![byte; 9], vec![b'a', byte, b'0', byte]] {
                assert_eq!(decoded(&encoded(&text)), Ok(text));
            }
        }
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        for (wire, is_sound) in [
            (&[0xff][..], false),
            (&[0x1f], true),
            (&[0x1e], false),
            (&[0x00], false),
            (&[0x1f, 0xff], false),
            (&[0x07], true),
        ] {
            assert_eq!(decoded(wire).is_ok(), is_sound, "{wire:x?}");
        }
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xfc]), Err(END));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(END));
    }

    #[test]
    fn no_code_is_part_of_another_one() {
        let total: u64 = LENGTHS.iter().map(|&len| 1 << (BITS_MAX - usize::from(len))).sum();
        assert_eq!(total, 1 << BITS_MAX);
    }
}
