//! The place of one request and its reply, which belongs to a client's context.
//!
//! ```text
//!  the state:  63 ........ 32 | 23 .. 16 | 15 .. 8 | 2 .. 0
//!              generation     | hops     | error   | kind
//!
//!           open            ask                answer, fail            close
//!   free ─────────▶ open ─────────▶ asked ──────────────────▶ answered ───────▶ free
//!  (n)            (n + 1)             │  ╲                        ▲
//!                                     │   ╲ pass_on: hops + 1     │ (an error is in the state,
//!                                     │                             a reply in the message)
//!                                     └──give_up──▶ abandoned ──answer, fail──▶ free
//! ```
//!
//! One that no client waits for is *sent* in place of asked: giving up leaves it as it is, and it is free when
//! it was served.
//!
//! The number of a request that is asked or abandoned is in one ring or held by one worker, and no other process
//! writes its message; so it is used again only when that is over, and a reply to an earlier use
//! (its generation) is dropped. Each arrow but ask is a compare-and-swap from the exact state.
//!
//! A message is written with its sum, and read with the sum looked at: other clients map the same memory,
//! and one that writes where it should not must be noticed.

// The parent chooses the atomics, so that the loom model takes this file in as it stands.
use super::atomic::{AtomicU64, Ordering};
use super::workers::Ticket;

/// Words in front of the message: state, length, sum, the block whose wake flag its client sleeps on, what names the
/// request that a process has set aside, and that process.
pub(crate) const REQUEST_HEAD_WORDS: usize = 8;

const STATE: usize = 0;
const LEN: usize = 1;
const SUM: usize = 2;
const HOME: usize = 3;
const KEPT: usize = 4;
const KEEPER: usize = 5;

const FREE: u64 = 0;
const OPEN: u64 = 1;
const ASKED: u64 = 2;
const ANSWERED: u64 = 3;
const ABANDONED: u64 = 4;
const SENT: u64 = 5;
const KIND_MASK: u64 = 0b111;

/// What a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Without an owner.
    Free,
    /// Its client writes it.
    Open,
    /// It waits, or a worker has it.
    Asked,
    /// The same, and its client does not wait for a reply.
    Sent,
    /// Its reply is in the message, or there is an error number in place of one.
    Answered(Option<u8>),
    /// Its client does not wait any more.
    Abandoned,
    /// A number that is never written.
    Strange,
}

impl State {
    /// Whether its number is in a ring or with a worker, or was about to be when a process died.
    pub(crate) fn is_under_way(self) -> bool {
        matches!(self, Self::Asked | Self::Sent | Self::Abandoned)
    }
}

/// What became of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    /// Its client has it.
    Done,
    /// Its client did not wait any more.
    Abandoned,
    /// The request is another one by now, or was answered before.
    Late,
}

/// One request. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    number: u32,
    head: &'a [AtomicU64; REQUEST_HEAD_WORDS],
    message: &'a [AtomicU64],
}

impl<'a> Request<'a> {
    pub(crate) fn over(
        number: u32,
        head: &'a [AtomicU64; REQUEST_HEAD_WORDS],
        message: &'a [AtomicU64],
    ) -> Self {
        Self { number, head, message }
    }

    /// Takes a free request for a call; none when it is not free. Called by its client.
    pub(crate) fn open(&self, home: usize) -> Option<Ticket> {
        let seen = self.state_word();
        if seen & KIND_MASK != FREE {
            return None;
        }
        let generation = ((seen >> 32) as u32).wrapping_add(1);
        let ticket = Ticket { request: self.number, generation, hops: 0 };
        if !self.change(seen, word(ticket, OPEN)) {
            return None;
        }
        self.head[HOME].store(home as u64, Ordering::Relaxed);
        Some(ticket)
    }

    /// The message is written: the request may be served. Called by its client.
    pub(crate) fn ask(&self, ticket: Ticket, wants_reply: bool) {
        let kind = if wants_reply { ASKED } else { SENT };
        self.head[STATE].store(word(ticket, kind), Ordering::SeqCst);
    }

    /// What it is, with what names it.
    pub(crate) fn state(&self) -> (State, Ticket) {
        let seen = self.state_word();
        let state = match seen & KIND_MASK {
            FREE => State::Free,
            OPEN => State::Open,
            ASKED => State::Asked,
            SENT => State::Sent,
            ANSWERED => State::Answered(Some((seen >> 8) as u8).filter(|code| *code != 0)),
            ABANDONED => State::Abandoned,
            _ => State::Strange,
        };
        let generation = (seen >> 32) as u32;
        let hops = (seen >> 16) as u8;
        (state, Ticket { request: self.number, generation, hops })
    }

    /// The reply is written, or `error` is the answer. Called by the holder of the request.
    pub(crate) fn answer(&self, ticket: Ticket, error: u8) -> Delivery {
        if self.change(word(ticket, ASKED), word(ticket, ANSWERED) | u64::from(error) << 8) {
            return Delivery::Done;
        }
        if self.drop_unwanted(ticket) { Delivery::Abandoned } else { Delivery::Late }
    }

    /// It is over, and no client waits for an answer; whether that was so. Called by its holder.
    pub(crate) fn drop_unwanted(&self, ticket: Ticket) -> bool {
        [ABANDONED, SENT]
            .into_iter()
            .any(|kind| self.change(word(ticket, kind), word(ticket, FREE)))
    }

    /// It found no place in a ring. Called by its client.
    pub(crate) fn take_back(&self, ticket: Ticket) {
        self.head[STATE].store(word(ticket, FREE), Ordering::SeqCst);
    }

    /// It is passed on to another service, and its message is written anew: what it is called from now on.
    /// None when its client does not wait any more. Called by its holder, before it pushes it.
    pub(crate) fn pass_on(&self, ticket: Ticket) -> Option<Ticket> {
        let next = Ticket { hops: ticket.hops.wrapping_add(1), ..ticket };
        let is_on = |kind| self.change(word(ticket, kind), word(next, kind));
        [ASKED, SENT].into_iter().any(is_on).then_some(next)
    }

    /// It is answered later, and its holder serves others meanwhile. Called by its holder, before it lets go of it.
    pub(crate) fn set_aside(&self, ticket: Ticket, pid: u32) {
        self.head[KEEPER].store(pid.into(), Ordering::SeqCst);
        self.head[KEPT].store(word(ticket, ASKED), Ordering::SeqCst);
    }

    /// The process that has set it aside, if one has; others may write there.
    pub(crate) fn keeper(&self, ticket: Ticket) -> Option<u32> {
        let is_kept = self.head[KEPT].load(Ordering::SeqCst) == word(ticket, ASKED);
        let pid = u32::try_from(self.head[KEEPER].load(Ordering::SeqCst)).ok();
        pid.filter(|pid| is_kept && *pid != 0)
    }

    /// The answer was read. Called by its client.
    pub(crate) fn close(&self, ticket: Ticket) {
        let seen = self.state_word();
        if seen & KIND_MASK == ANSWERED && (seen >> 32) as u32 == ticket.generation {
            self.change(seen, word(ticket, FREE));
        }
    }

    /// Its client does not wait any more, or is dead: whatever it was, it is free or will be; whether it had
    /// been answered.
    pub(crate) fn give_up(&self) -> bool {
        loop {
            let seen = self.state_word();
            let next = match seen & KIND_MASK {
                FREE | ABANDONED | SENT => return false,
                ASKED => ABANDONED,
                _ => FREE,
            };
            if self.change(seen, seen & !(KIND_MASK | 0xff00) | next) {
                return seen & KIND_MASK == ANSWERED;
            }
        }
    }

    /// The block whose wake flag its client sleeps on; as its client says.
    pub(crate) fn home(&self) -> usize {
        self.head[HOME].load(Ordering::Relaxed) as usize
    }

    /// Bytes of the longest message.
    fn len_bytes_max(&self) -> usize {
        size_of_val(self.message)
    }

    /// Writes a message, which fits. Called by its client before it asks, and by its holder.
    pub(crate) fn write(&self, ticket: Ticket, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        let mut sum = seed(ticket, bytes.len());
        let mut words = self.message.iter();
        for (chunk, word) in whole.iter().zip(&mut words) {
            sum = mixed(sum, store(word, *chunk));
        }
        if !rest.is_empty()
            && let Some(word) = words.next()
        {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            sum = mixed(sum, store(word, last));
        }
        self.head[LEN].store(bytes.len() as u64, Ordering::Relaxed);
        self.head[SUM].store(sum, Ordering::Relaxed);
    }

    /// Copies the message to `out` and gives its length; none when it is not what was written for this
    /// use of the request.
    pub(crate) fn read(&self, ticket: Ticket, out: &mut [u8]) -> Option<usize> {
        let len = usize::try_from(self.head[LEN].load(Ordering::Relaxed)).ok()?;
        let out = out.get_mut(..len).filter(|_| len <= self.len_bytes_max())?;
        let mut sum = seed(ticket, len);
        let (whole, rest) = out.as_chunks_mut::<8>();
        let mut words = self.message.iter();
        for (bytes, word) in whole.iter_mut().zip(&mut words) {
            let word = word.load(Ordering::Relaxed);
            *bytes = word.to_le_bytes();
            sum = mixed(sum, word);
        }
        if !rest.is_empty()
            && let Some(word) = words.next()
        {
            let word = word.load(Ordering::Relaxed);
            rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
            sum = mixed(sum, word);
        }
        (sum == self.head[SUM].load(Ordering::Relaxed)).then_some(len)
    }

    fn state_word(&self) -> u64 {
        self.head[STATE].load(Ordering::SeqCst)
    }

    fn change(&self, old: u64, new: u64) -> bool {
        self.head[STATE].compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

fn word(ticket: Ticket, kind: u64) -> u64 {
    u64::from(ticket.generation) << 32 | u64::from(ticket.hops) << 16 | kind
}

fn store(word: &AtomicU64, bytes: [u8; 8]) -> u64 {
    let value = u64::from_le_bytes(bytes);
    word.store(value, Ordering::Relaxed);
    value
}

/// What the sum of a message begins with. Hops are left out: the reply is of the last of them.
fn seed(ticket: Ticket, len_bytes: usize) -> u64 {
    mixed(u64::from(ticket.generation) << 32 | u64::from(ticket.request), len_bytes as u64)
}

/// Any word that is another one makes another sum (an odd factor); it does not defend against malice.
fn mixed(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}
