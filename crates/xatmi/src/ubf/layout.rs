//! Where header and fields stand in a region, and the walk over them that trusts nothing.
//!
//! Reading and writing stand on it. It never changes a field and never leaves the used bytes.

use super::UbfError;

/// Bytes of the header, which are the used bytes of an empty buffer.
pub const HEADER_BYTES: usize = 16;

/// Most bytes of a region: far above every message, and its lengths fit the `int` of C.
pub const SIZE_MAX: usize = 1 << 30;

/// Most buffers within one another; what checks them goes down one call for each.
pub const NESTING_MAX: usize = 16;

/// Bytes of id and length before each value.
pub(super) const ENTRY_HEAD_BYTES: usize = 8;

/// "PUB" and the version of the layout, in the machine's own order.
const MAGIC: u32 = u32::from_be_bytes(*b"PUB\x01");

/// A buffer without fields and without room.
pub(super) static EMPTY: [u8; HEADER_BYTES] = {
    let words = [MAGIC, HEADER_BYTES as u32, HEADER_BYTES as u32, 0];
    let mut bytes = [0; HEADER_BYTES];
    let mut at = 0;
    while at < HEADER_BYTES {
        bytes[at] = words[at / 4].to_ne_bytes()[at % 4];
        at += 1;
    }
    bytes
};

/// The header; consistent as far as it can be checked without the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the region that the buffer may fill.
    pub(super) size: usize,
    /// Bytes in use, with this header: a multiple of 8.
    pub(super) used: usize,
    /// Fields, each occurrence for itself.
    pub(super) fields: usize,
}

/// A field as it stands in a region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: i32,
    /// Where its head starts.
    pub(super) at: usize,
    /// Bytes of its value.
    pub(super) len: usize,
}

/// The occurrences of one field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) count: usize,
    pub(super) last: Option<Entry>,
}

/// Bytes of the region whose header this is, for a caller that has only its address.
///
/// `header` is the first [`HEADER_BYTES`] of it.
///
/// # Errors
/// [`UbfError::NotFielded`] when it is the header of something else.
pub fn region_size(header: &[u8]) -> Result<usize, UbfError> {
    Header::read(header).map(|header| header.size)
}

/// Bytes of a region that holds any `fields` fields whose values take `value_bytes` together.
///
/// # Errors
/// [`UbfError::Invalid`] when that is more than [`SIZE_MAX`].
pub fn bytes_needed(fields: usize, value_bytes: usize) -> Result<usize, UbfError> {
    const FILL_BYTES_MAX: usize = 7;
    let heads = fields.saturating_mul(ENTRY_HEAD_BYTES + FILL_BYTES_MAX);
    let needed = heads.saturating_add(value_bytes).saturating_add(HEADER_BYTES);
    if needed > SIZE_MAX {
        return Err(UbfError::Invalid { reason: "a buffer has at most 1 GiB" });
    }
    Ok(needed.next_multiple_of(8))
}

impl Header {
    #[inline]
    pub(super) fn read(region: &[u8]) -> Result<Self, UbfError> {
        let Some(head) = region.first_chunk::<HEADER_BYTES>() else {
            return Err(damaged("it is shorter than a header"));
        };
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(0) != MAGIC {
            return Err(damaged("it has not been initialised"));
        }
        let [size, used, fields] = [word(4), word(8), word(12)].map(|word| word as usize);
        let is_used_sound = (HEADER_BYTES..=size).contains(&used) && used.is_multiple_of(8);
        let entries_max = used.saturating_sub(HEADER_BYTES) / ENTRY_HEAD_BYTES;
        if !is_used_sound || size > SIZE_MAX || fields > entries_max {
            return Err(damaged("its header contradicts itself"));
        }
        Ok(Self { size, used, fields })
    }

    /// Writes it over the first bytes.
    #[inline]
    pub(super) fn write(&self, region: &mut [u8]) {
        let words = [MAGIC, word(self.size), word(self.used), word(self.fields)];
        for (place, word) in region[..HEADER_BYTES].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
    }
}

impl Entry {
    /// The field at `at`; `used` holds the used bytes, header included.
    #[inline]
    pub(super) fn read(used: &[u8], at: usize) -> Result<Self, UbfError> {
        let Some(head) = used.get(at..).and_then(|rest| rest.first_chunk::<ENTRY_HEAD_BYTES>())
        else {
            return Err(damaged("a field goes beyond its end"));
        };
        let id = i32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        let len = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let entry = Self { id, at, len };
        if len > SIZE_MAX || entry.end() > used.len() {
            return Err(damaged("a field goes beyond its end"));
        }
        Ok(entry)
    }

    /// Where the next field starts.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.at + entry_bytes(self.len)
    }

    #[inline]
    pub(super) fn value<'a>(&self, used: &'a [u8]) -> &'a [u8] {
        let start = self.at + ENTRY_HEAD_BYTES;
        &used[start..start + self.len]
    }

    /// Its head, as it is written.
    #[inline]
    pub(super) fn head(id: i32, len: usize) -> [u8; ENTRY_HEAD_BYTES] {
        let ([a, b, c, d], [e, f, g, h]) = (id.to_ne_bytes(), word(len).to_ne_bytes());
        [a, b, c, d, e, f, g, h]
    }
}

/// Bytes that a value of `len` takes with its head and what fills it up.
#[inline]
pub(super) fn entry_bytes(len: usize) -> usize {
    ENTRY_HEAD_BYTES + len.next_multiple_of(8)
}

/// The first field whose id is not below `id`, or the end of all.
#[inline]
pub(super) fn seek(used: &[u8], id: i32) -> Result<usize, UbfError> {
    let mut at = HEADER_BYTES;
    while at < used.len() {
        let entry = Entry::read(used, at)?;
        if entry.id >= id {
            break;
        }
        at = entry.end();
    }
    Ok(at)
}

/// All occurrences of `id`; empty, where the first would stand, when there are none.
pub(super) fn run(used: &[u8], id: i32) -> Result<Run, UbfError> {
    let start = seek(used, id)?;
    let mut run = Run { start, end: start, count: 0, last: None };
    while run.end < used.len() {
        let entry = Entry::read(used, run.end)?;
        if entry.id != id {
            break;
        }
        run = Run { start, end: entry.end(), count: run.count + 1, last: Some(entry) };
    }
    Ok(run)
}

/// Occurrence `occurrence` of `id`, from 0.
#[inline]
pub(super) fn nth(used: &[u8], id: i32, occurrence: usize) -> Result<Option<Entry>, UbfError> {
    let (mut at, mut left) = (seek(used, id)?, occurrence);
    while at < used.len() {
        let entry = Entry::read(used, at)?;
        match left {
            _ if entry.id != id => break,
            0 => return Ok(Some(entry)),
            _ => left -= 1,
        }
        at = entry.end();
    }
    Ok(None)
}

/// A region that was made by something else, or changed by it.
pub(super) const fn damaged(reason: &'static str) -> UbfError {
    UbfError::NotFielded { reason }
}

#[inline]
fn word(number: usize) -> u32 {
    u32::try_from(number).expect("lengths are below SIZE_MAX")
}
