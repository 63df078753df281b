//! What a connection has to say to its user.

use std::ops::Range;

use crate::h2::error::ErrorCode;
use crate::h2::fields::{NeverIndexed, RequestFacts, Scratch};
use crate::{Fields, Framing, Rejection, Request, Response, ResponseFacts};

/// How far [`Connection::read`](crate::h2::Connection::read) came.
#[derive(Debug)]
pub struct Step<'i, T> {
    /// Bytes of the input that are done with.
    pub used: usize,
    /// What they said; none when more bytes are needed.
    pub event: Option<Event<'i, T>>,
}

/// Something that a peer did. Heads and bodies borrow from the input and from the scratch.
#[derive(Debug)]
pub enum Event<'i, T> {
    /// A sound request has begun; its stream is there until it is answered and done, or reset.
    Request {
        /// Its stream.
        stream: u32,
        /// What is asked for. A body whose length was not said is framed as by chunks. A stream that is to become a WebSocket
        /// reads as the request for one in HTTP/1.1, with its fields of a connection; what follows it then is not a body.
        request: Request<'i>,
        /// The same as lines, of which [`Request::of_stream`] makes it again.
        head: &'i [u8],
        /// What of it is put into no table at the next hop.
        never_indexed: NeverIndexed,
        /// Nothing follows.
        ends: bool,
    },
    /// A request that is sound for the protocol, and beyond what is served: it wants an answer. Its stream is there.
    Refused {
        /// Its stream.
        stream: u32,
        /// Why, with the status.
        rejection: Rejection,
        /// What there is of its lines; may be empty.
        head: &'i [u8],
        /// Nothing follows.
        ends: bool,
    },
    /// A message that breaks the rules of RFC 9113 8, or a window that overflows. Its stream was reset.
    Malformed {
        /// Its stream.
        stream: u32,
        /// What it was reset with.
        code: ErrorCode,
        /// What was wrong.
        rejection: Rejection,
        /// What there is of its lines; may be empty.
        head: &'i [u8],
        /// What was kept with the stream, where it had begun.
        data: Option<T>,
    },
    /// A stream beyond the limit of streams, or of the heads of all, which was refused: it may be sent again.
    TooMany {
        /// Its number.
        stream: u32,
        /// It was refused for its head, which is large, as those of the others are.
        for_head: bool,
    },
    /// The head of an answer, interim or final.
    Response {
        /// Its stream.
        stream: u32,
        /// What it says.
        response: Response<'i>,
        /// What of it is put into no table at the next hop.
        never_indexed: NeverIndexed,
        /// Nothing follows.
        ends: bool,
    },
    /// A part of a body. Its user keeps it or is done with it, and then says [`Connection::release`](crate::h2::Connection::release).
    Data {
        /// Its stream.
        stream: u32,
        /// May be empty when it ends.
        data: &'i [u8],
        /// Nothing follows.
        ends: bool,
    },
    /// Fields behind a body, which ends with them.
    Trailers {
        /// Its stream.
        stream: u32,
        /// The fields.
        fields: Fields<'i>,
        /// Which of them are put into no table at the next hop.
        never_indexed: NeverIndexed,
    },
    /// The peer gave up a stream, which is no more.
    Reset {
        /// Its stream.
        stream: u32,
        /// Why.
        code: ErrorCode,
        /// What was kept with it.
        data: T,
    },
    /// A stream, or all of them, may have more to send than before.
    WindowOpened,
    /// An answer to a PING of this end.
    PingAnswered {
        /// What was sent.
        data: [u8; 8],
    },
    /// The peer takes no stream above `last`: it may be asked again elsewhere.
    GoneAway {
        /// The last stream that it has looked at or will.
        last: u32,
        /// Why.
        code: ErrorCode,
    },
    /// There is no room for what the next frame might be answered with.
    NoRoom,
}

/// An event before it borrows from the scratch.
#[derive(Debug)]
pub(crate) enum Found<'i, T> {
    Plain(Event<'i, T>),
    Request {
        stream: u32,
        head: Range<usize>,
        framing: Framing,
        facts: RequestFacts,
        ends: bool,
    },
    Refused {
        stream: u32,
        rejection: &'static Rejection,
        head: Range<usize>,
        ends: bool,
    },
    Malformed {
        stream: u32,
        code: ErrorCode,
        rejection: Rejection,
        head: Range<usize>,
        data: Option<T>,
    },
    Response {
        stream: u32,
        facts: ResponseFacts,
        never_indexed: NeverIndexed,
        len: usize,
        ends: bool,
    },
    Trailers {
        stream: u32,
        never_indexed: NeverIndexed,
        len: usize,
    },
}

impl<'i, T> Found<'i, T> {
    #[inline]
    pub(crate) fn event(self, scratch: &'i Scratch) -> Event<'i, T> {
        let text = &scratch.text;
        match self {
            Self::Plain(event) => event,
            Self::Request { stream, head, framing, facts, ends } => {
                let RequestFacts { expects_continue, never_indexed, .. } = facts;
                let head = &text[head];
                let request = Request::of_stream(head, framing, expects_continue);
                let request = request.expect("the head was written so");
                Event::Request { stream, request, head, never_indexed, ends }
            }
            Self::Refused { stream, rejection, head, ends } => {
                Event::Refused { stream, rejection: *rejection, head: &text[head], ends }
            }
            Self::Malformed { stream, code, rejection, head, data } => {
                Event::Malformed { stream, code, rejection, head: &text[head], data }
            }
            Self::Response { stream, facts, never_indexed, len, ends } => {
                // The line is `HTTP/1.1 200 `, and there are no reasons any more.
                let fields = Fields::of_checked(&text[STATUS_LINE_BYTES..len - 2]);
                let response = Response { facts, reason: b"", fields };
                Event::Response { stream, response, never_indexed, ends }
            }
            Self::Trailers { stream, never_indexed, len } => {
                let fields = Fields::of_checked(&text[..len]);
                Event::Trailers { stream, fields, never_indexed }
            }
        }
    }
}

const STATUS_LINE_BYTES: usize = b"HTTP/1.1 200 \r\n".len();
