//! Frames of HTTP/2 by their kind, as they are counted in what came and in what was sent.

use std::collections::BTreeMap;

/// Bytes in front of the payload of each (RFC 9113 4.1).
const HEAD_BYTES: usize = 9;

/// The kinds in the order of their numbers (RFC 9113 6), and all others.
const KINDS: [&str; 11] = [
    "data",
    "headers",
    "priority",
    "rst_stream",
    "settings",
    "push_promise",
    "ping",
    "goaway",
    "window_update",
    "continuation",
    "other",
];

/// How many there were of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Frames([u64; KINDS.len()]);

impl Frames {
    /// Counts the frames that `bytes` consist of.
    #[inline]
    pub(crate) fn count(&mut self, mut bytes: &[u8]) {
        while let Some([a, b, c, kind, ..]) = bytes.first_chunk::<HEAD_BYTES>() {
            let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            self.0[usize::from(*kind).min(KINDS.len() - 1)] += 1;
            bytes = bytes.get(HEAD_BYTES + len..).unwrap_or_default();
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, more)| *mine += more);
    }

    /// Those that there were, by the names of their kinds.
    pub(crate) fn named(&self) -> BTreeMap<String, u64> {
        let some = KINDS.iter().zip(self.0).filter(|(_, count)| *count > 0);
        some.map(|(kind, count)| ((*kind).to_owned(), count)).collect()
    }
}

/// The frame that `bytes` begin with, in words; none where they have no whole head.
pub(crate) fn in_words(bytes: &[u8]) -> Option<String> {
    let [a, b, c, kind, flags, stream @ ..] = *bytes.first_chunk::<HEAD_BYTES>()?;
    let name = match KINDS.get(usize::from(kind)) {
        Some(name) if *name != "other" => (*name).to_owned(),
        _ => format!("of the unknown type {kind:#x}"),
    };
    let len = u32::from_be_bytes([0, a, b, c]);
    let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
    Some(format!("frame {name}, {len} bytes, flags {flags:#x}, stream {stream}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, len: u8) -> Vec<u8> {
        [&[0, 0, len, kind, 0, 0, 0, 0, 1][..], &vec![kind; usize::from(len)]].concat()
    }

    #[test]
    fn frames_are_counted_by_kind_and_unknown_ones_as_others() {
        let mut frames = Frames::default();
        frames.count(&[frame(1, 5), frame(0, 200), frame(0, 0), frame(0xab, 3)].concat());
        frames.count(&frame(16, 4));
        frames.count(&[]);
        let named = |name: &str, count: u64| (name.to_owned(), count);
        let expected = BTreeMap::from([named("data", 2), named("headers", 1), named("other", 2)]);
        assert_eq!(frames.named(), expected);
        let mut twice = frames;
        twice.add(&frames);
        assert_eq!(twice.named()["data"], 4);
    }

    #[test]
    fn a_frame_is_named_by_its_head() {
        let said = in_words(&[frame(8, 4), frame(0, 1)].concat());
        assert_eq!(said.as_deref(), Some("frame window_update, 4 bytes, flags 0x0, stream 1"));
        for kind in [10, 0xab] {
            let said = in_words(&[0, 1, 0, kind, 5, 0x80, 0, 0, 3]).expect("a head");
            let unknown = format!("frame of the unknown type {kind:#x}");
            assert_eq!(said, format!("{unknown}, 256 bytes, flags 0x5, stream 3"));
        }
        assert_eq!(in_words(&[0; 8]), None);
    }
}
