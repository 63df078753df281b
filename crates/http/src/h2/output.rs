//! Room for output that a caller owns, filled from the front.

/// Bytes to be sent, written into a slice that the caller chose. What exceeds the room is lost, and known to be:
/// [`Output::is_short`].
#[derive(Debug)]
pub struct Output<'o> {
    room: &'o mut [u8],
    len: usize,
    is_short: bool,
}

impl<'o> Output<'o> {
    /// One that fills `room`.
    #[must_use]
    #[inline]
    pub fn new(room: &'o mut [u8]) -> Self {
        Self { room, len: 0, is_short: false }
    }

    /// How many bytes were written.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many more bytes fit.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        self.room.len() - self.len
    }

    /// Whether something did not fit: what was written is of no use then.
    #[must_use]
    #[inline]
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// What was written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.len]
    }

    /// Adds these bytes.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        match self.room.get_mut(self.len..self.len + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.is_short = true,
        }
    }

    /// The unused room; [`Output::advance`] takes what was written into it.
    #[inline]
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        &mut self.room[self.len..]
    }

    /// Takes the first `len` bytes of the unused room as written.
    #[inline]
    pub(crate) fn advance(&mut self, len: usize) {
        assert!(len <= self.room(), "more than the room");
        self.len += len;
    }

    /// Writes these bytes over what stands at this place.
    #[inline]
    pub(crate) fn put_at(&mut self, at: usize, bytes: &[u8]) {
        if let Some(room) = self.room.get_mut(at..at + bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    /// Moves what stands from `at` on so many bytes further back, and leaves a gap.
    pub(crate) fn shift(&mut self, at: usize, by: usize) {
        if self.room() < by {
            self.is_short = true;
            return;
        }
        self.room.copy_within(at..self.len, at + by);
        self.len += by;
    }
}
