//! Streams of which a chosen number is ready whenever the reader looks.
//!
//! One thread does both: it writes a byte to each of `ready` streams, drawn anew for each batch, then
//! waits and reads until it has them all. So a wait finds exactly what was written, and the figure
//! holds everything that an event costs: the write with what the mechanism does in it, its share of
//! a wait, and the read. Falling asleep is not in it, as there is always something to find.

use std::os::fd::OwnedFd;
use std::time::Instant;

use pollux_poller::CountersSnapshot;

use super::Reader;
use crate::error::MeasureError;
use crate::stats::Rng;
use crate::turns::{self, Described, Stint, Subject};

/// Events between two looks at the clock.
const EVENTS_PER_LOOK: usize = 64;

/// A reader and what feeds it.
pub(super) struct Held {
    reader: Reader,
    streams: Vec<OwnedFd>,
    /// Which stream is next; the first `ready` are drawn anew for each batch.
    order: Vec<usize>,
    ready: usize,
    random: Rng,
}

impl Held {
    /// Works on the calling thread, on the first CPU.
    pub(super) fn new(
        reader: Reader,
        streams: Vec<OwnedFd>,
        ready: usize,
        seed: u64,
    ) -> Result<Self, MeasureError> {
        turns::pin(turns::cpus()?[0])?;
        let (order, ready) = ((0..streams.len()).collect(), ready.min(streams.len()));
        Ok(Self { reader, streams, order, ready, random: Rng::seeded(seed) })
    }

    /// Writes a byte to each of as many streams as are to be ready.
    fn fill(&mut self) -> Result<(), MeasureError> {
        for place in 0..self.ready {
            let drawn = place + self.random.below(self.order.len() - place);
            self.order.swap(place, drawn);
            rustix::io::write(&self.streams[self.order[place]], &[1])
                .map_err(MeasureError::io("write"))?;
        }
        Ok(())
    }
}

impl Subject for Held {
    fn turn(&mut self, stint: Stint) -> Result<u64, MeasureError> {
        let (start, mut handled) = (Instant::now(), 0);
        let batches = EVENTS_PER_LOOK.div_ceil(self.ready);
        while start.elapsed() < stint.length {
            for _ in 0..batches {
                self.fill()?;
                let mut left = self.ready as u64;
                while left > 0 {
                    left -= self.reader.collect(None)?.1;
                }
                handled += self.ready as u64;
            }
        }
        Ok(handled)
    }

    fn counters(&self) -> Option<CountersSnapshot> {
        Some(self.reader.counters())
    }

    fn described(&self) -> Described {
        self.reader.described()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiments::streams::tests::spec;

    #[test]
    fn each_wait_finds_as_many_streams_as_are_kept_ready() {
        for (transport, ready) in [("pipe", 1), ("unix", 16), ("tcp", 50)] {
            let ready_text = ready.to_string();
            let spec = spec("epoll", &[("transport", transport), ("ready", &ready_text)]);
            let mut subject = super::super::open(&spec).expect("streams");
            subject.turn(Stint::of(Duration::from_millis(1))).expect("a turn");
            let before = subject.counters().expect("a poller's");
            let events = subject.turn(Stint::of(Duration::from_millis(5))).expect("a turn");
            assert!(events > 0 && events.is_multiple_of(ready), "{events} events of {ready} ready");
            let polled = subject.counters().expect("a poller's").since(&before);
            assert_eq!((polled.events, polled.waits), (events, events / ready), "{transport}");
            assert!(!subject.cpu_time().expect("our own").is_zero());
        }
    }
}
