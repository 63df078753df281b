//! A message between two sides, or bytes that are not HTTP: what reads it, and what frames it anew.
//!
//! Of a body in chunks the reader finds the end; of one that comes by a stream of HTTP/2 the frames say it
//! ([`Direction::take_all`], [`Direction::set_whole`]).

use std::sync::Arc;

use pollux_engine::{Actions, Pipe};
use pollux_http::h2::{Connection, NeverIndexed, Output};
use pollux_http::{BodyReader, Fields, Framing, Limits, Rejection};

use crate::coding::Encoder;
use crate::exchange::h1_output::Framer;
use crate::exchange::h2_output::{self, AskedBy, Waits};
use crate::exchange::message::{Message, PIECE_BYTES_MAX};
use crate::exchange::pipes::Pipes;
use crate::fields;
use crate::head::tail::HeadTail;

/// A side of a pair, or of an exchange: what it sends goes in the direction of the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client = 0,
    Backend = 1,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Backend,
            Self::Backend => Self::Client,
        }
    }
}

/// One direction of an exchange, or of a pair.
#[derive(Debug)]
pub(crate) struct Direction {
    message: Message,
    /// Finds the end of the body in what comes.
    reader: BodyReader,
    framer: Framer,
    /// Trailers as they come, while they do, where the other side takes some.
    trailers: Option<Vec<u8>>,
    /// Names of fields that its sender has marked as never to be put into a table of HPACK, each with a line feed behind it.
    never_indexed: Vec<u8>,
    /// What was given to the other side last has not left it yet.
    pub(super) is_leaving: bool,
    /// Compresses the body as it comes, where that is done, until all of it is there.
    encoder: Option<Box<Encoder>>,
}

impl Default for Direction {
    /// One of bytes that are not HTTP.
    fn default() -> Self {
        let reader = BodyReader::new(Framing::None, &Limits::default());
        Self {
            message: Message::default(),
            reader,
            framer: Framer::RAW,
            trailers: None,
            never_indexed: Vec::new(),
            is_leaving: false,
            encoder: None,
        }
    }
}

impl Direction {
    /// Makes it anew for the next exchange. A pipe that it has is dropped before ([`Direction::drop_piped`]).
    pub(crate) fn reset(&mut self) {
        self.message.reset();
        self.framer.rewind();
        self.trailers = None;
        self.never_indexed.clear();
        self.is_leaving = false;
        self.encoder = None;
    }

    /// Drops the room of one that is not in use.
    pub(crate) fn release_memory(&mut self) {
        self.message.release_memory();
        self.never_indexed = Vec::new();
    }

    /// Keeps the names of fields that their sender has marked, for a stream: where they stand is another place there.
    #[inline]
    pub(super) fn mark(&mut self, fields: Fields<'_>, marks: NeverIndexed) {
        if marks != NeverIndexed::default() {
            note_marks(&mut self.never_indexed, fields, marks);
        }
    }

    /// Where heads are written, in front of all body bytes.
    pub(crate) fn head(&mut self) -> &mut Vec<u8> {
        self.message.head()
    }

    /// The head is there, to which the connection that it leaves by adds `tail`; a body follows that `reader` finds the end
    /// of.
    pub(crate) fn begin_body(&mut self, reader: BodyReader, tail: &HeadTail) {
        self.end_head(tail);
        self.message.is_whole = reader.is_done();
        self.reader = reader;
    }

    /// The same of a message whose frames say where its body ends.
    pub(super) fn begin_of_stream(&mut self, has_body: bool, tail: &HeadTail) {
        self.end_head(tail);
        self.message.is_whole = !has_body;
    }

    fn end_head(&mut self, tail: &HeadTail) {
        if tail.is_of_stream {
            // It is not known any more where the tail would stand once frames are made of the head.
            self.message.head().extend_from_slice(tail.text());
        }
        self.message.end_head();
        self.framer.begin(tail);
    }

    /// The same of a page of the proxy, for a stream: its head with the empty line, and its body.
    pub(crate) fn begin_page(&mut self, head: &[u8], body: &[u8]) {
        self.message.head().extend_from_slice(head);
        self.message.end_head();
        self.message.push(body);
        self.message.is_whole = true;
        self.framer.begin(&HeadTail::STREAM);
    }

    /// The other side takes trailers: those that come are kept for it.
    pub(super) fn take_trailers(&mut self) {
        self.trailers = Some(Vec::new());
    }

    /// The same, and nothing follows.
    pub(super) fn begin_without_body(&mut self, tail: &HeadTail) {
        self.end_head(tail);
        self.message.is_whole = true;
    }

    /// The same, and bytes follow that are not HTTP.
    pub(super) fn begin_tunnel(&mut self, tail: &HeadTail) {
        self.end_head(tail);
        self.framer.begin(tail);
    }

    /// A request that was whole continues, with bytes that are not HTTP.
    pub(super) fn reopen(&mut self) {
        (self.message.is_whole, self.framer.is_end_out) = (false, false);
    }

    /// Keeps what is sent, for a second try ([`Message::keep_sent`]).
    pub(super) fn keep_sent(&mut self, is_idempotent: bool) {
        self.message.keep_sent(is_idempotent);
    }

    /// Keeps nothing for a second try any more.
    pub(super) fn forget_sent(&mut self) {
        self.message.forget_sent();
    }

    /// Begins anew with the first byte, by another connection; false when that is gone.
    pub(super) fn rewind(&mut self) -> bool {
        let can_begin_anew = self.message.rewind();
        if can_begin_anew {
            self.framer.rewind();
            self.is_leaving = false;
        }
        can_begin_anew
    }

    /// Whether the other side was given anything of it.
    pub(super) fn has_begun_to_leave(&self) -> bool {
        self.message.has_begun_to_leave()
    }

    /// Whether some of it was given to the other side, and is kept.
    pub(super) fn has_left_some(&self) -> bool {
        self.message.has_left_some()
    }

    /// All of it was taken from its connection.
    pub(crate) fn is_whole(&self) -> bool {
        self.message.is_whole
    }

    /// Nothing more comes, or more does: bytes that are not HTTP end with their connection.
    pub(crate) fn set_whole(&mut self, is_whole: bool) {
        self.message.is_whole = is_whole;
        self.finish_encoder();
    }

    /// Body bytes, without framing.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.message.body_bytes
    }

    /// The same of an answer that went another way.
    pub(crate) fn set_body_bytes(&mut self, bytes: u64) {
        self.message.body_bytes = bytes;
    }

    /// Whether it takes nothing more for now.
    pub(crate) fn is_full(&self) -> bool {
        self.message.is_full()
    }

    /// Whether all of it was taken and given on.
    pub(crate) fn is_done(&self) -> bool {
        self.framer.is_done(&self.message)
    }

    /// Takes body bytes until the body ends or it is full; says how many bytes it used.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub(super) fn take(&mut self, input: &[u8]) -> Result<usize, Rejection> {
        let mut used = 0;
        while used < input.len() && !self.message.is_whole && !self.message.is_full() {
            let rest = &input[used..];
            let piece = &rest[..rest.len().min(PIECE_BYTES_MAX)];
            let is_trailer = self.reader.is_in_trailers();
            let step = self.reader.feed(piece)?;
            used += step.consumed;
            if let Some(trailers) = self.trailers.as_mut().filter(|_| is_trailer) {
                // The reader knows their limit.
                trailers.extend_from_slice(&piece[..step.consumed]);
            }
            self.push(&piece[step.data]);
            self.message.is_whole = step.is_done;
        }
        self.finish_encoder();
        Ok(used)
    }

    /// The body is compressed on its way.
    pub(super) fn encode_by(&mut self, encoder: Box<Encoder>) {
        self.encoder = Some(encoder);
    }

    /// Adds bytes of the body, as they leave.
    #[inline]
    fn push(&mut self, data: &[u8]) {
        match &mut self.encoder {
            None => self.message.push(data),
            Some(encoder) => encoder.write(data, |made| self.message.push(made)),
        }
    }

    /// What the encoder keeps of a body that is whole is made too.
    #[inline]
    fn finish_encoder(&mut self) {
        if self.message.is_whole
            && let Some(encoder) = self.encoder.take()
        {
            encoder.finish(|made| self.message.push(made));
        }
    }

    /// Has what the encoder keeps be there for the other side, which has got all that was: the sender may have paused.
    pub(crate) fn flush(&mut self) {
        if let Some(encoder) = &mut self.encoder
            && self.framer.is_head_out
            && self.message.is_empty()
        {
            encoder.flush(|made| self.message.push(made));
        }
    }

    /// Bytes of the body, as its sender counts them, that the other side has got rid of, or that are kept nowhere else.
    pub(super) fn gone_bytes(&self) -> u64 {
        match &self.encoder {
            None => self.body_bytes().saturating_sub(self.body_bytes_left()),
            Some(_) if self.message.is_full() => 0,
            Some(encoder) => encoder.taken_bytes(),
        }
    }

    /// The trailers as they came, once, when all of them are there; none where there are none or nobody takes them.
    #[inline]
    pub(super) fn whole_trailers(&mut self) -> Option<Vec<u8>> {
        if !self.message.is_whole {
            return None;
        }
        self.trailers.take().filter(|section| !section.is_empty())
    }

    /// Adds fields behind the body, as far as they may stand there, but for those that a rule `drops`.
    pub(super) fn add_trailers(&mut self, trailers: Fields<'_>, drops: impl Fn(&str) -> bool) {
        let lines = self.message.trailers_mut();
        for field in trailers {
            if fields::may_trail(field.name) && !drops(field.name) {
                fields::write(lines, field.name, field.value);
            }
        }
    }

    /// Takes all of some bytes of a body, which the window of its stream bounds.
    pub(super) fn take_all(&mut self, data: &[u8]) {
        self.push(data);
    }

    /// Bytes that it holds: those that wait, and those that are kept for a second try.
    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        self.message.held_bytes()
    }

    /// Drops all that it holds, so that it never becomes whole.
    pub(super) fn give_up(&mut self) {
        self.message.give_up();
        self.encoder = None;
    }

    /// Bytes of the body that the other side was not given, or that have not left it.
    pub(crate) fn body_bytes_left(&self) -> u64 {
        self.message.body_bytes_left()
    }

    /// Takes bytes that are not HTTP, as long as it is not full.
    pub(super) fn take_raw(&mut self, input: &[u8]) -> usize {
        if self.message.is_full() {
            return 0;
        }
        let used = input.len().min(PIECE_BYTES_MAX);
        self.message.push(&input[..used]);
        used
    }

    /// The connection that it is taken from has ended.
    ///
    /// # Errors
    /// The body should have continued.
    pub(crate) fn end(&mut self) -> Result<(), Rejection> {
        if !self.message.is_whole {
            self.reader.end()?;
            self.message.is_whole = true;
            self.finish_encoder();
        }
        Ok(())
    }

    /// Gives the other side what its room takes; says how many bytes that were.
    pub(crate) fn send(&mut self, actions: &mut Actions<'_>) -> u64 {
        self.framer.send(&mut self.message, actions)
    }

    /// What of it waits for a stream.
    pub(crate) fn waits(&self) -> Waits {
        h2_output::waits(&self.framer, &self.message)
    }

    /// Begins a stream by the head of this request; none when its peer takes no more of them.
    pub(super) fn ask<T>(
        &mut self,
        by: &mut Connection<T>,
        out: &mut Output<'_>,
        how: AskedBy<'_>,
        data: T,
    ) -> Option<u32> {
        let Self { framer, message, never_indexed, .. } = self;
        h2_output::ask(framer, message, by, out, (how, &never_indexed[..]), data)
    }

    /// Gives a stream what windows and room take, in frames; says how many bytes of the body that were, or 1 where there was none.
    pub(crate) fn send_frames<T>(
        &mut self,
        by: &mut Connection<T>,
        stream: u32,
        out: &mut Output<'_>,
        hides_empty: bool,
    ) -> u64 {
        let Self { framer, message, never_indexed, .. } = self;
        h2_output::send(framer, message, by, stream, out, (&never_indexed[..], hides_empty))
    }

    /// What was given to the other side has left it; says whether there is room again for that reason.
    pub(crate) fn has_left(&mut self, pipes: &mut Pipes) -> bool {
        self.is_leaving = false;
        self.message.has_left(pipes)
    }

    /// How many bytes of the body may still go through pipes; none where they are framed anew, or kept for a second try.
    pub(super) fn spliceable(&self) -> Option<u64> {
        let is_as_it_is =
            self.framer.is_plain() && !self.message.keeps_sent() && self.encoder.is_none();
        self.reader.plain_left().filter(|_| is_as_it_is)
    }

    /// Whether it was a body of so many bytes that could go through pipes.
    pub(super) fn was_long(&self, bytes_min: u64) -> bool {
        self.message.is_whole && self.framer.is_plain() && self.message.body_bytes >= bytes_min
    }

    /// Whether some of the body went through a pipe.
    pub(super) fn is_spliced(&self) -> bool {
        self.message.is_spliced
    }

    /// Whether there are bytes in a pipe that have not left.
    pub(super) fn has_pipe(&self) -> bool {
        self.message.has_pipe()
    }

    /// Takes bytes that are in this pipe.
    pub(super) fn take_piped(&mut self, pipe: Arc<Pipe>, bytes: u64) {
        self.message.take_piped(pipe, bytes);
    }

    /// The same of a body; says whether that is its first pipe.
    pub(super) fn take_piped_body(&mut self, pipe: Arc<Pipe>, bytes: u64) -> bool {
        self.reader.skip(bytes);
        self.message.is_whole = self.reader.is_done();
        self.message.take_piped(pipe, bytes)
    }

    /// Drops what is in a pipe: the connection that it was for is gone.
    pub(super) fn drop_piped(&mut self, pipes: &mut Pipes) {
        self.message.drop_piped(pipes);
    }
}

#[cold]
fn note_marks(names: &mut Vec<u8>, fields: Fields<'_>, marks: NeverIndexed) {
    let fields = fields.into_iter().enumerate();
    let marked = fields.filter(|(place, _)| marks.has(*place)).map(|(_, field)| field.name);
    for name in marked.chain(marks.has_path().then_some(":path")) {
        names.extend(name.bytes().map(|byte| byte.to_ascii_lowercase()));
        names.push(b'\n');
    }
}
