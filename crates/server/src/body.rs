//! A request body that is being read: dropped, or sent back at once.
//!
//! The session keeps one while a body is under way, so an idle connection does not pay for it.

use pollux_engine::{Actions, Moment};
use pollux_http::{
    BodyReader, CHUNK_END, CHUNK_HEAD_BYTES_MAX, Framing, LAST_CHUNK, Limits, Rejection, Request,
    Status, write_chunk_head,
};

use crate::answer::Persistence;
use crate::common_fields::{Asked, Common};
use crate::config::FIELDS_BYTES_MAX;

/// Room that the head of an echo and the framing of its pieces take at most.
const OVERHEAD_BYTES_MAX: usize = 512 + FIELDS_BYTES_MAX;

/// A body under way, and the head of its request.
#[derive(Debug)]
pub(crate) struct Body {
    /// Kept for the answer and the log.
    pub(crate) head: Box<[u8]>,
    pub(crate) began: Moment,
    pub(crate) received_bytes: u64,
    pub(crate) echo: Option<Echo>,
    reader: BodyReader,
}

/// An answer that consists of the body.
#[derive(Debug)]
pub(crate) struct Echo {
    framing: Framing,
    persistence: Persistence,
    asked: Asked,
    /// Whether the connection ends with it, as its head says.
    pub(crate) is_last: bool,
    /// Whether its head was sent: from then on there is no other answer.
    pub(crate) has_begun: bool,
}

/// How far a body came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    NeedsMore,
    IsDone,
}

impl Body {
    pub(crate) fn new(head: &[u8], framing: Framing, limits: &Limits, began: Moment) -> Self {
        let reader = BodyReader::new(framing, limits);
        Self { head: head.into(), began, received_bytes: 0, echo: None, reader }
    }

    /// Has the body sent back while it is read.
    pub(crate) fn echoed(mut self, request: &Request<'_>, is_last: bool, asked: Asked) -> Self {
        let persistence = Persistence::of(request.version_minor, is_last);
        let framing = request.framing;
        self.echo = Some(Echo { framing, persistence, asked, is_last, has_begun: false });
        self
    }

    /// Whether an answer was begun that cannot be taken back.
    pub(crate) fn has_answer_begun(&self) -> bool {
        self.echo.as_ref().is_some_and(|echo| echo.has_begun)
    }

    /// Reads on, no further than the room for an echo goes; says how much input it used.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub(crate) fn read(
        &mut self,
        actions: &mut Actions<'_>,
        common: &Common,
        input: &[u8],
    ) -> Result<(usize, Progress), Rejection> {
        if self.echo.as_ref().is_some_and(|echo| !echo.has_begun) {
            self.check(input)?;
        }
        let mut used = 0;
        while used < input.len() {
            let mut piece = &input[used..];
            if self.echo.is_some() {
                let Some(room) = actions.room().checked_sub(OVERHEAD_BYTES_MAX) else { break };
                piece = &piece[..piece.len().min(room)];
                if piece.is_empty() {
                    break;
                }
            }
            let step = self.reader.feed(piece)?;
            self.received_bytes += step.data.len() as u64;
            if let Some(echo) = &mut self.echo {
                echo.send(actions, common, &piece[step.data]);
            }
            used += step.consumed;
            if step.is_done {
                if let Some(echo) = &mut self.echo {
                    echo.finish(actions, common);
                }
                return Ok((used, Progress::IsDone));
            }
        }
        Ok((used, Progress::NeedsMore))
    }

    /// Reads ahead before an echo begins: a fault in what is here can still be answered.
    fn check(&self, input: &[u8]) -> Result<(), Rejection> {
        let mut reader = self.reader.clone();
        let mut used = 0;
        while used < input.len() && !reader.is_done() {
            used += reader.feed(&input[used..])?.consumed;
        }
        Ok(())
    }
}

impl Echo {
    fn send(&mut self, actions: &mut Actions<'_>, common: &Common, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.begin(actions, common);
        if self.framing != Framing::Chunked {
            actions.send(data);
            return;
        }
        let mut head = [0; CHUNK_HEAD_BYTES_MAX];
        let head_bytes = write_chunk_head(&mut head, data.len() as u64).expect("room for any");
        actions.send(&head[..head_bytes]);
        actions.send(data);
        actions.send(CHUNK_END);
    }

    fn finish(&mut self, actions: &mut Actions<'_>, common: &Common) {
        self.begin(actions, common);
        if self.framing == Framing::Chunked {
            actions.send(LAST_CHUNK);
        }
    }

    fn begin(&mut self, actions: &mut Actions<'_>, common: &Common) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        let mut head = common.begin(actions.spare(), Status::OK, self.asked);
        // A type that no browser renders: the bytes are the client's.
        head.field("Content-Type", b"application/octet-stream");
        match self.framing {
            Framing::Chunked => head.chunked(),
            Framing::Length(len_bytes) => head.content_length(len_bytes),
            Framing::None => head.content_length(0),
        };
        self.persistence.write(&mut head);
        let head_bytes = head.finish().expect("the overhead was left free");
        actions.advance(head_bytes);
    }
}
