//! The number that a request carries through the kernel and back.
//!
//! ```text
//!  61  58 57 56 55            32 31                              0
//! +------+-----+----------------+---------------------------------+
//! | kind |  0  |   generation   |              slot               |
//! +------+-----+----------------+---------------------------------+
//! ```
//!
//! A completion whose generation is not that of the slot belongs to a connection that is gone.

use pollux_poller::Token;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Receives for a connection.
    Receive = 1,
    /// Sends out of the arena; the slot counts the sends of the submission, the generation
    /// says whether that is an even or an odd one.
    Send = 2,
    /// Sends output that waited.
    SendWaiting = 3,
    /// Watches a socket for room that is full, or connects.
    Writable = 4,
    /// Watches a listener; the slot is its number.
    Listener = 5,
    /// Watches the waker.
    Waker = 6,
    /// Cancels or closes: completes only when that failed, which needs no answer.
    Errand = 7,
    /// Watches the loop's timer.
    Alarm = 8,
    /// Watches a socket whose session leaves its input there.
    Readable = 9,
    /// Watches a source; the slot is its number.
    Source = 10,
}

const KIND_SHIFT: u32 = 58;
const TOKEN_BITS: u64 = (1 << 56) - 1;

/// Kind and token in one number.
pub(super) fn label(kind: Kind, token: Token) -> u64 {
    (kind as u64) << KIND_SHIFT | u64::from(token.generation()) << 32 | u64::from(token.slot())
}

/// A label of a request that belongs to no connection.
pub(super) fn numbered(kind: Kind, number: u32) -> u64 {
    label(kind, Token::new(number, 0))
}

/// What stands on a completion.
pub(super) fn read(label: u64) -> (Kind, Token) {
    let kind = match label >> KIND_SHIFT {
        1 => Kind::Receive,
        2 => Kind::Send,
        3 => Kind::SendWaiting,
        4 => Kind::Writable,
        5 => Kind::Listener,
        6 => Kind::Waker,
        7 => Kind::Errand,
        8 => Kind::Alarm,
        9 => Kind::Readable,
        10 => Kind::Source,
        other => unreachable!("no request was labelled {other}"),
    };
    let bits = label & TOKEN_BITS;
    (kind, Token::new(bits as u32, (bits >> 32) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_sys::ring::StreamRing;

    #[test]
    fn labels_are_read_as_they_were_written() {
        let token = Token::new(u32::MAX, Token::GENERATIONS - 1);
        let kinds = [Kind::Receive, Kind::Send, Kind::SendWaiting, Kind::Writable];
        for kind in kinds.into_iter().chain([
            Kind::Listener,
            Kind::Waker,
            Kind::Errand,
            Kind::Alarm,
            Kind::Readable,
            Kind::Source,
        ]) {
            assert_eq!(read(label(kind, token)), (kind, token));
            assert!(label(kind, token) <= StreamRing::USER_DATA_MAX);
        }
    }
}
