//! What only a proxy counts, for each loop and for each backend. Only the loop's thread writes; the endpoints read.

use pollux_engine::named_counters;
use pollux_poller::Count;

use super::fault::Fault;

named_counters! {
    /// A thing that a proxy counts.
    ProxyCounter {
        /// Requests that began a connection to a backend.
        Connects = "connects",
        /// Requests that took an idle upstream connection of their own thread.
        Reuses = "reuses",
        /// Upstream connections that were taken over from another thread.
        TakenOver = "taken_over",
        /// Upstream connections that were found ended, or with bytes that no request asked for, when they were
        /// taken over.
        Stale = "stale",
        /// Upstream connections that were not kept because enough are, or because the proxy ends.
        Refused = "refused",
        /// Requests that waited for an upstream connection.
        Queued = "queued",
        /// Requests that waited for an upstream connection to a server that went down, and went to another
        /// one.
        MovedOn = "moved_on",
        /// Upstream connections that were kept when their answer was whole.
        Parked = "parked",
        /// Idle upstream connections that the backend closed.
        IdleClosed = "idle_closed",
        /// Idle upstream connections that were closed for lack of requests, for one of another thread, or for
        /// want of room.
        IdleDropped = "idle_dropped",
        /// Upstream connections that were closed for bytes that no request asked for.
        Unasked = "unasked",
        /// Requests that were sent a second time, when that was safe.
        Retries = "retries",
        /// Interim answers (1xx) that were passed on.
        Interim = "interim",
        /// Connections that became tunnels by an upgrade.
        Upgrades = "upgrades",
        /// Times that a sender was paused because the other side did not take enough out of a buffer.
        Pauses = "pauses",
        /// Times that bytes of a stream went through buffers because no pipe was left.
        PipesMissing = "pipes_missing",
        /// Connections that were closed because they did not begin with a head of the PROXY protocol.
        HeadersRefused = "headers_refused",
        /// Checks of backends.
        Checks = "checks",
        /// Bytes of bodies of answers.
        AnswerBytes = "answer_bytes",
    }
}

/// Live counters of the sessions of one loop.
#[derive(Debug)]
#[repr(align(128))]
pub struct ProxyCounters {
    counts: [Count; ProxyCounter::ALL.len()],
    faults: [Count; Fault::COUNT],
    backends: Box<[BackendCounts]>,
}

impl ProxyCounters {
    /// Those of a proxy with so many backends.
    #[must_use]
    pub fn new(backends: usize) -> Self {
        Self {
            counts: std::array::from_fn(|_| Count::default()),
            faults: std::array::from_fn(|_| Count::default()),
            backends: (0..backends).map(|_| BackendCounts::default()).collect(),
        }
    }

    /// What the loop did with each backend.
    #[must_use]
    pub fn backends(&self) -> &[BackendCounts] {
        &self.backends
    }

    /// The count of `counter`.
    #[must_use]
    pub fn value(&self, counter: ProxyCounter) -> u64 {
        self.counts[counter as usize].value()
    }

    /// Requests that ended by the fault at this place of [`Fault::ALL`].
    #[must_use]
    pub fn faults(&self, place: usize) -> u64 {
        self.faults[place].value()
    }

    pub(crate) fn add(&self, counter: ProxyCounter, amount: u64) {
        self.counts[counter as usize].add(amount);
    }

    pub(crate) fn count(&self, counter: ProxyCounter) {
        self.add(counter, 1);
    }

    pub(crate) fn count_fault(&self, fault: Fault) {
        self.faults[fault.index()].add(1);
    }
}

/// What one loop did with one backend; only that loop writes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct BackendCounts {
    /// Requests that were given to it.
    pub begun: Count,
    /// Those that it has no more, answered or not.
    pub ended: Count,
    /// Those that failed by its fault.
    pub failed: Count,
    /// Those that it has begun to answer.
    pub answered: Count,
    /// Microseconds from a connection to the first byte of those answers, together.
    pub wait_us: Count,
}

impl BackendCounts {
    /// Requests that it has.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.begun.value().saturating_sub(self.ended.value())
    }
}
