//! Requests of the completion loop: the label of each and the table by which its completion finds a connection, and how
//! requests are queued and submitted in one enter.

use std::io;
use std::time::Duration;

use pollux_poller::Token;
use pollux_sys::ring::{EnterFailure, InFlight, QueueFull, StreamRing};
use rustix::io::Errno;

use super::CompletionLoop;
use crate::{Counter, Moment, Session};

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
    Cleanup = 7,
    /// Watches the loop's timer.
    Alarm = 8,
    /// Watches a socket whose session leaves its input there.
    Readable = 9,
    /// Watches a source; the slot is its number.
    Source = 10,
}

const KIND_SHIFT: u32 = 58;
const TOKEN_BITS: u64 = (1 << 56) - 1;

/// Kind and token in one number, which a request carries through the kernel and back.
///
/// ```text
///  61  58 57 56 55            32 31                              0
/// +------+-----+----------------+---------------------------------+
/// | kind |  0  |   generation   |              slot               |
/// +------+-----+----------------+---------------------------------+
/// ```
pub(super) fn label(kind: Kind, token: Token) -> u64 {
    (kind as u64) << KIND_SHIFT | u64::from(token.generation()) << 32 | u64::from(token.slot())
}

/// A label of a request that belongs to no connection.
pub(super) fn numbered(kind: Kind, number: u32) -> u64 {
    label(kind, Token::new(number, 0))
}

/// What stands on a completion.
pub(super) fn read_label(label: u64) -> (Kind, Token) {
    let kind = match label >> KIND_SHIFT {
        1 => Kind::Receive,
        2 => Kind::Send,
        3 => Kind::SendWaiting,
        4 => Kind::Writable,
        5 => Kind::Listener,
        6 => Kind::Waker,
        7 => Kind::Cleanup,
        8 => Kind::Alarm,
        9 => Kind::Readable,
        10 => Kind::Source,
        other => unreachable!("no request was labelled {other}"),
    };
    let bits = label & TOKEN_BITS;
    (kind, Token::new(bits as u32, (bits >> 32) as u32))
}

pub(super) fn is_errno(result: i32, errno: Errno) -> bool {
    result == -errno.raw_os_error()
}

pub(super) fn errno(result: i32) -> Errno {
    Errno::from_raw_os_error(-result)
}

/// A table of `T` by [`Token`].
///
/// Dense and reused, each use with its own generation: a completion whose generation is not that of the slot
/// belongs to a connection that is gone.
#[derive(Debug)]
pub(super) struct Slots<T> {
    entries: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    content: Option<T>,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// The token that the next [`Slots::insert`] will use.
    pub(super) fn next_token(&self) -> Token {
        match self.free.last() {
            Some(slot) => Token::new(*slot, self.entries[*slot as usize].generation),
            None => Token::new(self.entries.len() as u32, 0),
        }
    }

    pub(super) fn insert(&mut self, content: T) -> Token {
        let token = self.next_token();
        match self.free.pop() {
            Some(slot) => self.entries[slot as usize].content = Some(content),
            None => self.entries.push(Slot { generation: 0, content: Some(content) }),
        }
        token
    }

    /// Empties the slot of `token`; its next use has another generation.
    pub(super) fn remove(&mut self, token: Token) -> Option<T> {
        self.get_mut(token)?;
        let slot = &mut self.entries[token.slot() as usize];
        slot.generation = token.next_generation().generation();
        self.free.push(token.slot());
        slot.content.take()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.entries.get_mut(token.slot() as usize)?;
        slot.content.as_mut().filter(|_| slot.generation == token.generation())
    }

    /// The token of what is in `slot` now.
    pub(super) fn token_of(&self, slot: u32) -> Option<Token> {
        let entry = self.entries.get(slot as usize)?;
        entry.content.as_ref().map(|_| Token::new(slot, entry.generation))
    }

    /// The tokens of all that is there.
    pub(super) fn tokens(&self) -> Vec<Token> {
        (0..self.entries.len() as u32).filter_map(|slot| self.token_of(slot)).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| {
            let content = entry.content.as_ref()?;
            Some((Token::new(slot as u32, entry.generation), content))
        })
    }
}

/// Submissions of a full queue before the loop gives up: each makes room unless the kernel has
/// no memory at all.
pub(super) const SUBMITS_MAX: u32 = 1000;

impl<S: Session> CompletionLoop<S> {
    /// Queues a request, making room in the queue where needed.
    pub(super) fn push(
        &mut self,
        mut request: impl FnMut(&mut StreamRing) -> Result<(), QueueFull>,
    ) {
        self.is_mixed = true;
        let mut tries = 0;
        while request(&mut self.ring).is_err() {
            self.submit();
            tries += 1;
            assert!(tries < SUBMITS_MAX, "the kernel takes no requests from a full queue");
        }
    }

    /// Queues a request that owns `buffer`, making room in the queue where needed.
    pub(super) fn queue(
        &mut self,
        mut buffer: Vec<u8>,
        mut request: impl FnMut(&mut StreamRing, Vec<u8>) -> Result<InFlight, (QueueFull, Vec<u8>)>,
    ) -> InFlight {
        self.is_mixed = true;
        for _ in 0..SUBMITS_MAX {
            match request(&mut self.ring, buffer) {
                Ok(in_flight) => return in_flight,
                Err((QueueFull, returned)) => {
                    buffer = returned;
                    self.submit();
                }
            }
        }
        panic!("the kernel takes no requests from a full queue");
    }

    /// Submits everything and waits, spins, or only looks.
    pub(super) fn enter(&mut self, timeout: Option<Duration>, began: Moment) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            self.look()?;
        } else if self.state.limits.busy_poll {
            self.spin(timeout, began)?;
        } else {
            self.sleep(timeout)?;
        }
        if self.ring.queued() == 0 {
            self.is_closing = false;
            self.next_submission();
        }
        Ok(())
    }

    /// Looks again and again; the shared date is left alone meanwhile.
    fn spin(&mut self, timeout: Option<Duration>, began: Moment) -> io::Result<()> {
        let end = timeout.map_or(Moment::NEVER, |timeout| began + timeout);
        loop {
            self.look()?;
            if self.ring.has_completions() || self.state.clock.spin() >= end {
                return Ok(());
            }
            self.state.counters.count(Counter::BusySpins);
        }
    }

    /// No system call, unless something is to be submitted or the kernel has left work to this
    /// thread; which of the two shows in memory that is shared with it.
    #[inline]
    fn look(&mut self) -> io::Result<()> {
        self.pace.no_target();
        match self.ring.look() {
            Ok(false) => Ok(()),
            outcome => self.entered(outcome.map(drop)),
        }
    }

    /// One system call. No timer is armed when nothing is waited for.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let (target, at_most) = self.pace.target();
        let timeout = timeout.into_iter().chain(at_most).min();
        let outcome = self.ring.enter(target, timeout).map(drop);
        self.entered(outcome)
    }

    fn entered(&self, outcome: io::Result<()>) -> io::Result<()> {
        self.state.counters.count(Counter::RingEnters);
        match outcome {
            Err(error) if !EnterFailure::of(&error).is_passing() => Err(error),
            _ => Ok(()),
        }
    }

    /// Hands the queue to the kernel. Congestion passes: what was not taken stays queued.
    pub(super) fn submit(&mut self) {
        self.state.counters.count(Counter::RingEnters);
        let _ = self.ring.enter(0, None);
    }

    /// Everything queued was submitted: its sends have their fate, in the queue or to come first.
    pub(super) fn next_submission(&mut self) {
        std::mem::swap(&mut self.sends, &mut self.submitted_sends);
        self.sends.clear();
        self.submission = following(self.submission);
        self.is_arena_stale = true;
    }

    /// Has the kernel move completions that did not fit into the queue; says whether it did.
    pub(super) fn fetch_overflow(&mut self) -> bool {
        if !self.ring.has_overflow() {
            return false;
        }
        self.state.counters.count(Counter::RingOverflows);
        self.state.counters.count(Counter::RingEnters);
        self.ring.enter(0, None).is_ok()
    }

    /// Those sends of the last submission that fell short are known: the arena can be used anew.
    pub(super) fn renew_arena(&mut self) {
        if self.is_arena_stale && self.sends.is_empty() && self.ring.reset_arena() {
            self.is_arena_stale = false;
        }
    }
}

/// Number of the submission behind `submission`. Even and odd take turns, also where the count
/// begins anew, and 0 is unused.
fn following(submission: u32) -> u32 {
    submission.checked_add(1).unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submissions_take_turns_across_the_wrap() {
        for submission in [1, 2, u32::MAX - 1, u32::MAX] {
            let next = following(submission);
            assert_ne!(next & 1, submission & 1, "{submission}");
            assert_ne!(next, 0);
        }
    }

    #[test]
    fn labels_are_read_as_they_were_written() {
        let token = Token::new(u32::MAX, Token::GENERATIONS - 1);
        let kinds = [Kind::Receive, Kind::Send, Kind::SendWaiting, Kind::Writable];
        for kind in kinds.into_iter().chain([
            Kind::Listener,
            Kind::Waker,
            Kind::Cleanup,
            Kind::Alarm,
            Kind::Readable,
            Kind::Source,
        ]) {
            assert_eq!(read_label(label(kind, token)), (kind, token));
            assert!(label(kind, token) <= StreamRing::USER_DATA_MAX);
        }
    }

    #[test]
    fn a_reused_slot_does_not_answer_to_its_old_token() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!(slots.next_token().slot(), first.slot());
        let second = slots.insert('b');
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut 'b'));
        assert_eq!(slots.tokens(), [second]);
    }
}
