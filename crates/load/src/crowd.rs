//! Connections beside the active ones: dead, silent and slow, and what the server does to them.
//!
//! ```text
//!  dead    connect ─► one request ─► answer ─► nothing more
//!  silent  connect ─► nothing
//!  slow    connect ─► a byte, pause, a byte, pause … ; answers are read, then the next request
//! ```
//!
//! They are opened once, before the first request. One that the server closes stays closed.

use pollux_engine::{Actions, CloseCause, Moment};

use crate::answer::Reading;
use crate::shared::Shared;
use crate::{Crowd, CrowdOutcome};

/// What a connection of the crowd does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Asks once.
    Dead,
    /// Never sends.
    Silent,
    /// Sends byte by byte.
    Slow,
}

impl Kind {
    /// All of them, in the order of [`CrowdTally`].
    pub(crate) const ALL: [Self; 3] = [Self::Dead, Self::Silent, Self::Slow];

    const fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Silent => "silent",
            Self::Slow => "slow",
        }
    }

    /// How many of them `crowd` asks for.
    pub(crate) const fn asked(self, crowd: &Crowd) -> u32 {
        match self {
            Self::Dead => crowd.dead,
            Self::Silent => crowd.silent,
            Self::Slow => crowd.slow,
        }
    }
}

/// What became of the crowd of one thread.
#[derive(Debug)]
pub(crate) struct CrowdTally {
    kinds: [CrowdOutcome; 3],
    /// Members whose set-up has not come to an end, good or bad.
    pub(crate) unsettled: u32,
}

impl CrowdTally {
    /// An empty one for what `crowd` asks for.
    pub(crate) fn new(crowd: &Crowd) -> Self {
        let kind = |kind: Kind| CrowdOutcome {
            kind: kind.name(),
            asked: kind.asked(crowd),
            ..CrowdOutcome::default()
        };
        Self { kinds: Kind::ALL.map(kind), unsettled: 0 }
    }

    /// Books one that could not be connected.
    pub(crate) fn refused(&mut self, kind: Kind) {
        self.kinds[kind as usize].refused += 1;
        self.unsettled -= 1;
    }

    /// How many were connected.
    pub(crate) fn connected(&self) -> u32 {
        self.kinds.iter().map(|kind| kind.connected).sum()
    }

    /// What became of all.
    pub(crate) fn outcomes(&self) -> [CrowdOutcome; 3] {
        self.kinds
    }
}

impl CrowdOutcome {
    /// Adds what another thread found; what was asked for is the same for both.
    pub(crate) fn add(&mut self, other: &Self) {
        self.connected = self.connected.saturating_add(other.connected);
        self.refused = self.refused.saturating_add(other.refused);
        self.answered += other.answered;
        self.closed_by_server = self.closed_by_server.saturating_add(other.closed_by_server);
        self.reset_by_server = self.reset_by_server.saturating_add(other.reset_by_server);
        self.open_at_end = self.open_at_end.saturating_add(other.open_at_end);
        self.closed_after_s = match (self.closed_after_s, other.closed_after_s) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, None) | (None, one) => one,
        };
        self.set_up_s = self.set_up_s.max(other.set_up_s);
    }

    fn closed_after(&mut self, seconds: f64) {
        let (shortest, longest) = self.closed_after_s.unwrap_or((seconds, seconds));
        self.closed_after_s = Some((shortest.min(seconds), longest.max(seconds)));
    }
}

/// One connection of the crowd.
#[derive(Debug)]
pub(crate) struct Member {
    /// Only while an answer is under way.
    reading: Option<Box<Reading>>,
    connected_ns: u64,
    /// Bytes of its request that a slow one has sent.
    sent_bytes: u32,
    kind: Kind,
    is_connected: bool,
    is_settled: bool,
}

impl Member {
    /// One that has no socket yet.
    pub(crate) fn new(kind: Kind) -> Self {
        let reading = None;
        let connected_ns = 0;
        let sent_bytes = 0;
        Self { reading, connected_ns, sent_bytes, kind, is_connected: false, is_settled: false }
    }

    pub(crate) fn connected(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        self.is_connected = true;
        shared.connecting -= 1;
        self.connected_ns = shared.turn_ns;
        shared.crowd.kinds[self.kind as usize].connected += 1;
        match self.kind {
            Kind::Dead => {
                actions.send(&shared.requests.lasting.bytes[..]);
                self.reading = Some(Box::default());
                actions.set_deadline(actions.now().at + shared.terms.request_timeout);
                return;
            }
            Kind::Silent => actions.set_deadline(Moment::NEVER),
            Kind::Slow => {
                self.reading = Some(Box::default());
                self.drip(shared, actions);
            }
        }
        self.settle(shared);
    }

    pub(crate) fn on_bytes(
        &mut self,
        shared: &mut Shared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let mut used = 0;
        while let (Some(reading), true) = (&mut self.reading, used < input.len()) {
            let lasting = &mut shared.requests.lasting;
            let read = reading.read(&input[used..], &mut lasting.cache, lasting.kind, |_| false);
            match read {
                Ok((now, None)) => return used + now,
                Ok((now, Some(_))) => {
                    used += now;
                    self.answered(shared, actions);
                }
                Err(_) => self.reading = None,
            }
        }
        input.len()
    }

    pub(crate) fn on_end(&mut self, shared: &mut Shared) {
        self.settle(shared);
    }

    pub(crate) fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if !self.is_connected {
            return actions.abort();
        }
        match self.kind {
            Kind::Slow => self.drip(shared, actions),
            // It was not answered, and stays open nevertheless.
            Kind::Dead | Kind::Silent => self.settle(shared),
        }
    }

    pub(crate) fn closed(mut self, shared: &mut Shared, cause: CloseCause) {
        if !self.is_connected {
            shared.connecting -= 1;
            return shared.crowd.refused(self.kind);
        }
        self.settle(shared);
        let lasted_s = shared.turn_ns.saturating_sub(self.connected_ns) as f64 / 1e9;
        let kind = &mut shared.crowd.kinds[self.kind as usize];
        match cause {
            CloseCause::LoopEnded => kind.open_at_end += 1,
            CloseCause::PeerClosed => {
                kind.closed_by_server += 1;
                kind.closed_after(lasted_s);
            }
            _ => {
                kind.reset_by_server += 1;
                kind.closed_after(lasted_s);
            }
        }
    }

    fn answered(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.crowd.kinds[self.kind as usize].answered += 1;
        self.settle(shared);
        if self.kind == Kind::Dead {
            self.reading = None;
            actions.set_deadline(Moment::NEVER);
        }
    }

    /// Sends the next byte of the request, which begins anew when it is through.
    fn drip(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        let bytes = &shared.requests.lasting.bytes;
        let at = self.sent_bytes as usize % bytes.len();
        actions.send(&bytes[at..=at]);
        self.sent_bytes = (at + 1) as u32;
        actions.set_deadline(actions.now().at + shared.terms.drip);
    }

    fn settle(&mut self, shared: &mut Shared) {
        if !std::mem::replace(&mut self.is_settled, true) {
            shared.crowd.unsettled -= 1;
        }
    }
}
