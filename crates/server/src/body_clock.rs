//! By when the rest of a request's body has to come: what `serve` and `proxy` hold a client to.
//!
//! A body may pause for no longer than its timeout, and has the timeout and the time that its bytes have earned at the
//! least rate altogether. So neither a client that sent much at once may be silent for long, nor one that sends a byte
//! now and then hold a connection.

use std::time::Duration;

use pollux_engine::Moment;

/// What a body has of time, as the settings say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BodyTime {
    pub(crate) timeout: Duration,
    /// Bytes that earn a second more; with 0 none do.
    pub(crate) rate_min_bytes: u64,
}

/// The times of one body. It stands while we take no input, for then the client can do nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BodyClock {
    began: Moment,
    last_byte: Moment,
    /// Since when it stands.
    stands: Option<Moment>,
}

impl BodyClock {
    /// That of a body which is waited for from now on.
    pub(crate) fn started(now: Moment) -> Self {
        Self { began: now, last_byte: now, stands: None }
    }

    /// Some of the body came.
    pub(crate) fn on_bytes(&mut self, now: Moment) {
        self.last_byte = now;
    }

    /// When some came last, or it began.
    pub(crate) fn last_byte(&self) -> Moment {
        self.last_byte
    }

    /// Whether we take input from now on: what we don't is not held against the client.
    pub(crate) fn set_standing(&mut self, is_standing: bool, now: Moment) {
        if is_standing {
            self.stands.get_or_insert(now);
        } else if let Some(since) = self.stands.take() {
            (self.began, self.last_byte) =
                (self.began + (now - since), self.last_byte + (now - since));
        }
    }

    /// By when more has to come of a body of which so much has.
    pub(crate) fn deadline(&self, received_bytes: u64, time: BodyTime) -> Moment {
        if self.stands.is_some() {
            return Moment::NEVER;
        }
        let earned_s = received_bytes.checked_div(time.rate_min_bytes).unwrap_or(0);
        let altogether = self.began + time.timeout + Duration::from_secs(earned_s);
        altogether.min(self.last_byte + time.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, the least rate, what happens at which second, and the second of the deadline then.
    type Case = (&'static str, u64, &'static [(u64, Event)], u64);

    enum Event {
        Bytes(u64),
        Stands,
        Goes,
    }

    #[test]
    fn a_body_may_neither_pause_nor_drip() {
        use Event::{Bytes, Goes, Stands};
        let second = |second| Moment::from_nanos(1) + Duration::from_secs(second);
        let never = u64::MAX;
        // With a timeout of 10 s.
        let table: [Case; 11] = [
            ("nothing came", 100, &[], 10),
            ("much came at once", 100, &[(0, Bytes(1_000_000))], 10),
            ("much came late", 100, &[(9, Bytes(1_000_000))], 19),
            ("a byte now and then", 100, &[(4, Bytes(1)), (8, Bytes(1))], 10),
            ("just the least rate", 100, &[(5, Bytes(500)), (14, Bytes(900))], 24),
            ("below the least rate", 100, &[(5, Bytes(200)), (11, Bytes(200))], 14),
            ("without a rate no byte earns time", 0, &[(9, Bytes(1_000_000))], 10),
            ("we take nothing", 100, &[(3, Stands)], never),
            ("we took nothing for a while", 100, &[(3, Stands), (53, Goes)], 60),
            ("it stood twice", 100, &[(3, Stands), (5, Stands), (53, Goes), (60, Goes)], 60),
            ("it stood between bytes", 100, &[(2, Bytes(1000)), (3, Stands), (53, Goes)], 62),
        ];
        for (what, rate_min_bytes, events, expected) in table {
            let mut clock = BodyClock::started(second(0));
            let mut received_bytes = 0;
            for (at, event) in events {
                match event {
                    Bytes(count) => {
                        received_bytes += count;
                        clock.on_bytes(second(*at));
                    }
                    Stands => clock.set_standing(true, second(*at)),
                    Goes => clock.set_standing(false, second(*at)),
                }
            }
            let time = BodyTime { timeout: Duration::from_secs(10), rate_min_bytes };
            let expected = if expected == never { Moment::NEVER } else { second(expected) };
            assert_eq!(clock.deadline(received_bytes, time), expected, "{what}");
        }
    }
}
