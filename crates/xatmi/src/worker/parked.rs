//! Messages whose queue was full when they were sent: kept until there is room, or until nobody
//! wants them any more.
//!
//! The replies fill it and send from it. It never waits and never opens a queue; who watches the
//! queues for room is told when one comes and when one goes.

use std::collections::VecDeque;
use std::io;

use pollux_sys::mqueue::MessageQueue;

use crate::queue::{ServiceName, is_withdrawn};
use crate::slots::{PROMISES_MAX, Promise};
use crate::wire::ClientAddress;

/// The most messages that one worker keeps: far more than the callers of a pool within the
/// limits of the kernel, and a megabyte at most at the usual size. For each there is a promise.
pub(super) const PARKED_MAX: usize = PROMISES_MAX;

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Destination {
    /// To a client's reply queue.
    Client(ClientAddress),
    /// On to another service.
    Service(ServiceName),
}

/// A message that waits.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) bytes: Box<[u8]>,
    /// Tells the manager of it as long as it waits, and for good when it is left behind.
    pub(super) promise: Option<Promise>,
    /// When nobody wants it any more, in nanoseconds of the monotonic clock.
    pub(super) until_ns: u64,
    /// Of a forwarded request that wants a reply: its caller and call, who are told when it could
    /// not be delivered.
    pub(super) caller: Option<(ClientAddress, u64)>,
}

/// All messages that wait.
#[derive(Debug, Default)]
pub(super) struct Parked {
    places: Vec<Option<Place>>,
    letters: usize,
    generation: u32,
}

/// A full queue with what waits for it.
#[derive(Debug)]
pub(super) struct Place {
    destination: Destination,
    pub(super) queue: MessageQueue,
    /// The longest message that the queue takes.
    pub(super) message_len_bytes_max: usize,
    generation: u32,
    pub(super) waiting: VecDeque<Letter>,
}

impl Parked {
    pub(super) fn is_empty(&self) -> bool {
        self.letters == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.letters >= PARKED_MAX
    }

    /// The place of a queue for which messages wait already.
    pub(super) fn find(&self, destination: &Destination) -> Option<(usize, &Place)> {
        self.places().find(|(_, place)| place.destination == *destination)
    }

    /// Makes a place for a full queue, whose messages have `message_len_bytes_max` at most;
    /// returns it with its generation.
    pub(super) fn open(
        &mut self,
        destination: Destination,
        queue: MessageQueue,
        message_len_bytes_max: usize,
    ) -> (usize, u32) {
        // Wraps as tokens do, so that both speak of the same number.
        self.generation = (self.generation + 1) % pollux_poller::Token::GENERATIONS;
        let generation = self.generation;
        let waiting = VecDeque::new();
        let place = Place { destination, queue, message_len_bytes_max, generation, waiting };
        let free = self.places.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[at] = Some(place);
        (at, generation)
    }

    /// Puts a message behind those that wait at `place`.
    pub(super) fn add(&mut self, place: usize, letter: Letter) {
        let place = self.places[place].as_mut().expect("the caller just looked it up");
        place.waiting.push_back(letter);
        self.letters += 1;
    }

    /// The place, as long as it is the one that `generation` speaks of.
    pub(super) fn is_current(&self, place: usize, generation: u32) -> bool {
        let place = self.places.get(place).and_then(Option::as_ref);
        place.is_some_and(|place| place.generation == generation)
    }

    /// All places in use.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, &Place)> {
        self.places.iter().enumerate().filter_map(|(at, place)| Some((at, place.as_ref()?)))
    }

    /// Sends what `place` has room for; whether nothing waits there any more.
    pub(super) fn flush(&mut self, place: usize) -> bool {
        let Some(place) = &mut self.places[place] else { return false };
        while let Some(letter) = place.waiting.front() {
            match place.queue.send(&letter.bytes, 0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // Of the right length for this queue when it was parked: nothing else can fail.
                _ => {
                    place.waiting.pop_front();
                    self.letters -= 1;
                }
            }
        }
        true
    }

    /// Takes a place away; nothing waits there, or it is not wanted.
    pub(super) fn close(&mut self, place: usize) -> Option<Place> {
        let place = self.places[place].take()?;
        self.letters -= place.waiting.len();
        Some(place)
    }

    /// Takes everything away, as the worker ends; those who wait for it are told by the manager.
    pub(super) fn leave(&mut self) -> usize {
        let letters: Vec<_> =
            self.places.drain(..).flatten().flat_map(|place| place.waiting).collect();
        let count = letters.len();
        letters.into_iter().filter_map(|letter| letter.promise).for_each(Promise::leave);
        self.letters = 0;
        count
    }

    /// Takes away what waited too long.
    pub(super) fn expire(&mut self, now_ns: u64) -> Vec<Letter> {
        let mut late = Vec::new();
        for place in self.places.iter_mut().flatten() {
            let (over, waiting) =
                place.waiting.drain(..).partition::<Vec<_>, _>(|letter| letter.until_ns <= now_ns);
            place.waiting = waiting.into();
            late.extend(over);
        }
        self.letters -= late.len();
        late
    }

    /// Places where nothing waits, and those whose queue lost its name, as its reader is gone.
    pub(super) fn abandoned(&self, is_asking_kernel: bool) -> Vec<usize> {
        let is_abandoned = |place: &Place| {
            place.waiting.is_empty() || (is_asking_kernel && is_withdrawn(&place.queue))
        };
        self.places().filter(|(_, place)| is_abandoned(place)).map(|(at, _)| at).collect()
    }

    /// When the first of them is not wanted any more.
    pub(super) fn first_until_ns(&self) -> Option<u64> {
        let letters = self.places.iter().flatten().flat_map(|place| &place.waiting);
        letters.map(|letter| letter.until_ns).min()
    }
}
