//! What a loop did, counted from its first turn and readable while it runs; why a connection closed.
//!
//! Only the thread that owns the loop counts. The poller under a readiness loop has counters of
//! its own (`pollux_poller::Counters`); these are about connections, bytes and turns. The stats
//! endpoints and the lab read them.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use pollux_poller::Count;
use rustix::io::Errno;

/// Declares counters by name: the words behind `///` are what each counts.
#[macro_export]
macro_rules! named_counters {
    ($(#[$doc:meta])* $enum:ident { $($(#[doc = $about:literal])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        pub enum $enum { $($(#[doc = $about])* $variant,)* }

        impl $enum {
            /// All of them, in the order of tables.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Name in tables, results and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it counts, in a sentence, for help texts.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => concat!($($about),*).trim_ascii(),)* }
            }
        }
    };
}

named_counters! {
    /// A thing that loops count.
    #[non_exhaustive]
    Counter {
        /// Rounds of the loop.
        Turns = "turns",
        /// Nanoseconds spent outside the wait.
        WorkNs = "work_ns",
        /// Nanoseconds spent in the wait.
        WaitNs = "wait_ns",
        /// Connections accepted.
        Accepted = "accepted",
        /// Connections handed over by another thread or by the program.
        Adopted = "adopted",
        /// Connections to a peer that were begun; those that failed later closed for
        /// `connect_failed`.
        Connects = "connects",
        /// Accepted connections that were handed to another loop, which adopted them.
        HandedOut = "handed_out",
        /// Accept calls that found no client waiting.
        AcceptsEmpty = "accepts_empty",
        /// Accepts that failed for lack of descriptors or memory; the listener paused.
        AcceptPauses = "accept_pauses",
        /// Connections that the peer gave up before they were accepted.
        AcceptsAborted = "accepts_aborted",
        /// Times that the listener paused because `connections_max` was reached.
        FullPauses = "full_pauses",
        /// Bytes received.
        BytesIn = "bytes_in",
        /// Of those, bytes that were passed to another socket without passing through memory of the process.
        BytesSpliced = "bytes_spliced",
        /// Bytes sent.
        BytesOut = "bytes_out",
        /// Receive calls or completions.
        Receives = "receives",
        /// Receive calls that would have blocked.
        ReceivesEmpty = "receives_empty",
        /// Send calls or requests.
        Sends = "sends",
        /// Sends that the socket took only in part, or not at all.
        SendsShort = "sends_short",
        /// Checks of the unacknowledged output of quiet or slow peers.
        UntakenLooks = "untaken_looks",
        /// Times that it then found output waiting for a socket that was empty: no event has reported it writable, as
        /// that is on its way or was lost. The loop sends on.
        WritableUnreported = "writable_unreported",
        /// Events and completions of connections that were closed meanwhile, dropped.
        Stale = "stale",
        /// Changes of interest that were recorded for the kernel.
        UpdatesAsked = "updates_asked",
        /// Changes of interest that cancelled out or were merged before the kernel saw them.
        UpdatesMerged = "updates_merged",
        /// Registration changes that reached the poller.
        UpdatesSent = "updates_sent",
        /// Deadlines that fired.
        DeadlinesFired = "deadlines_fired",
        /// Deadlines that were moved later without touching the timer queue.
        DeadlinesMoved = "deadlines_moved",
        /// Sessions called because another one, or the program, woke them.
        SessionWakes = "session_wakes",
        /// Connections of another loop that this one took over; they count as adopted.
        TakenOver = "taken_over",
        /// Connections that came back to this loop before it had released them.
        TakenBack = "taken_back",
        /// Events, deadlines and wakes of connections that another loop has taken over, dropped.
        EventsLost = "events_lost",
        /// Messages from other threads.
        Messages = "messages",
        /// Times that a watched source (a datagram socket, a timer, signals) was readable.
        SourcesReadable = "sources_readable",
        /// Sources that the kernel refused to watch on; they were dropped (completion loop).
        SourcesFailed = "sources_failed",
        /// Signals handled.
        Signals = "signals",
        /// Ring enters (completion loop).
        RingEnters = "ring_enters",
        /// Completions taken (completion loop).
        Completions = "completions",
        /// Times that completions did not fit the queue (completion loop).
        RingOverflows = "ring_overflows",
        /// Receives that ended because no buffer was left (completion loop).
        BufferStarvations = "buffer_starvations",
        /// Receives armed again after the kernel had ended them (completion loop).
        Rearms = "rearms",
        /// Spins of a busy-polling loop that found nothing.
        BusySpins = "busy_spins",
        /// Times that free memory of the heap was given back to the kernel: many connections had left, or hold less.
        HeapTrims = "heap_trims",
        /// Turns that moved the date which the loops of a group share.
        DateWrites = "date_writes",
    }
}

named_counters! {
    /// Why a connection was closed; the sum over all is the number of connections that ended.
    #[non_exhaustive]
    CloseCause {
        /// The session closed it.
        Session = "session",
        /// The session closed it at once, without waiting for the output.
        Aborted = "aborted",
        /// The session reset it: what was sent is not to be taken for the whole.
        Reset = "reset",
        /// The peer closed, and nothing was left to say.
        PeerClosed = "peer_closed",
        /// The peer reset the connection.
        PeerReset = "peer_reset",
        /// The peer did not read its output fast enough.
        SlowReader = "slow_reader",
        /// The session left more input unused than a connection may keep.
        InputLimit = "input_limit",
        /// Another error of the socket.
        SocketError = "socket_error",
        /// A file that was being sent could not be read, or was shorter than was announced.
        FileFailed = "file_failed",
        /// It was handed to a loop that had its most connections already.
        LoopFull = "loop_full",
        /// Another loop has taken the connection over; it lives on there.
        TakenOver = "taken_over",
        /// A connection to a peer was not established.
        ConnectFailed = "connect_failed",
        /// The loop was drained and the connection had its time.
        Drained = "drained",
        /// The loop ended with the connection open.
        LoopEnded = "loop_ended",
    }
}

impl CloseCause {
    /// Whether what the peer has not taken is dropped, and the peer sees a reset.
    ///
    /// One whose file fails, or that is open when its loop ends, had more to send, or to receive: an end would make
    /// a part pass for the whole. `is_said` is the exception: its session was done, and only the peer was waited
    /// for.
    pub(crate) fn drops_untaken(self, is_said: bool) -> bool {
        match self {
            Self::SlowReader | Self::Reset | Self::FileFailed => true,
            Self::Drained | Self::LoopEnded => !is_said,
            _ => false,
        }
    }
}

/// Live counters of one loop.
///
/// ```
/// use pollux_engine::{Counter, Driver, EventLoop, Limits, NoSession};
/// use std::time::Duration;
///
/// let mut event_loop = EventLoop::<NoSession>::open(Driver::default(), (), Limits::default())?;
/// let counters = event_loop.counters(); // for any thread
/// event_loop.turn(Some(Duration::ZERO))?;
/// assert_eq!((counters.value(Counter::Turns), counters.open()), (1, 0));
/// for counter in Counter::ALL {
///     println!("{} {}: {}", counter.name(), counters.value(*counter), counter.about());
/// }
/// # Ok::<(), pollux_engine::LoopError>(())
/// ```
#[derive(Debug)]
#[repr(align(128))]
pub struct Counters {
    counts: [Count; Counter::ALL.len()],
    closes: [Count; CloseCause::ALL.len()],
    /// Why an accept failed last so that the listener paused; 0 for never.
    accept_errno: AtomicI32,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| Count::default()),
            closes: std::array::from_fn(|_| Count::default()),
            accept_errno: AtomicI32::new(0),
        }
    }
}

impl Counters {
    /// The count of `counter` as of now, from any thread.
    #[must_use]
    pub fn value(&self, counter: Counter) -> u64 {
        self.counts[counter as usize].value()
    }

    /// How many connections were closed for `cause`.
    #[must_use]
    pub fn closed(&self, cause: CloseCause) -> u64 {
        self.closes[cause as usize].value()
    }

    /// How many connections were closed.
    #[must_use]
    pub fn closed_total(&self) -> u64 {
        CloseCause::ALL.iter().map(|cause| self.closed(*cause)).sum()
    }

    /// What the kernel said when an accept failed last and the listener paused (`accept(2)`:
    /// EMFILE, ENFILE, ENOBUFS, ENOMEM, or an error of the listener); none before the first time.
    #[must_use]
    pub fn accept_error(&self) -> Option<std::io::Error> {
        let raw = self.accept_errno.load(Relaxed);
        (raw != 0).then(|| std::io::Error::from_raw_os_error(raw))
    }

    /// How many connections are open, give or take one that is just coming or going.
    #[must_use]
    pub fn open(&self) -> u64 {
        let begun = [Counter::Accepted, Counter::Adopted, Counter::Connects];
        let begun: u64 = begun.iter().map(|counter| self.value(*counter)).sum();
        begun.saturating_sub(self.closed_total() + self.value(Counter::HandedOut))
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        self.counts[counter as usize].add(amount);
    }

    pub(crate) fn set_accept_errno(&self, errno: Errno) {
        self.accept_errno.store(errno.raw_os_error(), Relaxed);
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    pub(crate) fn count_close(&self, cause: CloseCause) {
        self.closes[cause as usize].add(1);
    }
}
