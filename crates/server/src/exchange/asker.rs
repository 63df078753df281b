//! Who asked for an exchange, as far as that knows: whom it wakes when something has happened to it.
//!
//! ```text
//!  a connection of HTTP/1.1 ── one exchange
//!  a connection of HTTP/2   ── streams, each with an exchange ── one wake for all that are ready
//! ```
//!
//! What a session has to look at in an exchange stands there; an asker says no more than where it is looked at.

use std::collections::VecDeque;

use pollux_engine::{Actions, Command, ConnectionId};

use crate::exchange::connections::Outgoing;
use crate::ids::StreamsId;
use crate::places::Places;

/// The connection to be woken, and which of its streams it is, where it has several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    connection: ConnectionId,
    stream: Option<(StreamsId, u32)>,
}

impl Asker {
    /// The session that is called.
    pub(crate) fn of_session(actions: &Actions<'_>) -> Self {
        Self { connection: actions.id(), stream: None }
    }

    /// A stream of it.
    pub(crate) fn of_stream(actions: &Actions<'_>, streams: StreamsId, stream: u32) -> Self {
        Self { connection: actions.id(), stream: Some((streams, stream)) }
    }

    /// Whether it is one of several on its connection.
    #[inline]
    pub(crate) fn is_stream(self) -> bool {
        self.stream.is_some()
    }

    #[inline]
    pub(super) fn wake(self, ready: &mut ReadyStreams, actions: &mut Actions<'_>) {
        if self.stream.is_none_or(|(streams, stream)| ready.add(streams, stream)) {
            actions.wake(self.connection);
        }
    }

    /// The same where no session is called.
    pub(super) fn wake_later(
        self,
        ready: &mut ReadyStreams,
        commands: &mut VecDeque<Command<Outgoing>>,
    ) {
        if self.stream.is_none_or(|(streams, stream)| ready.add(streams, stream)) {
            commands.push_back(Command::Wake(self.connection));
        }
    }
}

/// For each connection of HTTP/2 its streams that have to look at their exchanges, so that none has to be looked for.
#[derive(Debug, Default)]
pub(crate) struct ReadyStreams {
    all: Places<StreamsId, Vec<u32>>,
}

impl ReadyStreams {
    /// A connection begins.
    pub(crate) fn begin(&mut self) -> StreamsId {
        let streams = self.all.reuse(Vec::new);
        debug_assert!(self.all.get(streams).is_empty(), "no exchange named the one before");
        self.all.get_mut(streams).clear();
        streams
    }

    /// It is gone, and no exchange names it any more.
    pub(crate) fn end(&mut self, streams: StreamsId) {
        *self.all.get_mut(streams) = Vec::new();
        self.all.free(streams);
    }

    /// Adds one; whether it is the first since they were taken, so that the connection has to be woken.
    fn add(&mut self, streams: StreamsId, stream: u32) -> bool {
        let ready = self.all.get_mut(streams);
        ready.push(stream);
        ready.len() == 1
    }

    /// Takes all that are ready into `taken`, which is empty.
    pub(crate) fn take(&mut self, streams: StreamsId, taken: &mut Vec<u32>) {
        debug_assert!(taken.is_empty(), "those of before were looked at");
        taken.append(self.all.get_mut(streams));
    }

    /// Gives memory back that a connection without streams does not need.
    pub(crate) fn release_memory_of(&mut self, streams: StreamsId) {
        *self.all.get_mut(streams) = Vec::new();
    }

    /// Drops the places behind that of the last connection.
    pub(crate) fn release_memory(&mut self) {
        self.all.release_memory(|_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_some_ready_streams_needs_a_wake() {
        let mut ready = ReadyStreams::default();
        let one = ready.begin();
        let two = ready.begin();
        let wakes = [(one, 1), (one, 3), (two, 1), (one, 5)].map(|(of, id)| ready.add(of, id));
        assert_eq!(wakes, [true, false, true, false]);
        let mut taken = Vec::new();
        ready.take(one, &mut taken);
        assert_eq!(taken, [1, 3, 5]);
        taken.clear();
        assert!(ready.add(one, 7) && !ready.add(two, 3));
        ready.end(two);
        assert_eq!(ready.begin(), two);
        ready.take(two, &mut taken);
        assert!(taken.is_empty(), "nothing of the connection before is left");
    }

    #[test]
    fn connections_that_are_gone_keep_no_places_behind_the_last_one() {
        let mut ready = ReadyStreams::default();
        let all: Vec<_> = (0..100).map(|_| ready.begin()).collect();
        for of in all.iter().filter(|of| of.place() != 10) {
            ready.end(*of);
        }
        ready.release_memory();
        assert_eq!(ready.all.size(), (11, 10));
        assert!(ready.add(all[10], 1));
        let mut places: Vec<_> = (0..12).map(|_| ready.begin().place()).collect();
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12]);
    }
}
