//! The tables of RFC 7541 2.3: fields that everybody knows, and those of one connection and direction.

use std::collections::VecDeque;

/// Largest dynamic table that is kept, whatever the peer would allow: what is announced by default.
pub(crate) const TABLE_BYTES_MAX: usize = 4096;

/// What an entry costs beside its bytes (RFC 7541 4.1).
pub(crate) const ENTRY_BYTES: usize = 32;

/// The static table (RFC 7541 A); its first entry has the index 1.
pub(crate) const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Index of the newest entry of the dynamic table.
pub(crate) const FIRST_DYNAMIC: usize = STATIC.len() + 1;

/// Where the static table has this name first.
pub(crate) fn static_name(name: &[u8]) -> Option<usize> {
    let at = STATIC.iter().position(|(known, _)| known.as_bytes() == name)?;
    Some(at + 1)
}

/// Where the static table has this field.
pub(crate) fn static_field(name: &[u8], value: &[u8]) -> Option<usize> {
    let is_it = |known: &(&str, &str)| {
        known.1.as_bytes() == value && known.0.as_bytes() == name && !value.is_empty()
    };
    Some(STATIC.iter().position(is_it)? + 1)
}

/// The fields of a connection in one direction, the newest first.
///
/// Their bytes stand one behind the other in one buffer, oldest first; what was evicted in front is given up when the
/// buffer would exceed twice the table's size. A table without entries has no memory.
#[derive(Debug)]
pub(crate) struct Table {
    bytes: Vec<u8>,
    /// Oldest first.
    entries: VecDeque<Entry>,
    size: usize,
    size_max: usize,
    /// How often it was changed.
    changes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u32,
    name_len: u16,
    value_len: u16,
    /// Of name and value, for the encoder.
    hash: u32,
}

impl Entry {
    fn len(self) -> usize {
        usize::from(self.name_len) + usize::from(self.value_len)
    }
}

impl Default for Table {
    fn default() -> Self {
        let bytes = Vec::new();
        let entries = VecDeque::new();
        Self { bytes, entries, size: 0, size_max: TABLE_BYTES_MAX, changes: 0 }
    }
}

impl Table {
    /// Its size with the cost of each entry.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn size_max(&self) -> usize {
        self.size_max
    }

    /// How often it was changed: as long as that is the same, so is every index.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Changes its largest size.
    pub(crate) fn resize(&mut self, size_max: usize) {
        self.changes += 1;
        self.size_max = size_max;
        self.evict(size_max);
    }

    /// The entry at this place, 0 for the newest.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<(&[u8], &[u8])> {
        let at = self.entries.len().checked_sub(place + 1)?;
        let entry = self.entries[at];
        let bytes = &self.bytes[entry.at as usize..][..entry.len()];
        Some(bytes.split_at(usize::from(entry.name_len)))
    }

    /// The place of the newest entry that is this field.
    pub(crate) fn find(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let is_alike = |entry: &&Entry| entry.hash == hash;
        let found = self.entries.iter().rev().enumerate().filter(|(_, entry)| is_alike(entry));
        found.map(|(place, _)| place).find(|place| self.get(*place) == Some((name, value)))
    }

    /// The place of the newest entry of this name.
    pub(crate) fn find_name(&self, name: &[u8]) -> Option<usize> {
        (0..self.len()).find(|place| self.get(*place).is_some_and(|(own, _)| own == name))
    }

    /// Adds an entry; one that is larger than the table leaves it empty (RFC 7541 4.4).
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8], hash: u32) {
        self.changes += 1;
        let len = name.len() + value.len();
        let cost = len + ENTRY_BYTES;
        self.evict(self.size_max.saturating_sub(cost));
        if cost > self.size_max {
            return;
        }
        if self.bytes.len() + len > 2 * self.size_max {
            self.give_up_evicted();
        }
        let at = u32::try_from(self.bytes.len()).expect("tables are small");
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        let of = |len| u16::try_from(len).expect("an entry is smaller than its table");
        let name_len = of(name.len());
        let value_len = of(value.len());
        self.entries.push_back(Entry { at, name_len, value_len, hash });
        self.size += cost;
    }

    /// Adds all entries to `packed`, the oldest first: of each both lengths, then its bytes.
    pub(crate) fn pack(&self, packed: &mut Vec<u8>) {
        for entry in &self.entries {
            packed.extend_from_slice(&entry.name_len.to_ne_bytes());
            packed.extend_from_slice(&entry.value_len.to_ne_bytes());
            packed.extend_from_slice(&self.bytes[entry.at as usize..][..entry.len()]);
        }
    }

    /// The table of a decoder with these entries, as [`Table::pack`] has written them.
    pub(crate) fn unpacked(size_max: usize, mut packed: &[u8]) -> Self {
        let bytes = Vec::with_capacity(packed.len());
        let mut table = Self { bytes, size_max, ..Self::default() };
        while let Some(([n0, n1, v0, v1], rest)) = packed.split_first_chunk() {
            let (name, rest) = rest.split_at(u16::from_ne_bytes([*n0, *n1]).into());
            let (value, rest) = rest.split_at(u16::from_ne_bytes([*v0, *v1]).into());
            table.insert(name, value, 0);
            packed = rest;
        }
        table
    }

    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(oldest) = self.entries.pop_front()
        {
            self.size -= oldest.len() + ENTRY_BYTES;
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    fn give_up_evicted(&mut self) {
        let Some(oldest) = self.entries.front() else { return self.bytes.clear() };
        let start = oldest.at;
        self.bytes.drain(..start as usize);
        for entry in &mut self.entries {
            entry.at -= start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_first_and_the_oldest_leaves() {
        let mut table = Table::default();
        table.resize(3 * (ENTRY_BYTES + 2));
        for name in [b"a", b"b", b"c", b"d"] {
            table.insert(name, b"1", 0);
        }
        let names: Vec<_> = (0..5).map(|place| table.get(place).map(|(name, _)| name)).collect();
        assert_eq!(names, [Some(&b"d"[..]), Some(b"c"), Some(b"b"), None, None]);
        assert_eq!((table.len(), table.size()), (3, 3 * (ENTRY_BYTES + 2)));
        table.resize(ENTRY_BYTES + 2);
        assert_eq!(table.get(0), Some((&b"d"[..], &b"1"[..])));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn an_entry_that_is_larger_than_the_table_empties_it() {
        let mut table = Table::default();
        table.insert(b"a", b"b", 0);
        table.insert(b"large", &[b'x'; TABLE_BYTES_MAX], 0);
        assert_eq!((table.len(), table.size(), table.changes()), (0, 0, 2));
    }

    #[test]
    fn a_table_that_is_used_for_long_stays_small_and_right() {
        let mut table = Table::default();
        let value = |number: usize| format!("{number}").repeat(1 + number % 40);
        for number in 0..5000 {
            table.insert(b"name", value(number).as_bytes(), 0);
            assert!(table.bytes.len() <= 2 * TABLE_BYTES_MAX && table.size() <= TABLE_BYTES_MAX);
            for place in 0..table.len() {
                let expected = value(number - place);
                assert_eq!(table.get(place), Some((&b"name"[..], expected.as_bytes())));
            }
        }
    }

    #[test]
    fn a_table_that_was_packed_is_the_same() {
        let mut table = Table::default();
        table.resize(2000);
        for number in 0..500 {
            table.insert(b"name", format!("{number}").repeat(number % 30).as_bytes(), 0);
            let mut packed = Vec::new();
            table.pack(&mut packed);
            let same = Table::unpacked(table.size_max(), &packed);
            assert_eq!((same.len(), same.size()), (table.len(), table.size()));
            assert_eq!(same.size_max(), 2000);
            assert!((0..table.len()).all(|place| same.get(place) == table.get(place)));
        }
        assert_eq!(Table::unpacked(0, &[]).len(), 0);
    }

    #[test]
    fn fields_are_found_by_what_they_are() {
        assert_eq!(static_field(b":status", b"304"), Some(11));
        assert_eq!((static_name(b":status"), static_name(b"vary")), (Some(8), Some(59)));
        assert_eq!((static_field(b"vary", b""), static_name(b"x")), (None, None));
    }
}
