//! What the streams of one loop hold together: bytes of requests that their backends have not taken, and of answers that
//! their clients have not.
//!
//! A connection of HTTP/1.1 holds what one request does; one of HTTP/2 as often as it has streams, and a client that opens no
//! window pays nothing for it. So there is a limit for all of them (`http2_waiting_max`). Where it is passed nobody who is new
//! is turned away: what is kept for second tries goes first, and then the streams of which nothing has left for longest are
//! cut, until an eighth of the limit is free.

use pollux_engine::Moment;

use crate::exchange::proxy_loop::ProxyLoop;
use crate::fault::{Fault, ProxyCounter};
use crate::ids::ExchangeId;

/// The part of the limit that is free once streams were cut: the search for them is worth it then.
const FREED_SHARE: usize = 8;

impl ProxyLoop {
    /// Counts what the exchange of a stream holds now.
    #[inline]
    pub(super) fn count_held(&mut self, at: ExchangeId) {
        let exchange = self.exchanges.get_mut(at);
        if exchange.asker.is_stream() {
            let messages = exchange.request.held_bytes() + exchange.response.held_bytes();
            let held_bytes = messages + exchange.early_bytes;
            self.note_held(at, held_bytes);
        }
    }

    /// The same of one that has got more: where all hold too much now, others are cut.
    #[inline]
    pub(super) fn count_more_held(&mut self, at: ExchangeId) {
        self.count_held(at);
        if self.held_bytes > self.limits.http2_waiting_max {
            self.cut_longest(at);
        }
    }

    /// The asker of a stream that is to become a tunnel keeps so many bytes until then.
    pub(crate) fn note_early(&mut self, at: ExchangeId, bytes: usize) {
        self.exchanges.get_mut(at).early_bytes = bytes;
        self.count_more_held(at);
    }

    /// An exchange ends, and holds nothing.
    #[inline]
    pub(super) fn forget_held(&mut self, at: ExchangeId) {
        if self.exchanges.get(at).held_bytes > 0 {
            self.note_held(at, 0);
        }
    }

    #[inline]
    fn note_held(&mut self, at: ExchangeId, held_bytes: usize) {
        let before = std::mem::replace(&mut self.exchanges.get_mut(at).held_bytes, held_bytes);
        self.held_bytes = self.held_bytes + held_bytes - before;
        self.proxied.set_held(self.held_bytes);
    }

    /// Makes room, by streams of which nothing has left for longest; not by this one, which is at work.
    #[cold]
    fn cut_longest(&mut self, at_work: ExchangeId) {
        let most = self.limits.http2_waiting_max;
        let goal = most - most / FREED_SHARE;
        let mut standing: Vec<(Moment, ExchangeId)> = (self.exchanges.iter())
            .filter(|(at, each)| *at != at_work && each.held_bytes > 0 && each.fault.is_none())
            .map(|(at, each)| (each.moved, at))
            .collect();
        for (_, at) in &standing {
            let request = &mut self.exchanges.get_mut(*at).request;
            if request.has_left_some() {
                request.forget_sent();
            }
            self.count_held(*at);
        }
        standing.sort_unstable_by_key(|(moved, at)| (*moved, at.place()));
        for (_, at) in standing {
            if self.held_bytes <= goal {
                return;
            }
            if self.exchanges.get(at).held_bytes > 0 {
                self.cut_for_room(at);
            }
        }
    }

    /// The stream ends, by a page where nothing of an answer has left.
    fn cut_for_room(&mut self, at: ExchangeId) {
        self.proxied.count(ProxyCounter::StreamsCut);
        // First: nothing of it may pass for the whole on either side.
        self.part(at);
        let exchange = self.exchanges.get_mut(at);
        exchange.request.give_up();
        exchange.response.give_up();
        self.count_held(at);
        self.give_up_later(at, Fault::StreamsFull);
    }
}
