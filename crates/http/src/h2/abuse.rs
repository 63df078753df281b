//! What a peer may cost: work that it asks for without a request behind it is paid from buckets that fill slowly.
//!
//! Every number here is a limit of an attack that has a name. Beyond it the connection ends with `ENHANCE_YOUR_CALM`;
//! the reason says which bucket was empty.

use crate::h2::error::Fault;

/// Streams that the client resets before they were answered, and requests that are reset here for what is wrong with
/// them: rapid reset, reset floods.
const RESETS: Bucket = Bucket { left: 200, size: 200, per_s: 20, since_ms: 0 };

/// Frames that want an answer or are looked at for nothing: PING, SETTINGS, PRIORITY, empty and tiny ones.
const CONTROL: Bucket = Bucket { left: 1000, size: 1000, per_s: 100, since_ms: 0 };

/// Empty frames in a row.
const EMPTY_MAX: u32 = 10;

/// DATA below this many bytes is charged, unless it ends its stream, once there was much of it.
const TINY_BYTES: usize = 32;

/// So much tiny DATA costs nothing.
const TINY_FREE: u32 = 1000;

/// Window updates below this are charged.
pub(crate) const SMALL_UPDATE_BYTES: u32 = 128;

/// Bytes of a field block as it is sent.
pub(crate) const BLOCK_BYTES_MAX: usize = 32 * 1024;

/// CONTINUATION frames of a block; none may be empty but the last.
pub(crate) const CONTINUATIONS_MAX: u32 = 8;

pub(crate) const BLOCK: Fault = Fault::calm("a field block is too long, or in too many frames");

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    size: u32,
    per_s: u32,
    /// When it was filled up to `left`.
    since_ms: u64,
}

impl Bucket {
    /// Takes the price; false when there is not so much in it.
    fn pay(&mut self, price: u32, now_ms: u64) -> bool {
        let elapsed_ms = now_ms.saturating_sub(self.since_ms);
        let more = elapsed_ms.saturating_mul(self.per_s.into()) / 1000;
        if more > 0 {
            let left = u64::from(self.left).saturating_add(more).min(self.size.into());
            self.left = u32::try_from(left).expect("at most its size");
            self.since_ms = now_ms;
        }
        match self.left.checked_sub(price) {
            Some(left) => self.left = left,
            None => return false,
        }
        true
    }
}

/// What one peer has left.
#[derive(Debug)]
pub(crate) struct Abuse {
    resets: Bucket,
    control: Bucket,
    empty_in_a_row: u32,
    tiny: u32,
}

impl Default for Abuse {
    fn default() -> Self {
        Self { resets: RESETS, control: CONTROL, empty_in_a_row: 0, tiny: 0 }
    }
}

impl Abuse {
    /// A stream was reset before its answer.
    pub(crate) fn reset(&mut self, now_ms: u64) -> Result<(), Fault> {
        match self.resets.pay(1, now_ms) {
            true => Ok(()),
            false => Err(Fault::calm("too many streams that were reset before their answers")),
        }
    }

    /// A frame that brings nothing.
    #[inline]
    pub(crate) fn control(&mut self, price: u32, now_ms: u64) -> Result<(), Fault> {
        match self.control.pay(price, now_ms) {
            true => Ok(()),
            false => Err(Fault::calm("too many frames that bring nothing")),
        }
    }

    /// So much of a body, of which more follows.
    #[inline]
    pub(crate) fn data(&mut self, bytes: usize, now_ms: u64) -> Result<(), Fault> {
        if bytes >= TINY_BYTES {
            self.empty_in_a_row = 0;
            return Ok(());
        }
        self.tiny_data(bytes, now_ms)
    }

    #[cold]
    fn tiny_data(&mut self, bytes: usize, now_ms: u64) -> Result<(), Fault> {
        if bytes == 0 {
            self.empty_in_a_row += 1;
            if self.empty_in_a_row > EMPTY_MAX {
                return Err(Fault::calm("too many empty frames in a row"));
            }
            return self.control(1, now_ms);
        }
        self.empty_in_a_row = 0;
        self.tiny = self.tiny.saturating_add(1);
        if self.tiny <= TINY_FREE { Ok(()) } else { self.control(1, now_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_empty_at_its_size_and_fills_by_time() {
        let mut abuse = Abuse::default();
        let spend =
            |abuse: &mut Abuse, now_ms| (0..).take_while(|_| abuse.reset(now_ms).is_ok()).count();
        assert_eq!(spend(&mut abuse, 5), 200);
        assert_eq!(spend(&mut abuse, 6), 0);
        assert_eq!(spend(&mut abuse, 1005), 20);
        assert_eq!(spend(&mut abuse, 1_000_000), 200);
        // A clock that goes back gives nothing.
        assert_eq!(spend(&mut abuse, 3), 0);
    }

    #[test]
    fn a_little_of_everything_is_free() {
        let mut abuse = Abuse::default();
        for _ in 0..EMPTY_MAX {
            assert!(abuse.data(0, 1).is_ok());
        }
        assert!(abuse.data(1, 1).is_ok());
        for _ in 0..EMPTY_MAX {
            assert!(abuse.data(0, 1).is_ok());
        }
        assert!(abuse.data(0, 1).is_err());
        let mut abuse = Abuse::default();
        let tiny = (0..10_000).take_while(|_| abuse.data(1, 1).is_ok()).count();
        assert_eq!(tiny, 2000);
    }
}
