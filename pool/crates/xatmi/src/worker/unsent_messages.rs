//! Full queues, and the messages of a worker that wait for room in them.
//!
//! `queues` puts messages here, and the poller notifies it when a queue can be written to. Nothing here waits or opens a
//! queue.

use std::collections::VecDeque;
use std::io;

use pollux_sys::mqueue::MessageQueue;

use super::reply::{Call, Destination};
use crate::queue::is_withdrawn;
use crate::slots::{UNSENT_MAX, UnsentReply};

/// A message that waits for room in its queue.
#[derive(Debug)]
pub(super) struct UnsentMessage {
    pub(super) bytes: Box<[u8]>,
    /// Its priority in the queue.
    pub(super) rank: u32,
    /// Names its caller to the manager while it waits, and for good when it is left.
    pub(super) note: Option<UnsentReply>,
    /// When it is dropped, in nanoseconds of the monotonic clock.
    pub(super) until_ns: u64,
    /// Of a forwarded request: its call, which is answered with an error when it is dropped.
    pub(super) forwarded: Option<Call>,
}

/// All messages that wait, at most [`UNSENT_MAX`]: far more than the callers of a pool within the limits of
/// the kernel, and a megabyte at most at the usual size.
#[derive(Debug, Default)]
pub(super) struct UnsentMessages {
    queues: Vec<Option<FullQueue>>,
    /// Messages of all queues.
    count: usize,
    generation: u32,
}

/// A full queue with the messages that wait for it.
#[derive(Debug)]
pub(super) struct FullQueue {
    destination: Destination,
    pub(super) queue: MessageQueue,
    /// The longest message that the queue takes.
    pub(super) message_len_bytes_max: usize,
    generation: u32,
    pub(super) waiting: VecDeque<UnsentMessage>,
}

impl UnsentMessages {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= UNSENT_MAX
    }

    /// The queue for which messages wait already, with its index.
    pub(super) fn find(&self, destination: &Destination) -> Option<(usize, &FullQueue)> {
        self.queues().find(|(_, full)| full.destination == *destination)
    }

    /// Adds a full queue, whose messages have `message_len_bytes_max` at most; its index and generation.
    pub(super) fn open(
        &mut self,
        destination: Destination,
        queue: MessageQueue,
        message_len_bytes_max: usize,
    ) -> (usize, u32) {
        // Wraps as tokens do, so that both are the same number.
        self.generation = (self.generation + 1) % pollux_poller::Token::GENERATIONS;
        let generation = self.generation;
        let waiting = VecDeque::new();
        let full = FullQueue { destination, queue, message_len_bytes_max, generation, waiting };
        let free = self.queues.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.queues.push(None);
            self.queues.len() - 1
        });
        self.queues[at] = Some(full);
        (at, generation)
    }

    /// Puts a message behind those that wait for the queue at `index`.
    pub(super) fn add(&mut self, index: usize, message: UnsentMessage) {
        let full = self.queues[index].as_mut().expect("the caller just looked it up");
        full.waiting.push_back(message);
        self.count += 1;
    }

    /// Whether the queue at `index` is still that of `generation`.
    pub(super) fn is_current(&self, index: usize, generation: u32) -> bool {
        let full = self.queues.get(index).and_then(Option::as_ref);
        full.is_some_and(|full| full.generation == generation)
    }

    /// All full queues with their indices.
    pub(super) fn queues(&self) -> impl Iterator<Item = (usize, &FullQueue)> {
        self.queues.iter().enumerate().filter_map(|(at, full)| Some((at, full.as_ref()?)))
    }

    /// Sends what fits into the queue at `index`; whether nothing waits for it any more.
    pub(super) fn flush(&mut self, index: usize) -> bool {
        let Some(full) = &mut self.queues[index] else { return false };
        while let Some(message) = full.waiting.front() {
            match full.queue.send(&message.bytes, message.rank) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // Its length fits this queue: nothing else can fail.
                _ => {
                    full.waiting.pop_front();
                    self.count -= 1;
                }
            }
        }
        true
    }

    /// Takes the queue at `index` away, with the messages that still wait for it.
    pub(super) fn close(&mut self, index: usize) -> Option<FullQueue> {
        let full = self.queues[index].take()?;
        self.count -= full.waiting.len();
        Some(full)
    }

    /// Drops everything, as the worker ends, and leaves the notes to the manager; how many there were.
    pub(super) fn leave(&mut self) -> usize {
        let messages: Vec<_> =
            self.queues.drain(..).flatten().flat_map(|full| full.waiting).collect();
        let count = messages.len();
        messages.into_iter().filter_map(|message| message.note).for_each(UnsentReply::leave);
        self.count = 0;
        count
    }

    /// Takes out the messages whose time is over.
    pub(super) fn expire(&mut self, now_ns: u64) -> Vec<UnsentMessage> {
        let mut late = Vec::new();
        for full in self.queues.iter_mut().flatten() {
            let (over, waiting) =
                full.waiting.drain(..).partition::<Vec<_>, _>(|message| message.until_ns <= now_ns);
            full.waiting = waiting.into();
            late.extend(over);
        }
        self.count -= late.len();
        late
    }

    /// Queues for which nothing waits, and those that lost their name, as the reader is gone.
    pub(super) fn abandoned(&self, is_asking_kernel: bool) -> Vec<usize> {
        let is_abandoned = |full: &FullQueue| {
            full.waiting.is_empty() || (is_asking_kernel && is_withdrawn(&full.queue))
        };
        self.queues().filter(|(_, full)| is_abandoned(full)).map(|(at, _)| at).collect()
    }

    /// When the first of them is dropped.
    pub(super) fn first_until_ns(&self) -> Option<u64> {
        let messages = self.queues.iter().flatten().flat_map(|full| &full.waiting);
        messages.map(|message| message.until_ns).min()
    }
}
