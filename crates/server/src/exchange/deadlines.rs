//! By when something has to happen of which the asker's side of an exchange is the judge.
//!
//! | deadline | while | what is over then |
//! |---|---|---|
//! | drain timeout | always, once the loop drains | the connection is cut |
//! | request timeout | always | 504, or cut |
//! | queue timeout | it waits for an upstream connection | 503 |
//! | body timeout and rate (`body_clock`) | the request's body comes, and we take it | 408, or cut |
//!
//! A tunnel has none of them: how quiet it is, is for the upstream side to judge, as is by when the backend has to answer.

use pollux_engine::{Actions, Moment};

use crate::body_clock::BodyTime;
use crate::exchange::upstreams::Upstreams;
use crate::ids::ExchangeId;

/// What is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Drain,
    Request,
    Queue,
    Body,
}

/// The moments of one exchange; [`Moment::NEVER`] for what does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Deadlines {
    drain: Moment,
    request: Moment,
    queue: Moment,
    body: Moment,
}

impl Deadlines {
    const NONE: Self = Self {
        drain: Moment::NEVER,
        request: Moment::NEVER,
        queue: Moment::NEVER,
        body: Moment::NEVER,
    };

    /// The first of them.
    #[inline]
    fn first(self) -> Moment {
        self.drain.min(self.request).min(self.queue).min(self.body)
    }

    /// What is over by `now`; of several what leaves the least to do.
    fn over(self, now: Moment) -> Option<Due> {
        let all = [
            (self.drain, Due::Drain),
            (self.request, Due::Request),
            (self.queue, Due::Queue),
            (self.body, Due::Body),
        ];
        all.into_iter().find(|(end, _)| *end <= now).map(|(_, due)| due)
    }
}

impl Upstreams {
    #[inline]
    fn deadlines(&self, at: ExchangeId) -> Deadlines {
        let (exchange, limits) = (self.exchanges.get(at), &self.limits);
        if exchange.is_tunnel() {
            return Deadlines::NONE;
        }
        let queued = exchange.times.queued.filter(|_| exchange.ticket.is_some());
        let (timeout, rate_min_bytes) = (limits.body_timeout, limits.body_rate_min_bytes);
        Deadlines {
            drain: self.drain_end,
            request: exchange.times.began + limits.request_timeout,
            queue: queued.map_or(Moment::NEVER, |queued| queued + limits.queue_timeout),
            body: if exchange.request.is_whole() {
                Moment::NEVER
            } else {
                let time = BodyTime { timeout, rate_min_bytes };
                exchange.body_clock.deadline(exchange.request.body_bytes(), time)
            },
        }
    }

    /// Sets the deadline of the asker's connection.
    pub(crate) fn set_asker_deadline(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        let exchange = self.exchanges.get_mut(at);
        if !exchange.request.is_whole() {
            // A client that takes an answer may send the rest of its body behind that; how fast it takes it is the loop's to judge.
            let is_standing = exchange.is_asker_paused || exchange.response.is_leaving;
            exchange.body_clock.set_standing(is_standing, self.now.at);
        }
        actions.set_deadline(self.deadlines(at).first());
    }

    /// What is over now that the deadline of the asker's connection has passed; none where that was moved on meanwhile.
    pub(crate) fn due(&self, at: ExchangeId) -> Option<Due> {
        self.deadlines(at).over(self.now.at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_deadline_counts_and_of_several_that_are_over_the_gravest() {
        let at = |second: u64| match second {
            0 => Moment::NEVER,
            second => Moment::from_nanos(0) + Duration::from_secs(second),
        };
        // Drain, request, queue and body (0 for never), the first of them, and what is over at the tenth second.
        let table = [
            ([0, 0, 0, 0], 0, None),
            ([0, 20, 0, 0], 20, None),
            ([0, 20, 0, 11], 11, None),
            ([0, 20, 0, 10], 10, Some(Due::Body)),
            ([0, 20, 10, 12], 10, Some(Due::Queue)),
            ([0, 20, 9, 8], 8, Some(Due::Queue)),
            ([0, 10, 0, 0], 10, Some(Due::Request)),
            ([0, 10, 7, 8], 7, Some(Due::Request)),
            ([12, 20, 0, 0], 12, None),
            ([10, 20, 0, 0], 10, Some(Due::Drain)),
            ([9, 8, 7, 6], 6, Some(Due::Drain)),
        ];
        for ([drain, request, queue, body], first, over) in table {
            let [drain, request, queue, body] = [drain, request, queue, body].map(at);
            let deadlines = Deadlines { drain, request, queue, body };
            assert_eq!(deadlines.first(), at(first), "{deadlines:?}");
            assert_eq!(deadlines.over(at(10)), over, "{deadlines:?}");
        }
    }
}
