//! The streams of a connection: each stands in a place that stays the same, and is found by its number.
//!
//! A place is used again by a later stream. What was given up costs nothing: neither beginning, finding nor removing one
//! depends on how many are open, but for a search by halves.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use crate::RequestKind;
use crate::h2::priority::Priority;
use crate::h2::window::{ReceiveWindow, SendWindow};

/// One request and its answer.
#[derive(Debug)]
pub(crate) struct Stream<T> {
    pub(crate) id: u32,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// The peer has ended its side.
    pub(crate) is_peer_done: bool,
    pub(crate) is_own_done: bool,
    /// A server has sent the head of its answer, a client has got it.
    pub(crate) is_answered: bool,
    /// What a client has asked; [`RequestKind::Connect`] of a server's streams, and of a client's that are answered, says that
    /// their bytes are not HTTP.
    pub(crate) kind: RequestKind,
    pub(crate) priority: Priority,
    /// What the body has to be long; none where that was not said.
    pub(crate) length: Option<u64>,
    pub(crate) received: u64,
    /// Interim answers that a client has got.
    pub(crate) interims: u16,
    /// Bytes of the head of its request.
    pub(crate) head_bytes: usize,
    pub(crate) data: T,
}

impl<T> Stream<T> {
    pub(crate) fn new(id: u32, send_window: i32, receive_window: ReceiveWindow, data: T) -> Self {
        Self {
            id,
            send_window: SendWindow::new(send_window),
            receive_window,
            is_peer_done: false,
            is_own_done: false,
            is_answered: false,
            kind: RequestKind::Other,
            priority: Priority::UNSAID,
            length: None,
            received: 0,
            interims: 0,
            head_bytes: 0,
            data,
        }
    }
}

/// Behind the last place.
const NONE: u32 = u32::MAX;

/// All streams that are open in any way.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    /// Numbers and places, in order of the numbers.
    index: VecDeque<(u32, u32)>,
    /// The last of them, which is asked for most; of number 0, which no stream has, where there is none.
    last: (u32, u32),
    places: Vec<Place<T>>,
    /// The free place that is used next.
    free: u32,
}

#[derive(Debug)]
enum Place<T> {
    /// With the one that is used after it.
    Free(u32),
    Used(Stream<T>),
}

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Self { index: VecDeque::new(), last: (0, NONE), places: Vec::new(), free: NONE }
    }
}

impl<T> Streams<T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Where the stream of this number stands.
    #[inline]
    pub(crate) fn place(&self, id: u32) -> Option<usize> {
        let (last, place) = self.last;
        match last {
            _ if last == id => Some(place as usize),
            _ if last < id => None,
            _ => self.search(id).map(|at| self.index[at].1 as usize),
        }
    }

    #[cold]
    fn search(&self, id: u32) -> Option<usize> {
        self.index.binary_search_by_key(&id, |(id, _)| *id).ok()
    }

    /// Adds a stream whose number is above all others.
    #[inline]
    pub(crate) fn push(&mut self, stream: Stream<T>) {
        let id = stream.id;
        let place = match self.places.get_mut(self.free as usize) {
            Some(place) => {
                let Place::Free(next) = *place else { unreachable!("{FREE}") };
                *place = Place::Used(stream);
                std::mem::replace(&mut self.free, next)
            }
            None => {
                self.places.push(Place::Used(stream));
                u32::try_from(self.places.len() - 1).expect("streams are few")
            }
        };
        self.last = (id, place);
        self.index.push_back(self.last);
    }

    /// Takes the stream out of its place.
    #[inline]
    pub(crate) fn remove(&mut self, place: usize) -> Stream<T> {
        let next = std::mem::replace(&mut self.free, u32::try_from(place).expect("a place"));
        let Place::Used(stream) = std::mem::replace(&mut self.places[place], Place::Free(next))
        else {
            unreachable!("{USED}")
        };
        self.unlist(stream.id);
        stream
    }

    /// Drops the stream in its place.
    #[inline]
    pub(crate) fn forget(&mut self, place: usize) {
        let id = self[place].id;
        let next = std::mem::replace(&mut self.free, u32::try_from(place).expect("a place"));
        self.places[place] = Place::Free(next);
        self.unlist(id);
    }

    #[inline]
    fn unlist(&mut self, id: u32) {
        if self.last.0 == id {
            self.index.pop_back();
            self.last = self.index.back().copied().unwrap_or((0, NONE));
        } else {
            let at = self.search(id).expect("what has a place is in the index");
            self.index.remove(at);
        }
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Stream<T>> {
        self.index.iter().map(|(_, place)| &self[*place as usize])
    }

    /// The same, with their places and to be changed; in no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Stream<T>)> {
        self.places.iter_mut().enumerate().filter_map(|(at, place)| match place {
            Place::Used(stream) => Some((at, stream)),
            Place::Free(_) => None,
        })
    }

    /// Takes all of them, in order.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Stream<T>> + use<T> {
        let Self { index, mut places, .. } = std::mem::take(self);
        index.into_iter().map(move |(_, place)| {
            match std::mem::replace(&mut places[place as usize], Place::Free(NONE)) {
                Place::Used(stream) => stream,
                Place::Free(_) => unreachable!("{USED}"),
            }
        })
    }
}

const USED: &str = "a place of a stream is used";
const FREE: &str = "a place without a stream is free";

impl<T> Index<usize> for Streams<T> {
    type Output = Stream<T>;

    #[inline]
    fn index(&self, place: usize) -> &Stream<T> {
        match &self.places[place] {
            Place::Used(stream) => stream,
            Place::Free(_) => unreachable!("{USED}"),
        }
    }
}

impl<T> IndexMut<usize> for Streams<T> {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut Stream<T> {
        match &mut self.places[place] {
            Place::Used(stream) => stream,
            Place::Free(_) => unreachable!("{USED}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Against a map, in a random order that is the same each time.
    #[test]
    fn streams_are_found_by_their_numbers_whatever_was_removed() {
        let mut streams = Streams::default();
        let mut model = BTreeMap::new();
        let mut next = 1;
        let mut random = 1_u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let pick = random >> 8;
            if pick % 5 < 3 && model.len() < 50 {
                streams.push(Stream::new(next, 0, ReceiveWindow::new(0), next * 10));
                model.insert(next, next * 10);
                next += 2 * (1 + pick % 3);
            } else if let Some(id) = model.keys().nth(pick as usize % model.len().max(1)).copied() {
                let place = streams.place(id).expect("it is there");
                let data = streams[place].data;
                if pick % 5 == 3 {
                    assert_eq!(streams.remove(place).data, data);
                } else {
                    streams.forget(place);
                }
                assert_eq!(model.remove(&id), Some(data));
                assert_eq!(streams.place(id), None);
            }
            assert_eq!(streams.len(), model.len());
        }
        for (id, data) in &model {
            let place = streams.place(*id).expect("it is there");
            assert_eq!(streams[place].data, *data);
        }
        assert!(streams.places.len() <= 50);
        let ids: Vec<u32> = streams.iter().map(|stream| stream.id).collect();
        assert!(ids.iter().eq(model.keys()));
        assert_eq!(streams.iter_mut().count(), model.len());
        assert!(streams.take_all().map(|stream| stream.id).eq(ids));
        assert!(streams.is_empty());
    }
}
