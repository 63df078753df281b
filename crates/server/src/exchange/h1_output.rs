//! How a message leaves by a connection of HTTP/1: the fields of that one hop behind its head, and its body as it is or in
//! chunks. The same for a request to a backend and for an answer to a client.
//!
//! ```text
//!  head │ tail: Content-Length or Transfer-Encoding, Connection, Upgrade, Expect, empty line │ body or chunks │ last chunk
//! ```
//!
//! Chunks are cut when they leave: what waits is one. Bytes that are not HTTP have neither head nor tail.

use pollux_engine::Actions;
use pollux_http::{CHUNK_END, CHUNK_HEAD_BYTES_MAX, LAST_CHUNK, write_chunk_head};

use crate::exchange::message::Message;
use crate::head::tail::{HeadTail, TAIL_BYTES_MAX};

/// What a chunk needs beside its data, and the last one behind it.
const CHUNK_ROOM: usize = CHUNK_HEAD_BYTES_MAX + CHUNK_END.len() + LAST_CHUNK.len();

/// How many bytes of the last chunk stand in front of trailers.
const LAST_CHUNK_HEAD_BYTES: usize = LAST_CHUNK.len() - 2;

/// How far one message has left, and how it does.
#[derive(Debug)]
pub(crate) struct Framer {
    pub(super) tail: HeadTail,
    /// The head has left with its tail, or there is none.
    pub(super) is_head_out: bool,
    /// The last chunk has left, or the end of a stream was said.
    pub(super) is_end_out: bool,
}

impl Framer {
    /// One of bytes that are not HTTP.
    pub(crate) const RAW: Self =
        Self { tail: HeadTail::NONE, is_head_out: true, is_end_out: false };

    /// Begins a message whose head continues so.
    #[inline]
    pub(super) fn begin(&mut self, tail: &HeadTail) {
        self.tail = *tail;
        (self.is_head_out, self.is_end_out) = (false, false);
    }

    /// Begins anew with the first byte.
    pub(super) fn rewind(&mut self) {
        (self.is_head_out, self.is_end_out) = (false, false);
    }

    /// Whether body bytes leave as they are.
    pub(super) fn is_plain(&self) -> bool {
        !self.tail.is_chunked
    }

    /// Whether the end of the message is said by itself.
    fn has_end(&self) -> bool {
        self.tail.is_chunked || self.tail.is_of_stream
    }

    /// Whether all of the message has left.
    pub(super) fn is_done(&self, message: &Message) -> bool {
        let is_end_out = self.is_end_out || !self.has_end();
        message.is_whole && message.is_empty() && self.is_head_out && is_end_out
    }

    /// Gives the connection what its room takes, and behind the last byte what is in a pipe; says how many bytes that were.
    pub(super) fn send(&mut self, message: &mut Message, actions: &mut Actions<'_>) -> u64 {
        let len = self.fill(message, actions.spare());
        actions.advance(len);
        if message.has_pipe() && !message.has_bytes_waiting() {
            len as u64 + message.send_piped(actions)
        } else {
            len as u64
        }
    }

    /// Writes what fits of what waits into `out`; says how long it is.
    #[inline]
    fn fill(&mut self, message: &mut Message, out: &mut [u8]) -> usize {
        let Some((head, body)) = message.unsent() else { return self.fill_piece(message, out) };
        let is_begun = self.is_head_out || self.tail.is_chunked;
        if is_begun || head.len() + TAIL_BYTES_MAX + body.len() > out.len() {
            return self.fill_piece(message, out);
        }
        // A head with all that stands behind it, as it usually is.
        out[..head.len()].copy_from_slice(head);
        let tail_end = head.len() + self.tail.write(&mut out[head.len()..]);
        if !body.is_empty() {
            out[tail_end..tail_end + body.len()].copy_from_slice(body);
        }
        let len = tail_end + body.len();
        self.is_head_out = true;
        message.took_all();
        len
    }

    /// The same where some of it has left, does not fit, or leaves in chunks.
    #[inline(never)]
    fn fill_piece(&mut self, message: &mut Message, out: &mut [u8]) -> usize {
        let (head, body) = message.waiting();
        let mut len = 0;
        let mut taken = 0;
        if !self.is_head_out {
            if !message.has_head() || head.len() + TAIL_BYTES_MAX > out.len() {
                return fill_head(message, out);
            }
            taken = head.len();
            out[..taken].copy_from_slice(head);
            len = taken + self.tail.write(&mut out[taken..]);
            self.is_head_out = true;
        }
        let room = &mut out[len..];
        if !self.is_plain() {
            let trailers = message.is_whole.then(|| message.trailers());
            let (framed, piece) = self.chunk(room, body, trailers);
            (len, taken) = (len + framed, taken + piece);
        } else if !body.is_empty() {
            let piece = body.len().min(room.len());
            room[..piece].copy_from_slice(&body[..piece]);
            (len, taken) = (len + piece, taken + piece);
        }
        message.took(taken);
        len
    }

    /// Writes a chunk, and behind a body that is whole the last one with its trailers; says how long all are, and how much of
    /// the body stands in them.
    fn chunk(&mut self, out: &mut [u8], body: &[u8], trailers: Option<&[u8]>) -> (usize, usize) {
        if out.len() < CHUNK_ROOM {
            return (0, 0);
        }
        let piece = body.len().min(out.len() - CHUNK_ROOM);
        let mut len = 0;
        let mut add = |bytes: &[u8]| {
            out[len..len + bytes.len()].copy_from_slice(bytes);
            len += bytes.len();
        };
        if piece > 0 {
            let mut head = [0; CHUNK_HEAD_BYTES_MAX];
            let head_len = write_chunk_head(&mut head, piece as u64).expect("room for any");
            add(&head[..head_len]);
            add(&body[..piece]);
            add(CHUNK_END);
        }
        if let Some(trailers) = trailers.filter(|_| piece == body.len() && !self.is_end_out)
            && trailers.len() + LAST_CHUNK.len() <= out.len() - len
        {
            let (head, end) = LAST_CHUNK.split_at(LAST_CHUNK_HEAD_BYTES);
            for part in [head, trailers, end] {
                out[len..len + part.len()].copy_from_slice(part);
                len += part.len();
            }
            self.is_end_out = true;
        }
        (len, piece)
    }
}

/// The same of interim heads alone, which have no tail, and of a head that does not fit: its last byte leaves with the
/// tail.
#[cold]
fn fill_head(message: &mut Message, out: &mut [u8]) -> usize {
    let (head, interims) = message.waiting();
    let (head, room) = if message.has_head() {
        (head, out.len().saturating_sub(TAIL_BYTES_MAX))
    } else {
        (interims, out.len())
    };
    let len = head.len().min(room);
    out[..len].copy_from_slice(&head[..len]);
    message.took(len);
    len
}

#[cfg(test)]
mod tests {
    use pollux_http::{BodyReader, Framing, Limits};
    use proptest::prelude::*;

    use super::*;
    use crate::head::tail::{Hop, HopFields, Length};

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\n";
    const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

    #[derive(Clone, Debug)]
    enum Step {
        Push(Vec<u8>),
        Fill(usize),
        Rewind,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300).prop_map(Step::Push),
            (0usize..600).prop_map(Step::Fill),
            Just(Step::Rewind),
        ];
        prop::collection::vec(step, 0..40)
    }

    /// What the other end reads: the head with its tail, and the body without framing.
    fn read(left: &[u8], length: Length) -> (Vec<u8>, Vec<u8>) {
        let end = left.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let (head, mut rest) = left.split_at(end);
        if length != Length::Chunks {
            return (head.to_vec(), rest.to_vec());
        }
        let (mut reader, mut body) =
            (BodyReader::new(Framing::Chunked, &Limits::default()), Vec::new());
        while !reader.is_done() {
            let step = reader.feed(rest).expect("sound chunks");
            body.extend_from_slice(&rest[step.data]);
            rest = &rest[step.consumed..];
        }
        assert!(rest.is_empty(), "nothing behind the last chunk");
        (head.to_vec(), body)
    }

    proptest! {
        #[test]
        fn what_leaves_in_any_pieces_is_the_message_with_its_tail_once(
            steps in steps(),
            is_chunked: bool,
            is_kept: bool,
            has_interim: bool,
        ) {
            let length = if is_chunked { Length::Chunks } else { Length::Unsaid };
            let tail = HeadTail::of(HopFields { length, hop: Hop::Close, expects_continue: false });
            let mut message = Message::default();
            let mut left = Vec::new();
            let mut pushed = Vec::new();
            let mut interim_bytes = 0;
            if has_interim && !is_kept {
                message.head().extend_from_slice(INTERIM);
                let mut framer = Framer::RAW;
                framer.rewind();
                interim_bytes = framer.fill(&mut message, &mut [0; 1000]);
                prop_assert_eq!(interim_bytes, INTERIM.len());
            }
            if is_kept {
                message.keep_sent(true);
            }
            message.head().extend_from_slice(HEAD);
            message.end_head();
            let mut framer = Framer::RAW;
            framer.begin(&tail);
            let fill = |framer: &mut Framer, message: &mut Message, left: &mut Vec<u8>, room| {
                let mut out = vec![0; room];
                let len = framer.fill(message, &mut out);
                left.extend_from_slice(&out[..len]);
            };
            for step in steps {
                match step {
                    Step::Push(data) => {
                        message.push(&data);
                        pushed.extend_from_slice(&data);
                    }
                    Step::Fill(room) => fill(&mut framer, &mut message, &mut left, room),
                    Step::Rewind if message.rewind() => {
                        framer.rewind();
                        left.clear();
                    }
                    Step::Rewind => {}
                }
                prop_assert!(!framer.is_done(&message));
            }
            message.is_whole = true;
            for _ in 0..100 {
                fill(&mut framer, &mut message, &mut left, 1000);
            }
            prop_assert!(framer.is_done(&message));
            let (head, body) = read(&left, length);
            let mut expected = HEAD.to_vec();
            let mut written = [0; TAIL_BYTES_MAX];
            let tail_bytes = tail.write(&mut written);
            expected.extend_from_slice(&written[..tail_bytes]);
            prop_assert_eq!(head, expected);
            prop_assert_eq!(body, pushed);
            prop_assert!(interim_bytes == 0 || has_interim);
        }
    }
}
