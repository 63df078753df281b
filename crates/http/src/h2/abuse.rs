//! What a peer may cost: work that it asks for without a request behind it is paid from buckets that fill by time, and by
//! what the peer is sent.
//!
//! Beyond a limit the connection ends with `ENHANCE_YOUR_CALM`; the reason says which bucket was empty.
//!
//! | limit | attack | why honest peers are below |
//! |---|---|---|
//! | 500 resets of a client, 100/s more, 1 for each answer, up to 1000 | rapid reset (CVE-2023-44487); requests that have to be reset here for what is wrong with them (CVE-2025-8671, CVE-2019-9514) | a browser cancels the images of a page at once, some hundreds; a proxy cancels a share of what is answered; a client whose requests all time out has at most its open streams in each timeout |
//! | 1000 frames that bring nothing, 1000/s more, 4 for each HEADERS or DATA that is sent, up to 10,000 | floods of PING, SETTINGS, PRIORITY, GOAWAY, answers to nothing, HEADERS that are not looked at, unknown frames, small window updates (CVE-2019-9511 to 9513, 9515); empty DATA (CVE-2019-9518) | gRPC measures each round trip in which DATA arrives by PING with a window update; some libraries give back the window of the stream and of the connection for each DATA |
//! | 10 empty frames of DATA in a row | CVE-2019-9518 | one stands at the end of a body, where it is not counted |
//! | 50,000 frames of DATA below 32 bytes, 50,000/s more; from clients alone | a body of single bytes | gRPC sends each message in a frame of its own, some thousands a second on busy streams |
//! | before our SETTINGS are acknowledged as many refused streams for nothing as may be open, or 100 | streams beyond the limit | before it knows the limit a client may exceed it in good faith (RFC 9113 5.1.2) |
//! | blocks of twice the limit of a head and 16 KiB, 8 CONTINUATION frames more than such a block needs | CONTINUATION flood (CVE-2024-27316) | a head within the limit takes fewer bytes than are announced, in frames as large as they may be |
//!
//! DATA that a window has cut to less than 128 bytes earns nothing: its peer has forced it.

use crate::h2::error::Fault;
use crate::h2::frame::PAYLOAD_BYTES_MAX;
use crate::h2::settings::Role;

const RESETS: Rate = Rate::new(500, 100, 1000);

const CONTROL: Rate = Rate::new(1000, 1000, 10_000);

const TINY: Rate = Rate::new(50_000, 50_000, 50_000);

/// What each HEADERS or DATA that is sent earns: two window updates, and a PING with one more.
const CONTROL_EARNED: u32 = 4;

/// A reset that cost a connection to a backend: one more than its answer has earned.
const CUT_PRICE: u32 = 2;

/// Empty frames in a row.
const EMPTY_MAX: u32 = 10;

/// DATA below this many bytes is charged, unless it ends its stream.
const TINY_BYTES: usize = 32;

/// Window updates below this are charged.
pub(crate) const SMALL_UPDATE_BYTES: u32 = 128;

/// DATA below this earns nothing where a window has cut it.
const SMALL_DATA_BYTES: usize = 128;

/// Bytes of a field block as it is sent: no head within the limit comes near, and one somewhat beyond gets its 431.
pub(crate) fn block_bytes_max(head_bytes: usize) -> usize {
    head_bytes.saturating_mul(2).saturating_add(PAYLOAD_BYTES_MAX)
}

/// CONTINUATION frames of a block; none may be empty but the last.
pub(crate) fn continuations_max(head_bytes: usize) -> usize {
    8 + block_bytes_max(head_bytes) / PAYLOAD_BYTES_MAX
}

pub(crate) const BLOCK: Fault = Fault::calm("a field block is too long, or in too many frames");

/// What a bucket holds, in thousandths, so that no part of a millisecond's share is lost.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// How far time fills it.
    size: u32,
    /// How far earnings do.
    earned_max: u32,
    per_s: u32,
}

impl Rate {
    const fn new(size: u32, per_s: u32, earned_max: u32) -> Self {
        Self { size: size * 1000, earned_max: earned_max * 1000, per_s }
    }

    const fn full(self) -> Bucket {
        Bucket { left: self.size, since_ms: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    /// When it was filled up to `left`.
    since_ms: u64,
}

impl Bucket {
    /// Takes the price; false when there is not so much in it.
    fn pay(&mut self, rate: Rate, price: u32, now_ms: u64) -> bool {
        let elapsed_ms = now_ms.saturating_sub(self.since_ms);
        self.since_ms = self.since_ms.max(now_ms);
        if self.left < rate.size {
            let more = elapsed_ms.saturating_mul(rate.per_s.into());
            let filled = more.saturating_add(self.left.into()).min(rate.size.into());
            self.left = u32::try_from(filled).expect("at most its size");
        }
        match self.left.checked_sub(price.saturating_mul(1000)) {
            Some(left) => self.left = left,
            None => return false,
        }
        true
    }

    fn earn(&mut self, rate: Rate, more: u32) {
        self.left = (self.left + more * 1000).min(rate.earned_max);
    }
}

/// What one peer has left.
#[derive(Debug)]
pub(crate) struct Abuse {
    /// None for a backend: what it breaks is an answer that it was asked for.
    resets: Option<Bucket>,
    control: Bucket,
    /// None where small DATA costs nothing: a backend answers what it was asked.
    tiny: Option<Bucket>,
    empty_in_a_row: u32,
}

impl Abuse {
    /// What the peer of this end may cost.
    pub(crate) fn new(role: Role) -> Self {
        let of_client = |rate: Rate| (role == Role::Server).then_some(rate.full());
        let resets = of_client(RESETS);
        let tiny = of_client(TINY);
        Self { resets, control: CONTROL.full(), tiny, empty_in_a_row: 0 }
    }

    /// A stream was reset before its answer.
    pub(crate) fn reset(&mut self, now_ms: u64) -> Result<(), Fault> {
        if self.pay_reset(1, now_ms) {
            Ok(())
        } else {
            Err(Fault::calm("too many streams that were reset before their answers"))
        }
    }

    /// A stream was reset within its answer, which has cost its maker more than an answer earns.
    pub(crate) fn cut(&mut self, now_ms: u64) -> Result<(), Fault> {
        if self.pay_reset(CUT_PRICE, now_ms) {
            Ok(())
        } else {
            Err(Fault::calm("too many streams that were reset within their answers"))
        }
    }

    fn pay_reset(&mut self, price: u32, now_ms: u64) -> bool {
        self.resets.as_mut().is_none_or(|resets| resets.pay(RESETS, price, now_ms))
    }

    /// A frame that brings nothing.
    #[inline]
    pub(crate) fn control(&mut self, price: u32, now_ms: u64) -> Result<(), Fault> {
        if self.control.pay(CONTROL, price, now_ms) {
            Ok(())
        } else {
            Err(Fault::calm("too many frames that bring nothing"))
        }
    }

    /// A request has come, or an answer or trailers.
    #[inline]
    pub(crate) fn headers(&mut self) {
        self.empty_in_a_row = 0;
    }

    /// So much of a body.
    #[inline]
    pub(crate) fn data(&mut self, bytes: usize, ends: bool, now_ms: u64) -> Result<(), Fault> {
        if bytes > 0 {
            self.empty_in_a_row = 0;
        }
        if bytes >= TINY_BYTES || ends { Ok(()) } else { self.tiny_data(bytes, now_ms) }
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
        if self.tiny.as_mut().is_none_or(|tiny| tiny.pay(TINY, 1, now_ms)) {
            Ok(())
        } else {
            Err(Fault::calm("too many frames with a few bytes of a body"))
        }
    }

    /// The head of an answer was sent: the request was one.
    #[inline]
    pub(crate) fn answered(&mut self) {
        if let Some(resets) = &mut self.resets {
            resets.earn(RESETS, 1);
        }
    }

    /// HEADERS were sent.
    #[inline]
    pub(crate) fn sent(&mut self) {
        self.control.earn(CONTROL, CONTROL_EARNED);
    }

    /// So much DATA was sent, and `room` is left of the windows.
    #[inline]
    pub(crate) fn sent_data(&mut self, bytes: usize, room: usize) {
        if bytes >= SMALL_DATA_BYTES || (bytes > 0 && room > 0) {
            self.sent();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_empty_at_its_size_and_fills_by_time() {
        let mut abuse = Abuse::new(Role::Server);
        let spend =
            |abuse: &mut Abuse, now_ms| (0..).take_while(|_| abuse.reset(now_ms).is_ok()).count();
        assert_eq!(spend(&mut abuse, 5), 500);
        assert_eq!(spend(&mut abuse, 6), 0);
        assert_eq!(spend(&mut abuse, 1005), 100);
        assert_eq!(spend(&mut abuse, 1_000_000), 500);
        // A clock that goes back gives nothing.
        assert_eq!(spend(&mut abuse, 3), 0);
        assert_eq!(spend(&mut abuse, 1_000_000), 0);
    }

    #[test]
    fn time_in_small_steps_fills_as_much_as_in_one() {
        let rate = Rate::new(10, 30, 10);
        let mut bucket = rate.full();
        assert!(bucket.pay(rate, 10, 0));
        let paid = (1..=1000).filter(|now_ms| bucket.pay(rate, 1, *now_ms)).count();
        assert_eq!(paid, 30);
    }

    #[test]
    fn what_is_sent_earns_up_to_a_limit_and_time_does_not_take_it_back() {
        let mut abuse = Abuse::new(Role::Server);
        for _ in 0..100_000 {
            abuse.answered();
            abuse.sent_data(20, 1);
        }
        assert!(abuse.reset(1).is_ok() && abuse.control(1, 1).is_ok());
        assert_eq!((0..).take_while(|_| abuse.reset(2).is_ok()).count(), 999);
        assert_eq!((0..).take_while(|_| abuse.control(1, 2).is_ok()).count(), 9999);
        // Data that the peer's window has cut earns nothing.
        abuse.sent_data(127, 0);
        abuse.sent_data(0, 1);
        assert!(abuse.control(1, 2).is_err());
    }

    #[test]
    fn empty_frames_are_in_a_row_only_where_nothing_stands_between() {
        let mut abuse = Abuse::new(Role::Server);
        let empties =
            |abuse: &mut Abuse| (0..20).take_while(|_| abuse.data(0, false, 1).is_ok()).count();
        for between in [
            |abuse: &mut Abuse| abuse.data(1, false, 1),
            |abuse: &mut Abuse| abuse.data(1, true, 1),
            |abuse: &mut Abuse| abuse.data(100, false, 1),
            |abuse: &mut Abuse| {
                abuse.headers();
                Ok(())
            },
        ] {
            assert!(between(&mut abuse).is_ok());
            for _ in 0..EMPTY_MAX {
                assert!(abuse.data(0, false, 1).is_ok());
            }
        }
        assert_eq!(empties(&mut abuse), 0);
    }

    #[test]
    fn broken_answers_of_a_backend_are_not_held_against_it() {
        let mut abuse = Abuse::new(Role::Client);
        assert!((0..5000).all(|_| abuse.reset(1).is_ok()));
    }

    #[test]
    fn single_bytes_of_a_client_are_many_before_they_cost_and_those_of_a_backend_are_free() {
        let many = |role| {
            let mut abuse = Abuse::new(role);
            (0..100_000).take_while(|_| abuse.data(1, false, 1).is_ok()).count()
        };
        assert_eq!(many(Role::Server), 50_000);
        assert_eq!(many(Role::Client), 100_000);
    }
}
