//! What a program says of a buffer beside its data (`tpsetcallinfo`): fields that travel with it, behind its data.
//!
//! Pure: clients and workers join and split; a message has a bit for it ([`wire`](crate::wire)).

/// `data`, the fields, and their length as four bytes.
#[must_use]
pub fn joined(data: &[u8], info: &[u8]) -> Vec<u8> {
    let len = u32::try_from(info.len()).unwrap_or(0).to_le_bytes();
    [data, &info[..u32::from_le_bytes(len) as usize], &len].concat()
}

/// The data and the fields of what was [`joined`]; none for anything else.
#[must_use]
pub fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, len) = bytes.split_last_chunk::<4>()?;
    let at = rest.len().checked_sub(u32::from_le_bytes(*len) as usize)?;
    Some(rest.split_at(at))
}

/// Bytes that fields take behind the data.
#[must_use]
pub(crate) fn len_bytes(info: &[u8]) -> usize {
    info.len() + size_of::<u32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_is_split_as_it_was() {
        for (data, info) in [(&b"data"[..], &b"fields"[..]), (b"", b"x"), (b"abc", b"")] {
            assert_eq!(split(&joined(data, info)), Some((data, info)));
        }
        for wrong in [&b""[..], b"abc", b"\x01\0\0\0", b"ab\x03\0\0\0", b"\xff\xff\xff\xff"] {
            assert_eq!(split(wrong), None, "{wrong:?}");
        }
    }
}
