//! Bytes between a stream and its loop, taken from the front.

/// What a buffer that is empty keeps of its memory; a stream that rests should cost little.
const KEPT_BYTES: usize = 4096;

/// A queue of bytes. Its writer keeps it within a limit.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Moves what is there instead of growing, when that makes the room.
        if self.start > 0 && self.bytes.len() + bytes.len() > self.bytes.capacity() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the first `len` bytes away.
    pub(crate) fn consume(&mut self, len: usize) {
        debug_assert!(len <= self.len(), "more than there is");
        self.start += len;
        if self.start == self.bytes.len() {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_their_order_and_an_empty_buffer_gives_its_memory_back() {
        let mut buffer = Buffer::default();
        let (mut next_in, mut next_out) = (0_u8, 0_u8);
        for round in 0..1000 {
            let piece: Vec<u8> = (0..round % 97).map(|n| next_in.wrapping_add(n as u8)).collect();
            buffer.push(&piece);
            next_in = next_in.wrapping_add(piece.len() as u8);
            let taken = buffer.len().min(round % 89);
            for byte in &buffer.as_slice()[..taken] {
                assert_eq!(*byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
            buffer.consume(taken);
        }
        buffer.push(&[0; 100_000]);
        buffer.consume(buffer.len());
        assert!(buffer.is_empty());
        assert!(buffer.bytes.capacity() <= KEPT_BYTES, "{}", buffer.bytes.capacity());
    }
}
