//! Answers as bytes: short ones that are made on the spot (errors, redirects, refusals, empty bodies), the
//! output that does not fit into one call ([`Unsent`]), and the fixed reply, which is made beforehand.
//!
//! The sessions and the file handler call it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use pollux_engine::{Actions, FileRange};
use pollux_http::{DateCache, HeadWriter, Limits, Rejection, Status};
use rustix::io::Errno;

use crate::config::FIELDS_BYTES_MAX;
use crate::head::explanation;
use crate::head::shared_fields::{Common, FieldContext, Page};
use crate::refusal::Refusal;

/// Room for any short answer: its fields are ours and few, but for a `Location` of at most 24 KiB.
pub(crate) const SHORT_BYTES_MAX: usize = 26 * 1024;

/// What an answer says about the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Persistence {
    /// Nothing: HTTP/1.1 stays open.
    Implicit,
    /// `keep-alive`, for a client of HTTP/1.0 that asked for it.
    Explicit,
    /// `close`.
    Close,
}

impl Persistence {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Implicit, Self::Explicit, Self::Close];

    /// The persistence for a client of HTTP/1.`version_minor`.
    #[inline]
    pub(crate) fn for_client(version_minor: u8, is_last: bool) -> Self {
        match (is_last, version_minor) {
            (true, _) => Self::Close,
            (false, 0) => Self::Explicit,
            (false, _) => Self::Implicit,
        }
    }

    /// Adds the field to a head.
    pub(crate) fn write(self, head: &mut HeadWriter<'_>) {
        head.connection(u8::from(self != Self::Explicit), self == Self::Close);
    }
}

/// How an answer is to be given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) persistence: Persistence,
    /// HEAD: no body.
    pub(crate) is_head: bool,
    pub(crate) asked: FieldContext,
}

/// What was answered, and what of it has not been sent yet.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: Status,
    pub(crate) body_bytes: u64,
    pub(crate) left: Left,
    /// Why it is a page that refuses the request, where it is one.
    pub(crate) refusal: Option<Refusal>,
}

/// What follows what a call has sent.
#[derive(Debug)]
pub(crate) enum Left {
    Nothing,
    /// Nothing, and nothing may follow, whatever the request said.
    End,
    Unsent(Box<Unsent>),
    /// A range of a file that the loop sends.
    File,
}

impl Answered {
    pub(crate) fn whole(status: Status, body_bytes: u64) -> Self {
        Self::new(status, body_bytes, Left::Nothing)
    }

    /// An answer, as far as it was not refused.
    pub(crate) const fn new(status: Status, body_bytes: u64, left: Left) -> Self {
        Self { status, body_bytes, left, refusal: None }
    }

    /// It refuses the request, for this cause.
    pub(crate) fn refused(self, cause: Refusal) -> Self {
        Self { refusal: Some(cause), ..self }
    }
}

/// Sends an answer with a text of one line, which is the status, or with the settings' page for it.
pub(crate) fn page(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    status: Status,
    add: impl FnOnce(&mut HeadWriter<'_>),
) -> Answered {
    page_of(actions, common, context, status, None, add)
}

/// As [`page`], with this one in place of that of the settings, where there is one.
pub(crate) fn page_of(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    status: Status,
    own: Option<&Page>,
    add: impl FnOnce(&mut HeadWriter<'_>),
) -> Answered {
    let text = || format!("{} {}\n", status.code(), status.reason());
    let page = own.or_else(|| common.page(status));
    text_or_page(actions, common, context, status, (page, text), add)
}

/// Sends the answer to bytes that were refused, with the reason; the connection ends with it.
pub(crate) fn refusal(
    actions: &mut Actions<'_>,
    common: &Common,
    refused: Rejection,
    limits: &Limits,
    is_head: bool,
) -> Answered {
    let context = Context { persistence: Persistence::Close, is_head, asked: common.unasked() };
    let why = explanation(&refused, limits);
    let answered = explained(actions, common, context, refused.status, &why, |_| {});
    answered.refused(Refusal::Unsound)
}

/// Sends the answer to a request that did not come in time. Without a body: part of a head may be the start of one to
/// HEAD.
pub(crate) fn late(actions: &mut Actions<'_>, common: &Common, refusal: Refusal) -> Answered {
    let asked = common.unasked();
    let context = Context { persistence: Persistence::Close, is_head: false, asked };
    empty(actions, common, context, refusal.status(), |_| {}).refused(refusal)
}

/// Sends the answer to a method that is not for what answers here, with those that are.
pub(crate) fn other_method(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    refusal: Refusal,
    allow: &[u8],
) -> Answered {
    let answered = page(actions, common, context, refusal.status(), |head| {
        head.field("Allow", allow);
    });
    answered.refused(refusal)
}

/// As [`page`], with the reason behind the status.
pub(crate) fn explained(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    status: Status,
    why: &str,
    add: impl FnOnce(&mut HeadWriter<'_>),
) -> Answered {
    let text = || format!("{} {}: {why}\n", status.code(), status.reason());
    text_or_page(actions, common, context, status, (common.page(status), text), add)
}

/// Sends an answer without a body: `Content-Length: 0` where a body could be.
pub(crate) fn empty(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    status: Status,
    add: impl FnOnce(&mut HeadWriter<'_>),
) -> Answered {
    let mut head = common.begin(actions.spare(), status, context.asked);
    add(&mut head);
    if status.allows_body() {
        head.content_length(0);
    }
    context.persistence.write(&mut head);
    let head_bytes = head.finish().expect("a short answer fits into a call");
    actions.advance(head_bytes);
    Answered::whole(status, 0)
}

/// Sends a whole document, in pieces when the room does not take it.
pub(crate) fn document(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    content_type: &str,
    body: impl Into<Vec<u8>>,
) -> Answered {
    let body = body.into();
    let status = Status::OK;
    let body_bytes = body.len() as u64;
    let mut head = common.begin(actions.spare(), status, context.asked);
    head.field("Content-Type", content_type.as_bytes());
    head.content_length(body_bytes);
    context.persistence.write(&mut head);
    let head_bytes = head.finish().expect("a head fits into a call");
    actions.advance(head_bytes);
    if context.is_head {
        return Answered::whole(status, 0);
    }
    if body.is_empty() {
        return Answered::whole(status, 0);
    }
    let mut unsent = Unsent::once(body);
    let is_all_sent = unsent.send(actions).expect("a body is in memory");
    let left = if is_all_sent { Left::Nothing } else { Left::Unsent(Box::new(unsent)) };
    Answered::new(status, body_bytes, left)
}

/// Sends this page, or the text where there is none, or no room for it.
fn text_or_page(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    status: Status,
    (page, text): (Option<&Page>, impl FnOnce() -> String),
    add: impl FnOnce(&mut HeadWriter<'_>),
) -> Answered {
    let made;
    // Behind interim answers a page may not fit into the call, and the text does.
    let fits = |page: &&Page| actions.room() >= page.text.len() + ROOM_BESIDE_PAGE_BYTES;
    let (content_type, body) = match page.filter(fits) {
        Some(page) => (page.content_type, &*page.text),
        None => {
            made = text();
            ("text/plain; charset=utf-8", made.as_bytes())
        }
    };
    let body_bytes = body.len() as u64;
    let mut head = common.begin(actions.spare(), status, context.asked);
    head.field("Content-Type", content_type.as_bytes());
    add(&mut head);
    head.content_length(body_bytes);
    context.persistence.write(&mut head);
    let head_bytes = head.finish().expect("a short answer fits into a call");
    actions.advance(head_bytes);
    if context.is_head || body.is_empty() {
        return Answered::whole(status, 0);
    }
    actions.send(body);
    Answered::whole(status, body_bytes)
}

/// What is left of a body.
///
/// The session keeps one while it asks to be called again; nothing is copied twice.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// A block of bytes, sent once or over and over, up to a length.
    Block { block: Arc<[u8]>, sent_bytes: u64, len_bytes: u64 },
    /// Part of a file that the loop can't send.
    File(FileRange),
}

impl Unsent {
    /// `len_bytes` of output that consists of `block`, again and again.
    pub(crate) fn repeated(block: Arc<[u8]>, len_bytes: u64) -> Self {
        assert!(!block.is_empty(), "nothing repeated is nothing");
        Self::Block { block, sent_bytes: 0, len_bytes }
    }

    /// `bytes`, once.
    pub(crate) fn once(bytes: Vec<u8>) -> Self {
        let len_bytes = bytes.len() as u64;
        Self::Block { block: bytes.into(), sent_bytes: 0, len_bytes }
    }

    /// A part of a file, read as far as it fits into each call: that blocks the loop as long as the disk
    /// takes.
    pub(crate) fn file(range: FileRange) -> Self {
        Self::File(range)
    }

    /// Whether it keeps a file open.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// What was not sent yet.
    pub(crate) fn left_bytes(&self) -> u64 {
        match self {
            Self::Block { sent_bytes, len_bytes, .. } => len_bytes - sent_bytes,
            Self::File(range) => range.len,
        }
    }

    /// Sends what the room takes; says whether that was all.
    ///
    /// # Errors
    /// The file can't be read, or is shorter than it was.
    pub(crate) fn send(&mut self, actions: &mut Actions<'_>) -> Result<bool, Errno> {
        let left = usize::try_from(self.left_bytes()).unwrap_or(usize::MAX);
        let piece = left.min(actions.room());
        self.fill(&mut actions.spare()[..piece])?;
        actions.advance(piece);
        Ok(self.left_bytes() == 0)
    }

    /// Writes as much into `room` as it takes: no more than what is left.
    ///
    /// # Errors
    /// As [`Unsent::send`].
    pub(crate) fn fill(&mut self, mut room: &mut [u8]) -> Result<(), Errno> {
        match self {
            Self::Block { block, sent_bytes, .. } => {
                while !room.is_empty() {
                    let at = usize::try_from(*sent_bytes % block.len() as u64).expect("in a block");
                    let piece = (block.len() - at).min(room.len());
                    room[..piece].copy_from_slice(&block[at..at + piece]);
                    room = &mut room[piece..];
                    *sent_bytes += piece as u64;
                }
            }
            Self::File(range) => {
                read_exactly(&range.file, room, range.offset)?;
                range.offset += room.len() as u64;
                range.len -= room.len() as u64;
            }
        }
        Ok(())
    }

    /// The last so many bytes that were sent come again: there was no room for them after all.
    pub(crate) fn take_back(&mut self, bytes: u64) {
        match self {
            Self::Block { sent_bytes, .. } => *sent_bytes -= bytes,
            Self::File(range) => {
                range.offset -= bytes;
                range.len += bytes;
            }
        }
    }
}

/// Fills `into` with what stands in the file from `offset` on.
///
/// # Errors
/// It can't be read; it ends before, with `EIO`.
pub(crate) fn read_exactly(file: &OwnedFd, into: &mut [u8], offset: u64) -> Result<(), Errno> {
    let mut at = 0;
    while at < into.len() {
        match rustix::io::pread(file, &mut into[at..], offset + at as u64) {
            // The file was truncated after its length was read.
            Ok(0) => return Err(Errno::IO),
            Ok(read) => at += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Bodies up to this size are copied behind their head; larger ones follow in pieces.
const WHOLE_BYTES_MAX: u64 = 32 * 1024;
/// What larger bodies are made of, over and over.
const BLOCK_BYTES: usize = 64 * 1024;
/// One line of the body.
const LINE: &[u8] = b"pollux 0123456789 abcdefghijklm\n";
/// A head is shorter than this.
const HEAD_BYTES_MAX: usize = 512 + FIELDS_BYTES_MAX;
/// Room for the head of a page and what is said beside it: Allow, Proxy-Status.
const ROOM_BESIDE_PAGE_BYTES: usize = HEAD_BYTES_MAX + 1024;

/// A fixed reply in all its variants.
///
/// Only the date inside them changes, once a second. The sessions call it on their hottest path;
/// it allocates there only where rules for some paths make another head.
#[derive(Debug)]
pub(crate) struct FixedReply {
    len_bytes: u64,
    variants: [Variant; Persistence::ALL.len()],
    /// What the variants were made for: requests of which no setting says more than of all.
    asked: FieldContext,
    /// Whether some requests get fields that others don't.
    has_others: bool,
    /// What a body consists of that is not copied behind its head; empty when all are.
    block: Arc<[u8]>,
    /// The head leaves alone.
    is_split: bool,
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
            is_split,
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
        let mut body = Unsent::repeated(Arc::clone(&self.block), self.len_bytes);
        // Behind the head at once: in a call of its own it would be a second output of this turn.
        let is_all_sent = !self.is_split && body.send(actions).expect("a body is in memory");
        (!is_all_sent).then(|| Box::new(body))
    }
}

/// A fixed reply of a route, whose head is written for each request: front ends may differ in what they add to it.
#[derive(Debug)]
pub(crate) struct RouteReply {
    len_bytes: u64,
    /// All of the body, or what it consists of.
    block: Arc<[u8]>,
}

impl RouteReply {
    /// Room that [`RouteReply::send`] needs.
    pub(crate) const ROOM_BYTES: usize = HEAD_BYTES_MAX + WHOLE_BYTES_MAX as usize;

    /// A reply with a body of `len_bytes`.
    pub(crate) fn new(len_bytes: u64) -> Self {
        let block_bytes = if len_bytes <= WHOLE_BYTES_MAX { len_bytes } else { BLOCK_BYTES as u64 };
        Self { len_bytes, block: body(block_bytes as usize).into() }
    }

    /// Sends head and body, or the head alone.
    pub(crate) fn send(
        &self,
        actions: &mut Actions<'_>,
        common: &Common,
        context: Context,
    ) -> Answered {
        let mut head = common.begin(actions.spare(), Status::OK, context.asked);
        head.field("Content-Type", b"text/plain");
        head.content_length(self.len_bytes);
        context.persistence.write(&mut head);
        let head_bytes = head.finish().expect("a fixed head is short");
        actions.advance(head_bytes);
        if context.is_head || self.len_bytes == 0 {
            return Answered::whole(Status::OK, 0);
        }
        if self.len_bytes <= WHOLE_BYTES_MAX {
            actions.send(&self.block);
            return Answered::whole(Status::OK, self.len_bytes);
        }
        let mut body = Unsent::repeated(Arc::clone(&self.block), self.len_bytes);
        let is_all_sent = body.send(actions).expect("a body is in memory");
        let left = if is_all_sent { Left::Nothing } else { Left::Unsent(Box::new(body)) };
        Answered::new(Status::OK, self.len_bytes, left)
    }
}

impl Variant {
    fn new(
        persistence: Persistence,
        len_bytes: u64,
        is_whole: bool,
        common: &Common,
        asked: FieldContext,
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
