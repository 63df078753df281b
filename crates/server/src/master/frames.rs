//! The messages of a master and its workers: frames over a stream.
//!
//! ```text
//!  ┌──────┬───────────────┬─────────┐
//!  │ kind │ length, 4, BE │ text    │
//!  └──────┴───────────────┴─────────┘
//! ```
//!
//! Both ends are the same program, so a frame that makes no sense is the end of the stream.

/// Longest text: the counters of a worker with many loops.
const TEXT_BYTES_MAX: usize = 8 << 20;
const HEAD_BYTES: usize = 5;

/// What a frame is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// Worker: it takes connections; the text is its banner.
    Ready = 1,
    /// Worker: it could not start; the text says why.
    Failed,
    /// Worker: what it counted so far.
    Counts,
    /// Worker: a client of its control socket asked for a reload; the text is how many were asked for so far.
    Reload,
    /// Master: take no new connections, end with the open ones.
    Drain,
    /// Master: open the logs again.
    Reopen,
    /// Master: what workers counted that have ended, or end.
    Ended,
    /// Master: how reloads went, and how many of those that this worker asked for are answered.
    Reloads,
    /// Worker: the states of backends, beside the settings. Master: those that the worker got at its
    /// start, and those at the moment when it began to serve.
    BackendStates,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Ready,
        Self::Failed,
        Self::Counts,
        Self::Reload,
        Self::Drain,
        Self::Reopen,
        Self::Ended,
        Self::Reloads,
        Self::BackendStates,
    ];
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) text: String,
}

impl Frame {
    pub(super) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// As it goes over the stream.
    ///
    /// # Panics
    /// When the text has more than 8 MiB.
    pub(super) fn bytes(&self) -> Vec<u8> {
        assert!(self.text.len() <= TEXT_BYTES_MAX, "a frame is bounded");
        let mut bytes = vec![self.kind as u8];
        bytes.extend_from_slice(&(self.text.len() as u32).to_be_bytes());
        bytes.extend_from_slice(self.text.as_bytes());
        bytes
    }
}

/// The stream is not one of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Garbled;

/// Frames that come in pieces.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// Nothing that follows can be read.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Garbled> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == head[0]).ok_or(Garbled)?;
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if len > TEXT_BYTES_MAX {
            return Err(Garbled);
        }
        let Some(text) = rest.get(..len) else { return Ok(None) };
        let text = String::from_utf8(text.to_vec()).map_err(|_| Garbled)?;
        self.bytes.drain(..HEAD_BYTES + len);
        Ok(Some(Frame { kind, text }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_the_same_however_they_are_cut() {
        let sent: Vec<Frame> = Kind::ALL
            .into_iter()
            .zip(["", "a", "two\nlines", "µ", "", "", "x y", "", "z"])
            .map(|(kind, text)| Frame::new(kind, text))
            .collect();
        let bytes: Vec<u8> = sent.iter().flat_map(Frame::bytes).collect();
        for size in 1..=bytes.len() {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(size) {
                frames.feed(piece);
                while let Some(frame) = frames.next().expect("sound") {
                    found.push(frame);
                }
            }
            assert_eq!(found, sent, "pieces of {size}");
            assert!(frames.bytes.is_empty());
        }
    }

    #[test]
    fn bytes_that_are_not_a_frame_are_refused_at_once() {
        for bytes in
            [&[0, 0, 0, 0, 0][..], &[99, 0, 0, 0, 0], &[1, 0xff, 0, 0, 0], &[1, 0, 0, 0, 1, 0xff]]
        {
            let mut frames = Frames::default();
            frames.feed(bytes);
            assert_eq!(frames.next(), Err(Garbled), "{bytes:?}");
        }
    }
}
