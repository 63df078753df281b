//! By when something has to happen, on either side of an exchange: each side judges what its own peer has to do.
//!
//! The asker's side:
//!
//! | deadline | while | what is over then |
//! |---|---|---|
//! | drain timeout | always, once the loop drains | the connection is cut |
//! | request timeout | always | 504, or cut |
//! | queue timeout | it waits for an upstream connection | 503 |
//! | body timeout and rate (`body_clock`) | the request's body comes, and we take it | 408, or cut |
//!
//! A tunnel has none of them: how quiet it is, is for the upstream side to judge, as is by when the backend has to answer.
//!
//! The upstream side, from when something happened there last; a connect and an idle connection have a time of their own:
//!
//! | waits for | while | what is over then |
//! |---|---|---|
//! | the client | the request is not sent, or the client does not take what there is of the answer | nothing: that is the asker's side to judge |
//! | first byte timeout | the request was sent, and no answer has begun | 504 |
//! | body timeout | an answer has begun, or one side of a tunnel has ended | cut |
//! | tunnel timeout | both sides of a tunnel may still send | cut |

use std::time::Duration;

use pollux_engine::{Actions, Moment};

use crate::body_clock::{BodyClock, BodyTime};
use crate::config::{Limits, ProxyLimits};
use crate::exchange::proxy_loop::ProxyLoop;
use crate::exchange::table::{Exchange, Stage};
use crate::ids::ExchangeId;

/// What is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expired {
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
    fn expired(self, now: Moment) -> Option<Expired> {
        let all = [
            (self.drain, Expired::Drain),
            (self.request, Expired::Request),
            (self.queue, Expired::Queue),
            (self.body, Expired::Body),
        ];
        all.into_iter().find(|(end, _)| *end <= now).map(|(_, expired)| expired)
    }
}

impl ProxyLoop {
    #[inline]
    fn deadlines(&self, at: ExchangeId, stood: Option<Duration>) -> Deadlines {
        let exchange = self.exchanges.get(at);
        let limits = &exchange.settings(&self.epochs).limits;
        if exchange.is_tunnel() {
            return Deadlines::NONE;
        }
        let queued = exchange.times.queued.filter(|_| exchange.ticket.is_some());
        let Limits { body_timeout: timeout, body_rate_min_bytes: rate_min_bytes, .. } =
            limits.clients;
        Deadlines {
            drain: self.drain_end,
            request: exchange.times.began + limits.request_timeout,
            queue: queued.map_or(Moment::NEVER, |queued| queued + limits.queue_timeout),
            body: match stood.filter(|_| !exchange.request.is_whole()) {
                None => Moment::NEVER,
                Some(stood) => {
                    let time = BodyTime { timeout, rate_min_bytes };
                    exchange.body_clock.deadline(exchange.request.body_bytes(), time) + stood
                }
            },
        }
    }

    /// Sets the deadline of the asker's connection; one with several streams sets the first of all itself
    /// ([`Self::asker_deadline`]).
    pub(crate) fn set_asker_deadline(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        let exchange = self.exchanges.get_mut(at);
        if !exchange.request.is_whole() {
            // A client that takes an answer may send the rest of its body behind that; how fast it takes it is the loop's to judge.
            let is_standing = exchange.is_asker_paused || exchange.response.is_leaving;
            exchange.body_clock.set_standing(is_standing, exchange.body_time(self.now.at));
        }
        if !exchange.asker.is_stream() {
            actions.set_deadline(self.asker_deadline(at, Some(Duration::ZERO)));
        }
    }

    /// The exchange is of a stream, on whose connection the time of bodies has stood so long until now.
    pub(crate) fn begin_standing(&mut self, at: ExchangeId, stood: Duration) {
        let now = self.now.at;
        let exchange = self.exchanges.get_mut(at);
        exchange.stood = stood;
        exchange.body_clock = BodyClock::started(exchange.body_time(now));
    }

    /// That time has stood so long by now.
    pub(crate) fn set_stood(&mut self, at: ExchangeId, stood: Duration) {
        self.exchanges.get_mut(at).stood = stood;
    }

    /// By when something has to happen on the asker's side, on whose connection the time of bodies has stood so long; none
    /// where it stands.
    #[inline]
    pub(crate) fn asker_deadline(&self, at: ExchangeId, stood: Option<Duration>) -> Moment {
        self.deadlines(at, stood).first()
    }

    /// What is over now that the deadline of the asker's connection has passed; none where that was moved on meanwhile.
    pub(crate) fn expired(&self, at: ExchangeId, stood: Option<Duration>) -> Option<Expired> {
        self.deadlines(at, stood).expired(self.now.at)
    }
}

/// What the upstream side of an exchange waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UpstreamWait {
    /// The client: it sends more of the request, or takes more of the answer.
    Client,
    /// An answer.
    FirstByte,
    /// More of an answer, or the end of a tunnel of which one side has ended.
    Body,
    /// Bytes of a tunnel.
    Tunnel,
}

impl UpstreamWait {
    /// What one at this stage waits for; whether all of the request was sent, the answer takes nothing more for now, and a
    /// tunnel is open both ways.
    #[inline]
    fn at_stage(
        stage: Stage,
        is_request_sent: impl Fn() -> bool,
        is_response_full: impl Fn() -> bool,
        is_open_tunnel: impl Fn() -> bool,
    ) -> Self {
        match stage {
            Stage::Queued | Stage::Connecting | Stage::Requesting | Stage::Waiting => {
                if is_request_sent() {
                    Self::FirstByte
                } else {
                    Self::Client
                }
            }
            Stage::Answering | Stage::Committed | Stage::Tunnel if is_response_full() => {
                Self::Client
            }
            Stage::Tunnel if is_open_tunnel() => Self::Tunnel,
            Stage::Answering | Stage::Committed | Stage::Tunnel => Self::Body,
        }
    }

    #[inline]
    fn of_exchange(exchange: &Exchange) -> Self {
        Self::at_stage(
            exchange.stage,
            || exchange.request.is_done(),
            || exchange.response.is_full(),
            || exchange.is_open_tunnel(),
        )
    }

    /// By when that has to happen, where something happened at `last`.
    #[inline]
    pub(super) fn end(self, last: Moment, limits: &ProxyLimits) -> Moment {
        match self {
            Self::Client => Moment::NEVER,
            Self::FirstByte => last + limits.first_byte_timeout,
            Self::Body => last + limits.clients.body_timeout,
            Self::Tunnel => last + limits.tunnel_timeout,
        }
    }
}

impl ProxyLoop {
    /// Sets the deadline of the upstream connection of the exchange, where something just happened.
    #[inline]
    pub(super) fn set_upstream_deadline(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        let exchange = self.exchanges.get_mut(at);
        let wait = UpstreamWait::of_exchange(exchange);
        let end = match wait {
            UpstreamWait::Tunnel => self.now.at + exchange.tunnel_timeout,
            _ => wait.end(self.now.at, &exchange.settings(&self.epochs).limits),
        };
        if exchange.is_multiplexed {
            // Its connection goes by the first of all.
            exchange.upstream_deadline = end;
        } else {
            actions.set_deadline(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_has_to_do_what_is_its_turn_by_the_time_of_that() {
        use Stage::{Answering, Committed, Connecting, Queued, Requesting, Tunnel, Waiting};
        let limits = ProxyLimits {
            first_byte_timeout: Duration::from_secs(1),
            clients: Limits { body_timeout: Duration::from_secs(2), ..Limits::default() },
            tunnel_timeout: Duration::from_secs(3),
            ..ProxyLimits::default()
        };
        // Whether the request was sent, the answer is full, and the tunnel open; the second, or never.
        let table = [
            ("it waits for a connection", Queued, [false, false, false], None),
            ("one is opened", Connecting, [false, false, false], None),
            ("more of the request is to come", Requesting, [false, false, false], None),
            ("it was sent", Waiting, [true, false, false], Some(1)),
            ("it was sent a second time", Requesting, [true, false, false], Some(1)),
            ("an answer has begun", Answering, [true, false, false], Some(2)),
            ("an answer came before all of the request", Answering, [false, false, false], Some(2)),
            ("some of it has left", Committed, [true, false, false], Some(2)),
            ("the client takes none of it", Committed, [true, true, false], None),
            ("bytes go both ways", Tunnel, [false, false, true], Some(3)),
            ("one side has ended", Tunnel, [true, false, false], Some(2)),
            ("the client reads nothing", Tunnel, [false, true, true], None),
        ];
        let last = Moment::from_nanos(7);
        for (what, stage, [is_sent, is_full, is_open], seconds) in table {
            let wait = UpstreamWait::at_stage(stage, || is_sent, || is_full, || is_open);
            let end = wait.end(last, &limits);
            let expected = seconds.map_or(Moment::NEVER, |s| last + Duration::from_secs(s));
            assert_eq!(end, expected, "{what}");
        }
    }

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
            ([0, 20, 0, 10], 10, Some(Expired::Body)),
            ([0, 20, 10, 12], 10, Some(Expired::Queue)),
            ([0, 20, 9, 8], 8, Some(Expired::Queue)),
            ([0, 10, 0, 0], 10, Some(Expired::Request)),
            ([0, 10, 7, 8], 7, Some(Expired::Request)),
            ([12, 20, 0, 0], 12, None),
            ([10, 20, 0, 0], 10, Some(Expired::Drain)),
            ([9, 8, 7, 6], 6, Some(Expired::Drain)),
        ];
        for ([drain, request, queue, body], first, over) in table {
            let [drain, request, queue, body] = [drain, request, queue, body].map(at);
            let deadlines = Deadlines { drain, request, queue, body };
            assert_eq!(deadlines.first(), at(first), "{deadlines:?}");
            assert_eq!(deadlines.expired(at(10)), over, "{deadlines:?}");
        }
    }
}
