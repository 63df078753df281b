//! How a message leaves by a stream of HTTP/2: its head in HEADERS, its body in DATA, each no larger than the windows and the
//! room take, and its trailers in HEADERS again. The same for an answer to a client and for a request to a backend, but for
//! the head of that, which begins the stream.
//!
//! ```text
//!  interim heads │ head, with its Content-Length │ body      │ trailers
//!  HEADERS ..    │ HEADERS                       │ DATA ..   │ HEADERS, or DATA that ends the stream
//! ```
//!
//! What a call sends is at most one frame of the body, with all heads in front of it: streams take turns. What ends the stream
//! stands in the last frame where its end is known by then.

use pollux_engine::Actions;
use pollux_http::Fields;
use pollux_http::h2::{AskHead, CONTROL_ROOM_BYTES, Connection, Output};

use crate::exchange::h1_output::Framer;
use crate::exchange::message::Message;

/// Longest head that a stream gets, as lines: it leaves in one call.
pub(crate) const HEAD_BYTES_MAX: usize = 56 * 1024;

/// What waits for the stream.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Waits {
    #[default]
    Nothing,
    /// Heads, for which there has to be so much room.
    Head(usize),
    /// Bytes of the body.
    Body,
    /// The end alone, for which there has to be so much room.
    End(usize),
}

/// What a request says by its stream beside its head.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedBy<'a> {
    pub(super) scheme: &'a str,
    /// It asks for a WebSocket: the stream stays open for one.
    pub(super) is_websocket: bool,
}

/// Sends the frames that `write` writes.
#[inline]
pub(crate) fn write_frames<R>(
    actions: &mut Actions<'_>,
    write: impl FnOnce(&mut Output<'_>) -> R,
) -> R {
    let mut out = Output::new(actions.spare());
    let wrote = write(&mut out);
    let len = out.len();
    actions.advance(len);
    wrote
}

/// Room that such lines take at most as a field block: a long one has five bytes of lengths, where a line has four that stand
/// between, and the frames have heads.
const fn room_for(lines: usize) -> usize {
    lines + lines / 16 + CONTROL_ROOM_BYTES
}

const _: () = assert!(room_for(HEAD_BYTES_MAX) < Actions::ROOM_MIN, "a call takes it");

/// What of this message waits.
pub(super) fn waits(framer: &Framer, message: &Message) -> Waits {
    let (head, body) = message.waiting();
    if !framer.is_head_out {
        return match (message.has_head(), body.len()) {
            (true, _) => Waits::Head(room_for(head.len())),
            (false, 0) => Waits::Nothing,
            (false, interims) => Waits::Head(room_for(interims)),
        };
    }
    if !body.is_empty() {
        Waits::Body
    } else if message.is_whole && !framer.is_end_out {
        Waits::End(room_for(message.trailers().len()))
    } else {
        Waits::Nothing
    }
}

/// Begins the stream of a request by its head, which ends it where nothing follows; none when its peer takes no more streams.
/// Fields of the names `never_indexed` are put into no table.
/// There has to be as much room as [`waits`] says. Where it asks for a WebSocket nothing follows until that was agreed to
/// ([`Direction::reopen`](crate::exchange::direction::Direction::reopen)).
pub(super) fn ask<T>(
    framer: &mut Framer,
    message: &mut Message,
    by: &mut Connection<T>,
    out: &mut Output<'_>,
    (how, never_indexed): (AskedBy<'_>, &[u8]),
    data: T,
) -> Option<u32> {
    let (head, body) = message.waiting();
    let is_all = message.is_whole && body.is_empty() && message.trailers().is_empty();
    let AskedBy { scheme, is_websocket } = how;
    let ask = AskHead { head, scheme, known: None, path: None };
    let stream = if is_websocket {
        by.ask_head_for_protocol(out, ask, "websocket", never_indexed, data)?
    } else {
        by.ask_head_marked(out, ask, never_indexed, is_all, data)?
    };
    let len = head.len();
    (framer.is_head_out, framer.is_end_out) = (true, is_all);
    message.took(len);
    Some(stream)
}

/// Sends what windows and room take, up to one frame of the body; says how many bytes were taken, or 1 for an end alone. There
/// has to be as much room as [`waits`] says. An end that comes with the head stands in it where `hides_empty` says so, else in
/// a frame of its own, for those who wait for a body. Fields of the names `never_indexed` are put into no table.
pub(super) fn send<T>(
    framer: &mut Framer,
    message: &mut Message,
    by: &mut Connection<T>,
    stream: u32,
    out: &mut Output<'_>,
    (never_indexed, hides_empty): (&[u8], bool),
) -> u64 {
    let mut taken = 0;
    while !framer.is_head_out {
        let (head, behind) = message.waiting();
        let heads = if message.has_head() { head } else { behind };
        if heads.is_empty() {
            return taken;
        }
        let len = by.head_len(heads);
        let is_final = message.has_head() && len == head.len();
        let is_all =
            is_final && message.is_whole && behind.is_empty() && message.trailers().is_empty();
        by.send_head_marked(out, stream, &heads[..len], never_indexed, is_all && hides_empty);
        (framer.is_head_out, framer.is_end_out) = (is_final, is_all && hides_empty);
        message.took(len);
        taken += len as u64;
    }
    if framer.is_end_out {
        return taken;
    }
    let (_, body) = message.waiting();
    let room = out.room().saturating_sub(CONTROL_ROOM_BYTES);
    let piece = body.len().min(by.data_room(stream)).min(room);
    let is_all = message.is_whole && piece == body.len();
    if taken > 0 && !is_all && by.is_behind(stream) {
        // A large body does not get in front of a more urgent one, as its head may.
        return taken;
    }
    let is_last = message.is_whole && piece == body.len();
    let has_trailers = !message.trailers().is_empty();
    let ends = is_last && !has_trailers;
    if piece > 0 || ends {
        by.send_data(out, stream, &body[..piece], ends);
        message.took(piece);
        taken += piece as u64;
    }
    if is_last && has_trailers && out.room() >= room_for(message.trailers().len()) {
        let trailers: Vec<_> = Fields::of_trailers(message.trailers()).collect();
        by.send_trailers_marked(out, stream, &trailers, never_indexed);
        framer.is_end_out = true;
    }
    framer.is_end_out |= ends;
    taken.max(u64::from(framer.is_end_out))
}
