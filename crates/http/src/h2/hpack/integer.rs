//! Integers of RFC 7541 5.1: some bits of a first byte, then seven in each that follows.

use crate::h2::error::Fault;
use crate::h2::output::Output;

/// Bytes that may follow the first one: numbers up to 2^28 and a little more, which exceeds every limit here.
const MORE_BYTES_MAX: usize = 4;

const CUT: Fault = Fault::hpack("a field block ends inside a number", "RFC 7541 5.1");
const LONG: Fault = Fault::hpack("a number in a field block is too long", "RFC 7541 5.1");

/// Reads the number at `at`, of whose first byte the lower `bits` count.
#[inline]
pub(crate) fn read(block: &[u8], at: &mut usize, bits: u32) -> Result<usize, Fault> {
    let mask = (1 << bits) - 1;
    let first = usize::from(*block.get(*at).ok_or(CUT)?) & mask;
    *at += 1;
    if first < mask { Ok(first) } else { read_more(block, at, first) }
}

#[inline(never)]
fn read_more(block: &[u8], at: &mut usize, mut number: usize) -> Result<usize, Fault> {
    for place in 0..MORE_BYTES_MAX {
        let byte = *block.get(*at).ok_or(CUT)?;
        *at += 1;
        number += usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(LONG)
}

/// Writes the number behind the upper bits of `first`.
#[inline]
pub(crate) fn write(out: &mut Output<'_>, first: u8, bits: u32, number: usize) {
    let mask = (1 << bits) - 1;
    if number < mask {
        return out.put(&[first | u8::try_from(number).expect("below the mask")]);
    }
    out.put(&[first | u8::try_from(mask).expect("at most eight bits")]);
    let mut rest = number - mask;
    while rest >= 0x80 {
        out.put(&[(rest & 0x7f) as u8 | 0x80]);
        rest >>= 7;
    }
    out.put(&[rest as u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7541 C.1.
    #[test]
    fn the_examples_of_the_standard_go_both_ways() {
        for (number, bits, wire) in
            [(10, 5, &[10][..]), (1337, 5, &[0x1f, 0x9a, 0x0a]), (42, 8, &[42])]
        {
            let mut room = [0; 8];
            let mut out = Output::new(&mut room);
            write(&mut out, 0, bits, number);
            assert_eq!(out.bytes(), wire);
            let mut at = 0;
            assert_eq!((read(wire, &mut at, bits), at), (Ok(number), wire.len()));
        }
    }

    #[test]
    fn numbers_of_all_sizes_go_both_ways_and_a_part_is_none() {
        for bits in 4..=8 {
            for number in (0..300).chain((9..28).map(|power| 1 << power)) {
                let mut room = [0; 8];
                let mut out = Output::new(&mut room);
                write(&mut out, 0, bits, number);
                let wire = out.bytes();
                let mut at = 0;
                assert_eq!((read(wire, &mut at, bits), at), (Ok(number), wire.len()));
                for end in 0..wire.len() {
                    assert_eq!(read(&wire[..end], &mut 0, bits), Err(CUT));
                }
            }
        }
    }

    #[test]
    fn an_endless_number_is_refused() {
        assert_eq!(read(&[0xff; 9], &mut 0, 7), Err(LONG));
        assert_eq!(read(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0], &mut 0, 7), Err(LONG));
        assert_eq!(read(&[0x7f, 0x80, 0x80, 0x80, 0], &mut 0, 7), Ok(127));
    }
}
