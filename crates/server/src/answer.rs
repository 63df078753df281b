//! Short answers that are made on the spot: errors, redirects, refusals, empty bodies.
//!
//! The sessions and the file handler call it. The fixed reply does not: it is made beforehand.

use pollux_engine::Actions;
use pollux_http::{HeadWriter, Rejection, Status};

use crate::common_fields::{Asked, Common, Page};
use crate::unsent::Unsent;

/// Room for any short answer: its fields are ours and few, but for a `Location`, which may be
/// three times as long as the longest target.
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
    pub(crate) fn of(version_minor: u8, is_last: bool) -> Self {
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
    pub(crate) asked: Asked,
}

/// What was answered, and what of it has not been sent yet.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: Status,
    pub(crate) body_bytes: u64,
    pub(crate) left: Left,
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
        Self { status, body_bytes, left: Left::Nothing }
    }
}

/// Sends an answer with a text of one line that tells the status.
pub(crate) fn page(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    status: Status,
    add: impl FnOnce(&mut HeadWriter<'_>),
) -> Answered {
    if let Some(page) = common.page(status) {
        return own_page(actions, common, context, status, page, add);
    }
    let text = format!("{} {}\n", status.code(), status.reason());
    send(actions, common, context, status, text.as_bytes(), add)
}

/// Sends the answer to bytes that were refused, with the reason; the connection ends with it.
pub(crate) fn refusal(
    actions: &mut Actions<'_>,
    common: &Common,
    refused: Rejection,
    is_head: bool,
) -> Answered {
    let Rejection { status, reason, rfc } = refused;
    let context = Context { persistence: Persistence::Close, is_head, asked: common.unasked() };
    explained(actions, common, context, status, &format!("{reason} ({rfc})"), |_| {})
}

/// Sends an answer with a text of one line that tells the status and why it is that.
pub(crate) fn explained(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    status: Status,
    why: &str,
    add: impl FnOnce(&mut HeadWriter<'_>),
) -> Answered {
    if let Some(page) = common.page(status) {
        return own_page(actions, common, context, status, page, add);
    }
    let text = format!("{} {}: {why}\n", status.code(), status.reason());
    send(actions, common, context, status, text.as_bytes(), add)
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
    text: String,
) -> Answered {
    let (status, body_bytes) = (Status::OK, text.len() as u64);
    let mut head = common.begin(actions.spare(), status, context.asked);
    head.field("Content-Type", content_type.as_bytes());
    head.content_length(body_bytes);
    context.persistence.write(&mut head);
    let head_bytes = head.finish().expect("a head fits into a call");
    actions.advance(head_bytes);
    if context.is_head {
        return Answered::whole(status, 0);
    }
    let mut unsent = Unsent::once(text.into_bytes());
    let is_all_sent = unsent.send(actions).expect("a text is in memory");
    let left = if is_all_sent { Left::Nothing } else { Left::Unsent(Box::new(unsent)) };
    Answered { status, body_bytes, left }
}

/// Sends the page that the settings have for this status.
fn own_page(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    status: Status,
    page: &Page,
    add: impl FnOnce(&mut HeadWriter<'_>),
) -> Answered {
    let body_bytes = page.text.len() as u64;
    let mut head = common.begin(actions.spare(), status, context.asked);
    head.field("Content-Type", page.content_type.as_bytes());
    add(&mut head);
    head.content_length(body_bytes);
    context.persistence.write(&mut head);
    let head_bytes = head.finish().expect("a short answer fits into a call");
    actions.advance(head_bytes);
    if context.is_head || page.text.is_empty() {
        return Answered::whole(status, 0);
    }
    actions.send(&page.text);
    Answered::whole(status, body_bytes)
}

fn send(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    status: Status,
    text: &[u8],
    add: impl FnOnce(&mut HeadWriter<'_>),
) -> Answered {
    let mut head = common.begin(actions.spare(), status, context.asked);
    head.field("Content-Type", b"text/plain; charset=utf-8");
    add(&mut head);
    head.content_length(text.len() as u64);
    context.persistence.write(&mut head);
    let head_bytes = head.finish().expect("a short answer fits into a call");
    actions.advance(head_bytes);
    if context.is_head {
        return Answered::whole(status, 0);
    }
    actions.send(text);
    Answered::whole(status, text.len() as u64)
}
