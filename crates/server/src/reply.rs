//! The fixed reply: whole responses made beforehand, copied out once per request.
//!
//! Only the date inside them changes, once a second. The sessions call it on their hottest path;
//! it allocates there only where rules for some paths make another head.

use std::sync::Arc;

use pollux_engine::Actions;
use pollux_http::{DateCache, Status};

use crate::answer::{Context, Persistence};
use crate::common_fields::{Asked, Common};
use crate::config::FIELDS_BYTES_MAX;
use crate::unsent::Unsent;

/// Bodies up to this size are copied behind their head; larger ones follow in pieces.
const WHOLE_BYTES_MAX: u64 = 32 * 1024;
/// What larger bodies are made of, over and over.
const BLOCK_BYTES: usize = 64 * 1024;
/// One line of the body.
const LINE: &[u8] = b"pollux 0123456789 abcdefghijklm\n";
/// A head is shorter than this.
const HEAD_BYTES_MAX: usize = 512 + FIELDS_BYTES_MAX;

/// A fixed reply in all its variants.
#[derive(Debug)]
pub(crate) struct FixedReply {
    len_bytes: u64,
    variants: [Variant; Persistence::ALL.len()],
    /// What the variants were made for: requests of which no setting says more than of all.
    asked: Asked,
    /// Whether some requests get fields that others don't.
    has_others: bool,
    /// What a body consists of that is not copied behind its head; empty when all are.
    block: Arc<[u8]>,
}

/// One response: its head and, when it is small, its body.
#[derive(Debug)]
struct Variant {
    bytes: Box<[u8]>,
    head_bytes: usize,
    date_at: usize,
}

impl FixedReply {
    /// A reply with a body of `len_bytes`; one that is split leaves in two writes or more.
    pub(crate) fn new(len_bytes: u64, is_split: bool, common: &Common) -> Self {
        let is_whole = len_bytes == 0 || len_bytes <= WHOLE_BYTES_MAX && !is_split;
        let block: Arc<[u8]> = if is_whole { Arc::new([]) } else { body(BLOCK_BYTES).into() };
        let asked = common.unasked();
        Self {
            len_bytes,
            variants: Persistence::ALL
                .map(|persistence| Variant::new(persistence, len_bytes, is_whole, common, asked)),
            asked,
            has_others: common.has_paths(),
            block,
        }
    }

    /// Writes the date into every variant.
    pub(crate) fn set_date(&mut self, date: &DateCache) {
        for variant in &mut self.variants {
            variant.bytes[variant.date_at..][..DateCache::BYTES].copy_from_slice(date.text());
        }
    }

    /// Room that [`FixedReply::send`] needs.
    pub(crate) fn room_bytes(&self) -> usize {
        let longest = self.variants.iter().map(|variant| variant.bytes.len()).max().unwrap_or(0);
        longest + if self.has_others { FIELDS_BYTES_MAX } else { 0 }
    }

    /// Size of the body.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Sends head and body, or the head alone; gives back what is left of a large body.
    #[inline]
    pub(crate) fn send(
        &self,
        actions: &mut Actions<'_>,
        common: &Common,
        context: Context,
    ) -> Option<Box<Unsent>> {
        if self.has_others && context.asked != self.asked {
            let is_whole = self.block.is_empty();
            let variant =
                Variant::new(context.persistence, self.len_bytes, is_whole, common, context.asked);
            return self.send_variant(actions, &variant, context.is_head);
        }
        self.send_variant(actions, &self.variants[context.persistence as usize], context.is_head)
    }

    #[inline]
    fn send_variant(
        &self,
        actions: &mut Actions<'_>,
        variant: &Variant,
        is_head: bool,
    ) -> Option<Box<Unsent>> {
        if is_head {
            actions.send(&variant.bytes[..variant.head_bytes]);
            return None;
        }
        actions.send(&variant.bytes);
        if self.block.is_empty() {
            return None;
        }
        Some(Box::new(Unsent::repeated(Arc::clone(&self.block), self.len_bytes)))
    }
}

impl Variant {
    fn new(
        persistence: Persistence,
        len_bytes: u64,
        is_whole: bool,
        common: &Common,
        asked: Asked,
    ) -> Self {
        let mut bytes = vec![0; HEAD_BYTES_MAX];
        let mut head = common.begin(&mut bytes, Status::OK, asked);
        head.field("Content-Type", b"text/plain");
        head.content_length(len_bytes);
        persistence.write(&mut head);
        let head_bytes = head.finish().expect("a fixed head is short");
        let label = b"\r\nDate: ";
        let label_at = bytes.windows(label.len()).position(|at| at == label);
        let date_at = label_at.expect("the date was written") + label.len();
        bytes.truncate(head_bytes);
        if is_whole {
            bytes.extend(body(usize::try_from(len_bytes).expect("bounded")));
        }
        Self { bytes: bytes.into(), head_bytes, date_at }
    }
}

fn body(len_bytes: usize) -> Vec<u8> {
    LINE.iter().copied().cycle().take(len_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_carries_the_new_date() {
        let mut reply = FixedReply::new(5, false, &Common::default());
        reply.set_date(&DateCache::new(784_111_777));
        for variant in &reply.variants {
            let text = String::from_utf8_lossy(&variant.bytes);
            assert!(text.contains("\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "{text}");
            assert!(text.ends_with("\r\n\r\npollu"), "{text}");
        }
    }

    #[test]
    fn large_bodies_are_not_kept_whole() {
        let reply = FixedReply::new(1 << 30, false, &Common::default());
        assert!(reply.room_bytes() < HEAD_BYTES_MAX);
        assert!(FixedReply::new(5, true, &Common::default()).room_bytes() < HEAD_BYTES_MAX);
        for is_split in [false, true] {
            assert_eq!(FixedReply::new(0, is_split, &Common::default()).block.len(), 0);
        }
    }
}
